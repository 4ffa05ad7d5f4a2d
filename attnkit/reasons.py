"""Why a variant fails, in one sentence with the run's own numbers.

Every kind of failure is recognised by conditions on what was measured in this run. Where none of
them holds, there is no sentence. The sentences say what happened, not what can never happen: that
is for the claims, which train longer and with more seeds.

No torch and no Streamlit here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Float32

from attnkit.results import THRESHOLD, Snapshot
from attnkit.summary import percent
from attnkit.tasks import NOTHING
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

SYMMETRIC = 1e-3
"""Largest symmetry error of scores that count as symmetric: far above rounding, also on a GPU,
and far below the 0.1 and more of scores that are free to differ."""

EVEN = 0.12
"""Relative difference below which two shares of attention count as equal. With symmetric scores
they differed by up to a tenth, because only some hundred examples are measured."""

LEAST_REVERSED = 1.3
"""The reversed entry counts as looked at if it has so many times the attention of equal shares:
with less, a run has hardly begun to tell entries apart."""

NEAR_GUESSING = (-0.15, 0.05)
"""How far the accuracy may lie below and above that of picking one of the two entries. A run well
above it has found a way to tell them apart, for example with several heads."""

LEAST_SELF = 0.4
"""Share of attention on itself from which a token is said to find itself. Runs that solve their
task had at most 0.25 in the last layer, on tokens that are asked."""

NARROW = 8
"""Widest head that is called narrow. At 16 and wider, tying the values cost no accuracy on the
tasks on which it was tried."""

GAP = 0.1
"""Least difference of accuracy that is explained: ten times that of repeated evaluations."""

RISING, RISING_SHARE = 0.03, 0.75
"""A run is still learning if its accuracy has risen by so much since that share of its steps:
three times the scatter between evaluations."""

FALLING = 0.01
"""Least fall of the loss, in nats, since then, that counts as learning."""

GUESSED_LOSS = 0.02
"""Relative distance within which a loss counts as that of equal guesses."""

KNOWN, UNKNOWN = 0.9, 0.6
"""Accuracies at which one group of questions is answered and another is not."""

NEARLY = 0.95
"""Accuracy from which nothing is left to explain."""


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


def marked_pair(snapshot: Snapshot, seed: int) -> tuple[int, int] | None:
    """Return the pair of entries of the example that shows best whether direction is told.

    It is the pair on which the symmetric runs of this seed put most attention in both directions;
    without such runs it is the first pair.

    Returns:
        The position of a query and of the entry that it should look at. The other way round is
        wrong. None if the task has no such pairs.
    """
    probe, first = snapshot.probe, snapshot.experiment.task.answers_from
    reverse = {first + a: int(at) for a, at in enumerate(probe.reverse)}
    pairs = [
        (first + a, int(at))
        for a, at in enumerate(probe.target)
        if at != NOTHING and probe.labels[a] != NOTHING and reverse.get(int(at)) == first + a
    ]
    runs = [_Run(snapshot, variant, seed) for variant in snapshot.experiment.sharing]
    patterns = [run.pattern for run in runs if run.symmetric and run.pattern is not None]
    if not pairs:
        return None
    return max(pairs, key=lambda pair: sum(min(p[pair], p[pair[::-1]]) for p in patterns))


def reason(snapshot: Snapshot, variant: Variant, seed: int) -> Reason | None:
    """Return why a variant fails with this seed, as far as its numbers show it.

    Returns:
        None if it solves the task, or if nothing that is known explains the failure.
    """
    run = _Run(snapshot, variant, seed)
    return next((found for explain in _KINDS if (found := explain(run)) is not None), None)


def headline(snapshot: Snapshot, seed: int) -> Reason | None:
    """Return the reason to tell first: that of the variant that fails most clearly.

    Returns:
        None if nothing is known.
    """
    runs = [_Run(snapshot, variant, seed) for variant in snapshot.experiment.sharing]
    for explain in _KINDS:
        found = [(run, own) for run in runs if (own := explain(run)) is not None]
        if found:
            lowest = min(float(np.nan_to_num(run.accuracy)) for run, _ in found)
            return next(own for run, own in found if not run.accuracy > lowest + GAP)
    return None


@dataclass(frozen=True, eq=False)
class _Run:
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
    def symmetric(self) -> bool:
        """Whether the measured scores are symmetric."""
        return self.last("symmetry_error") <= SYMMETRIC and self.last("score_symmetry") > 0

    @property
    def counts(self) -> bool:
        """Whether the last evaluation is of the final variant on the final task."""
        return bool(self.snapshot.counted()[-1, self.index])

    @property
    def evaluations(self) -> Float32[np.ndarray, " e"]:
        """The accuracy at every evaluation."""
        return self.snapshot.history["accuracy"][:, self.index]

    @cached_property
    def earlier(self) -> int | None:
        """The last evaluation in the first `RISING_SHARE` of the steps; None: none counts."""
        steps = self.snapshot.eval_steps
        counted = self.snapshot.counted()[:, self.index]
        start = steps[counted][0] if counted.any() else steps[-1]
        before = counted & (steps <= start + RISING_SHARE * (steps[-1] - start))
        places = np.flatnonzero(before & (steps < steps[-1]))
        return int(places[-1]) if len(places) else None

    @property
    def rising(self) -> bool:
        """Whether the accuracy is still rising."""
        earlier = self.earlier
        return earlier is not None and self.accuracy - self.evaluations[earlier] >= RISING

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
        return float(self.snapshot.history[name][-1, self.index])

    def reached(self) -> bool:
        """Return whether the run has solved the task and still does."""
        steps = self.snapshot.steps_to_threshold()[self.index]
        return not math.isnan(steps) and self.accuracy >= THRESHOLD

    def others(self) -> list[_Run]:
        """Return the runs of the same variant with other seeds."""
        seeds = self.snapshot.experiment.seeds
        return [_Run(self.snapshot, self.variant, seed) for seed in seeds if seed != self.seed]

    def says(self, kind: str, sentence: str, page: str = "attention") -> Reason:
        """Return a reason about this run."""
        return Reason(self.variant, kind, sentence, page)

    def _of_last_layer(self, values: np.ndarray) -> Float[np.ndarray, "i j"] | None:
        if not values.size:
            return None
        n_heads = self.snapshot.experiment.wiring(self.variant).sizes.n_heads
        mean: np.ndarray = values[self.index, -1, :n_heads].astype(np.float64).mean(0)
        return mean


def _diverged(run: _Run) -> Reason | None:
    """The loss is not a finite number any more."""
    step = int(run.snapshot.diverged_at[run.index])
    if step < 0:
        return None
    own = run.variant.given.get("learning_rate")
    rate = run.snapshot.experiment.training.learning_rate if own is None else own.value
    sentence = f"{run.title} diverged by step {step}: its loss is not a finite number any more."
    sentence += f" Try a learning rate below {rate:g}."
    return run.says("diverged", sentence)


def _not_trained(run: _Run) -> Reason | None:
    """No step has been taken."""
    if run.snapshot.step > 0:
        return None
    return run.says("early", f"{run.title} is not trained yet: {percent(run.accuracy)} right.")


def _mirrored(run: _Run) -> Reason | None:
    """Scores are symmetric, so the reversed entry gets as much attention as the right one."""
    task = run.snapshot.experiment.task
    right, wrong = run.last("mass_on_target"), run.last("mass_on_reverse")
    level = 0.5 if task.plateau is None else task.plateau
    low, high = (level + distance for distance in NEAR_GUESSING)
    n_others = task.n_ctx - task.answers_from - 1
    looked_at = min(right, wrong) * n_others >= LEAST_REVERSED
    even = abs(right - wrong) <= EVEN * max(right, wrong)
    if not (run.symmetric and looked_at and even and low <= run.accuracy <= high):
        return None
    pair = marked_pair(run.snapshot, run.seed)
    end = f"so it guesses which of the two is meant: {percent(run.accuracy)} right."
    if pair is None or run.scores is None:
        sentence = (
            f"{run.title} puts {percent(right)} of its attention on the right entry and "
            f"{percent(wrong)} on the reversed one, {end}"
        )
        return run.says("mirrored", sentence, "asymmetry")
    names = [label.short for label in task.label(run.snapshot.probe.tokens)]
    one, other = (names[position] for position in pair)
    score, mirror = run.scores[pair], run.scores[pair[::-1]]
    sentence = (
        f"{run.title}: {one}→{other} scores {score:.2f} and {other}→{one} {mirror:.2f}, {end}"
    )
    return run.says("mirrored", sentence, "asymmetry")


_KINDS: tuple[Callable[[_Run], Reason | None], ...] = (_diverged, _not_trained, _mirrored)
"""The kinds of failure, the clearest first."""
