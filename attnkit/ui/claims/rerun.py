"""Runs of a claim in its quick form, trained for a visitor on new seeds."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import numpy as np
import streamlit as st

from attnkit import __version__
from attnkit.claims import Claim, Verdict
from attnkit.evidence.quick import NEW_SEED, QuickForm
from attnkit.evidence.record import Evidence
from attnkit.evidence.trials import Trial
from attnkit.service.jobs import Watcher
from attnkit.training.snapshot import Snapshot
from attnkit.ui.series import Series

LAST_SEED = 800_000
"""Largest seed of visitors' runs, below those of tuning."""

_Scores = dict[str, dict[str, np.ndarray]]


@dataclass
class ClaimRerun(Series):
    """One claim on new seeds.

    Attributes:
        claim: The claim.
        form: Its quick form.
        trials: The trials of this form, whose experiments are the series.
        guess: The verdict that the visitor guessed, if any.
    """

    claim: Claim
    form: QuickForm
    trials: list[Trial]
    guess: Verdict | None = None
    _scores: _Scores = field(default_factory=dict)
    _drawn: tuple[object, Evidence] | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds; some arms may have only the first of them."""
        return max((tuple(trial.experiment.seeds) for trial in self.trials), key=len)

    def keep(self, snapshot: Snapshot) -> None:
        """Take over the scores of the trial that has just finished."""
        self._scores |= self.trials[self.n_finished].scores(snapshot)

    def evidence(self) -> Evidence:
        """Return what has been measured by now, including the experiment that trains.

        Arms that are not trained yet lack seeds. The same object is returned until there is more.
        """
        job = None if self.finished else self.job
        if job is None and not self.finished and self._drawn is not None:
            return self._drawn[1]  # the run was stopped, and its job is gone
        snapshot = None if job is None else job.snapshot
        if self._drawn is None or self._drawn[0] != (self.n_finished, id(snapshot)):
            self._drawn = (self.n_finished, id(snapshot)), self._evidence(snapshot)
        return self._drawn[1]

    def _evidence(self, snapshot: Snapshot | None) -> Evidence:
        unfinished = {} if snapshot is None else self.trials[self.n_finished].scores(snapshot)
        measured = {**self._scores, **unfinished}
        measures = sorted({"accuracy", "loss", *(s.measure for s in self.claim.statements)})
        nothing = np.zeros((1, 0))
        return Evidence(
            claim=self.claim,
            version=__version__,
            hash=self.claim.hash,
            quick=True,
            first_seed=self.seeds[0],
            n_seeds=len(self.seeds),
            scores={
                arm.name: {name: measured.get(arm.name, {}).get(name, nothing) for name in measures}
                for arm in self.form.arms
            },
            tuned=self.form.tuned,
            experiments=tuple(trial.experiment.to_text() for trial in self.trials),
            model_steps=sum(t.experiment.n_runs * t.experiment.training.steps for t in self.trials),
            seconds=self.seconds,
        )


def fresh_seed(n_seeds: int) -> int:
    """Return the first of `n_seeds` random consecutive seeds, most likely never used before."""
    return NEW_SEED + n_seeds * secrets.randbelow((LAST_SEED - NEW_SEED) // n_seeds)


@dataclass
class ClaimReruns:
    """The newest run of every claim of one visitor. At most one trains.

    Attributes:
        known: Newest run by the claim's id.
    """

    known: dict[str, ClaimRerun] = field(default_factory=dict)

    @property
    def moving(self) -> ClaimRerun | None:
        """The run that trains, if any."""
        return next((rerun for rerun in self.known.values() if rerun.moving), None)

    @property
    def job_id(self) -> str | None:
        """The job that trains for this visitor."""
        return None if self.moving is None else self.moving.job_id

    def begin(
        self, claim: Claim, shipped: Evidence | None, watcher: Watcher, guess: Verdict | None
    ) -> None:
        """Train a claim on new seeds, and stop the run that trained for this visitor before."""
        self.stop()
        form = QuickForm.of(claim, shipped)
        trials = form.trials(fresh_seed(form.n_seeds))
        experiments = [trial.experiment for trial in trials]
        rerun = ClaimRerun(claim, form, trials, guess, experiments=experiments, watcher=watcher)
        self.known[claim.id] = rerun
        rerun.go_on()

    def follow(self, watcher: Watcher) -> None:
        """Follow the run that trains, whichever claim is on screen."""
        moving = self.moving
        if moving is not None:
            moving.watcher = watcher
            moving.follow()

    def go_on(self, rerun: ClaimRerun, watcher: Watcher) -> None:
        """Resume a run that stands still, with the same seeds."""
        self.stop()
        rerun.watcher = watcher
        rerun.go_on()

    def stop(self) -> None:
        """Stop the run that trains."""
        if self.moving is not None:
            self.moving.stop()


def open_reruns() -> ClaimReruns:
    """Return the runs of this visitor."""
    reruns: ClaimReruns = st.session_state.setdefault("reruns", ClaimReruns())
    return reruns
