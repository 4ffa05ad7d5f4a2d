"""The reason of one run, and the one that a page tells first."""

from __future__ import annotations

import numpy as np

from attnkit.analysis.reasons.kinds import KINDS, NEARLY, learns
from attnkit.analysis.reasons.run import Reason, Run
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.sharing import Sharing

_FEWEST = (Sharing.Q_K_V, Sharing.Q_K, Sharing.K_V, Sharing.Q_V, Sharing.QKV)

_ENOUGH = {
    Sharing.Q_K_V: ", even with one matrix for queries, keys and values",
    Sharing.Q_K: ", even with one matrix for queries and keys",
    Sharing.K_V: ", even with one matrix for keys and values",
    Sharing.Q_V: ", even with one matrix for queries and values",
}

_NUMBERS = {3: "three", 4: "four", 5: "five", 6: "six"}


def reason(snapshot: Snapshot, variant: Variant, seed: int) -> Reason | None:
    """Return why a variant fails with this seed, as far as its numbers show it.

    Returns:
        None if it solves the task, or if nothing that is known explains the failure.
    """
    run = Run(snapshot, variant, seed)
    return next((found for explain in KINDS if (found := explain(run)) is not None), None)


def headline(snapshot: Snapshot, seed: int) -> Reason | None:
    """Return the reason to tell first: that of the variant that fails most clearly.

    If no variant fails, it tells with how few matrices the task was solved.

    Returns:
        None if nothing is known.
    """
    runs = [Run(snapshot, variant, seed) for variant in snapshot.experiment.sharing]
    for explain in KINDS:
        found = [run for run in runs if explain(run) is not None]
        if found:
            # Curves that still rise cross each other, so the lowest is named; those of the other
            # kinds lie close together, and the first column stays the one that is named.
            named = min(found, key=lambda run: run.accuracy) if explain is learns else found[0]
            return explain(named)
    return _solved(runs)


def _solved(runs: list[Run]) -> Reason | None:
    """Return that every variant solves the task with this seed, or nearly does; None if not."""
    who = {1: runs[0].title, 2: "Both"}.get(len(runs), f"All {_NUMBERS.get(len(runs), len(runs))}")
    lowest = min(run.accuracy for run in runs)
    if all(run.solves for run in runs):
        solve = "solves it" if len(runs) == 1 else "solve it"
    elif lowest >= NEARLY:
        solve = f"{'has' if len(runs) == 1 else 'have'} at least {percent(lowest)} right"
    else:
        return None
    others = [other for run in runs for other in run.others()]
    worst = min(others, key=lambda run: float(np.nan_to_num(run.accuracy)), default=runs[0])
    if not worst.accuracy >= NEARLY:
        lost = np.isnan(worst.accuracy)
        end = "diverged" if lost else f"has {percent(worst.accuracy)} right"
        here, there = (f"with seed {run.seed}" for run in (runs[0], worst))
        return worst.says("other seeds", f"{who} {solve} {here}; {there}, {worst.title} {end}.")
    plain = [run for run in runs if run.variant.is_partition]
    fewest = min(plain or runs, key=lambda run: _FEWEST.index(run.sharing))
    enough = _ENOUGH.get(fewest.sharing, "") if plain else ""
    return fewest.says("solved", f"{who} {solve}{enough}.")
