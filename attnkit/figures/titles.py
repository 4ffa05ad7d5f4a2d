"""How a variant is called where space is short: its name in the catalogue, if it has one."""

from __future__ import annotations

from attnkit.variants import Variant, names_of


def title_of(variant: Variant) -> str:
    """The text form of a plain sharing, else the first name in the catalogue, else the text."""
    named = [] if variant.is_partition else names_of(variant)
    return named[0].name if named else variant.value


def second_line_of(variant: Variant) -> str:
    """The text form, where the title is another."""
    return "" if title_of(variant) == variant.value else variant.value
