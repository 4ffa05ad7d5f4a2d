"""The address bar: a page's choices as a link, and whether somebody has changed it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import streamlit as st

LATE_SECONDS = 1.5
"""How long an address that was just overwritten is taken for a late one, not for a new one."""


@dataclass(kw_only=True)
class Linked:
    """One visitor's choices, which the address names.

    Attributes:
        link: the address as last read or written.
    """

    link: dict[str, str] = field(default_factory=dict)
    _overwritten: tuple[dict[str, str], float] = field(default=({}, 0.0), repr=False)

    def set_link(self, link: dict[str, str]) -> None:
        """Make the address bar say this."""
        shown = st.query_params.to_dict()
        if shown != link:
            self._overwritten = (shown, time.monotonic())
            st.query_params.from_dict(link)
        self.link = link

    def is_new_link(self, params: dict[str, str]) -> bool:
        """Whether somebody changed the address, and not we a moment ago.

        A click that left the browser before our change arrived still carries the old address.
        """
        overwritten, when = self._overwritten
        late = params == overwritten and time.monotonic() - when < LATE_SECONDS
        return params != self.link and not late

    def is_called(self, params: dict[str, str], page: str) -> bool:
        """Whether a page is to follow the address; one that is come back to has lost its own."""
        coming_back = st.session_state.get("page") != page
        return self.is_new_link(params) and bool(params or not coming_back)
