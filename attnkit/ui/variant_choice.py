"""The variant that a visitor has opened on the page Variants, and how it follows the link.

The link is `?variant=` with the name of an entry of the catalogue; a text form is understood, too.
No parameters mean the first entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from attnkit.ui.address import Linked, open_choice, shortened
from attnkit.variants import CATALOGUE, InvalidVariant, Named, Variant, names_of
from attnkit.variants.names import find, key_of


@dataclass
class VariantChoice(Linked):
    """One visitor's choice of a variant.

    Attributes:
        key: Key of the chosen entry in the catalogue.
        problem: Problem of the link, in sentences; empty if there is none.
        version: Version of the table; a new one begins when the link chooses a row.
    """

    key: str = ""
    problem: str = ""
    version: int = 0

    @property
    def entry(self) -> Named:
        """The chosen entry: the first of the catalogue if none was chosen, or it is gone."""
        return CATALOGUE.get(self.key) or next(iter(CATALOGUE.values()))

    def follow(self, params: dict[str, str]) -> None:
        """Choose the variant of a link; if the catalogue has none of that name, say so."""
        self.link, self.problem = params, ""
        name = params.get("variant", "").strip()
        found = _named(name)
        if found is not None:
            self.key = key_of(found.name)
        elif not params:
            self.key = ""
        elif name:
            short = shortened(name)
            self.problem = (
                f"The link asks for the variant “{short}”, which the table does not have. Allowed "
                f"is a name in the table; {self.entry.name} is shown instead."
            )
        self.version += 1

    def take_row(self, keys: Sequence[str], rows: Sequence[int]) -> None:
        """Choose a row of the table.

        Args:
            keys: Keys of all rows in the catalogue.
            rows: Index of the chosen row.
        """
        if rows and rows[0] < len(keys):
            self.key = keys[rows[0]]

    def stay_among(self, keys: Sequence[str]) -> None:
        """Choose the first of these entries, unless one of them is chosen already."""
        if keys and key_of(self.entry.name) not in keys:
            self.key = keys[0]

    def key_of_table(self, keys: Sequence[str]) -> str:
        """Return the table's key; it depends on the rows, as Streamlit remembers row numbers."""
        text = f"{self.version} {' '.join(keys)}"
        return f"catalogue_{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}"

    def write_link(self) -> None:
        """Write the choice into the address bar."""
        is_first = self.entry is next(iter(CATALOGUE.values()))
        self.set_link({} if is_first else {"variant": self.entry.name})


def open_variant_choice() -> VariantChoice:
    """Return this visitor's choice, made from the link if it is new or the link has changed."""
    return open_choice("variants", "opened_variant", VariantChoice)


def _named(text: str) -> Named | None:
    """Return the entry with this name or text form; None if there is none."""
    try:
        return find(text) or next(iter(names_of(Variant(text))), None)
    except InvalidVariant:
        return None
