"""Cards of the questions that people asked, with the answers of the shipped records."""

from __future__ import annotations

from html import escape

from attnkit.claims import CLAIMS
from attnkit.evidence.question import Question, number_sentences, reason_sentences, short_answer
from attnkit.evidence.record import load_shipped, shipped_verdicts
from attnkit.evidence.verdict import MARKS
from attnkit.notebook.style import card, paragraph

MOST_CLAIMS = 4
"""Most claims that are not folded away."""


def question_card(question: Question) -> str:
    """Return the card of a question: the answer, its reason, its numbers and its claims."""
    records, verdicts = load_shipped(), shipped_verdicts()
    answer = escape(short_answer(question, records, verdicts))
    numbers = [escape(text) for text in number_sentences(question, records)]
    claims = [
        f"{MARKS[verdicts[name]]} {verdicts[name]}: {escape(CLAIMS[name].title)} "
        f"(<code>{name}</code>)"
        for name in question.claims
        if name in records
    ]
    parts = [
        f'<p class="title">{answer}</p>' if answer else "",
        paragraph(" ".join(reason_sentences(question, records, verdicts))),
    ]
    if numbers:
        parts += ["<p><b>The numbers</b></p>", _bullets(numbers)]
    if claims:
        first, others = claims[:MOST_CLAIMS], claims[MOST_CLAIMS:]
        parts += ["<p><b>The claims that the answer rests on</b></p>", _bullets(first)]
        if others:
            summary = f"<summary>{len(others)} more</summary>"
            parts.append(f"<details>{summary}{_bullets(others)}</details>")
        hint = f'ak.CLAIMS["{question.claims[0]}"] shows the first one.'
        parts.append(paragraph(hint, "quiet small"))
    parts.append(paragraph(f"Asked: “{question.asked}” ({question.source})", "quiet small"))
    return card(question.title, *parts)


def _bullets(items: list[str]) -> str:
    """Return a list of HTML texts."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
