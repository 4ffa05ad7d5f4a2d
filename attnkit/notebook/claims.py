"""Cards of claims and of what is recorded about them: prediction, verdict, statements, curves."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from attnkit.claims import Claim, Verdict
from attnkit.claims.base import Arm
from attnkit.claims.statements import Statement
from attnkit.evidence.record import Curve, Evidence, load_shipped, shipped_verdicts
from attnkit.evidence.verdict import MARKS, Finding
from attnkit.evidence.words import prediction_in_words, rows_of, seen_in_words
from attnkit.figures.marks import band, level
from attnkit.figures.marks import curve as curve_mark
from attnkit.figures.panels import SHARES, Axis, Panel, thin
from attnkit.figures.strips import arms_of, color_and_symbol
from attnkit.notebook.drawings import MOST_POINTS, drawing, interval
from attnkit.notebook.style import card, grid, paragraph, swatch, table
from attnkit.training.engine import in_words
from attnkit.training.summary import percent

MOST_ARMS = 10
"""Most arms with learning curves; `Claim.plot` draws all of them."""

_WIDTH = 210
"""Natural width of a learning curve in pixels."""


def claim_card(claim: Claim) -> str:
    """Return the card of a claim, with its shipped record if it has one."""
    record = load_shipped().get(claim.id)
    if record is not None and record.claim == claim:
        return _card(claim, record, shipped_verdicts()[claim.id])
    return _card(claim, None, None)


def evidence_card(evidence: Evidence) -> str:
    """Return the card of a record, with its verdict read alone."""
    return _card(evidence.claim, evidence, evidence.judgement.verdict)


def _card(claim: Claim, evidence: Evidence | None, verdict: Verdict | None) -> str:
    facts = {"Says": claim.says, "Source": claim.source}
    facts["Prediction"] = f"{claim.prediction} Expected verdict: {claim.expected}."
    facts["Seen before"] = seen_in_words(claim, evidence)
    parts = [paragraph(claim.question, "quiet")]
    if verdict is not None:
        outcome = prediction_in_words(claim, verdict)
        answer = f"{MARKS[verdict]} Verdict: {verdict}. The prediction {outcome}."
        parts.append(f"<p><b>{escape(answer)}</b></p>")
        facts["Reason"] = claim.reason
    parts += [
        f"<p><b>{name}:</b> {escape(text)}</p>" for name, text in facts.items() if text.strip()
    ]
    if evidence is None:
        tested = "; ".join(statement.text for statement in claim.statements)
        parts.append(f"<p><b>Tested:</b> {escape(tested)}.</p>")
        parts.append(paragraph("No record of this claim ships with this version.", "quiet"))
    else:
        parts += [_statements(evidence), _curves(evidence), _footnote(evidence)]
    return card(claim.title, *parts)


def _statements(evidence: Evidence) -> str:
    """Return the table of statements, with a drawing of each interval and its region."""
    rows = []
    findings = zip(rows_of(evidence), evidence.statements, evidence.findings, strict=True)
    for row, statement, finding in findings:
        numbers = [row.solved, row.pairs, row.median, row.mean]
        cells = [f"{MARKS[row.verdict]} {row.verdict}", *(text or "–" for text in numbers)]
        rows.append(
            [escape(row.text), _interval(statement, finding), *(escape(cell) for cell in cells)]
        )
    heads = ("Tested", "Mean difference", "Read alone", "Solved", "Seeds", "Median", "Mean")
    note = (
        "Grey: the region in which the statement holds. Mark and bar: mean difference and its 95% "
        "interval. Upright line: no difference."
    )
    return table(heads, rows, worded=True) + paragraph(note, "quiet small")


def _interval(statement: Statement, finding: Finding) -> str:
    """Return the drawing of a mean difference; a dash if it is not finite."""
    if not math.isfinite(finding.effect):
        return "–"
    limits = [finding.effect, finding.effect_low, finding.effect_high]
    region = (statement.low, statement.high)
    return interval(*limits, holds=region, label=f"Interval of: {statement.text}")


def _curves(evidence: Evidence) -> str:
    """Return the learning curves of the arms side by side; empty if none are recorded."""
    arms = [arm for name, arm in arms_of(evidence).items() if name in evidence.curves]
    arms = [arm for arm in arms if len(evidence.curves[arm.name].steps)]
    if not arms:
        return ""
    columns = [_arm(arm, evidence.curves[arm.name]) for arm in arms[:MOST_ARMS]]
    note = "Line: mean over seeds. Band: the middle half of them. Dotted: chance."
    if any(evidence.curves[arm.name].by == "loss" for arm in arms):
        note = "Line: mean over seeds. Band: the middle half of them."
    if len(arms) > MOST_ARMS:
        note += f" Drawn are the first {MOST_ARMS} of {len(arms)} arms; `plot` draws all of them."
    return grid(columns, _WIDTH) + paragraph(note, "quiet small")


def _arm(arm: Arm, curve: Curve) -> str:
    """Return the learning curve of an arm with its last mean."""
    color, _ = color_and_symbol(arm)
    scores = curve.by == "accuracy"
    steps, chosen = thin(curve.steps, MOST_POINTS)
    mean, low, high = (values[chosen] for values in (curve.mean, curve.low, curve.high))
    marks = [band(steps, low, high, color, 0.25), curve_mark(steps, mean, color)]
    top = 1.05 * float(high[np.isfinite(high)].max(initial=0.0)) or 1.0
    y = SHARES if scores else Axis(0.0, top)
    if scores:
        marks.insert(0, level(arm.experiment.task.chance))
    panel = Panel(Axis(0, int(steps[-1]), "steps"), y, marks, height=83)
    last = float(curve.mean[-1])
    value = percent(last) if scores else f"{last:.2f} nats"
    label = f"{curve.by} of {arm.name} over training steps; at last {value}"
    return (
        f'<div class="column"><div>{swatch(color)}<b>{escape(arm.name)}</b>: '
        f"{escape(curve.by)} {value}</div>{drawing(panel, _WIDTH, label)}</div>"
    )


def _footnote(evidence: Evidence) -> str:
    seeds = evidence.seeds
    form = ", quick form" if evidence.quick else ""
    text = (
        f"{len(seeds)} seeds, from {seeds[0]} to {seeds[-1]}{form}. attnkit {evidence.version}, "
        f"trained by {in_words(evidence.engine, evidence.processor)}."
    )
    return paragraph(text, "quiet small")
