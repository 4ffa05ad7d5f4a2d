"""Two score maps per head, from two pairs of queries and keys, that are added or subtracted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from attnkit.foundation.language import mark
from attnkit.variants.catalogue import register
from attnkit.variants.options import Option, register_option
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import TOKEN, Code, Layer, Sizes, Weight, Wiring

if TYPE_CHECKING:
    from torch import Tensor

FAMILY = "Four matrices"


class _TwoMaps(Option):
    """Base class of options with two queries, two keys and one value per head."""

    refuses = {
        "K=V Q=V Q=K=V": mark("there are two keys and queries per head, but one value"),
        "Q=I K=I": mark("both maps would be one"),
        # Translators: "it" is the option that does not go with the other one.
        "sum diff kv_rank k_rank keyless valueless": mark("it makes two keys per head"),
    }

    def resize(self, sizes: Sizes) -> None:
        """Refuse grouped keys, which two maps do not support."""
        if sizes.kv_heads not in (0, sizes.n_heads):
            raise ValueError(
                mark("{name} does not go with fewer kv_heads than n_heads", name=self.name)
            )

    def rewire(self, wiring: Wiring) -> None:
        """Double the queries and keys; those of one head stand side by side."""
        wiring.n_maps = 2
        for name in dict.fromkeys((wiring.roles["Q"], wiring.roles["K"])):
            vector = wiring.vectors[name]
            wiring.project(name, TOKEN, 2 * vector.n_heads, vector.width)


@register_option
class SumOption(_TwoMaps):
    """Sum of two score maps, S = Q₁K₁ᵀ + Q₂K₂ᵀ, which is one bilinear form of twice the rank."""

    name = "sum"
    help = mark("Two score matrices are added before the softmax.")
    place = 25

    def rewire(self, wiring: Wiring) -> None:
        super().rewire(wiring)
        wiring.adds_maps = True

    def merge(self, scores: Tensor, layer: Layer) -> Tensor:
        """Return the sum of the maps."""
        return scores.sum(3, keepdim=True)

    def code(self, wiring: Wiring) -> Code:
        return Code(merge=("scores = scores.sum(1)  # add both maps",))


@register_option
class DifferentialOption(_TwoMaps):
    """Difference of two attention patterns, softmax(S₁) − λ softmax(S₂).

    An RMSNorm of every head's output and the factor 1 − λ_init follow. In layer l, counted from 0,
    λ = exp(λ_q1·λ_k1) − exp(λ_q2·λ_k2) + λ_init with λ_init = 0.8 − 0.6 exp(−0.3 l).

    Source:
        Ye et al. 2024, arXiv 2410.05258, and its code.
    """

    name = "diff"
    help = mark(
        "A second pattern is subtracted from the first, which cancels what they have in common."
    )
    place = 26

    def rewire(self, wiring: Wiring) -> None:
        super().rewire(wiring)
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            wiring.weights[name] = Weight((wiring.sizes.d_k,), 0.1)

    def combine(self, pattern: Tensor, masked: Tensor, layer: Layer) -> Tensor:
        """Return P₁ − λ P₂."""
        first, second = (
            (layer.weights[f"lambda_q{i}"] * layer.weights[f"lambda_k{i}"]).sum(-1).exp()
            for i in (1, 2)
        )
        strength = first - second + self.initial(layer.index)  # λ, (s,)
        return pattern[:, :, :, :1] - strength.view(-1, 1, 1, 1, 1, 1) * pattern[:, :, :, 1:]

    def finish(
        self, z: Tensor, own_values: Tensor | None, positions: Tensor, layer: Layer
    ) -> Tensor:
        """Normalise the output of every head and multiply it by 1 − λ_init."""
        inverse = self.norm("Z", z)
        assert inverse is not None
        return z * inverse * (1 - self.initial(layer.index))

    def norm(self, of: Role | Literal["Z"], rows: Tensor) -> Tensor | None:
        return (rows.square().mean(-1, keepdim=True) + 1e-5).rsqrt() if of == "Z" else None

    def code(self, wiring: Wiring) -> Code:
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
        """Return λ_init of a layer."""
        return 0.8 - 0.6 * math.exp(-0.3 * layer)


register(
    "Differential",
    "QKV d_k=d/2 diff",
    mark(
        "Differential attention: four projections of half width give two patterns, and one is "
        "subtracted from the other. It has about as many parameters as QKV."
    ),
    "Ye et al. 2024, arXiv 2410.05258",
    FAMILY,
    aliases=("differential transformer", "differential attention", "DIFF transformer"),
)
register(
    "Two scores",
    "QKV sum",
    mark(
        "Four matrices give two scores, which are added, as some people propose. The sum equals "
        "one score of twice the width: [Q₁ Q₂][K₁ K₂]ᵀ."
    ),
    "a question asked in online discussions",
    FAMILY,
    aliases=("four matrices", "sum of two attention scores"),
)
