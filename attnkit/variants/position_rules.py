"""Position schemes: none, learned vectors, RoPE, and biases of the scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.foundation.language import mark
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import Code, Layer, Rule, Weight, Wiring

if TYPE_CHECKING:
    from torch import Tensor

_INDICES = "i, j = (torch.arange(n, device=x.device) for n in scores.shape[-2:])"
"""Line of plain PyTorch that defines the query positions i and the key positions j."""


class Positions(Rule):
    """A position scheme; this base class is the scheme without positions.

    Class attributes:
        name: Name in the text form.
        help: What it does, in one plain sentence.
        asymmetric: Whether it makes scores asymmetric, even if queries and keys are tied.
        embedded: Whether a learned vector is added to every token before the first layer.
        rotates: Whether queries and keys are rotated.
    """

    name = "none"
    help = "Positions are not distinguished."
    asymmetric = False
    embedded = False
    rotates = False
    plain = True


class LearnedPositions(Positions):
    """Learned vectors, one per position, that are added to the tokens."""

    name = "learned"
    help = "A learned vector per position is added to every token."
    embedded = True


class RotaryPositions(Positions):
    """Rotation of queries and keys by angles that grow with their position.

    Components c and c + d/2 are a pair, rotated by the angle position · 10000^(−2c/d). The options
    in `attnkit.variants.positions` choose how many components are rotated, and whether values are.

    Source:
        Su et al. 2021, arXiv 2104.09864, with the pairs of GPT-NeoX.
    """

    name = "rope"
    help = "Queries and keys are rotated by their position: scores depend on the signed distance."
    rotates = True
    plain = False

    def rewire(self, wiring: Wiring) -> None:
        """Refuse an odd width, because components are rotated in pairs, and one that is small."""
        sizes, rotation = wiring.sizes, wiring.rotation
        widths = {"d_k": sizes.d_k} | ({"d_v": sizes.d_v} if rotation.values else {})
        for name, width in widths.items():
            if rotation.width == 0 and width % 2:
                raise ValueError(
                    mark("positions=rope needs an even {name}, not {width}", name=name, width=width)
                )
            if rotation.width > width:
                raise ValueError(
                    mark(
                        "rope_width is {value} here, allowed an even number up to {name}, which is "
                        "{width}",
                        value=rotation.width,
                        name=name,
                        width=width,
                    )
                )

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Rotate queries and keys, and values if the wiring says so."""
        if role == "V" and not layer.wiring.rotation.values:
            return rows
        return rotated(rows, positions, layer.wiring.rotation.width)

    def code(self, wiring: Wiring) -> Code:
        values = wiring.rotation.values and not wiring.value_is_key
        adjusted: dict[Role, str] = {"Q": "rotate(q)", "K": "rotate(k)"}
        return Code(
            functions=(_rotate_function(wiring),),
            adjust=adjusted | ({"V": "rotate(v)"} if values else {}),
        )


