"""Training in the Lab to its end: buttons, new seeds, figures, and the words for every state."""

import re
from dataclasses import replace

import pytest
from kinds import every_task
from visiting import (
    FRESH_SEED,
    UNENDING,
    columns,
    disabled,
    drawn,
    job_of,
    press,
    show,
    status,
    step_of,
    visit,
    visit_small,
    watch,
)

import attnkit as ak
from attnkit.experiment.experiment import Experiment, settings
from attnkit.service.jobs import Job
from attnkit.service.scheduler import Outlook
from attnkit.service.service import TrainingService
from attnkit.tasks import TASKS
from attnkit.ui.lab import Lab
from attnkit.ui.markdown import plain
from attnkit.ui.service import training_service
from attnkit.ui.task_examples import shipped_example

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

TINY = {"v": "1", "sharing": "QKV,Q=K", "n_seeds": "1", "steps": "4", "evaluate_every": "2"}
"""Parameters of a link that trains any task in four steps."""


@every_task
def test_train_runs_to_the_end(task):
    """Train leads from the button to the finished tables, on every task."""
    more = {"batch_size": "16", "n_eval": "16", "first_seed": next(FRESH_SEED)}
    if TASKS[task]().earlier is not None:
        more["earlier_steps"] = "2"
    if settings(task)["n_train"].default:
        more["n_train"] = "32"
    tab = press(visit(**TINY, **more, task=task), "train")
    assert job_of(tab).state in ("waiting", "running", "finished")
    watch(tab, lambda job: job.over)
    assert status(tab).startswith("Finished: Step 4 of 4, 2 models in")
    assert disabled(tab) == {"pause", "stop"}
    assert tab.button(key="train").label == "Train"
    assert tab.dataframe[0].value["sharing"].tolist() == ["QKV", "Q=K"]
    chosen = TASKS[task]()
    has_loss = drawn(tab, "board")["quantity"] == "loss"
    assert has_loss == (chosen.loss_to_beat is not None)
    facts_shown = [column["facts"] for column in columns(tab)]
    trained_on = chosen.corpus or "n_train" in more
    assert all(("on training examples" in facts) == trained_on for facts in facts_shown)
    if chosen.slice_names:
        assert tab.dataframe[1].value.columns.tolist() == ["sharing", *chosen.slice_names]
    if "earlier_steps" in more:
        assert "Since step 2 the embedding is frozen" in status(tab)
    layer = [box for box in tab.selectbox if box.label == "Layer"]
    places = job_of(tab).experiment.layer_specs
    assert len(layer) == (len(places) > 1)
    if layer:
        assert layer[0].value == len(places) - 1


def test_step_goes_to_the_next_evaluation():
    """Every press of Step trains ten steps, beginning at step 0."""
    tab = visit_small(**UNENDING)
    for expected in (10, 20):
        press(tab, "step")
        watch(tab, lambda job, step=expected: job.settled and step_of(job) == step)
        assert status(tab).startswith(f"Paused: Step {expected} of 20000")


def test_new_seeds_train_at_once_on_seeds_not_used():
    """New seeds sets the first seed after the last one, in the settings, the link and the job."""
    tab = press(visit_small(first_seed="40", n_seeds="2", steps="20"), "new_seeds")
    assert job_of(tab).experiment.first_seed == 42
    assert tab.number_input(key="set_first_seed").value == 42
    assert tab.query_params["first_seed"] == "42"
    watch(tab, lambda job: job.over)
    assert job_of(tab).experiment == tab.session_state["lab"].experiment


def test_new_seeds_begin_again_at_0_after_the_last():
    """New seeds begin again at 0 after the largest seed that is allowed."""
    tab = press(visit_small(first_seed="999999", steps="20"), "new_seeds")
    assert job_of(tab).experiment.first_seed == 0
    assert "first_seed" not in tab.query_params


def test_the_experiment_before_stays_in_the_figure():
    """The previous experiment stays in the figures, so that people see what their change did."""
    tab = press(visit_small(steps="20"), "train")
    watch(tab, lambda job: job.over)
    tab.number_input(key="set_d_head").set_value(4)
    press(show(tab), "train")
    watch(tab, lambda job: job.over)
    legend = [entry["text"] for entry in drawn(tab, "board")["legend"]]
    assert "previous experiment" in legend
    assert all(column["curve"]["previous"] for column in columns(tab))


@pytest.mark.parametrize("key", ["train", "step", "reset", "new_seeds"])
def test_a_value_typed_just_before_a_press_is_trained(key):
    """A value that arrives in the same rerun as a press is the one that is trained."""
    tab = visit_small(steps="20")
    tab.number_input(key="set_d_head").set_value(4)
    press(tab, key)
    assert job_of(tab).experiment.size.d_head == 4
    assert tab.number_input(key="set_d_head").value == 4


def test_a_wrong_value_typed_just_before_train_is_not_trained():
    """A wrong value in the same rerun as Train is an error, and nothing is trained."""
    tab = visit_small(steps="20")
    tab.number_input(key="set_n_names").set_value(5)
    press(tab, "train")
    assert tab.error
    assert job_of(tab) is None


