"""How the cells of a table in a text are separated: by tabs, semicolons or commas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

LONGEST_LINE = 20_000
"""Largest number of characters of a line."""

_LOOKED_AT = 100
"""Number of lines, the first ones, that decide how a table is separated."""

MOSTLY = 0.8
"""Smallest share of these lines that have as many separators as most if a text is a table."""

_QUOTED = re.compile(r'(?<![^\r\n,;\t])"(?:[^"]|"")*"(?=[\r\n,;\t]|$)')
"""A cell in quotation marks, in which separators and line breaks are part of the cell."""


def first_lines(text: str) -> list[str]:
    """Return the first lines of a text that are not empty, without cells in quotation marks."""
    beginning = _QUOTED.sub("q", text[: _LOOKED_AT * LONGEST_LINE // 10])
    lines = (line for line in re.split("[\r\n]+", beginning) if line.strip())
    return list(islice(lines, _LOOKED_AT))


def regularity(lines: Sequence[str], separator: str) -> float:
    """Return the share of lines, 0 … 1, that have as many separators as the first one with any."""
    counts = [line.count(separator) for line in lines]
    usual = next(filter(None, counts), 0)
    return counts.count(usual) / len(counts) if usual else 0.0


def separator_of(text: str) -> str:
    """Return what separates the cells: a tab, semicolon or comma, the most regular one."""
    lines = first_lines(text)
    return max("\t;,", key=lambda separator: regularity(lines, separator))
