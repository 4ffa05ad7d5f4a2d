"""The pages that look inside models: whose film they show, from where it comes, what they say."""

from unittest.mock import Mock

import pytest
import streamlit as st
from idle import open_page
from test_filming import fail
from visiting import FRESH_SEED, SMALL, plain_text, press, show, turn_to, watch
from waiting import wait_until

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.service.service import Refused, TrainingService
from attnkit.ui.inside import takeaway
from attnkit.ui.server.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

PAGES = {"attention": "attention", "asymmetry": "symmetry", "similarity": "similarity"}
"""Pages, and what they ask for."""


def small_link(**params):
    """Settings that nobody has trained yet."""
    return {**SMALL, "first_seed": next(FRESH_SEED), "steps": "40", **params}


def visit_at(page, **params):
    """Open a page with a link, and train what the link says if nobody has."""
    tab = open_page(page, **params)
    return press(tab, "train_here") if any(b.key == "train_here" for b in tab.button) else tab


def filmed(tab):
    """The job whose film is shown."""
    return training_service().job(tab.session_state["lab"].filmed_id)


def watch_film(tab):
    """Wait until what is filmed has ended, then draw the page."""
    wait_until(training_service(), filmed(tab).id, lambda job: job.over)
    return show(tab)


def received(tab, page):
    """What the page's figures were given."""
    (component,) = [e.proto for e in tab.get("bidi_component") if (e.key or "") == page]
    return InspectionResult.from_bytes(component.bytes)


def test_what_a_visitor_trains_is_seen_on_all_pages_and_in_the_lab():
    """Nothing is trained unasked; a press trains the experiment of the link, once for all pages.

    Each page can be taken away: as a file, as a module with its weights, as code.
    """
    link = small_link(n_seeds="3")
    n_jobs = len(training_service().overview())
    tab = open_page("attention", **link)
    assert len(training_service().overview()) == n_jobs
    assert "trains 6 models" in tab.info[0].value
    tab = watch_film(press(tab, "train_here"))
    job = filmed(tab)
    assert job.kept
    assert job.id == tab.session_state["lab"].job_id
    for page, view in PAGES.items():
        tab = turn_to(tab, page)
        tab.session_state["take_away"] = True
        tab = show(tab)
        header = received(tab, page).header
        assert (header["view"], header["film"]) == (view, job.id)
        assert header["steps"] == [0, 10, 20, 30, 40]
        assert header["seed"] == int(link["first_seed"])
        assert [variant["name"] for variant in header["variants"]] == ["QKV", "Q=K"]
        keys = {element.key for element in tab.get("download_button")}
        assert {"page_html", "module_code", "module_weights"} <= keys
        code = [element.value for element in tab.code]
        assert any("class Transformer(nn.Module)" in text for text in code)
        assert any(text.startswith("python -m attnkit train") for text in code)
        assert any(text.startswith("import attnkit as ak") for text in code)
    tab = turn_to(tab, "lab")
    assert tab.button(key="train").label == "Train again"
    assert tab.session_state["lab"].job.state == "finished"
    assert tab.session_state["lab"].experiment == job.experiment
    assert job.experiment.n_seeds == 3
    assert not tab.error


def test_what_still_trains_is_shown_as_far_as_it_is_and_another_seed_only_while_looked_at():
    """The film of another seed is trained alone, and no longer than somebody looks at it."""
    tab = visit_at("attention", **small_link(n_seeds="2", steps="20000", batch_size="256"))
    run = filmed(tab)
    watch(turn_to(tab, "asymmetry"), lambda job: job.step > 400)
    header = received(tab, "asymmetry").header
    assert header["steps"][0] == 0
    assert header["steps"][-1] < 20_000
    first, last = run.experiment.seeds
    picker = f"inspected_seed_{first}_2"
    tab.selectbox(key=picker).set_value(last)
    other = filmed(show(tab))
    assert list(other.experiment.seeds) == [last]
    tab.selectbox(key=picker).set_value(first)
    assert filmed(show(tab)).id == run.id
    assert training_service().job(other.id).state == "stopped"
    assert training_service().job(run.id).active
    training_service().stop(run.id)


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


def test_a_faulty_link_and_a_refusal_are_told(monkeypatch):
    """The page names the faulty field, shows all else, and repeats the reason of the service."""
    full = Mock(side_effect=Refused("60 experiments wait already: try again in a few minutes"))
    tab = open_page("attention", **small_link(n_heads="99"))
    told = plain_text(tab.warning[0])
    assert told.startswith("The link was not fully understood. n_heads: got '99'")
    monkeypatch.setattr(TrainingService, "submit", full)
    assert "60 experiments wait already" in press(tab, "train_here").warning[-1].value


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


def test_picks_and_a_book_of_one_s_own_hold_on_all_pages():
    """Streamlit alone would forget them. The names of a book stand at the maps.

    What is wrong with it is said.
    """
    tab = watch_film(visit_at("attention", **small_link(task="phonebook", n_heads="2")))
    tab.selectbox(key="inspected_head").set_value(1)
    turn_to(show(tab), "similarity")
    assert received(tab, "similarity").header["request"]["head"] == 1
    turn_to(tab, "attention")
    tab.toggle(key="inspected_custom_book").set_value(True)
    show(tab)
    assert "Jindřich" in received(tab, "attention").header["layers"][0]["columns"]
    tab.text_area(key="inspected_book_phonebook").set_value("Ann 1")
    show(tab)
    assert "The book: got 1 entry, allowed at least 2" in plain_text(tab.error[0])
