"""Metrics: what is measured of every run at each evaluation, and the formulas.

`METRICS` is the only list of metrics; histories, tables and files follow it. To add a metric, add
an entry to it: what it is called on screen, its range, and how it is computed from a `Recording`.
The formulas are pure functions of tensors, batched over runs and heads. All are invariant to the
scale of the scores except `loss`. This module imports torch inside functions only, because pages
read the titles of metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jaxtyping import Bool, Float, Int64

from attnkit.foundation.language import mark, tr
from attnkit.foundation.words import capitalised
from attnkit.tasks.base import NOTHING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """A number of every run that is shown over training.

    Attributes:
        title: Name on screen, in the middle of a sentence.
        limits: Smallest and largest possible value.
        in_summary: Whether tables with one row per variant have its mean over seeds.
    """

    title: str
    limits: tuple[float, float]
    in_summary: bool = field(default=True, kw_only=True)

    @property
    def heading(self) -> str:
        """Name on screen, with a capital letter."""
        return capitalised(tr(self.title))


@dataclass(frozen=True)
class MeasuredMetric(Metric):
    """A metric that evaluations measure.

    Attributes:
        measure: Function of an evaluation's `Recording` that returns the metric of every run, (r,);
            NaN where it is undefined.
    """

    measure: Callable[[Any], Tensor]


class AttentionMetric(MeasuredMetric):
    """A metric of scores, patterns or their weights, which a training can leave out."""


def accuracy(
    logits: Float[Tensor, "r b a c"], labels: Int64[Tensor, "r b a"]
) -> Float[Tensor, " r"]:
    """Return the share of labelled positions whose label has the largest logit.

    Where another class has an equal logit, the answer is wrong. Labels of `NOTHING` do not count.
    """
    return _is_right(logits, labels).sum((1, 2)).double() / (labels != NOTHING).sum((1, 2))


def slice_accuracy(
    logits: Float[Tensor, "r b a c"],
    labels: Int64[Tensor, "r b a"],
    slices: Int64[Tensor, "r b a"],
    n_slices: int,
) -> Float[Tensor, "r n_slices"]:
    """Return the accuracy on each group of answers; NaN where a group has none.

    Args:
        logits: Logits of every class.
        labels: Right classes; `NOTHING` where no answer is expected.
        slices: Index of the group of every answer, below `n_slices`.
        n_slices: Number of groups.
    """
    import torch

    right = _is_right(logits, labels)
    groups = [(labels != NOTHING) & (slices == index) for index in range(n_slices)]
    shares = [(right & group).sum((1, 2)).double() / group.sum((1, 2)) for group in groups]
    return torch.stack(shares, 1)


def _is_right(
    logits: Float[Tensor, "r b a c"], labels: Int64[Tensor, "r b a"]
) -> Bool[Tensor, "r b a"]:
    """Return which labels have a larger logit than all other classes, much faster than `argmax`."""
    labelled = labels != NOTHING
    index = labels.where(labelled, 0).unsqueeze(-1)
    others = logits.scatter(-1, index, -math.inf)
    return (logits.gather(-1, index).squeeze(-1) > others.amax(-1)) & labelled


def loss(logits: Float[Tensor, "r b a c"], labels: Int64[Tensor, "r b a"]) -> Float[Tensor, " r"]:
    """Return the mean cross-entropy in nats over labelled positions; lower is better."""
    import torch.nn.functional as F

    losses = F.cross_entropy(
        logits.flatten(0, 2), labels.flatten(), ignore_index=NOTHING, reduction="none"
    ).view(len(labels), -1)
    return losses.sum(1) / (labels != NOTHING).sum((1, 2))


def score_symmetry(scores: Float[Tensor, "*n i i"]) -> Float[Tensor, "*n"]:
    """Return (‖S_s‖² − ‖S_a‖²) / ‖S‖² of square matrices; 1 where S is all zero.

    It is 1 for symmetric and −1 for antisymmetric matrices. S_s and S_a are the symmetric and the
    antisymmetric part of S.

    Args:
        scores: Scores before mask and softmax, with the diagonal.

    Source:
        Saponati et al. 2025, arXiv 2502.10927, there for W_Q W_Kᵀ.
    """
    size = scores.square().sum((-2, -1))
    mirrored = (scores * scores.transpose(-2, -1)).sum((-2, -1))
    return (mirrored / size).masked_fill(size == 0, 1.0)


def asymmetry(symmetry: Any) -> Any:
    """Return the antisymmetric share of scores, ‖S_a‖² / ‖S‖², given their score symmetry.

    It is 0 for symmetric and 1 for antisymmetric scores. Arrays, tensors and columns are allowed.
    """
    return (1 - symmetry) / 2


def weight_symmetry(
    w_q: Float[Tensor, "*n m d"], w_k: Float[Tensor, "*n m d"]
) -> Float[Tensor, "*n"]:
    """Return the score symmetry of W_Q W_Kᵀ, −1 … 1, without forming that matrix: tr(CC) / tr(AB).

    A = W_QᵀW_Q, B = W_KᵀW_K, C = W_KᵀW_Q. It is 1 where the product is all zero.

    Source:
        Saponati et al. 2025, arXiv 2502.10927.
    """
    a = w_q.transpose(-2, -1) @ w_q
    b = w_k.transpose(-2, -1) @ w_k
    c = w_k.transpose(-2, -1) @ w_q
    mirrored = (c * c.transpose(-2, -1)).sum((-2, -1))
    size = (a * b).sum((-2, -1))
    return (mirrored / size).masked_fill(size == 0, 1.0)


def directionality(
    w_q: Float[Tensor, "*n m d"], w_k: Float[Tensor, "*n m d"]
) -> Float[Tensor, "*n"]:
    """Return (r − c) / (r + c) of M = W_Q W_Kᵀ, without forming it; 0 where nothing stands out.

    r is the sum over rows of max(0, ‖row‖ − (mean + 2·std)), with mean and population std of the
    norms of all rows; c is the same sum over columns. Rows are directions of the query's token,
    columns of the key's token. Above 0, a few directions of the query's token stand out. The
    transpose changes its sign.

    Source:
        Saponati et al. 2025, arXiv 2502.10927, where code and table differ in sign.
    """
    sums = []
    for left, right in ((w_q, w_k), (w_k, w_q)):
        squares = (left @ (right.transpose(-2, -1) @ right) * left).sum(-1)
        norms = squares.clamp_min(0).sqrt()
        limit = (norms.mean(-1) + 2 * norms.std(-1, correction=0)).unsqueeze(-1)
        excess = norms - limit
        sums.append(excess.masked_fill(excess <= _ROUNDING * limit, 0.0).sum(-1))
    rows, columns = sums
    total = rows + columns
    return ((rows - columns) / total).masked_fill(total == 0, 0.0)


_ROUNDING = 1e-5
"""Relative difference below which two norms count as equal."""


def symmetry_error(scores: Float[Tensor, "r ... i i"]) -> Float[Tensor, " r"]:
    """Return max|S − Sᵀ| / max|S| of each run, 0 … 2; rounding error where queries equal keys."""
    import torch

    gap = (scores - scores.transpose(-2, -1)).abs_().flatten(1).amax(1)
    return gap / scores.abs().flatten(1).amax(1).clamp_min(torch.finfo(scores.dtype).tiny)


def mass_at(
    pattern: Float[Tensor, "r b h i j"], position: Int64[Tensor, "r b a"]
) -> Float[Tensor, " r"]:
    """Return the mean attention weight from answering positions to one key position each.

    Args:
        pattern: Attention after softmax. The last `a` of the `i` query positions are answers.
        position: Key position for every answer; `NOTHING` is left out.

    Returns:
        The mean over examples, answers and heads, 0 … 1, or below 0 where a pattern is subtracted;
        NaN if no answer has a key position.
    """
    answering = pattern[..., -position.shape[-1] :, :]
    index = position[:, :, None, :, None].expand(*answering.shape[:-1], 1)
    present = index != NOTHING
    mass = answering.gather(-1, index.clamp_min(0)).double() * present
    return mass.sum((1, 2, 3, 4)) / present.sum((1, 2, 3, 4))


def _largest(by_layer: Float[Tensor, "r l"]) -> Float[Tensor, " r"]:
    """Return the largest value of every run, leaving out NaN; NaN if there is nothing else."""
    return by_layer.nan_to_num(0.0).amax(1).masked_fill(by_layer.isnan().all(1), math.nan)


METRICS: dict[str, MeasuredMetric] = {
    "accuracy": MeasuredMetric(
        mark("accuracy on held-out examples"),
        (0.0, 1.0),
        lambda run: accuracy(run.logits, run.labels),
    ),
    "training_accuracy": MeasuredMetric(
        mark("accuracy on training examples"), (0.0, 1.0), lambda run: run.accuracy_on("training")
    ),
    "longer_accuracy": MeasuredMetric(
        mark("accuracy on longer examples"), (0.0, 1.0), lambda run: run.accuracy_on("longer")
    ),
    "loss": MeasuredMetric(
        mark("loss on held-out examples"), (0.0, math.inf), lambda run: loss(run.logits, run.labels)
    ),
    "score_symmetry": AttentionMetric(
        mark("symmetry of the scores"),
        (-1.0, 1.0),
        lambda run: run.head_symmetry.nanmean((1, 2)),
        in_summary=False,
    ),
    "symmetry_error": AttentionMetric(
        mark("largest difference between the scores of a pair"),
        (0.0, 2.0),
        lambda run: _largest(run.of_square_layers(symmetry_error)),
        in_summary=False,
    ),
    "weight_symmetry": AttentionMetric(
        mark("symmetry of W_Q W_Kᵀ"),
        (-1.0, 1.0),
        lambda run: run.weight_symmetry(),
        in_summary=False,
    ),
    "mass_on_target": AttentionMetric(
        mark("attention on the right token"),
        (0.0, 1.0),
        lambda run: run.mass_on(run.held_out.target),
    ),
    "mass_on_reverse": AttentionMetric(
        mark("attention on the mirrored entry"),
        (0.0, 1.0),
        lambda run: run.mass_on(run.held_out.reverse),
    ),
}
"""Metrics of a history by name, in the order of the tables."""

ASYMMETRY = "asymmetry"
"""Name of the metric that `asymmetry` derives from the score symmetry."""

SHOWN: dict[str, Metric] = {
    **METRICS,
    ASYMMETRY: Metric(mark("asymmetry of the scores"), (0.0, 1.0)),
}
"""Metrics that pages and claims can show, by name."""
