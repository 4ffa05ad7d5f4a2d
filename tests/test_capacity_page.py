"""The page Capacity without a browser: its conclusion, link, cells, sections and live sweep."""

import re
import time
from functools import cache

import numpy as np
import pandas as pd
import pytest
from test_inspection_page import turn_to, visit_at
from test_live_sweep import TINY
from visiting import PATIENCE, drawn, press, show

from attnkit.analysis.conclusion import conclusion
from attnkit.service.service import Refused, TrainingService
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.values import InvalidSweep
from attnkit.ui import sweep_form
from attnkit.ui.capacity_card import lab_experiment, numbers_of, row_of, take_mark
from attnkit.ui.capacity_choice import OWN, SECTIONS, CapacityChoice, Cell, cells_of
from attnkit.ui.capacity_sections import table_of
from attnkit.ui.pages import capacity as page
from attnkit.ui.service import training_service
from attnkit.variants import Variant

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service", "shipped")]

NEEDED = {"QKV": 3, "K=V": 6, "Q=K": 100}
"""Head width from which a made-up variant solves the task."""

AXES = {"d_head": [2, 4, 8], "n_entries": [6, 8], "n_layers": [1, 2]}

WIDE = Cell((8, 6), Variant("K=V"))
NARROW = Cell((2, 6), Variant("K=V"))


@cache
def made_up(rate_of_kv=0.005, without=None, n_axes=2):
    """Return a result in which a variant solves the task from a head width on.

    Args:
        rate_of_kv: Learning rate of K=V; that of the others is 0.005.
        without: Point (d_head, n_entries) that was not run.
        n_axes: Number of axes: head width, entries, layers.
    """
    sweep = Sweep(
        base={k: v for k, v in TINY.items() if k != "n_names"},
        axes=dict(list(AXES.items())[:n_axes]),
        sharing=list(NEEDED),
        n_seeds=2,
        first_seed=40,
    )
    rows = []
    for point in sweep.points():
        for variant in sweep.sharing:
            for seed in sweep.seeds:
                solved = point["d_head"] >= NEEDED[variant]
                costs = sweep.experiment(point, [variant]).costs(variant)
                row = {
                    "sharing": str(variant),
                    "seed": seed,
                    "accuracy": 1.0 if solved else 0.25 + 0.01 * (seed - 40),
                    "steps_to_threshold": 100.0 if solved else np.nan,
                    "loss": 0.1,
                    "learning_rate": rate_of_kv if variant == "K=V" else 0.005,
                    "parameters": costs.parameters,
                    "kv_cache_floats_per_token": costs.kv_cache,
                    "multiply_adds_per_token": costs.multiply_adds,
                    "error": None,
                    "cell": sweep.cell_hash(point, variant),
                }
                if tuple(point.values()) != without:
                    rows.append(row)
    return SweepResult.of(sweep, pd.DataFrame(rows))


@pytest.fixture
def shipped(monkeypatch):
    """Ship a made-up sweep."""
    monkeypatch.setattr(page, "load_shipped", lambda _: made_up())


def texts(tab):
    """Return all texts of the page without Markdown escapes."""
    kinds = (tab.markdown, tab.caption, tab.warning, tab.error, tab.info)
    return [re.sub(r"\\(\W|_)", r"\1", element.value) for kind in kinds for element in kind]


def link(tab):
    """Return the address as one value per name."""
    params = tab.query_params.items()
    return {name: value if isinstance(value, str) else value[0] for name, value in params}


def chosen(tab):
    """Return the visitor's choices."""
    return tab.session_state["capacity_chosen"]


def test_the_page_concludes_in_one_sentence():
    """The sentence is computed from the sweep that is shown."""
    tab = visit_at("capacity")
    assert texts(tab)[0] == conclusion(made_up(), "d_head", "n_entries").text


def test_the_diagram_is_sent_with_figures_for_narrow_pages_and_its_numbers():
    """Its file of comma-separated values has a row per cell."""
    data = drawn(visit_at("capacity"), page.PHASE)
    assert [0, *(narrower["most"] for narrower in data["narrower"])] == list(page.COLUMNS)
    assert data["picks"]
    assert len(data["table"]["rows"]) == made_up().sweep.n_cells
    assert data["alt"]


def test_a_link_is_followed_and_written_again():
    """All choices are in it."""
    params = {
        "sweep": CapacityChoice.sweep,
        "measure": "solved",
        "x": "n_entries",
        "y": "d_head",
        "d_head": "8",
        "variants": "QKV,K=V",
        "show": "matching",
        "one": "Q=K",
        "other": "K=V",
        "cost": "kv_cache_floats_per_token",
        "cell": "8/6/K=V",
    }
    tab = visit_at("capacity", **params)
    assert not tab.warning
    assert link(tab) == params
    assert chosen(tab).cell == WIDE


