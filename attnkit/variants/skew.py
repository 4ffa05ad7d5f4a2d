"""Keys that are the queries with a skew part, so that tied scores become partly antisymmetric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.variants.catalogue import register
from attnkit.variants.options import EvenWidthOption, register_option
from attnkit.variants.rules import Code, Layer
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import Wiring

if TYPE_CHECKING:
    from torch import Tensor


@register_option
class SkewOption(EvenWidthOption):
    """Antisymmetric part of tied scores, without a parameter; the value is its rank.

    The query is q = [s, a, b], where a and b are half as wide as the value of the option. The key
    is k = [s, b, −a]. The score s_i·s_j + a_i·b_j − b_i·a_j is the sum of a symmetric part and an
    antisymmetric part. Tied values are q, not k.

    RoPE rotates q and k afterwards, so scores depend on the offset of two tokens only. It rotates
    the exchanged numbers with others, though, so the antisymmetric part may have a higher rank,
    unless the skew part is as wide as the key: then the exchange and the rotation commute.

    Source:
        The question is that of arXiv 2605.18826; the construction is the project's own.
    """

    name = "skew"
    help = (
        "In a part of each key both halves are exchanged and one is negated, which makes a part of "
        "the scores antisymmetric."
    )
    samples = ("2", "4", "d")
    asymmetric = True
    linear = True
    place = 29
    refuses = {
        "QKV K=V Q=V": "keys must be queries, Q=K or Q=K=V",
        "scaled signed qk_norm": "its factors would mix the symmetric and the skew part of scores",
    }

    def rewire(self, wiring: Wiring) -> None:
        """Refuse a skew part that is odd or wider than keys."""
        width, d_k = self.width(wiring), wiring.sizes.d_k
        if width > d_k:
            raise ValueError(
                f"skew={self.value} is {width} here, allowed an even number up to d_k, which is "
                f"{d_k}"
            )

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Replace keys [s, a, b] by [s, b, −a]."""
        import torch

        if role != "K":
            return rows
        half = self.width(layer.wiring) // 2
        s, a, b = rows.split([rows.shape[-1] - 2 * half, half, half], -1)
        return torch.cat([s, b, -a], -1)

    def code(self, wiring: Wiring) -> Code:
        d_k, width = wiring.sizes.d_k, self.width(wiring)
        first, second = d_k - width, d_k - width // 2
        parts = [f"k[..., :{first}]"] if first else []
        parts += [f"k[..., {second}:]", f"-k[..., {first or ''}:{second}]"]
        return Code(adjust={"K": f"torch.cat([{', '.join(parts)}], -1)"})


register(
    "Q=K with a skew part",
    "Q=K skew=2",
    "Queries and keys share a matrix, but two numbers of each key are exchanged, and one of them "
    "is negated. This adds an antisymmetric part of rank 2 to the symmetric scores, without any "
    "parameter. A larger skew part leaves less room for the symmetric part.",
    "the question: arXiv 2605.18826; the construction is the project's own",
    "Scores",
    aliases=("antisymmetric part", "skew-symmetric scores", "how much asymmetry"),
)
