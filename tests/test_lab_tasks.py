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


def test_values_set_by_hand_survive_a_change_of_task_if_it_allows_them():
    """So tasks can be compared; the first seed does not, so that the finished example is shown."""
    composed = "QKV,Q=K signed,K=V n_heads=4 kv_heads=1"
    link = {"d_head": "4", "steps": "70", "causal": "true", "first_seed": "7", "n_entries": "7"}
    tab = switch(visit(v="1", **link, sharing=composed), "mutual")
    assert tab.session_state["lab"].experiment == Experiment(
        task="mutual", d_head=4, steps=70, sharing=composed.split(","), causal=True
    )
    assert tab.number_input(key="set_d_head").value == 4
    assert tab.number_input(key="set_n_entries").value == 8  # it takes even numbers only
    assert not tab.warning
    assert not tab.error
    assert "A finished example" in status(switch(visit(v="1", first_seed="7"), "mutual"))


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


def test_a_task_that_fails_loses_its_thumbnail_only(register_until_end):
    """All other tasks have theirs, whatever fails in it."""
    wrong = [{"label": fail}, {"overrides": {"steps": -1}}, {"d_vocab": property(fail)}]
    for number, members in enumerate(wrong):
        register_until_end(f"broken{number}", TASKS["phonebook"], **members)
    register_until_end("mine", TASKS["fuzzy_phonebook"])
    tab = visit(v="1", task="mine")
    assert tab.text_input(key="asked_mine").value == TASKS["fuzzy_phonebook"].default_query
    for name in ("phonebook", "directed"):
        training_service().example(Experiment(task=name), PATIENCE)
    families = drawn(show(tab), "gallery")["families"]
    drawn_of = {card["name"]: card["thumbnail"] for one in families for card in one["tasks"]}
    assert [drawn_of[f"broken{number}"] for number in range(3)] == [""] * 3
    assert drawn_of["phonebook"]
    assert drawn_of["directed"]


def test_groups_of_answers_without_a_title_are_shown(register_until_end, monkeypatch):
    """Groups of answers without a title are shown under a general heading."""
    base = TASKS["k_hop"]
    register_until_end("mine", base, slice_title="")
    snapshot = Training(Experiment(task="mine", n_seeds=1, sharing=["QKV"])).snapshot("finished")
    job = Job("fake", snapshot.experiment, state="finished", begun=True, snapshot=snapshot)
    monkeypatch.setattr(Lab, "job", job)
    tab = visit(v="1", task="mine")
    assert "**Accuracy by group**" in [text.value for text in tab.markdown]
