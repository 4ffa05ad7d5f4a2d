"""Evidence on the Questions page: verdicts with icons, tables in Markdown, links into the Lab."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attnkit.claims import Verdict
from attnkit.evidence.presentation import ClaimInWords
from attnkit.evidence.record import Evidence
from attnkit.evidence.words import Table, finding_in_words
from attnkit.experiment.experiment import SCHEMA, Experiment
from attnkit.ui import widgets
from attnkit.ui.lab.controls import labels_of
from attnkit.ui.lab.guess import outcome_in_words
from attnkit.ui.lab.lab import MOST_COLUMNS
from attnkit.ui.markdown import plain
from attnkit.ui.session import with_hidden

ICONS = {
    Verdict.HELD: ":material/check_circle:",
    Verdict.FAILED: ":material/cancel:",
    Verdict.UNDECIDED: ":material/help:",
}
"""Icon by verdict; the shapes differ, so that colour is not needed."""


def markdown_table(table: Table) -> str:
    """Return a table in Markdown."""
    return widgets.table(table.head, (map(plain, row) for row in table.rows))


def beside_table(own: Evidence, shipped: ClaimInWords) -> str:
    """Return a table of a visitor's run beside the shipped record, if there is one; Markdown."""
    columns = [("your run", own, own.judgement.verdict)]
    if shipped.evidence is not None and shipped.verdict is not None:
        columns.append(("shipped", shipped.evidence, shipped.verdict))
    rows = [
        ("seeds", *(f"{record.seeds[0]} to {record.seeds[-1]}" for _, record, _ in columns)),
        ("verdict", *(f"{verdict.mark} {verdict}" for _, _, verdict in columns)),
        *(
            (
                statement.text,
                *(finding_in_words(statement, r.findings[index]) for _, r, _ in columns),
            )
            for index, statement in enumerate(own.claim.statements)
        ),
    ]
    head = ("", *(name for name, _, _ in columns))
    return markdown_table(Table("Your run", head, rows))


def guess_in_words(guess: Verdict, own_verdict: Verdict, shipped_verdict: Verdict | None) -> str:
    """Return whether a guess was right in words; shipped evidence decides, as it has more seeds."""
    judged = own_verdict if shipped_verdict is None else shipped_verdict
    subject = "Your guess" if judged is own_verdict else "By the shipped evidence your guess"
    return outcome_in_words(guess is judged, subject)


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
