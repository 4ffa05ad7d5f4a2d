"""Evidence on the Questions page: verdicts with a mark, tables, links into the Lab."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnkit.claims import CLAIMS, Claim, Verdict
from attnkit.evidence.found import main_found, main_statement
from attnkit.evidence.record import Evidence
from attnkit.evidence.trials import Tuned
from attnkit.evidence.verdict import MARKS
from attnkit.evidence.words import finding_in_words, rows_of
from attnkit.experiment.experiment import SCHEMA, Experiment
from attnkit.training.summary import percent
from attnkit.ui.controls import labels_of
from attnkit.ui.guess import outcome_in_words
from attnkit.ui.lab import MOST_COLUMNS
from attnkit.ui.markdown import plain
from attnkit.ui.session import with_hidden

ICONS: dict[Verdict, str] = {
    "held": ":material/check_circle:",
    "did not hold": ":material/cancel:",
    "undecided": ":material/help:",
}
"""Icon by verdict; the shapes differ, so that colour is not needed."""

BETS: Mapping[str, Verdict] = {
    "It will hold": "held",
    "It will not hold": "did not hold",
    "These seeds will not tell": "undecided",
}
"""Guesses about a claim that belongs to no question, with the verdict that each predicts."""


@dataclass(frozen=True)
class ShippedEvidence:
    """Evidence that ships with this copy.

    Attributes:
        records: Evidence by the claim's id.
        verdicts: Verdict by the claim's id; full records are judged together.
    """

    records: Mapping[str, Evidence]
    verdicts: Mapping[str, Verdict]


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict in bold, with its icon; Markdown."""
    return f"{ICONS[verdict]} **{verdict}**"


def statement_with_verdict(record: Evidence, verdict: Verdict) -> str:
    """Return the main statement of a claim, as it was tested, with its verdict; Markdown."""
    statement, finding = main_statement(record, verdict)
    ending = {
        "held": "It **held**.",
        "did not hold": "It **did not hold** here.",
        "undecided": "It is **undecided**.",
    }[finding.verdict]
    stricter = ""
    if verdict == "undecided" != finding.verdict:
        stricter = " Read together with all other claims, the claim is undecided."
    return f"{ICONS[finding.verdict]} Tested: “{plain(statement.text)}”. {ending}{stricter}"


def means_in_words(record: Evidence) -> str:
    """Return the means of the arms of the first statement in a few words; medians of steps."""
    statement = record.claim.statements[0]
    measure = statement.measured
    if measure.unit == "doublings":
        values = record.scores_at(statement.measure, statement.at)
        medians = [(arm, float(np.median(values[arm]))) for arm in statement.arms]
        steps = [f"{arm} {2**x:,.0f}" if x < np.inf else f"{arm} never" for arm, x in medians]
        return f"Median {measure.title}: {', '.join(steps)}."
    means = []
    for arm in statement.arms:
        mean = record.mean(arm, statement.measure, statement.at)
        is_share = measure.unit == "points" and not np.isnan(mean)
        value = percent(mean) if is_share else f"{mean:.2f} {measure.unit}".rstrip()
        means.append(f"{arm} {value}")
    title = measure.title.removeprefix("mean ")
    return f"Mean {title}: {', '.join(means)}."


def made_in_words(evidence: Evidence) -> str:
    """Return how a record was made: version, hash of the claim, seeds, steps and time."""
    return (
        f"This record: attnkit {evidence.version}, claim {evidence.hash}, seeds "
        f"{evidence.seeds[0]} to {evidence.seeds[-1]}, learning rates tuned for each variant. "
        f"{evidence.model_steps:,} training steps of single models, tuning included, in "
        f"{evidence.seconds:,.0f} s."
    )


def claims_table(shipped: Mapping[str, Evidence], verdicts: Mapping[str, Verdict]) -> pd.DataFrame:
    """Return a row for every claim, in the order of `CLAIMS`."""
    rows = []
    for name, claim in CLAIMS.items():
        verdict, record = verdicts.get(name), shipped.get(name)
        rows.append(
            {
                "claim": claim.title,
                "verdict": "not run yet" if verdict is None else f"{MARKS[verdict]} {verdict}",
                "found": "" if record is None or verdict is None else main_found(record, verdict),
                "predicted": f"{MARKS[claim.expected]} {claim.expected}",
                "came_true": "" if verdict is None else came_true(claim, verdict),
                "seen": claim.seen,
                "source": claim.source,
                "family": claim.family,
            }
        )
    return pd.DataFrame(rows)


def came_true(claim: Claim, verdict: Verdict) -> str:
    """Return whether a claim's prediction came true, in a word."""
    if verdict == claim.expected:
        return "yes"
    return "? undecided" if verdict == "undecided" else "✗ no"


def statements_table(record: Evidence) -> str:
    """Return a table of a claim's statements and what the seeds say on each; Markdown."""
    rows = [
        f"| {plain(row.text)} | {plain(row.numbers)} | {verdict_text(row.verdict)} |"
        for row in rows_of(record)
    ]
    head = "| Tested | Numbers | Verdict, read alone |"
    return "\n".join([head, "|---|---|---|", *rows])


