"""Normalised queries, keys and values, so that neither scores nor outputs grow without bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.variants.catalogue import register
from attnkit.variants.options import Option, register_option
from attnkit.variants.rules import Code, Layer
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import Weight, Wiring

if TYPE_CHECKING:
    from torch import Tensor


@register_option
class NormalisedOption(Option):
    """RMSNorm of queries and of keys, with one vector of gains for each, shared by the heads.

    Source:
        Dehghani et al. 2023, arXiv 2302.05442, section 2; there with LayerNorm.
    """

    name = "qk_norm"
    help = "Queries and keys are normalised, each with learnt gains."
    diagonal = True
    place = 32
    refuses = {
        "unit_key": "both set the length of keys",
        "scaled signed": "its gains are factors already",
    }

    def rewire(self, wiring: Wiring) -> None:
        """Add the gains of queries and of keys, which start at 1."""
        for role in ("Q", "K"):
            wiring.weights[f"g_{role}"] = Weight((wiring.sizes.d_k,), fill=(1.0,), role=role)

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Divide queries and keys by their root mean square and multiply them by the gains."""
        if role == "V":
            return rows
        inverse = (rows.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        return rows * inverse * layer.weights[f"g_{role}"][:, None, None, None]

    def code(self, wiring: Wiring) -> Code:
        normed = "nn.functional.rms_norm({}, ({},), self.g_{}, 1e-6)".format
        width = wiring.sizes.d_k
        return Code(adjust={"Q": normed("q", width, "Q"), "K": normed("k", width, "K")})


@register_option
class ValueNormOption(Option):
    """RMSNorm of values without gains.

    Source:
        Gemma 4's code, which normalises the values of every layer.
    """

    name = "v_norm"
    help = "Values are normalised, without gains."
    place = 32

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Divide values by their root mean square."""
        if role != "V":
            return rows
        return rows * (rows.square().mean(-1, keepdim=True) + 1e-6).rsqrt()

    def code(self, wiring: Wiring) -> Code:
        return Code(adjust={"V": f"nn.functional.rms_norm(v, ({wiring.sizes.d_v},), eps=1e-6)"})


register(
    "QK-norm",
    "QKV qk_norm",
    "Queries and keys are normalised before the scores are computed, as in large models, to keep "
    "scores from growing.",
    "Dehghani et al. 2023, arXiv 2302.05442; Henry et al. 2020, arXiv 2010.04245",
    "Scores",
    aliases=("query-key normalisation", "query-key normalization", "QKNorm"),
)
