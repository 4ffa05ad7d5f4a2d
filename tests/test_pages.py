"""The pages without a browser: what they show in every state, and how they follow the link."""

import itertools
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from kinds import every_task
from streamlit.testing.v1 import AppTest

import attnkit as ak
from attnkit.bench.visitor import Visitor
from attnkit.examples import load_variants
from attnkit.experiment.experiment import Experiment, from_params, settings
from attnkit.service.jobs import Job, Watcher
from attnkit.service.scheduler import Outlook
from attnkit.service.service import TrainingService
from attnkit.tasks import TASKS, register_task
from attnkit.training import Training
from attnkit.training.summary import percent
from attnkit.ui.lab import Lab
from attnkit.ui.markdown import plain
from attnkit.ui.presets import PRESETS
from attnkit.ui.service import training_service
from attnkit.ui.task_examples import shipped_example
from attnkit.variants import CATALOGUE, OPTIONS, register
from attnkit.variants.names import find
from attnkit.variants.sharing import Sharing

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

DASHBOARD = str(Path(__file__).parents[1] / "dashboard.py")

PATIENCE = 120.0
"""Seconds after which a wait has failed."""

SMALL = {
    "v": "1",
    "sharing": "QKV,Q=K",
    "n_seeds": "1",
    "n_entries": "6",
    "n_names": "11",
    "n_values": "7",
    "d_head": "3",
    "evaluate_every": "10",
    "batch_size": "16",
    "n_eval": "16",
}

UNENDING = {"steps": "20000", "batch_size": "256"}
"""A job that is still going on whenever a test looks at it."""

FRESH_SEED = (str(seed) for seed in itertools.count(100))
"""A visitor finds the training of a link that is known: every test has seeds of its own."""


def visit(**params):
    """Open the dashboard with a link."""
    tab = AppTest.from_file(DASHBOARD, default_timeout=PATIENCE)
    tab.query_params.update(params)
    return show(tab)


def visit_small(**params):
    """Open a small experiment that nobody has trained yet."""
    return visit(**{**SMALL, "first_seed": next(FRESH_SEED), **params})


def show(tab):
    """Run the page; it must not fail."""
    tab.run()
    assert not tab.exception
    return tab


def press(tab, key):
    """Press a button that can be pressed."""
    button = tab.button(key=key)
    assert not button.disabled
    button.click()
    return show(tab)


def job_of(tab):
    """The job on screen."""
    return tab.session_state["lab"].job


def step_of(job):
    """Steps taken, 0 before the first snapshot."""
    return job.snapshot.step if job.snapshot is not None else 0


def watch(tab, condition):
    """Wait until the job fulfils a condition, then draw the page."""
    deadline = time.monotonic() + PATIENCE
    while not condition(job := job_of(tab)):
        assert time.monotonic() < deadline, f"still waiting: {job.state} at step {step_of(job)}"
        training_service().wait(job.id, job.version, deadline - time.monotonic())
    return show(tab)


@pytest.fixture
def running():
    """A tab whose training has begun and goes on until the test ends."""
    tab = press(visit_small(**UNENDING), "train")
    begun = job_of(tab).id
    yield watch(tab, lambda job: step_of(job) > 0)
    for job_id in {begun, tab.session_state["lab"].job_id} - {None}:
        training_service().stop(job_id)


def status(tab):
    """Return the line that says what is on screen: the first one in its container."""
    (state,) = (b for b in blocks_of(tab.main) if getattr(b.proto, "id", "").endswith("-state"))
    return state.markdown[0].value


def blocks_of(block):
    """Return the containers inside of a container, at any depth."""
    for child in block.children.values():
        if getattr(child, "children", None):
            yield child
            yield from blocks_of(child)


def disabled(tab):
    """Which buttons cannot be pressed."""
    keys = ("train", "pause", "step", "stop", "reset", "new_seeds")
    return {key for key in keys if tab.button(key=key).disabled}


def widget(tab, name):
    """The widget of a setting."""
    setting = settings("directed")[name]
    if len(setting.choices) in (2, 3):
        return tab.button_group(key=f"set_{name}")
    collection = {bool: tab.toggle, str: tab.selectbox}.get(setting.kind, tab.number_input)
    return collection(key=f"set_{name}")


def told(element):
    """What a warning or an error says, without the backslashes that keep Markdown away."""
    return re.sub(r"\\(\W|_)", r"\1", element.value)


def columns(tab):
    """The columns of the board."""
    return drawn(tab, "board")["columns"]


def drawn(tab, key):
    """What a live component was given."""
    components = {element.key: element.proto for element in tab.get("bidi_component")}
    return json.loads(components[key].bytes or components[key].json)


# the first visit


def test_the_first_visit_shows_a_finished_example():
    """Nobody meets an empty screen, and nothing is wrong."""
    tab = visit()
    assert tab.title[0].value == "Why do Q, K and V need different matrices?"
    assert status(tab).startswith("A finished example: 25 models, 600 steps")
    assert not tab.warning
    assert not tab.error
    assert tab.query_params == {}
    assert disabled(tab) == {"pause", "stop"}


@every_task
def test_every_task_opens_with_its_question_its_dials_and_an_example(task):
    """Whether or not a finished example is shipped."""
    tab = visit(v="1", task=task)
    tab = await_example(tab)
    gallery = drawn(tab, "gallery")
    assert gallery["current"] == task
    shown = {card["name"]: card for family in gallery["families"] for card in family["tasks"]}
    assert list(shown) == list(TASKS)
    assert shown[task]["question"] == TASKS[task].question
    for dial in TASKS[task].model_fields:
        assert any((w.key or "") == f"set_{dial}" for w in widgets(tab)), dial
    has_earlier = any(w.key == "set_earlier_steps" for w in widgets(tab))
    assert has_earlier == (TASKS[task]().earlier is not None)
    assert any(b.key == "quick_preset" for b in tab.button) == bool(TASKS[task].preset)
    example = drawn(tab, "example")
    assert len(example["cells"]) == TASKS[task]().n_ctx
    cards = {card["name"]: card["value"] for card in columns(tab)}
    assert list(cards) == [sharing.value for sharing in Sharing]
    finished = shipped_example(task)
    if finished is None:
        assert status(tab) == "Not trained yet. Press **Train**."
        assert set(cards.values()) == {"–"}
        return
    accuracy = finished.per_sharing(finished.history["accuracy"][-1])
    assert list(cards.values()) == [percent(mean) for mean in accuracy.mean(-1)]
    assert len([column for column in columns(tab) if column["map"]]) == 5


