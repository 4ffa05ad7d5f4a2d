"""Reasons why a variant fails, in one sentence with the numbers of its run.

Every kind of failure is recognised by conditions on the metrics of this run. If none of them holds,
there is no sentence. The sentences say what happened, not what is impossible: such claims need
longer training and more seeds, see `attnkit.claims`.

This package imports no torch and no Streamlit.
"""

from __future__ import annotations

import numpy as np

from attnkit.analysis.reasons.kinds import KINDS, NEARLY, learns, unknown
from attnkit.analysis.reasons.run import Reason, Run, marked_pair, named_query
from attnkit.foundation.words import all_of, capitalised, listed, verb
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.sharing import Sharing

__all__ = ["Reason", "headline", "marked_pair", "named_query", "reason"]

_FEWEST = (Sharing.Q_K_V, Sharing.Q_K, Sharing.K_V, Sharing.Q_V, Sharing.QKV)

_NOUNS = {"Q": "queries", "K": "keys", "V": "values"}


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
    return _solved(runs)


def _solved(runs: list[Run]) -> Reason | None:
    """Return the sentence that every variant solves the task, or nearly does; None if not."""
    subject = capitalised(all_of([run.title for run in runs]))
    lowest = min(run.accuracy for run in runs)
    if all(run.solves for run in runs):
        solve = verb(runs, "solves it", "solve it")
    elif lowest >= NEARLY:
        solve = f"{verb(runs, 'has', 'have')} at least {percent(lowest)} right"
    else:
        return None
    others = [other for run in runs for other in run.other_seeds()]
    worst = min(others, key=lambda run: float(np.nan_to_num(run.accuracy)), default=runs[0])
    if not worst.accuracy >= NEARLY:
        diverged = np.isnan(worst.accuracy)
        end = "diverged" if diverged else f"has {percent(worst.accuracy)} right"
        sentence = (
            f"{subject} {solve} with seed {runs[0].seed}; "
            f"with seed {worst.seed}, {worst.title} {end}."
        )
        return worst.reason("other seeds", sentence)
    plain = [run for run in runs if run.variant.is_partition]
    fewest = min(plain or runs, key=lambda run: _FEWEST.index(run.variant.sharing))
    sharing = next((members for members in fewest.variant.sharing.classes if len(members) > 1), ())
    enough = f", even with one matrix for {listed(_NOUNS[role] for role in sharing)}"
    enough = enough if plain and sharing else ""
    return fewest.reason("solved", f"{subject} {solve}{enough}.")
