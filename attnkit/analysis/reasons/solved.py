"""The sentence that no variant fails: all solve the task, or nearly do, at least with one seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from attnkit.analysis.reasons.kinds import NEARLY
from attnkit.foundation.language import mark, tr
from attnkit.foundation.words import capitalised, listed
from attnkit.training.summary import percent
from attnkit.variants.sharing import Sharing

_FEWEST = (Sharing.Q_K_V, Sharing.Q_K, Sharing.K_V, Sharing.Q_V, Sharing.QKV)

_NOUNS = {"Q": mark("queries"), "K": mark("keys"), "V": mark("values")}

_PLAIN = {
    ("one", True): mark("{variant} solves it."),
    ("both", True): mark("Both variants solve it."),
    ("all", True): mark("All {n_variants} variants solve it."),
    ("one", False): mark("{variant} has at least {accuracy} right."),
    ("both", False): mark("Both variants have at least {accuracy} right."),
    ("all", False): mark("All {n_variants} variants have at least {accuracy} right."),
}
"""Sentences by the number of variants, and by whether they solve the task or nearly do."""

_SHARING = {
    # Translators: {roles} is for example "queries and keys" or "queries, keys and values".
    ("one", True): mark("{variant} solves it, even with one matrix for {roles}."),
    ("both", True): mark("Both variants solve it, even with one matrix for {roles}."),
    ("all", True): mark("All {n_variants} variants solve it, even with one matrix for {roles}."),
    ("one", False): mark(
        "{variant} has at least {accuracy} right, even with one matrix for {roles}."
    ),
    ("both", False): mark(
        "Both variants have at least {accuracy} right, even with one matrix for {roles}."
    ),
    ("all", False): mark(
        "All {n_variants} variants have at least {accuracy} right, even with one matrix for "
        "{roles}."
    ),
}
"""The same sentences, with the roles that share a matrix."""

_WITH_SEED = {
    # Translators: {outcome} is "with seed 1, Q=K diverged" or "with seed 1, Q=K has 50% right".
    ("one", True): mark("{variant} solves it with seed {seed}; {outcome}."),
    ("both", True): mark("Both variants solve it with seed {seed}; {outcome}."),
    ("all", True): mark("All {n_variants} variants solve it with seed {seed}; {outcome}."),
    ("one", False): mark("{variant} has at least {accuracy} right with seed {seed}; {outcome}."),
    ("both", False): mark(
        "Both variants have at least {accuracy} right with seed {seed}; {outcome}."
    ),
    ("all", False): mark(
        "All {n_variants} variants have at least {accuracy} right with seed {seed}; {outcome}."
    ),
}
"""The same sentences about one seed, before what happened with another one."""


_OUTCOMES = {
    True: mark("with seed {seed}, {variant} diverged"),
    False: mark("with seed {seed}, {variant} has {accuracy} right"),
}
"""Clauses about the worst run of other seeds, by whether it diverged."""


def solved(runs: Sequence[SimpleNamespace]) -> tuple[SimpleNamespace, str, str] | None:
    """Return the sentence that every variant solves the task, or nearly does; None if not.

    Returns:
        The numbers of the run that it is about, its kind, and the sentence.
    """
    lowest = min(run.accuracy for run in runs)
    is_solved = all(run.solves for run in runs)
    if not is_solved and not lowest >= NEARLY:
        return None
    key = {1: "one", 2: "both"}.get(len(runs), "all"), is_solved
    values = {"n_variants": len(runs), "accuracy": percent(lowest)}
    values["variant"] = capitalised(runs[0].variant)
    worst = min(runs, key=lambda run: float(np.nan_to_num(run.worst_accuracy)))
    if not worst.worst_accuracy >= NEARLY:
        outcome = tr(
            _OUTCOMES[math.isnan(worst.worst_accuracy)],
            seed=worst.worst_seed,
            variant=worst.variant,
            accuracy=percent(worst.worst_accuracy),
        )
        sentence = tr(_WITH_SEED[key], seed=runs[0].seed, outcome=outcome, **values)
        return worst, "other seeds", sentence
    plain = [run for run in runs if run.given.is_partition]
    fewest = min(plain or runs, key=lambda run: _FEWEST.index(run.sharing))
    sharing = next((members for members in fewest.sharing.classes if len(members) > 1), ())
    if not plain or not sharing:
        return fewest, "solved", tr(_PLAIN[key], **values)
    roles = listed(tr(_NOUNS[role]) for role in sharing)
    return fewest, "solved", tr(_SHARING[key], roles=roles, **values)
