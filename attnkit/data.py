"""The data of an experiment: one stream per seed, shared by all sharings of that seed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.model import generator_for
from attnkit.tasks import Examples

_STEPS_PER_DRAW = 16
"""Batches are drawn so many at a time, which costs less than one by one."""


class TrainingData:
    """The endless training batches of some seeds; a seed's do not depend on the others."""

    def __init__(self, experiment: Experiment, seeds: Sequence[int], device: torch.device) -> None:
        self._task = experiment.task
        self._n_batch = experiment.training.batch_size
        self._device = device
        self._generators = [generator_for(seed, "training data") for seed in seeds]
        self._drawn: list[tuple[Tensor, Tensor]] = []

    def next(self) -> tuple[Int64[Tensor, "s b i fields"], Int64[Tensor, "s b a"]]:
        """Tokens and labels of the next step."""
        if not self._drawn:
            n_examples = self._n_batch * _STEPS_PER_DRAW
            drawn = stack(
                [self._task.draw(n_examples, g, held_out=False) for g in self._generators],
                self._device,
            )
            batches = zip(
                drawn.tokens.split(self._n_batch, 1),
                drawn.labels.split(self._n_batch, 1),
                strict=True,
            )
            self._drawn = [(tokens.contiguous(), labels) for tokens, labels in batches][::-1]
        return self._drawn.pop()


def held_out_examples(
    experiment: Experiment, seeds: Sequence[int], device: torch.device
) -> Examples:
    """The evaluation batch of every seed, (s, b, …)."""
    n_eval, task = experiment.training.n_eval, experiment.task
    return stack(
        [task.draw(n_eval, generator_for(seed, "evaluation"), held_out=True) for seed in seeds],
        device,
    )


def stack(per_seed: Sequence[Examples], device: torch.device) -> Examples:
    """One batch per seed as one, (s, b, …), on the device."""
    reverses = [examples.reverse for examples in per_seed if examples.reverse is not None]
    return Examples(
        torch.stack([examples.tokens for examples in per_seed]).to(device),
        torch.stack([examples.labels for examples in per_seed]).to(device),
        torch.stack([examples.target for examples in per_seed]).to(device),
        torch.stack(reverses).to(device) if reverses else None,
    )
