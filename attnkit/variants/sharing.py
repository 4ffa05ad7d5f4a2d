"""Which of the roles Q, K and V of an attention head read one and the same matrix.

A `Sharing` is a partition of the three roles. There are five, and this module is the only
place that names them. A class of tied roles owns exactly one parameter, named after its first
role in the order Q, K, V: the other names do not exist in a model.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

Role = Literal["Q", "K", "V"]

ROLES: tuple[Role, ...] = ("Q", "K", "V")


class Sharing(StrEnum):
    """A partition of {Q, K, V}; its value is the text form people type and read."""

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
        """The role whose parameter `role` reads: itself, or the first of its class."""
        return next(members[0] for members in self.classes if role in members)

    def owns(self, role: Role) -> bool:
        """Whether a parameter of this name exists."""
        return self.owner(role) == role

    @property
    def n_matrices(self) -> int:
        """How many projection matrices Q, K and V have between them: 1, 2 or 3."""
        return len(self.classes)

    @property
    def symmetric(self) -> bool:
        """Whether queries and keys are the same vectors, so that scores are symmetric."""
        return self.owner("K") == "Q"

    @property
    def meaning(self) -> str:
        """What is tied, in one plain sentence."""
        return _MEANINGS[self]


_CLASSES: dict[Sharing, tuple[tuple[Role, ...], ...]] = {
    Sharing.QKV: (("Q",), ("K",), ("V",)),
    Sharing.Q_K: (("Q", "K"), ("V",)),
    Sharing.K_V: (("Q",), ("K", "V")),
    Sharing.Q_V: (("Q", "V"), ("K",)),
    Sharing.Q_K_V: (("Q", "K", "V"),),
}

_MEANINGS: dict[Sharing, str] = {
    Sharing.QKV: "Three separate matrices: the usual attention.",
    Sharing.Q_K: "Queries and keys are the same vectors, so scores are symmetric.",
    Sharing.K_V: "What a token is found by is also what it hands over.",
    Sharing.Q_V: "What a token asks with is also what it hands over.",
    Sharing.Q_K_V: "One matrix for all three roles.",
}
