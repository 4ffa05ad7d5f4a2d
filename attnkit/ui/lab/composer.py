"""The form that adds a variant to the Lab: from the catalogue, written by hand, or from a file.

A class of a Python file on this machine becomes a column. Only copies for oneself offer it, and
only to a browser on the same machine: whoever loads a file executes it. The page reads files
without executing them; `attnkit.service.modules` executes one when the visitor presses a button.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import streamlit as st

from attnkit.analysis.export import module_code
from attnkit.experiment import Experiment
from attnkit.figures.board import adjustment
from attnkit.foundation.language import tr, tr_n
from attnkit.foundation.settings import as_sentence, message_of
from attnkit.service.server import server_settings
from attnkit.ui import components
from attnkit.ui.lab.lab import MOST_COLUMNS, Lab, setting_key
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import training_service
from attnkit.ui.server.turns import fragment, is_on_this_machine
from attnkit.ui.widgets import download
from attnkit.variants import CATALOGUE, InvalidVariant, Named, Variant, names_of
from attnkit.variants.catalogue import search, title_of
from attnkit.variants.module import classes_in, read_code
from attnkit.variants.module_layers import CONSTRUCTOR_SIZES
from attnkit.variants.palette import colors_of
from attnkit.variants.text import LONGEST, find, key_of

OPEN = "add_variant"
"""Key of the popover; its value tells whether it is open."""

_NAME, _TEXT, _FOUND = "catalogue_name", "variant_text", "variants_found"
"""Keys of the list, of the text field and of the entries that the text finds."""


def variant_form(lab: Lab) -> None:
    """Draw the choice of a variant, its description and costs, and the button that adds it.

    When as many columns are chosen as fit, the form says so first and adds nothing.
    """
    if is_full := len(lab.chosen) >= MOST_COLUMNS:
        st.warning(
            tr(
                "{most} variants are chosen, as many as fit side by side. Switch one off before "
                "you add another.",
                most=MOST_COLUMNS,
            )
        )
    text, matches = _pick_text()
    if not text:
        st.caption(tr("What you find or choose can be changed before it is added."))
        page_link("variants", tr("All words"), icon=":material/category:")
        _own_attention(lab, is_full=is_full)
        return
    try:
        variant = Variant(text)
    except InvalidVariant as error:
        if matches:
            st.caption(tr("Choose one of those found."))
        else:
            _show_error(as_sentence(tr(message_of(error))))
        return
    experiment, problems = lab.preview(variant)
    if experiment is not None:
        _preview(variant, experiment)
    for problem in problems:  # without the variant, which stands above
        is_of_variant = problem.field == "sharing" and problem.has_reason
        _show_error(as_sentence(problem.reason) if is_of_variant else problem.sentence)
    if experiment is None:
        return
    is_chosen = variant in lab.chosen
    if is_chosen:
        st.caption(tr("It is one of your columns."))
    st.button(
        tr("Add"),
        type="primary",
        icon=":material/add:",
        key="add",
        disabled=is_full or is_chosen or bool(problems),
        on_click=_add,
        args=(lab, variant),
    )


def _pick_text() -> tuple[str, list[str]]:
    """Draw the search and the list of the catalogue; return the text and the keys that it finds."""
    state = st.session_state

    def with_text_form(key: str) -> str:
        named = CATALOGUE[key]
        return named.name if named.name == named.variant else f"{named.name} · {named.variant}"

    def with_alias(key: str) -> str:
        named = CATALOGUE[key]
        return f"{named.name} ({named.aliases[0]})" if named.aliases else named.name

    def take_name() -> None:
        state[_NAME] = key_of_text(str(state[_TEXT]))

    def write_entry() -> None:
        """Write the chosen entry as a text form, so that it can be changed."""
        state[_TEXT] = CATALOGUE[state[_NAME]].variant.value if state[_NAME] else ""

    def take_match() -> None:
        if state[_FOUND]:
            state[_NAME] = state[_FOUND]
            write_entry()

    st.text_input(
        tr("Search, or write one"),
        placeholder="multi-query, DeepSeek, K=V n_heads=4 kv_heads=1",
        max_chars=LONGEST,
        key=_TEXT,
        on_change=take_name,
        live=True,
        help=tr(
            "Search by name, model, paper or a word of the explanation. Or write a sharing, "
            "then words: Q=K unit_key self_mask. The page Variants lists all words."
        ),
    )
    text = str(state[_TEXT]).strip()
    matches = _matches(text)
    if matches:
        st.pills(
            tr("Variants found"),
            matches,
            format_func=with_alias,
            key=_FOUND,
            on_change=take_match,
        )
    st.selectbox(
        tr("Or choose from the list"),
        list(CATALOGUE),
        index=None,
        format_func=with_text_form,
        placeholder=tr("All {n} variants", n=len(CATALOGUE)),
        filter_mode=None,
        key=_NAME,
        on_change=write_entry,
    )
    return text, matches


def key_of_text(text: str) -> str | None:
    """Return the key of the entry with this name or text form; None if there is none."""
    try:
        found = find(text.strip()) or next(iter(names_of(Variant(text))), None)
    except InvalidVariant:
        return None
    return None if found is None else key_of(found.name)


def _matches(text: str) -> list[str]:
    """Return the catalogue keys that a search text finds; none if the text is a text form.

    A name such as GQA is a variant, but other entries that contain it are found all the same.
    """
    named = find(text)
    if named is None or named.name == named.variant:
        try:
            Variant(text)
        except InvalidVariant:
            pass
        else:
            return []
    others = [entry for entry in search(text) if entry != named]
    return [key_of(entry.name) for entry in others[:12]]


def other_names(named: Named) -> str:
    """Return the other names of an entry and the models that have it; empty if there are none."""
    if not named.aliases:
        return ""
    return tr("Other names, or models that have it: {names}.", names=", ".join(named.aliases))


def costs_line(experiment: Experiment, variant: Variant) -> str:
    """Return the parameters, cache and multiply-adds of a variant in an experiment, in words."""
    costs = experiment.costs(variant)
    cache = costs.kv_cache
    if cache is None or cache != cache:
        return tr(
            "{parameters:,} parameters; per token an unknown number of numbers kept (KV cache) "
            "and {multiply_adds:,} multiply-adds",
            parameters=costs.parameters,
            multiply_adds=costs.multiply_adds,
        )
    return tr(
        "{parameters:,} parameters; per token {cache:,.0f} numbers kept (KV cache) and "
        "{multiply_adds:,} multiply-adds",
        parameters=costs.parameters,
        cache=cache,
        multiply_adds=costs.multiply_adds,
    )


def _show_error(sentence: str) -> None:
    st.error(plain(sentence), icon=":material/error:")


def _preview(variant: Variant, experiment: Experiment) -> None:
    named = names_of(variant)
    with st.container(key="preview"):
        color = colors_of(experiment.sharing)[experiment.sharing.index(variant)]
        components.diagram(experiment, variant, color, key="previewed")
        if named:
            st.markdown(f"**{named[0].name}.** {tr(named[0].explanation)}")
            if names := other_names(named[0]):
                st.caption(names)
            st.caption(tr("Source: {source}", source=named[0].source))
        else:
            st.markdown(f"`{variant.value}`  \n{tr(variant.meaning)}")
        costs = tr("At your sizes: {costs}.", costs=costs_line(experiment, variant))
        if changes := adjustment(experiment, variant):
            made_equal = tr("To make costs equal: {changes}.", changes=changes)
            costs = f"{costs} {made_equal}"
        st.caption(costs)
        n_heads = experiment.wiring(variant).sizes.n_heads
        if n_heads != experiment.size.n_heads:
            st.caption(
                tr_n(
                    "It has {n} head, where plain columns have {usual} here: compare its costs "
                    "with `{plain}`.",
                    "It has {n} heads, where plain columns have {usual} here: compare its costs "
                    "with `{plain}`.",
                    n_heads,
                    usual=experiment.size.n_heads,
                    plain=Variant(f"QKV n_heads={n_heads}").value,
                )
            )


def _add(lab: Lab, variant: Variant) -> None:
    lab.add(variant)
    st.session_state[_TEXT], st.session_state[_NAME] = "", None
    st.session_state[OPEN] = False


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


def _own_attention(lab: Lab, *, is_full: bool) -> None:
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
