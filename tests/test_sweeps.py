"""Sweeps: plans, chunks, what they write, and how they go on after an interruption."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pandas as pd
import psutil
import pytest
from benchmark.sweep_driver import simulate
from children import child
from hypothesis import given
from hypothesis import strategies as st
from inline_sweeps import SMALL, Inline, changed, run_inline
from searching import briefly

import attnkit as ak
from attnkit.foundation.process import N_CORES, environment_with_package
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.chunk import ChunkReport
from attnkit.sweeps.estimate import CostModel
from attnkit.sweeps.folder import SweepFolder
from attnkit.sweeps.local import LocalExecutor
from attnkit.sweeps.planning import Chunk, Group, Plan
from attnkit.sweeps.repetition import repeat_sample
from attnkit.sweeps.run import start_workers
from attnkit.sweeps.values import InvalidSweep
from attnkit.training.summary import run_table

NUMBERS = ["cell", "seed", "accuracy", "loss", "score_symmetry"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with all parts of the small sweep."""
    folder = tmp_path_factory.mktemp("trained") / "sweep"
    assert run_inline(SMALL, folder)[0] == SMALL.n_runs == 16
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of it below a hidden folder: only names of temporary parts begin with a dot."""
    return shutil.copytree(trained, tmp_path / ".hidden" / "sweep")


def read(folder, sweep=SMALL):
    """Return the runs in a folder."""
    return SweepResult.read(SweepFolder(str(folder)), sweep)


def failed(result):
    """Return the runs that could not be trained; every planned run is there once."""
    assert len(result.runs) == result.sweep.n_runs
    assert not result.runs.duplicated(["cell", "seed"]).any()
    return result.runs[result.runs["error"].notna()]


# plans


@given(st.data())
@briefly(40)
def test_chunks_hold_every_missing_run_once(data):
    """However long groups take and whatever is finished, no run is left out or repeated."""
    sweep = Sweep(axes={"d_head": [2, 3, 5], "n_layers": [1, 2]}, sharing=["QKV", "K=V", "Q=K"])
    bits = data.draw(st.lists(st.booleans(), min_size=90, max_size=90))
    missing, hashes = np.array(bits).reshape(6, 3, 5), sweep.cell_hashes().astype("U16")
    finished = [(hashes[p, v], seed) for p, v, seed in np.argwhere(~missing)]
    plan = Plan.of(sweep, pd.DataFrame(finished, columns=["cell", "seed"]))
    seconds = data.draw(st.floats(0.01, 200))
    found = [
        (group.point, variant, seed)
        for chunk in plan.chunks(lambda group: seconds * len(group.variants), 2)
        for group in chunk.groups
        for variant in group.variants
        for seed in group.seeds
    ]
    assert len(found) == plan.n_missing
    assert set(found) == {tuple(index) for index in np.argwhere(missing).tolist()}


def test_chunks_take_from_ten_to_sixty_seconds_in_a_long_sweep():
    """Shorter ones cost more than they train; with longer ones much is lost with a worker."""
    plan = Plan.of(Sweep(axes={"d_head": list(range(1, 65)), "n_layers": [1, 2, 3, 4]}))
    chunks = plan.chunks(lambda group: 2.0 * len(group.variants), 4)
    lengths = [sum(2.0 * len(group.variants) for group in chunk.groups) for chunk in chunks]
    assert all(10 <= length <= 60 for length in lengths[:-1])


def test_estimates_are_corrected_by_what_chunks_take():
    """A variant that takes ten times as long as expected is estimated ten times as long next."""
    model, group = CostModel(SMALL), Group(0, (0, 1), SMALL.seeds)

    def seconds():
        return [model.seconds(Group(0, (variant,), SMALL.seeds)) for variant in (0, 1)]

    before = seconds()
    report = ChunkReport(seconds={0: before[0], 1: 10 * before[1]})
    model.learn(Chunk((group,)), report)
    assert seconds() == pytest.approx([before[0], 10 * before[1]])
    assert model.seconds(group) == pytest.approx(sum(seconds()))


def test_a_simulated_driver_submits_every_cell_and_resumes(tmp_path, monkeypatch):
    """The missing runs after the resumption are those of the chunks without a part."""
    widths = Sweep(axes={"d_head": list(range(1, 17))}, n_seeds=1)
    monkeypatch.setattr("benchmark.sweep_driver.simulated_sweep", lambda n_cells: widths)
    simulation = simulate(80, SweepFolder(str(tmp_path)))
    assert simulation.n_cells == 80
    assert simulation.n_chunks > 10


# training


def test_a_sweep_gives_the_numbers_of_train():
    """Every run equals the run of the same settings that is trained alone, to the bit.

    Rates of an axis are used to their last digit. The folder is none of this machine.
    """
    axes = {"learning_rate": [0.00310723, 0.01], "n_entries": [2, 5]}
    sweep, address = changed(axes=axes), f"memory://{os.getpid()}/sweep"
    n_trained, result = run_inline(sweep, address)
    assert n_trained == len(result.runs) == sweep.n_runs
    assert run_inline(sweep, address)[0] == 0
    for (*values, sharing), rows in result.runs.groupby([*axes, "sharing"]):
        point = dict(zip(axes, values, strict=True))
        experiment = ak.Experiment(
            **sweep.base, **point, sharing=[sharing], n_seeds=2, first_seed=7
        )
        alone = run_table(ak.train(experiment, "cpu").snapshot)
        for name in ("seed", "accuracy", "loss", "score_symmetry", "parameters"):
            assert rows[name].tolist() == alone[name].tolist(), point


def test_the_best_of_several_rates_is_chosen_on_other_seeds(tmp_path):
    """The runs that count are trained at the chosen rate, on their own seeds."""
    sweep = changed(axes={"d_head": [3]}, rates={"multiples": [1e-2, 4.0], "tuning_seeds": 1})
    _, result = run_inline(sweep, tmp_path / "sweep")
    assert set(result.runs["seed"]) == {7, 8}
    for row in result.runs.to_dict("records"):
        tried = {float(rate): mean for rate, mean in json.loads(row["tried"]).items()}
        assert set(tried) == {5e-5, 0.02}
        assert tried[row["learning_rate"]] >= max(tried.values()) - 0.005
        settings = {"d_head": 3, "learning_rate": row["learning_rate"], "n_seeds": 1}
        experiment = ak.Experiment(
            **sweep.base, **settings, sharing=[row["sharing"]], first_seed=row["seed"]
        )
        assert ak.train(experiment, "cpu").table["loss"].tolist() == [row["loss"]]


def test_only_what_is_missing_is_trained(folder):
    """Cells are known by all their settings, wherever they lie in the grid of another sweep."""
    before = read(folder).runs
    lost = min((folder / "parts").iterdir())
    n_lost = len(pd.read_parquet(lost))
    lost.unlink()
    widths = {"d_head": [2, 3, 5], "n_entries": [2, 5]}
    for change, n_missing in (
        ({}, n_lost),
        ({}, 0),
        ({"axes": widths}, 8),
        ({"axes": widths, "n_seeds": 3}, 12),
        ({"axes": {"d_head": [5, 7], "n_entries": [2, 5]}}, 8),
        ({"axes": {**SMALL.axes, "n_names": [16, 32]}}, 16),
        ({}, 0),
    ):
        sweep = changed(**change)
        n_trained, result = run_inline(sweep, folder)
        assert n_trained == n_missing, change
        assert failed(result).empty
        assert all(result.runs.groupby(list(sweep.axes)).size() == 2 * sweep.n_seeds)
    pd.testing.assert_frame_equal(read(folder).runs[NUMBERS], before[NUMBERS])


def test_a_cell_that_is_impossible_is_recorded_with_its_reason(tmp_path):
    """The other cells are trained; the failed one is tried again only on request."""
    sweep, folder = changed(axes={"n_entries": [8, 16], "n_names": [32, 8]}), tmp_path / "sweep"
    rows = failed(run_inline(sweep, folder)[1])
    assert rows[["n_entries", "n_names"]].to_numpy().tolist() == [[16, 8]] * 4
    assert rows["error"].str.contains("n_entries: got 16, allowed at most n_names").all()
    assert run_inline(sweep, folder)[0] == 0
    n_trained, result = run_inline(sweep, folder, retry_failed=True)
    assert n_trained == len(failed(result)) == 4


def test_a_cell_is_recorded_as_failed_if_its_worker_ends_when_it_trains_alone(tmp_path):
    """Before, what trained beside it may have ended the worker; a retry replaces the record."""
    for most, n_failed in ((2, 0), (10**6, 2)):
        attempts, folder = [], tmp_path / str(most)

        def gives_up(chunk, attempts=attempts, most=most):
            holds = any(group.point == 2 and 1 in group.variants for group in chunk.groups)
            attempts.extend([chunk] * holds)
            return holds and len(attempts) <= most

        rows = failed(run_inline(SMALL, folder, Inline(gives_up))[1])
        assert len(attempts) == 3
        assert (
            rows[["sharing", "error"]].to_numpy().tolist()
            == [[SMALL.sharing[1].value, "the worker ended"]] * n_failed
        )
    assert failed(run_inline(SMALL, folder, retry_failed=True)[1]).empty


def test_an_error_of_a_task_ends_the_sweep(tmp_path):
    """A full disk is not the fault of a cell, and is not recorded as one."""
    full = Inline(lambda chunk: True, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        run_inline(SMALL, tmp_path / "sweep", full)
    assert full.cancelled


def test_a_sweep_that_may_not_start_says_why(folder, monkeypatch):
    """Before anything is written or trained: a folder in use, another engine, a small budget.

    A damaged part is named. Workers that import a script that starts workers cannot start.
    """
    before = sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    for change, message in (
        ({}, "out: .* holds a sweep already"),
        ({"engine": "torch"}, "engine: got 'torch', allowed 'kernel'"),
        ({"budget": {"core_hours": 1e-9}, "n_seeds": 3}, "budget.core_hours: got 1e-09, but"),
    ):
        with pytest.raises(InvalidSweep, match=message):
            run_inline(changed(**change), folder, resume=bool(change))
    assert before == sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    part = min((folder / "parts").iterdir())
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(InvalidSweep, match=rf"{part.name} is damaged .*; delete it, and `resume`"):
        run_inline(SMALL, folder)
    monkeypatch.setattr("attnkit.sweeps.run.LocalExecutor", lambda n: Inline(lambda _: True))
    with pytest.raises(InvalidSweep, match='if __name__ == "__main__":'):
        start_workers("local", 1)


# results


def test_a_result_is_read_back_from_one_file(trained, tmp_path):
    """The file holds the runs and the specification."""
    result = read(trained)
    result.save(tmp_path / "runs.parquet")
    loaded = SweepResult.load(tmp_path / "runs.parquet")
    assert loaded.sweep == SMALL
    pd.testing.assert_frame_equal(loaded.runs, result.runs)
    (tmp_path / "text.parquet").write_text("nothing")
    with pytest.raises(InvalidSweep, match="is not the result of a sweep"):
        SweepResult.load(tmp_path / "text.parquet")


def test_a_repetition_compares_bits(trained):
    """Equal runs are equal to the bit; a changed record is found."""
    result = read(trained)
    repetition = repeat_sample(result, 3)
    assert (repetition.n_cells, len(repetition.table)) == (3, 6)
    assert repetition.table["equal"].all()
    result.runs.loc[:, "loss"] += 0.5
    table = repeat_sample(result, 100).table
    assert not table["equal"].any()
    assert table["loss_difference"].tolist() == pytest.approx([0.5] * 16)


def test_the_command_tells_what_is_missing_trains_it_and_repeats_a_sample(folder, run, monkeypatch):
    """An estimate trains nothing; all runs are in one file at the end."""
    monkeypatch.setattr("attnkit.sweeps.run.start_workers", lambda *_: Inline())
    file = folder.with_suffix(".toml")
    file.write_text(changed(n_seeds=3, budget={"price_per_core_hour": 2}).to_toml())
    code, output, errors = run("sweep", str(file), "--resume", "--estimate")
    assert (code, output) == (0, "")
    assert errors.startswith("8 runs to train, 16 finished before: about ")
    assert errors.endswith("for each worker; cost 0.00\n")
    code, output, errors = run("sweep", str(file), "--resume")
    assert (code, f"\n24 runs in {folder}; all of" in output) == (0, True)
    assert "8 of 8 runs, 1 workers" in errors
    assert len(SweepResult.load(folder / "runs.parquet").runs) == 24
    code, output, _ = run("sweep", str(file), "--check", "2")
    assert (code, output.startswith("6 runs of 2 cells were trained again on ")) == (0, True)
    assert output.endswith(": 6 equal to the bit\n")


# processes


@pytest.mark.server
def test_local_workers_that_are_killed_are_replaced(tmp_path):
    """A task whose worker is killed raises; a sweep trains the runs of a killed one all the same.

    The kill comes in the middle of its first chunk, with others in flight.
    """
    executor = LocalExecutor(1)
    try:
        with pytest.raises(BrokenProcessPool):
            executor.submit(os.abort).result(60)
        kills = [executor.submit(os.getpid).result(60)]
        assert kills != [os.getpid()]
        submit = executor.submit

        def submit_and_kill(*task):
            future = submit(*task)
            if kills:
                psutil.Process(kills.pop()).kill()
            return future

        executor.submit, executor.n_runs = submit_and_kill, None
        assert failed(run_inline(SMALL, tmp_path / "sweep", executor)[1]).empty
        assert not kills
    finally:
        executor.shutdown(cancel_futures=True)


@pytest.mark.server
def test_a_killed_command_leaves_no_worker_and_goes_on(tmp_path, long, seed):
    """After SIGKILL at moments drawn from the seed, the rest is trained, each run once.

    A command and its worker import torch; ten kills at night.
    """
    base = {**SMALL.base, "steps": 100, "evaluate_every": 50}
    sweep = changed(base=base, axes={"d_head": [2, 3, 5], "n_entries": [2, 3, 5]})
    _, alone = run_inline(sweep, tmp_path / "alone")
    draw, environment = random.Random(seed), environment_with_package() | {N_CORES: "1"}
    for kill in range(10 if long else 1):
        file, folder = tmp_path / f"{kill}.toml", tmp_path / str(kill)
        file.write_text(sweep.to_toml())
        command = [sys.executable, "-m", "attnkit", "sweep", str(file)]
        with child(*command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            next(line for line in process.stderr if f" of {sweep.n_runs} runs" in line)
            workers = psutil.Process(process.pid).children(recursive=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0, 0.5))
            process.kill()
        assert not psutil.wait_procs(workers, timeout=30)[1]
        n_kept = len(read(folder, sweep).runs)
        assert n_kept > 0
        n_trained, result = run_inline(sweep, folder)
        assert n_trained == sweep.n_runs - n_kept, f"seed {seed}, kill {kill}"
        assert failed(result).empty
        pd.testing.assert_frame_equal(result.runs[NUMBERS], alone.runs[NUMBERS])
