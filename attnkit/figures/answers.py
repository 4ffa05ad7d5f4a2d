"""HTML table of the answers that trained models give to a visitor's phone book."""

from __future__ import annotations

from collections import Counter
from html import escape

import numpy as np

from attnkit.analysis.custom_phone_book import NOT_IN_BOOK, Book, BookQuery, shortened
from attnkit.analysis.responses import Answers, VariantAnswers
from attnkit.experiment import Experiment
from attnkit.figures.marks import colored_name
from attnkit.foundation.language import tr
from attnkit.foundation.tables import Cell, html_table
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import VIRIDIS, colors_of

_BRIGHT = 4
"""Index of the first colour on which text is black, not white; the contrast is at least 4.5."""


def answers_table(
    experiment: Experiment,
    book: Book,
    question: BookQuery,
    answers: Answers,
    seed: int | None,
    layer: int,
) -> str:
    """Return an HTML table with a row per variant: its answer and its attention on every entry.

    Args:
        seed: Seed whose answer is shown; None for the most frequent answer and the mean attention.
        layer: Layer whose attention is shown, counted from 0.
    """
    seed_index = None if seed is None else experiment.seeds.index(seed)
    head = [
        Cell(
            f"{escape(shortened(entry.name))}<br/><small>{escape(shortened(entry.number))}</small>",
            f'title="{escape(f"{entry.name} {entry.number}")}"'
            + ' class="ak-best"' * (index in question.right),
        )
        for index, entry in enumerate(book.entries)
    ]
    rows: list[list[str | Cell]] = []
    colors = colors_of(experiment.sharing)
    for variant, color, answer in zip(experiment.sharing, colors, answers.variants, strict=True):
        name = Cell(colored_name(color, title_of(variant)), is_name=True)
        if answer.refusal:
            refusal = escape(tr(answer.refusal))
            rows.append([name, Cell(refusal, f'colspan="{len(book.entries) + 1}"')])
            continue
        weights = answer.attention[:, layer, question.row]  # (s, n)
        weights = weights.mean(0) if seed_index is None else weights[seed_index]
        cells = map(_attention_cell, np.nan_to_num(weights).tolist())
        rows.append([name, _answer_cell(answer, question, seed_index), *cells])
    table = html_table([tr("variant"), tr("answer"), *head], rows)
    return f'<div class="ak-book" tabindex="0">{table}</div>'


def _answer_cell(answer: VariantAnswers, question: BookQuery, seed_index: int | None) -> str:
    classes = answer.answers[:, question.row].tolist()
    if seed_index is None:
        answer_class, n_agree = Counter(classes).most_common(1)[0]
        n_classes = len(classes)
        of_all = tr("{n} of {all}", n=n_agree, all=n_classes)
        agree = f" <small>{of_all}</small>" if n_classes > 1 else ""
    else:
        answer_class, agree = classes[seed_index], ""
    text = escape(shortened(question.classes.get(answer_class, tr(NOT_IN_BOOK))))
    if not question.right:
        return f"<b>{text}</b>{agree}"
    right = {_class_of(entry, question) for entry in question.right}
    css_class, mark = ("ak-yes", "✓") if answer_class in right else ("ak-no", "✗")
    return f'<span class="{css_class}">{text} {mark}</span>{agree}'


def _class_of(entry: int, question: BookQuery) -> int:
    """Return the class of an entry: its number id, counted from the smallest one in the book."""
    numbers = question.tokens[: len(question.tokens) // 2, -1]
    return int(numbers[entry] - numbers[0])  # The first entry has the smallest number id.


def _attention_cell(weight: float) -> Cell:
    index = round(min(max(weight, 0.0), 1.0) * (len(VIRIDIS) - 1))
    text_color = "#000" if index >= _BRIGHT else "#fff"
    style = f"background:{VIRIDIS[index]};color:{text_color}"
    return Cell(f"{weight:.2f}", f'style="{style}"')
