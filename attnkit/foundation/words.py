"""Sentences from tables of conditions, and their words: lists, counts, and verbs that agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any, NamedTuple

from attnkit.foundation.language import tr, tr_n

MOST_NAMED = 5
"""Most things that a sentence names one by one."""


class Sentence(NamedTuple):
    """Row of a table of sentences: a sentence, and the condition under which it is said.

    Attributes:
        text: The sentence, with names of numbers in braces.
        holds: Whether it holds of some numbers; by default, of all.
        kind: What the sentence is about, in tables on several things.
    """

    text: str
    holds: Callable[[Any], Any] = lambda numbers: True
    kind: str = ""

    def fill(self, numbers: Any, shown: Callable[[Any, str], Any] = getattr) -> str:
        """Return the sentence with numbers; `shown` returns the text of a number by its name."""
        fields = {
            field.partition(".")[0] for _, field, _, _ in Formatter().parse(self.text) if field
        }
        return tr(self.text, **{name: shown(numbers, name) for name in fields})


class Group(list[Any]):
    """Variants that a sentence names: `{group}` is their names, `{group:is|are}` a verb.

    Each member has a `name`.
    """

    def __format__(self, forms: str) -> str:
        if forms:
            return verb(self, *forms.split("|"))
        return named([member.name for member in self])


def first_true(
    rows: Iterable[Sentence] | Mapping[str, Callable[[Any], Any]],
    numbers: Any,
    shown: Callable[[Any, str], Any] = getattr,
) -> str:
    """Return the first sentence of a table that holds of some numbers; empty if none does.

    Args:
        rows: The table; or conditions by sentence, for pages that are in English only.
        numbers: What the conditions read.
        shown: Returns what a sentence shows for a number by its name.
    """
    if isinstance(rows, Mapping):
        rows = [Sentence(text, holds) for text, holds in rows.items()]
    row = next((row for row in rows if row.holds(numbers)), None)
    return "" if row is None else row.fill(numbers, shown)


def listed(names: Iterable[str], last: str = "and") -> str:
    """Return names as in a sentence: "a", "a and b", "a, b and c"; empty if there are none.

    Args:
        names: The names, in the reader's language.
        last: Word before the last name: "and" or "or".
    """
    *others, final = [*names] or [""]
    if not others:
        return final
    if last == "or":
        return tr("{others} or {last}", others=", ".join(others), last=final)
    return tr("{others} and {last}", others=", ".join(others), last=final)


def named(names: Sequence[str]) -> str:
    """Return the names of variants as a list; of many, only how many they are."""
    n_names = len(names)
    return listed(names) if n_names <= MOST_NAMED else tr_n("{n} variant", "{n} variants", n_names)


def shortened(texts: Sequence[str]) -> Sequence[str]:
    """Return the first texts and the number of all others, if there are many."""
    if len(texts) <= MOST_NAMED:
        return texts
    n_others = len(texts) - MOST_NAMED + 1
    return [*texts[: MOST_NAMED - 1], tr_n("{n} other", "{n} others", n_others)]


def all_of(names: Sequence[str]) -> str:
    """Return the subject of a sentence about all variants, such as "both variants"."""
    if len(names) == 1:
        return names[0]
    if len(names) == 2:
        return tr("both variants")
    return tr_n("all {n} variants", "all {n} variants", len(names))


def verb(subjects: Sequence[Any], one: str, several: str) -> str:
    """Return the form of a verb that agrees with the number of subjects.

    For English sentences only, as is `counted`: those of translated pages are whole messages.
    """
    return one if len(subjects) == 1 else several


def counted(number: int, noun: str) -> str:
    """Return a number of things, such as "1 seed" or "1,200 steps"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def numbers_kept(number: float | None) -> str:
    """Return how many numbers a decoder keeps, which is unknown (None or NaN) of some modules."""
    known = number is not None and number == number
    return f"{number:,.0f}" if known else "an unknown number of"


def capitalised(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]