def beside_table(
    own: Evidence, shipped: Evidence | None, verdict: Verdict | None, own_verdict: Verdict
) -> str:
    """Return a table of a visitor's run beside shipped evidence; Markdown.

    Args:
        own: Evidence of the run.
        shipped: The shipped record of the same claim, if there is one.
        verdict: Verdict of the shipped record, read together with all others.
        own_verdict: Verdict of the run, read alone.
    """
    labels = ["", "seeds", "verdict"]
    own_cells = ["your run", _seeds(own), verdict_text(own_verdict)]
    columns = [labels, own_cells]
    if shipped is not None and verdict is not None:
        findings = zip(own.claim.statements, shipped.findings, strict=False)
        shipped_cells = [
            plain(finding_in_words(statement, finding)) for statement, finding in findings
        ]
        columns.append(["shipped", _seeds(shipped), verdict_text(verdict), *shipped_cells])
    for statement, finding in zip(own.claim.statements, own.findings, strict=False):
        labels.append(plain(statement.text))
        own_cells.append(plain(finding_in_words(statement, finding)))
    head, *rows = (f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True))
    return "\n".join([head, f"|{'---|' * len(columns)}", *rows])


def _seeds(record: Evidence) -> str:
    return f"{record.seeds[0]} to {record.seeds[-1]}"


def tuning_table(tuned: Mapping[str, Tuned]) -> str:
    """Return a table of the learning rates that were tried for every arm; Markdown."""
    rows = []
    for name, tuning in tuned.items():
        cells = []
        for rate in sorted(tuning.tried):
            cell = plain(f"{rate:g}: {tuning.in_words(rate)}")
            cells.append(f"**{cell}** ✓" if rate == tuning.rate else cell)
        edge = "yes" if tuning.at_edge else ""
        rows.append(f"| {plain(name)} | {tuning.by} | {', '.join(cells)} | {edge} |")
    head = "| variant | judged by | rate: mean over the tuning seeds | best at the edge |"
    return "\n".join([head, "|---|---|---|---|", *rows])


def disagreement(
    claim: Claim, own_verdict: Verdict, shipped_verdict: Verdict | None, n_shipped: int
) -> str:
    """Return why a run of few seeds differs from shipped evidence; empty if it does not.

    Args:
        claim: The claim.
        own_verdict: Verdict of the visitor's run.
        shipped_verdict: Shipped verdict, if there is one.
        n_shipped: Number of seeds of the shipped evidence.
    """
    if shipped_verdict is None or own_verdict == shipped_verdict:
        return ""
    n_own = claim.quick_seeds
    if own_verdict == "undecided":
        n_statements = len(claim.statements)
        more = ""
        if n_statements > 1:
            more = f", all the more for a claim that says {n_statements} things at once"
        return f"{n_own} seeds are few{more}: no verdict. The shipped one rests on {n_shipped}."
    if shipped_verdict == "undecided":
        return (
            f"Read alone, your {n_own} seeds decide. The shipped {n_shipped}, read together "
            "with all other claims, do not: that is the stricter reading."
        )
    return (
        f"Your {n_own} seeds say the opposite of the shipped {n_shipped}. Run it again to "
        "see how often that happens."
    )


def guess_in_words(guess: Verdict, own_verdict: Verdict, shipped_verdict: Verdict | None) -> str:
    """Return whether a guess was right in words; shipped evidence decides, as it has more seeds."""
    judged = own_verdict if shipped_verdict is None else shipped_verdict
    if shipped_verdict is not None and shipped_verdict != own_verdict:
        return outcome_in_words(guess == judged, "By the shipped evidence your guess")
    return outcome_in_words(guess == judged)


def _what_differs(experiment: Experiment, others: Sequence[Experiment]) -> str:
    """Return the variants of an experiment, and its settings that others of its task lack."""
    names = [re.sub(r" learning_rate=\S+", "", variant.value) for variant in experiment.sharing]
    shown = " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} others"
    params, labels = experiment.to_params(), labels_of(experiment.task.name)
    settings = [
        f"{labels[name].lower()} {value}"
        for name, value in params.items()
        if name in labels
        and name not in ("sharing", "n_seeds", "evaluate_every")
        and any(one.to_params().get(name) != value for one in others)
    ]
    return f"{shown} ({', '.join(settings)})" if settings else shown


def lab_links(experiments: Sequence[Experiment]) -> list[tuple[str, dict[str, str]]]:
    """Return labels and query parameters of links that set experiments up in the Lab.

    A label names the task; where several experiments have the same task, it also names the variants
    and the settings by which they differ. The Lab shows at most `MOST_COLUMNS` columns; a label
    says if further ones are left out.
    """
    links = []
    for experiment in experiments:
        same_task = [one for one in experiments if one.task.title == experiment.task.title]
        label = "Set it up in the Lab"
        if len(experiments) > 1:
            label = f"Set up in the Lab: {experiment.task.title}"
        if len(same_task) > 1:
            label += f", {_what_differs(experiment, same_task)}"
        if len(experiment.sharing) > MOST_COLUMNS:
            label += f", first {MOST_COLUMNS} of {len(experiment.sharing)} variants"
            experiment = experiment.replace(sharing=experiment.sharing[:MOST_COLUMNS])
        links.append((label, with_hidden(experiment.to_params() or {"v": str(SCHEMA)})))
    return links
