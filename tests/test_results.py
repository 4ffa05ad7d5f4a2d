"""Snapshots and results: thresholds, tables, and files that read back or fail plainly."""

import contextlib
import dataclasses
import json
from importlib.metadata import version

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, tiny
from safetensors.numpy import load, save
from same import assert_same
from searching import briefly

from attnkit.experiment import Experiment
from attnkit.foundation.machine import processor_kind
from attnkit.training import Training
from attnkit.training.maker import Maker
from attnkit.training.metrics import METRICS
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot


def trained(kind, n_steps=5, **settings):
    """The result of a small experiment, stopped before its end."""
    training = Training(tiny(kind, **settings), "cpu")
    training.advance(n_steps)
    return training.result()


RESULT = trained("directed", sharing=["QKV", "K=V", "Q=K=V"], n_heads=2, n_layers=2)
BLOB = RESULT.snapshot.to_bytes()
N_HEADER = 8 + int.from_bytes(BLOB[:8], "little")
HEAD = json.loads(json.loads(BLOB[8:N_HEADER])["__metadata__"]["snapshot"])
FILES = ("snapshot.safetensors", "parameters.safetensors")


def test_numbers_of_a_snapshot_by_hand():
    """The threshold is the first of three evaluations at 0.99, in steps, for every run apart."""
    nan = np.nan
    for rows, expected in (
        ([0.1, 0.99, 1.0, 0.98, 0.99, 0.995, 1.0, 0.0], [31]),  # the first of three in a row
        ([[0.99, 0.989]] * 3, [0, nan]),  # 0.99 itself counts, in single precision, too
        ([[1.0, 1.0]], [nan, nan]),  # with fewer than three nothing is known
        ([1.0, 1.0, nan, nan], [nan]),
        ([[0, 1, 0], [1, 1, 0], [1, 1, 0], [1, 0, 1]], [7, 0, nan]),
    ):
        accuracy = np.array(rows, np.float32).reshape(len(rows), -1)
        snapshot = dataclasses.replace(
            RESULT.snapshot,
            experiment=tiny("directed", sharing=["QKV"], n_seeds=accuracy.shape[1]),
            eval_steps=np.array([0, 7, 14, 17, 31, 40, 50, 60])[: len(rows)],
            history=dict.fromkeys(METRICS, accuracy),
            diverged_at=np.full(accuracy.shape[1], -1),
        )
        assert snapshot.steps_to_threshold() == pytest.approx(expected, nan_ok=True), rows
    # Asymmetry, runs by sharing and seed, and model-steps of all runs per second.
    snapshot, history = RESULT.snapshot, {"score_symmetry": np.array([[1.0, 0.0, -1.0]])}
    assert dataclasses.replace(snapshot, history=history).asymmetry.tolist() == [[0, 0.5, 1]]
    split = snapshot.per_sharing(np.arange(5 * 6).reshape(5, 6))
    assert split[0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert dataclasses.replace(snapshot, seconds=2.0).model_steps_per_second == 15
    assert dataclasses.replace(snapshot, seconds=0.0).model_steps_per_second == 0


@pytest.mark.parametrize("kind", KINDS)
def test_results_of_every_kind_read_back(kind, tmp_path):
    """Bits, missing values, status and times, from a folder, which is overwritten, and bytes."""
    result = trained(kind)
    result.snapshot.history["loss"][1, 1] = np.nan
    RESULT.save(tmp_path / "new" / "folder")
    result.save(tmp_path / "new" / "folder")
    back = Result.load(tmp_path / "new" / "folder")
    assert (back.snapshot.status, back.snapshot.step) == ("stopped", 5)
    assert_same(back, result)
    blobs = tuple((tmp_path / "new" / "folder" / name).read_bytes() for name in FILES)
    assert result.to_blobs() == blobs == Result.from_blobs(*blobs).to_blobs()
    read = json.loads((tmp_path / "new" / "folder" / "result.json").read_text(encoding="utf-8"))
    assert read == json.loads(json.dumps(result.to_dict(), allow_nan=False))


@given(
    st.binary(max_size=300) | st.integers(0, len(BLOB) - 1).map(lambda n: BLOB[:n]),
    st.integers(0, N_HEADER),
    st.integers(1, 255),
)
@briefly(50)
def test_other_bytes_are_a_value_error(other, position, change):
    """A file cut short or of another kind, in the place of either; one wrong byte of its text."""
    snapshot, parameters = RESULT.to_blobs()
    for blobs in ((other, parameters), (snapshot, other)):
        with pytest.raises(ValueError, match="hold no"):
            Result.from_blobs(*blobs)
    blob = bytearray(BLOB)
    blob[position] ^= change
    with contextlib.suppress(ValueError):
        assert isinstance(Snapshot.from_bytes(bytes(blob)), Snapshot)


def saved(head=HEAD, without="", **arrays):
    """The snapshot's bytes with another head, without an array, or with other arrays."""
    kept = {name: array for name, array in load(BLOB).items() if name != without} | arrays
    return save(kept, metadata={"snapshot": json.dumps(head)})


def test_what_is_wrong_in_a_snapshot_is_a_value_error(tmp_path):
    """Anything can stand in a file; arrays that are missing or do not fit are named."""
    assert Snapshot.from_bytes(saved()).experiment == RESULT.experiment
    wrong = {"status": "asleep", "step": float("inf"), "seconds": [], "fingerprint": "another text"}
    heads = [{name: value} for name, value in wrong.items()]
    heads += [{"step": "many"}, {"engine": []}, {"experiment": "task=taxes"}, {"experiment": None}]
    blobs = [(".", saved(HEAD | head)) for head in heads]
    arrays = ("eval_steps", "history.loss", "probe.pattern", "diverged_at", "slice_accuracy")
    blobs += [(name, saved(without=name)) for name in arrays]
    cut = np.ascontiguousarray(load(BLOB)["probe.scores"][..., :-1])
    blobs.append(("scores: got shape", saved(**{"probe.scores": cut})))
    other = RESULT.experiment.replace(n_seeds=3)
    blobs.append(("expected", dataclasses.replace(RESULT.snapshot, experiment=other).to_bytes()))
    blobs += [("snapshot", save({"W": np.zeros(3)}, metadata=m)) for m in (None, {"format": "pt"})]
    for told, blob in blobs:
        with pytest.raises(ValueError, match=told):
            Snapshot.from_bytes(blob)
    # A missing file is an error of the system; weights belong to runs of the experiment.
    for name in FILES:
        RESULT.save(tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(FileNotFoundError, match=name):
            Result.load(tmp_path)
    for key in ("W_E", "99/W_E", "-1/W_E", "1.5/W_E"):
        with pytest.raises(ValueError):  # noqa: PT011 - the message depends on what is wrong
            Result.from_blobs(BLOB, save({key: np.zeros(3, np.float32)}))


def test_snapshots_of_earlier_versions_open(monkeypatch):
    """Torch trained them; nobody noted processor, versions, scores and newer metrics."""
    head = {name: value for name, value in HEAD.items() if name not in Maker._fields}
    monkeypatch.setattr("attnkit.training.snapshot.METRICS", (*METRICS, "newer"))
    older = Snapshot.from_bytes(saved(head, without="probe.scores"))
    assert (older.maker, older.trained_by) == (("torch", "", ""), "torch")
    newer = np.full_like(older.history["loss"], np.nan)
    np.testing.assert_array_equal(older.history["newer"], newer)
    assert older.probe.scores is None
    assert "probe.scores" not in load(older.to_bytes())


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_a_snapshot_names_its_maker(engine):
    """Through bytes, in the JSON of a result, and in words."""
    result = Training(tiny("directed"), "cpu", engine).result()
    back, told = Snapshot.from_bytes(result.snapshot.to_bytes()), result.to_dict()
    names = ("torch", "numba") if engine == "kernel" else ("torch",)
    versions = ", ".join(f"{name} {version(name).partition('+')[0]}" for name in names)
    expected = (engine, processor_kind(torch.device("cpu")), versions)
    assert back.maker == tuple(map(told.get, Maker._fields)) == expected
    assert all(part in str(back.maker) for part in expected)
    assert all(part in back.trained_by for part in expected[:2])


@pytest.mark.parametrize("kind", ["directed", "mqar", "neighbours"])
def test_tables_have_the_last_evaluation_and_the_costs_of_every_run(kind):
    """As columns, and as plain Python values with the accuracy of every group; null is missing."""
    result = trained(kind)
    table, names = result.table, result.experiment.task.slice_names
    shares = result.snapshot.slice_accuracy
    shares[1, :1] = np.nan
    for name in METRICS:
        last = result.snapshot.history[name][-1].astype(float)
        np.testing.assert_array_equal(table[name], last)
    found = result.to_dict()
    assert {"seconds", "model_steps_per_second"} <= set(found)
    assert Experiment(**found["experiment"]) == result.experiment
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    rows = zip(result.experiment.runs, found["runs"], table.itertuples(), shares, strict=True)
    for (sharing, seed), row, of_table, own in rows:
        costs = result.experiment.costs(sharing)
        expected = {"sharing": sharing.value, "seed": seed, "parameters": costs.parameters}
        expected["kv_cache_floats_per_token"] = costs.kv_cache
        assert row.items() >= expected.items() <= of_table._asdict().items()
        assert set(METRICS) <= set(row) & set(table.columns)
        assert (row["mass_on_reverse"] is None) == (kind != "directed")
        assert row["steps_to_threshold"] is row["diverged_at"] is None
        assert {type(row[name]) for name in ("parameters", "seed")} == {int}
        assert list(row.get("slices", ())) == list(names)
        for told, share in zip(row.get("slices", {}).values(), own, strict=True):
            assert told is None if np.isnan(share) else told == pytest.approx(float(share))
