"""Initial parameters of a run, drawn by one random generator for each seed and purpose."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnkit.model.parameters import EMBEDDING
from attnkit.variants.wiring import Sizes, Weight

if TYPE_CHECKING:
    from attnkit.tasks import Task

EMBEDDING_STD = 0.5
"""Standard deviation of a token's embedding, the sum over its fields, in lean blocks."""


def generator_for(seed: int, purpose: str) -> torch.Generator:
    """Return the random generator of a seed and purpose, independent of all other generators."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def initial_numbers(seed: int, name: str, weight: Weight) -> Tensor:
    """Return the initial values of one parameter of a run.

    Args:
        seed: Seed of the run.
        name: Full name of the parameter, with its layer.
        weight: Shape and initial distribution of the parameter.
    """
    shape = weight.shape
    if weight.fill:
        return torch.tensor(weight.fill).repeat(-(-shape[-1] // len(weight.fill)))[: shape[-1]]
    source = f"{name.partition('.')[0]}.{weight.like}" if weight.like else name
    generator = generator_for(seed, f"initial {source}")
    if weight.bound:
        return (2 * torch.rand(shape, generator=generator) - 1) * weight.bound
    return torch.randn(shape, generator=generator) * weight.std


def weight_outside_attention(name: str, shape: tuple[int, ...], sizes: Sizes, task: Task) -> Weight:
    """Return shape and initial distribution of a parameter outside the attention layers.

    Source:
        Standard blocks: `torch.nn.Linear` and `torch.nn.LayerNorm`; embeddings as a linear map of
        one-hot vectors, positions from N(0, 1).
    """
    last = name.rpartition(".")[2]
    if last in ("w", "b"):  # gain and shift of a LayerNorm
        return Weight(shape, fill=(float(last == "w"),))
    if not sizes.standard:
        std = {EMBEDDING: EMBEDDING_STD / math.sqrt(task.n_fields), "W_pos": EMBEDDING_STD}
        return Weight(shape, std.get(last, shape[0] ** -0.5))
    if last == "W_pos":
        return Weight(shape, 1.0)
    fan_in = {EMBEDDING: task.d_vocab, "b_E": task.d_vocab, "b_out": sizes.d_mlp}
    return Weight(
        shape, bound=fan_in.get(last, shape[0] if last[0] == "W" else sizes.d_model) ** -0.5
    )
