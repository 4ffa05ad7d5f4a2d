"""Texts that people typed, where Streamlit reads Markdown."""

import re

import pytest

from attnkit.ui.markdown import plain

AUTOLINKS = r"(https?://|www(?=\.))([-.\w]+)|(?:^|\s|[^\w])([-.\w+]+)@([-\w]+(?:\.[-\w]+)+)"
"""What Streamlit's Markdown makes links of, after it has resolved escapes."""


def resolved(text):
    """A text as Markdown shows it: without the backslashes of escapes."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)


@pytest.mark.parametrize(
    "text",
    [
        "https://evil.invalid",
        "HTTP://evil.invalid/a?b=c",
        "www.evil.invalid",
        "WWW.evil.invalid",
        "eva@evil.invalid",
        "a https://b.c www.d.e f@g.h",
    ],
)
def test_no_address_becomes_a_link(text):
    """And nothing that can be seen is added."""
    shown = resolved(plain(text))
    assert not re.search(AUTOLINKS, shown, re.IGNORECASE)
    assert shown.replace("\u2060", "") == text


@pytest.mark.parametrize("text", ["W_Q + W_K", "a: b", "a/b", "**x** <b>", "wwwhat", "Jindřich 7"])
def test_other_texts_are_shown_as_typed(text):
    """Escapes only."""
    assert resolved(plain(text)) == text
