"""What a model knows of positions: none, learned vectors, RoPE, and biases of the scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.variants.rules import Code, Rule
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import Weight, Wiring

if TYPE_CHECKING:
    from torch import Tensor

_BOTH = "i, j = (torch.arange(n, device=x.device) for n in scores.shape[-2:])"
"""In plain PyTorch: the positions that ask, and those that are looked at."""


class Positions(Rule):
    """A way to tell positions apart.

    Class attributes:
        name: as typed. help: in one plain sentence.
        asymmetric: whether scores are no longer symmetric with it, even if queries are keys.
        embedded: whether a learned vector is added to every token, before the first layer.
        turns: whether queries and keys are turned.
    """

    name = "none"
    help = "Positions are not told apart."
    asymmetric = False
    embedded = False
    turns = False
    plain = True


class LearnedPositions(Positions):
    """A learned vector per position is added to the token."""

    name = "learned"
    help = "A learned vector per position is added to the token."
    embedded = True


class RotaryPositions(Positions):
    """Queries and keys are turned by angles that grow with their position.

    Component i and component i + d/2 are a pair, turned by position · 10000^(−2i/d).

    Source:
        Su et al. 2021, arXiv 2104.09864, with the pairs of GPT-NeoX.
    """

    name = "rope"
    help = "Queries and keys are turned by their position: scores know the signed distance."
    turns = True
    plain = False

    def rewire(self, wiring: Wiring) -> None:
        """Numbers are turned in pairs."""
        if wiring.sizes.d_k % 2:
            raise ValueError(f"positions=rope needs an even d_k, not {wiring.sizes.d_k}")

    def adjust(
        self, role: Role, rows: Tensor, weights: dict[str, Tensor], at: Tensor, wiring: Wiring
    ) -> Tensor:
        """Turn queries and keys."""
        import torch

        if role == "V":
            return rows
        half = rows.shape[-1] // 2
        rates = 10000 ** (-torch.arange(half, device=rows.device, dtype=rows.dtype) / half)
        angles = at.to(rows.dtype)[:, None] * rates  # (i, d/2)
        first, second = rows[..., :half], rows[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def code(self, wiring: Wiring) -> Code:
        """Return the code that turns queries and keys, as a function."""
        return Code(functions=(_TURN,), adjust={"Q": "turn(q)", "K": "turn(k)"})


_TURN = '''
def turn(rows: Tensor) -> Tensor:
    """Number c and number c + d/2 are a pair, turned by position * 10000^(-2c/d)."""
    at, half = torch.arange(rows.shape[-2]).to(rows), rows.shape[-1] // 2
    angle = at[:, None] * 10000 ** (-torch.arange(half).to(rows) / half)  # (i, d/2)
    (a, b), cos, sin = rows.chunk(2, -1), angle.cos(), angle.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
'''


class LinearPositions(Positions):
    """A penalty that grows with distance, steeper in the first heads, in both directions.

    Source:
        Press et al. 2021, arXiv 2108.12409: slopes 2^(−8h/n_heads), h from 1.
    """

    name = "alibi"
    help = "Scores fall with the distance, which keeps them symmetric."
    plain = False

    def bias(
        self, weights: dict[str, Tensor], asking: Tensor, looked_at: Tensor, wiring: Wiring
    ) -> Tensor:
        """−slope · |i − j|."""
        import torch

        n_heads = wiring.sizes.n_heads
        head = torch.arange(1, n_heads + 1, device=asking.device, dtype=torch.float32)
        slopes = 2 ** (-8 * head / n_heads)
        distance = (asking[:, None] - looked_at[None, :]).abs()
        return (-slopes[:, None, None] * distance)[None, None]

    def code(self, wiring: Wiring) -> Code:
        """Return the code of the biases; a single head has the last slope."""
        n_heads = wiring.sizes.n_heads
        if n_heads == 1:
            return Code(bias=(_BOTH, "scores = scores - 2**-8 * (i[:, None] - j).abs()"))
        slopes = f"slopes = 2 ** (-8 * torch.arange(1, {n_heads + 1}).to(x) / {n_heads})"
        fall = "scores = scores - slopes[:, None, None] * (i[:, None] - j).abs()"
        return Code(bias=(_BOTH, slopes, fall))


class RelativePositions(Positions):
    """A learned number per head and offset i − j.

    Source:
        Raffel et al. 2020, arXiv 1910.10683, without buckets.
    """

    name = "relative"
    help = "A learned number per offset is added to the scores; forward and back differ."
    asymmetric = True
    plain = False

    def rewire(self, wiring: Wiring) -> None:
        """A number for every offset that occurs."""
        shape = (wiring.sizes.n_heads, 2 * wiring.sizes.n_ctx - 1)
        wiring.weights["b_offset"] = Weight(shape, fill=(0.0,))

    def bias(
        self, weights: dict[str, Tensor], asking: Tensor, looked_at: Tensor, wiring: Wiring
    ) -> Tensor:
        """b[i − j]."""
        offset = asking[:, None] - looked_at[None, :] + wiring.sizes.n_ctx - 1
        return weights["b_offset"][:, :, offset].unsqueeze(1)

    def code(self, wiring: Wiring) -> Code:
        """Return the code that adds the bias of each offset."""
        added = f"self.b_offset[:, i[:, None] - j + {wiring.sizes.n_ctx - 1}]"
        return Code(bias=(_BOTH, f"scores = scores + {added}"))


class KeyPositions(Positions):
    """A learned number per head and key position: where to look, whoever asks."""

    name = "key_bias"
    help = "A learned number per key position is added to the scores."
    asymmetric = True
    plain = False

    def rewire(self, wiring: Wiring) -> None:
        """A number for every position."""
        shape = (wiring.sizes.n_heads, wiring.sizes.n_ctx)
        wiring.weights["b_key"] = Weight(shape, fill=(0.0,))

    def bias(
        self, weights: dict[str, Tensor], asking: Tensor, looked_at: Tensor, wiring: Wiring
    ) -> Tensor:
        """g(j)."""
        return weights["b_key"][:, :, looked_at][:, None, :, None, :]

    def code(self, wiring: Wiring) -> Code:
        """Return the code of the biases of keys; each of two sides counts its own positions."""
        seen = ", : scores.shape[-1]" if wiring.sizes.two_sided else ""
        return Code(bias=(f"scores = scores + self.b_key[:, None{seen}]",))


CHANNELS = 10
"""Of the fixed sinusoid of (X)⁺: half of them tell the row, half the column."""


class PlusPositions(Positions):
    """(X)⁺: S' = S · Σw + Σ_c w_c P_ijc + b, with a fixed 2-D sinusoid P of ten channels.

    Row features cancel in the softmax of a row: what remains is a temperature and a bias g(j).
    The weights start at 0.02 · N(0, 1), so the scores start near zero.

    Source:
        Kayyam et al. 2026, arXiv 2606.04032, and the authors' code.
    """

    name = "plus"
    help = "A fixed 2-D sinusoid is mixed into the scores by ten learnt weights."
    asymmetric = True
    plain = False

    def rewire(self, wiring: Wiring) -> None:
        """The weights of a 1×1 convolution over the channels, shared by the heads."""
        wiring.weights["w_plus"] = Weight((CHANNELS,), 0.02)
        wiring.weights["b_plus"] = Weight((1,), fill=(0.0,))

    def adjust(
        self, role: Role, rows: Tensor, weights: dict[str, Tensor], at: Tensor, wiring: Wiring
    ) -> Tensor:
        """S · Σw, by way of the queries."""
        return rows * weights["w_plus"].sum(-1).view(-1, 1, 1, 1, 1) if role == "Q" else rows

    def bias(
        self, weights: dict[str, Tensor], asking: Tensor, looked_at: Tensor, wiring: Wiring
    ) -> Tensor:
        """Σ_c w_c P_ijc + b."""
        features = plus_features(asking, looked_at)
        mixed = (features * weights["w_plus"][:, None, None, :]).sum(-1)  # (s, i, j)
        return (mixed + weights["b_plus"][:, :, None])[:, None, None]

    def code(self, wiring: Wiring) -> Code:
        """Return the code of the biases, with rows and columns of the scores apart."""
        half = CHANNELS // 2
        of_both = f"(of_i @ self.w_plus[:{half}])[:, None] + of_j @ self.w_plus[{half}:]"
        return Code(
            functions=(_WAVES,),
            adjust={"Q": "q * self.w_plus.sum()"},
            bias=(
                "of_i, of_j = (waves(n, x) for n in scores.shape[-2:])",
                f"scores = scores + {of_both} + self.b_plus",
            ),
        )


_WAVES = f'''
def waves(n: int, like: Tensor) -> Tensor:
    """A fixed sinusoid of n positions: sines and cosines by turns, (n, {CHANNELS // 2})."""
    at, channel = torch.arange(n).to(like), torch.arange({CHANNELS // 2}).to(like)
    angle = at[:, None] * 10000 ** (-2 * (channel // 2) / {CHANNELS // 2})
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos())
'''


class LearnedPlusPositions(PlusPositions):
    """(X)⁺ beside learned positions, as the authors' synthetic tasks have it."""

    name = "learned_plus"
    help = "Learned vectors, and a fixed 2-D sinusoid mixed into the scores."
    embedded = True


def plus_features(asking: Tensor, looked_at: Tensor) -> Tensor:
    """The fixed sinusoid of (X)⁺ at these positions, (i, j, channels)."""
    import torch

    each = CHANNELS // 2

    def wave(at: Tensor) -> Tensor:
        channel = torch.arange(each, device=at.device)
        angle = at[:, None] * 10000.0 ** (-2 * (channel // 2) / each)
        return torch.where(channel % 2 == 0, angle.sin(), angle.cos())

    rows, columns = wave(asking), wave(looked_at)
    shape = (len(asking), len(looked_at), each)
    return torch.cat([rows[:, None].expand(shape), columns[None].expand(shape)], -1)


POSITIONS: dict[str, Positions] = {
    kind.name: kind()
    for kind in (
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
"""Every way by name."""
