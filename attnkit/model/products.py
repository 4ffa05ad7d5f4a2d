"""Matrix products whose bits for a run do not depend on the other runs in the batch.

In BLAS the rounding of a product depends on the number of matrices in the batch and on the memory
address of its output. Two precautions in this module remove both dependences.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.variants.size import ALIGNED

NARROW = 16
"""Width below which a single product is computed as a batch of two; see `_multiply`."""


def product(a: Float[Tensor, "n i k"], b: Float[Tensor, "n k j"]) -> Float[Tensor, "n i j"]:
    """Return a @ b for a batch in which each run has several matrices."""
    result: Tensor = _Product.apply(a, b, False)  # type: ignore[no-untyped-call]
    return result


def project(rows: Float[Tensor, "s t m"], W: Float[Tensor, "s m n"]) -> Float[Tensor, "s t n"]:
    """Return rows @ W, where W holds one weight for each run."""
    result: Tensor = _Product.apply(rows, W, True)  # type: ignore[no-untyped-call]
    return result


def look_up(
    table: Float[Tensor, "s v m"], tokens: Int64[Tensor, "s b n fields"]
) -> list[Float[Tensor, "s b n m"]]:
    """Return the rows of each run's table for the tokens, one tensor for each field."""
    offsets = torch.arange(len(table), device=table.device) * table.shape[1]
    fields = (tokens + offsets[:, None, None, None]).flatten(0, 2).unbind(1)
    of_all_runs = table.flatten(0, 1)
    return [of_all_runs.index_select(0, rows).view(*tokens.shape[:3], -1) for rows in fields]


class _Product(torch.autograd.Function):
    """Product a @ b with its gradients.

    If `b` is a weight, the gradient of each run's weight begins on a cache line, because the
    rounding of BLAS depends on the alignment of a matrix.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, is_weight: bool) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.is_weight = is_weight
        return _multiply(a, b)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        a, b = ctx.saved_tensors
        d_out = gradients[0].contiguous()
        d_a = _multiply(d_out, b.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return d_a, None, None
        d_b = torch.empty_like(b)
        if ctx.is_weight:
            n_numbers = b.shape[1] * b.shape[2]
            stride = (n_numbers + -n_numbers % ALIGNED, b.shape[2], 1)
            d_b = torch.empty_strided(b.shape, stride, dtype=b.dtype, device=b.device)
        return d_a, _multiply(a.transpose(1, 2), d_out, d_b), None


def _multiply(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Return a @ b with the same bits for any number of runs.

    BLAS computes a batch of one with another kernel than a larger batch, and for narrow matrices
    the two round differently (measured for widths from 5 to 11). A single narrow product is
    therefore computed twice, which costs almost nothing.
    """
    if len(a) == 1 and min(a.shape[1], *b.shape[1:]) < NARROW:
        if out is not None:  # BLAS chooses its kernel by the layout, too
            out = out.new_empty_strided((2, *out.shape[1:]), out.stride())
        return torch.bmm(a.expand(2, -1, -1), b.expand(2, -1, -1), out=out)[:1]
    return torch.bmm(a, b, out=out)
