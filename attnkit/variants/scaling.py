"""Partly tied roles, which share one matrix and differ by a diagonal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.foundation.language import mark
from attnkit.variants.catalogue import register
from attnkit.variants.options import Option, register_option
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import Code, Layer, Weight, Wiring

if TYPE_CHECKING:
    from torch import Tensor

FAMILY = "Partly tied"


@register_option
class ScaledOption(Option):
    """One learnt diagonal per role, by which its vectors are multiplied."""

    name = "scaled"
    help = mark("Each role multiplies its vectors by learnt factors of its own.")
    diagonal = True
    linear = True
    place = 30

    def rewire(self, wiring: Wiring) -> None:
        """Add the diagonal of each role, which starts at 1."""
        for role, name in wiring.roles.items():
            vector = wiring.vectors[name]
            shape = (vector.n_heads, 1, vector.width)
            wiring.weights[f"D_{role}"] = Weight(shape, fill=(1.0,), role=role)

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Multiply the rows by the diagonal of their role."""
        return rows * layer.weights[f"D_{role}"].unsqueeze(1)

    def code(self, wiring: Wiring) -> Code:
        return Code(adjust={role: f"{role.lower()} * self.D_{role}" for role in wiring.roles})


@register_option
class SignedOption(Option):
    """Symmetric, indefinite scores S = Q D Qᵀ with a learnt diagonal D of both signs.

    With RoPE, scores are not symmetric, because D and the rotation do not commute.
    """

    name = "signed"
    help = mark(
        "Keys are the queries times learnt factors of both signs, so scores are indefinite."
    )
    diagonal = True
    linear = True
    place = 31
    refuses = {
        "QKV K=V Q=V": mark("keys must be queries, Q=K or Q=K=V"),
        "unit_key": mark("scores would not be symmetric"),
        "scaled": mark("both give keys factors of their own"),
    }

    def rewire(self, wiring: Wiring) -> None:
        """Add the diagonal D, which starts at +1, −1, +1, −1, …"""
        vector = wiring.vectors[wiring.roles["K"]]
        shape = (vector.n_heads, 1, vector.width)
        wiring.weights["D"] = Weight(shape, fill=(1.0, -1.0))

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Multiply keys by D."""
        return rows * layer.weights["D"].unsqueeze(1) if role == "K" else rows

    def code(self, wiring: Wiring) -> Code:
        return Code(adjust={"K": "k * self.D"})


register(
    "Indefinite",
    "Q=K signed",
    mark(
        "Scores are x W D Wᵀ xᵀ with a diagonal D of both signs: they stay symmetric, but a token "
        "can have a low score with itself. This separates the cost of symmetry from that of "
        "positivity."
    ),
    "the project's own, after the notes on symmetric forms in arXiv 2406.06366",
    FAMILY,
    aliases=("signed form", "symmetric bilinear form"),
)
register(
    "Scaled sharing",
    "Q=K=V scaled",
    mark(
        "All roles share one matrix W, and each has a diagonal: q = (xW)D_Q, k = (xW)D_K, v = "
        "(xW)D_V."
    ),
    "reported: Kowsher et al. 2024, arXiv 2412.00359 (abstract)",
    FAMILY,
)
register(
    "Scaled K=V",
    "K=V scaled",
    mark(
        "Keys and values share a matrix and differ by a diagonal, so the cache contains one vector."
    ),
    "reported: after Kowsher et al. 2024, arXiv 2412.00359",
    FAMILY,
)
