"""What pages say of evidence: verdicts in words with a mark, tables, links into the Lab."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from attnkit.claims import CLAIMS, Claim, Verdict
from attnkit.evidence.record import QUICK_SEEDS, Evidence, told
from attnkit.evidence.trials import Tuned
from attnkit.evidence.verdict import MARKS
from attnkit.experiment import SCHEMA, Experiment
from attnkit.ui.guess import outcome_told
from attnkit.ui.markdown import plain
from attnkit.ui.session import MOST_COLUMNS, with_hidden

ICONS: dict[Verdict, str] = {
    "supported": ":material/check_circle:",
    "contradicted": ":material/cancel:",
    "inconclusive": ":material/help:",
}
"""Beside the word: shapes that differ."""

BETS: Mapping[str, Verdict] = {
    "It will be supported": "supported",
    "It will be contradicted": "contradicted",
    "So few seeds will not tell": "inconclusive",
}
"""What can be guessed about a claim for which no question asks."""

HOW_VERDICTS_ARE_MADE = """
1. A claim says in numbers what must hold, such as “Q=K is worse than QKV by more than 5 points”. \
That, and what we expect, is written down before anything is trained.
2. Every variant is trained on the same seeds, each at the best of several learning rates, which \
were found on other seeds.
3. Accuracies: in how many pairs of seeds does it hold? With the exact binomial interval (Clopper \
and Pearson), against one half. Losses and symmetries: the mean difference, with Student’s interval.
4. The 95% interval lies where the claim wants it: **supported**. It lies outside: \
**contradicted**. It reaches across, or there are fewer than 6 seeds: **inconclusive**.
5. All that a claim says must hold. “Cannot” must also hold if the variant is trained three times \
as long, and if it is trained in another way: with a schedule, warm-up, clipped gradients and nine \
learning rates.
6. Shipped verdicts are read together (Holm): the chance that any of them is wrong is at most 5%. \
A run of your own is read alone.
"""
"""The rule, for those who ask."""


def verdict_text(verdict: Verdict) -> str:
    """In bold, with its icon; Markdown."""
    return f"{ICONS[verdict]} **{verdict}**"


def claim_told(record: Evidence, verdict: Verdict) -> str:
    """What it comes down to, and its verdict; Markdown."""
    claim = record.claim
    others = Counter(found.verdict for found in record.findings[1 : len(claim.statements)])
    told = ", ".join(f"{count} {which}" for which, count in others.items())
    more = f" Of its other statements, read alone: {told}." if told else ""
    return f"{verdict_text(verdict)}: “{plain(claim.statements[0].text)}”.{more}"


def means_told(record: Evidence) -> str:
    """What the arms of the first statement reached on average, in a few words."""
    statement = record.claim.statements[0]
    measure = statement.measured
    scale, unit = (100, "%") if measure.unit == "points" else (1, f" {measure.unit}".rstrip())
    digits = 1 if measure.unit == "points" else 2
    reached = [
        f"{arm} {scale * record.mean(arm, statement.measure):.{digits}f}{unit}"
        for arm in statement.arms
    ]
    return f"Mean {measure.title}: {', '.join(reached)}."


def shipped_with(evidence: Evidence) -> str:
    """Where shipped evidence comes from."""
    return (
        f"Shipped evidence: attnkit {evidence.version}, claim {evidence.hash}, "
        f"{len(evidence.seeds)} seeds, learning rates tuned for each variant."
    )


def claims_table(shipped: Mapping[str, Evidence], verdicts: Mapping[str, Verdict]) -> pd.DataFrame:
    """Every claim: who says it, what was expected, what came out. In the order of `CLAIMS`."""
    rows = []
    for name, claim in CLAIMS.items():
        verdict, record = verdicts.get(name), shipped.get(name)
        rows.append(
            {
                "claim": claim.title,
                "verdict": "not run yet" if verdict is None else f"{MARKS[verdict]} {verdict}",
                "predicted": f"{MARKS[claim.expected]} {claim.expected}",
                "foretold": "" if verdict is None else foretold(claim, verdict),
                "found": "" if record is None else record.main_finding,
                "source": claim.source,
                "family": claim.family,
            }
        )
    return pd.DataFrame(rows)


def foretold(claim: Claim, verdict: Verdict) -> str:
    """Whether it came as predicted, in a word."""
    return "yes" if verdict == claim.expected else "✗ no"


def statements_table(record: Evidence) -> str:
    """What must hold, and what the seeds say; Markdown."""
    rows = [
        f"| {plain(statement.text)} | {plain(told(statement, found))} "
        f"| {verdict_text(found.verdict)} |"
        for statement, found in zip(record.statements, record.findings, strict=True)
    ]
    return "\n".join(["| what must hold | what the seeds say | alone |", "|---|---|---|", *rows])


def beside_table(
    own: Evidence, shipped: Evidence | None, verdict: Verdict | None, own_verdict: Verdict
) -> str:
    """A run of a visitor's beside shipped evidence; Markdown.

    Args:
        verdict: of the shipped evidence, read together with all others.
    """
    columns = [["", "seeds", "verdict"], ["your run", _seeds(own), verdict_text(own_verdict)]]
    if shipped is not None and verdict is not None:
        columns.append(["shipped", _seeds(shipped), verdict_text(verdict)])
    for place, statement in enumerate(own.claim.statements):
        columns[0].append(plain(statement.text))
        columns[1].append(plain(told(statement, own.findings[place])))
        if len(columns) > 2 and shipped is not None:
            columns[2].append(plain(told(statement, shipped.findings[place])))
    head, *rows = (f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True))
    return "\n".join([head, f"|{'---|' * len(columns)}", *rows])


def _seeds(record: Evidence) -> str:
    return f"{record.seeds[0]} to {record.seeds[-1]}"


def tuning_table(tuned: Mapping[str, Tuned]) -> str:
    """Which learning rates were tried for every arm, and which was taken; Markdown."""
    rows = []
    for name, own in tuned.items():
        cells = []
        for rate in sorted(own.tried):
            cell = plain(f"{rate:g}: {own.told(rate)}")
            cells.append(f"**{cell}** ✓" if rate == own.rate else cell)
        edge = "yes" if own.at_edge else ""
        rows.append(f"| {plain(name)} | {own.by} | {', '.join(cells)} | {edge} |")
    head = "| variant | judged by | rate: mean over the tuning seeds | best at the edge |"
    return "\n".join([head, "|---|---|---|---|", *rows])


def disagreement(claim: Claim, own: Verdict, shipped: Verdict | None, n_shipped: int) -> str:
    """Why a run of few seeds may say something else than shipped evidence; or nothing."""
    if shipped is None or own == shipped:
        return ""
    if own == "inconclusive":
        n = len(claim.statements)
        more = f", all the more for a claim that says {n} things at once" if n > 1 else ""
        return (
            f"{QUICK_SEEDS} seeds are few{more}: no verdict. The shipped one rests on {n_shipped}."
        )
    if shipped == "inconclusive":
        return (
            f"Read alone, your {QUICK_SEEDS} seeds decide. The shipped {n_shipped}, read together "
            "with all other claims, do not: that is the stricter reading."
        )
    return (
        f"Your {QUICK_SEEDS} seeds say the opposite of the shipped {n_shipped}. Run it again to "
        "see how often that happens."
    )


def guess_told(guess: Verdict, own: Verdict, shipped: Verdict | None) -> str:
    """Whether a guess was right: by shipped evidence, which has more seeds, if there is any."""
    judged = own if shipped is None else shipped
    if shipped is not None and shipped != own:
        by = "By the shipped evidence your guess"
    else:
        by = "Your guess"
    return outcome_told(guess == judged, by)


def lab_links(experiments: Sequence[Experiment]) -> list[tuple[str, dict[str, str]]]:
    """(label, query parameters) of links that set them up in the Lab.

    It shows so many columns at once; further ones of an experiment are left out, and that is said.
    """
    titles = Counter(experiment.task.title for experiment in experiments)
    numbers: Counter[str] = Counter()
    links = []
    for experiment in experiments:
        title = experiment.task.title
        numbers[title] += 1
        label = f"In the Lab: {title}" if len(experiments) > 1 else "Set it up in the Lab"
        if titles[title] > 1:
            label += f" ({numbers[title]} of {titles[title]})"
        if len(experiment.sharing) > MOST_COLUMNS:
            label += f", first {MOST_COLUMNS} of {len(experiment.sharing)} variants"
            experiment = experiment.replace(sharing=experiment.sharing[:MOST_COLUMNS])
        links.append((label, with_hidden(experiment.to_params() or {"v": str(SCHEMA)})))
    return links
