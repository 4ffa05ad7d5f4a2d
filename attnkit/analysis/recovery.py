"""Tied after training, and trained on: the experiment that shows it, and what came of it.

The first steps are those of a known run, so they give the same numbers. Then the run is tied, as
the variant's own words say, and trained on; beside it the same run goes on untied. No torch here.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import Interval, mean_interval
from attnkit.training.summary import percent, percent_interval
from attnkit.variants import Variant
from attnkit.variants.tying import TieAtOption

MOST_SEEDS = 5
"""Seeds of it: enough for an interval, few enough to be watched."""

NEAR = 0.01
"""Accuracy that has come back is at most so far below what it was."""

_LEAST_AFTER = 0.25
"""Share of the run's steps by which it must be possible to train on; else it is tied earlier."""


def train_on(run: Experiment, seed: int, variant: str, text: str, most_steps: int) -> Experiment:
    """The run again, tied where it ended and trained on for as long; beside it the untied one.

    Args:
        run: as it was trained, with all its seeds.
        seed: one of them, which is among those trained.
        variant: one of its variants.
        text: the same as it is tied during training, without a word on when.
        most_steps: of an experiment; if the run took nearly as many, it is tied halfway.

    Raises:
        InvalidVariant, InvalidExperiment: if there is no such experiment; names what is wrong.
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
    if run.equal != "nothing":  # the widths that it was given stay
        size = run.adjusted(variant).size
        settings |= {"equal": "nothing", "d_head": size.d_head, "d_mlp": size.d_mlp}
    try:
        return run.replace(**settings)
    except InvalidExperiment as error:
        try:  # there may be too many evaluations in so many steps
            return run.replace(**settings, evaluate_every=2 * training.evaluate_every)
        except InvalidExperiment:
            raise error from None


def repeats(run: Experiment, further: Experiment) -> bool:
    """Whether what is trained on begins with the very numbers of the run."""
    return run.training.schedule == further.training.schedule


@dataclass(frozen=True, eq=False)
class Recovery:
    """What tying did, as far as it was trained on. Accuracies are over seeds.

    Attributes:
        tied: the variant. step: at which it was tied. steps_since: trained on since.
        before, at_once: untied and tied at that step.
        now: tied, at the last evaluation. untied_now: the other then.
        back_after: (s,) steps until a seed was back to within `NEAR` of what it was; NaN if not.
        finished: whether nothing more comes.
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
        """What fell how far, and whether it came back, in two or three short sentences."""
        fall = f"Tied at step {self.step}: {percent_of(self.before)} → {percent_of(self.at_once)}"
        if self.steps_since == 0:
            return f"{fall} at once."
        back = self.back_after[~np.isnan(self.back_after)]
        later = f"{self.steps_since} steps later"
        if not np.isnan(self.back_after).any() and not back.any():
            return f"{fall}, so nothing was lost. {later}: {percent_of(self.now)}."
        return (
            f"{fall} at once. {self._return}. {later} it has {percent_of(self.now)}, untied "
            f"{percent_of(self.untied_now)}."
        )

    @property
    def _return(self) -> str:
        """How many seeds have come back, and when."""
        n_seeds = len(self.back_after)
        back = np.unique(self.back_after[~np.isnan(self.back_after)])
        if not len(back):
            return "Not back" if self.finished else "Not back yet"
        n_back = int((~np.isnan(self.back_after)).sum())
        whose = "every seed" if n_back == n_seeds else f"{n_back} of {n_seeds} seeds"
        when = " to ".join(f"{steps:.0f}" for steps in dict.fromkeys((back[0], back[-1])))
        return f"Back{f' with {whose}' if n_seeds > 1 else ''} after {when} steps"


def recovery_of(snapshot: Snapshot) -> Recovery | None:
    """What tying did in an experiment of `train_on`; None before it was tied."""
    experiment = snapshot.experiment
    tied = tied_variant(experiment)
    step = experiment.tie_step(tied)
    accuracy = snapshot.per_sharing(snapshot.history["accuracy"])  # (e, variant, seed)
    since = snapshot.eval_steps >= step
    if not since.any():
        return None
    own = accuracy[since, experiment.sharing.index(tied)]
    other = accuracy[since, experiment.sharing.index(tied.stages[0])]
    near = own >= other[0] - NEAR
    first = snapshot.eval_steps[since][near.argmax(0)] - step
    return Recovery(
        tied,
        step,
        int(snapshot.eval_steps[-1]) - step,
        mean_interval(other[0]),
        mean_interval(own[0]),
        mean_interval(own[-1]),
        mean_interval(other[-1]),
        np.where(near.any(0), first, np.nan),
        snapshot.status != "running",
    )


def tied_variant(experiment: Experiment) -> Variant:
    """The variant of a `train_on` experiment that is tied in it."""
    return next(variant for variant in experiment.sharing if len(variant.stages) > 1)


def percent_of(interval: Interval) -> str:
    """A mean with its limits, if it has some, in percent."""
    if np.isnan(interval.mean):
        return "diverged"
    low, high, mean = (float(value) for value in (interval.low, interval.high, interval.mean))
    limits = percent_interval(low, high)
    return f"{percent(mean)} [{limits}]" if " to " in limits else percent(mean)


def curve_table(snapshot: Snapshot) -> str:
    """Every evaluation of every run, as CSV."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["step", "sharing", "seed", "accuracy", "loss"])
    accuracy, loss = (snapshot.history[name] for name in ("accuracy", "loss"))
    for place, step in enumerate(snapshot.eval_steps):
        for run, (variant, seed) in enumerate(snapshot.experiment.runs):
            row = [step, variant.value, seed, accuracy[place, run], loss[place, run]]
            table.writerow(row)
    return text.getvalue()
