"""Training in the Lab to its end: tables, new seeds, pickers, and results that were there."""

import random
import re

import pytest
from visiting import (
    FRESH_SEED,
    columns,
    disabled,
    drawn,
    job_of,
    press,
    show,
    status,
    visit,
    visit_small,
    watch,
)

import attnkit as ak
from attnkit.experiment.experiment import settings
from attnkit.tasks import TASKS
from attnkit.ui.markdown import plain
from attnkit.ui.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

TINY = {"v": "1", "sharing": "QKV,Q=K", "n_seeds": "1", "steps": "4", "evaluate_every": "2"}
"""Parameters of a link that trains any task in four steps."""


def finished(**params):
    """Return a tab that shows a small experiment, trained to its end."""
    return watch(press(visit_small(**params), "train"), lambda job: job.over)


def test_train_runs_to_the_end_on_every_kind_of_task(seed, long):
    """Train leads to the finished tables: with an earlier task, a corpus, and one that is drawn."""
    drawn_task = random.Random(seed).choice(sorted(TASKS.keys() - {"transfer", "language"}))
    for task in TASKS if long else ("transfer", "language", drawn_task):
        more = {"batch_size": "16", "n_eval": "16", "first_seed": next(FRESH_SEED)}
        if TASKS[task]().earlier is not None:
            more["earlier_steps"] = "2"
        if settings(task)["n_train"].default:
            more["n_train"] = "32"
        tab = press(visit(**TINY, **more, task=task), "train")
        watch(tab, lambda job: job.over)
        assert status(tab).startswith("Finished: Step 4 of 4, 2 models in"), task
        assert disabled(tab) == {"pause", "stop"}
        assert tab.dataframe[0].value["sharing"].tolist() == ["QKV", "Q=K"]
        chosen = TASKS[task]()
        has_loss = drawn(tab, "board")["quantity"] == "loss"
        assert has_loss == (chosen.loss_to_beat is not None), task
        trained_on = chosen.corpus or "n_train" in more
        for column in columns(tab):
            assert ("on training examples" in column["facts"]) == trained_on, task
        if chosen.slice_names:
            assert tab.dataframe[1].value.columns.tolist() == ["sharing", *chosen.slice_names]
        if "earlier_steps" in more:
            assert "Since step 2 the embedding is frozen" in status(tab)
        layer = [box.value for box in tab.selectbox if box.label == "Layer"]
        n_places = len(job_of(tab).experiment.layer_specs)
        assert layer == ([n_places - 1] if n_places > 1 else []), task


def test_new_seeds_train_at_once_on_seeds_not_used():
    """New seeds sets the first seed after the last one in settings, link and job, and then 0."""
    tab = press(visit_small(first_seed="40", n_seeds="2", steps="20"), "new_seeds")
    assert job_of(tab).experiment.first_seed == 42
    assert tab.number_input(key="set_first_seed").value == 42
    assert tab.query_params["first_seed"] == "42"
    tab.number_input(key="set_first_seed").set_value(999_999)
    assert job_of(press(tab, "new_seeds")).experiment.first_seed == 0
    assert "first_seed" not in tab.query_params


def test_the_experiment_before_stays_in_the_figure():
    """The previous experiment stays in the figures, so that people see what their change did."""
    tab = finished(steps="20")
    tab.number_input(key="set_d_head").set_value(4)
    press(show(tab), "train")
    watch(tab, lambda job: job.over)
    legend = [entry["text"] for entry in drawn(tab, "board")["legend"]]
    assert "previous experiment" in legend
    assert all(column["curve"]["previous"] for column in columns(tab))


def test_a_value_typed_just_before_a_press_is_trained():
    """A value that arrives in the same rerun as a press is trained, unless it is wrong."""
    tab = visit_small(steps="20")
    tab.number_input(key="set_n_names").set_value(5)
    press(tab, "train")
    assert tab.error
    assert job_of(tab) is None
    tab.number_input(key="set_n_names").set_value(11)
    show(tab)
    for width, key in enumerate(("train", "step", "reset", "new_seeds"), 4):
        tab.number_input(key="set_d_head").set_value(width)
        watch(press(tab, key), lambda job: job.settled)
        assert job_of(tab).experiment.size.d_head == width
        assert tab.number_input(key="set_d_head").value == width


def test_what_was_trained_before_is_shown_at_once(monkeypatch):
    """Its link opens it finished, also after a restart; Train on it trains anew."""
    first = finished(steps="20")
    link, trained_by = {**first.query_params}, job_of(first).snapshot.trained_by
    other = visit(**link)
    assert status(other).startswith("Trained earlier: 20 steps")
    other.number_input(key="set_d_head").set_value(4)
    press(other, "train")
    watch(other, lambda job: job.over)
    other.number_input(key="set_d_head").set_value(3)
    assert job_of(show(other)).id == job_of(first).id
    assert job_of(press(other, "train")).id != job_of(first).id
    watch(other, lambda job: job.over)
    monkeypatch.setattr(training_service()._queue, "jobs", {})
    other = visit(**link)
    assert status(other).startswith("Trained earlier: 20 steps, 2 models in ")
    assert trained_by not in status(other)
    assert any(f" by {plain(trained_by)}." in each.value for each in other.caption)


def test_pickers_choose_seed_layer_and_head():
    """Pickers of seed, layer and head appear where there is a choice, and change the maps."""
    tab = finished(steps="5", n_seeds="2", n_layers="2", n_heads="2")
    before = [column["map"] for column in columns(tab)]
    pickers = [box for box in tab.selectbox if not (box.key or "").startswith("set_")]
    assert [picker.label for picker in pickers] == ["Seed", "Layer", "Head"]
    for picker, value in zip(pickers, (job_of(tab).experiment.seeds[1], 0, 0), strict=True):
        picker.set_value(value)
    show(tab)
    assert [column["map"] for column in columns(tab)] != before


def test_the_code_and_the_costs_shown_are_those_of_the_experiment_on_screen():
    """The code builds it when it is run in Python; columns name what made their costs equal."""
    tab = finished(steps="5", causal="true", learning_rate="0.01", equal="parameters")
    experiment = job_of(tab).experiment
    match = re.search(
        r"experiment = (.*)\nresult = ak\.train\(experiment\)", tab.code[0].value, re.S
    )
    assert eval(match[1], {"ak": ak}) == experiment
    facts = {card["name"]: card["facts"] for card in columns(tab)}
    assert facts["QKV"].endswith("; nothing changed")
    assert experiment.adjusted("Q=K").changes in facts["Q=K"]
