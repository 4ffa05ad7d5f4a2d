"""Partly tied: roles that share one matrix and differ by a diagonal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.variants.catalogue import register
from attnkit.variants.options import Option, refuse, register_option
from attnkit.variants.rules import Code
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import Weight, Wiring

if TYPE_CHECKING:
    from torch import Tensor

    from attnkit.variants.text import Variant

FAMILY = "Partly tied"


@register_option
class ScaledOption(Option):
    """Every role multiplies its vectors by a learnt diagonal of its own."""

    name = "scaled"
    help = "Every role scales its vectors by learnt factors of its own."
    diagonal = True
    linear = True
    place = 30

    def rewire(self, wiring: Wiring) -> None:
        """A factor per number of each role's vector, 1 at first."""
        for role, name in wiring.roles.items():
            vector = wiring.vectors[name]
            shape = (vector.n_heads, 1, vector.width)
            wiring.weights[f"D_{role}"] = Weight(shape, fill=(1.0,), role=role)

    def adjust(
        self, role: Role, rows: Tensor, weights: dict[str, Tensor], at: Tensor, wiring: Wiring
    ) -> Tensor:
        """Multiply by the role's diagonal."""
        return rows * weights[f"D_{role}"].unsqueeze(1)

    def code(self, wiring: Wiring) -> Code:
        """The same of every role."""
        return Code(adjust={role: f"{role.lower()} * self.D_{role}" for role in wiring.roles})


@register_option
class SignedOption(Option):
    """S = Q D Qᵀ with a learnt diagonal D of both signs: symmetric, but not positive.

    Not with RoPE: D and the turning do not commute.
    """

    name = "signed"
    help = "Keys are the queries times learnt factors of both signs, so scores are indefinite."
    diagonal = True
    linear = True
    place = 31

    def check(self, variant: Variant) -> None:
        """Keys must be queries."""
        if not variant.sharing.symmetric:
            raise ValueError(
                f"signed does not go with {variant.sharing}: keys must be queries, Q=K or Q=K=V"
            )
        refuse(variant, self.name, "unit_key", because="scores would not be symmetric")
        refuse(variant, self.name, "scaled", because="both give keys factors of their own")

    def rewire(self, wiring: Wiring) -> None:
        """A factor per number of a key: +1, −1, +1, −1 … at first."""
        vector = wiring.vectors[wiring.roles["K"]]
        shape = (vector.n_heads, 1, vector.width)
        wiring.weights["D"] = Weight(shape, fill=(1.0, -1.0))

    def adjust(
        self, role: Role, rows: Tensor, weights: dict[str, Tensor], at: Tensor, wiring: Wiring
    ) -> Tensor:
        """Multiply keys by D."""
        return rows * weights["D"].unsqueeze(1) if role == "K" else rows

    def code(self, wiring: Wiring) -> Code:
        """Return the code that multiplies keys by D."""
        return Code(adjust={"K": "k * self.D"})


register(
    "Indefinite",
    "Q=K signed",
    "W D Wᵀ with signed D: the scores stay symmetric, but a token may score itself low. "
    "It separates what symmetry costs from what positivity costs.",
    "the project's own, after the notes on symmetric forms in arXiv 2406.06366",
    FAMILY,
    aliases=("signed form", "symmetric bilinear form"),
)
register(
    "Scaled sharing",
    "Q=K=V scaled",
    "One matrix W for all roles, and a diagonal for each: q = (xW)D_Q, k = (xW)D_K, v = (xW)D_V.",
    "reported: Kowsher et al. 2024, arXiv 2412.00359 (abstract)",
    FAMILY,
)
register(
    "Scaled K=V",
    "K=V scaled",
    "Keys and values share a matrix and differ by a diagonal; one vector is kept.",
    "reported: after Kowsher et al. 2024, arXiv 2412.00359",
    FAMILY,
)
