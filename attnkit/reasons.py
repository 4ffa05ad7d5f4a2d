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
from jaxtyping import Float

from attnkit.results import THRESHOLD, Snapshot
from attnkit.sharing import Sharing
from attnkit.summary import percent
from attnkit.tasks import NOTHING
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

SYMMETRIC = 0.1
"""Largest symmetry error of scores that count as alike in both directions. Scores that are free to
differ have 0.3 and more after training, those of Q=K with relative positions about 0.03."""

EVEN = 0.12
"""Relative difference below which two shares of attention count as equal. With symmetric scores
they differed by up to a tenth, because only some hundred examples are measured."""

LEAST_REVERSED = 1.3
"""The reversed entry counts as looked at if it has so many times the attention of equal shares:
with less, a run has hardly begun to tell entries apart."""

NEAR_GUESSING = (-0.15, 0.05)
"""How far the accuracy may lie below and above that of picking one of the two entries. A run well
above it has found a way to tell them apart, for example with several heads."""

LEAST_SELF, MOST_ROWS = 0.3, 0.5
"""Share of attention on itself, and share of tokens that look at themselves most, from which a
variant is said to find itself. It must also be twice the share of the right token: there are runs
that solve a task with half of their attention on themselves."""

NARROW = 8
"""Widest head that is called narrow. On the six tasks on which both were tried, tied values cost
accuracy at a width of 4 and none at the tasks' own widths of 16 and 32."""

GAP = 0.1
"""Least difference of accuracy that is explained: about ten times the scatter of evaluations."""

RISING, RISING_SHARE = 0.03, 0.75
"""A run is still learning if its accuracy has risen by so much since that share of its steps:
about three times the scatter of evaluations."""

FALLING = 0.02
"""Least fall of the loss since then, in nats, that counts as learning."""

GUESSED_LOSS = 0.02
"""Relative distance within which a loss counts as that of equal guesses."""

KNOWN, UNKNOWN = 0.9, 0.6
"""Accuracies from which questions count as answered, and up to which as not."""

