"""Training and evaluation examples: one stream per seed, shared by all variants of the seed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.foundation.slices import pause
from attnkit.model.initial import generator_for
from attnkit.tasks import NOTHING, Examples, Task
from attnkit.training.plans import STEPS_PER_DRAW

_PROBE_SEED = 0

_PROBE_DRAWS = 256
"""Number of examples to choose the probe from, if the first example is not suitable."""


class TrainingData:
    """Endless training batches of some seeds; the batches of a seed do not depend on the others.

    With `n_train`, a fixed set of examples is repeated in new orders, in batches of equal size.
    Without it, all examples are new.

    Args:
        experiment: The experiment, which decides the sizes of batches and of the training set.
        seeds: The seeds to draw examples for.
        device: The device of the batches.
        task: The task to draw from. None: the experiment's.
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
        purpose = "training data" if self._task == experiment.task else "earlier training data"
        self._generators = [generator_for(seed, purpose) for seed in seeds]
        self._drawn: dict[str, Tensor] = {}  # training sets, of the first seeds so far
        self._n_drawn = 0
        self._batches: deque[tuple[Tensor, Tensor]] = deque()  # drawn already
        self._orders: deque[Tensor] = deque()  # rows of the training set, one batch each
        self._seeds = list(seeds)
        self._n_eval = min(experiment.training.n_eval, MEASURED_TOGETHER)

    def draw_next(self) -> bool:
        """Draw the training set of the next seed, and return whether there are more to draw.

        Nobody has to call it: the first use draws all sets. But large ones take seconds, and
        between two calls other work can be done.
        """
        n_seeds = len(self._generators) if self._n_train else 0
        if self._n_drawn < n_seeds:
            self._draw(self._n_train, self._n_drawn, self._drawn)
            self._n_drawn += 1
        return self._n_drawn < n_seeds

    def next(self) -> tuple[Int64[Tensor, "s b i fields"], Int64[Tensor, "s b a"]]:
        """Return the tokens and the labels of the next step."""
        if self._n_train:
            tokens, labels = self._next_repeated()
        else:
            if not self._batches:
                self._draw_batches()
            tokens, labels = self._batches.popleft()
        return tokens.long(), labels.long()

    def _next_repeated(self) -> tuple[Tensor, Tensor]:
        """Return the next batch of the training set, which has a new order in every epoch."""
        examples = self._training_set()
        if not self._orders:
            orders = [torch.randperm(self._n_train, generator=g) for g in self._generators]
            self._orders.extend(torch.stack(orders).to(self._device).split(self._n_batch, 1))
        rows = self._orders.popleft()
        seeds = torch.arange(len(rows), device=self._device)[:, None]
        return examples["tokens"][seeds, rows], examples["labels"][seeds, rows]

    def _draw_batches(self) -> None:
        """Draw the batches of the next steps."""
        drawn: dict[str, Tensor] = {}
        for seed in range(len(self._generators)):
            self._draw(self._n_batch * STEPS_PER_DRAW, seed, drawn)
        parts = (drawn[name].split(self._n_batch, 1) for name in ("tokens", "labels"))
        self._batches.extend(zip(*parts, strict=True))

    def evaluation_examples(self) -> Examples | None:
        """Return training examples to measure training accuracy on; None if all are new."""
        if self._n_train:
            fields = self._training_set().items()
            return Examples(**{name: values[:, : self._n_eval].long() for name, values in fields})
        if not self._task.corpus:
            return None
        generators = [generator_for(seed, "evaluation of training") for seed in self._seeds]
        drawn = (self._task.draw(self._n_eval, g, held_out=False) for g in generators)
        return stack(drawn, len(generators), self._device)

    def _training_set(self) -> dict[str, Tensor]:
        """Return the examples that are repeated, (s, b, …), with the first targets only."""
        while self.draw_next():
            pause()
        return self._drawn

    def _draw(self, n_examples: int, seed: int, stacked: dict[str, Tensor]) -> None:
        """Draw examples of a seed into their place among those of all seeds, as short integers."""
        drawn = self._task.draw(n_examples, self._generators[seed], held_out=False)
        fields = {"tokens": drawn.tokens, "labels": drawn.labels}
        fields["target"] = drawn.target[: self._n_eval]
        _place(fields, stacked, seed, len(self._generators), self._device, torch.int32)