def widgets(tab):
    """All that settings are set with."""
    return (*tab.number_input, *tab.toggle, *tab.selectbox, *tab.button_group)


def await_example(tab):
    """The page as soon as its example is drawn: a browser's timer does that by itself."""
    experiment = tab.session_state["lab"].experiment
    assert training_service().example(experiment, PATIENCE) is not None
    return show(tab)


def test_changed_dials_are_drawn_before_training():
    """The example follows the task's dials at once, and no others."""
    tab = await_example(visit(v="1", task="phonebook"))
    before = drawn(tab, "example")
    assert len(before["cells"]) == 16
    tab.number_input(key="set_d_head").set_value(4)
    assert drawn(show(tab), "example") == before
    tab.number_input(key="set_n_entries").set_value(5)
    tab = await_example(show(tab))
    cells = drawn(tab, "example")["cells"]
    assert len(cells) == 10
    assert [cell["asked"] for cell in cells] == [False] * 5 + [True] * 5


def test_the_headline_says_what_counts_and_whose_numbers_it_has():
    """The accuracies are of all seeds, the reason is of one; the rule is told on hover."""
    found = visit().markdown
    (solved,) = (text for text in found if told(text).startswith("Solved by all 5 seeds: QKV"))
    assert "at least 99% right in three evaluations in a row" in solved.help
    assert any(told(text).endswith("right (seed 0).**") for text in found)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "Drawing an example: the training process is getting ready."),
        ("ValueError: too few", "No example could be drawn. ValueError: too few."),
    ],
)
def test_an_example_that_is_not_there_is_told(monkeypatch, found, said):
    """In its place; all else works."""
    monkeypatch.setattr(Lab, "probe", lambda _: found)
    tab = visit()
    assert drawn(tab, "example")["message"] == said
    assert not tab.button(key="train").disabled


def test_a_task_without_a_shipped_example_opens(monkeypatch):
    """Somebody's own task has none: planned cards, and Train works."""
    monkeypatch.setattr("attnkit.ui.run_on_screen.shipped_example", lambda _: None)
    tab = visit_small(task="phonebook", steps="20")
    assert status(tab) == "Not trained yet. Press **Train**."
    assert {card["note"] for card in columns(tab)} == {"not trained yet"}
    assert any("Tables appear when" in caption.value for caption in tab.caption)
    press(tab, "train")
    watch(tab, lambda job: job.over)
    assert len([column for column in columns(tab) if column["map"]]) == 2


# training


TINY = {"v": "1", "sharing": "QKV,Q=K", "n_seeds": "1", "steps": "4", "evaluate_every": "2"}
"""For any task."""


@every_task
def test_train_runs_to_the_end(task):
    """From the button to the finished tables, on every task."""
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
    told = [column["facts"] for column in columns(tab)]
    trained_on = chosen.corpus or "n_train" in more
    assert all(("on training examples" in facts) == trained_on for facts in told)
    if chosen.slice_names:
        assert tab.dataframe[1].value.columns.tolist() == ["sharing", *chosen.slice_names]
    if "earlier_steps" in more:
        assert "Since step 2 the embedding is frozen" in status(tab)
    layer = [box for box in tab.selectbox if box.label == "Layer"]
    places = job_of(tab).experiment.layer_specs
    assert len(layer) == (len(places) > 1)
    if layer:
        assert layer[0].value == len(places) - 1


def test_a_running_job_can_be_paused_and_stopped_only(running):
    """And started afresh; tables wait until nothing moves."""
    assert job_of(running).state == "running"
    assert re.match(r"Step \d+ of 20000, 2 models, [\d,]+ model-steps per second", status(running))
    assert disabled(running) == {"train", "step"}
    assert any("Tables appear" in caption.value for caption in running.caption)
    assert not running.dataframe


def test_live_figures_grow_with_training(running):
    """The accuracy curve reaches further than before."""

    def length():
        return len(drawn(running, "board")["steps"])

    before, step = length(), step_of(job_of(running))
    watch(running, lambda job: step_of(job) > step + 50)
    assert length() > before


def test_pause_holds_and_train_resumes(running):
    """The button says what it will do."""
    press(running, "pause")
    watch(running, lambda job: job.settled)
    assert status(running).startswith("Paused: Step ")
    assert running.button(key="train").label == "Resume"
    assert disabled(running) == {"pause"}
    held = step_of(job_of(running))
    paused = job_of(running).id
    press(running, "train")
    watch(running, lambda job: step_of(job) > held)
    assert job_of(running).id == paused
    assert disabled(running) == {"train", "step"}


def test_step_goes_to_the_next_evaluation():
    """One press, ten steps; from nothing it begins at step 0."""
    tab = visit_small(**UNENDING)
    for expected in (10, 20):
        press(tab, "step")
        watch(tab, lambda job, step=expected: job.settled and step_of(job) == step)
        assert status(tab).startswith(f"Paused: Step {expected} of 20000")


def test_stop_keeps_what_was_reached(running):
    """The tables of a stopped run can be read, and Train begins anew."""
    stopped = job_of(running).id
    press(running, "stop")
    watch(running, lambda job: job.settled)
    assert status(running).startswith("Stopped: Step ")
    assert len(running.dataframe) == 1
    assert disabled(running) == {"pause", "stop"}
    press(running, "train")
    assert job_of(running).id != stopped


def test_reset_goes_back_to_step_0(running):
    """The same experiment, untrained and waiting."""
    before = job_of(running)
    press(running, "reset")
    watch(running, lambda job: job.state == "paused" and job.snapshot is not None)
    assert status(running).startswith("Paused: Step 0 of 20000")
    assert any(text.value.startswith("Untrained") for text in running.markdown)
    assert job_of(running).experiment == before.experiment
    assert running.button(key="train").label == "Train"
    assert disabled(running) == {"pause"}
    assert training_service().look(before.id).state != "running"


