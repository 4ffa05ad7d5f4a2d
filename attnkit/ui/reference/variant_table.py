"""Table of the catalogue and the sentence above it, made of recorded accuracies; no Streamlit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnkit.examples import RecordedAccuracy, RecordedVariants, default_of
from attnkit.experiment.costs import Costs
from attnkit.foundation.settings import InvalidExperiment
from attnkit.foundation.words import capitalised, listed, verb
from attnkit.sweeps.conclusion import direction_note
from attnkit.tasks import TASKS
from attnkit.training.summary import percent, percent_beside, percent_limits, whole_percent
from attnkit.variants import Named

if TYPE_CHECKING:
    import pandas as pd

_MOST_NAMED = 3
"""Variants below the threshold that the sentence names, at most; the lowest come first."""


def conclusion(entries: Sequence[Named], recorded: RecordedVariants | None) -> str:
    """Return one sentence about the recorded accuracies: how many succeed, and which fall short."""
    known = [(one, a) for one in entries if (a := recorded_of(one, recorded)) is not None]
    if recorded is None or not known:
        return f"There are {len(entries)} named ways to make queries, keys and values."
    below = sorted((a.mean, one.name) for one, a in known if not a.reached)
    n_known, n_reached = len(known), len(known) - len(below)
    which = f"All {n_known}" if not below else f"{n_reached} of {n_known}"
    which += "" if n_known == len(entries) else " measured"
    sentence = (
        f"{which} variants reach {percent(recorded.threshold)} accuracy on the task "
        f"“{TASKS[recorded.task].title}”"
    )
    if not below:
        return f"{sentence}."
    lowest = listed(
        [
            f"{name} ({percent_beside(mean, recorded.threshold)})"
            for mean, name in below[:_MOST_NAMED]
        ]
    )
    if len(below) > _MOST_NAMED:
        return f"{sentence}; the lowest are {lowest}."
    return f"{sentence}; {lowest} {verb(below, 'does', 'do')} not."


def note(recorded: RecordedVariants | None) -> str:
    """Return why variants with symmetric scores reach the threshold; empty if they do not."""
    if recorded is None:
        return ""
    reached = {name for name, accuracy in recorded.accuracy.items() if accuracy.reached}
    return direction_note(recorded.task, reached)


def catalogue_table(entries: Sequence[Named], recorded: RecordedVariants | None) -> pd.DataFrame:
    """Return a table with one row per entry, in the order given; unknown numbers are missing."""
    import pandas as pd

    rows = []
    for entry in entries:
        costs, accuracy = costs_of(entry), recorded_of(entry, recorded)
        rows.append(
            {
                "name": entry.name,
                "what": entry.brief,
                "accuracy": None if accuracy is None else whole_percent(accuracy.mean),
                "interval": interval_of(accuracy),
                "parameters": None if costs is None else costs.parameters,
                "kv_cache": None if costs is None else costs.kv_cache,
                "family": entry.family,
                "source": short_source(entry.source),
            }
        )
    table = pd.DataFrame(rows)
    return table.astype(dict.fromkeys(("accuracy", "parameters", "kv_cache"), "Int64"))


def costs_of(entry: Named) -> Costs | None:
    """Return the costs of an entry at default sizes; None if it does not go with them."""
    try:
        return default_of(entry.variant).costs(entry.variant)
    except InvalidExperiment:
        return None


def recorded_of(entry: Named, recorded: RecordedVariants | None) -> RecordedAccuracy | None:
    """Return the recorded accuracy of an entry; None if there is none."""
    return None if recorded is None else recorded.accuracy.get(entry.variant.value)


def accuracy_in_words(entry: Named, recorded: RecordedVariants | None) -> str:
    """Return the recorded accuracy of an entry in a sentence; empty if there is none."""
    accuracy = recorded_of(entry, recorded)
    if recorded is None or accuracy is None:
        return ""
    limits = interval_of(accuracy)
    verdict = "" if accuracy.reached else f", below {percent(recorded.threshold)}"
    interval = f" (95% interval {limits})" if limits else ""
    task = TASKS[recorded.task].title
    mean = percent(accuracy.mean)
    if verdict:
        mean = percent_beside(accuracy.mean, recorded.threshold)
    return f"Accuracy on the task “{task}”: {mean}{interval}{verdict}."


def interval_of(accuracy: RecordedAccuracy | None) -> str:
    """Return the limits of a recorded accuracy in percent; empty if they are the same."""
    return "" if accuracy is None else percent_limits(accuracy.low, accuracy.high)


def short_source(source: str) -> str:
    """Return a citation without the numbers of preprints and without notes on how it was read."""
    noise = r", arXiv [\d.]+|^reported: (after )?| \((abstract|there [^)]*)\)"
    shortened = re.sub(noise, "", source)
    return capitalised(shortened)
