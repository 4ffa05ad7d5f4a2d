"""Reasons why a variant fails, in one sentence with the numbers of its run.

Every kind of failure is recognised by conditions on the metrics of this run. If none of them holds,
there is no sentence. The sentences say what happened, not what is impossible: such claims need
longer training and more seeds, see `attnkit.claims`.

This package imports no torch and no Streamlit.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from attnkit.analysis.reasons.kinds import (
    ADVICE,
    KINDS,
    OF_EVERY_EVALUATION,
    PAGES,
    VARIED,
    shown,
    solved,
    symmetric,
)
from attnkit.analysis.reasons.numbers import marked_pair, named_query, numbers_of
from attnkit.experiment import Experiment
from attnkit.foundation.language import tr
from attnkit.foundation.words import Sentence, first_true
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant

__all__ = ["Reason", "headline", "marked_pair", "named_query", "reason"]


@dataclass(frozen=True)
class Reason:
    """Reason why a variant fails in one run, or that no variant does.

    Attributes:
        variant: The variant that the sentence is about.
        kind: Kind of failure, for example "mirrored"; "solved" if there is none.
        sentence: One plain sentence with numbers of this run.
        page: Page that shows more about it: "attention", "asymmetry" or "questions"; may be empty.
        advice: What is not known about it, or which setting to change; may be empty.
    """

    variant: Variant
    kind: str
    sentence: str
    page: str
    advice: str = ""

    def in_words(self, experiment: Experiment, seed: int) -> str:
        """Return sentence and advice, with the seed if the sentence is about one of several."""
        of_one = experiment.n_seeds > 1 and self.kind not in ("solved", "other seeds", "failed")
        sentence = self.sentence
        if of_one:
            plain = sentence.removesuffix(".")
            # Translators: puts the seed after a whole sentence, before its full stop.
            sentence = tr("{sentence} (seed {seed}).", sentence=plain, seed=seed)
        return f"{sentence} {self.advice}".rstrip()


def reason(snapshot: Snapshot, variant: Variant, seed: int) -> Reason | None:
    """Return the reason why a variant fails with this seed.

    Returns:
        None if it solves the task, or if no kind of failure fits its metrics.
    """
    run = numbers_of(snapshot, variant, seed)
    row = _row_of(run)
    return None if row is None else _reason(run, row)


def headline(snapshot: Snapshot, seed: int) -> Reason | None:
    """Return the reason to show first: that of the variant that fails most clearly.

    If no variant fails, return the fewest matrices with which the task was solved.

    Returns:
        None if neither holds.
    """
    runs = [numbers_of(snapshot, variant, seed) for variant in snapshot.experiment.sharing]
    found = [(run, row) for run in runs if (row := _row_of(run)) is not None]
    if not found:
        all_solved = solved(runs)
        return None if all_solved is None else _about(*all_solved)
    _, clearest = min(found, key=lambda pair: KINDS.index(pair[1]))
    failing = [pair for pair in found if pair[1].kind == clearest.kind]
    # Rising curves cross each other, so the lowest is named. Runs of most other kinds have similar
    # accuracies, so the first is named, always the same one.
    varied = clearest.kind in VARIED
    return _reason(*(min(failing, key=lambda pair: pair[0].accuracy) if varied else failing[0]))


def _row_of(run: SimpleNamespace) -> Sentence | None:
    """Return the clearest failure that fits a run."""
    rows = (row for row in KINDS if run.counts or row.kind in OF_EVERY_EVALUATION)
    return next((row for row in rows if row.holds(run)), None)


def _reason(run: SimpleNamespace, row: Sentence) -> Reason:
    """Return the reason of a failure that fits a run."""
    advice = first_true(ADVICE.get(row.kind, ()), run, shown)
    return _about(run, row.kind, row.fill(run, shown), advice)


def _about(run: SimpleNamespace, kind: str, sentence: str, advice: str = "") -> Reason:
    """Return a reason about a run, with the page that shows more about it.

    Attention leaves out what a PyTorch module computes, and Asymmetry needs its scores.
    """
    page = PAGES.get(kind, "attention")
    if kind == "unknown" and symmetric(run):
        page = "asymmetry"
    if run.module is not None and page in ("attention", "asymmetry"):
        page = "asymmetry" if run.module.has_scores else ""
    return Reason(run.given, kind, sentence, page, advice)
