"""Cards of claims and of what is recorded about them, and of the questions that they answer."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from attnkit.claims import Claim
from attnkit.claims.base import Arm
from attnkit.claims.statements import Statement
from attnkit.evidence.presentation import ClaimInWords, claims_in_words
from attnkit.evidence.questions import Answer, Question
from attnkit.evidence.record import Evidence, load_shipped
from attnkit.evidence.stored import Curve
from attnkit.evidence.verdict import Finding
from attnkit.evidence.words import statements_table
from attnkit.figures.marks import band, level
from attnkit.figures.marks import curve as curve_mark
from attnkit.figures.panels import SHARES, Axis, Panel, thin
from attnkit.figures.strips import color_and_symbol
from attnkit.foundation.tables import html_list
from attnkit.notebook.drawings import MOST_POINTS, drawing, interval
from attnkit.notebook.style import card, grid, paragraph, swatch, table
from attnkit.training.summary import percent

MOST_ARMS = 10
"""Most arms with learning curves; `Claim.plot` draws all of them."""

MOST_CLAIMS = 4
"""Most claims of a question that are not folded away."""

_WIDTH = 210
"""Natural width of a learning curve in pixels."""


def claim_card(claim: Claim) -> str:
    """Return the card of a claim, with its shipped record if it has one."""
    (words,) = claims_in_words(load_shipped(), [claim])
    has_record = words.evidence is not None and words.evidence.claim == claim
    return _card(words if has_record else ClaimInWords(claim))


def evidence_card(evidence: Evidence) -> str:
    """Return the card of a record, with its verdict read alone."""
    return _card(ClaimInWords(evidence.claim, evidence, evidence.judgement.verdict))


def question_card(question: Question) -> str:
    """Return the card of a question: the answer, its reason, its numbers and its claims."""
    records = load_shipped()
    answer = Answer(question, records)
    rests_on = (records[name].claim for name in question.claims if name in records)
    claims = [
        f"{escape(words.verdict_line)}: {escape(words.claim.title)} (<code>{words.claim.id}</code>)"
        for words in claims_in_words(records, rests_on)
    ]
    parts = [paragraph(answer.conclusion, "title"), paragraph(answer.reason)]
    if answer.numbers:
        parts += ["<p><b>The numbers</b></p>", html_list([escape(text) for text in answer.numbers])]
    if claims:
        first, others = claims[:MOST_CLAIMS], claims[MOST_CLAIMS:]
        parts += ["<p><b>The claims that the answer rests on</b></p>", html_list(first)]
        if others:
            summary = f"<summary>{len(others)} more</summary>"
            parts.append(f"<details>{summary}{html_list(others)}</details>")
        hint = f'ak.CLAIMS["{question.claims[0]}"] shows the first one.'
        parts.append(paragraph(hint, "quiet small"))
    return card(question.title, *parts, paragraph(answer.asked, "quiet small"))


def _card(words: ClaimInWords) -> str:
    facts = [f"<p><b>{name}:</b> {escape(text)}</p>" for name, text in words.facts.items()]
    evidence = words.evidence
    figures = [] if evidence is None else [_statements(evidence), _curves(evidence)]
    return card(words.claim.title, *facts, *figures)


def _statements(evidence: Evidence) -> str:
    """Return the table of statements, with a drawing of each interval and its region."""
    found = statements_table(evidence)
    drawings = map(_interval, evidence.statements, evidence.findings)
    rows = [
        [escape(first), drawing, *(escape(text or "–") for text in rest)]
        for (first, *rest), drawing in zip(found.rows, drawings, strict=True)
    ]
    note = (
        "Grey: the region in which the statement holds. Mark and bar: median or mean difference "
        "and its 95% interval. Upright line: no difference."
    )
    heads = (found.head[0], "Drawn", *found.head[1:])
    return table(heads, rows, worded=True) + paragraph(note, "quiet small")


def _interval(statement: Statement, finding: Finding) -> str:
    """Return the drawing of a difference; a dash if it is not finite."""
    if not math.isfinite(finding.effect):
        return "–"
    limits = [finding.effect, finding.effect_low, finding.effect_high]
    region = (statement.low, statement.high)
    return interval(*limits, holds=region, label=f"Interval of: {statement.text}")


def _curves(evidence: Evidence) -> str:
    """Return the learning curves of the arms side by side; empty if none are recorded."""
    arms = [arm for name, arm in evidence.arms.items() if name in evidence.curves]
    arms = [arm for arm in arms if len(evidence.curves[arm.name].steps)]
    if not arms:
        return ""
    columns = [_arm(arm, evidence.curves[arm.name]) for arm in arms[:MOST_ARMS]]
    note = "Line: mean over seeds. Band: the middle half of them."
    if all(evidence.curves[arm.name].by == "accuracy" for arm in arms):
        note += " Dotted: chance."
    if len(arms) > MOST_ARMS:
        note += f" The first {MOST_ARMS} of {len(arms)} arms are drawn; `plot` draws all of them."
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
