"""The language of a page: what the visitor has chosen, else what the browser asks for.

A page whose texts are not translated yet is English as a whole, and says so, because a page in two
languages is hard to read.
"""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attnkit.foundation.language import ENGLISH, LANGUAGES, language, set_language_source, tr
from attnkit.ui.address import LANGUAGE, browser_language
from attnkit.ui.server.browser_messages import send_choices_again

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
    """Decide in which language the page is written from now on."""
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


def page_label(page: str, label: str) -> str:
    """Return the label of a link to a page, which says so if the page is in English only."""
    if page in TRANSLATED or language() == ENGLISH:
        return label
    # Translators: Link to a page that is not translated; "English" is the language of that page.
    return tr("{label} (in English)", label=label)


def page_link(
    page: str,
    label: str,
    *,
    icon: str | None = None,
    query_params: dict[str, str] | None = None,
    help_text: str | None = None,
) -> None:
    """Draw a link to a page of the dashboard; all links within pages are drawn here.

    Args:
        label: The label in the reader's language; `page_label` adds the language of the page.
        query_params: Query of the address; that of the page as it was left if it is None.
    """
    st.page_link(
        f"pages/{page}.py",
        label=page_label(page, label),
        icon=icon,
        query_params=query_params,
        help=help_text,
    )


def _shown() -> str:
    """Return the language of the page of the present thread; English where there is no page."""
    context = get_script_run_ctx(suppress_warning=True)
    if context is None:
        return ENGLISH
    shown = st.session_state.get(_SHOWN, ENGLISH)
    return shown if shown in LANGUAGES else ENGLISH
