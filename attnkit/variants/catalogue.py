"""Catalogue of named variants: those of online discussions, papers and today's models.

The modules of this package register their entries; plugins register theirs with `register`. A
name stands for a text form: links, tables and hashes contain the text form, not the name.
"""

from __future__ import annotations

import re

from attnkit.foundation.language import tr
from attnkit.foundation.registry import calling_module, name_taken
from attnkit.variants.module import OWN_MODULES
from attnkit.variants.text import CATALOGUE, Named, Variant, key_of

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
"""Families in the order in which they are listed; families of plugins follow."""


def register(
    name: str,
    variant: str,
    explanation: str = "",
    source: str = "",
    family: str = "Own",
    aliases: tuple[str, ...] = (),
) -> Named:
    """Add a variant to the catalogue; the command line and the Lab then offer it.

    Args:
        name: Short name without commas, which is no text form of another variant.
        variant: Text form of the variant.
        explanation: What it does and why, in plain sentences; the first one stands in tables. A
            text from `mark`.
        source: Citation.
        family: Heading under which it is listed.
        aliases: Other names that papers and libraries give it.

    Raises:
        ValueError: If the name is taken, is the text form of another variant or contains a comma,
            or if `variant` is no text form.
    """
    key = key_of(name)
    if not key or "," in key:
        raise ValueError(f"name: got {name!r}, allowed a text without commas")
    origin, registered = calling_module(), CATALOGUE.get(key)
    is_new_version = (
        registered is not None
        and registered.origin == origin
        and (origin == "__main__" or registered.variant == Variant(variant))
    )
    if registered is not None and not is_new_version:
        raise name_taken("name", name, registered.origin, origin)
    if key not in CATALOGUE and _is_text_form(key) and Variant(key) != Variant(variant):
        raise ValueError(f"name: {name!r} is the text form of another variant")
    entry = Named(name, Variant(variant), explanation, source, family, aliases, origin)
    CATALOGUE[key] = entry
    ordered = sorted(CATALOGUE.items(), key=lambda item: _rank_of(item[1].family))
    CATALOGUE.clear()
    CATALOGUE.update(ordered)
    return entry


def search(query: str) -> list[Named]:
    """Return the entries that contain every word of a query, those by name or alias first.

    If the query is a text form, its entries come before all others.

    A word of the query matches every word that begins with it. Case does not count, and a hyphen
    counts as a space or as nothing: "multi-query", "multi query" and "multiquery" find the same
    entries. The search covers name, aliases, explanation, meaning, source and family, and the words
    of text forms; the explanation in English and in the reader's language.
    """
    query_words = _words(query)
    if not query_words:
        return []
    exact = names_of(Variant(query)) if _is_text_form(query) else []
    by_name, by_text = [], []
    for entry in CATALOGUE.values():
        if entry in exact:
            continue
        names = _words(entry.name, *entry.aliases)
        variant = entry.variant
        explanations = {entry.explanation, tr(entry.explanation)}
        texts = [variant.meaning, *explanations, entry.source, entry.family]
        if "=" not in query:  # a text form is found exactly, or it is wrong, which others say
            texts.append(variant.value)
        if _contains_all(names, query_words):
            by_name.append(entry)
        elif _contains_all(names + _words(*texts), query_words):
            by_text.append(entry)
    return exact + by_name + by_text


def names_of(variant: Variant) -> list[Named]:
    """Return the catalogue entries of a variant."""
    return [entry for entry in CATALOGUE.values() if entry.variant == variant]


def title_of(variant: str) -> str:
    """Return the title of a variant, or of its text form, for figures and tables.

    The title is the text form of a plain sharing; otherwise the first name in the catalogue, the
    class of a PyTorch module, with its file if other files have a class of this name, or the text
    form.
    """
    variant = Variant(variant)
    if "module" in variant.given:
        value = variant.value.rpartition("=")[2]
        name, given = value.rpartition(".")[0], OWN_MODULES.get(value)
        origins = {one.origin for one in [*OWN_MODULES.values()] if one.name == name}
        return f"{name} ({given.origin})" if given and len(origins) > 1 else name
    entries = [] if variant.is_partition else names_of(variant)
    return entries[0].name if entries else variant.value


def second_line_of(variant: Variant) -> str:
    """Return the text form of a variant, or an empty text if its title is the text form."""
    return "" if title_of(variant) == variant.value else variant.value


def _words(*texts: str) -> list[str]:
    """Return the words in lower case; a hyphenated word counts as its parts and as one word."""
    joined = [word for text in texts for word in re.findall(r"[\w-]+", text.lower())]
    parts = [part for word in joined for part in word.split("-") if part]
    return parts + [word.replace("-", "") for word in joined if "-" in word.strip("-")]


def _contains_all(words: list[str], query_words: list[str]) -> bool:
    """Return whether each word of the query is the beginning of one of the words."""
    return all(any(word.startswith(query) for word in words) for query in query_words)


def _is_text_form(text: str) -> bool:
    try:
        Variant(text)
    except ValueError:
        return False
    return True


def _rank_of(family: str) -> int:
    return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES)
