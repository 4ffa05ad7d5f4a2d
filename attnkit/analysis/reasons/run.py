"""One run of a snapshot with the metrics for its reasons; the pair of entries to mark in maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from attnkit.analysis.responses import Example
from attnkit.experiment import Experiment
from attnkit.experiment.experiment import default_settings
from attnkit.foundation.language import tr
from attnkit.tasks import NOTHING, Task
from attnkit.training.failure import has_learnt, is_plain, rate_of
from attnkit.training.snapshot import THRESHOLD, Snapshot
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.sharing import Sharing

SYMMETRIC = 0.1
"""Largest symmetry error of scores that count as symmetric. After training, scores of separate
matrices have 0.3 or more, those of Q=K with relative positions about 0.03."""

RISING_SHARE = 0.75
"""Share of a run's steps; the newest evaluation is compared with the last one within this share."""


@dataclass(frozen=True)
class Reason:
    """Reason why a variant fails in one run, or that no variant does.

    Attributes:
        variant: The variant that the sentence is about.
        kind: Kind of failure, for example "mirrored"; "solved" if there is none.
        sentence: One plain sentence with numbers of this run.
        page: Page that shows more about it: "attention", "asymmetry" or "questions"; may be empty.
        advice: What is not known about it, or which setting to change; may be empty.
    """

    variant: Variant
    kind: str
    sentence: str
    page: str
    advice: str = ""

    def in_words(self, experiment: Experiment, seed: int) -> str:
        """Return sentence and advice, with the seed if the sentence is about one of several."""
        of_one = experiment.n_seeds > 1 and self.kind not in ("solved", "other seeds", "failed")
        sentence = self.sentence
        if of_one:
            plain = sentence.removesuffix(".")
            # Translators: puts the seed after a whole sentence, before its full stop.
            sentence = tr("{sentence} (seed {seed}).", sentence=plain, seed=seed)
        return f"{sentence} {self.advice}".rstrip()


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a snapshot and its metrics."""

    snapshot: Snapshot
    variant: Variant
    seed: int

    @cached_property
    def index(self) -> int:
        """Index of the run in the arrays of the snapshot."""
        return self.snapshot.experiment.runs.index((self.variant, self.seed))

    @property
    def title(self) -> str:
        """Title of the variant on screen."""
        return title_of(self.variant)

    @property
    def accuracy(self) -> float:
        """Accuracy at the last evaluation; NaN if the run diverged."""
        return self.last("accuracy")

    @property
    def learning_rate(self) -> float:
        """Learning rate of the variant, or else of the experiment."""
        return rate_of(self.snapshot.experiment, self.variant)

    @property
    def guessed_loss(self) -> float:
        """Loss in nats of giving every answer the same probability."""
        return math.log(self.snapshot.experiment.task.n_classes)

    @property
    def has_symmetric_scores(self) -> bool:
        """Whether the scores of a pair are about the same in both directions."""
        return self.last("symmetry_error") <= SYMMETRIC and self.last("score_symmetry") > 0

    @property
    def same_both_ways(self) -> bool:
        """Whether the scores of a pair are the same in both directions, up to rounding."""
        return bool(self.snapshot.same_both_ways[self.index])

    @property
    def solves(self) -> bool:
        """Whether the run has reached the threshold and still has that accuracy."""
        steps = self.snapshot.steps_to_threshold()[self.index]
        return not math.isnan(steps) and self.accuracy >= THRESHOLD

    @property
    def has_learnt(self) -> bool:
        """Whether the accuracy is clearly above that of a simple guess."""
        last = (np.array(self.last(name)) for name in ("accuracy", "loss"))
        return bool(has_learnt(self.snapshot.experiment, *last))

    @property
    def default_rate(self) -> float:
        """Default learning rate of the task."""
        return float(default_settings(self.snapshot.experiment.task.name)["learning_rate"])

    @property
    def counts(self) -> bool:
        """Whether the last evaluation counts: of the final variant, on the final task."""
        return bool(self.snapshot.counted()[self.evaluation, self.index])

    @cached_property
    def evaluation(self) -> int:
        """Index of the run's last evaluation among those of the snapshot."""
        return int(self.snapshot.last_evaluation[self.index])

    @property
    def step(self) -> int:
        """Step of the last evaluation."""
        return int(self.snapshot.eval_steps[self.evaluation])

    @cached_property
    def earlier_evaluation(self) -> int | None:
        """Index of the last evaluation within `RISING_SHARE` of the steps; None if none counts."""
        steps = self.snapshot.eval_steps[: self.evaluation + 1]
        counted = self.snapshot.counted()[: self.evaluation + 1, self.index]
        start = steps[counted][0] if counted.any() else steps[-1]
        before = counted & (steps <= start + RISING_SHARE * (steps[-1] - start))
        evaluations = np.flatnonzero(before & (steps < steps[-1]))
        return int(evaluations[-1]) if len(evaluations) else None

    @property
    def rise(self) -> float:
        """Rise of the accuracy since the earlier evaluation; NaN if there is none."""
        return self._change("accuracy")

    @property
    def fall(self) -> float:
        """Fall of the loss since the earlier evaluation; NaN if there is none."""
        return -self._change("loss")

    @cached_property
    def pattern(self) -> Float[np.ndarray, "i j"] | None:
        """Attention pattern of the example in the last layer, mean of heads; None if absent."""
        return self._of_last_layer(self.snapshot.probe.pattern)

    @cached_property
    def scores(self) -> Float[np.ndarray, "i j"] | None:
        """Scores of the example in the last layer; None if absent or of several heads."""
        scores, wiring = self.snapshot.probe.scores, self.snapshot.experiment.wiring(self.variant)
        single = wiring.sizes.n_heads == wiring.n_maps == 1
        return self._of_last_layer(scores) if single and scores is not None else None

    def last(self, name: str) -> float:
        """Return a metric at the last evaluation."""
        return float(self.snapshot.history[name][self.evaluation, self.index])

    def other_seeds(self) -> list[Run]:
        """Return the runs of the same variant with other seeds."""
        seeds = self.snapshot.experiment.seeds
        return [Run(self.snapshot, self.variant, seed) for seed in seeds if seed != self.seed]

    def reason(self, kind: str, sentence: str, page: str = "attention", advice: str = "") -> Reason:
        """Return a reason about this run.

        Attention leaves out what a PyTorch module computes, and Asymmetry needs its scores.
        """
        module = self.snapshot.experiment.wiring(self.variant).module
        if module is not None and page in ("attention", "asymmetry"):
            page = "asymmetry" if module.has_scores else ""
        return Reason(self.variant, kind, sentence, page, advice)

    def untied(self) -> Run | None:
        """Return the run with the same seed and options, but without sharing; None if absent."""
        text = " ".join([Sharing.QKV.value, *self.variant.value.split()[1:]])
        return self._other(lambda variant: variant.value == text)

    def reference(self) -> Run | None:
        """Return the run of plain QKV with the same seed; None if absent."""
        return self._other(lambda variant: is_plain(variant) and variant != self.variant)

    def _other(self, fits: Callable[[Variant], bool]) -> Run | None:
        """Return the run with the same seed of the first variant that fits; None if none does."""
        runs = (Run(self.snapshot, v, self.seed) for v in self.snapshot.experiment.sharing)
        return next((run for run in runs if fits(run.variant)), None)

    def _change(self, name: str) -> float:
        """Return the change of a metric since the earlier evaluation; NaN if there is none."""
        if self.earlier_evaluation is None:
            return math.nan
        values = self.snapshot.history[name][:, self.index]
        return float(values[self.evaluation] - values[self.earlier_evaluation])

    def _of_last_layer(self, values: np.ndarray) -> Float[np.ndarray, "i j"] | None:
        """Return the mean over heads of scores or patterns in the last layer; None if empty."""
        if not values.size:
            return None
        n_heads = self.snapshot.experiment.wiring(self.variant).sizes.n_heads
        mean: np.ndarray = values[self.index, -1, :n_heads].astype(np.float64).mean(0)
        return mean


def marked_pair(task: Task, example: Example) -> tuple[int, int] | None:
    """Return the pair of entries of the example that maps mark and sentences name.

    It is the first query with an answer and the entry that holds it. The pair depends on the
    example alone, so that it is the same for all variants and seeds and at every step.

    Returns:
        The position of the query, and of the entry that it should attend to. Attending in the
        opposite direction is wrong. None if the task has no such pairs.
    """
    first = task.answers_from
    reverse = {first + a: int(position) for a, position in enumerate(example.reverse)}
    for a, target in enumerate(map(int, example.target)):
        has_answer = target != NOTHING and example.labels[a] != NOTHING
        if has_answer and reverse.get(target) == first + a:
            return first + a, target
    return None


def named_query(task: Task, example: Example) -> int | None:
    """Return the position of the query that sentences about mirrored scores speak of.

    It is the second entry of the marked pair: a variant that scores both directions alike mixes up
    its right entry with the first entry of the pair. None if there is no pair, or no answer to it.
    """
    pair = marked_pair(task, example)
    if pair is None or example.labels[pair[1] - task.answers_from] == NOTHING:
        return None
    return pair[1]