def held_out_examples(
    experiment: Experiment, seeds: Sequence[int], device: torch.device, task: Task | None = None
) -> Examples:
    """Return the held-out examples of every seed, (s, b, …).

    Raises:
        ValueError: If the task gives a token or an answer that is none of its own.
    """
    n_eval, task = experiment.training.n_eval, task or experiment.task
    generators = [generator_for(seed, "evaluation") for seed in seeds]
    drawn = (task.draw(n_eval, g, held_out=True) for g in generators)
    examples = stack(drawn, len(generators), device)
    low, high = (int(end) for end in examples.tokens.aminmax())
    if low < 0 or high >= task.d_vocab:
        wrong = low if low < 0 else high
        raise ValueError(f"{task.name}: got token {wrong}, but d_vocab is {task.d_vocab}")
    largest = int(examples.labels.max())
    if largest >= task.n_classes:
        raise ValueError(f"{task.name}: got label {largest}, but n_classes is {task.n_classes}")
    return examples


def draw_probe(task: Task) -> Examples:
    """Return the held-out example that attention maps and previews show.

    It is the first one in which all entries have different answers, so that a wrong answer shows
    which entry the model looked up. If the first few hundred examples have none, it is the first
    example.
    """
    generator = generator_for(_PROBE_SEED, "probe")
    first = task.draw(1, generator, held_out=True)
    n_entries = len(_entries_and_answers(first)[0])
    if n_entries > task.n_classes or _has_distinct_answers(first):
        return first
    drawn = task.draw(_PROBE_DRAWS, generator, held_out=True)
    candidates = (drawn.take(torch.tensor([index])) for index in range(_PROBE_DRAWS))
    return next(filter(_has_distinct_answers, candidates), first)


def _has_distinct_answers(example: Examples) -> bool:
    """Return whether all entries of one example that have an answer have different answers."""
    entries, answers = _entries_and_answers(example)
    return len(entries) == len(answers)


def _entries_and_answers(example: Examples) -> tuple[set[int], set[int]]:
    """Return the positions of the entries that have an answer, and the set of their answers."""
    has_entry = example.target[0] != NOTHING
    return set(example.target[0, has_entry].tolist()), set(example.labels[0, has_entry].tolist())


def stack(per_seed: Iterable[Examples], n_seeds: int, device: torch.device) -> Examples:
    """Return one batch per seed as one batch, (s, b, …), on a device.

    Batches that are drawn while they are stacked are in memory one at a time.
    """
    stacked: dict[str, Tensor] = {}
    seeds = iter(range(n_seeds))  # `enumerate` would keep a batch while the next one is drawn
    for examples in per_seed:
        _place(vars(examples), stacked, next(seeds), n_seeds, device)
        del examples
    return Examples(**stacked)


def _place(
    fields: Mapping[str, Tensor | None],
    stacked: dict[str, Tensor],
    seed: int,
    n_seeds: int,
    device: torch.device,
    dtype: torch.dtype = torch.int64,
) -> None:
    """Copy the fields of one seed's batch into their place among all, which the first one makes."""
    for name, values in fields.items():
        if values is not None:
            if name not in stacked:
                shape = (n_seeds, *values.shape)
                stacked[name] = torch.empty(shape, dtype=dtype, device=device)
            stacked[name][seed] = values


def of_seeds(examples: Examples, seeds: slice) -> Examples:
    """Return the batches of some seeds, which share memory with the given ones."""
    reverse = examples.reverse
    return Examples(
        examples.tokens[seeds],
        examples.labels[seeds],
        examples.target[seeds],
        None if reverse is None else reverse[seeds],
    )


def unstack(examples: Examples) -> list[Examples]:
    """Return the batch of every seed; the inverse of `stack`."""
    return [
        Examples(
            examples.tokens[seed],
            examples.labels[seed],
            examples.target[seed],
            None if examples.reverse is None else examples.reverse[seed],
        )
        for seed in range(len(examples.tokens))
    ]
