"""The variant that a visitor has opened on the page Variants, and how it follows the link.

The link is `?variant=` with the name of an entry of the catalogue; a text form is understood, too.
No parameters mean the first entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from attnkit.ui.address import Linked, LinkField
from attnkit.variants import CATALOGUE, InvalidVariant, Named, Variant, names_of
from attnkit.variants.text import find, key_of


@dataclass
class VariantChoice(Linked):
    """One visitor's choice of a variant.

    Attributes:
        key: Key of the chosen entry in the catalogue.
        problems: Problems of the link, in sentences.
        version: Version of the table; a new one begins when the link chooses a row.
    """

    key: str = ""
    problems: list[str] = field(default_factory=list)
    version: int = 0

    @property
    def entry(self) -> Named:
        """The chosen entry: the first of the catalogue if none was chosen, or it is gone."""
        return CATALOGUE.get(self.key) or next(iter(CATALOGUE.values()))

    def follow(self, params: dict[str, str]) -> None:
        """Choose the variant of a link; if the catalogue has none of that name, say so."""
        self.link, self.problems = params, []
        self.key = _FIELD.read(params, self.problems)
        self.version += 1

    def take_row(self, keys: Sequence[str], rows: Sequence[int]) -> None:
        """Choose a row of the table."""
        if rows and rows[0] < len(keys):
            self.key = keys[rows[0]]

    def stay_among(self, keys: Sequence[str]) -> None:
        """Choose the first of these entries, unless one of them is chosen already."""
        if keys and key_of(self.entry.name) not in keys:
            self.key = keys[0]

    def write_link(self) -> None:
        """Write the choice into the address bar."""
        is_first = self.entry is next(iter(CATALOGUE.values()))
        self.set_link({} if is_first else {"variant": self.entry.name})


def key_of_text(text: str) -> str | None:
    """Return the key of the entry with this name or text form; None if there is none."""
    try:
        found = find(text.strip()) or next(iter(names_of(Variant(text))), None)
    except InvalidVariant:
        return None
    return None if found is None else key_of(found.name)


_FIELD = LinkField("variant", "", key_of_text, "a name in the table; the first is shown instead")
