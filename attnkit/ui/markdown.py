"""Texts that people typed, in places where Streamlit reads Markdown."""

from __future__ import annotations

import re

_WORD_JOINER = "\u2060"
"""A character without width, at which no line is broken."""


def plain(text: str) -> str:
    """Return a text in which nothing is taken for Markdown, HTML or an address to link to.

    Addresses of sites and of people are found after the escapes have been resolved, so no escape
    keeps them from becoming links; a character that nobody sees does.
    """
    text = re.sub(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?=@)", _WORD_JOINER, text, flags=re.IGNORECASE)
    return re.sub(r"([\\`*_{}\[\]()<>#+\-.!|~$:&^=])", r"\\\1", text)


def with_formulas(text: str) -> str:
    """The same, but matrices as formulas: W_Q, W_K, W_V, and W_Q W_Kᵀ."""
    parts = re.split(r"(W_[QKV](?: W_Kᵀ)?)", text)
    words = map(plain, parts[::2])
    matrices = ["$" + part.replace("ᵀ", r"^\top") + "$" for part in parts[1::2]] + [""]
    return "".join(word + matrix for word, matrix in zip(words, matrices, strict=True))
