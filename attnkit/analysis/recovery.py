"""Matrices tied after training, then trained further: the experiment for it and its result.

The first steps repeat a finished run and give the same numbers. Then the run is tied, as the text
of its variant says, and training continues; for comparison, the same run also continues untied.
This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from attnkit.analysis.comparison import level_in_words
from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.foundation.tables import csv_table
from attnkit.foundation.words import counted, listed, verb
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import Interval, mean_interval
from attnkit.training.summary import percent, percent_limits
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.tying import TieAtOption

MOST_SEEDS = 5
"""Most seeds that a page ties: enough for an interval, few enough to wait for."""

NEAR = 0.01
"""Largest distance below the accuracy before tying at which accuracy counts as recovered."""

_LEAST_AFTER = 0.25
"""Least steps after tying, as a share of the run's; the run is tied earlier if need be."""


def train_on(run: Experiment, seed: int, variant: str, text: str, most_steps: int) -> Experiment:
    """Return an experiment that repeats a run, ties it where it ended, and trains it as long again.

    Its other variant is the same run, never tied.

    Args:
        run: Experiment of the finished run, with all its seeds.
        seed: Seed of the experiment that must be trained again; others are added as far as allowed.
        variant: Variant of the experiment that is tied.
        text: Text form of that variant with the tying, but without its time.
        most_steps: Most steps of an experiment; a run of nearly as many steps is tied halfway.

    Raises:
        InvalidVariant, InvalidExperiment: If there is no such experiment; names what is wrong.
    """
    training = run.training
    steps = min(2 * training.steps, most_steps)
    tied_at = training.steps if steps >= (1 + _LEAST_AFTER) * training.steps else steps // 2
    share = round(tied_at / steps, 6)
    when = "" if share == TieAtOption.implied else f" tie_at={share}"
    tied = Variant(f"{text}{when}")
    seeds = run.seeds
    n_seeds = min(len(seeds), MOST_SEEDS)
    settings = {
        "sharing": [tied.stages[0], tied],
        "first_seed": min(seed, seeds[-1] - n_seeds + 1),
        "n_seeds": n_seeds,
        "steps": steps,
        "schedule": "constant",
        "warm_up": training.warm_up * training.steps / steps,
    }
    if run.equal != "nothing":  # keep the widths that equal costs have led to
        size = run.adjusted(variant).size
        settings |= {"equal": "nothing", "d_head": size.d_head, "d_mlp": size.d_mlp}
    try:
        return run.replace(**settings)
    except InvalidExperiment as error:
        try:  # twice the steps may need too many evaluations
            return run.replace(**settings, evaluate_every=2 * training.evaluate_every)
        except InvalidExperiment:
            raise error from None