def test_new_seeds_train_at_once_on_seeds_not_used():
    """Settings, link and job agree on the seeds that follow."""
    tab = press(visit_small(first_seed="40", n_seeds="2", steps="20"), "new_seeds")
    assert job_of(tab).experiment.first_seed == 42
    assert tab.number_input(key="set_first_seed").value == 42
    assert tab.query_params["first_seed"] == "42"
    watch(tab, lambda job: job.over)
    assert job_of(tab).experiment == tab.session_state["lab"].experiment


def test_new_seeds_begin_again_at_0_after_the_last():
    """Seeds never leave their range."""
    tab = press(visit_small(first_seed="999999", steps="20"), "new_seeds")
    assert job_of(tab).experiment.first_seed == 0
    assert "first_seed" not in tab.query_params


def test_changed_settings_are_offered_for_training(running):
    """What runs goes on; the button says that it would begin something else."""
    running.number_input(key="set_d_head").set_value(4)
    show(running)
    assert job_of(running).experiment.size.d_head == 3
    assert running.button(key="train").label == "Train new settings"
    old = job_of(running).id
    press(running, "train")
    assert job_of(running).experiment.size.d_head == 4
    watch(running, lambda job: step_of(job) > 0)
    assert training_service().look(old).state == "stopped"


def test_the_experiment_before_stays_in_the_figure():
    """Faded, so that people see what their change did."""
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
    """Typing and pressing may arrive as one rerun; what is on screen is what is trained."""
    tab = visit_small(steps="20")
    tab.number_input(key="set_d_head").set_value(4)
    press(tab, key)
    assert job_of(tab).experiment.size.d_head == 4
    assert tab.number_input(key="set_d_head").value == 4


def test_a_wrong_value_typed_just_before_train_is_not_trained():
    """Nor are the settings before it."""
    tab = visit_small(steps="20")
    tab.number_input(key="set_n_names").set_value(5)
    press(tab, "train")
    assert tab.error
    assert job_of(tab) is None


def test_a_second_tab_with_the_same_link_sees_the_same_training(running):
    """A link shows what is going on."""
    other = visit(**running.query_params)
    assert job_of(other).id == job_of(running).id
    assert disabled(other) == {"train", "step"}


def test_a_pause_holds_one_s_own_view_while_others_watch(running, monkeypatch):
    """The run is theirs, too: it goes on, and who has paused sees it where it was."""
    monkeypatch.setattr("attnkit.ui.session.watcher", lambda: Watcher("another tab", "another"))
    other = press(visit(**running.query_params), "pause")
    assert status(other).startswith("Paused: Step")
    assert status(other).endswith("For others who watch, it goes on.")
    assert disabled(other) == {"pause", "step"}
    assert training_service().look(job_of(running).id).active
    assert not status(press(other, "train")).startswith("Paused")
    assert disabled(press(other, "stop")) == {"pause", "stop"}
    assert training_service().look(job_of(running).id).active


def test_what_was_trained_before_is_shown_at_once():
    """By anyone; asked for again while it is shown, it is trained again."""
    first = press(visit_small(steps="20"), "train")
    watch(first, lambda job: job.over)
    link = {**first.query_params}
    other = visit(**link)
    assert status(other).startswith("Finished: Step 20 of 20")
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
    """As after a restart of the server, or on another copy with the same store."""
    first = press(visit_small(steps="20"), "train")
    watch(first, lambda job: job.over)
    trained_by = job_of(first).snapshot.trained_by
    monkeypatch.setattr(training_service()._queue, "jobs", {})
    other = visit(**first.query_params)
    told = status(other)
    assert told.startswith("Finished before, from the store: Step 20 of 20")
    assert trained_by not in told
    assert any(f" by {plain(trained_by)}." in each.value for each in other.caption)


def test_pickers_choose_seed_layer_and_head():
    """They appear where there is a choice."""
    tab = press(visit_small(steps="5", n_seeds="2", n_layers="2", n_heads="2"), "train")
    watch(tab, lambda job: job.over)
    before = [column["map"] for column in columns(tab)]
    pickers = [box for box in tab.selectbox if not (box.key or "").startswith("set_")]
    assert [picker.label for picker in pickers] == ["Seed", "Layer", "Head"]
    for picker, value in zip(pickers, (job_of(tab).experiment.seeds[1], 0, 0), strict=True):
        picker.set_value(value)
    show(tab)
    assert [column["map"] for column in columns(tab)] != before


def fake_job(state, **given):
    """A job in a state that is hard to bring about; its snapshot is the example."""
    known = {"state": state, "begun": True, "asked_at": 1.0, **given}
    return Job("fake", Experiment(), snapshot=shipped_example("directed"), **known)


