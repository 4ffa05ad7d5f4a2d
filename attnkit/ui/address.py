"""The address bar: a page's choices as a link, and whether somebody has changed the link.

One visit to a page is one entry in the browser's history; `assets/history.js` lets a choice within
the page change this entry. The address leaves out choices that are the default.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

QUIET = "quiet"
"""Field of a link that opens pages in the quiet mode (`quiet=1`), and key of the mode in the
session's state."""

LATE_SECONDS = 1.5
"""Seconds in which an address that was just overwritten counts as late, not as a new link."""


@dataclass(kw_only=True)
class Linked:
    """Choices of one visitor that the address names.

    Attributes:
        link: The query parameters as last read or written, without that of the quiet mode. Others
            mean that the browser's history or a link in the page has changed them.
    """

    link: dict[str, str] = field(default_factory=dict)
    _overwritten: tuple[dict[str, str], float] = field(default=({}, 0.0), repr=False)

    def set_link(self, link: dict[str, str]) -> None:
        """Write query parameters into the address bar; that of the quiet mode is added."""
        present, quiet = st.query_params.to_dict(), {QUIET: "1"} if is_quiet() else {}
        wanted = {**link, **quiet}
        if present != wanted:
            self._overwritten = (without_quiet(present), time.monotonic())
            st.query_params.from_dict(wanted)
        self.link = link

    def is_new_link(self, params: dict[str, str]) -> bool:
        """Return whether somebody changed the address, and not this page a moment ago.

        A click that left the browser before our change arrived still carries the old address.
        """
        params = without_quiet(params)
        overwritten, when = self._overwritten
        late = params == overwritten and time.monotonic() - when < LATE_SECONDS
        return params != self.link and not late

    def is_called(self, params: dict[str, str], page: str) -> bool:
        """Return whether a page must follow the address.

        A page to which a link in the navigation leads back without parameters keeps its choices,
        because the navigation does not know them. An entry of the browser's history is followed
        as it is: without parameters it means the defaults.
        """
        if _is_from_history():
            return without_quiet(params) != self.link
        coming_back = st.session_state.get("page") != page
        return self.is_new_link(params) and bool(params or not coming_back)


def _is_from_history() -> bool:
    """Return whether the browser's Back or Forward has led to the present run."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def is_quiet() -> bool:
    """Return whether this visitor guesses before results are shown."""
    lab = st.session_state.get("lab")
    return bool(st.session_state.get(QUIET) if lab is None else lab.quiet)


def without_quiet(params: dict[str, str]) -> dict[str, str]:
    """Return query parameters without that of the quiet mode."""
    return {name: value for name, value in params.items() if (name, value) != (QUIET, "1")}


def keep_quiet() -> None:
    """Begin the quiet mode if the address says so, and name it in the address of every page.

    A page that is loaded anew, or opened in another tab, then does not show what was hidden.
    """
    if st.query_params.get(QUIET) == "1" and "lab" not in st.session_state:
        st.session_state[QUIET] = True
    elif is_quiet() and QUIET not in st.query_params:
        st.query_params[QUIET] = "1"


class _FollowsLink(Protocol):
    """Choices that a link can name."""

    def follow(self, params: dict[str, str]) -> None: ...

    def is_called(self, params: dict[str, str], page: str) -> bool: ...


MOST_CHARACTERS = 60
"""Characters of a faulty link that a message repeats."""


def shortened(text: str) -> str:
    """Return a text of a faulty link, cut to what a message repeats."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


_Choice = TypeVar("_Choice", bound=_FollowsLink)


def open_choice(page: str, key: str, make: Callable[[], _Choice]) -> _Choice:
    """Return this visitor's choices on a page, made from a link that is new or has changed.

    Args:
        page: Name of the page in the address.
        key: Key of the choices in the session's state.
        make: Returns the choices of a new visitor.
    """
    params = without_quiet(st.query_params.to_dict())
    choice: _Choice | None = st.session_state.get(key)
    if choice is None:
        choice = st.session_state[key] = make()
        choice.follow(params)
    elif choice.is_called(params, page):
        choice.follow(params)
    st.session_state.page = page
    return choice
