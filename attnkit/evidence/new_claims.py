"""Claims that nobody had tested side by side: in which order they are told, and at what cost."""

from __future__ import annotations

from collections.abc import Mapping

from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import Arm
from attnkit.evidence.record import Evidence
from attnkit.evidence.words import prediction_in_words

OUTCOMES = ("was wrong", "came true", "is undecided")
"""What became of a prediction, as in `attnkit.evidence.words.prediction_in_words`, in the order in
which it is told."""


def new_records(
    records: Mapping[str, Evidence], verdicts: Mapping[str, Verdict]
) -> dict[str, list[Evidence]]:
    """Return the records of new claims by what became of their predictions.

    Args:
        records: Records by the claim's id.
        verdicts: Verdicts by the claim's id.
    """
    found: dict[str, list[Evidence]] = {outcome: [] for outcome in OUTCOMES}
    for name, claim in CLAIMS.items():
        if claim.is_new and name in records:
            found[prediction_in_words(claim, verdicts[name])].append(records[name])
    return found


def cache_in_words(evidence: Evidence) -> str:
    """Return the KV cache of the compared arms, in numbers per token summed over layers.

    A decoder may cache less than keys and values that are ready for use if it computes them again
    at every step. Then both numbers are given.
    """
    by_size: dict[str, list[str]] = {}
    compared = {name for statement in evidence.claim.statements for name in statement.arms}
    for arm in evidence.claim.arms:
        if arm.name in compared:
            by_size.setdefault(_cache_of(arm), []).append(arm.name)
    if len(by_size) == 1:
        return f"KV cache: {next(iter(by_size))} numbers per token with every variant."
    parts = [f"{size} ({'; '.join(names)})" for size, names in by_size.items()]
    return f"KV cache, numbers per token: {', '.join(parts)}."


def _cache_of(arm: Arm) -> str:
    costs = arm.experiment.costs(arm.variant)
    if costs.ready_cache == costs.kv_cache:
        return f"{costs.kv_cache:,}"
    return f"{costs.ready_cache:,} or, if recomputed at each step, {costs.kv_cache:,}"
