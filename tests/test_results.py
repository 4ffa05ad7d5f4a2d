"""Snapshots and results: thresholds, tables, and files that read back or fail plainly."""

import contextlib
import dataclasses
import json

import numpy as np
import pytest
import torch
from finished import finished
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, tiny
from safetensors.numpy import load, save
from same import assert_same

from attnkit.experiment import Experiment
from attnkit.foundation.machine import processor_kind
from attnkit.training import Training
from attnkit.training.results import Result
from attnkit.training.snapshot import METRICS, Snapshot

SMALL = {
    "n_entries": 5,
    "n_names": 7,
    "n_values": 11,
    "n_seeds": 2,
    "d_head": 3,
    "steps": 7,
    "evaluate_every": 3,
    "batch_size": 16,
    "n_eval": 16,
}


def train_small(**given):
    """The result of a small experiment, stopped before its end."""
    training = Training(Experiment(**{**SMALL, **given}), "cpu")
    training.advance(5)
    return training.result()


RESULT = train_small(sharing=["QKV", "K=V", "Q=K=V"], n_heads=2, n_layers=3)
BLOB = RESULT.snapshot.to_bytes()
N_HEADER = 8 + int.from_bytes(BLOB[:8], "little")
FILES = ("snapshot.safetensors", "parameters.safetensors")
HEAD = json.loads(BLOB[8:N_HEADER])["__metadata__"]["snapshot"]


def with_accuracy(rows, eval_steps=None):
    """A snapshot whose history is made by hand: one row per evaluation."""
    accuracy = np.array(rows, np.float32)
    n_seeds = accuracy.shape[1]
    given = dataclasses.replace(
        RESULT.snapshot,
        experiment=Experiment(**{**SMALL, "sharing": "QKV", "n_seeds": n_seeds}),
        eval_steps=np.arange(len(rows)) * 10 if eval_steps is None else np.array(eval_steps),
        history=dict.fromkeys(METRICS, accuracy),
        diverged_at=np.full(n_seeds, -1),
    )
    return given.steps_to_threshold().tolist()


# Steps to threshold


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([[0.1, 0.99, 1.0, 0.98, 0.99, 0.995, 1.0, 1.0]], [40]),  # the first of three in a row
        ([[1.0, 1.0, 1.0, 0.0, 0.0]], [0]),  # what happens afterwards does not matter
        ([[0.99] * 3, [0.989] * 3], [0, np.nan]),  # 0.99 itself counts, in single precision, too
        ([[0.0, 1.0, 1.0, 1.0]], [10]),
        ([[0.0, 1.0, 1.0]], [np.nan]),
        ([[1.0], [1.0]], [np.nan, np.nan]),  # with fewer than three nothing is known
        ([[1.0, 1.0, np.nan, np.nan]], [np.nan]),
    ],
)
def test_threshold_is_the_first_of_three_evaluations_at_099(columns, expected):
    """In steps, for every run apart; missing if it is never reached."""
    assert with_accuracy(np.transpose(columns)) == pytest.approx(expected, nan_ok=True)


def test_threshold_is_a_step_at_which_an_evaluation_was_made():
    """Runs are judged apart, also where evaluations are not evenly spaced."""
    rows = [[0, 1, 0], [1, 1, 0], [1, 1, 0], [1, 0, 1]]
    found = with_accuracy(rows, eval_steps=[0, 7, 14, 17])
    assert found == pytest.approx([7, 0, np.nan], nan_ok=True)


def test_what_was_solved_before_it_was_tied_is_not_solved():
    """Of a variant that is tied later, only what it becomes can reach the threshold."""
    experiment = Experiment(sharing=["QKV", "QKV tie=K=V"], n_seeds=2, steps=20, evaluate_every=2)
    solved = finished(experiment, np.ones((11, 2, 2)))
    assert experiment.tie_step("QKV tie=K=V") == 10
    assert solved.steps_to_threshold().tolist() == [0, 0, 10, 10]


# Snapshots