@pytest.mark.parametrize(
    ("job", "said", "grey"),
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
            "Stopped before its turn came. Press **Train** to ask again.",
            {"pause", "stop"},
        ),
        (
            fake_job("stopped", begun=False, error="because the queue was full"),
            "Stopped before its turn came, because the queue was full. Press **Train** to ask",
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
def test_troubles_are_told(monkeypatch, job, said, grey):
    """Every state of a job has its words and its buttons."""
    outlook = Outlook(place=0 if job.begun else 3, n_active=32, begins=100.0, ends=45.0)
    monkeypatch.setattr(TrainingService, "outlook", lambda *_: outlook)
    monkeypatch.setattr(Lab, "job", job)
    tab = visit()
    assert said in status(tab)
    assert disabled(tab) == grey


# a real server


def test_live_data_come_by_themselves_until_the_end(port):
    """Nobody presses anything: the curves grow, accuracy rises, and then the ticking ends."""
    link = urlencode({**SMALL, "steps": "10000", "n_entries": "4"})
    with Visitor(port, link) as visitor:
        visitor.wait_for("all thumbnails", lambda: not visitor.ticking)
        visitor.press("train")
        ends = []

        def finished():
            ends.append(visitor.evaluated_to())
            return any(text.startswith("Finished") for text in visitor.texts())

        visitor.wait_for("the end", finished)
        visitor.settle()
        assert not visitor.ticking
        _, accuracy = visitor.curves()["QKV"]
        assert len(set(ends)) > 2
        assert visitor.evaluated_to() == 10000
        assert accuracy[-1] > accuracy[0] + 0.2
        assert visitor.exceptions == []


def test_a_tick_sends_live_data_only(port):
    """Neither code nor widgets travel again: a tick is some kilobytes."""
    with Visitor(port, urlencode({**SMALL, **UNENDING})) as visitor:
        visitor.press("train")
        visitor.wait_for("a curve", lambda: visitor.ticking and visitor.evaluated_to() > 0)
        bytes_before, n_before = visitor.bytes_received, len(visitor.changes)
        visitor.wait_for("ticks", lambda: len(visitor.changes) >= n_before + 12)
        assert visitor.bytes_received - bytes_before < 300_000
        visitor.press("stop")
        visitor.wait_for("the stop", lambda: not visitor.ticking)


def test_pickers_answer_within_the_live_area(port):
    """A choice of seed redraws the maps and leaves the page alone."""
    with Visitor(port, urlencode({**SMALL, "steps": "10"})) as visitor:
        visitor.press("train")
        visitor.wait_for("the end", lambda: not visitor.ticking)
        visitor.settle()
        n_before = len(visitor.changes)
        visitor.set("seed_0_1", "0")
        assert visitor.run.fragments
        assert {key for _, key in visitor.changes[n_before:]} <= {"board"}


# the link


LINK = {
    "v": "1",
    "task": "phonebook",
    "sharing": "Q=K,Q=K=V,QKV n_heads=4 kv_heads=2",
    "n_seeds": "3",
    "first_seed": "17",
    "equal": "parameters",
    "n_entries": "5",
    "n_values": "13",
    "d_model": "48",
    "n_heads": "2",
    "d_mlp": "24",
    "positions": "learned",
    "causal": "true",
    "self_mask": "true",
    "steps": "70",
    "learning_rate": "0.001",
}
"""Every kind of setting, none at its default."""


def test_a_link_sets_every_widget():
    """Numbers, switches, choices, the task and the sharings."""
    tab = visit(**LINK)
    assert not tab.warning
    assert tab.session_state["lab"].experiment == from_params(LINK)
    assert drawn(tab, "gallery")["current"] == "phonebook"
    assert tab.button_group(key="set_sharing").value == [
        "Q=K",
        "Q=K=V",
        "QKV n_heads=4 kv_heads=2",
    ]
    for name, value in from_params(LINK).settings().items():
        if name not in ("task", "sharing", "earlier_steps"):
            assert widget(tab, name).value == value, name
    assert tab.query_params == LINK


def test_the_link_keeps_only_what_differs_from_the_defaults():
    """A short address, and an empty one for the default experiment."""
    assert visit(v="1", steps="600", d_head="8", sharing="QKV,Q=K,K=V,Q=V,Q=K=V").query_params == {
        "v": "1",
        "d_head": "8",
    }
    assert visit(v="1", task="directed", steps="600").query_params == {}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("d_head", 9, "9"),
        ("learning_rate", 0.01, "0.01"),
        ("causal", True, "true"),
        ("positions", "learned", "learned"),
        ("equal", "kv_cache", "kv_cache"),
    ],
)
def test_a_changed_widget_is_written_to_the_link(name, value, text):
    """And taken out again with its default."""
    tab = visit()
    default = widget(tab, name).value
    widget(tab, name).set_value(value)
    assert show(tab).query_params == {"v": "1", name: text}
    widget(tab, name).set_value(default)
    assert show(tab).query_params == {}


def test_chosen_sharings_are_written_to_the_link_in_their_order():
    """Whatever was clicked first."""
    tab = visit()
    tab.button_group(key="set_sharing").set_value(["Q=V", "QKV"])
    assert show(tab).query_params == {"v": "1", "sharing": "QKV,Q=V"}


def test_a_link_changed_from_outside_is_followed():
    """The browser's history, or a preset of the guide."""
    tab = visit(v="1", d_head="8")
    tab.query_params = {"v": "1", "task": "mutual", "d_head": "4"}
    show(tab)
    assert tab.session_state["lab"].experiment == Experiment(task="mutual", d_head=4)
    assert tab.number_input(key="set_d_head").value == 4
    assert drawn(tab, "gallery")["current"] == "mutual"


def test_a_click_with_the_address_of_a_moment_ago_changes_nothing_back():
    """It left the browser before our change of the address arrived there."""
    tab = visit(v="1", d_head="8")
    tab.number_input(key="set_d_head").set_value(9)
    show(tab)
    tab.query_params = {"v": "1", "d_head": "8"}
    assert show(tab).query_params == {"v": "1", "d_head": "9"}
    assert tab.number_input(key="set_d_head").value == 9


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"v": "1", "steps": "abc"}, "steps: got 'abc', allowed a whole number"),
        ({"v": "1", "steps": "0"}, "steps: got '0', allowed a whole number from 1 to 50000"),
        ({"v": "1", "steps": ""}, "steps: got '', allowed a whole number from 1 to 50000"),
        ({"v": "1", "stepz": "3"}, "stepz: got '3', allowed a known setting"),
        ({"v": "1", "causal": "maybe"}, "causal: got 'maybe', allowed true or false"),
        ({"v": "1", "positions": "gps"}, "positions: got 'gps', allowed none or learned or rope"),
        ({"v": "1", "equal": "all"}, "equal: got 'all', allowed nothing or parameters"),
        ({"v": "7"}, "v: got '7', allowed 1"),
        ({"v": "1", "task": "chess"}, "task: got 'chess', allowed "),
        ({"v": "1", "sharing": ""}, "sharing: got '', but"),
        ({"v": "1", "sharing": "Q-K=V"}, "sharing: got 'Q-K=V', but 'Q-K=V' is unknown"),
        ({"v": "1", "sharing": "QKV kv_heads=2"}, "but kv_heads=2 does not divide n_heads=1"),
        ({"v": "1", "n_entries": "12", "n_names": "8"}, "n_entries: got 12, allowed at most"),
        ({"v": "1", "first_seed": "9" * 99}, "first_seed: got '999"),
        ({"v": "1", "task": "mutual", "n_entries": "7"}, "n_entries: got '7', allowed an even"),
        ({"v": "1", "set_steps": "<b>5</b>"}, "set_steps: got '<b>5</b>', allowed"),
    ],
)
def test_a_broken_link_names_the_field_and_takes_its_default(params, named):
    """A stale or mistyped link still opens; what was understood is kept."""
    tab = visit(**{**params, "d_mlp": "8"})
    assert len(tab.warning) == 1
    assert named in told(tab.warning[0])
    experiment = tab.session_state["lab"].experiment
    assert experiment.size.d_mlp == 8
    for name in params.keys() - {"v", "task", "n_names"}:
        kept = experiment.settings().get(name)
        assert kept == Experiment(task=experiment.task.name).settings().get(name), name
    assert not tab.error
    assert not tab.button(key="train").disabled
    assert from_params(tab.query_params) == experiment


