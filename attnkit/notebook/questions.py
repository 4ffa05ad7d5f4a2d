"""Cards of the questions that people asked, with the answers of the shipped records."""

from __future__ import annotations

from html import escape

from attnkit.claims import CLAIMS
from attnkit.evidence.question import Question, number_sentences, reason_sentences, short_answer
from attnkit.evidence.record import load_shipped
from attnkit.evidence.verdict import MARKS
from attnkit.notebook.claims import shipped_verdicts
from attnkit.notebook.style import card, paragraph


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
    return card(
        question.title,
        f'<p class="title">{answer}</p>' if answer else "",
        paragraph(" ".join(reason_sentences(question, records, verdicts))),
        _listed("The numbers", numbers),
        _listed("The claims that the answer rests on", claims),
        paragraph(f"Asked: “{question.asked}” ({question.source})", "quiet small"),
    )


def _listed(heading: str, items: list[str]) -> str:
    """Return a list of HTML texts below a heading; nothing if there are none."""
    rows = "".join(f"<li>{item}</li>" for item in items)
    return f"<p><b>{heading}</b></p><ul>{rows}</ul>" if items else ""
