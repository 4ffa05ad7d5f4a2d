"""The first visit to the Lab: every task opens with its settings and an example."""

import random

import numpy as np
import pytest
from visiting import (
    await_example,
    columns,
    disabled,
    drawn,
    plain_text,
    press,
    show,
    status,
    visit,
    visit_small,
    watch,
    widgets,
)

from attnkit.tasks import TASKS
from attnkit.training.summary import percent
from attnkit.ui.lab import Lab
from attnkit.ui.task_examples import shipped_example
from attnkit.variants.sharing import Sharing

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def test_the_first_visit_shows_a_finished_example():
    """It names whose numbers it has, warns of nothing, and Train can be pressed."""
    tab = visit()
    assert tab.title[0].value == "Why do Q, K and V need different matrices?"
    assert status(tab).startswith("A finished example: 25 models, 600 steps")
    assert not tab.warning
    assert not tab.error
    assert tab.query_params == {}
    assert disabled(tab) == {"pause", "stop"}
    told = {plain_text(text): text.help for text in tab.markdown}
    (rule,) = (told[text] for text in told if text.startswith("Solved by all 5 seeds: QKV"))
    assert "at least 99% right in three evaluations in a row" in rule
    assert any(text.endswith("right (seed 0).**") for text in told)


def test_every_task_opens_with_its_question_its_dials_and_an_example(seed, long):
    """One with an earlier task, one with a full size, and one that is drawn."""
    drawn_task = random.Random(seed).choice(list(TASKS))
    for task in TASKS if long else {"transfer", "reverse", drawn_task}:
        tab = await_example(visit(v="1", task=task))
        gallery = drawn(tab, "gallery")
        assert gallery["current"] == task
        cards = {card["name"]: card for family in gallery["families"] for card in family["tasks"]}
        assert list(cards) == list(TASKS)
        assert cards[task]["question"] == TASKS[task].question
        assert cards[task]["source"] == TASKS[task].source
        keys = {w.key or "" for w in widgets(tab)}
        assert keys >= {f"set_{dial}" for dial in TASKS[task].model_fields}, task
        assert ("set_earlier_steps" in keys) == (TASKS[task]().earlier is not None)
        assert any(b.key == "full_size" for b in tab.button) == bool(TASKS[task].full_size)
        assert len(drawn(tab, "example")["cells"]) == TASKS[task]().n_ctx
        values = {card["name"]: card["value"] for card in columns(tab)}
        assert list(values) == [sharing.value for sharing in Sharing]
        finished = shipped_example(task)
        accuracy = finished.per_sharing(finished.history["accuracy"][-1])
        assert list(values.values()) == [percent(mean) for mean in accuracy.mean(-1)], task
        assert all(column["map"] for column in columns(tab))


def test_columns_are_those_of_the_switches_and_numbers_those_of_the_settings(seed):
    """Seeded variants and steps: nothing is left of an example that has other settings."""
    random = np.random.default_rng(seed + 11)
    names = [*(sharing.value for sharing in Sharing), "QKV n_heads=4 kv_heads=1"]
    for steps in (600, 70):
        chosen = [name for name in names if random.random() < 0.6] or ["Q=K"]
        tab = visit(v="1", sharing=",".join(chosen), steps=str(steps))
        board = drawn(tab, "board")
        assert [column["text"] for column in board["columns"]] == chosen
        for column in board["columns"]:
            known = steps == 600 and column["text"] in names[:5]
            assert (column["value"] != "–") == (column["curve"] is not None) == known
            assert bool(column["scores"]) == bool(column["asymmetry_value"]) == known
            assert ("not trained yet" in column["said"]) != known
        complete = steps == 600 and names[5] not in chosen
        assert ("ot trained yet" in status(tab)) != complete
        told = " ".join(plain_text(text) for text in tab.markdown)
        assert steps == 600 or "right" not in told
        assert all(name in chosen for name in ("Q=K",) if f"{name} scores" in told)


def test_changed_dials_are_drawn_before_training():
    """The example follows the dials of the task at once, and no other settings."""
    tab = await_example(visit(v="1", task="phonebook"))
    before = drawn(tab, "example")
    assert len(before["cells"]) == 16
    tab.number_input(key="set_d_head").set_value(4)
    assert drawn(show(tab), "example") == before
    tab.number_input(key="set_n_entries").set_value(5)
    cells = drawn(await_example(show(tab)), "example")["cells"]
    assert [cell["asked"] for cell in cells] == [False] * 5 + [True] * 5


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "Drawing an example: the training process is getting ready."),
        ("ValueError: too few", "No example could be drawn. ValueError: too few."),
    ],
)
def test_an_example_that_is_not_there_is_told(monkeypatch, found, message):
    """A message takes the place of a missing example, and Train can still be pressed."""
    monkeypatch.setattr(Lab, "probe", lambda _: found)
    tab = visit()
    assert drawn(tab, "example")["message"] == message
    assert not tab.button(key="train").disabled


def test_a_task_without_a_shipped_example_opens(monkeypatch):
    """A task without a shipped example shows planned cards, and Train works."""
    monkeypatch.setattr("attnkit.ui.run_on_screen.shipped_example", lambda _: None)
    tab = visit_small(task="phonebook", steps="20")
    assert status(tab).startswith("Not trained yet. Press **Train**. It takes about")
    assert {card["note"] for card in columns(tab)} == {"not trained yet"}
    assert any("Tables appear when" in caption.value for caption in tab.caption)
    watch(press(tab, "train"), lambda job: job.over)
    assert len([column for column in columns(tab) if column["map"]]) == 2
