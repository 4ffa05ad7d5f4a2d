"""Four matrices for the scores: two maps per head, summed or subtracted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attnkit.variants.catalogue import register
from attnkit.variants.options import Option, refuse, register_option
from attnkit.variants.rules import Code
from attnkit.variants.wiring import TOKEN, Sizes, Weight, Wiring

if TYPE_CHECKING:
    from torch import Tensor

    from attnkit.variants.text import Variant

FAMILY = "Four matrices"


class _TwoMaps(Option):
    """Two pairs of queries and keys per head, one value."""

    def check(self, variant: Variant) -> None:
        """Values cannot be tied to what is there twice."""
        if variant.sharing.owner("V") != "V":
            raise ValueError(
                f"{self.name} does not go with {variant.sharing}: there are two keys and queries "
                "per head, but one value"
            )
        if {"Q", "K"} & set(variant.identity):
            raise ValueError(f"{self.name} does not go with Q=I or K=I: both maps would be one")
        refuse(
            variant,
            self.name,
            *({"sum", "diff"} - {self.name}),
            "kv_rank",
            "k_rank",
            "keyless",
            because="it makes two keys per head",
        )

    def resize(self, sizes: Sizes) -> None:
        """Keys of two maps are not grouped."""
        if sizes.kv_heads not in (0, sizes.n_heads):
            raise ValueError(f"{self.name} does not go with fewer kv_heads than n_heads")

    def rewire(self, wiring: Wiring) -> None:
        """Twice as many queries and keys, the two of a head side by side."""
        wiring.n_maps = 2
        for name in dict.fromkeys((wiring.roles["Q"], wiring.roles["K"])):
            vector = wiring.vectors[name]
            wiring.project(name, TOKEN, 2 * vector.n_heads, vector.width)


@register_option
class SumOption(_TwoMaps):
    """S = Q₁K₁ᵀ + Q₂K₂ᵀ: one bilinear form again, of twice the rank."""

    name = "sum"
    help = "Two score matrices are added before the softmax."
    place = 25

    def rewire(self, wiring: Wiring) -> None:
        """Two maps, added."""
        super().rewire(wiring)
        wiring.adds_maps = True

    def merge(self, scores: Tensor, weights: dict[str, Tensor]) -> Tensor:
        """Add the maps."""
        return scores.sum(3, keepdim=True)

    def code(self, wiring: Wiring) -> Code:
        """Return the code that adds the maps."""
        return Code(merge=("scores = scores.sum(1)  # of both maps",))


@register_option
class DifferentialOption(_TwoMaps):
    """softmax(S₁) − λ softmax(S₂), then RMSNorm per head, times 1 − λ_init.

    λ = exp(λ_q1·λ_k1) − exp(λ_q2·λ_k2) + λ_init, with λ_init = 0.8 − 0.6 exp(−0.3 layer), layers
    counted from 0.

    Source:
        Ye et al. 2024, arXiv 2410.05258, and its code.
    """

    name = "diff"
    help = "A second pattern is subtracted from the first, which cancels what both have."
    place = 26

    def rewire(self, wiring: Wiring) -> None:
        """Two maps, and the vectors that make λ."""
        super().rewire(wiring)
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            wiring.weights[name] = Weight((wiring.sizes.d_k,), 0.1)

    def combine(self, pattern: Tensor, weights: dict[str, Tensor], layer: int) -> Tensor:
        """P₁ − λ P₂."""
        first, second = (
            (weights[f"lambda_q{i}"] * weights[f"lambda_k{i}"]).sum(-1).exp() for i in (1, 2)
        )
        strength = first - second + self.initial(layer)  # (s,)
        return pattern[:, :, :, 0] - strength.view(-1, 1, 1, 1, 1) * pattern[:, :, :, 1]

    def finish(self, z: Tensor, weights: dict[str, Tensor], layer: int) -> Tensor:
        """Normalise every head's read-out."""
        size = z.square().mean(-1, keepdim=True) + 1e-5
        return z * size.rsqrt() * (1 - self.initial(layer))

    def code(self, wiring: Wiring) -> Code:
        """λ of a layer, P₁ − λ P₂, and the norm of every head."""
        first, second = (f"(self.lambda_q{i} @ self.lambda_k{i}).exp()" for i in (1, 2))
        normed = f"nn.functional.rms_norm(z, ({wiring.sizes.d_v},), eps=1e-5)"
        return Code(
            setup=("self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer)",),
            combine=(
                f"strength = {first} - {second}",
                "pattern = pattern[:, 0] - (strength + self.lambda_init) * pattern[:, 1]",
            ),
            finish=(f"z = (1 - self.lambda_init) * {normed}",),
        )

    @staticmethod
    def initial(layer: int) -> float:
        """λ_init of a layer."""
        return 0.8 - 0.6 * math.exp(-0.3 * layer)


register(
    "Differential",
    "QKV d_k=d/2 diff",
    "Differential attention: four projections of half width make two patterns, and one is "
    "subtracted from the other. About as many parameters as MHA.",
    "Ye et al. 2024, arXiv 2410.05258",
    FAMILY,
    aliases=("differential transformer", "differential attention", "DIFF transformer"),
)
register(
    "Two scores",
    "QKV sum",
    "Four matrices, as some people propose: two scores are added. It is one score of twice the "
    "width: [Q₁ Q₂][K₁ K₂]ᵀ.",
    "a question asked in online discussions",
    FAMILY,
    aliases=("four matrices", "sum of two attention scores"),
)
