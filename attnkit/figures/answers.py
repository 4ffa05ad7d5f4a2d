"""What trained models answered to a book of one's own: values in, an HTML table out."""

from __future__ import annotations

from collections import Counter
from html import escape

import numpy as np

from attnkit.analysis.custom_phone_book import NOT_IN_BOOK, Book, BookQuery, shortened
from attnkit.analysis.responses import Answers, VariantAnswers
from attnkit.experiment import Experiment
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import colors_of

BEST = ' class="ak-best"'

_VIRIDIS = (
    "#440154 #482878 #3e4989 #31688e #26828e #1f9e89 #35b779 #6ece58 #b5de2b #fde725"
).split()
_BRIGHT = 4
"""From this colour on black is read more easily than white; the contrast is 4.5 or more."""


def answers_table(
    experiment: Experiment,
    book: Book,
    question: BookQuery,
    answers: Answers,
    seed: int | None,
    layer: int,
) -> str:
    """One row per variant: its answer, whether it is right, its attention on every entry.

    Args:
        seed: whose answer; None: that of most seeds, and mean attention.
        layer: counted from 0.
    """
    colors = colors_of(experiment.sharing)
    heads = "".join(
        f'<th scope="col" title="{escape(entry.name)} {escape(entry.number)}"'
        f"{BEST if place in question.right else ''}>{escape(shortened(entry.name))}"
        f"<br/><small>{escape(shortened(entry.number))}</small></th>"
        for place, entry in enumerate(book.entries)
    )
    rows = []
    for variant, color, own in zip(experiment.sharing, colors, answers.variants, strict=True):
        name = (
            f'<th scope="row"><span style="color:{color}">■</span> {escape(title_of(variant))}</th>'
        )
        if own.refusal:
            rows.append(
                f'<tr>{name}<td colspan="{len(book.entries) + 1}">{escape(own.refusal)}</td></tr>'
            )
            continue
        chosen = None if seed is None else experiment.seeds.index(seed)
        rows.append(
            f"<tr>{name}{_answer(question, own, chosen)}{_cells(own, question, chosen, layer)}</tr>"
        )
    return (
        '<div class="ak-book" tabindex="0"><table><thead><tr><td></td><th scope="col">answer</th>'
        f"{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _answer(question: BookQuery, own: VariantAnswers, seed: int | None) -> str:
    given = own.answers[:, question.row].tolist()
    answer, n_agree = Counter(given).most_common(1)[0] if seed is None else (given[seed], 0)
    text = question.classes.get(answer, NOT_IN_BOOK)
    agree = f" <small>{n_agree} of {len(given)}</small>" if seed is None and len(given) > 1 else ""
    if not question.right:
        return f"<td><b>{escape(shortened(text))}</b>{agree}</td>"
    right = {_class_of(place, question) for place in question.right}
    kind, mark = ("ak-yes", "✓") if answer in right else ("ak-no", "✗")
    return f'<td><span class="{kind}">{escape(shortened(text))} {mark}</span>{agree}</td>'


def _class_of(place: int, question: BookQuery) -> int:
    """The class of an entry: its number id, counted from the least in the book."""
    numbers = question.tokens[: len(question.tokens) // 2, -1]
    least = question.tokens[0, -1]  # the first entry has the first number
    return int(numbers[place] - least)


def _cells(own: VariantAnswers, question: BookQuery, seed: int | None, layer: int) -> str:
    weights = own.attention[:, layer, question.row]  # (s, n)
    weights = weights.mean(0) if seed is None else weights[seed]
    return "".join(_cell(float(weight)) for weight in np.nan_to_num(weights))


def _cell(weight: float) -> str:
    place = round(min(max(weight, 0.0), 1.0) * (len(_VIRIDIS) - 1))
    ink = "#000" if place >= _BRIGHT else "#fff"
    return f'<td style="background:{_VIRIDIS[place]};color:{ink}">{weight:.2f}</td>'
