"""Names of arms in the reader's language. In records and statements they are English.

A name has parts between commas. A part is the name of a variant, which stays as it is, or words.
"""

from __future__ import annotations

import re
from functools import cache
from string import Formatter

from attnkit.foundation.language import Message, mark

_WITH_NUMBERS = (
    mark("{steps:,} steps"),
    mark("{n} entries"),
    mark("{n} pairs"),
    mark("1 head of {width}"),
    mark("{n} heads"),
    mark("{n} heads of {width}"),
    mark("{n} layers"),
    mark("{width} wide"),
    mark("MLP {width}"),
    mark("rank {rank} in a head of {width}"),
    mark("skew part of rank {rank}"),
    mark("skew part of {rank} in a head of {width}"),
)
"""Parts of names with numbers in them."""

# What `Arm.longer` adds to a name.
mark("constant rate")
mark("cosine rate")


def _pattern(words: str) -> re.Pattern[str]:
    """Return the pattern of a part of a name, with a group for each number."""
    parsed = Formatter().parse(words)
    return re.compile(
        "".join(
            re.escape(text) + (rf"(?P<{field}>\d[\d,]*)" if field else "")
            for text, field, *_ in parsed
        )
    )


_PATTERNS = [(words, _pattern(words)) for words in _WITH_NUMBERS]


def joined(*texts: str, between: str = " ") -> str:
    """Return texts one after the other, as one text that `tr` translates."""
    values = {f"text_{index}": text for index, text in enumerate(texts)}
    return Message(between.join(f"{{{key}}}" for key in values), values)


@cache
def named(name: str) -> str:
    """Return the name of an arm as a text that `tr` translates."""
    return joined(*map(part_of_name, name.split(", ")), between=", ")


def label_of(condition: str) -> str:
    """Return a condition, as in the name of an arm, as a label before a sentence."""
    return named(f"{condition[0].upper()}{condition[1:]}")


def part_of_name(part: str) -> str:
    """Return a part of a name as a text that `tr` translates; variants stay as they are."""
    for words, pattern in _PATTERNS:
        if found := pattern.fullmatch(part):
            numbers = {key: int(text.replace(",", "")) for key, text in found.groupdict().items()}
            return Message(words, numbers)
    return Message(part, {}) if re.search("[a-z]{2}", part) else part
