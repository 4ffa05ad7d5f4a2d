"""Cards of the questions that people asked, with the answers of the shipped records."""

from __future__ import annotations

from html import escape

from attnkit.evidence.presentation import claims_in_words
from attnkit.evidence.questions import Answer, Question
from attnkit.evidence.record import load_shipped
from attnkit.foundation.tables import html_list
from attnkit.notebook.style import card, paragraph

MOST_CLAIMS = 4
"""Most claims that are not folded away."""


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