def test_a_wrong_link_is_repaired_and_reported():
    """Each wrong field with what is allowed."""
    wrong = {"measure": "beauty", "x": "colour", "variants": "QKV,Q=P", "cell": "3/6/QKV"}
    tab = visit_at("capacity", **wrong)
    (warning,) = (re.sub(r"\\(\W|_)", r"\1", one.value) for one in tab.warning)
    for name, text in wrong.items():
        assert f"{name}={text!r}" in warning
    assert link(tab) == {"sweep": CapacityChoice.sweep, "variants": "QKV"}
    assert not show(tab).warning


def test_choices_stay_while_another_page_is_open():
    """The address has lost them on the way."""
    tab = visit_at("capacity", measure="solved", cell="8/6/K=V")
    tab = turn_to(turn_to(tab, "guide"), "capacity")
    assert link(tab) == {"sweep": CapacityChoice.sweep, "measure": "solved", "cell": "8/6/K=V"}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_opens_by_a_link(section):
    """Without an error, and the link keeps it."""
    tab = visit_at("capacity", show=section)
    assert link(tab)["show"] == section
    assert not tab.error


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("n_axes", [1, 3])
def test_sections_show_sweeps_of_other_numbers_of_axes(section, n_axes, monkeypatch):
    """A third axis has a fixed value, which the link names; a single one has a diagram, too."""
    monkeypatch.setattr(page, "load_shipped", lambda _: made_up(n_axes=n_axes))
    tab = visit_at("capacity", show=section, **({"n_layers": "1"} if n_axes == 3 else {}))
    assert not tab.warning
    assert link(tab).get("n_layers") == ("1" if n_axes == 3 else None)


def test_a_pressed_mark_chooses_its_cell():
    """A mark is named by the index of its row; anything else is ignored."""
    choice, result = CapacityChoice(), made_up()
    index = int(row_of(result, WIDE).name)
    take_mark(choice, result, [index])
    assert choice.cell == WIDE
    take_mark(choice, result, 10**6)
    take_mark(choice, result, "cell")
    assert choice.cell == WIDE


def test_a_cell_can_be_chosen_from_a_list():
    """For those who have no mouse."""
    tab = visit_at("capacity")
    tab.selectbox(key="capacity_pick").set_value(NARROW)
    tab = show(tab)
    assert chosen(tab).cell == NARROW
    assert link(tab)["cell"] == "2/6/K=V"
    assert any("solved by 0 of 2 seeds" in text for text in texts(tab))


def test_numbers_of_a_cell_are_those_of_its_row():
    """Accuracy, seeds that solve it, steps, costs and learning rate."""
    result = made_up()
    text = numbers_of(result, row_of(result, WIDE))
    row = row_of(result, WIDE)
    assert "Accuracy 100%" in text
    assert "solved by 2 of 2 seeds, these after 100 steps" in text
    assert f"{row['parameters']:,} parameters" in text
    assert "Learning rate 0.005" in text


def test_a_cell_that_was_not_run_says_so():
    """The card shows a sentence instead of numbers."""
    result = made_up(without=(8, 6))
    assert row_of(result, WIDE) is None
    assert numbers_of(result, None).startswith("Not run")


def test_the_lab_gets_the_experiment_of_a_cell_beside_qkv():
    """With all seeds and the settings of the point."""
    experiment = lab_experiment(made_up(), WIDE)
    assert experiment.sharing == (Variant("QKV"), Variant("K=V"))
    assert list(experiment.seeds) == [40, 41]
    assert experiment.size.d_head == 8
    assert experiment.task.n_entries == 6


def test_each_variant_keeps_its_own_learning_rate_in_the_lab():
    """A tuned sweep has one for each cell."""
    experiment = lab_experiment(made_up(rate_of_kv=0.02), WIDE)
    assert experiment.training.learning_rate == 0.005
    assert experiment.sharing == (Variant("QKV"), Variant("K=V learning_rate=0.02"))


def test_a_cell_is_trained_in_the_lab():
    """The Lab opens with the job of that experiment."""
    tab = press(visit_at("capacity", cell=WIDE.link), "capacity_lab")
    lab = tab.session_state["lab"]
    assert lab.experiment == lab_experiment(made_up(), WIDE)
    assert lab.job is not None
    assert lab.job.state != "failed"


def test_the_lab_opens_even_if_training_is_refused(monkeypatch):
    """Its Train button is then there to try again."""

    def refuse(*_, **__):
        raise Refused("12 experiments wait already")

    monkeypatch.setattr(TrainingService, "submit", refuse)
    tab = press(visit_at("capacity", cell=NARROW.link), "capacity_lab")
    assert tab.session_state["lab"].experiment == lab_experiment(made_up(), NARROW)


