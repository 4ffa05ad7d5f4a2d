"""Picker of the inspected example: a held-out one of the task, or the visitor's phone book."""

from __future__ import annotations

import streamlit as st

from attnkit.analysis.custom_phone_book import is_phone_book, shortened
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.ui.inside.inspected_run import InspectedRun, remembered
from attnkit.ui.lab.custom_phone_book import book_fields, read_question


def pick_example(subject: InspectedRun) -> Inspection | None:
    """Draw the picker in the subject's row, and return the example as an inspection of attention.

    Held-out examples are sorted by their number of wrong answers, most first. Where the task is a
    phone book, visitors can write their own; None is returned while it has problems.
    """
    task = subject.experiment.task
    descriptions, order = _descriptions(subject)
    key = f"inspected_example_{subject.lab.filmed_id}_{len(order)}"  # a browser keeps old labels
    own_book = remembered("custom_book", (False, True), False)
    is_custom = is_phone_book(task) and bool(st.session_state["inspected_custom_book"])
    example = subject.row.selectbox(
        "Example, most wrong answers first",
        order,
        format_func=descriptions.__getitem__,
        width=320,
        disabled=is_custom,
        **remembered("example", order, 0, key),
    )
    if is_phone_book(task):
        subject.row.toggle("A phone book of your own", **own_book)
    return _custom_book(subject) if is_custom else Inspection("attention", example=example)


def _descriptions(subject: InspectedRun) -> tuple[list[str], list[int]]:
    """Return the description of every example, and the order in which they are listed.

    While the run trains, there is only the example of the Lab.
    """
    job = subject.ask_for_film()
    blob = subject.inspect(Inspection("examples")) if job is not None and job.over else None
    if not isinstance(blob, bytes):
        return ["The example of the Lab"], [0]
    header = InspectionResult.from_bytes(blob).header
    descriptions = []
    for index, example in enumerate(header["examples"]):
        n_answers = example["n_asked"] * len(header["variants"])
        wrong = f"{example['n_wrong']} of {n_answers} answers wrong"
        name = "The Lab’s" if index == 0 else index + 1
        descriptions.append(f"{name}: {wrong}. {example['text']}")
    return descriptions, header["order"]


def _custom_book(subject: InspectedRun) -> Inspection | None:
    """Draw the fields of a book and a question, and return them as an inspection.

    None is returned while they have problems, which are shown.
    """
    task = subject.experiment.task
    assert is_phone_book(task)
    text, name, right = book_fields(task, "inspected_")
    asked = read_question(task, text, name)
    if asked is None:
        return None
    book, question, notes = asked
    right.caption(notes)
    return Inspection(
        "attention",
        tokens=tuple(tuple(int(field) for field in token) for token in question.tokens),
        names=tuple(shortened(entry.name) for entry in book.entries),
        numbers=tuple(shortened(question.classes[c]) for c in sorted(question.classes)),
        right=tuple(question.right),
        query_index=question.row,
    )
