"""Escaping of texts that are no Markdown, for places where Streamlit reads Markdown."""

from __future__ import annotations

import re


def plain(text: str) -> str:
    """Return a text in which nothing is read as Markdown, HTML or a link.

    Addresses of sites and e-mail become links after escapes have been resolved, so that no escape
    prevents it; an invisible character does.
    """
    text = re.sub(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?=@)", "\u2060", text, flags=re.IGNORECASE)
    return re.sub(r"([\\`*_{}\[\]()<>#+\-.!|~$:&^=])", r"\\\1", text)


def with_formulas(text: str) -> str:
    """Return `plain` of a text, with W_Q, W_K, W_V and W_Q W_Kᵀ as formulas."""
    parts = re.split(r"(W_[QKV](?: W_Kᵀ)?)", text)
    words = map(plain, parts[::2])
    matrices = ["$" + part.replace("ᵀ", r"^\top") + "$" for part in parts[1::2]] + [""]
    return "".join(word + matrix for word, matrix in zip(words, matrices, strict=True))
