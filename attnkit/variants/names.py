"""Names of variants: the catalogue and the look-up of a typed name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnkit.variants.text import Variant


@dataclass(frozen=True)
class Named:
    """A variant with a name, as an entry of the catalogue.

    Attributes:
        name: Short name, typed and displayed.
        variant: The variant.
        explanation: What it does and why, in plain sentences; the first one stands in tables. A
            text from `mark`.
        source: Citation; begins with "reported" if only an abstract was read.
        family: Heading under which it is listed.
        aliases: Other names that papers and libraries give it.
        origin: Name of the module that registered it.
    """

    name: str
    variant: Variant
    explanation: str
    source: str
    family: str = "Own"
    aliases: tuple[str, ...] = ()
    origin: str = field(default="", compare=False)

    @property
    def brief(self) -> str:
        """The first sentence of the explanation; without one, what the text form means."""
        first = re.split(r"(?<=[.?!]) ", self.explanation or self.variant.meaning, maxsplit=1)[0]
        return first.removesuffix(".")


CATALOGUE: dict[str, Named] = {}
"""Every entry by its name in lower case, ordered by family, then by registration."""


def find(name: str) -> Named | None:
    """Return the entry with this name or alias; None if there is none, or if several have it.

    Case, hyphens and underscores do not matter.
    """
    key = key_of(name)
    if key in CATALOGUE:
        return CATALOGUE[key]
    named = [
        one for one in CATALOGUE.values() if _bare(key) in map(_bare, (one.name, *one.aliases))
    ]
    return named[0] if len(named) == 1 else None


@cache
def _bare(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


def most_words() -> int:
    """Return the number of words of the longest name, or alias, in the catalogue."""
    names = (name for one in CATALOGUE.values() for name in (one.name, *one.aliases))
    return max((len(name.split()) for name in names), default=0)


def key_of(name: str) -> str:
    """Return the key of a name in the catalogue."""
    return normalised(name).lower()


def normalised(text: str) -> str:
    """Return a text with single spaces and no spaces around `=` and `≠`."""
    return re.sub(r"\s*(≠|!?=)\s*", r"\1", " ".join(text.split()))
