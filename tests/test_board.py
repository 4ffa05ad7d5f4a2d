"""What the Lab's board is drawn from: numbers of a snapshot, in the columns of an experiment."""

import base64
import dataclasses

import numpy as np
import pytest
from finished import finished
from kinds import tiny

from attnkit.experiment import Experiment
from attnkit.figures import board as boards
from attnkit.figures.board import board, planned_board
from attnkit.tasks import TASKS
from attnkit.training.statistics import mean_interval
from attnkit.ui.task_examples import shipped_example


def unpacked(text):
    """The numbers of a packed array."""
    return np.frombuffer(base64.b64decode(text), "<f4")


def drawn(snapshot, experiment=None, **more):
    """The board of a snapshot's first seed."""
    experiment = experiment or snapshot.experiment
    return board(snapshot, experiment, snapshot.experiment.seeds[0], **more)


@pytest.fixture(scope="module")
def example():
    """The finished run that the first visitor sees."""
    return shipped_example("directed")


def test_curves_are_means_with_their_limits_over_all_seeds(example):
    """Every column has the evaluations of its own variant."""
    shown = drawn(example)
    accuracy = mean_interval(example.per_sharing(example.history["accuracy"]))
    assert unpacked(shown["steps"]).tolist() == example.eval_steps.tolist()
    for i, column in enumerate(shown["columns"]):
        np.testing.assert_allclose(
            unpacked(column["curve"]["mean"]), accuracy.mean[:, i], atol=1e-6
        )
        np.testing.assert_allclose(
            unpacked(column["curve"]["low"]), accuracy.low[:, i].clip(0, 1), atol=1e-6
        )
        assert len(unpacked(column["curve"]["runs"])) == 5 * len(example.eval_steps)
    assert [column["value"] for column in shown["columns"]][:2] == ["100%", "49%"]


def test_a_variant_that_is_added_stands_beside_the_numbers_that_are_there(example):
    """A new column is empty until it is trained; nothing is rebuilt when training begins."""
    other = example.experiment.replace(sharing=[*example.experiment.sharing, "QKV kv_heads=1"])
    *known, new = drawn(example, other)["columns"]
    assert [column["value"] for column in known] == ["100%", "49%", "100%", "100%", "48%"]
    assert new["value"] == "–"
    assert "Not trained yet: press Train." in new["said"]
    planned, shown = planned_board(example.experiment), drawn(example)
    assert planned.keys() == shown.keys()
    assert planned["columns"][0].keys() == shown["columns"][0].keys()
    assert all(column["curve"] is None for column in planned["columns"])


def test_the_marked_pair_and_its_mirror_are_told_with_their_scores(example, monkeypatch):
    """By row, column, name and score; nothing where no pair is known or in the frame."""
    scores = np.arange(example.probe.pattern.size, dtype=np.float16).reshape(
        example.probe.pattern.shape
    )
    scores = np.where(np.isfinite(scores), scores % 7, 0).astype(np.float16)
    scores[5:10] = 1.357  # the five seeds of Q=K
    probe = dataclasses.replace(example.probe)
    object.__setattr__(probe, "scores", scores)
    snapshot = dataclasses.replace(example, probe=probe)
    monkeypatch.setattr(boards, "marked_pair", lambda *_: (0, 4))
    shown = drawn(snapshot)
    assert shown["mark"] == {"row": 0, "column": 4, "mirror_row": 4, "mirror_column": 0}
    names = shown["maps"]["columns"]
    assert shown["columns"][1]["scores"] == [
        {"text": f"{names[0]}→{names[4]} 1.36", "same": True},
        {"text": f"{names[4]}→{names[0]} 1.36", "same": True},
    ]
    first = shown["columns"][0]["scores"]
    assert first[0]["text"].endswith(f" {float(scores[0, 0, 0, 0, 4]):.2f}")
    assert first[1]["text"].endswith(f" {float(scores[0, 0, 0, 4, 0]):.2f}")
    assert "1.36" in shown["columns"][1]["said"]
    monkeypatch.setattr(boards, "marked_pair", lambda *_: None)
    assert drawn(example)["mark"] is None
    assert not any(column["scores"] for column in drawn(example)["columns"])
    monkeypatch.setattr(boards, "marked_pair", lambda *_: (0, 99))
    assert drawn(example)["mark"] is None


def test_what_has_no_number_is_said():
    """An undefined asymmetry is not drawn as 0, and diverged runs leave gaps in the mean."""
    snapshot = finished(tiny("directed", sharing="QKV", n_seeds=2), [[[0.1, 0.2]], [[0.3, 0.5]]])
    column = drawn(snapshot)["columns"][0]
    assert column["asymmetry_value"] == "not defined here"
    assert np.isnan(unpacked(column["asymmetry"]["mean"])).all()
    assert "score asymmetry not defined here" in column["said"]
    nan = np.nan
    snapshot = finished(
        tiny("directed", sharing="QKV", n_seeds=2),
        [[[0.1, 0.2]], [[0.3, nan]], [[nan, nan]]],
        diverged_at=[[20, 10]],
    )
    column = drawn(snapshot)["columns"][0]
    assert (column["value"], column["note"]) == ("–", "2 of 2 diverged")
    assert np.isnan(unpacked(column["curve"]["mean"])).tolist() == [False, False, True]


def test_a_task_with_a_loss_to_beat_shows_its_loss():
    """With the loss of the simple model as a level."""
    shown = drawn(shipped_example("language"), layer=1, head=None)
    assert shown["quantity"] == "loss"
    assert shown["top"] > 2.46
    assert {"dash": "dot", "text": "a bigram model 2.46"} in shown["legend"]


def test_names_fit_into_their_columns():
    """More columns of the board: fewer of a map's, so that each has room for its name."""
    for task in TASKS:
        snapshot = shipped_example(task)
        layer = len(snapshot.experiment.layer_specs) - 1
        for n in (2, 5, 6):
            variants = [*snapshot.experiment.sharing, "QKV n_heads=2 d_k=4 diff"][:n]
            other = snapshot.experiment.replace(sharing=variants)
            names = drawn(snapshot, other, layer=layer, head=None)["maps"]["columns"]
            room = boards.BOARD_WIDTH / n - 78
            letter = all(len(name) == 1 for name in names if name != "rest")
            assert len(names) <= max(9, room / (8 if letter else 11)), (task, n)


def test_previous_curves_stand_in_columns_of_the_same_variant(example):
    """Others have none."""
    previous = finished(
        Experiment(task="directed", sharing=["QKV"], n_seeds=1, steps=20), [[[0.1]], [[0.7]]]
    )
    shown = drawn(example, previous=previous)
    np.testing.assert_allclose(unpacked(shown["columns"][0]["curve"]["previous"]), [0.1, 0.7])
    assert unpacked(shown["previous_steps"]).tolist() == [0, 20]
    assert shown["columns"][1]["curve"]["previous"] == ""
    assert {"dash": "previous", "text": "previous experiment"} in shown["legend"]