def test_values_of_a_link_are_no_markup():
    """Who sends a link to somebody else writes no text of ours, and no links."""
    tab = visit(v="1", steps="[free](https://example.org) **now** :red[x] <b>")
    assert "\\[free\\]\\(https" in tab.warning[0].value
    assert not re.search(r"(?<!\\)[\[\]*<>]", tab.warning[0].value)


def test_the_warning_goes_away_with_the_next_run():
    """It is said once."""
    tab = visit(v="1", steps="abc")
    assert tab.warning
    assert not show(tab).warning


# settings that do not fit


def test_settings_that_contradict_each_other_name_the_field():
    """Nothing can be trained until they are mended; the link keeps the last valid ones."""
    tab = visit(v="1", d_head="8")
    tab.number_input(key="set_n_names").set_value(6)
    show(tab)
    assert len(tab.error) == 1
    assert "Entries: 8 is not allowed. Allowed: at most “Names” (6)." in told(tab.error[0])
    assert disabled(tab) >= {"train", "step", "reset", "new_seeds"}
    assert tab.query_params == {"v": "1", "d_head": "8"}
    tab.number_input(key="set_n_entries").set_value(6)
    show(tab)
    assert not tab.error
    assert not tab.button(key="train").disabled
    assert tab.query_params == {"v": "1", "d_head": "8", "n_entries": "6", "n_names": "6"}


def test_no_sharing_is_an_error():
    """Somebody has taken the last pill out."""
    tab = visit()
    tab.button_group(key="set_sharing").set_value([])
    show(tab)
    assert told(tab.error[0]) == "Choose at least one variant."
    assert tab.button(key="train").disabled


def test_a_running_job_can_be_stopped_while_settings_do_not_fit(running):
    """Trouble with the next experiment is none of the present one's."""
    running.number_input(key="set_n_names").set_value(4)
    show(running)
    assert running.error
    assert disabled(running) == {"train", "step", "reset", "new_seeds"}
    press(running, "stop")
    watch(running, lambda job: job.state == "stopped")


# composed variants


COMPOSED = ["Q=K signed", "Q=K unit_key self_mask"]


def compose(tab, text):
    """Open the form and write a variant."""
    tab.session_state["add_variant"] = True
    show(tab)
    tab.text_input(key="variant_text").set_value(text)
    return show(tab)


def chosen(tab):
    """The variants that are switched on."""
    return tab.button_group(key="set_sharing").value


def pills(tab):
    """What can be switched on, as it is shown."""
    return [option.content for option in tab.button_group(key="set_sharing").proto.options]


def can_add(tab):
    """Whether the form has a button that can be pressed."""
    return any(button.key == "add" and not button.disabled for button in tab.button)


def test_a_composed_variant_can_be_written_and_added():
    """It becomes a column, a pill and a part of the link; the form is empty again."""
    tab = compose(visit(v="1", sharing="QKV,Q=K"), "q=k SIGNED temperature=2")
    press(tab, "add")
    assert chosen(tab) == ["QKV", "Q=K", "Q=K signed temperature=2"]
    assert tab.query_params["sharing"] == "QKV,Q=K,Q=K signed temperature=2"
    assert tab.session_state["variant_text"] == ""
    assert not tab.session_state["add_variant"]


def test_the_form_says_what_a_variant_is_and_costs():
    """Diagram, explanation, source, and costs at the sizes that are set up."""
    tab = compose(visit(v="1", sharing="QKV", d_head="8"), "Reformer")
    assert "keys of length 1" in drawn(tab, "previewed")["diagram"]
    said = " ".join(element.value for element in (*tab.markdown, *tab.caption))
    named = find("Reformer")
    costs = Experiment(sharing=["Reformer"], d_head=8).costs("Reformer")
    assert named.explanation in said
    assert named.source in said
    assert f"{costs.parameters:,} parameters; per token {costs.kv_cache} numbers kept" in said
    assert f"{costs.multiply_adds:,} multiply-adds" in said


def test_a_choice_of_the_catalogue_is_written_out():
    """So that it can be changed; and what is written is found in the catalogue."""
    tab = compose(visit(), "")
    tab.selectbox(key="catalogue_name").set_value("mla")
    show(tab)
    assert tab.text_input(key="variant_text").value == "QKV kv_rank=m/4"
    tab.text_input(key="variant_text").set_value("q=k signed")
    assert show(tab).selectbox(key="catalogue_name").value == "indefinite"
    tab.text_input(key="variant_text").set_value("Q=K signed temperature=2")
    assert show(tab).selectbox(key="catalogue_name").value is None
    assert can_add(tab)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Q=K unit_kay", "did you mean unit_key?"),
        ("QKV temperature=hot", "temperature: got 'hot', allowed a number from 0.01 to 100."),
        ("Q=K kv_heads=2", "kv_heads does not go with Q=K"),
        ("QKV kv_heads=2", "kv_heads=2 does not divide n_heads=1"),
        ("QKV V=I", "n_heads · d_head = d_model"),
        ("<b>[x](y)</b> $1$", "is unknown"),
    ],
)
def test_what_is_no_variant_is_told_and_stays_written(text, reason):
    """The reason, and nothing is lost."""
    tab = compose(visit(), text)
    assert reason in told(tab.error[0])
    assert not can_add(tab)
    assert tab.text_input(key="variant_text").value == text
    assert not tab.button(key="train").disabled


