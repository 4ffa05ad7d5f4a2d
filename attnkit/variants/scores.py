"""Options for computing scores from queries and keys: unit keys, temperature, self-mask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.variants.catalogue import register
from attnkit.variants.options import ChoiceOption, NumberOption, Option, register_option
from attnkit.variants.rules import Code, Layer
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import Sizes, Wiring

if TYPE_CHECKING:
    from torch import Tensor

FAMILY = "Scores"


@register_option
class UnitKeyOption(Option):
    """Keys of length 1, k / ‖k‖, without division by √d unless there is a temperature.

    Source:
        Kitaev et al. 2020, arXiv 2001.04451, as in google/trax.
    """

    name = "unit_key"
    help = (
        "Keys have length 1. With Q=K the scores stay almost symmetric: score (i, j) and score "
        "(j, i) differ only by the lengths of the two vectors."
    )
    asymmetric = True
    place = 32

    def rewire(self, wiring: Wiring) -> None:
        wiring.scale = 1.0  # so that scores are ‖q‖ cos θ

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Divide keys by their length."""
        if role != "K":
            return rows
        return rows * (rows.square().sum(-1, keepdim=True) + 1e-12).rsqrt()

    def code(self, wiring: Wiring) -> Code:
        return Code(adjust={"K": "nn.functional.normalize(k, dim=-1)"})


@register_option
class TemperatureOption(NumberOption):
    """Temperature by which scores are divided instead of √d_k."""

    name = "temperature"
    help = "Scores are divided by a temperature instead of the square root of the key width."
    low, high = 0.01, 100.0
    allowed = "a number from 0.01 to 100"
    samples = ("0.5", "1", "4")
    place = 33

    def rewire(self, wiring: Wiring) -> None:
        wiring.scale = 1 / self.value


@register_option
class SelfMaskOption(ChoiceOption):
    """Self-mask of the variant: a token attends to itself only if it sees no other token."""

    name = "self_mask"
    help = "The variant has its own setting of the self-mask."
    choices = ("yes", "no")
    allowed = "yes or no; the bare word is yes"
    samples = (None, "no")
    place = 34
    plain = True

    @classmethod
    def read(cls, text: str | None) -> SelfMaskOption:
        """Read yes or no; the bare word means yes."""
        return super().read("yes" if text is None else text)

    def __str__(self) -> str:
        return self.name if self.value == "yes" else f"{self.name}=no"

    def resize(self, sizes: Sizes) -> None:
        sizes.self_mask = self.value == "yes"


register(
    "Reformer",
    "Q=K unit_key self_mask",
    "Shared queries and keys as in Reformer: keys have length 1, and a token attends to itself "
    "only if it sees no other token. The scores are almost symmetric: a's score with b and b's "
    "score with a differ only by the lengths of the two vectors, which are nearly equal. After "
    "training, the asymmetry was 0.03 or less on the four tasks where it was measured; QKV starts "
    "at about 0.4 there. With exactly equal lengths it would be 0.",
    "Kitaev et al. 2020, arXiv 2001.04451; google/trax",
    FAMILY,
    aliases=("shared-QK attention", "unit keys", "LSH attention without the hashing"),
)
register(
    "Self-masked Q=K",
    "Q=K self_mask",
    "Shared queries and keys with the self-mask, but without the unit keys of Reformer.",
    "after Kitaev et al. 2020, arXiv 2001.04451",
    FAMILY,
    aliases=("shared-QK attention",),
)