def test_numbers_of_a_snapshot_by_hand():
    """Asymmetry, runs by sharing and seed, and model-steps of all runs per second."""
    snapshot, history = RESULT.snapshot, {"score_symmetry": np.array([[1.0, 0.0, -1.0]])}
    found = dataclasses.replace(snapshot, history=history).asymmetry
    assert found.tolist() == [[0, 0.5, 1]]
    split = snapshot.per_sharing(np.arange(5 * 6).reshape(5, 6))
    assert split.shape == (5, 3, 2)
    assert split[0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert dataclasses.replace(snapshot, seconds=2.0).model_steps_per_second == 15
    assert dataclasses.replace(snapshot, seconds=0.0).model_steps_per_second == 0


@pytest.mark.parametrize("kind", KINDS)
def test_results_of_every_kind_read_back(kind, tmp_path):
    """Experiment, status, times and the bits of every array, missing values included."""
    training = Training(tiny(kind), "cpu")
    training.advance(5)
    result = training.result()
    result.snapshot.history["loss"][1, 1] = np.nan
    result.save(tmp_path)
    back = Result.load(tmp_path)
    assert (back.snapshot.status, back.snapshot.step) == ("stopped", 5)
    assert len(back.parameters) == result.experiment.n_runs
    assert_same(back, result)


@given(st.binary(max_size=300) | st.integers(0, len(BLOB) - 1).map(lambda n: BLOB[:n]))
def test_other_bytes_are_a_value_error(blob):
    """A file cut short, or one of another kind."""
    with pytest.raises(ValueError, match="snapshot"):
        Snapshot.from_bytes(blob)


@given(st.integers(0, N_HEADER), st.integers(1, 255))
def test_a_broken_header_is_a_snapshot_or_a_value_error(position, change):
    """One wrong byte in the part that is read as text never gives another exception."""
    blob = bytearray(BLOB)
    blob[position] ^= change
    with contextlib.suppress(ValueError):
        assert isinstance(Snapshot.from_bytes(bytes(blob)), Snapshot)


def with_head(**changes):
    """The snapshot's bytes with other metadata."""
    return save(load(BLOB), metadata={"snapshot": json.dumps({**json.loads(HEAD), **changes})})


WRONG = {
    "status": ("asleep", None),
    "step": (None, "many", float("inf")),
    "seconds": ([],),
    "experiment": ("task=taxes", 5, None, '{"task": []}'),
    "fingerprint": ("another text",),
    "engine": ("fast", []),
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, all_ in WRONG.items() for v in all_])
def test_wrong_metadata_is_a_value_error(name, value):
    """Anything can stand in a file; without the change it is read."""
    assert Snapshot.from_bytes(with_head()).experiment == RESULT.experiment
    with pytest.raises(ValueError):  # noqa: PT011 - the message depends on what is wrong
        Snapshot.from_bytes(with_head(**{name: value}))


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_a_snapshot_names_its_engine_and_processor(engine):
    """Through bytes, in the JSON of a result, and in words."""
    training = Training(Experiment(**SMALL), "cpu", engine)
    assert training.engine == engine
    result = training.result()
    back = Snapshot.from_bytes(result.snapshot.to_bytes())
    processor = processor_kind(torch.device("cpu"))
    assert back.maker == result.snapshot.maker == (engine, processor)
    told = result.to_dict()
    assert (told["engine"], told["processor"]) == (engine, processor)
    name = {"kernel": "the compiled kernel", "torch": "torch"}[engine]
    assert back.trained_by == f"{name} on {processor}"


def test_snapshots_of_earlier_versions_open():
    """Torch trained them on a processor that nobody noted, without scores, and stays unknown."""
    head = {k: v for k, v in json.loads(HEAD).items() if k not in ("engine", "processor")}
    arrays = load(BLOB)
    del arrays["probe.scores"]
    older = Snapshot.from_bytes(save(arrays, metadata={"snapshot": json.dumps(head)}))
    assert (older.maker, older.trained_by) == (("torch", ""), "torch")
    assert older.probe.scores is None
    assert load(older.to_bytes()).keys() == arrays.keys()


def test_scores_of_another_size_are_refused():
    """They are those of the experiment's runs, layers, heads and positions."""
    arrays = load(BLOB)
    arrays["probe.scores"] = np.ascontiguousarray(arrays["probe.scores"][..., :-1])
    with pytest.raises(ValueError, match="scores: got shape"):
        Snapshot.from_bytes(save(arrays, metadata={"snapshot": HEAD}))


@pytest.mark.parametrize(
    "missing", ["eval_steps", "history.loss", "probe.pattern", "diverged_at", "slice_accuracy"]
)
def test_a_missing_array_is_named(missing):
    """An older or a foreign file."""
    arrays = load(BLOB)
    del arrays[missing]
    with pytest.raises(ValueError, match=missing):
        Snapshot.from_bytes(save(arrays, metadata={"snapshot": HEAD}))


def test_a_metric_that_came_later_is_missing_in_older_files(monkeypatch):
    """Results that are stored or shipped stay readable when a metric is added."""
    monkeypatch.setattr("attnkit.training.snapshot.METRICS", (*METRICS, "newer"))
    history = Snapshot.from_bytes(BLOB).history
    assert history["newer"].shape == history["loss"].shape
    assert np.isnan(history["newer"]).all()


def test_arrays_of_something_else_are_a_value_error():
    """Weights are no snapshot; arrays that do not fit the experiment are refused when read."""
    for metadata in (None, {"format": "pt"}):
        with pytest.raises(ValueError, match="snapshot"):
            Snapshot.from_bytes(save({"W": np.zeros(3)}, metadata=metadata))
    snapshot = RESULT.snapshot
    other = dataclasses.replace(snapshot, experiment=snapshot.experiment.replace(n_seeds=3))
    with pytest.raises(ValueError, match="expected"):
        Snapshot.from_bytes(other.to_bytes())


