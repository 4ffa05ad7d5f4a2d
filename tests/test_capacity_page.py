"""The page Capacity without a browser: its conclusion, link, cells, sections and live sweep."""

import random
from unittest.mock import Mock

import pytest
from idle import link_of, open_page
from test_capacity_choice import NARROW, TINY, WIDE, made_up
from visiting import drawn, plain_text, press, said, show, turn_to, watch_series

from attnkit.analysis.conclusion import conclusion
from attnkit.service.service import Refused, TrainingService
from attnkit.sweeps import Sweep
from attnkit.sweeps.values import InvalidSweep
from attnkit.ui.pages import capacity as page
from attnkit.ui.sweeps import sweep_form
from attnkit.ui.sweeps.cell_card import lab_experiment
from attnkit.ui.sweeps.choice import OWN, SECTIONS, CapacityChoice
from attnkit.ui.sweeps.phase import COLUMNS

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service", "shipped")]


@pytest.fixture
def shipped(monkeypatch):
    """Ship a made-up sweep."""
    monkeypatch.setattr(page, "load_shipped", lambda _: made_up())


def chosen(tab):
    """Return the visitor's choices."""
    return tab.session_state["capacity_chosen"]


def test_the_page_concludes_in_one_sentence_and_shows_a_diagram():
    """The sentence is computed from the sweep; the diagram's file has a row for each cell."""
    tab = open_page("capacity")
    assert plain_text(tab.markdown[0]) == conclusion(made_up(), "d_head", "n_entries").text
    data = drawn(tab, page.PHASE)
    assert [0, *(narrower["most"] for narrower in data["narrower"])] == list(COLUMNS)
    assert data["picks"]
    assert len(data["save"]["table"]["rows"]) == made_up().sweep.n_cells
    assert data["alt"]
    tab.selectbox(key="capacity_pick").set_value(NARROW)
    tab = show(tab)
    assert chosen(tab).cell == NARROW
    assert link_of(tab)["cell"] == "2/6/K=V"
    assert "solved by 0 of 2 seeds" in said(tab)


def test_a_link_is_followed_kept_while_another_page_is_open_and_repaired_once():
    """The sweep of another visitor is told to be theirs; a shipped one is shown instead."""
    params = {"sweep": CapacityChoice.sweep, "show": "matching", "x": "n_entries", "d_head": "8"}
    params |= {"one": "Q=K", "cell": "8/6/K=V"}
    tab = open_page("capacity", **params, y="d_head", other="K=V")  # the last two are defaults
    assert not tab.warning
    assert link_of(tab) == params
    tab = turn_to(turn_to(tab, "guide"), "capacity")
    assert link_of(tab) == params
    wrong = {"measure": "beauty", "variants": "QKV,Q=P"}
    tab = open_page("capacity", sweep=OWN, **wrong)
    (warning,) = map(plain_text, tab.warning)
    assert "only while their page stays open" in warning
    assert "measure='beauty'. Allowed: accuracy" in warning
    assert chosen(tab).sweep == CapacityChoice.sweep
    assert not show(tab).warning


def test_sections_show_sweeps_of_any_number_of_axes(monkeypatch, seed, long):
    """They open by a link, which keeps the section; a third axis has a fixed value in it."""
    pairs = [(section, n_axes) for section in SECTIONS for n_axes in (1, 2, 3)]
    drawer = random.Random(seed)
    some = [(section, drawer.choice((1, 2, 3))) for section in SECTIONS]
    for section, n_axes in pairs if long else some:
        result = made_up(n_axes=n_axes)
        monkeypatch.setattr(page, "load_shipped", lambda _, result=result: result)
        fixed = {"n_layers": "1"} if n_axes == 3 else {}
        tab = open_page("capacity", show=section, **fixed)
        assert not tab.warning, (section, n_axes)
        assert not tab.error, (section, n_axes)
        assert link_of(tab)["show"] == section
        assert link_of(tab).get("n_layers") == fixed.get("n_layers")


def test_a_cell_is_trained_in_the_lab_which_opens_even_if_that_is_refused(monkeypatch):
    """With the job of its experiment, or a Train button to try again."""
    tab = press(open_page("capacity", cell=str(WIDE)), "capacity_lab")
    lab = tab.session_state["lab"]
    assert lab.experiment == lab_experiment(made_up(), WIDE)
    assert lab.job.state != "failed"
    full = Mock(side_effect=Refused("12 experiments wait already"))
    monkeypatch.setattr(TrainingService, "submit", full)
    tab = press(open_page("capacity", cell=str(NARROW)), "capacity_lab")
    assert tab.session_state["lab"].experiment == lab_experiment(made_up(), NARROW)


def test_a_damaged_file_is_told_and_a_sweep_can_still_run(monkeypatch):
    """No traceback."""
    damaged = InvalidSweep("width.parquet: is not the result of a sweep")
    monkeypatch.setattr(page, "load_shipped", Mock(side_effect=damaged))
    tab = open_page("capacity")
    assert "cannot be read" in tab.error[0].value
    assert not tab.button(key="run_sweep").disabled


@pytest.fixture
def tiny_form(monkeypatch):
    """Let the form make sweeps that train in a moment."""

    def tiny(**given):
        return Sweep(**{**given, "base": {**TINY, "n_names": 11, "task": given["base"]["task"]}})

    monkeypatch.setattr(sweep_form, "Sweep", tiny)


def open_form():
    """Fill the form with a sweep of four points."""
    tab = open_page("capacity", show="live")
    tab.selectbox(key="form_task").set_value("directed")
    tab = show(tab)
    tab.text_input(key="form_first_values").set_value("3, 5")
    tab.text_input(key="form_second_values").set_value("5, 6")
    tab.number_input(key="form_seeds").set_value(1)
    return show(tab)


def test_a_sweep_runs_from_the_form_and_fills_the_page(tiny_form):
    """It is then the one on screen; what is wrong in the form is said, and cannot run."""
    tab = open_form()
    tab.text_input(key="form_first_values").set_value("wide")
    tab = show(tab)
    assert "Head width" in tab.error[0].value
    assert tab.button(key="run_sweep").disabled
    tab.text_input(key="form_first_values").set_value("3, 5")
    tab = press(show(tab), "run_sweep")
    live = tab.session_state["live_sweep"]
    tab = watch_series(tab, live)
    assert live.finished
    assert chosen(tab).sweep == OWN
    assert link_of(tab)["sweep"] == OWN
    assert live.result().n_missing == 0
    assert len(drawn(tab, page.PHASE)["save"]["table"]["rows"]) == live.sweep.n_cells
    assert plain_text(tab.markdown[0]) == conclusion(live.result(), "d_head", "n_entries").text


def test_a_sweep_can_be_paused_resumed_and_stopped(tiny_form, monkeypatch):
    """Finished points stay in every case."""
    monkeypatch.setitem(TINY, "steps", 3000)
    tab = press(press(open_form(), "run_sweep"), "pause_sweep")
    assert "Paused." in said(tab)
    tab = press(tab, "go_on_sweep")
    assert tab.session_state["live_sweep"].moving
    tab = press(tab, "stop_sweep")
    assert "Stopped." in said(tab)
    assert tab.session_state["live_sweep"].ended
