"""A typed phone book in the Lab: trained models answer its queries, and mistakes are named."""

import re

import pytest
from visiting import drawn, job_of, plain_text, press, show, visit, visit_small, watch

from attnkit.service.service import TrainingService

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


@pytest.fixture(scope="module")
def trained_tabs(pages_service):
    """Tabs whose phone books are trained, exact and fuzzy."""
    tabs = {}
    for task, steps in (("phonebook", "250"), ("fuzzy_phonebook", "400")):
        tab = visit(v="1", task=task, sharing="QKV,Q=K", n_seeds="2", steps=steps, first_seed="77")
        press(tab, "train")
        tabs[task] = watch(tab, lambda job: job.over)
    return tabs


def answers_to(tab, task, book=None, name=None):
    """Type a book and a query, and return the answers without markup."""
    if book is not None:
        tab.text_area(key=f"book_{task}").set_value(book)
    if name is not None:
        tab.text_input(key=f"asked_{task}").set_value(name)
    show(tab)
    return re.sub(r"<[^>]*>", " ", drawn(tab, "custom_book_answers")["diagram"])


@pytest.mark.parametrize(("task", "name"), [("phonebook", "anna"), ("fuzzy_phonebook", "Amna")])
def test_trained_models_answer_a_book_of_ones_own(trained_tabs, task, name):
    """Trained models answer a typed book of another number of entries with its own numbers."""
    more = "".join(f"\n{name} {i}" for i, name in enumerate(["Kim", "Otto", "Vera", "Yusuf"], 300))
    text = answers_to(trained_tabs[task], task, f"Jindřich 731\nAnna 204\nBernd 518{more}", name)
    assert text.count("204 ✓") == 2
    assert text.count("2 of 2") == 2


def test_a_book_that_cannot_be_asked_is_told_and_nothing_typed_is_markup(trained_tabs):
    """A faulty book names the line, the value and what is allowed, as plain text."""
    tab = trained_tabs["phonebook"]
    for book, named in [
        ("   \n\n", "The book: got no entries"),
        ("<b>x</b> $1$ `a` *b*\nBen", "Line 2: got “Ben”, which has no number"),
        ("x" * 10_000, "Line 1: got “xxx"),
    ]:
        tab.text_area(key="book_phonebook").set_value(book)
        text = " ".join(map(plain_text, show(tab).error))
        assert named in text
        assert len(text) < 2000
        assert not any(
            element.key == "custom_book_answers" for element in tab.get("bidi_component")
        )
    tab.text_area(key="book_phonebook").set_value("<img src=x onerror=alert(1)> 1\n**B** 2")
    tab.text_input(key="asked_phonebook").set_value("<script>alert(1)</script> $x$")
    html = drawn(show(tab), "custom_book_answers")["diagram"]
    assert "<img" not in html
    assert "&lt;img" in html
    (note,) = [caption.value for caption in tab.caption if "not in" in caption.value]
    assert "<script>" not in note


def test_a_book_is_asked_once_while_nothing_changes(trained_tabs, monkeypatch):
    """An unchanged book sends no second request to the training process."""
    tab = trained_tabs["phonebook"]
    answers_to(tab, "phonebook", "Ada 1\nBen 2", "Ada")
    monkeypatch.setattr(TrainingService, "ask", lambda *_: "Busy")
    assert "1 ✓" in answers_to(tab, "phonebook")
    assert "2 ✓" in answers_to(tab, "phonebook", name="Ben")  # every name was asked at once
    tab.text_area(key="book_phonebook").set_value("Ada 1\nBen 2\nCem 3")
    assert plain_text(show(tab).warning[-1]) == "Busy."


def test_the_finished_example_answers_before_anything_is_trained():
    """The shipped weights of the finished example answer a book before any training."""
    tab = visit(v="1", task="phonebook")
    text = answers_to(tab, "phonebook", "Jindřich 731\nAnna 204\nBernd 518", "anna")
    assert text.count("204 ✓") == 5
    assert any("Models of the finished example" in caption.value for caption in tab.caption)
    assert job_of(tab) is None


def test_nobody_answers_before_training():
    """Settings without trained models say so, and a task without a book has no field for one."""
    tab = visit_small(task="phonebook")
    assert any("Your settings are not trained yet" in info.value for info in tab.info)
    assert not visit_small(task="mutual").text_area


def test_learned_positions_answer_the_trained_size_only():
    """Variants with learned positions say that they answer books of the trained size only."""
    tab = visit_small(task="phonebook", positions="learned", steps="10", n_entries="6")
    press(tab, "train")
    watch(tab, lambda job: job.over)
    text = answers_to(tab, "phonebook")
    assert text.count("It answers books of 6 entries only") == 2
    text = answers_to(tab, "phonebook", "a 1\nb 2\nc 3\nd 4\ne 5\nf 6", "a")
    assert "It answers" not in text
