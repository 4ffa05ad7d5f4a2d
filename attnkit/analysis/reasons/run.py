"""One run of a snapshot with what reasons are made of; the pair of entries that is marked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from attnkit.tasks import NOTHING
from attnkit.training.snapshot import THRESHOLD, Snapshot
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.sharing import Sharing

SYMMETRIC = 0.1
"""Largest symmetry error of scores that count as alike in both directions. Scores that are free to
differ have 0.3 and more after training, those of Q=K with relative positions about 0.03."""

RISING_SHARE = 0.75
"""Share of a run's steps with whose last evaluation the newest is compared."""


@dataclass(frozen=True)
class Reason:
    """Why a variant fails in one run, or why no variant does.

    Attributes:
        variant: the variant that the sentence is about.
        kind: the kind of failure, for example "mirrored"; "solved" where there is none.
        sentence: one plain sentence with numbers of this run.
        page: the page that shows it: "attention", "asymmetry" or "questions".
    """

    variant: Variant
    kind: str
    sentence: str
    page: str

    @property
    def is_of_one_seed(self) -> bool:
        """Whether the numbers are those of one seed; other sentences name the seeds themselves."""
        return self.kind not in ("solved", "other seeds")


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a snapshot, and what was measured of it."""

    snapshot: Snapshot
    variant: Variant
    seed: int

    @cached_property
    def index(self) -> int:
        """The place of the run in the arrays of the snapshot."""
        return self.snapshot.experiment.runs.index((self.variant, self.seed))

    @property
    def title(self) -> str:
        """The variant as it is shown."""
        return title_of(self.variant)

    @property
    def accuracy(self) -> float:
        """The accuracy at the last evaluation; NaN after the run diverged."""
        return self.last("accuracy")

    @property
    def learning_rate(self) -> float:
        """The learning rate of the variant."""
        own = self.variant.given.get("learning_rate")
        training = self.snapshot.experiment.training
        return training.learning_rate if own is None else float(own.value)

    @property
    def guessed_loss(self) -> float:
        """The loss of giving every answer the same probability."""
        return math.log(self.snapshot.experiment.task.n_classes)

    @property
    def sharing(self) -> Sharing:
        """The sharing of the variant."""
        return self.variant.sharing

    @property
    def alike(self) -> bool:
        """Whether the measured scores are alike in both directions."""
        return self.last("symmetry_error") <= SYMMETRIC and self.last("score_symmetry") > 0

    @property
    def solves(self) -> bool:
        """Whether the run has reached the threshold and is still there."""
        steps = self.snapshot.steps_to_threshold()[self.index]
        return not math.isnan(steps) and self.accuracy >= THRESHOLD

    @property
    def counts(self) -> bool:
        """Whether the last evaluation is of the final variant on the final task."""
        return bool(self.snapshot.counted()[self.place, self.index])

    @cached_property
    def place(self) -> int:
        """The place of the last evaluation among those of the snapshot."""
        return int(self.snapshot.last_evaluation[self.index])

    @property
    def step(self) -> int:
        """The step of the last evaluation."""
        return int(self.snapshot.eval_steps[self.place])

    @cached_property
    def earlier(self) -> int | None:
        """The last evaluation in the first `RISING_SHARE` of the steps; None: none counts."""
        steps = self.snapshot.eval_steps[: self.place + 1]
        counted = self.snapshot.counted()[: self.place + 1, self.index]
        start = steps[counted][0] if counted.any() else steps[-1]
        before = counted & (steps <= start + RISING_SHARE * (steps[-1] - start))
        places = np.flatnonzero(before & (steps < steps[-1]))
        return int(places[-1]) if len(places) else None

    @property
    def rise(self) -> float:
        """How much the accuracy has risen since `earlier`; NaN if that is not known."""
        return self._change("accuracy")

    @property
    def fall(self) -> float:
        """How much the loss has fallen since `earlier`; NaN if that is not known."""
        return -self._change("loss")

    @cached_property
    def pattern(self) -> Float[np.ndarray, "i j"] | None:
        """Attention to the example in the last layer, the mean of the heads; None: not recorded."""
        return self._of_last_layer(self.snapshot.probe.pattern)

    @cached_property
    def scores(self) -> Float[np.ndarray, "i j"] | None:
        """Scores of the example in the last layer; None unless they are of a single head."""
        scores, wiring = self.snapshot.probe.scores, self.snapshot.experiment.wiring(self.variant)
        one_map = wiring.sizes.n_heads == wiring.n_maps == 1
        return self._of_last_layer(scores) if one_map and scores is not None else None

    def last(self, name: str) -> float:
        """Return a metric at the last evaluation."""
        return float(self.snapshot.history[name][self.place, self.index])

    def others(self) -> list[Run]:
        """Return the runs of the same variant with other seeds."""
        seeds = self.snapshot.experiment.seeds
        return [Run(self.snapshot, self.variant, seed) for seed in seeds if seed != self.seed]

    def says(self, kind: str, sentence: str, page: str = "attention") -> Reason:
        """Return a reason about this run."""
        return Reason(self.variant, kind, sentence, page)

    def untied(self) -> Run | None:
        """Return the run of this seed that differs only in being QKV; None: there is none."""
        twin = " ".join([Sharing.QKV.value, *self.variant.value.split()[1:]])
        variants = [each for each in self.snapshot.experiment.sharing if each.value == twin]
        return Run(self.snapshot, variants[0], self.seed) if variants else None

    def _change(self, name: str) -> float:
        """Return how much a metric has grown since `earlier`."""
        values = self.snapshot.history[name][:, self.index]
        return (
            math.nan if self.earlier is None else float(values[self.place] - values[self.earlier])
        )

    def _of_last_layer(self, values: np.ndarray) -> Float[np.ndarray, "i j"] | None:
        if not values.size:
            return None
        n_heads = self.snapshot.experiment.wiring(self.variant).sizes.n_heads
        mean: np.ndarray = values[self.index, -1, :n_heads].astype(np.float64).mean(0)
        return mean


def marked_pair(snapshot: Snapshot) -> tuple[int, int] | None:
    """Return the pair of entries of the example that is marked in maps and named in sentences.

    It is the first entry that is asked and the one that it should look at. The pair depends on the
    example alone, so that it is the same for all variants and seeds and at every step.

    Returns:
        The position of a query and of the entry that it should look at. The other way round is
        wrong. None if the task has no such pairs.
    """
    probe, first = snapshot.probe, snapshot.experiment.task.answers_from
    reverse = {first + a: int(at) for a, at in enumerate(probe.reverse)}
    pairs = (
        (first + a, int(at))
        for a, at in enumerate(probe.target)
        if at != NOTHING and probe.labels[a] != NOTHING and reverse.get(int(at)) == first + a
    )
    return next(pairs, None)
