"""The pages that look inside models: whose film they show, from where it comes, what they say."""

import time
from unittest.mock import Mock

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from test_filming import fail
from visiting import DASHBOARD, FRESH_SEED, PATIENCE, SMALL, plain_text, press, show, visit, watch

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.service.service import Refused, TrainingService
from attnkit.ui import takeaway
from attnkit.ui.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

PAGES = {"attention": "attention", "asymmetry": "symmetry", "similarity": "similarity"}
"""Pages, and what they ask for."""


def small_link(**params):
    """Settings that nobody has trained yet."""
    return {**SMALL, "first_seed": next(FRESH_SEED), "steps": "40", **params}


def visit_at(page, **params):
    """Open a page with a link, as the first of a tab."""
    tab = AppTest.from_file(DASHBOARD, default_timeout=PATIENCE)
    tab.query_params.update(params)
    tab = show(tab.switch_page(f"pages/{page}.py"))
    return press(tab, "train_here") if any(b.key == "train_here" for b in tab.button) else tab


def turn_to(tab, page):
    """Open another page in the same tab."""
    return show(tab.switch_page(f"pages/{page}.py"))


def filmed(tab):
    """The job whose film is shown."""
    return training_service().look(tab.session_state["lab"].filmed_id)


def watch_film(tab):
    """Wait until what is filmed has ended, then draw the page."""
    deadline = time.monotonic() + PATIENCE
    while not (job := filmed(tab)).over:
        assert time.monotonic() < deadline, f"still waiting: {job.state}"
        training_service().wait(job.id, job.version, deadline - time.monotonic())
    return show(tab)


def received(tab, page):
    """What the page's figures were given."""
    (component,) = [e.proto for e in tab.get("bidi_component") if (e.key or "") == page]
    return InspectionResult.from_bytes(component.bytes)


def test_nothing_is_trained_unasked():
    """The page says what a press trains; then the Lab shows the same run."""
    tab = AppTest.from_file(DASHBOARD, default_timeout=PATIENCE)
    tab.query_params.update(small_link(n_seeds="3"))
    n_jobs = len(training_service().overview())
    tab = show(tab.switch_page("pages/attention.py"))
    assert len(training_service().overview()) == n_jobs
    assert "trains 6 models" in tab.info[0].value
    tab = watch(press(tab, "train_here"), lambda job: job.over)
    assert tab.session_state["lab"].job.experiment.n_seeds == 3
    assert turn_to(tab, "lab").button(key="train").label == "Train"
    assert tab.session_state["lab"].job.state == "finished"


@pytest.mark.parametrize("page", PAGES)
def test_a_visitor_who_comes_here_first_is_asked_and_sees_a_film(page):
    """A press trains the experiment of the link, and the Lab has it."""
    link = small_link()
    tab = watch_film(visit_at(page, **link))
    header = received(tab, page).header
    assert header["view"] == PAGES[page]
    assert header["steps"] == [0, 10, 20, 30, 40]
    assert header["seed"] == int(link["first_seed"])
    assert filmed(tab).kept
    assert filmed(tab).id == tab.session_state["lab"].job_id
    assert [variant["name"] for variant in header["variants"]] == ["QKV", "Q=K"]


def test_the_run_of_the_lab_is_shown_as_it_was_filmed():
    """Nothing is trained a second time."""
    tab = watch(press(visit(**small_link()), "train"), lambda job: job.over)
    job_id = tab.session_state["lab"].job_id
    for page in PAGES:
        turn_to(tab, page)
        assert filmed(tab).id == job_id
        assert received(tab, page).header["film"] == job_id


def test_another_seed_is_trained_alone():
    """And only that one."""
    link = small_link(n_seeds="2")
    tab = watch(press(visit(**link), "train"), lambda job: job.over)
    turn_to(tab, "attention")
    seed = int(link["first_seed"]) + 1
    tab.selectbox(key=f"inspected_seed_{link['first_seed']}_2").set_value(seed)
    tab = watch_film(show(tab))
    assert received(tab, "attention").header["seed"] == seed
    assert filmed(tab).experiment.seeds == range(seed, seed + 1)
    assert filmed(tab).id != tab.session_state["lab"].job_id


def test_what_still_trains_is_shown_as_far_as_it_is():
    """Without an end, and with what comes next asked for alone."""
    tab = press(visit(**small_link(steps="20000", batch_size="256")), "train")
    tab = watch(tab, lambda job: job.step > 400)
    try:
        turn_to(tab, "asymmetry")
        header = received(tab, "asymmetry").header
        assert header["steps"][0] == 0
        assert header["steps"][-1] < 20_000
    finally:
        training_service().stop(tab.session_state["lab"].job_id)


