"""Widgets that all pages share: widgets bound to a choice, sections, downloads, messages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import add_script_run_ctx, get_script_run_ctx

from attnkit.foundation.language import tr
from attnkit.ui.markdown import plain

_MIME_TYPES = {
    "csv": "text/csv",
    "html": "text/html",
    "json": "application/json",
    "parquet": "application/octet-stream",
    "py": "text/x-python",
    "safetensors": "application/octet-stream",
    "toml": "application/toml",
}
"""MIME type of downloaded files by their suffix."""


def bound(
    target: object,
    field: str,
    key: str,
    take: Callable[[Any], object] | None = None,
    *,
    required: bool = False,
) -> dict[str, Any]:
    """Return the arguments that bind a widget to a value of an object.

    The widget shows the value that the object has, and sets it when the visitor changes the widget.
    Streamlit forgets the widgets of a page that was left; the object keeps its values.

    Args:
        target: The object; a dictionary's value is that of the key `field`.
        field: Name of the value.
        key: Key of the widget.
        take: Called with the widget's new value, in place of setting the field.
        required: Whether one of the options must stay chosen, in a row of buttons.
    """

    def change() -> None:
        value = st.session_state[key]
        if required and value is None:  # no browser sends this
            return
        if take is not None:
            take(value)
        elif isinstance(target, dict):
            target[field] = value
        else:
            setattr(target, field, value)

    st.session_state[key] = target[field] if isinstance(target, dict) else getattr(target, field)
    return {"key": key, "on_change": change} | ({"required": True} if required else {})


def sections(
    choice: Any, titles: Mapping[str, str], draw: Mapping[str, Callable[[], None]], key: str
) -> None:
    """Draw the buttons that open a section, and the open one; a second press closes it.

    Args:
        choice: Object whose `section` is the name of the open section; empty if none is open.
    """
    st.segmented_control(
        tr("Look closer"),
        list(titles),
        format_func=lambda name: tr(titles[name]),
        wrap=True,
        **bound(choice, "section", key, lambda name: setattr(choice, "section", name or "")),
    )
    if choice.section in draw:
        st.subheader(tr(titles[choice.section]), anchor=choice.section)
        draw[choice.section]()


def download(
    label: str,
    data: str | bytes | Callable[[], str | bytes],
    file: str,
    *,
    key: str,
    icon: str = "download",
    help: str | None = None,
) -> None:
    """Draw a button that downloads a file, whose suffix decides its MIME type.

    A function as `data` makes the content when the button is pressed. `icon` is the name of a
    Material icon.
    """
    data = _in_session(data) if callable(data) else data
    st.download_button(
        label,
        data,
        file,
        _MIME_TYPES[file.rpartition(".")[2]],
        icon=f":material/{icon}:",
        on_click="ignore",
        key=key,
        help=help,
    )


def _in_session(make: Callable[[], str | bytes]) -> Callable[[], str | bytes]:
    """Return a function that makes content in a thread of the present session.

    Streamlit makes what is downloaded in a thread of its own, which has no session: the session's
    state is empty there, and every look at it is a warning in the log.
    """
    context = get_script_run_ctx(suppress_warning=True)

    def made() -> str | bytes:
        with ThreadPoolExecutor(1, initializer=add_script_run_ctx, initargs=(None, context)) as one:
            return one.submit(make).result()

    return make if context is None else made


def selected_rows(key: str, n_rows: int) -> list[int]:
    """Return the indices of the selected rows, each once; a forged selection may have others."""
    rows = st.session_state[key].selection.rows
    return [row for row in range(n_rows) if row in rows] if isinstance(rows, list) else []


def key_of_table(prefix: str, version: int, rows: Iterable[str]) -> str:
    """Return the key of a table; it depends on the rows, as Streamlit remembers row numbers."""
    text = f"{version} {' '.join(rows)}"
    return f"{prefix}_{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}"


def warn_once(messages: list[str]) -> None:
    """Show messages, such as what is wrong with a link, and empty their list."""
    if messages:
        st.warning(plain(" ".join(messages)), icon=":material/warning:")
        messages.clear()
