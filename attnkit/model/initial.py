"""The numbers that training begins with: one generator for every seed and purpose."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnkit.model.parameters import TABLE
from attnkit.variants.wiring import Sizes, Weight

if TYPE_CHECKING:
    from attnkit.tasks import Task

EMBEDDING_STD = 0.5
"""Of the sum over a token's fields, before its first RMSNorm; lean blocks."""


def generator_for(seed: int, purpose: str) -> torch.Generator:
    """The generator of one (seed, purpose): independent of every other and of their number."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def initial_numbers(seed: int, name: str, weight: Weight) -> Tensor:
    """Those of one run's parameter."""
    shape = weight.shape
    if weight.fill:
        return torch.tensor(weight.fill).repeat(-(-shape[-1] // len(weight.fill)))[: shape[-1]]
    drawn_as = f"{name.partition('.')[0]}.{weight.like}" if weight.like else name
    generator = generator_for(seed, f"initial {drawn_as}")
    if weight.bound:
        return (2 * torch.rand(shape, generator=generator) - 1) * weight.bound
    return torch.randn(shape, generator=generator) * weight.std


def weight_outside(name: str, shape: tuple[int, ...], sizes: Sizes, task: Task) -> Weight:
    """How a parameter that is no attention layer's begins, at the variant's own sizes.

    Source:
        Standard blocks: `torch.nn.Linear` and `torch.nn.LayerNorm`; embeddings as a linear map of
        one-hot vectors, positions from N(0, 1).
    """
    last = name.rpartition(".")[2]
    if last in ("w", "b"):  # of a LayerNorm
        return Weight(shape, fill=(float(last == "w"),))
    if not sizes.standard:
        std = {TABLE: EMBEDDING_STD / math.sqrt(task.n_fields), "W_pos": EMBEDDING_STD}
        return Weight(shape, std.get(last, shape[0] ** -0.5))
    if last == "W_pos":
        return Weight(shape, 1.0)
    n_read = {TABLE: task.d_vocab, "b_E": task.d_vocab, "b_out": sizes.d_mlp}
    return Weight(
        shape, bound=n_read.get(last, shape[0] if last[0] == "W" else sizes.d_model) ** -0.5
    )
