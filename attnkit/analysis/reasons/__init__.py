"""Reasons why a variant fails, in one sentence with the numbers of its run.

Every kind of failure is recognised by conditions on the metrics of this run. If none of them holds,
there is no sentence. The sentences say what happened, not what is impossible: such claims need
longer training and more seeds, see `attnkit.claims`.

This package imports no torch and no Streamlit.
"""

from __future__ import annotations

from attnkit.analysis.reasons.kinds import KINDS, learns, unknown
from attnkit.analysis.reasons.run import Reason, Run, marked_pair, named_query
from attnkit.analysis.reasons.solved import solved
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant

__all__ = ["Reason", "headline", "marked_pair", "named_query", "reason"]


def reason(snapshot: Snapshot, variant: Variant, seed: int) -> Reason | None:
    """Return the reason why a variant fails with this seed.

    Returns:
        None if it solves the task, or if no kind of failure fits its metrics.
    """
    run = Run(snapshot, variant, seed)
    for explain in KINDS:
        if (explanation := explain(run)) is not None:
            return explanation
    return None


def headline(snapshot: Snapshot, seed: int) -> Reason | None:
    """Return the reason to show first: that of the variant that fails most clearly.

    If no variant fails, return the fewest matrices with which the task was solved.

    Returns:
        None if neither holds.
    """
    runs = [Run(snapshot, variant, seed) for variant in snapshot.experiment.sharing]
    for explain in KINDS:
        failing = [run for run in runs if explain(run) is not None]
        if failing:
            # Rising curves cross each other, so the lowest is named. Runs of most other kinds have
            # similar accuracies, so the first is named, always the same one.
            varied = explain in (learns, unknown)
            named = min(failing, key=lambda run: run.accuracy) if varied else failing[0]
            return explain(named)
    return solved(runs)
