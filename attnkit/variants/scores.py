"""Options of scores and outputs of heads: unit keys, norms, temperature, self-mask, skew part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attnkit.foundation.language import mark
from attnkit.variants.catalogue import register
from attnkit.variants.options import (
    ChoiceOption,
    EvenWidthOption,
    NumberOption,
    Option,
    register_option,
)
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import Code, Layer, Sizes, Weight, Wiring

if TYPE_CHECKING:
    from torch import Tensor

FAMILY = "Scores"


@register_option
class ExclusiveOption(Option):
    """Output of every head, made orthogonal to the token's own value: z − (z·v / ‖v‖²) v.

    Source:
        Zhai 2026, arXiv 2603.09078.
    """

    name = "exclusive"
    help = mark("What a head reads out is made orthogonal to the token's own value.")
    place = 40

    def rewire(self, wiring: Wiring) -> None:
        """Refuse cross-attention and values of one number."""
        if wiring.sizes.two_sided:
            raise ValueError(
                mark(
                    "exclusive does not go with an encoder and a decoder: in cross-attention a "
                    "token has no value of its own among those that it sees"
                )
            )
        if wiring.sizes.d_v < 2:
            raise ValueError(
                mark("exclusive needs d_v of at least 2, but it is 1: no direction would be left")
            )

    def finish(
        self, z: Tensor, own_values: Tensor | None, positions: Tensor, layer: Layer
    ) -> Tensor:
        """Subtract the projection of the output onto the own value."""
        assert own_values is not None
        unit = own_values * (own_values.square().sum(-1, keepdim=True) + 1e-12).rsqrt()
        return z - (z * unit).sum(-1, keepdim=True) * unit

    def code(self, wiring: Wiring) -> Code:
        return Code(
            finish=(
                "unit = v * (v.square().sum(-1, keepdim=True) + 1e-12).rsqrt()",
                "z = z - (z * unit).sum(-1, keepdim=True) * unit  # orthogonal to the own value",
            )
        )


_SOURCE = "Zhai 2026, arXiv 2603.09078"
register(
    "Exclusive",
    "QKV exclusive",
    mark(
        "Exclusive self-attention: what a head reads out is made orthogonal to the token's own "
        "value. The idea of the source: the residual stream carries the token already."
    ),
    _SOURCE,
    FAMILY,
    aliases=("exclusive self-attention", "XSA"),
)
register(
    "Exclusive Q=K",
    "Q=K exclusive",
    mark(
        "With Q=K a token tends to attend to itself. A self-mask changes the pattern; exclusive "
        "self-attention changes the output and removes the direction of the token's own value."
    ),
    f"after {_SOURCE}",
    FAMILY,
    aliases=("exclusive self-attention with shared query and key", "XSA"),
)


@register_option
class NormalisedOption(Option):
    """RMSNorm of queries and of keys, with one vector of gains for each, shared by the heads.

    Source:
        Dehghani et al. 2023, arXiv 2302.05442, section 2; there with LayerNorm.
    """

    name = "qk_norm"
    help = mark("Queries and keys are normalised, each with learnt gains.")
    diagonal = True
    place = 32
    refuses = {
        "unit_key": mark("both set the length of keys"),
        # Translators: "its" refers to the option `qk_norm`.
        "scaled signed": mark("its gains are factors already"),
    }

    def rewire(self, wiring: Wiring) -> None:
        """Add the gains of queries and of keys, which start at 1."""
        for role in ("Q", "K"):
            wiring.weights[f"g_{role}"] = Weight((wiring.sizes.d_k,), fill=(1.0,), role=role)

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Divide queries and keys by their root mean square and multiply them by the gains."""
        inverse = self.norm(role, rows)
        if inverse is None:
            return rows
        return rows * inverse * layer.weights[f"g_{role}"][:, None, None, None]

    def norm(self, of: Role | Literal["Z"], rows: Tensor) -> Tensor | None:
        return (rows.square().mean(-1, keepdim=True) + 1e-6).rsqrt() if of in ("Q", "K") else None

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
    help = mark("Values are normalised, without gains.")
    place = 32

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Divide values by their root mean square."""
        inverse = self.norm(role, rows)
        return rows if inverse is None else rows * inverse

    def norm(self, of: Role | Literal["Z"], rows: Tensor) -> Tensor | None:
        return (rows.square().mean(-1, keepdim=True) + 1e-6).rsqrt() if of == "V" else None

    def code(self, wiring: Wiring) -> Code:
        return Code(adjust={"V": f"nn.functional.rms_norm(v, ({wiring.sizes.d_v},), eps=1e-6)"})


register(
    "QK-norm",
    "QKV qk_norm",
    mark(
        "Queries and keys are normalised before the scores are computed, as in large models, to "
        "keep scores from growing."
    ),
    "Dehghani et al. 2023, arXiv 2302.05442; Henry et al. 2020, arXiv 2010.04245",
    FAMILY,
    aliases=("query-key normalisation", "query-key normalization", "QKNorm"),
)


@register_option
class UnitKeyOption(Option):
    """Keys of length 1, k / ‖k‖, without division by √d unless there is a temperature.

    Source:
        Kitaev et al. 2020, arXiv 2001.04451, as in google/trax.
    """

    name = "unit_key"
    help = mark(
        "Keys have length 1. With Q=K the scores stay almost symmetric: score (i, j) and score "
        "(j, i) differ only by the lengths of the two vectors."
    )
    asymmetric = True
    place = 32

    def rewire(self, wiring: Wiring) -> None:
        wiring.scale = 1.0  # so that scores are ‖q‖ cos θ

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Divide keys by their length."""
        inverse = self.norm(role, rows)
        return rows if inverse is None else rows * inverse

    def norm(self, of: Role | Literal["Z"], rows: Tensor) -> Tensor | None:
        return (rows.square().sum(-1, keepdim=True) + 1e-12).rsqrt() if of == "K" else None

    def code(self, wiring: Wiring) -> Code:
        return Code(adjust={"K": "nn.functional.normalize(k, dim=-1)"})


