"""The names of variants: entries of the catalogue, and how a typed name is looked up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnkit.variants.text import Variant


@dataclass(frozen=True)
class Named:
    """An entry of the catalogue.

    Attributes:
        name: short, as typed and shown.
        variant: its text form.
        explanation: a paragraph for people.
        source: where it comes from, as a citation; "reported" where only an abstract was read.
        family: what it is listed under.
        aliases: other names by which people search for it.
    """

    name: str
    variant: Variant
    explanation: str
    source: str
    family: str = "Own"
    aliases: tuple[str, ...] = ()


CATALOGUE: dict[str, Named] = {}
"""Every entry by its name in lower case: by family, then in the order of registration."""


def find(name: str) -> Named | None:
    """The entry of this name, in any case; None if there is none."""
    return CATALOGUE.get(key_of(name))


def key_of(name: str) -> str:
    """Return the key of a name in the catalogue."""
    return normalised(name).lower()


def normalised(text: str) -> str:
    """A text with single spaces, and none around `=`."""
    return re.sub(r"\s*=\s*", "=", " ".join(text.split()))
