"""Named variants: what the threads, the papers and today's models use, each as a text form.

The modules of this package add their entries; people add their own with `register`. A name is a
way to type a text form: links, tables and hashes hold the text form itself.
"""

from __future__ import annotations

import re

from attnkit.variants.names import CATALOGUE, Named, key_of
from attnkit.variants.text import Variant

FAMILIES = (
    "Sharing",
    "No projection",
    "Heads and widths",
    "Low rank",
    "Partly tied",
    "Four matrices",
    "Scores",
    "Positions",
    "Across layers",
    "Tied for a time",
)
"""The order in which families are listed; others follow."""


def register(
    name: str,
    variant: str,
    explanation: str = "",
    source: str = "",
    family: str = "Own",
    aliases: tuple[str, ...] = (),
) -> Named:
    """Add a variant to the catalogue: command line and Lab then offer it.

    Args:
        name: short; not a text form itself.
        variant: its text form.
        aliases: other names by which people search for it; `find` does not take them.

    Raises:
        ValueError: if the name is taken, is a text form or has a comma, or the text is none.
    """
    key = key_of(name)
    if not key or "," in key:
        raise ValueError(f"name: got {name!r}, allowed a text without commas")
    if key in CATALOGUE and CATALOGUE[key].variant != Variant(variant):
        raise ValueError(f"name: {name!r} is in the catalogue already")
    if key not in CATALOGUE and _is_text_form(key) and Variant(key) != Variant(variant):
        raise ValueError(f"name: {name!r} is the text form of another variant")
    named = Named(name, Variant(variant), explanation, source, family, aliases)
    CATALOGUE[key] = named
    in_order = sorted(CATALOGUE.items(), key=lambda entry: _place(entry[1].family))
    CATALOGUE.clear()
    CATALOGUE.update(in_order)
    return named


def search(query: str) -> list[Named]:
    """Return the entries that contain every word of a query, by name or alias first.

    The beginning of a word is enough. Case does not count, and a hyphen is as good as a space:
    "multi-query", "multi query" and "multiquery" find the same entries. Words are looked for in
    name, aliases, explanation, source and family.
    """
    wanted = _words(query)
    if not wanted:
        return []
    by_name, by_text = [], []
    for named in CATALOGUE.values():
        names = _words(named.name, *named.aliases)
        texts = names + _words(named.explanation, named.source, named.family)
        if _begin_all(names, wanted):
            by_name.append(named)
        elif _begin_all(texts, wanted):
            by_text.append(named)
    return by_name + by_text


def names_of(variant: Variant) -> list[Named]:
    """The entries with this text form."""
    return [named for named in CATALOGUE.values() if named.variant == variant]


def title_of(variant: Variant) -> str:
    """What it is called where space is short.

    The text form of a plain sharing, else the first name in the catalogue, else the text form.
    """
    named = [] if variant.is_partition else names_of(variant)
    return named[0].name if named else variant.value


def second_line_of(variant: Variant) -> str:
    """The text form, where the title is another."""
    return "" if title_of(variant) == variant.value else variant.value


def _words(*texts: str) -> list[str]:
    """Words in lower case; what a hyphen joins counts in parts and as one word, too."""
    joined = [word for text in texts for word in re.findall(r"[\w-]+", text.lower())]
    parts = [part for word in joined for part in word.split("-") if part]
    return parts + [word.replace("-", "") for word in joined if "-" in word.strip("-")]


def _begin_all(words: list[str], wanted: list[str]) -> bool:
    """Whether each of the wanted words is the beginning of one of the words."""
    return all(any(word.startswith(one) for word in words) for one in wanted)


def _is_text_form(text: str) -> bool:
    try:
        Variant(text)
    except ValueError:
        return False
    return True


def _place(family: str) -> int:
    return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES)
