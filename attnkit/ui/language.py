"""The language of a page: what the visitor has chosen, else what the browser asks for.

A page whose texts are not translated yet is English as a whole, and says so, because a page in two
languages is hard to read.
"""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attnkit.foundation.language import ENGLISH, LANGUAGES, language, set_language_source, tr
from attnkit.ui.address import LANGUAGE, browser_language
from attnkit.ui.server.widget_values import send_choices_again

TRANSLATED = frozenset({"lab", "questions", "guide"})
"""Names of the pages that are there in every language."""

_SHOWN = "shown_language"
"""Key in the session's state of the language of the page on screen."""


def chosen_language() -> str:
    """Return the language that the visitor has chosen, for what stands around every page."""
    if LANGUAGE not in st.session_state:
        asked = st.query_params.get(LANGUAGE, "")
        st.session_state[LANGUAGE] = asked if asked in LANGUAGES else browser_language()
    return str(st.session_state[LANGUAGE])


def settle_language(page: str) -> None:
    """Decide in which language the page is written from now on.

    Args:
        page: Name of the page.
    """
    before, now = _shown(), chosen_language() if page in TRANSLATED else ENGLISH
    st.session_state[_SHOWN] = now
    set_language_source(_shown)
    if before != now:
        send_choices_again()


def language_switch() -> None:
    """Draw the choice of a language, and say so if the page is in English only."""
    st.selectbox(
        tr("Language of the page"),
        list(LANGUAGES),
        format_func=lambda code: LANGUAGES[code],
        key=LANGUAGE,
        label_visibility="collapsed",
    )
    if language() != _shown():
        st.caption(tr("This page is in English only."))


def _shown() -> str:
    """Return the language of the page of the present thread; English where there is no page."""
    context = get_script_run_ctx(suppress_warning=True)
    if context is None:
        return ENGLISH
    shown = st.session_state.get(_SHOWN, ENGLISH)
    return shown if shown in LANGUAGES else ENGLISH