def test_a_variant_can_be_switched_off_and_on_again():
    """It stays on offer."""
    tab = visit(v="1", sharing="QKV," + COMPOSED[0])
    assert pills(tab) == [*(sharing.value for sharing in Sharing), "Indefinite"]
    tab.button_group(key="set_sharing").set_value(["QKV"])
    assert show(tab).query_params["sharing"] == "QKV"
    tab.button_group(key="set_sharing").set_value(["QKV", COMPOSED[0]])
    assert show(tab).query_params["sharing"] == "QKV," + COMPOSED[0]


def test_the_form_refuses_a_seventh_column_and_one_that_is_there():
    """And says so."""
    tab = compose(visit(v="1", sharing="QKV,Q=K,K=V,Q=V,Q=K=V," + COMPOSED[0]), COMPOSED[1])
    assert not can_add(tab)
    assert any("6 columns" in caption.value for caption in tab.caption)
    tab = compose(visit(), "MHA")
    assert not can_add(tab)
    assert any(caption.value == "It is one of your columns." for caption in tab.caption)


def test_seven_columns_are_told_and_none_is_dropped():
    """By hand or by link; nothing can be trained until one is switched off."""
    seven = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V", *COMPOSED]
    tab = visit(v="1", sharing=",".join(seven))
    assert tab.error[0].value.startswith("At most 6 variants fit side by side, but 7 are chosen")
    assert chosen(tab) == seven
    assert disabled(tab) >= {"train", "step", "reset", "new_seeds"}
    tab.button_group(key="set_sharing").set_value(seven[1:])
    assert not show(tab).error
    assert disabled(tab) == {"pause", "stop"}


def test_composed_variants_train_beside_each_other():
    """With other heads and widths: cards, maps and curves cope with heads that some lack."""
    variants = ["QKV", "Q=K signed", "QKV n_heads=2 d_k=4 diff", "QKV n_heads=4 kv_heads=1"]
    tab = press(visit_small(sharing=",".join(variants), d_head="4", steps="20"), "train")
    watch(tab, lambda job: job.over)
    assert status(tab).startswith("Finished: Step 20 of 20, 4 models in")
    names = [column["name"] for column in columns(tab)]
    assert sorted(names) == ["Indefinite", "MQA", "QKV", "QKV n_heads=2 d_k=4 diff"]
    head = next(box for box in tab.selectbox if box.label == "Head")
    assert head.options == ["mean of heads", *(f"head {number}" for number in (1, 2, 3, 4))]
    head.set_value(2)
    show(tab)
    lacking = {column["name"]: column["map"]["lacking"] for column in columns(tab)}
    assert lacking["QKV"] == "It has 1 head only."
    assert lacking["QKV n_heads=2 d_k=4 diff"] == "It has 2 heads only."
    assert lacking["MQA"] == ""


def test_columns_tell_what_was_changed_to_make_costs_equal():
    """Only where something is to be equal."""
    tab = press(visit_small(equal="parameters", steps="5"), "train")
    watch(tab, lambda job: job.over)
    experiment = job_of(tab).experiment
    facts = {card["name"]: card["facts"] for card in columns(tab)}
    assert facts["QKV"].endswith("; nothing changed")
    assert experiment.adjusted("Q=K").changes in facts["Q=K"]


# switching the task


def switch(tab, task):
    """Choose another task."""
    tab.session_state["wanted"] = task  # as a card of the gallery does
    return show(tab)


def test_a_task_brings_its_own_defaults():
    """Where nothing was set by hand."""
    tab = visit()
    assert tab.number_input(key="set_d_head").value == 16
    switch(tab, "phonebook")
    assert tab.number_input(key="set_d_head").value == 8
    assert tab.toggle(key="set_self_mask").value is False
    assert tab.query_params == {"v": "1", "task": "phonebook"}
    assert drawn(tab, "gallery")["current"] == "phonebook"
    assert switch(tab, "directed").query_params == {}


def test_a_quick_preset_is_offered_and_set_up():
    """Until it is set up; the link follows, and what was set by hand goes back to its default."""
    tab = visit(v="1", task="reverse", n_seeds="2")
    press(tab, "quick_preset")
    quick = Experiment(task="reverse", **TASKS["reverse"].preset)
    assert tab.session_state["lab"].experiment == quick
    assert from_params(tab.query_params) == quick
    assert not any(button.key == "quick_preset" for button in tab.button)
    tab.number_input(key="set_length").set_value(9)
    show(tab)
    assert tab.button(key="quick_preset")


def test_values_set_by_hand_survive_a_change_of_task():
    """People compare tasks under their settings."""
    tab = visit(v="1", d_head="4", steps="70", sharing="QKV,Q=K", causal="true")
    switch(tab, "mutual")
    assert tab.session_state["lab"].experiment == Experiment(
        task="mutual", d_head=4, steps=70, sharing=["QKV", "Q=K"], causal=True
    )
    assert tab.number_input(key="set_d_head").value == 4
    assert not tab.warning


def test_the_first_seed_does_not_go_to_another_task():
    """It is hidden under More, and with it the new task would have no finished example."""
    tab = switch(visit(v="1", first_seed="7", d_head="4"), "mutual")
    assert tab.session_state["lab"].experiment == Experiment(task="mutual", d_head=4)
    tab = switch(visit(v="1", first_seed="7"), "mutual")
    assert "A finished example" in status(tab)


def test_values_that_the_new_task_does_not_allow_are_let_go():
    """Married couples come in pairs: the other settings stay."""
    tab = visit(v="1", n_entries="7", d_head="4")
    switch(tab, "mutual")
    assert tab.session_state["lab"].experiment == Experiment(task="mutual", d_head=4)
    assert tab.number_input(key="set_n_entries").value == 8
    assert not tab.error


