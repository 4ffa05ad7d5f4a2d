"""Records of new claims by the outcome of their predictions, and the KV cache of their arms."""

from __future__ import annotations

from collections.abc import Mapping

from attnkit.analysis.reached import joined
from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import Arm, Claim
from attnkit.evidence.record import Evidence
from attnkit.evidence.words import prediction_in_words

WRONG, TRUE, OPEN = "was wrong", "came true", "is undecided"
"""Outcomes of a prediction, as `prediction_in_words` returns them."""


def new_records(
    records: Mapping[str, Evidence], verdicts: Mapping[str, Verdict]
) -> dict[str, list[Evidence]]:
    """Group the records of new claims by the outcome of their predictions, wrong ones first.

    Args:
        records: Records by the claim's id.
        verdicts: Verdicts by the claim's id.
    """
    found: dict[str, list[Evidence]] = {WRONG: [], TRUE: [], OPEN: []}
    for name, claim in CLAIMS.items():
        if claim.is_new and name in records:
            verdict = verdicts[name]
            is_open = verdict == "undecided"
            outcome = OPEN if is_open else prediction_in_words(claim, verdict)
            found[outcome].append(records[name])
    return found


def cache_in_words(claim: Claim) -> str:
    """Return the KV caches of the compared arms, in numbers per token summed over layers.

    A decoder may cache less than keys and values that are ready for use if it computes them again
    at every step. Then both numbers are given.
    """
    by_size: dict[str, list[str]] = {}
    for arm in claim.compared_arms:
        by_size.setdefault(_cache_of(arm), []).append(arm.name)
    if len(by_size) == 1:
        return f"KV cache: {next(iter(by_size))} numbers per token."
    parts = [f"{joined(names)}: {size}" for size, names in by_size.items()]
    return f"KV cache, numbers per token: {'; '.join(parts)}."


def _cache_of(arm: Arm) -> str:
    costs = arm.experiment.costs(arm.variant)
    if costs.ready_cache == costs.kv_cache:
        return f"{costs.kv_cache:,}"
    return f"{costs.ready_cache:,}, or {costs.kv_cache:,} if computed again at every step"
