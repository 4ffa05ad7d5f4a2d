"""Multi-head latent attention: queries, keys and values that are projected in two steps.

The input is projected to a latent vector, the latent vector is normalised, and the result is
projected to all heads. A head's matrices are therefore products: W_Q = A_Q diag(g_Q) B_Q with the
gain g_Q of the norm, and W_K = A diag(g) B_K and W_V = A diag(g) B_V with one A for both. The norm
also divides each token's latent vector by its size. This division is left out. In some models
queries are projected in one step.

Queries and keys have a second part, which alone has rotary positions. Its key is the same for all
heads and is not normalised, so no single matrix W_Q W_Kᵀ describes both parts. Only the first part
is read. DeepSeek V4 has one head of keys, projected in one step, which serve as values, too; its
keys are read whole, and their rotary positions are left out.

Source:
    DeepSeek-AI 2024, "DeepSeek-V2", arXiv 2405.04434.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from attnkit.realmodels.base import Array, Kind, Projections, per_head
from attnkit.realmodels.configuration import D_HEAD, D_MODEL, Configuration
from attnkit.realmodels.errors import Unreadable, quote
from attnkit.realmodels.stack import LatentNames, Stack
from attnkit.realmodels.tensors import TensorFile

_WIDTHS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


@dataclass(frozen=True)
class StoredLatentLayer:
    """Layer with latent attention in a file: names and shapes that its tensors must have.

    Attributes:
        kind: Positions that its queries attend to.
        number: Index among the layers of its stack in the file.
        attention: Start of the names of its linear layers.
        names: Rest of their names.
        norm: Name of the weight of the norm before them.
        d_model: Width of the residual stream.
        n_heads: Number of heads.
        q_latent: Width of the latent vector of queries; 0 if they are projected in one step.
        kv_latent: Width of the latent vector of keys and values.
        d_plain: Width of the part of a query and of a key without rotary positions.
        d_rotary: Width of the part with rotary positions.
        d_value: Width of a value.
        kv_index: None, because every layer has keys and values of its own.
    """

    kind: Kind
    number: int
    attention: str
    names: LatentNames
    norm: str
    d_model: int
    n_heads: int
    q_latent: int
    kv_latent: int
    d_plain: int
    d_rotary: int
    d_value: int
    kv_index: None = field(default=None, init=False)

    @property
    def n_kv_heads(self) -> int:
        """Number of key and value heads."""
        return 1 if self.names.kv else self.n_heads

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the weights of its linear layers and of the norms between them."""
        return tuple(f"{self.attention}{module}.weight" for module in self.shapes)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every weight, by the name of its module."""
        names, n_q = self.names, self.n_heads * (self.d_plain + self.d_rotary)
        shapes: dict[str, tuple[int, ...]] = {}
        if self.q_latent:
            shapes |= {
                names.q_a: (self.q_latent, self.d_model),
                names.q_norm: (self.q_latent,),
                names.q_b: (n_q, self.q_latent),
            }
        else:
            shapes[names.q] = (n_q, self.d_model)
        if names.kv:
            return shapes | {names.kv: (self.d_plain, self.d_model)}
        shapes |= {
            names.kv_a: (self.kv_latent + self.d_rotary, self.d_model),
            names.kv_norm: (self.kv_latent,),
        }
        if names.kv_b:
            n_kv = self.n_heads * (self.d_plain + self.d_value)
            return shapes | {names.kv_b: (n_kv, self.kv_latent)}
        return shapes | {
            names.k_b: (self.n_heads, self.kv_latent, self.d_plain),
            names.v_b: (self.n_heads, self.d_value, self.kv_latent),
        }

    def check(self, file: TensorFile) -> None:
        """Raise Unreadable unless the layer's tensors are present and have these shapes.

        Only the first step may have a bias. A bias of the second step would not be divided by the
        size of the latent vector, as that of the first step is, so the two cannot be added.
        """
        reason = (
            f"{self.n_heads} heads; widths: {self.d_plain} without and {self.d_rotary} with rotary "
            f"positions, values {self.d_value}, latent {self.q_latent or '–'} and "
            f"{self.kv_latent}, of {self.d_model} inputs"
        )
        for module, shape in self.shapes.items():
            file.check_shape(f"{self.attention}{module}.weight", shape, reason)
            bias = f"{self.attention}{module}.bias"
            if bias in file.entries:
                if module not in (self.names.q_a, self.names.kv_a):
                    raise Unreadable(
                        f"{file.name}: tensor {quote(bias)} is a bias that is not read here; with "
                        f"latent attention, only {self.names.q_a} and {self.names.kv_a} may have "
                        "one"
                    )
                file.check_shape(bias, shape[:1], reason)
        file.check_shape(self.norm, (self.d_model,), f"a width of {self.d_model}")

    def read(self, file: TensorFile) -> Projections:
        """Read the weights of the layer and multiply their factors."""

        def weight(module: str) -> Array:
            return file.read(f"{self.attention}{module}.weight")

        def bias(module: str, n: int) -> Array | None:
            name = f"{self.attention}{module}.bias"
            return file.read(name)[:n] if name in file.entries else None

        names, n_heads, n = self.names, self.n_heads, self.d_plain
        if self.q_latent:
            second = per_head(weight(names.q_b), n_heads)[..., :n]
            first, b_first = weight(names.q_a), bias(names.q_a, self.q_latent)
            w_q, b_q = _product(first, b_first, weight(names.q_norm), second)
        else:
            w_q, b_q = per_head(weight(names.q), n_heads)[..., :n], None
        gain = file.read(self.norm)
        if names.kv:
            w_kv = per_head(weight(names.kv), 1)
            latent = self.q_latent
            return Projections(w_q, w_kv, w_kv, b_q, None, None, gain, gain, latent_q=latent)
        if names.kv_b:
            second = per_head(weight(names.kv_b), n_heads)
        else:
            second = np.concatenate([weight(names.k_b), weight(names.v_b).swapaxes(1, 2)], 2)
        w_kv, b_kv = _product(
            weight(names.kv_a)[: self.kv_latent],
            bias(names.kv_a, self.kv_latent),
            weight(names.kv_norm),
            second,
        )
        b_k, b_v = (None, None) if b_kv is None else (b_kv[..., :n], b_kv[..., n:])
        return Projections(
            w_q,
            w_kv[..., :n],
            w_kv[..., n:],
            b_q,
            b_k,
            b_v,
            gain,
            gain,
            latent_q=self.q_latent,
            latent_kv=self.kv_latent,
        )


def latent_layers(
    stack: Stack, names: LatentNames, model_prefix: str, config: Configuration, n_layers: int
) -> list[StoredLatentLayer]:
    """Return names and shapes of the tensors of all layers of a stack with latent attention.

    Raises:
        Unreadable: If a field is missing or wrong.
    """
    of_kv = (
        (0, config.count(*D_HEAD), 0, config.count(*D_HEAD))
        if names.kv
        else tuple(config.count(name) for name in _WIDTHS)
    )
    widths = (
        config.count(*D_MODEL),
        config.count(*stack.n_heads),
        config.count("q_lora_rank", default=0),
        *of_kv,
    )
    prefixes = [model_prefix + stack.prefix.format(i) for i in range(n_layers)]
    attention = stack.modules[0][0].removesuffix(names.kv or names.kv_a)
    return [
        StoredLatentLayer(
            stack.kind, i, f"{prefix}{attention}", names, f"{prefix}{stack.norm}.weight", *widths
        )
        for i, prefix in enumerate(prefixes)
    ]


def _product(
    first: Array, bias: Array | None, gain: Array, second: Array
) -> tuple[Array, Array | None]:
    """Return the product of both steps, (h, m, d), and of the first step's bias, (h, d).

    Args:
        first: Weight of the first step, (r, m).
        bias: Bias of the first step, (r,), or None.
        gain: Gain of the norm between the steps, (r,).
        second: Weight of the second step by head, (h, r, d).
    """
    with np.errstate(over="ignore", invalid="ignore"):  # heads with infinite weights are left out
        scaled = gain[:, None] * second
        product = np.ascontiguousarray(np.matmul(first.T, scaled))
        return product, None if bias is None else np.matmul(bias, scaled)
