"""The page Capacity: what it shows and chooses, its link, its sections and its live sweep."""

import random
from functools import cache
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from idle import link_of, open_page
from made_sweeps import failed, made_sweep, without
from searching import briefly
from visiting import drawn, plain_text, press, said, show, turn_to, watch_series

from attnkit.analysis.conclusion import conclusion
from attnkit.service.service import Refused, TrainingService
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.values import InvalidSweep
from attnkit.ui.pages import capacity as page
from attnkit.ui.sweeps import sweep_form
from attnkit.ui.sweeps.cell_card import lab_experiment, numbers_of, row_of, take_mark
from attnkit.ui.sweeps.choice import OWN, SECTIONS, CapacityChoice, Cell, cells_of
from attnkit.ui.sweeps.phase import COLUMNS, table_of
from attnkit.variants import Variant

TINY = {"task": "directed", "n_values": 7, "d_model": 16}
TINY |= {"steps": 6, "evaluate_every": 3, "batch_size": 16, "n_eval": 16}

AXES = {"d_head": [2, 4, 8], "n_entries": [6, 8], "n_layers": [1, 2]}

KV = Variant("K=V")
WIDE, NARROW = Cell((8, 6), KV), Cell((2, 6), KV)


@cache
def made_up(n_axes=2):
    """Return a result in which QKV solves the task in heads 3 wide, K=V 6 wide, Q=K never."""
    needed = {"QKV": 3, "K=V": 6, "Q=K": 100}
    return made_sweep(
        lambda sharing, point: float(point["d_head"] >= needed[sharing]),
        sharing=needed,
        axes=dict(list(AXES.items())[:n_axes]),
        n_seeds=2,
        base=TINY,
    )


def test_cells_are_named_by_links_one_to_one_and_a_pressed_mark_chooses_one():
    """A mark is named by the index of its row; anything else is ignored."""
    result = made_up()
    cells = cells_of(result.sweep)
    assert len(set(map(str, cells))) == len(cells) == len(table_of(result))
    choice = CapacityChoice()
    for mark in ([int(row_of(result, WIDE).name)], 10**6, "cell"):
        take_mark(choice, result, mark)
        assert choice.cell == WIDE


def test_numbers_of_a_cell_are_those_of_its_row():
    """Accuracy, seeds that solve it, steps, costs and learning rate; or that it was not run."""
    result = made_up()
    row, text = row_of(result, WIDE), numbers_of(result, row_of(result, WIDE))
    costs = f"{row['parameters']:,} parameters"
    assert all(told in text for told in ("100%", "2 of 2", "200 steps", costs, "0.005"))
    assert row_of(without(result, d_head=8, n_entries=6), WIDE) is None
    assert numbers_of(result, None).startswith("Not run")
    lost = failed(result, d_head=8, sharing="K=V")
    assert "d_head: got 12" in numbers_of(lost, row_of(lost, WIDE)).replace("\\", "")


def test_the_lab_gets_the_experiment_of_a_cell_beside_qkv():
    """With all seeds, the settings of the point, and the learning rate of each variant."""
    both = (Variant("QKV"), KV)
    for result in (made_up(), failed(made_up(), d_head=2, sharing="Q=K")):
        experiment = lab_experiment(result, WIDE)
        assert experiment.sharing == both
        assert list(experiment.seeds) == list(result.sweep.seeds)
        assert (experiment.size.d_head, experiment.task.n_entries) == (8, 6)
    assert lab_experiment(failed(made_up(), d_head=8, sharing="QKV"), WIDE).sharing == (KV,)
    runs = made_up().runs.copy()
    runs.loc[runs["sharing"] == "K=V", "learning_rate"] = 0.02
    tuned = lab_experiment(SweepResult(made_up().sweep, runs), WIDE)
    assert tuned.training.learning_rate == 0.005
    assert tuned.sharing == (Variant("QKV"), Variant("K=V learning_rate=0.02"))


