"""The data of an experiment: one stream per seed, shared by all sharings of that seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.model.initial import generator_for
from attnkit.tasks import NOTHING, Examples, Task

_STEPS_PER_DRAW = 16
"""Batches are drawn so many at a time, which costs less than one by one."""


_PROBE_SEED = 0

_PROBE_DRAWS = 256
"""Examples among which the one to show is looked for if the first will not do."""


class TrainingData:
    """The endless training batches of some seeds; a seed's do not depend on the others.

    Args:
        experiment: decides batches, and whether there is a stock of examples that is gone through
            again and again; then the last batch of each round is what is left.
        task: what is trained on; None: the experiment's.
    """

    def __init__(
        self,
        experiment: Experiment,
        seeds: Sequence[int],
        device: torch.device,
        task: Task | None = None,
    ) -> None:
        self._task = task or experiment.task
        self._n_batch, self._n_train = experiment.training.batch_size, experiment.training.n_train
        self._device = device
        purpose = _training_purpose(experiment, self._task)
        self._generators = [generator_for(seed, purpose) for seed in seeds]
        self._stock = self._draw(self._n_train) if self._n_train else None
        self._batches = self._fresh() if self._stock is None else self._rounds(self._stock)
        self._seeds = list(seeds)
        self._n_shown = min(experiment.training.n_eval, MEASURED_TOGETHER)

    def next(self) -> tuple[Int64[Tensor, "s b i fields"], Int64[Tensor, "s b a"]]:
        """Tokens and labels of the next step."""
        return next(self._batches)

    def shown(self) -> Examples | None:
        """Some examples that are trained on; None if all are new."""
        if self._stock is not None:
            n_shown = min(self._n_shown, self._n_train)
            return Examples(
                self._stock.tokens[:, :n_shown],
                self._stock.labels[:, :n_shown],
                self._stock.target[:, :n_shown],
            )
        if not self._task.corpus:
            return None
        generators = [generator_for(seed, "evaluation of training") for seed in self._seeds]
        drawn = [self._task.draw(self._n_shown, g, held_out=False) for g in generators]
        return stack(drawn, self._device)

    def _draw(self, n_examples: int) -> Examples:
        drawn = [self._task.draw(n_examples, g, held_out=False) for g in self._generators]
        return stack(drawn, self._device)

    def _fresh(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            drawn = self._draw(self._n_batch * _STEPS_PER_DRAW)
            yield from self._cut(drawn.tokens, drawn.labels)

    def _rounds(self, stock: Examples) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            orders = [torch.randperm(self._n_train, generator=g) for g in self._generators]
            rows = torch.stack(orders).to(self._device)
            seeds = torch.arange(len(rows), device=self._device)[:, None]
            yield from self._cut(stock.tokens[seeds, rows], stock.labels[seeds, rows])

    def _cut(self, tokens: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        batches = zip(tokens.split(self._n_batch, 1), labels.split(self._n_batch, 1), strict=True)
        for some, their_labels in batches:
            yield some.contiguous(), their_labels


def held_out_examples(
    experiment: Experiment, seeds: Sequence[int], device: torch.device, task: Task | None = None
) -> Examples:
    """The evaluation batch of every seed, (s, b, …)."""
    n_eval, asked = experiment.training.n_eval, task or experiment.task
    return stack(
        [asked.draw(n_eval, generator_for(seed, "evaluation"), held_out=True) for seed in seeds],
        device,
    )


def draw_probe(task: Task) -> Examples:
    """Return the held-out example that attention maps and previews show.

    It is the first one in which all entries that hold an answer hold different ones, so that a
    wrong answer tells which entry was taken for the right one. If there is none among the first
    few hundred, it is the first one of all.
    """
    generator = generator_for(_PROBE_SEED, "probe")
    first = task.draw(1, generator, held_out=True)
    n_entries = len(_answers_by_entry(first)[0])
    if n_entries > task.n_classes or _tells_entries_apart(first):
        return first
    more = task.draw(_PROBE_DRAWS, generator, held_out=True)
    candidates = (more.take(torch.tensor([place])) for place in range(_PROBE_DRAWS))
    return next(filter(_tells_entries_apart, candidates), first)


def _tells_entries_apart(example: Examples) -> bool:
    """Return whether the entries of one example that hold an answer hold different ones."""
    entries, answers = _answers_by_entry(example)
    return len(entries) == len(answers)


def _answers_by_entry(example: Examples) -> tuple[set[int], set[int]]:
    """Return the positions of the entries that hold an answer, and the answers that they hold."""
    held = example.target[0] != NOTHING
    return set(example.target[0, held].tolist()), set(example.labels[0, held].tolist())


def _training_purpose(experiment: Experiment, task: Task) -> str:
    """What the generators of training examples are for."""
    return "training data" if task == experiment.task else "earlier training data"


def stack(per_seed: Sequence[Examples], device: torch.device) -> Examples:
    """One batch per seed as one, (s, b, …), on the device."""
    reverses = [examples.reverse for examples in per_seed if examples.reverse is not None]
    return Examples(
        torch.stack([examples.tokens for examples in per_seed]).to(device),
        torch.stack([examples.labels for examples in per_seed]).to(device),
        torch.stack([examples.target for examples in per_seed]).to(device),
        torch.stack(reverses).to(device) if reverses else None,
    )


def unstack(examples: Examples) -> list[Examples]:
    """Return the batch of every seed."""
    return [
        Examples(
            examples.tokens[seed],
            examples.labels[seed],
            examples.target[seed],
            None if examples.reverse is None else examples.reverse[seed],
        )
        for seed in range(len(examples.tokens))
    ]
