"""Sharings: the partitions of the roles Q, K and V of an attention head into classes of tied roles.

There are five, and only this module lists them. A class of tied roles has exactly one parameter,
which is named after its first role in the order Q, K, V; a model has no parameter of the other
names.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from attnkit.foundation.language import mark, tr

Role = Literal["Q", "K", "V"]

ROLES: tuple[Role, ...] = ("Q", "K", "V")


class Sharing(StrEnum):
    """A partition of {Q, K, V}; its value is its text form."""

    QKV = "QKV"
    Q_K = "Q=K"
    K_V = "K=V"
    Q_V = "Q=V"
    Q_K_V = "Q=K=V"

    @property
    def classes(self) -> tuple[tuple[Role, ...], ...]:
        """The classes of tied roles, each in the order Q, K, V, first roles first."""
        return _CLASSES[self]

    def owner(self, role: Role) -> Role:
        """Return the first role of a role's class, after which their parameter is named."""
        return next(members[0] for members in self.classes if role in members)

    @property
    def symmetric(self) -> bool:
        """Whether queries and keys are the same vectors, so that scores are symmetric."""
        return self.owner("K") == "Q"

    @property
    def meaning(self) -> str:
        """Description of the tied roles in one plain sentence, in the reader's language."""
        return tr(_MEANINGS[self])


_CLASSES: dict[Sharing, tuple[tuple[Role, ...], ...]] = {
    Sharing.QKV: (("Q",), ("K",), ("V",)),
    Sharing.Q_K: (("Q", "K"), ("V",)),
    Sharing.K_V: (("Q",), ("K", "V")),
    Sharing.Q_V: (("Q", "V"), ("K",)),
    Sharing.Q_K_V: (("Q", "K", "V"),),
}

_MEANINGS: dict[Sharing, str] = {
    Sharing.QKV: mark("Three separate matrices: the usual attention."),
    Sharing.Q_K: mark("Queries and keys are the same vectors, so scores are symmetric."),
    Sharing.K_V: mark("Keys and values are the same vectors."),
    Sharing.Q_V: mark("Queries and values are the same vectors."),
    Sharing.Q_K_V: mark("All three roles share one matrix."),
}

SHARE_ONE_MATRIX: dict[tuple[Role, ...], str] = {
    ("Q", "K"): mark("Queries and keys share one matrix."),
    ("K", "V"): mark("Keys and values share one matrix."),
    ("Q", "V"): mark("Queries and values share one matrix."),
    ("Q", "K", "V"): mark("Queries and keys and values share one matrix."),
}
"""Sentence about each class of several tied roles that have a matrix."""

ARE_THE_TOKEN: dict[tuple[Role, ...], str] = {
    ("Q",): mark("Queries are the token itself."),
    ("K",): mark("Keys are the token itself."),
    ("V",): mark("Values are the token itself."),
    ("Q", "K"): mark("Queries and keys are the token itself."),
    ("K", "V"): mark("Keys and values are the token itself."),
    ("Q", "V"): mark("Queries and values are the token itself."),
    ("Q", "K", "V"): mark("Queries and keys and values are the token itself."),
}
"""Sentence about each class of roles without a matrix."""