@register_option
class TemperatureOption(NumberOption):
    """Temperature by which scores are divided instead of √d_k."""

    name = "temperature"
    help = mark("Scores are divided by a temperature instead of the square root of the key width.")
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
    help = mark("The variant has its own setting of the self-mask.")
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
    mark(
        "Shared queries and keys as in Reformer: keys have length 1, and a token attends to itself "
        "only if it sees no other token. The scores are almost symmetric: a's score with b and b's "
        "score with a differ only by the lengths of the two vectors."
    ),
    "Kitaev et al. 2020, arXiv 2001.04451; google/trax",
    FAMILY,
    aliases=("shared-QK attention", "unit keys", "LSH attention without the hashing"),
)
register(
    "Self-masked Q=K",
    "Q=K self_mask",
    mark("Shared queries and keys with the self-mask, but without the unit keys of Reformer."),
    "after Kitaev et al. 2020, arXiv 2001.04451",
    FAMILY,
    aliases=("shared-QK attention",),
)


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
    help = mark(
        "In a part of each key both halves are exchanged and one is negated, which makes a part of "
        "the scores antisymmetric."
    )
    samples = ("2", "4", "d")
    asymmetric = True
    linear = True
    place = 29
    refuses = {
        "QKV K=V Q=V": mark("keys must be queries, Q=K or Q=K=V"),
        # Translators: "its" refers to the option that does not go with the skew part.
        "scaled signed qk_norm": mark(
            "its factors would mix the symmetric and the skew part of scores"
        ),
    }

    def rewire(self, wiring: Wiring) -> None:
        """Refuse a skew part that is odd or wider than keys."""
        width, d_k = self.width(wiring), wiring.sizes.d_k
        if width > d_k:
            raise ValueError(
                mark(
                    "skew={value} is {width} here, allowed an even number up to d_k, which is "
                    "{d_k}",
                    value=self.value,
                    width=width,
                    d_k=d_k,
                )
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
    mark(
        "Queries and keys share a matrix, but two numbers of each key are exchanged, and one of "
        "them is negated. This adds an antisymmetric part of rank 2 to the symmetric scores, "
        "without any parameter. The larger the skew part, the fewer numbers are left for the "
        "symmetric part."
    ),
    "the question: arXiv 2605.18826; the construction is the project's own",
    FAMILY,
    aliases=("antisymmetric part", "skew-symmetric scores", "how much asymmetry"),
)