# Results


def test_a_result_is_the_same_in_a_folder_and_in_a_database(tmp_path):
    """`result.json` is what `to_dict` gives, and saving again overwrites all files."""
    folder = tmp_path / "new" / "folder"
    train_small(sharing="QKV", n_seeds=1).save(folder)
    RESULT.save(folder)
    read = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert read == json.loads(json.dumps(RESULT.to_dict()))
    assert read["runs"][0]["steps_to_threshold"] is None
    blobs = tuple((folder / name).read_bytes() for name in FILES)
    assert RESULT.to_blobs() == blobs == Result.from_blobs(*blobs).to_blobs()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named_and_a_cut_one_is_a_value_error(tmp_path, name):
    """A missing file is an error of the system."""
    RESULT.save(tmp_path)
    whole = (tmp_path / name).read_bytes()
    for n_bytes in (0, 5, 100, 1000):
        (tmp_path / name).write_bytes(whole[:n_bytes])
        with pytest.raises(ValueError, match=r"snapshot|parameters"):
            Result.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        Result.load(tmp_path)


@pytest.mark.parametrize("key", ["W_E", "99/W_E", "-1/W_E", "/W_E", "1.5/W_E"])
def test_weights_of_something_else_are_a_value_error(tmp_path, key):
    """Names that belong to no run of the experiment."""
    RESULT.save(tmp_path)
    (tmp_path / "parameters.safetensors").write_bytes(save({key: np.zeros(3, np.float32)}))
    with pytest.raises(ValueError):  # noqa: PT011 - the message depends on what is wrong
        Result.load(tmp_path)


@given(st.binary(max_size=300), st.booleans())
def test_blobs_of_something_else_are_a_value_error(blob, as_parameters):
    """In the place of either."""
    snapshot, parameters = RESULT.to_blobs()
    with pytest.raises(ValueError, match="hold no"):
        Result.from_blobs(*((snapshot, blob) if as_parameters else (blob, parameters)))


# Tables

PROMISED = """sharing seed accuracy loss steps_to_threshold parameters kv_cache_floats_per_token
    score_symmetry weight_symmetry mass_on_target mass_on_reverse""".split()
"""Names of columns that are a public interface."""


def test_table_has_the_last_evaluation_and_the_costs_of_every_run():
    """At least what `train --json` names; not an average and not a smoothed value."""
    table = RESULT.table
    assert set(PROMISED) <= set(table.columns)
    runs = [(sharing.value, seed) for sharing, seed in RESULT.experiment.runs]
    assert list(zip(table["sharing"], table["seed"], strict=True)) == runs
    for name in METRICS:
        last = RESULT.snapshot.history[name][-1].astype(float)
        np.testing.assert_array_equal(table[name], last)
    for row, (sharing, _) in zip(table.itertuples(), RESULT.experiment.runs, strict=True):
        assert row.parameters == RESULT.experiment.costs(sharing).parameters
        assert row.kv_cache_floats_per_token == RESULT.experiment.costs(sharing).kv_cache


@pytest.mark.parametrize("task", ["directed", "mutual"])
def test_dictionary_holds_plain_values(task):
    """Python numbers and texts; null where a task has no such value, never NaN."""
    result = train_small(task=task, n_entries=6)
    found = result.to_dict()
    assert {"experiment", "seconds", "model_steps_per_second", "runs"} <= set(found)
    assert not any("slices" in row for row in found["runs"])
    assert Experiment(**found["experiment"]) == result.experiment
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    for row in found["runs"]:
        assert set(PROMISED) <= set(row)
        assert (row["mass_on_reverse"] is None) == (task == "mutual")
        assert row["diverged_at"] is None
        assert type(row["parameters"]) is type(row["seed"]) is int
        assert type(row["accuracy"]) is float


@pytest.mark.parametrize("kind", ["mqar", "neighbours"])
def test_dictionary_tells_the_accuracy_of_every_group(kind):
    """By its name, null where nothing of it was asked; a plain value that JSON reads back."""
    training = Training(tiny(kind), "cpu")
    training.advance(4)
    snapshot = training.result().snapshot
    snapshot.slice_accuracy[1, 0] = np.nan
    found = Result(snapshot, []).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    names = snapshot.experiment.task.slice_names
    for row, shares in zip(found["runs"], snapshot.slice_accuracy, strict=True):
        assert list(row["slices"]) == list(names)
        for told, share in zip(row["slices"].values(), shares, strict=True):
            assert told is None if np.isnan(share) else told == pytest.approx(float(share))
    assert found["runs"][1]["slices"][names[0]] is None
