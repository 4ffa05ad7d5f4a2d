"""Multi-head latent attention: queries, keys and values that are projected in two steps.

The input is projected to a latent vector, the latent vector is normalised, and the result is
projected to all heads. A head's matrices are therefore products: W_Q = A_Q diag(g_Q) B_Q with the
gain g_Q of the norm, and W_K = A diag(g) B_K and W_V = A diag(g) B_V with one A for both. The norm
also divides each token's latent vector by its size. This division is left out. In some models
queries are projected in one step.

Queries and keys have a second part, which alone has rotary positions. Its key is the same for all
heads and is not normalised, so no single matrix W_Q W_Kᵀ describes both parts. Only the first part
is read.

Source:
    DeepSeek-AI 2024, "DeepSeek-V2", arXiv 2405.04434.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from attnkit.realmodels.base import (
    Array,
    AttentionLayer,
    Projections,
    TensorFile,
    Unreadable,
    per_head,
    quote,
)
from attnkit.realmodels.configuration import Configuration
from attnkit.realmodels.layer_sizes import WIDTH_FIELDS
from attnkit.realmodels.notes import LATENT
from attnkit.realmodels.stack import Stack
from attnkit.realmodels.tensor_checks import check_shape

_Q, _Q_A, _Q_NORM, _Q_B = "q_proj", "q_a_proj", "q_a_layernorm", "q_b_proj"
_KV_A, _KV_NORM, _KV_B = "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj"


@dataclass(frozen=True)
class _Widths:
    """Widths of a model with latent attention.

    Attributes:
        model: Width of the residual stream.
        n_heads: Number of heads.
        q_latent: Width of the latent vector of queries; 0 if they are projected in one step.
        kv_latent: Width of the latent vector of keys and values.
        plain: Width of the part of a query and of a key without rotary positions.
        rotary: Width of the part with rotary positions.
        value: Width of a value.
    """

    model: int
    n_heads: int
    q_latent: int
    kv_latent: int
    plain: int
    rotary: int
    value: int

    @staticmethod
    def of(stack: Stack, config: Configuration) -> _Widths:
        return _Widths(
            config.count(*WIDTH_FIELDS),
            config.count(*stack.n_heads),
            config.count("q_lora_rank") if config.find("q_lora_rank")[0] else 0,
            config.count("kv_lora_rank"),
            config.count("qk_nope_head_dim"),
            config.count("qk_rope_head_dim"),
            config.count("v_head_dim"),
        )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every weight, by the name of its module."""
        n_q = self.n_heads * (self.plain + self.rotary)
        queries: dict[str, tuple[int, ...]] = {_Q: (n_q, self.model)}
        if self.q_latent:
            queries = {
                _Q_A: (self.q_latent, self.model),
                _Q_NORM: (self.q_latent,),
                _Q_B: (n_q, self.q_latent),
            }
        return queries | {
            _KV_A: (self.kv_latent + self.rotary, self.model),
            _KV_NORM: (self.kv_latent,),
            _KV_B: (self.n_heads * (self.plain + self.value), self.kv_latent),
        }


def latent_layers(
    stack: Stack, model_prefix: str, config: Configuration, tensors: TensorFile, n_layers: int
) -> tuple[list[AttentionLayer], list[str]]:
    """Return all layers of a stack with latent attention, and a note.

    Raises:
        Unreadable: If a field or tensor is missing, or they contradict each other.
    """
    widths = _Widths.of(stack, config)
    layers = []
    for i in range(n_layers):
        prefix = model_prefix + stack.prefix.format(i)
        norm = f"{prefix}{stack.norm}.weight"
        attention = prefix + stack.modules[0][0].removesuffix(_KV_A)
        _check(tensors, attention, norm, widths)
        read = partial(_read, tensors, attention, norm, widths)
        layers.append(AttentionLayer(stack.kind, i, widths.n_heads, widths.n_heads, read))
    return layers, [LATENT]


def _check(tensors: TensorFile, attention: str, norm: str, widths: _Widths) -> None:
    """Raise Unreadable unless the layer's tensors are present and have the specified shapes.

    Only the first step may have a bias. A bias of the second step would not be divided by the size
    of the latent vector, as that of the first step is, so the two cannot be added.
    """
    reason = (
        f"{widths.n_heads} heads; widths: {widths.plain} without and {widths.rotary} with rotary "
        f"positions, values {widths.value}, latent {widths.q_latent or '–'} and "
        f"{widths.kv_latent}, of {widths.model} inputs"
    )
    for module, shape in widths.shapes.items():
        check_shape(tensors, f"{attention}{module}.weight", shape, reason)
        bias = f"{attention}{module}.bias"
        if bias in tensors.shapes:
            if module not in (_Q_A, _KV_A):
                raise Unreadable(
                    f"tensor {quote(bias)} is a bias that is not read here; with latent attention, "
                    f"only {_Q_A} and {_KV_A} may have one"
                )
            check_shape(tensors, bias, shape[:1], reason)
    check_shape(tensors, norm, (widths.model,), f"a width of {widths.model}")


def _read(tensors: TensorFile, attention: str, norm: str, widths: _Widths) -> Projections:
    """Read the weights of one layer and multiply their factors."""

    def read(module: str) -> Array:
        return tensors.read(f"{attention}{module}.weight")

    def bias(module: str, n: int) -> Array | None:
        name = f"{attention}{module}.bias"
        return tensors.read(name)[:n] if name in tensors.shapes else None

    n_heads, n = widths.n_heads, widths.plain
    if widths.q_latent:
        second = per_head(read(_Q_B), n_heads)[..., :n]
        w_q, b_q = _product(read(_Q_A), bias(_Q_A, widths.q_latent), read(_Q_NORM), second)
    else:
        w_q, b_q = per_head(read(_Q), n_heads)[..., :n], None
    w_kv, b_kv = _product(
        read(_KV_A)[: widths.kv_latent],
        bias(_KV_A, widths.kv_latent),
        read(_KV_NORM),
        per_head(read(_KV_B), n_heads),
    )
    gain = tensors.read(norm)
    return Projections(
        w_q,
        w_kv[..., :n],
        w_kv[..., n:],
        b_q,
        None if b_kv is None else b_kv[..., :n],
        None if b_kv is None else b_kv[..., n:],
        gain,
        gain,
        latent_q=widths.q_latent,
        latent_kv=widths.kv_latent,
    )


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
    scaled = gain[:, None] * second
    product = np.ascontiguousarray(np.matmul(first.T, scaled))
    return product, None if bias is None else np.matmul(bias, scaled)