@given(st.data())
@briefly(50)
def test_a_link_keeps_every_choice_that_is_shown(data):
    """A link of a sweep with one, two or three axes opens the same choice for another visitor."""
    draw, sweep = data.draw, made_up(data.draw(st.sampled_from([1, 2, 3]))).sweep
    sent, found = CapacityChoice(), CapacityChoice()
    sent.read_for(sweep)
    sent.measure = draw(st.sampled_from(["accuracy", "steps_to_threshold", "solved"]))
    sent.section = draw(st.sampled_from(["", *SECTIONS]))
    sent.take_axis("x", draw(st.sampled_from(list(sweep.axes))))
    names = st.sampled_from(sweep.sharing)
    sent.variants = tuple(draw(st.lists(names, min_size=1, unique=True)))
    sent.one, sent.other = draw(st.lists(names, min_size=2, max_size=2, unique=True))
    sent.fixed = {name: draw(st.sampled_from(values)) for name, values in sweep.axes.items()}
    sent.cell = draw(st.none() | st.sampled_from(cells_of(sweep)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CapacityChoice, "set_link", lambda self, link: setattr(self, "link", link))
        sent.write_link()
        found.follow(dict(sent.link))
        found.read_for(sweep)
        assert not found.problems
        for name in ("measure", "section", "x", "y", "beside", "variants", "cell"):
            assert getattr(found, name) == getattr(sent, name), name
        if sent.section in ("difference", "matching"):
            assert (found.one, found.other) == (sent.one, sent.other)
        found.write_link()
    assert found.link == sent.link


def test_what_a_sweep_does_not_have_is_a_default_and_told_if_a_link_asked_for_it():
    """Choosing the axis of the other side exchanges both. Another sweep needs no message."""
    choice = CapacityChoice()
    choice.follow({})
    choice.read_for(made_up().sweep)
    for _ in range(2):
        choice.take_axis("x", "n_entries")
        assert (choice.x, choice.y) == ("n_entries", "d_head")
    choice.cell = WIDE
    other = Sweep(axes={"n_heads": [1, 2]}, sharing=["Q=K", "K=V"])
    choice.read_for(other)
    assert (choice.x, choice.y, choice.cell) == ("n_heads", "", None)
    assert set(choice.variants) <= set(other.sharing)
    assert {choice.one, choice.other} == set(other.sharing)
    assert not choice.problems
    wrong = {"sweep": OWN, "measure": "beauty", "x": "colour", "show": "all", "cost": "gold"}
    wrong |= {"variants": "QKV,Q=P", "cell": "3/6/QKV", "one": "Q=P", "n_entries": "7"}
    choice.follow(wrong)
    choice.read_for(made_up().sweep)
    told = [problem.split("'. Allowed: ")[0] for problem in choice.problems]
    unknown = {**wrong, "variants": "Q=P"}
    expected = [f"The link has {name}='{text}" for name, text in unknown.items() if text != OWN]
    assert sorted(told) == sorted(expected)
    assert (choice.x, choice.variants, choice.cell) == ("d_head", (Variant("QKV"),), None)


def on_page(test):
    """Mark a test that draws the page, which ships a made-up sweep."""
    return pytest.mark.server(pytest.mark.usefixtures("pages_service", "shipped")(test))


@pytest.fixture
def shipped(monkeypatch):
    """Ship a made-up sweep."""
    monkeypatch.setattr(page, "load_shipped", lambda _: made_up())


def chosen(tab):
    """Return the visitor's choices."""
    return tab.session_state["capacity_chosen"]


@on_page
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
    assert "measure='beauty'. Allowed: accuracy" in warning
    assert chosen(tab).sweep == CapacityChoice.sweep
    assert not show(tab).warning


@on_page
def test_the_page_concludes_shows_a_diagram_and_every_section(monkeypatch, seed):
    """Sections open by a link, with any number of axes; the file of the diagram has all cells."""
    tab = open_page("capacity")
    assert plain_text(tab.markdown[0]) == conclusion(made_up(), "d_head", "n_entries").text
    data = drawn(tab, page.PHASE)
    assert [0, *(narrower["most"] for narrower in data["narrower"])] == list(COLUMNS)
    assert data["picks"]
    assert data["alt"]
    assert len(data["save"]["table"]["rows"]) == made_up().sweep.n_cells
    tab.selectbox(key="capacity_pick").set_value(NARROW)
    assert chosen(show(tab)).cell == NARROW
    assert link_of(tab)["cell"] == "2/6/K=V"
    assert "0 of 2 seeds" in said(tab)
    drawer = random.Random(seed)
    for section in SECTIONS:
        n_axes = drawer.choice((1, 2, 3))
        result = made_up(n_axes=n_axes)
        monkeypatch.setattr(page, "load_shipped", lambda _, result=result: result)
        fixed = {"n_layers": "1"} if n_axes == 3 else {}
        tab = open_page("capacity", show=section, **fixed)
        assert not [*tab.warning, *tab.error], (section, n_axes)
        assert link_of(tab)["show"] == section
        assert link_of(tab).get("n_layers") == fixed.get("n_layers")
    damaged = InvalidSweep("width.parquet: is not the result of a sweep")
    monkeypatch.setattr(page, "load_shipped", Mock(side_effect=damaged))
    tab = open_page("capacity")
    assert tab.error
    assert not tab.button(key="run_sweep").disabled


@on_page
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


@on_page
def test_a_sweep_runs_from_the_form_and_fills_the_page(monkeypatch):
    """A wrong value is told and cannot run; it pauses, goes on to its end, or is stopped."""

    def tiny(**given):
        return Sweep(**{**given, "base": {**TINY, "n_names": 11, "task": given["base"]["task"]}})

    monkeypatch.setattr(sweep_form, "Sweep", tiny)

    def form():
        tab = open_page("capacity", show="live")
        tab.selectbox(key="form_task").set_value("directed")
        tab = show(tab)
        tab.number_input(key="form_seeds").set_value(1)
        tab.text_input(key="form_second_values").set_value("5, 6")
        tab.text_input(key="form_first_values").set_value("3, 5")
        return show(tab)

    tab = form()
    tab.text_input(key="form_first_values").set_value("wide")
    tab = show(tab)
    assert "Head width" in tab.error[0].value
    assert tab.button(key="run_sweep").disabled
    tab.text_input(key="form_first_values").set_value("3, 5")
    tab = press(press(show(tab), "run_sweep"), "pause_sweep")
    live = tab.session_state["live_sweep"]
    assert not live.moving
    tab = watch_series(press(tab, "go_on_sweep"), live)
    assert live.finished
    assert chosen(tab).sweep == link_of(tab)["sweep"] == OWN
    assert live.result().n_missing == 0
    assert len(drawn(tab, page.PHASE)["save"]["table"]["rows"]) == live.sweep.n_cells
    assert plain_text(tab.markdown[0]) == conclusion(live.result(), "d_head", "n_entries").text
    monkeypatch.setitem(TINY, "steps", 3000)
    tab = press(press(form(), "run_sweep"), "stop_sweep")
    assert tab.session_state["live_sweep"].ended
