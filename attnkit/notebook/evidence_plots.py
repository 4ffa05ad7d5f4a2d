"""Interactive figures of what is recorded about a claim, with titles and how to read them."""

from __future__ import annotations

from attnkit.claims import Claim
from attnkit.evidence.record import Evidence, load_shipped
from attnkit.figures.differences import DIFFERENCES_KEY, plot_differences
from attnkit.figures.evidence import EVIDENCE_KEY, plot_evidence
from attnkit.figures.learning import LEARNING_KEY, plot_learning
from attnkit.figures.panels import Figure


def plot_arms(value: Claim | Evidence) -> tuple[Figure, str, str]:
    """Plot the scores of all seeds of every arm."""
    evidence = _evidence(value)
    return plot_evidence(evidence), evidence.claim.title, EVIDENCE_KEY


def plot_pairs(value: Claim | Evidence) -> tuple[Figure, str, str]:
    """Plot the differences of the arms seed by seed, and the regions of the statements."""
    evidence = _evidence(value)
    return plot_differences(evidence), evidence.claim.title, DIFFERENCES_KEY


def plot_long_runs(value: Claim | Evidence) -> tuple[Figure, str, str]:
    """Plot the learning curves of arms that are trained for longer.

    Raises:
        ValueError: If there are none.
    """
    evidence = _evidence(value)
    figure = plot_learning(evidence)
    if figure is None:
        raise ValueError(
            "kind: got 'learning', allowed scores, differences: this claim has no long runs"
        )
    return figure, evidence.claim.title, LEARNING_KEY


def _evidence(value: Claim | Evidence) -> Evidence:
    """Return a record, or the shipped record of a claim.

    Raises:
        ValueError: If no record of the claim ships.
    """
    if isinstance(value, Evidence):
        return value
    record = load_shipped().get(value.id)
    if record is None or record.claim != value:
        raise ValueError(f"claim: got {value.id!r}, allowed one whose record ships, or a record")
    return record
