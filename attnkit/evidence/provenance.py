"""How a record came about, in words: what we had seen before, and who trained what."""

from __future__ import annotations

from attnkit.claims import Claim
from attnkit.claims.base import Seen
from attnkit.evidence.record import Evidence
from attnkit.foundation.language import mark, tr

_SEEN_BEFORE: dict[Seen, str] = {
    "nothing": mark("When it was written, we had seen nothing of this comparison."),
    "a prototype": mark("When it was written, we had seen a prototype of this comparison."),
    "an earlier run": mark("When it was written, we had seen an earlier run of this comparison."),
}

_CHANGED = {
    "the rule": mark("The rule has been changed since the first run began."),
    "the prediction": mark("The prediction has been changed since the first run began."),
    "the rule and the prediction": mark(
        "The rule and the prediction have been changed since the first run began."
    ),
    "": mark("Neither the prediction nor the rule has been changed since."),
}
"""Sentences by the value of `Evidence.changed`."""


def seen_in_words(claim: Claim, record: Evidence | None) -> str:
    """Return what we had seen before a prediction, and what was changed after it."""
    parts = [tr(_SEEN_BEFORE[claim.seen])]
    if claim.seen_note:
        parts.append(tr(claim.seen_note))
    if record is None or not record.first_run.date:
        return " ".join(parts)
    began = tr("The first run of the record began on {date}.", date=record.first_run.date)
    return " ".join([*parts, began, tr(_CHANGED[record.changed])])


def made_in_words(record: Evidence) -> str:
    """Return the seeds, versions and engine with which a record was made."""
    seeds = {"n": record.n_seeds, "first": record.seeds[0], "last": record.seeds[-1]}
    if record.quick:
        form = tr("{n} seeds, from {first} to {last}, quick form.", **seeds)
    else:
        form = tr("{n} seeds, from {first} to {last}.", **seeds)
    training = tr(
        "attnkit {version}, claim {hash}, trained by {maker}: {steps:,} steps of single "
        "models, tuning included, in {seconds:,.0f} s.",
        version=record.version,
        hash=record.hash,
        maker=str(record.maker),
        steps=record.model_steps,
        seconds=record.seconds,
    )
    return f"{form} {training}"