def test_composed_variants_survive_a_change_of_task():
    """They are what is compared."""
    sharing = "QKV,Q=K signed,K=V n_heads=4 kv_heads=1"
    tab = switch(visit(v="1", sharing=sharing), "phonebook")
    assert tab.query_params["sharing"] == sharing
    assert not tab.warning


def test_a_variant_that_the_new_task_does_not_allow_is_switched_off_and_told():
    """Its width is no whole number there; the others stay, and it stays on offer."""
    tab = switch(visit(v="1", sharing="QKV,QKV d_k=d/16,Q=K signed"), "phonebook")
    assert tab.query_params["sharing"] == "QKV,Q=K signed"
    assert "d_k=d/16 is 8/16 here" in told(tab.warning[0])
    assert "QKV d_k=d/16" in pills(tab)
    assert not show(tab).warning


def test_a_change_of_task_takes_the_job_off_the_screen(running):
    """Another task's curves under this task's question would mislead; who began it ends it."""
    before = job_of(running).id
    switch(running, "mutual")
    assert job_of(running) is None
    assert training_service().look(before).state == "stopped"
    assert "not trained yet" in status(running).lower()


# somebody's own tasks


@pytest.fixture
def own_task():
    """Registers a task for one test."""
    before = dict(TASKS)

    def register_own(name, base, **members):
        own = type("Own", (base,), {"__annotations__": {}, "name": name, **members})
        return register_task(own)

    yield register_own
    TASKS.clear()
    TASKS.update(before)


def fail(*_):
    """What a task may do that was never tried."""
    raise KeyError("mine")


@pytest.mark.parametrize(
    "members",
    [{"label": fail}, {"overrides": {"steps": -1}}, {"d_vocab": property(fail)}],
    ids=["label", "defaults", "vocabulary"],
)
@pytest.mark.parametrize("page", ["lab", "guide"])
def test_a_task_that_fails_loses_its_thumbnail_only(own_task, members, page):
    """All others work as before."""
    own_task("broken", TASKS["phonebook"], **members)
    tab = visit()
    for name in ("phonebook", "directed"):
        training_service().example(Experiment(task=name), PATIENCE)
    if page == "guide":
        tab.switch_page("pages/guide.py")
    cards = drawn(show(tab), "gallery" if page == "lab" else "tasks")["families"][0]["tasks"]
    thumbnails = {card["name"]: card["thumbnail"] for card in cards}
    assert thumbnails["broken"] == ""
    assert thumbnails["phonebook"]
    assert thumbnails["directed"]


@pytest.mark.parametrize("base", ["phonebook", "fuzzy_phonebook"])
def test_a_task_that_is_a_phone_book_can_be_asked_like_it(own_task, base):
    """With the question of the task that it was made of."""
    own_task("mine", TASKS[base])
    tab = visit(v="1", task="mine")
    assert tab.text_input(key="asked_mine").value == TASKS[base].default_query


def test_groups_of_answers_without_a_title_are_shown(own_task, monkeypatch):
    """They have names, which is enough."""
    base = TASKS["k_hop"]
    own_task("mine", base, slice_title="")
    snapshot = Training(Experiment(task="mine", n_seeds=1, sharing=["QKV"])).snapshot("finished")
    job = Job("fake", snapshot.experiment, state="finished", begun=True, snapshot=snapshot)
    monkeypatch.setattr(Lab, "job", job)
    tab = visit(v="1", task="mine")
    assert "**Accuracy by group**" in [text.value for text in tab.markdown]


# numbers and code


def test_the_code_shown_is_the_experiment_on_screen():
    """It can be pasted into Python."""
    tab = press(visit_small(steps="5", causal="true", learning_rate="0.01"), "train")
    watch(tab, lambda job: job.over)
    told = re.search(
        r"experiment = (.*)\nresult = ak\.train\(experiment\)", tab.code[0].value, re.S
    )
    assert eval(told[1], {"ak": ak}) == job_of(tab).experiment


# a phone book of one's own


@pytest.fixture(scope="module")
def asked(pages_service):
    """A tab whose phone book is learnt, exactly and by likeness."""
    tabs = {}
    for task, steps in (("phonebook", "250"), ("fuzzy_phonebook", "400")):
        tab = visit(v="1", task=task, sharing="QKV,Q=K", n_seeds="2", steps=steps, first_seed="77")
        press(tab, "train")
        tabs[task] = watch(tab, lambda job: job.over)
    return tabs


def ask_book(tab, task, book=None, name=None):
    """Type a book and a question; what is answered, without markup."""
    if book is not None:
        tab.text_area(key=f"book_{task}").set_value(book)
    if name is not None:
        tab.text_input(key=f"asked_{task}").set_value(name)
    show(tab)
    return re.sub(r"<[^>]*>", " ", drawn(tab, "custom_book_answers")["diagram"])


@pytest.mark.parametrize(("task", "name"), [("phonebook", "anna"), ("fuzzy_phonebook", "Amna")])
def test_trained_models_answer_a_book_of_ones_own(asked, task, name):
    """With the person's own numbers, for another number of entries than in training."""
    said = ask_book(asked[task], task, "Jindřich 731\nAnna 204\nBernd 518", name)
    assert said.count("204 ✓") == 2
    assert said.count("2 of 2") == 2


def test_a_book_of_twelve_is_answered(asked):
    """The dial's maximum is the limit, not what was trained."""
    lines = [f"{name} {i + 100}" for i, name in enumerate("abcdefghijkl")]
    assert "104 ✓" in ask_book(asked["phonebook"], "phonebook", "\n".join(lines), "E")


@pytest.mark.parametrize(
    ("book", "named"),
    [
        ("", "The book: got no entries"),
        ("   \n\n", "The book: got no entries"),
        ("Ada 1\nBen", "Line 2: got “Ben”, which has no number"),
        ("x" * 10_000, "Line 1: got “xxx"),
        ("\n".join(f"{i}n {i}" for i in range(70)), "allowed at most"),
        ("<b>x</b> $1$ `a` *b*\nBen", "Line 1"),
    ],
)
def test_a_book_that_cannot_be_asked_is_told(asked, book, named):
    """Line, value, what is allowed; nothing is taken for markup."""
    tab = asked["phonebook"]
    tab.text_area(key="book_phonebook").set_value(book)
    show(tab)
    said = " ".join(map(told, tab.error))
    assert named in said
    assert len(said) < 2000
    assert not any(element.key == "custom_book_answers" for element in tab.get("bidi_component"))


