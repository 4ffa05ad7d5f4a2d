"""The address bar: a page's choices as a link, and whether somebody has changed the link."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import streamlit as st

LATE_SECONDS = 1.5
"""Seconds in which an address that was just overwritten counts as late, not as a new link."""


@dataclass(kw_only=True)
class Linked:
    """Choices of one visitor that the address names.

    Attributes:
        link: The query parameters as last read or written. Others mean that the browser's history
            or a link in the page has changed them.
    """

    link: dict[str, str] = field(default_factory=dict)
    _overwritten: tuple[dict[str, str], float] = field(default=({}, 0.0), repr=False)

    def set_link(self, link: dict[str, str]) -> None:
        """Write query parameters into the address bar."""
        present = st.query_params.to_dict()
        if present != link:
            self._overwritten = (present, time.monotonic())
            st.query_params.from_dict(link)
        self.link = link

    def is_new_link(self, params: dict[str, str]) -> bool:
        """Return whether somebody changed the address, and not this page a moment ago.

        A click that left the browser before our change arrived still carries the old address.
        """
        overwritten, when = self._overwritten
        late = params == overwritten and time.monotonic() - when < LATE_SECONDS
        return params != self.link and not late

    def is_called(self, params: dict[str, str], page: str) -> bool:
        """Return whether a page must follow the address.

        A page to which the visitor comes back without parameters keeps its choices: the address
        has lost them on the way.
        """
        coming_back = st.session_state.get("page") != page
        return self.is_new_link(params) and bool(params or not coming_back)