def rotated(rows: Tensor, positions: Tensor, width: int = 0) -> Tensor:
    """Return rows of which components c and c + width/2 are rotated as a pair.

    Args:
        rows: Vectors, (…, i, d).
        positions: Position of each row, (i,); a negative position rotates the other way.
        width: Number of components that are rotated, which are the first ones; 0 for all.
    """
    import torch

    half = (width or rows.shape[-1]) // 2
    rates = 10000 ** (-torch.arange(half, device=rows.device, dtype=rows.dtype) / half)
    angles = positions.to(rows.dtype)[:, None] * rates  # (i, width/2)
    first, second, rest = rows.tensor_split((half, 2 * half), -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


def _rotate_function(wiring: Wiring) -> str:
    """Return the source of `rotate`, with a sign if outputs are rotated back."""
    width, rest = wiring.rotation.width, ""
    half, parts = "rows.shape[-1] // 2", "(a, b), cos, sin = rows.chunk(2, -1)"
    name = "d"
    if width:
        half, name, rest = str(width // 2), str(width), ", rest"
        parts = f"(a, b, rest), cos, sin = rows.tensor_split(({half}, {width}), -1)"
    parameter, sign = (", sign: int = 1", "sign * ") if wiring.rotation.back else ("", "")
    angle = "position[:, None] * 10000 ** (-torch.arange(half).to(rows) / half)"
    return f'''
def rotate(rows: Tensor{parameter}) -> Tensor:
    """Rotate components c and c + {name}/2 by the angle position * 10000^(-2c/{name})."""
    position, half = {sign}torch.arange(rows.shape[-2]).to(rows), {half}
    angle = {angle}  # (i, {name}/2)
    {parts}, angle.cos(), angle.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin{rest}], -1)
'''


class LinearPositions(Positions):
    """Penalty on scores that grows with the distance, in both directions; steepest in head 1.

    Source:
        Press et al. 2021, arXiv 2108.12409: slopes 2^(−8h/n_heads), h from 1.
    """

    name = "alibi"
    help = "Scores fall with the distance; symmetric scores stay symmetric."
    plain = False

    def bias(self, query_positions: Tensor, key_positions: Tensor, layer: Layer) -> Tensor:
        """Return −slope · |i − j|."""
        import torch

        n_heads = layer.wiring.sizes.n_heads
        head = torch.arange(1, n_heads + 1, device=query_positions.device, dtype=torch.float32)
        slopes = 2 ** (-8 * head / n_heads)
        distance = (query_positions[:, None] - key_positions[None, :]).abs()
        return (-slopes[:, None, None] * distance)[None, None]

    def code(self, wiring: Wiring) -> Code:
        n_heads = wiring.sizes.n_heads
        if n_heads == 1:  # it has the last slope
            return Code(bias=(_INDICES, "scores = scores - 2**-8 * (i[:, None] - j).abs()"))
        slopes = f"slopes = 2 ** (-8 * torch.arange(1, {n_heads + 1}).to(x) / {n_heads})"
        penalty = "scores = scores - slopes[:, None, None] * (i[:, None] - j).abs()"
        return Code(bias=(_INDICES, slopes, penalty))


class RelativePositions(Positions):
    """A learned bias per head and offset i − j.

    Source:
        Raffel et al. 2020, arXiv 1910.10683, without buckets.
    """

    name = "relative"
    help = "A learned bias per offset is added to the scores; forward and backward differ."
    asymmetric = True
    plain = False

    def rewire(self, wiring: Wiring) -> None:
        """Add a bias for every offset that occurs, 0 at first."""
        shape = (wiring.sizes.n_heads, 2 * wiring.sizes.n_ctx - 1)
        wiring.weights["b_offset"] = Weight(shape, fill=(0.0,))

    def bias(self, query_positions: Tensor, key_positions: Tensor, layer: Layer) -> Tensor:
        """Return b[i − j]."""
        offset = query_positions[:, None] - key_positions[None, :] + layer.wiring.sizes.n_ctx - 1
        return layer.weights["b_offset"][:, :, offset].unsqueeze(1)

    def code(self, wiring: Wiring) -> Code:
        added = f"self.b_offset[:, i[:, None] - j + {wiring.sizes.n_ctx - 1}]"
        return Code(bias=(_INDICES, f"scores = scores + {added}"))


class KeyPositions(Positions):
    """A learned bias per head and key position, the same for all query positions."""

    name = "key_bias"
    help = "A learned bias per key position is added to the scores."
    asymmetric = True
    plain = False

    def rewire(self, wiring: Wiring) -> None:
        """Add a bias for every key position, 0 at first."""
        shape = (wiring.sizes.n_heads, wiring.sizes.n_ctx)
        wiring.weights["b_key"] = Weight(shape, fill=(0.0,))

    def bias(self, query_positions: Tensor, key_positions: Tensor, layer: Layer) -> Tensor:
        """Return g(j), the bias of each key position."""
        return layer.weights["b_key"][:, :, key_positions][:, None, :, None, :]

    def code(self, wiring: Wiring) -> Code:
        # Encoder and decoder each count from 0.
        n_keys = ", : scores.shape[-1]" if wiring.sizes.two_sided else ""
        return Code(bias=(f"scores = scores + self.b_key[:, None{n_keys}]",))


CHANNELS = 10
"""Channels of the fixed sinusoid of (X)⁺: half encode the query position, half the key position."""


class PlusPositions(Positions):
    """(X)⁺: S' = S · Σw + Σ_c w_c P_ijc + b, with a fixed 2-D sinusoid P of ten channels.

    Features of the query position cancel in the softmax, so what remains is a temperature and a
    bias g(j) of key positions. The weights start at 0.02 · N(0, 1), so scores start near zero.

    Source:
        Kayyam et al. 2026, arXiv 2606.04032, and the authors' code.
    """

    name = "plus"
    help = "A fixed 2-D sinusoid is mixed into the scores with ten learnt weights."
    asymmetric = True
    plain = False

    def rewire(self, wiring: Wiring) -> None:
        wiring.weights["w_plus"] = Weight((CHANNELS,), 0.02)
        wiring.weights["b_plus"] = Weight((1,), fill=(0.0,))

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Multiply queries by Σw, which multiplies the scores by it."""
        return rows * layer.weights["w_plus"].sum(-1).view(-1, 1, 1, 1, 1) if role == "Q" else rows

    def bias(self, query_positions: Tensor, key_positions: Tensor, layer: Layer) -> Tensor:
        """Return Σ_c w_c P_ijc + b."""
        features = plus_features(query_positions, key_positions)
        mixed = (features * layer.weights["w_plus"][:, None, None, :]).sum(-1)  # (s, i, j)
        return (mixed + layer.weights["b_plus"][:, :, None])[:, None, None]

    def code(self, wiring: Wiring) -> Code:
        half = CHANNELS // 2
        sinusoid = f"(of_i @ self.w_plus[:{half}])[:, None] + of_j @ self.w_plus[{half}:]"
        return Code(
            functions=(_WAVES,),
            adjust={"Q": "q * self.w_plus.sum()"},
            bias=(
                "of_i, of_j = (waves(n, x) for n in scores.shape[-2:])",
                f"scores = scores + {sinusoid} + self.b_plus",
            ),
        )


_WAVES = f'''
def waves(n: int, like: Tensor) -> Tensor:
    """Return a fixed sinusoid of n positions, (n, {CHANNELS // 2}): sines and cosines alternate."""
    position, channel = torch.arange(n).to(like), torch.arange({CHANNELS // 2}).to(like)
    angle = position[:, None] * 10000 ** (-2 * (channel // 2) / {CHANNELS // 2})
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos())
'''


class LearnedPlusPositions(PlusPositions):
    """(X)⁺ together with learned positions, as in the authors' synthetic tasks."""

    name = "learned_plus"
    help = "Learned vectors are added to tokens, and a fixed 2-D sinusoid is mixed into the scores."
    embedded = True


def plus_features(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Return the fixed sinusoid of (X)⁺ at these positions, (i, j, channels)."""
    import torch

    half = CHANNELS // 2

    def waves(positions: Tensor) -> Tensor:
        channel = torch.arange(half, device=positions.device)
        angle = positions[:, None] * 10000.0 ** (-2 * (channel // 2) / half)
        return torch.where(channel % 2 == 0, angle.sin(), angle.cos())

    of_queries, of_keys = waves(query_positions), waves(key_positions)
    shape = (len(query_positions), len(key_positions), half)
    return torch.cat([of_queries[:, None].expand(shape), of_keys[None].expand(shape)], -1)


POSITIONS: dict[str, Positions] = {
    scheme.name: scheme()
    for scheme in (
        Positions,
        LearnedPositions,
        RotaryPositions,
        LinearPositions,
        RelativePositions,
        KeyPositions,
        PlusPositions,
        LearnedPlusPositions,
    )
}
"""Every position scheme by name."""