def test_a_damaged_file_is_told_and_a_sweep_can_still_run(monkeypatch):
    """No traceback."""

    def fail(_):
        raise InvalidSweep("width.parquet: is not the result of a sweep")

    monkeypatch.setattr(page, "load_shipped", fail)
    tab = visit_at("capacity")
    assert "cannot be read" in tab.error[0].value
    assert not tab.button(key="run_sweep").disabled


def test_the_sweep_of_another_visitor_is_told_to_be_theirs():
    """A shipped one is shown instead."""
    tab = visit_at("capacity", sweep=OWN)
    assert "only while their page stays open" in tab.warning[0].value
    assert chosen(tab).sweep == CapacityChoice.sweep


def test_axes_change_places():
    """Choosing the axis of the other side exchanges both."""
    choice = CapacityChoice()
    choice.follow({})
    choice.settle(made_up().sweep)
    choice.take_axis("x", "n_entries")
    assert (choice.x, choice.y) == ("n_entries", "d_head")
    choice.take_axis("x", "n_entries")
    assert (choice.x, choice.y) == ("n_entries", "d_head")


def test_choices_that_another_sweep_lacks_take_its_defaults():
    """Without a message: the link did not ask for them."""
    choice = CapacityChoice()
    choice.follow({})
    choice.settle(made_up().sweep)
    choice.cell = WIDE
    other = Sweep(axes={"n_heads": [1, 2]}, sharing=["Q=K", "K=V"])
    choice.settle(other)
    assert (choice.x, choice.y, choice.cell) == ("n_heads", "", None)
    assert set(choice.variants) <= set(other.sharing)
    assert {choice.one, choice.other} == set(other.sharing)
    assert not choice.problems


def test_cells_are_named_by_links_one_to_one():
    """Every cell has a name of its own."""
    cells = cells_of(made_up().sweep)
    assert len({cell.link for cell in cells}) == len(cells) == len(table_of(made_up()))


def watch_sweep(tab):
    """Look at the page until the visitor's sweep stands still."""
    deadline = time.monotonic() + PATIENCE
    while (live := tab.session_state["live_sweep"]).moving:
        assert time.monotonic() < deadline, "still training"
        job = live.job
        if job is not None and not job.over:
            training_service().wait(job.id, job.version, deadline - time.monotonic())
        show(tab)
    return show(tab)


@pytest.fixture
def tiny_form(monkeypatch):
    """Let the form make sweeps that train in a moment."""

    def tiny(**given):
        return Sweep(**{**given, "base": {**TINY, "task": given["base"]["task"]}})

    monkeypatch.setattr(sweep_form, "Sweep", tiny)


def open_form():
    """Fill the form with a sweep of four points."""
    tab = visit_at("capacity", show="live")
    tab.selectbox(key="form_task").set_value("directed")
    tab = show(tab)
    tab.text_input(key="form_first_values").set_value("3, 5")
    tab.text_input(key="form_second_values").set_value("5, 6")
    tab.number_input(key="form_seeds").set_value(1)
    return show(tab)


def test_a_sweep_runs_from_the_form_and_fills_the_page(tiny_form):
    """It is then the one on screen, and can be downloaded."""
    tab = watch_sweep(press(open_form(), "run_sweep"))
    live = tab.session_state["live_sweep"]
    assert live.finished
    assert chosen(tab).sweep == OWN
    assert link(tab)["sweep"] == OWN
    assert live.result().n_missing == 0
    assert len(drawn(tab, page.PHASE)["table"]["rows"]) == live.sweep.n_cells
    assert texts(tab)[0] == conclusion(live.result(), "d_head", "n_entries").text


def test_a_sweep_can_be_paused_resumed_and_stopped(tiny_form, monkeypatch):
    """Finished points stay in every case."""
    monkeypatch.setitem(TINY, "steps", 3000)
    tab = press(press(open_form(), "run_sweep"), "pause_sweep")
    assert any("Paused." in text for text in texts(tab))
    tab = press(tab, "go_on_sweep")
    assert tab.session_state["live_sweep"].moving
    tab = press(tab, "stop_sweep")
    assert any("Stopped." in text for text in texts(tab))
    assert tab.session_state["live_sweep"].ended


def test_a_wrong_form_says_why_and_cannot_run():
    """In the words of the page, below the fields."""
    tab = open_form()
    tab.text_input(key="form_first_values").set_value("wide")
    tab = show(tab)
    assert "Head width" in tab.error[0].value
    assert tab.button(key="run_sweep").disabled
