"""Attention of one's own in the Lab: a class of a Python file on this machine becomes a column.

Only copies for oneself offer it, and only to a browser on the same machine: whoever loads a file
executes it. The page reads files without executing them; `attnkit.service.modules` executes one
when the visitor presses a button.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import streamlit as st

from attnkit.analysis.export import module_code
from attnkit.foundation.language import tr
from attnkit.foundation.settings import message_of
from attnkit.service.server import server_settings
from attnkit.ui.lab.lab import Lab, setting_key
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import training_service
from attnkit.ui.server.turns import fragment
from attnkit.ui.server.visitor_address import is_on_this_machine
from attnkit.ui.widgets import download
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.module import classes_in, read_code
from attnkit.variants.module_layers import CONSTRUCTOR_SIZES

_FILE, _PATH, _CLASS = "own_attention_file", "own_attention_path", "own_attention_class"
_SECTION = "own_attention"
"""Keys of the choices and of the section."""

_LOADED, _FAILED = "own_attention_loaded", "own_attention_failed"
"""Keys of the variant that was loaded last with the one that it replaces, and of what failed."""

_START = f"""# Change the class Layer, which attnkit trains. The class Transformer is not read.
# To see maps and asymmetry, let forward return (x, scores, pattern), (b, i, j) or (b, h, i, j):
#     pattern = masked.softmax(-1)
#     return x + self.W_O(pattern @ v), scores, pattern
# The constructor may ask for any of these by name, instead of the numbers that stand here:
#     {", ".join(("layer", "has_mlp", *CONSTRUCTOR_SIZES))}
"""


def own_attention(lab: Lab, *, is_full: bool) -> None:
    """Draw the section in which a class of a file is chosen and loaded, if a column fits."""
    if server_settings().hosted:
        return
    section = st.expander(
        tr("Your own PyTorch module"), icon=":material/code:", key=_SECTION, on_change="rerun"
    )
    if not section.open:
        return
    with section:
        if not is_on_this_machine():
            st.caption(
                tr(
                    "Open the Lab in a browser on the machine where attnkit runs, at localhost or "
                    "127.0.0.1: loading a file executes it, so nobody else in the network may do "
                    "that."
                )
            )
            return
        training_service().prepare_modules()
        st.caption(
            tr(
                "A class that computes one layer: `forward` maps the residual stream x to that "
                "after the layer. It may return (x, scores, pattern), and then has maps and "
                "asymmetry."
            )
        )
        download(
            tr("A file to start from"),
            _START + module_code(lab.experiment.replace(sharing=["QKV"]), "QKV"),
            "my_attention.py",
            key="own_attention_template",
            help=tr(
                "QKV at your sizes. Save it beside your other files, and change its class Layer."
            ),
        )
        if (chosen := _choose()) is None:
            return
        file, wanted = chosen
        failure = st.container()  # above the button, because what is below it may be out of sight
        if st.button(
            tr("Load and add"),
            type="primary",
            icon=":material/add:",
            key="own_attention_load",
            disabled=is_full,
            help=tr("The file is executed on this machine, in processes of their own."),
        ):
            _load(lab, file, wanted)
        with failure:
            _show_failure(file, wanted)


def _choose() -> tuple[str, str] | None:
    """Draw the choices of a file and of a class in it, and return both if there are any."""
    files = _files()
    listed = st.selectbox(
        tr("Python file"),
        files,
        index=None,
        placeholder=tr("Choose a file")
        if files
        else tr("None in this folder has a method forward"),
        key=_FILE,
        help=tr(
            "Files with a method `forward` in {folder}, where attnkit was started, the newest "
            "first.",
            folder=plain(str(Path.cwd())),
        ),
    )
    typed = st.text_input(
        tr("Or its path"),
        placeholder="/home/me/layers/mine.py",
        max_chars=4096,
        key=_PATH,
    )
    if not (file := str(typed).strip() or listed):
        return None
    try:
        classes = classes_in(read_code(file), file)
    except ValueError as error:
        st.error(plain(f"{tr(message_of(error))}."), icon=":material/error:")
        return None
    if not classes:
        none = tr("{file} has no class with a method `forward`.", file=plain(Path(file).name))
        st.error(none, icon=":material/error:")
        return None
    wanted: str = st.selectbox(tr("Class"), classes, key=_CLASS)
    return file, wanted


def _files() -> list[str]:
    dated = []
    for path in Path.cwd().glob("*.py"):
        try:
            state = path.stat()
            if _has_forward(str(path), state.st_mtime_ns, state.st_size):
                dated.append((state.st_mtime_ns, path.name))
        except (OSError, ValueError):  # it cannot be read
            continue
    return [name for _, name in sorted(dated, reverse=True)[:100]]


@lru_cache(1000)
def _has_forward(path: str, changed_ns: int, n_bytes: int) -> bool:
    """Return whether a file has a method `forward`; it is read once in each of its states."""
    return b"def forward" in read_code(path)


def _load(lab: Lab, file: str, wanted: str, replaced: Variant | None = None) -> None:
    with st.spinner(tr("Loading {name} …", name=plain(wanted))):
        try:
            variant = training_service().load_module(file, wanted)
            experiment, wrong = lab.preview(variant)
            fits = variant in lab.chosen or (replaced is not None and experiment is not None)
            problems = [] if fits else [problem.reason for problem in wrong]
        except ValueError as error:
            problems = [tr(message_of(error))]
    if problems:
        st.session_state[_FAILED] = file, wanted, f"{' '.join(problems)}."
        return
    st.session_state[_FAILED] = None
    st.session_state[_LOADED] = variant, replaced
    st.rerun()


def _show_failure(file: str, wanted: str, note: str = "") -> None:
    failed = st.session_state.get(_FAILED)
    if failed is not None and failed[:2] == (file, wanted):
        st.error(plain(f"{failed[2]} {note}".rstrip()), icon=":material/error:")


def take_loaded(lab: Lab) -> bool:
    """Add the variant that was just loaded, if any, and return whether there is one."""
    variant, replaced = st.session_state.pop(_LOADED, None) or (None, None)
    if variant is None:
        return False
    if replaced is not None and replaced != variant:
        key = setting_key("sharing")
        st.session_state[key] = [name for name in lab.chosen if name != replaced]
        lab.offered = [other for other in lab.offered if other != replaced]
    lab.add(variant)
    return True


def changed_files(lab: Lab) -> None:
    """Draw a note, with a button, for every column whose file has changed since it was loaded."""
    own = [Variant(name) for name in lab.chosen if "module" in Variant(name).given]
    if own and not server_settings().hosted:
        fragment(_changed_files, run_every=2.0)(lab, own)


def _changed_files(lab: Lab, own: list[Variant]) -> None:
    for number, variant in enumerate(own):
        changed = training_service().changed_module(variant)
        if changed is None:
            continue
        file, wanted = changed
        name, title = plain(Path(file).name), plain(title_of(variant))
        note = tr("{file} has changed since {title} was loaded.", file=name, title=title)
        st.info(note, icon=":material/edit_document:")
        if st.button(tr("Load it again"), icon=":material/refresh:", key=f"own_attention_{number}"):
            _load(lab, file, wanted, variant)
        _show_failure(file, wanted, tr("The column keeps the code that it has."))
