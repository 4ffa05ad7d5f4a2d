"""Page that shows one inspection of a run as a film: pickers, figures and downloads.

The inspected example is a held-out one of the task, or the visitor's phone book.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from attnkit.analysis.custom_phone_book import is_phone_book, shortened
from attnkit.analysis.inspection.request import Inspection, View
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.ui.inside.inspected_run import (
    InspectedRun,
    open_inspected_run,
    pick_layer_and_head,
    remembered,
    show_film,
)
from attnkit.ui.inside.takeaway import take_away
from attnkit.ui.lab.custom_phone_book import book_fields, read_question
from attnkit.ui.lab.lab import Lab
from attnkit.ui.routing import require_route


def film_page(
    page: str, title: str, view: View, below: Callable[[Lab], None] = lambda lab: None
) -> None:
    """Draw a page of a view; `below` draws between its figures and the downloads."""
    require_route()
    subject = open_inspected_run(page, title)
    layer, head = pick_layer_and_head(subject)
    example = _pick_example(subject)
    if example is None:
        below(subject.lab)
        return
    query, key = _pressed(subject, example, layer) if view == "attention" else (0, None)
    inspection = replace(
        example, view=view, layer=layer, head=head, query_index=query, key_position=key
    )
    show_film(subject, inspection, page)
    below(subject.lab)
    take_away(subject, inspection, page, title)


def _pick_example(subject: InspectedRun) -> Inspection | None:
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


def _pressed(
    subject: InspectedRun, example: Inspection, layer: int
) -> tuple[int | None, int | None]:
    """Return the query and the key that were pressed in figures of the same example and layer.

    They are the index of the query and the position of the key; None if none was pressed.
    """
    memory = st.session_state.setdefault("remembered", {})
    if memory.get("example of the query") != example:
        memory["example of the query"] = example
        memory.pop("query_index", None)
        memory.pop("key_position", None)
    pressed: int | None = memory.get("query_index", example.query_index)
    key: int | None = memory.get("key_position")
    positions = range(*subject.experiment.layer_specs[layer].key_positions)
    if example.tokens:  # a custom book has a size of its own
        positions = range(len(example.tokens))
    return pressed, key if key in positions else None
