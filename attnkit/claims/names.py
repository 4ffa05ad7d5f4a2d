"""Names of arms in the reader's language. In records and statements they are English."""

from __future__ import annotations

import re
from functools import cache
from string import Formatter

from attnkit.foundation.language import Message, mark

_WORDS = (
    # how long an arm is trained, and how
    mark("{steps:,} steps"),
    mark("constant rate"),
    mark("cosine rate"),
    mark("same rate"),
    # tasks
    mark("dictionary"),
    mark("married"),
    # Translators: Names of people, as a task of translation.
    mark("names"),
    mark("phone book"),
    # Translators: The relation "who reports to whom", as the name of a task.
    mark("reports to"),
    mark("text"),
    mark("{n} entries"),
    mark("{n} pairs"),
    # models
    mark("1 head"),
    mark("1 head of {width}"),
    mark("{n} heads"),
    mark("{n} heads of {width}"),
    mark("{n} layers"),
    mark("{width} wide"),
    mark("12.5% larger"),
    mark("MLP {width}"),
    # kinds of attention
    # Translators: A quarter of each vector is rotated.
    mark("a quarter"),
    # Translators: All of each vector is rotated.
    mark("all"),
    # Translators: The average of two matrices.
    mark("average"),
    # Translators: The model sees the text on both sides of a token.
    mark("both sides"),
    # Translators: Values of the bottom layer and keys of the middle one.
    mark("bottom and middle"),
    # Translators: The model sees the text before a token only.
    mark("causal"),
    mark("every layer"),
    mark("every second layer"),
    # Translators: Exclusive self-attention.
    mark("exclusive"),
    mark("half as wide"),
    mark("half shared"),
    # Translators: Values are keys after norm and rotation, or before.
    mark("K=V after"),
    mark("K=V before"),
    mark("keep K"),
    mark("keep V"),
    # Translators: Attention without keys of its own.
    mark("keyless"),
    # Translators: Value matrices that are learnt.
    mark("learnt"),
    mark("low-rank residuals"),
    mark("never tied"),
    mark("no matrix"),
    mark("nonlinear queries"),
    mark("not rotated back"),
    # Translators: Attention without value and output matrix, with shaped attention.
    mark("O=I and shaped"),
    mark("QKV (twice the cache)"),
    # Translators: Value matrices that are random.
    mark("random"),
    mark("rank {rank} in a head of {width}"),
    mark("rotated back"),
    mark("rotated values"),
    mark("self-mask"),
    mark("skew part of rank {rank}"),
    mark("skew part of {rank} in a head of {width}"),
    mark("symmetric start"),
    mark("two key heads of four"),
    mark("values from keys"),
    mark("V=I and O=I"),
    # labels before a sentence
    mark("Dictionary"),
    mark("Married"),
    mark("Phone book"),
    # Translators: The relation "who reports to whom", as the name of a task.
    mark("Reports to"),
    mark("Self-mask"),
    mark("Text"),
)
"""Parts of names, with numbers by name; other parts are names of variants."""


def _pattern(words: str) -> re.Pattern[str]:
    """Return the pattern of a part of a name, with a group for each number."""
    parsed = Formatter().parse(words)
    return re.compile(
        "".join(
            re.escape(text) + (rf"(?P<{field}>\d[\d,]*)" if field else "")
            for text, field, *_ in parsed
        )
    )


_PATTERNS = [(words, _pattern(words)) for words in _WORDS]


@cache
def named(name: str) -> str:
    """Return the name of an arm as a text that `tr` translates."""
    parts = {f"part_{index}": _part(part) for index, part in enumerate(name.split(", "))}
    return Message(", ".join(f"{{{key}}}" for key in parts), parts)


def label_of(condition: str) -> str:
    """Return a condition, as in the name of an arm, as a label before a sentence."""
    return named(f"{condition[0].upper()}{condition[1:]}")


def _part(part: str) -> str:
    """Return a part of a name as a text that `tr` translates; variants stay as they are."""
    for words, pattern in _PATTERNS:
        if found := pattern.fullmatch(part):
            numbers = {key: int(text.replace(",", "")) for key, text in found.groupdict().items()}
            return Message(words, numbers)
    return part
