"""A visitor's own phone book in the Lab, which the trained models answer."""

from __future__ import annotations

from collections import Counter
from html import escape

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.custom_phone_book import (
    MOST_CHARACTERS,
    NOT_IN_BOOK,
    Book,
    BookQuery,
    ask,
    is_phone_book,
    most_entries,
    read_book,
    shortened,
)
from attnkit.analysis.responses import Answers, VariantAnswers
from attnkit.experiment import Experiment
from attnkit.figures.marks import colored_name
from attnkit.foundation.language import tr, tr_n
from attnkit.foundation.tables import Cell, html_table
from attnkit.service.jobs import Job
from attnkit.tasks.fuzzy import FuzzyPhonebook
from attnkit.tasks.phonebook import Phonebook
from attnkit.ui import components
from attnkit.ui.lab.lab import Lab
from attnkit.ui.markdown import plain
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import VIRIDIS, colors_of

AnyPhonebook = Phonebook | FuzzyPhonebook


def custom_phone_book_area(lab: Lab) -> None:
    """Draw the book, the question and the answers of the trained models."""
    job = lab.job
    task = (lab if job is None else job).experiment.task
    assert is_phone_book(task)
    with st.container(border=True, key="custom_book"):
        st.markdown(tr("**Ask the trained models** with a phone book of your own."))
        text, name, right = book_fields(task)
        seeds = [] if job is None else list(job.experiment.seeds)
        seed = None
        if len(seeds) > 1:
            seed = right.selectbox(
                tr("Who answers"),
                [None, *seeds],
                format_func=lambda seed: (
                    tr("the majority of seeds") if seed is None else tr("seed {seed}", seed=seed)
                ),
                key=f"asked_seed_{seeds[0]}_{len(seeds)}",
            )
        asked = read_question(task, text, name)
        if asked is None:
            return
        book, question, notes = asked
        experiment = _experiment_of_models(lab, job)
        if experiment is None:
            st.info(
                tr("Your settings are not trained yet: press **Train**, then the models answer.")
            )
            return
        answers = lab.ask(job, question.tokens)
        if isinstance(answers, str):
            st.warning(plain(f"{answers}."))
            return
        layer = telling_layer(experiment.layer_specs)
        table = answers_table(experiment, book, question, answers, seed, layer)
        components.markup(table, key="custom_book_answers")
        said = [_caption(experiment, answers.step, is_example=job is None)]
        if question.right:
            said.append(tr("Outlined: the right entry."))
        st.caption(" ".join([*said, notes]).rstrip())


def book_fields(task: AnyPhonebook, prefix: str = "") -> tuple[str, str, DeltaGenerator]:
    """Draw the fields of a book and of the requested name, and a note on how names are read.

    Args:
        prefix: Beginning of the keys of the fields.

    Returns:
        The texts of both fields, and the column below the name, which has room for more.
    """
    left, right = st.columns(2, gap="medium")
    text = left.text_area(
        tr("Your book"),
        key=f"{prefix}book_{task.name}",
        value="Jindřich 731\nAnna 204\nBernd 518\nMiriam 366\nTom 942",
        height=190,
        max_chars=MOST_CHARACTERS,
        help=tr(
            "A name and a number on each line. The number is what comes after the last "
            "comma, semicolon, colon or tab; without one, it is the digits at the end of the "
            "line. It consists of digits, spaces and ( ) . / + -. A book has 2 to {most} lines.",
            most=most_entries(task),
        ),
    )
    is_fuzzy = isinstance(task, FuzzyPhonebook)
    name = right.text_input(
        tr("Whose number? Misspell it") if is_fuzzy else tr("Whose number?"),
        key=f"{prefix}asked_{task.name}",
        value=task.default_query,
        max_chars=MOST_CHARACTERS,
    )
    reading = tr(
        "To the models names are labels without spelling: case and spaces do not count, and an "
        "unknown name gets any free label."
    )
    if isinstance(task, FuzzyPhonebook):
        reading = tr(
            "Names are read as their first {n} letters or digits, without case and accents; "
            "shorter ones are filled up.",
            n=task.n_letters,
        )
    right.caption(reading)
    return str(text), str(name), right


def read_question(task: AnyPhonebook, text: str, name: str) -> tuple[Book, BookQuery, str] | None:
    """Return a book, the question to it, and notes on both; None, with a message, if one is wrong.

    The notes are Markdown.
    """
    book = read_book(text, task)
    problems = book.problems
    try:
        question = None if problems else ask(book, name, task)
    except ValueError as error:
        question, problems = None, [str(error)]
    if question is None:
        lines, n_more = problems[:5], len(problems) - 5
        if n_more > 0:
            lines.append(
                tr_n("… and {n} more line like these.", "… and {n} more lines like these.", n_more)
            )
        st.error("  \n".join(map(plain, lines)), icon=":material/error:")
        return None
    return book, question, " ".join(map(plain, [*book.notes[:5], *question.notes]))


def _caption(experiment: Experiment, step: int, *, is_example: bool) -> str:
    if experiment.n_heads > 1:
        if is_example:
            return tr(
                "Models of the finished example, after step {step}: brighter is more attention on "
                "that entry, mean over heads of the last layer.",
                step=step,
            )
        return tr(
            "Models after step {step}: brighter is more attention on that entry, mean over heads "
            "of the last layer.",
            step=step,
        )
    if is_example:
        return tr(
            "Models of the finished example, after step {step}: brighter is more attention on "
            "that entry.",
            step=step,
        )
    return tr("Models after step {step}: brighter is more attention on that entry.", step=step)


def _experiment_of_models(lab: Lab, job: Job | None) -> Experiment | None:
    """Return the experiment whose models answer; None if there are none yet.

    Before anything is trained, the models of the shipped example answer, those of its first seed.
    """
    if job is not None:
        return None if job.snapshot is None or job.state == "failed" else job.experiment
    example = lab.shown(None)
    if example is None or example.experiment != lab.experiment:
        return None
    return lab.experiment.replace(n_seeds=1)


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
    # The class of an entry is its number id, counted from that of the first entry, the smallest.
    numbers = question.tokens[: len(question.tokens) // 2, -1]
    right = {int(numbers[entry] - numbers[0]) for entry in question.right}
    css_class, mark = ("ak-yes", "✓") if answer_class in right else ("ak-no", "✗")
    return f'<span class="{css_class}">{text} {mark}</span>{agree}'


def _attention_cell(weight: float) -> Cell:
    index = round(min(max(weight, 0.0), 1.0) * (len(VIRIDIS) - 1))
    text_color = "#000" if index >= 4 else "#fff"  # with a contrast of at least 4.5
    style = f"background:{VIRIDIS[index]};color:{text_color}"
    return Cell(f"{weight:.2f}", f'style="{style}"')
