"""Which example the pages that look inside models look at: one of the task's, or one's own."""

from __future__ import annotations

import streamlit as st

from attnkit.analysis.custom_phone_book import (
    MOST_CHARACTERS,
    ask,
    is_phone_book,
    most_entries,
    read_book,
    shortened,
)
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.tasks.fuzzy import FuzzyPhonebook
from attnkit.ui.custom_phone_book import MOST_PROBLEMS, OWN_BOOK
from attnkit.ui.inspection import Subject, remember
from attnkit.ui.markdown import plain


def pick_example(subject: Subject) -> Inspection | None:
    """The example that is looked at, as an inspection of attention; None if there is none to show.

    Those with most wrong answers come first. Held-out examples, or a phone book of one's own where
    the task is one.
    """
    task = subject.experiment.task
    told, order = _told_examples(subject)
    key = f"inspected_example_{subject.lab.filmed_id}_{len(order)}"  # a browser keeps old labels
    remember(key, order, 0, "example")
    remember("inspected_custom_book", (False, True), False)
    own = is_phone_book(task) and bool(st.session_state["inspected_custom_book"])
    example = st.selectbox(
        "Example, most wrong answers first",
        order,
        format_func=told.__getitem__,
        key=key,
        width=430,
        disabled=own,
    )
    if is_phone_book(task):
        st.toggle("A phone book of your own", key="inspected_custom_book")
    return _custom_book(subject) if own else Inspection("attention", example=example)


def _told_examples(subject: Subject) -> tuple[list[str], list[int]]:
    """What is said of every example, and their order; of what still trains, only their numbers."""
    job = subject.ask_for_film()
    found = subject.inspect(Inspection("examples")) if job is not None and job.over else None
    if not isinstance(found, bytes):
        return ["The example of the Lab"], [0]
    header = InspectionResult.from_bytes(found).header
    told = []
    for number, example in enumerate(header["examples"]):
        n_asked = example["n_asked"] * len(header["variants"])
        wrong = f"{example['n_wrong']} of {n_asked} answers wrong"
        told.append(f"{'The Lab’s' if number == 0 else number + 1}: {wrong}. {example['text']}")
    return told, header["order"]


def _custom_book(subject: Subject) -> Inspection | None:
    """A book and a question as typed, as an inspection; what is wrong with them is said."""
    task = subject.experiment.task
    assert is_phone_book(task)
    left, right = st.columns(2, gap="medium")
    text = left.text_area(
        "Your book",
        value=OWN_BOOK,
        height=150,
        max_chars=MOST_CHARACTERS,
        key=f"inspected_book_{task.name}",
        help="A name and a number on each line, parted by a comma, a semicolon, a colon, a tab or "
        f"spaces; 2 to {most_entries(task)} lines.",
    )
    name = right.text_input(
        "Whose number?",
        value=task.default_query,
        max_chars=MOST_CHARACTERS,
        key=f"inspected_question_{task.name}",
    )
    if not isinstance(task, FuzzyPhonebook):
        right.caption(
            "To the models names and numbers are only labels, without spelling: yours take the "
            "places of theirs."
        )
    book = read_book(str(text), task)
    question = None if book.problems else ask(book, str(name), task)
    problems = book.problems or (question.problems if question is not None else [])
    if question is None or problems:
        st.error("  \n".join(map(plain, problems[:MOST_PROBLEMS])), icon=":material/error:")
        return None
    right.caption(" ".join(map(plain, [*book.notes[:MOST_PROBLEMS], *question.notes])))
    return Inspection(
        "attention",
        tokens=tuple(tuple(int(field) for field in token) for token in question.tokens),
        names=tuple(shortened(entry.name) for entry in book.entries),
        numbers=tuple(shortened(question.classes[c]) for c in sorted(question.classes)),
        right=tuple(question.right),
        asking=question.row,
    )
