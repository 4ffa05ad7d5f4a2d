"""The shipped sweep on the page Questions."""

import pytest
from test_inspection_page import visit_at
from visiting import plain_text, show, visit

from attnkit.analysis.conclusion import conclusion
from attnkit.evidence.questions import QUESTIONS
from attnkit.sweeps import shipped
from attnkit.sweeps.shipped import SHIPPED, load_shipped
from attnkit.ui.question_choice import VIEW

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

QUESTION = "expressiveness"


def texts(tab):
    """Return all texts in Markdown of a page."""
    return " ".join(plain_text(element) for element in tab.markdown)


def test_a_question_tells_what_its_sweep_concludes():
    """The sentence is computed from the shipped runs."""
    name = QUESTIONS[QUESTION].sweep
    assert name in SHIPPED
    result = load_shipped(name)
    tab = visit_at("questions", question=QUESTION)
    assert conclusion(result, *list(result.sweep.axes)[:2]).text in texts(tab)


def test_the_sweep_is_hidden_in_the_quiet_mode():
    """It would give the answer away before the guess."""
    tab = show(visit(quiet="1").switch_page("pages/questions.py"))
    tab.session_state[VIEW] = QUESTION
    tab = show(tab)
    assert "Trains" in texts(tab)  # the page is there
    assert "How far it goes" not in texts(tab)


def test_a_question_stands_without_its_sweep(monkeypatch, tmp_path):
    """A file that is missing takes away only its own sentence."""
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    load_shipped.cache_clear()
    tab = visit_at("questions", question=QUESTION)
    load_shipped.cache_clear()
    assert not tab.exception
    assert "How far it goes" not in texts(tab)
    assert "The numbers" in texts(tab)