def test_what_was_trained_before_is_shown_at_once():
    """A finished job opens from its link at once; Train on a finished job trains anew."""
    first = press(visit_small(steps="20"), "train")
    watch(first, lambda job: job.over)
    link = {**first.query_params}
    other = visit(**link)
    assert status(other).startswith("Trained earlier: 20 steps")
    other.number_input(key="set_d_head").set_value(4)
    press(other, "new_seeds")
    watch(other, lambda job: job.over)
    other.number_input(key="set_d_head").set_value(3)
    other.number_input(key="set_first_seed").set_value(int(link["first_seed"]))
    press(other, "train")
    assert job_of(other).id == job_of(first).id
    begun = job_of(press(other, "train")).id
    assert begun != job_of(first).id
    assert watch(other, lambda job: job.over)


def test_a_stored_result_opens_when_no_job_is_remembered(monkeypatch):
    """A stored result opens without its job, as after a restart of the server."""
    first = press(visit_small(steps="20"), "train")
    watch(first, lambda job: job.over)
    trained_by = job_of(first).snapshot.trained_by
    monkeypatch.setattr(training_service()._queue, "jobs", {})
    other = visit(**first.query_params)
    line = status(other)
    assert line.startswith("Trained earlier: 20 steps, 2 models in ")
    assert trained_by not in line
    assert any(f" by {plain(trained_by)}." in each.value for each in other.caption)


def test_pickers_choose_seed_layer_and_head():
    """Pickers of seed, layer and head appear where there is a choice, and change the maps."""
    tab = press(visit_small(steps="5", n_seeds="2", n_layers="2", n_heads="2"), "train")
    watch(tab, lambda job: job.over)
    before = [column["map"] for column in columns(tab)]
    pickers = [box for box in tab.selectbox if not (box.key or "").startswith("set_")]
    assert [picker.label for picker in pickers] == ["Seed", "Layer", "Head"]
    for picker, value in zip(pickers, (job_of(tab).experiment.seeds[1], 0, 0), strict=True):
        picker.set_value(value)
    show(tab)
    assert [column["map"] for column in columns(tab)] != before


def test_columns_tell_what_was_changed_to_make_costs_equal():
    """Columns name the changes that made their costs equal."""
    tab = press(visit_small(equal="parameters", steps="5"), "train")
    watch(tab, lambda job: job.over)
    experiment = job_of(tab).experiment
    facts = {card["name"]: card["facts"] for card in columns(tab)}
    assert facts["QKV"].endswith("; nothing changed")
    assert experiment.adjusted("Q=K").changes in facts["Q=K"]


def test_the_code_shown_is_the_experiment_on_screen():
    """The code that is shown builds the experiment on screen when it is run in Python."""
    tab = press(visit_small(steps="5", causal="true", learning_rate="0.01"), "train")
    watch(tab, lambda job: job.over)
    match = re.search(
        r"experiment = (.*)\nresult = ak\.train\(experiment\)", tab.code[0].value, re.S
    )
    assert eval(match[1], {"ak": ak}) == job_of(tab).experiment


def fake_job(state, **given):
    """Return a job in a state that is hard to bring about; its snapshot is the example."""
    known = {"state": state, "begun": True, "asked_at": 1.0, **given}
    return Job("fake", Experiment(), snapshot=shipped_example("directed"), **known)


@pytest.mark.parametrize(
    ("job", "words", "greyed"),
    [
        (
            replace(fake_job("waiting"), snapshot=None),
            "Starting: the training process is getting ready",
            {"train", "step"},
        ),
        (
            fake_job("failed", error="out of memory"),
            "Training failed: out of memory. Press **Train** to try again.",
            {"pause", "stop"},
        ),
        (
            replace(fake_job("failed", error="out of memory"), snapshot=None),
            "Training failed: out of memory. Press **Train** to try again.",
            {"pause", "stop"},
        ),
        (
            fake_job("waiting", begun=False),
            "Waiting: place 3 in the queue, begins in about 2 min. 32 experiments train now.",
            {"train", "step"},
        ),
        (
            fake_job("stopped", begun=False),
            "Stopped before its turn came. Press **Train** to queue it again.",
            {"pause", "stop"},
        ),
        (
            fake_job("stopped", begun=False, error="because the queue was full"),
            "Stopped before its turn came, because the queue was full. Press **Train** to queue",
            {"pause", "stop"},
        ),
        (
            fake_job("running"),
            "about 45 s left: 32 experiments take turns",
            {"train", "step"},
        ),
        (
            fake_job("stopped", error="because nobody watched it"),
            "Stopped because nobody watched it: Step 600",
            {"pause", "stop"},
        ),
        (
            fake_job("finished", unstored="the disk is full", tried_again=True),
            "Not stored yet: the disk is full.",
            {"pause", "stop"},
        ),
        (fake_job("paused", restarts=1), "died and began anew.", {"pause"}),
        (fake_job("finished", restarts=1), "died and began anew.", {"pause", "stop"}),
    ],
    ids=[
        "waiting",
        "failed",
        "failed at once",
        "queued",
        "stopped in the queue",
        "its place given away",
        "one of many",
        "unwatched",
        "not stored",
        "begun anew",
        "finished after a restart",
    ],
)
def test_troubles_are_told(monkeypatch, job, words, greyed):
    """Every state of a job has its words and its disabled buttons."""
    outlook = Outlook(place=0 if job.begun else 3, n_active=32, begins=100.0, ends=45.0)
    monkeypatch.setattr(TrainingService, "outlook", lambda *_: outlook)
    monkeypatch.setattr(Lab, "job", job)
    tab = visit()
    assert words in status(tab)
    assert disabled(tab) == greyed
