"""Tasks in the Lab: switching between them, and tasks that somebody else has registered."""

import pytest
from visiting import PATIENCE, drawn, pills, plain_text, press, show, status, switch, visit

from attnkit.experiment.experiment import Experiment, from_params, full_size
from attnkit.service.jobs import Job
from attnkit.tasks import TASKS, register_task
from attnkit.training import Training
from attnkit.ui.lab import Lab
from attnkit.ui.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def test_a_task_brings_its_own_defaults():
    """A change of task sets that task's defaults wherever nothing was set by hand."""
    tab = visit()
    assert tab.number_input(key="set_d_head").value == 16
    switch(tab, "phonebook")
    assert tab.number_input(key="set_d_head").value == 8
    assert tab.toggle(key="set_self_mask").value is False
    assert tab.query_params == {"v": "1", "task": "phonebook"}
    assert drawn(tab, "gallery")["current"] == "phonebook"
    assert switch(tab, "directed").query_params == {}


def test_the_full_size_is_offered_and_set_up():
    """The full size is offered until it is set up; the link follows."""
    tab = visit(v="1", task="reverse", n_seeds="2")
    press(tab, "full_size")
    full = full_size("reverse")
    assert tab.session_state["lab"].experiment == full
    assert from_params(tab.query_params) == full
    assert not any(button.key == "full_size" for button in tab.button)
    tab.number_input(key="set_length").set_value(9)
    show(tab)
    assert tab.button(key="full_size")


def test_values_set_by_hand_survive_a_change_of_task():
    """Values set by hand survive a change of task, so that tasks can be compared."""
    tab = visit(v="1", d_head="4", steps="70", sharing="QKV,Q=K", causal="true")
    switch(tab, "mutual")
    assert tab.session_state["lab"].experiment == Experiment(
        task="mutual", d_head=4, steps=70, sharing=["QKV", "Q=K"], causal=True
    )
    assert tab.number_input(key="set_d_head").value == 4
    assert not tab.warning


def test_the_first_seed_does_not_go_to_another_task():
    """A change of task resets the first seed, so that the finished example is shown."""
    tab = switch(visit(v="1", first_seed="7", d_head="4"), "mutual")
    assert tab.session_state["lab"].experiment == Experiment(task="mutual", d_head=4)
    tab = switch(visit(v="1", first_seed="7"), "mutual")
    assert "A finished example" in status(tab)


def test_values_that_the_new_task_does_not_allow_are_let_go():
    """A value that the new task does not allow takes its default, and the others stay."""
    tab = visit(v="1", n_entries="7", d_head="4")
    switch(tab, "mutual")
    assert tab.session_state["lab"].experiment == Experiment(task="mutual", d_head=4)
    assert tab.number_input(key="set_n_entries").value == 8
    assert not tab.error


def test_composed_variants_survive_a_change_of_task():
    """Composed variants survive a change of task."""
    sharing = "QKV,Q=K signed,K=V n_heads=4 kv_heads=1"
    tab = switch(visit(v="1", sharing=sharing), "phonebook")
    assert tab.query_params["sharing"] == sharing
    assert not tab.warning


def test_a_variant_that_the_new_task_does_not_allow_is_switched_off_and_told():
    """A variant with a width the new task does not allow is off, explained, and on offer."""
    tab = switch(visit(v="1", sharing="QKV,QKV d_k=d/16,Q=K signed"), "phonebook")
    assert tab.query_params["sharing"] == "QKV,Q=K signed"
    assert "d_k=d/16 is 8/16 here" in plain_text(tab.warning[0])
    assert "QKV d_k=d/16" in pills(tab)
    assert not show(tab).warning


# tasks from outside the package


@pytest.fixture
def register_until_end():
    """Return a function that registers a task until the end of the test."""
    before = dict(TASKS)

    def register_one(name, base, **members):
        defined = type("Own", (base,), {"__annotations__": {}, "name": name, **members})
        return register_task(defined)

    yield register_one
    TASKS.clear()
    TASKS.update(before)


def fail(*_):
    """Fail, as an untried member of a task may do."""
    raise KeyError("mine")


@pytest.mark.parametrize(
    "members",
    [{"label": fail}, {"overrides": {"steps": -1}}, {"d_vocab": property(fail)}],
    ids=["label", "defaults", "vocabulary"],
)
def test_a_task_that_fails_loses_its_thumbnail_only(register_until_end, members):
    """A task that fails has no thumbnail, and all other tasks have theirs."""
    register_until_end("broken", TASKS["phonebook"], **members)
    tab = visit()
    for name in ("phonebook", "directed"):
        training_service().example(Experiment(task=name), PATIENCE)
    cards = drawn(show(tab), "gallery")["families"][0]["tasks"]
    thumbnails = {card["name"]: card["thumbnail"] for card in cards}
    assert thumbnails["broken"] == ""
    assert thumbnails["phonebook"]
    assert thumbnails["directed"]


@pytest.mark.parametrize("base", ["phonebook", "fuzzy_phonebook"])
def test_a_task_that_is_a_phone_book_can_be_asked_like_it(register_until_end, base):
    """A task derived from a phone book offers the default query of its base."""
    register_until_end("mine", TASKS[base])
    tab = visit(v="1", task="mine")
    assert tab.text_input(key="asked_mine").value == TASKS[base].default_query


def test_groups_of_answers_without_a_title_are_shown(register_until_end, monkeypatch):
    """Groups of answers without a title are shown under a general heading."""
    base = TASKS["k_hop"]
    register_until_end("mine", base, slice_title="")
    snapshot = Training(Experiment(task="mine", n_seeds=1, sharing=["QKV"])).snapshot("finished")
    job = Job("fake", snapshot.experiment, state="finished", begun=True, snapshot=snapshot)
    monkeypatch.setattr(Lab, "job", job)
    tab = visit(v="1", task="mine")
    assert "**Accuracy by group**" in [text.value for text in tab.markdown]
