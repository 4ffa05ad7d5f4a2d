"""Cards of claims and of what is recorded about them, and of the questions that they answer."""

from __future__ import annotations

from html import escape

from attnkit.claims import Claim
from attnkit.evidence.presentation import ClaimInWords, claims_in_words
from attnkit.evidence.questions import Answer, Question
from attnkit.evidence.record import Evidence, load_shipped
from attnkit.evidence.words import statements_table
from attnkit.foundation.tables import html_list
from attnkit.notebook.plots import figures_of
from attnkit.notebook.style import card, paragraph, table

MOST_CLAIMS = 4
"""Most claims of a question that are not folded away."""


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
    parts = [f"<p><b>{name}:</b> {escape(text)}</p>" for name, text in words.facts.items()]
    if words.evidence is not None:
        found = statements_table(words.evidence)
        rows = [[escape(text or "–") for text in row] for row in found.rows]
        parts.append(table(found.head, rows, worded=True))
        parts.append(paragraph(figures_of(words.claim), "quiet small"))
    return card(words.claim.title, *parts)