@dataclass(frozen=True, eq=False)
class Recovery:
    """Effect of tying on the accuracy so far. Intervals are over seeds.

    Attributes:
        tied: The variant that is tied during training.
        step: Step at which it was tied.
        steps_since: Steps trained since then.
        before: Accuracy at that step without tying.
        at_once: Accuracy at that step, just after tying.
        now: Accuracy of the tied variant at the last evaluation.
        untied_now: Accuracy of the untied variant at the last evaluation.
        back_after: Steps until each seed came within `NEAR` of its accuracy before; NaN if never.
        finished: Whether the training has ended.
    """

    tied: Variant
    step: int
    steps_since: int
    before: Interval
    at_once: Interval
    now: Interval
    untied_now: Interval
    back_after: Float[np.ndarray, " s"]
    finished: bool

    @property
    def finding(self) -> str:
        """Fall and recovery of the accuracy in two or three short sentences."""
        fall = f"Tied at step {self.step}: {percent_of(self.before)} → {percent_of(self.at_once)}"
        if self.steps_since == 0:
            return f"{fall} at once."
        back = self.back_after[~np.isnan(self.back_after)]
        later = f"{self.steps_since} steps later"
        if not np.isnan(self.back_after).any() and not back.any():
            little = "nothing" if self.at_once.mean >= self.before.mean else "at most one point"
            return f"{fall}, so {little} was lost. {later}: {percent_of(self.now)}."
        return (
            f"{fall} at once. {self._return}. {later} it has {percent_of(self.now)}, untied "
            f"{percent_of(self.untied_now)}."
        )

    @property
    def came_back(self) -> bool:
        """Whether the mean accuracy at the last evaluation is about that before tying."""
        return bool(self.now.mean >= self.before.mean - NEAR)

    @property
    def caught_up(self) -> bool:
        """Whether the mean accuracy at the last evaluation is about that of the untied model."""
        return bool(self.now.mean >= self.untied_now.mean - NEAR)

    def outcome(self, others: Iterable[Recovery] = ()) -> str:
        """Return a sentence about what further training has done so far; "" before any.

        Args:
            others: Other finished trainings, of which those that ended the other way are named.
        """
        if self.steps_since == 0:
            return ""
        name, steps = _name_of(self.tied), counted(self.steps_since, "more step")
        n_seeds = len(self.back_after)
        seeds = f" (mean of {n_seeds} seeds)" if n_seeds > 1 else ""
        if np.isnan(self.now.mean):
            return f"With {steps}, {name} has diverged."
        now, untied_now = (level_in_words(float(v.mean)) for v in (self.now, self.untied_now))
        if not self.finished:
            return f"After {steps}, {name} has {now}, the same model untied {untied_now}{seeds}."
        if self.now.mean > self.before.mean + NEAR:
            return f"With {steps}, {name} reaches {now}, the same model untied {untied_now}{seeds}."
        if self.came_back:
            end = f"{'is back' if self.back_after.any() else 'stays'} at {now}"
        else:
            end = "is not back:" if self.back_after.any() else "has fallen to"
            end += f" {now}, against {untied_now} untied"
        return f"With {steps}, {name} {end}{seeds}{self._contrast(others)}."

    def _contrast(self, others: Iterable[Recovery]) -> str:
        """Return which other sharings ended the other way after as many steps, in all trials."""
        results: dict[str, set[bool]] = {}
        for other in others:
            is_alike = (
                other.tied.stages[0] == self.tied.stages[0]
                and other.steps_since == self.steps_since
                and other.finished
            )
            if is_alike and other.tied.stages[-1] != self.tied.stages[-1]:
                results.setdefault(_name_of(other.tied), set()).add(other.came_back)
        names = [name for name, ends in results.items() if ends == {not self.came_back}]
        if not names:
            return ""
        end = "worse than before" if self.came_back else "as good as before"
        return f"; {listed(names)} {verb(names, 'is', 'are')} {end}"

    @property
    def _return(self) -> str:
        """Number of seeds that have recovered, and when."""
        n_seeds = len(self.back_after)
        back = np.unique(self.back_after[~np.isnan(self.back_after)])
        if not len(back):
            return "Not back" if self.finished else "Not back yet"
        n_back = int((~np.isnan(self.back_after)).sum())
        whose = "every seed" if n_back == n_seeds else f"{n_back} of {n_seeds} seeds"
        when = " to ".join(f"{steps:.0f}" for steps in dict.fromkeys((back[0], back[-1])))
        return f"Back{f' with {whose}' if n_seeds > 1 else ''} after {when} steps"


def recovery_of(snapshot: Snapshot) -> Recovery | None:
    """Return the effect of tying in an experiment of `train_on`; None before it is tied."""
    experiment = snapshot.experiment
    tied = tied_variant(experiment)
    step = experiment.tie_step(tied)
    accuracy = snapshot.per_sharing(snapshot.history["accuracy"])  # (e, variant, seed)
    since = snapshot.eval_steps >= step
    if not since.any():
        return None
    of_tied = accuracy[since, experiment.sharing.index(tied)]
    of_untied = accuracy[since, experiment.sharing.index(tied.stages[0])]
    near = of_tied >= of_untied[0] - NEAR
    first = snapshot.eval_steps[since][near.argmax(0)] - step
    return Recovery(
        tied,
        step,
        int(snapshot.eval_steps[-1]) - step,
        mean_interval(of_untied[0]),
        mean_interval(of_tied[0]),
        mean_interval(of_tied[-1]),
        mean_interval(of_untied[-1]),
        np.where(near.any(0), first, np.nan),
        snapshot.status != "running",
    )


def _name_of(tied: Variant) -> str:
    """Return the name of a variant after tying."""
    return title_of(tied.stages[-1])


def tied_variant(experiment: Experiment) -> Variant:
    """Return the variant of a `train_on` experiment that is tied during training."""
    return next(variant for variant in experiment.sharing if len(variant.stages) > 1)


def percent_of(interval: Interval) -> str:
    """Return a mean in percent, with its interval if there is one."""
    if np.isnan(interval.mean):
        return "diverged"
    low, high, mean = (float(value) for value in (interval.low, interval.high, interval.mean))
    return percent(mean) + percent_limits(low, high, " [{}]")


def curve_table(snapshot: Snapshot) -> str:
    """Return every evaluation of every run as CSV."""
    history = snapshot.history
    measures = (history["accuracy"], history["loss"], snapshot.asymmetry)
    rows = [
        (step, variant.value, seed, *(values[evaluation, run] for values in measures))
        for evaluation, step in enumerate(snapshot.eval_steps)
        for run, (variant, seed) in enumerate(snapshot.experiment.runs)
    ]
    return csv_table(["step", "sharing", "seed", "accuracy", "loss", "asymmetry"], rows)
