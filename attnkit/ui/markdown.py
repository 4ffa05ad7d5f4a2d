"""Texts that people typed, in places where Streamlit reads Markdown."""

from __future__ import annotations

import re


def plain(text: str) -> str:
    """A text in which nothing is taken for Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]()<>#+\-.!|~$:&^=])", r"\\\1", text)
