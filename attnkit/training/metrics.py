"""What is measured on a model: pure functions of tensors, batched over runs and heads.

| metric | invariant to scale | range |
|---|---|---|
| `accuracy`, `slice_accuracy` | yes | 0 … 1, higher is better |
| `loss` | no | 0 …, lower is better |
| `score_symmetry` | yes | −1 antisymmetric … 1 symmetric |
| `weight_symmetry` | yes | −1 … 1 |
| `directionality` | yes | −1 looked at … 1 asking; 0 symmetric; sign turns with the transpose |
| `symmetry_error` | yes | 0 symmetric … 2 |
| `mass_at` | – | 0 … 1; below 0 where a pattern is subtracted |
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from attnkit.tasks.base import NOTHING


def accuracy(
    logits: Float[Tensor, "r b a c"], labels: Int64[Tensor, "r b a"]
) -> Float[Tensor, " r"]:
    """Return the share of answers, of those that are asked, whose label has the largest logit.

    An answer that shares the largest logit is wrong.
    """
    return _is_right(logits, labels).sum((1, 2)).double() / (labels != NOTHING).sum((1, 2))


def slice_accuracy(
    logits: Float[Tensor, "r b a c"],
    labels: Int64[Tensor, "r b a"],
    slices: Int64[Tensor, "r b a"],
    n_slices: int,
) -> Float[Tensor, "r n_slices"]:
    """Accuracy on each group of answers; NaN where a group has none.

    Args:
        slices: the group of every answer, below `n_slices`.
    """
    right = _is_right(logits, labels)
    groups = [(labels != NOTHING) & (slices == place) for place in range(n_slices)]
    shares = [(right & of).sum((1, 2)).double() / of.sum((1, 2)) for of in groups]
    return torch.stack(shares, 1)


def _is_right(
    logits: Float[Tensor, "r b a c"], labels: Int64[Tensor, "r b a"]
) -> Bool[Tensor, "r b a"]:
    """Return which labels have a larger logit than all other classes, much faster than `argmax`."""
    asked = labels != NOTHING
    index = labels.where(asked, 0).unsqueeze(-1)
    others = logits.scatter(-1, index, -torch.inf)
    return (logits.gather(-1, index).squeeze(-1) > others.amax(-1)) & asked


def loss(logits: Float[Tensor, "r b a c"], labels: Int64[Tensor, "r b a"]) -> Float[Tensor, " r"]:
    """Mean cross-entropy in nats over what is asked; lower is better."""
    each = F.cross_entropy(
        logits.flatten(0, 2), labels.flatten(), ignore_index=NOTHING, reduction="none"
    ).view(len(labels), -1)
    asked = (labels != NOTHING).sum((1, 2))
    return each.sum(1) / asked


def score_symmetry(scores: Float[Tensor, "*n i i"]) -> Float[Tensor, "*n"]:
    """(‖S_s‖² − ‖S_a‖²) / ‖S‖² of square matrices; 1 where S is all zero.

    Args:
        scores: unmasked, before softmax, diagonal included.

    Source:
        Saponati et al. 2025, arXiv 2502.10927, there for W_Q W_Kᵀ.
    """
    size = scores.square().sum((-2, -1))
    mirrored = (scores * scores.transpose(-2, -1)).sum((-2, -1))
    return torch.where(size == 0, torch.ones_like(size), mirrored / size)


def weight_symmetry(
    w_q: Float[Tensor, "*n m d"], w_k: Float[Tensor, "*n m d"]
) -> Float[Tensor, "*n"]:
    """Score symmetry of W_Q W_Kᵀ, without forming that matrix: tr(CC) / tr(AB).

    A = W_QᵀW_Q, B = W_KᵀW_K, C = W_KᵀW_Q; 1 where the product is all zero.

    Source:
        Saponati et al. 2025, arXiv 2502.10927.
    """
    a = w_q.transpose(-2, -1) @ w_q
    b = w_k.transpose(-2, -1) @ w_k
    c = w_k.transpose(-2, -1) @ w_q
    mirrored = (c * c.transpose(-2, -1)).sum((-2, -1))
    size = (a * b).sum((-2, -1))
    return torch.where(size == 0, torch.ones_like(size), mirrored / size)


def directionality(
    w_q: Float[Tensor, "*n m d"], w_k: Float[Tensor, "*n m d"]
) -> Float[Tensor, "*n"]:
    """(r − c) / (r + c) of M = W_Q W_Kᵀ, without forming it; 0 where nothing stands out.

    r is the sum over rows of max(0, ‖row‖ − (mean + 2·std)), with mean and std (of all rows, not
    of a sample) of the norms of all rows; c is the same of columns. Rows are directions of the
    token that asks, columns of the one that is looked at: above 0, a few directions stand out
    among those that ask.

    Source:
        Saponati et al. 2025, arXiv 2502.10927, where code and table differ in sign.
    """
    standing_out = []
    for own, other in ((w_q, w_k), (w_k, w_q)):
        squares = (own @ (other.transpose(-2, -1) @ other) * own).sum(-1)
        norms = squares.clamp_min(0).sqrt()
        limit = (norms.mean(-1) + 2 * norms.std(-1, correction=0)).unsqueeze(-1)
        excess = norms - limit
        standing_out.append(excess.masked_fill(excess <= _ROUNDING * limit, 0.0).sum(-1))
    rows, columns = standing_out
    both = rows + columns
    return torch.where(both == 0, both, (rows - columns) / both)


_ROUNDING = 1e-5
"""Norms that differ by less, relatively, count as equal."""


def symmetry_error(scores: Float[Tensor, "r ... i i"]) -> Float[Tensor, " r"]:
    """max|S − Sᵀ| / max|S| of each run: rounding level where queries are keys."""
    gap = (scores - scores.transpose(-2, -1)).abs().flatten(1).amax(1)
    return gap / scores.abs().flatten(1).amax(1).clamp_min(torch.finfo(scores.dtype).tiny)


def mass_at(
    pattern: Float[Tensor, "r b h i j"], position: Int64[Tensor, "r b a"]
) -> Float[Tensor, " r"]:
    """Attention weight that the answering positions put on one position each.

    Args:
        pattern: after softmax; the last a of its i positions answer.
        position: for every answer, the key position in question; `NOTHING` is left out.

    Returns:
        The mean over examples, answers and heads; NaN if there is none.
    """
    answering = pattern[..., -position.shape[-1] :, :]
    index = position[:, :, None, :, None].expand(*answering.shape[:-1], 1)
    there = index != NOTHING
    mass = answering.gather(-1, index.clamp_min(0)).double() * there
    return mass.sum((1, 2, 3, 4)) / there.sum((1, 2, 3, 4))