def test_names_are_no_markup(asked):
    """Neither HTML nor Markdown nor formulas."""
    tab = asked["phonebook"]
    tab.text_area(key="book_phonebook").set_value("<img src=x onerror=alert(1)> 1\n**B** 2")
    tab.text_input(key="asked_phonebook").set_value("<script>alert(1)</script> $x$")
    show(tab)
    html = drawn(tab, "custom_book_answers")["diagram"]
    assert "<img" not in html
    assert "&lt;img" in html
    note = tab.caption[-1].value if "not in" in tab.caption[-1].value else tab.caption[-2].value
    assert "<script>" not in note


def test_a_book_is_asked_once_while_nothing_changes(asked, monkeypatch):
    """The training process is not kept waiting by a visitor who does something else."""
    tab = asked["phonebook"]
    ask_book(tab, "phonebook", "Ada 1\nBen 2", "Ada")
    monkeypatch.setattr(TrainingService, "ask", lambda *_: "Busy")
    assert "1 ✓" in ask_book(tab, "phonebook")
    assert "2 ✓" in ask_book(tab, "phonebook", name="Ben")  # every name was asked at once
    tab.text_area(key="book_phonebook").set_value("Ada 1\nBen 2\nCem 3")
    assert told(show(tab).warning[-1]) == "Busy."


@pytest.mark.parametrize(("task", "name"), [("phonebook", "anna"), ("fuzzy_phonebook", "Amna")])
def test_the_finished_example_answers_before_anything_is_trained(task, name):
    """Its first seed, whose weights are shipped."""
    tab = visit(v="1", task=task)
    said = ask_book(tab, task, "Jindřich 731\nAnna 204\nBernd 518", name)
    assert said.count("204 ✓") == 5
    assert any("Models of the finished example" in caption.value for caption in tab.caption)
    assert job_of(tab) is None


def test_nobody_answers_before_training():
    """Which is said where the settings are not those of a finished example."""
    tab = visit_small(task="phonebook")
    assert any("Your settings are not trained yet" in info.value for info in tab.info)
    assert not visit_small(task="mutual").text_area


def test_learned_positions_answer_the_trained_size_only():
    """Which is said per variant."""
    tab = visit_small(task="phonebook", positions="learned", steps="10", n_entries="6")
    press(tab, "train")
    watch(tab, lambda job: job.over)
    said = ask_book(tab, "phonebook")
    assert said.count("It answers books of 6 entries only") == 2
    said = ask_book(tab, "phonebook", "a 1\nb 2\nc 3\nd 4\ne 5\nf 6", "a")
    assert "It answers" not in said


# other pages


def test_the_guide_shows_every_sharing_preset_and_task():
    """The question, what to try, what the words mean."""
    tab = visit().switch_page("pages/guide.py")
    show(tab)
    text = " ".join(element.value for element in tab.markdown)
    assert tab.title[0].value == "Guide"
    for preset in PRESETS:
        assert preset.title in text
    families = drawn(tab, "tasks")["families"]
    cards = [card for family in families for card in family["tasks"]]
    for card, (name, task) in zip(cards, TASKS.items(), strict=True):
        assert (card["name"], card["question"]) == (name, task.question)
        assert card["source"] == task.source
    assert "asymmetry" in text


def test_the_variants_page_shows_the_catalogue_and_every_word():
    """Name, text form, explanation, source, costs, and a way to the Lab."""
    tab = show(visit().switch_page("pages/variants.py"))
    said = " ".join(element.value for element in (*tab.markdown, *tab.caption))
    codes = [code.value for code in tab.code]
    for named in CATALOGUE.values():
        assert named.variant in codes
        assert f"**{named.name}**" in said
        assert named.explanation in said
        assert f"Source: {named.source}" in said
    for word in OPTIONS:
        assert f"| `{word}` |" in said
    assert "Accuracy 100%." in said
    links = [link.proto for link in tab.get("page_link")]
    assert len([link for link in links if "QKV in the Lab" in link.label]) == len(CATALOGUE) - 1


def test_the_variants_page_does_without_recorded_accuracies(monkeypatch):
    """They are made by a command that may not have been run."""
    load_variants.cache_clear()
    monkeypatch.setattr("attnkit.examples.VARIANTS", "missing.json")
    tab = show(visit().switch_page("pages/variants.py"))
    load_variants.cache_clear()
    assert not any("Accuracy" in caption.value for caption in tab.caption)


def test_the_variants_page_lists_what_others_register():
    """Also what does not go with the default sizes, with the reason."""
    before = dict(CATALOGUE)
    try:
        register("Of my own", "QKV kv_heads=3", "why", "me")
        tab = show(visit().switch_page("pages/variants.py"))
    finally:
        CATALOGUE.clear()
        CATALOGUE.update(before)
    assert "Own" in [heading.value for heading in tab.subheader]
    assert any("kv_heads=3 does not divide" in caption.value for caption in tab.caption)


def test_the_guide_can_be_the_first_page():
    """Somebody has followed a link to it."""
    tab = AppTest.from_file(DASHBOARD, default_timeout=PATIENCE)
    assert show(tab.switch_page("pages/guide.py")).title[0].value == "Guide"


def test_settings_and_training_survive_a_visit_to_the_guide(running):
    """Streamlit empties the address on the way; the Lab writes it again."""
    before, link = job_of(running).id, dict(running.query_params)
    show(running.switch_page("pages/guide.py"))
    running.query_params.clear()
    show(running.switch_page("pages/lab.py"))
    assert job_of(running).id == before
    assert running.number_input(key="set_d_head").value == 3
    assert running.query_params == link


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.title)
def test_every_preset_opens_as_it_was_meant(preset):
    """The link of a preset is its experiment."""
    tab = visit(**preset.params)
    assert not tab.warning
    assert not tab.error
    assert tab.session_state["lab"].experiment == preset.experiment
