"""A small sweep that is trained for a visitor, point by point."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import lru_cache

import pandas as pd
import streamlit as st

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment, Value
from attnkit.service.jobs import Watcher
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.planning import Plan
from attnkit.sweeps.result import failed_rows, labelled
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import run_table
from attnkit.ui.series import Series
from attnkit.variants import Variant

PAUSED, STOPPED = "Paused.", "Stopped."
"""Problems of a live sweep that its visitor has paused or stopped."""


_COLUMNS = (
    "sharing",
    "seed",
    "accuracy",
    "loss",
    "steps_to_threshold",
    "learning_rate",
    "error",
    "cell",
)
"""Columns that a result has even if nothing is trained yet."""


@dataclass
class LiveSweep(Series):
    """A sweep that is trained for a visitor, one experiment for each point.

    Attributes:
        sweep: The sweep.
        points: The point of every experiment.
    """

    sweep: Sweep
    points: list[dict[str, Value]]
    _tables: list[pd.DataFrame] = field(default_factory=list, repr=False)
    _drawn: tuple[int, SweepResult] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, sweep: Sweep, watcher: Watcher) -> LiveSweep:
        """Return a sweep that has not begun; cells that are impossible have failed already."""
        parts, failed = parts_of(sweep)
        points, experiments = [point for point, _ in parts], [experiment for _, experiment in parts]
        tables = [failed_rows(sweep, point, v, sweep.seeds, reason) for point, v, reason in failed]
        return cls(sweep, points, tables, experiments=experiments, watcher=watcher)

    def keep(self, snapshot: Snapshot) -> None:
        """Take over the rows of the point that has just finished."""
        experiment = snapshot.experiment
        rows = run_table(snapshot).assign(
            learning_rate=experiment.training.learning_rate,
            tried="{}",
            seconds=snapshot.seconds / experiment.n_runs,
            engine=snapshot.engine,
            processor=snapshot.processor,
            error=None,
        )
        point = self.points[self.n_finished]
        self._tables += [
            labelled(self.sweep, point, Variant(str(name)), table)
            for name, table in rows.groupby("sharing", sort=False)
        ]

    def result(self) -> SweepResult:
        """Return the result of all finished runs; the same object until there are more."""
        if self._drawn is None or self._drawn[0] != self.n_finished:
            empty = pd.DataFrame(columns=_COLUMNS, dtype=object)
            rows = pd.concat(self._tables, ignore_index=True) if self._tables else empty
            rows = rows.reindex(columns=list(dict.fromkeys([*rows.columns, *_COLUMNS])))
            self._drawn = (self.n_finished, SweepResult.of(self.sweep, rows))
        return self._drawn[1]

    @property
    def ended(self) -> bool:
        """Whether the sweep is finished, or its visitor has stopped it."""
        return self.finished or self.problem == STOPPED


@lru_cache(maxsize=16)
def parts_of(
    sweep: Sweep,
) -> tuple[
    tuple[tuple[dict[str, Value], Experiment], ...],
    tuple[tuple[dict[str, Value], Variant, str], ...],
]:
    """Return the experiments to train together at each point, and why cells are impossible.

    Points are in the order of `Plan`, so that a sweep shows something everywhere early.
    """
    parts: list[tuple[dict[str, Value], Experiment]] = []
    failed: list[tuple[dict[str, Value], Variant, str]] = []
    for index in Plan.of(sweep).order:
        point = sweep.point(int(index))
        with contextlib.suppress(InvalidExperiment):
            parts.append((point, sweep.experiment(point, sweep.sharing)))
            continue
        possible = []
        for variant in sweep.sharing:
            try:
                possible.append((variant, sweep.experiment(point, [variant])))
            except InvalidExperiment as error:
                failed.append((point, variant, str(error)))
        if not possible:
            continue
        try:
            together = [sweep.experiment(point, [variant for variant, _ in possible])]
        except InvalidExperiment:  # too large side by side
            together = [experiment for _, experiment in possible]
        parts += [(point, experiment) for experiment in together]
    return tuple(parts), tuple(failed)


def open_live_sweep() -> LiveSweep | None:
    """Return the newest sweep that this visitor has run; None if there is none."""
    live: LiveSweep | None = st.session_state.get("live_sweep")
    return live


def begin_live_sweep(sweep: Sweep, watcher: Watcher) -> None:
    """Train a sweep for this visitor, and stop the one that trained before."""
    before = open_live_sweep()
    if before is not None:
        before.stop(STOPPED)
    live = st.session_state["live_sweep"] = LiveSweep.of(sweep, watcher)
    if live.moving:
        live.go_on()