NEARLY = 0.95
"""Accuracy from which there is little left to explain."""


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
    patterns = [run.pattern for run in runs if run.alike and run.pattern is not None]
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

    If no variant fails, it tells with how few matrices the task was solved.

    Returns:
        None if nothing is known.
    """
    runs = [_Run(snapshot, variant, seed) for variant in snapshot.experiment.sharing]
    for explain in _KINDS:
        found = [(run, own) for run in runs if (own := explain(run)) is not None]
        if found:
            lowest = min(float(np.nan_to_num(run.accuracy)) for run, _ in found)
            return next(own for run, own in found if not run.accuracy > lowest + GAP)
    return _solved(runs)


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
        return bool(self.snapshot.counted()[-1, self.index])

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
        return float(self.snapshot.history[name][-1, self.index])

    def others(self) -> list[_Run]:
        """Return the runs of the same variant with other seeds."""
        seeds = self.snapshot.experiment.seeds
        return [_Run(self.snapshot, self.variant, seed) for seed in seeds if seed != self.seed]

    def says(self, kind: str, sentence: str, page: str = "attention") -> Reason:
        """Return a reason about this run."""
        return Reason(self.variant, kind, sentence, page)

    def untied_values(self) -> _Run | None:
        """Return the run of the variant that differs only in having values of its own, if any."""
        words = self.variant.value.split()[1:]
        for variant in self.snapshot.experiment.sharing:
            untied = variant.sharing is _OWN_VALUES.get(self.variant.sharing)
            if untied and variant.value.split()[1:] == words:
                return _Run(self.snapshot, variant, self.seed)
        return None

    def _change(self, name: str) -> float:
        """Return how much a metric has grown since `earlier`."""
        values = self.snapshot.history[name][:, self.index]
        return math.nan if self.earlier is None else float(values[-1] - values[self.earlier])

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
    sentence = (
        f"{run.title} diverged by step {step}: its loss is not a finite number any more. "
        f"Try a learning rate below {rate:g}."
    )
    return run.says("diverged", sentence)


def _not_trained(run: _Run) -> Reason | None:
    """No step has been taken."""
    if run.snapshot.step > 0:
        return None
    return run.says("early", f"{run.title} is not trained yet: {percent(run.accuracy)} right.")


def _mirrored(run: _Run) -> Reason | None:
    """The reversed entry scores like the right one, and gets as much attention."""
    task = run.snapshot.experiment.task
    right, wrong = run.last("mass_on_target"), run.last("mass_on_reverse")
    level = 0.5 if task.plateau is None else task.plateau
    low, high = (level + distance for distance in NEAR_GUESSING)
    n_others = task.n_ctx - task.answers_from - 1
    looked_at = min(right, wrong) * n_others >= LEAST_REVERSED
    even = abs(right - wrong) <= EVEN * max(right, wrong)
    if not (run.counts and run.alike and looked_at and even and low <= run.accuracy <= high):
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
    score, mirror = (f"{run.scores[each]:.2f}" for each in (pair, pair[::-1]))
    alike = "" if score == mirror else "almost alike, "
    sentence = f"{run.title}: {one}→{other} scores {score} and {other}→{one} {mirror}, {alike}{end}"
    return run.says("mirrored", sentence, "asymmetry")


def _finds_itself(run: _Run) -> Reason | None:
    """In the last layer, tokens look at themselves instead of at the right token."""
    probe, first = run.snapshot.probe, run.snapshot.experiment.task.answers_from
    rows = first + np.flatnonzero((probe.target != NOTHING) & (probe.labels != NOTHING))
    targets = probe.target[rows - first]
    rows, targets = rows[targets != rows], targets[targets != rows]
    if not (run.counts and run.accuracy < NEARLY) or run.pattern is None or not len(rows):
        return None
    itself = float(run.pattern[rows, rows].mean())
    right = float(run.pattern[rows, targets].mean())
    n_first = (run.pattern[rows].argmax(1) == rows).mean()
    if not (n_first >= MOST_ROWS and itself >= max(LEAST_SELF, 2 * right)):
        return None
    sentence = (
        f"{run.title} finds itself: here, tokens give {percent(itself)} of their attention to "
        f"themselves and only {percent(right)} to the right token."
    )
    return run.says("finds itself", sentence)


def _narrow(run: _Run) -> Reason | None:
    """With tied values, a narrow head learns more slowly than with values of its own."""
    width, twin = run.snapshot.experiment.wiring(run.variant).sizes.d_v, run.untied_values()
    if not run.counts or twin is None or width > NARROW:
        return None
    learns = run.rise > 0 and (run.rise >= RISING or run.fall >= FALLING)
    if not (learns and twin.accuracy - run.accuracy >= GAP):
        return None
    sentence = (
        f"{run.title} learns slowly: the {width} numbers of a head are {_ROLES[run.sharing]}: "
        f"{percent(run.accuracy)} right at step {run.snapshot.eval_steps[-1]}, {twin.title} "
        f"{percent(twin.accuracy)}."
    )
    return run.says("narrow head", sentence, "questions")


def _other_seeds(run: _Run) -> Reason | None:
    """Other seeds of the same variant solve the task."""
    others = run.others()
    n_solved = sum(other.solves for other in others)
    if not run.counts or run.rise >= RISING or not run.accuracy < NEARLY or not n_solved:
        return None
    sentence = (
        f"{run.title} solves it with {n_solved} of {len(others) + 1} seeds; this seed has "
        f"{percent(run.accuracy)} right, and only its random numbers differ."
    )
    return run.says("optimiser", sentence)


def _guesses(run: _Run) -> Reason | None:
    """The loss is that of giving every answer the same probability."""
    n_classes = run.snapshot.experiment.task.n_classes
    guessed, loss = math.log(n_classes), run.last("loss")
    if not (run.counts and abs(loss - guessed) <= GUESSED_LOSS * guessed):
        return None
    sentence = (
        f"{run.title} has learned nothing yet: its loss of {loss:.2f} is that of guessing among "
        f"{n_classes} answers."
    )
    return run.says("chance", sentence)


def _memorised(run: _Run) -> Reason | None:
    """Examples that were trained on are answered much better than new ones."""
    known = run.last("training_accuracy")
    if not (run.counts and known >= KNOWN and known - run.accuracy >= GAP):
        return None
    sentence = (
        f"{run.title} knows its training examples by heart: {percent(known)} of them are right, "
        f"but only {percent(run.accuracy)} of new ones."
    )
    return run.says("memorised", sentence)


def _part(run: _Run) -> Reason | None:
    """One group of questions is answered, and another is not."""
    task, shares = run.snapshot.experiment.task, run.snapshot.slice_accuracy[run.index]
    known = np.flatnonzero(np.isfinite(shares))
    if not (run.counts and len(known)):
        return None
    best, worst = known[shares[known].argmax()], known[shares[known].argmin()]
    if not (shares[best] >= KNOWN and shares[worst] <= UNKNOWN):
        return None
    sentence = (
        f"{run.title} answers only some questions. {task.slice_title} "
        f"“{task.slice_names[best]}”: {percent(float(shares[best]))} right, "
        f"“{task.slice_names[worst]}”: {percent(float(shares[worst]))}."
    )
    return run.says("part", sentence)


def _learns(run: _Run) -> Reason | None:
    """The accuracy is still rising, or the loss falling where that is the measure."""
    if not run.counts or run.earlier is None:
        return None
    on_loss = run.snapshot.experiment.task.loss_to_beat is not None
    name = "loss" if on_loss else "accuracy"
    before, now = (run.snapshot.history[name][place, run.index] for place in (run.earlier, -1))
    if not (run.fall >= FALLING if on_loss else run.rise >= RISING and now < NEARLY):
        return None
    running = run.snapshot.status == "running"
    when = "is still learning" if running else "was still learning when training ended"
    start, end = (run.snapshot.eval_steps[place] for place in (run.earlier, -1))
    was, is_now = (f"{each:.2f}" if on_loss else percent(float(each)) for each in (before, now))
    of = "loss " if on_loss else ""
    right = "" if on_loss else " right"
    sentence = f"{run.title} {when}: {of}{was}{right} at step {start}, {is_now} at step {end}."
    return run.says("early", sentence)


def _solved(runs: list[_Run]) -> Reason | None:
    """Every variant solves the task, or nearly does: with how few matrices."""
    n_runs = len(runs)
    who = {1: runs[0].title, 2: "Both"}.get(n_runs, f"All {_NUMBERS.get(n_runs, n_runs)}")
    solve = "solves it" if n_runs == 1 else "solve it"
    fewest = min(runs, key=lambda run: _FEWEST.index(run.sharing))
    enough = _ENOUGH.get(fewest.sharing, "") if fewest.variant.is_partition else ""
    if not all(run.solves for run in runs):
        lowest = min(run.accuracy for run in runs)
        if not lowest >= NEARLY:
            return None
        solve = f"{'has' if n_runs == 1 else 'have'} at least {percent(lowest)} right"
    also = all(other.accuracy >= NEARLY for run in runs for other in run.others())
    if not also:
        worst = min(
            (other for run in runs for other in run.others()),
            key=lambda other: np.nan_to_num(other.accuracy),
        )
        enough = f"; with seed {worst.seed}, {worst.title} has {percent(worst.accuracy)}"
        sentence = f"With this seed, {who[0].lower()}{who[1:]} {solve}{enough}."
        return worst.says("other seeds", sentence)
    return fewest.says("solved", f"{who} {solve}{enough}.")


_KINDS: tuple[Callable[[_Run], Reason | None], ...] = (
    _diverged,
    _not_trained,
    _mirrored,
    _finds_itself,
    _narrow,
    _other_seeds,
    _guesses,
    _memorised,
    _part,
    _learns,
)
"""The kinds of failure, the clearest first."""

_OWN_VALUES = {
    Sharing.K_V: Sharing.QKV,
    Sharing.Q_V: Sharing.QKV,
    Sharing.Q_K_V: Sharing.Q_K,
}
"""What is left of a sharing if the values have a matrix of their own."""

_ROLES = {
    Sharing.K_V: "both key and value",
    Sharing.Q_V: "both query and value",
    Sharing.Q_K_V: "query, key and value at once",
}

_FEWEST = (Sharing.Q_K_V, Sharing.Q_K, Sharing.K_V, Sharing.Q_V, Sharing.QKV)

_ENOUGH = {
    Sharing.Q_K_V: ", even with one matrix for queries, keys and values",
    Sharing.Q_K: ", even with one matrix for queries and keys",
    Sharing.K_V: ", even with one matrix for keys and values",
    Sharing.Q_V: ", even with one matrix for queries and values",
}

_NUMBERS = {3: "three", 4: "four", 5: "five", 6: "six"}