def test_the_lab_shows_its_own_run_after_a_look_inside():
    """With its settings, and its curves."""
    tab = watch(press(visit(**small_link()), "train"), lambda job: job.over)
    before = tab.session_state["lab"].experiment
    turn_to(tab, "similarity")
    turn_to(tab, "lab")
    assert tab.session_state["lab"].experiment == before
    assert tab.session_state["lab"].job.over
    assert not tab.error


def test_a_film_that_is_looked_at_no_more_is_not_trained_on():
    """It would keep others waiting."""
    link = small_link(n_seeds="2", steps="20000", batch_size="256")
    tab = visit_at("attention", **link)
    run, first = filmed(tab).id, int(link["first_seed"])
    picker = f"inspected_seed_{first}_2"
    tab.selectbox(key=picker).set_value(first + 1)
    former = filmed(show(tab)).id
    assert former != run
    tab.selectbox(key=picker).set_value(first)
    assert filmed(show(tab)).id == run
    assert training_service().look(former).state == "stopped"
    assert training_service().look(run).active
    training_service().stop(run)


def test_a_failure_is_told_and_not_repeated():
    """Until somebody wants it."""
    tab = watch_film(visit_at("similarity", **small_link()))
    failed = filmed(tab).id
    fail(training_service(), failed)
    show(tab)
    assert filmed(tab).id == failed
    assert any(said.value == "Training failed: not enough memory." for said in tab.markdown)
    next(button for button in tab.button if button.label == "Train it again").click()
    assert received(watch_film(show(tab)), "similarity").header["steps"][-1] == 40
    assert filmed(tab).id != failed


def test_a_refusal_is_told(monkeypatch):
    """In the service's words; nothing breaks."""

    def refuse(*_, **__):
        raise Refused("60 experiments wait already: try again in a few minutes")

    monkeypatch.setattr(TrainingService, "submit", refuse)
    tab = press(turn_to(visit(**small_link()), "attention"), "train_here")
    assert "60 experiments wait already" in tab.error[0].value


def test_a_link_is_read_on_these_pages_too():
    """What is not understood is said, all else is shown."""
    tab = visit_at("attention", **small_link(n_heads="99"))
    said = plain_text(tab.warning[0])
    assert said.startswith("The link was not fully understood. n_heads: got '99'")


@pytest.mark.parametrize("page", PAGES)
def test_everything_can_be_taken_away(page):
    """The page as a file, a module with its weights, the experiment as code."""
    tab = watch_film(visit_at(page, **small_link()))
    tab.session_state["take_away"] = True
    show(tab)
    keys = {element.key for element in tab.get("download_button")}
    assert {"page_html", "module_code", "module_weights"} <= keys
    code = [element.value for element in tab.code]
    assert any("class Transformer(nn.Module)" in text for text in code)
    assert any(text.startswith("python -m attnkit train") for text in code)
    assert any(text.startswith("import attnkit as ak") for text in code)


@pytest.mark.parametrize(
    ("found", "message"), [(None, "the film is not there any more"), ("no memory", "no memory")]
)
def test_a_page_that_cannot_be_taken_away_says_why(monkeypatch, found, message):
    """The download names the reason of the service, or that the film is gone."""
    pages = []
    monkeypatch.setattr(st, "download_button", lambda _, page, *__, **___: pages.append(page))
    subject = Mock(inspect_when_over=lambda _: found)
    takeaway.page_as_file(subject, Inspection("attention"), "attention", "Attention")
    with pytest.raises(RuntimeError, match=message):
        pages[0]()


def test_what_was_picked_holds_on_all_pages():
    """Streamlit alone would forget them."""
    tab = watch_film(visit_at("attention", **small_link(n_heads="2")))
    tab.selectbox(key="inspected_head").set_value(1)
    turn_to(show(tab), "similarity")
    assert received(tab, "similarity").header["request"]["head"] == 1


def test_a_book_of_one_s_own_is_looked_into():
    """Its names stand at the maps; what is wrong with it is said."""
    tab = visit_at("attention", **small_link(task="phonebook"))
    watch_film(tab)
    tab.toggle(key="inspected_custom_book").set_value(True)
    show(tab)
    assert "Jindřich" in received(tab, "attention").header["layers"][0]["columns"]
    tab.text_area(key="inspected_book_phonebook").set_value("Ann 1")
    show(tab)
    assert "The book: got 1 entry, allowed at least 2" in plain_text(tab.error[0])
