"""Sweeps: plans, chunks, what they write, and how they go on after an interruption."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from children import child
from hypothesis import given
from hypothesis import strategies as st

import attnkit as ak
from attnkit.bench.sweep_driver import simulate
from attnkit.foundation.process import environment_with_package
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.estimate import CostModel
from attnkit.sweeps.folder import SweepFolder
from attnkit.sweeps.local import LocalExecutor
from attnkit.sweeps.planning import Plan
from attnkit.sweeps.repetition import repeat_sample
from attnkit.sweeps.run import drive, prepare
from attnkit.sweeps.values import InvalidSweep
from attnkit.training.summary import run_table

SMALL = Sweep(
    base={"task": "phonebook", "steps": 4, "evaluate_every": 2, "n_eval": 16, "batch_size": 16},
    axes={"d_head": [2, 3], "n_entries": [2, 5]},
    sharing=["QKV", "K=V"],
    n_seeds=2,
    first_seed=7,
)


class Inline(Executor):
    """Executor that runs tasks at once in this process, and gives up those that it is told to."""

    n_workers = 1

    def __init__(self, gives_up=lambda chunk: False):
        self.gives_up = gives_up
        self.chunks = []

    def submit(self, fn, sweep, chunk, folder):
        """Run a task before its future is returned."""
        future = Future()
        self.chunks.append(chunk)
        if self.gives_up(chunk):
            future.set_exception(BrokenProcessPool("the worker ended"))
        else:
            future.set_result(fn(sweep, chunk, folder))
        return future


def run_inline(sweep, folder, *, resume=True, retry_failed=False, workers=None):
    """Run a sweep in this process; return the runs that were trained and the result."""
    folder = SweepFolder(str(folder))
    workers = workers or Inline()
    prepared = prepare(sweep, folder, resume=resume, retry_failed=retry_failed)
    folder.write_specification(sweep)
    drive(prepared, workers)
    n_trained = sum(chunk.n_runs for chunk in workers.chunks)
    return n_trained, SweepResult.read(folder, sweep)


@given(st.data())
def test_chunks_hold_every_missing_run_once(data):
    """However long groups take and whatever is finished, no run is left out or repeated."""
    sweep = Sweep(axes={"d_head": [2, 3, 5], "n_layers": [1, 2]}, sharing=["QKV", "K=V", "Q=K"])
    hashes = sweep.cell_hashes().astype("U16")
    bits = data.draw(st.lists(st.booleans(), min_size=90, max_size=90))
    missing = np.array(bits).reshape(6, 3, 5)
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
    """The length follows from the estimates."""
    sweep = Sweep(axes={"d_head": list(range(1, 65)), "n_layers": [1, 2, 3, 4]})
    plan = Plan.of(sweep)
    lengths = [
        sum(len(group.variants) * 2.0 for group in chunk.groups)
        for chunk in plan.chunks(lambda group: len(group.variants) * 2.0, 4)
    ]
    assert all(10 <= length <= 60 for length in lengths[:-1])


def test_a_sweep_gives_the_numbers_of_train(tmp_path):
    """Every run equals the run of the same variant and seed that is trained alone, to the bit."""
    n_trained, result = run_inline(SMALL, tmp_path / "sweep")
    assert n_trained == SMALL.n_runs == len(result.runs) == 16
    for (d_head, n_entries, sharing), rows in result.runs.groupby(
        ["d_head", "n_entries", "sharing"]
    ):
        settings = {**SMALL.base, "d_head": d_head, "n_entries": n_entries}
        experiment = ak.Experiment(**settings, sharing=[sharing], n_seeds=2, first_seed=7)
        alone = run_table(ak.train(experiment, "cpu").snapshot)
        for name in ("seed", "accuracy", "loss", "score_symmetry", "parameters"):
            assert rows[name].tolist() == alone[name].tolist()


def test_the_best_of_several_rates_is_chosen_on_other_seeds(tmp_path):
    """The runs that count are trained at the chosen rate, on their own seeds."""
    sweep = Sweep(**{**SMALL.to_dict(), "rates": {"multiples": [1e-2, 4.0], "tuning_seeds": 1}})
    _, result = run_inline(sweep, tmp_path / "sweep")
    assert set(result.runs["seed"]) == {7, 8}
    assert set(result.runs["learning_rate"]) <= {5e-5, 0.02}
    row = result.runs.iloc[0]
    assert set(map(float, json.loads(row["tried"]))) == {5e-5, 0.02}
    settings = {name: row[name] for name in sweep.axes} | {"learning_rate": row["learning_rate"]}
    experiment = ak.Experiment(
        **{**sweep.base, **settings}, sharing=[row["sharing"]], n_seeds=1, first_seed=row["seed"]
    )
    assert ak.train(experiment, "cpu").table["loss"].tolist() == [row["loss"]]


def test_only_what_is_missing_is_trained(tmp_path):
    """A lost part, a new value of an axis and further seeds add only their own runs."""
    folder = tmp_path / "sweep"
    _, before = run_inline(SMALL, folder)
    assert run_inline(SMALL, folder)[0] == 0
    part = min((folder / "parts").iterdir())
    n_lost = len(pd.read_parquet(part))
    part.unlink()
    n_trained, after = run_inline(SMALL, folder)
    assert n_trained == n_lost
    numbers = [name for name in before.runs.columns if name != "seconds"]
    pd.testing.assert_frame_equal(before.runs[numbers], after.runs[numbers])
    settings = SMALL.to_dict()
    wider = Sweep(**{**settings, "axes": {**settings["axes"], "d_head": [2, 3, 5]}})
    assert run_inline(wider, folder)[0] == 8
    more_seeds = Sweep(**{**wider.to_dict(), "n_seeds": 3})
    n_trained, result = run_inline(more_seeds, folder)
    assert n_trained == 12
    assert len(result.runs) == more_seeds.n_runs == 36


def test_a_cell_that_is_impossible_is_recorded_with_its_reason(tmp_path):
    """The other cells are trained; the failed one is tried again only on request."""
    axes = {"n_entries": [8, 16], "n_names": [32, 8]}
    sweep = Sweep(**{**SMALL.to_dict(), "axes": axes})
    folder = tmp_path / "sweep"
    _, result = run_inline(sweep, folder)
    failed = result.runs[result.runs["error"].notna()]
    assert len(result.runs) == sweep.n_runs
    assert failed[["n_entries", "n_names"]].drop_duplicates().to_numpy().tolist() == [[16, 8]]
    assert failed["error"].str.contains("n_entries: got 16, allowed at most n_names").all()
    assert run_inline(sweep, folder)[0] == 0
    assert run_inline(sweep, folder, retry_failed=True)[0] == len(failed)
    assert len(SweepResult.read(SweepFolder(str(folder)), sweep).runs) == sweep.n_runs


def test_a_chunk_that_is_given_up_is_divided_into_its_cells(tmp_path):
    """Only the cell whose worker always ends is recorded as failed; a retry replaces it."""
    bad = (2, 1)

    def gives_up(chunk):
        return any(
            bad == (group.point, variant) for group in chunk.groups for variant in group.variants
        )

    folder = tmp_path / "sweep"
    _, result = run_inline(SMALL, folder, workers=Inline(gives_up))
    failed = result.runs[result.runs["error"].notna()]
    assert failed["sharing"].tolist() == [SMALL.sharing[1].value] * 2
    assert failed["error"].tolist() == ["the worker ended"] * 2
    _, result = run_inline(SMALL, folder, retry_failed=True)
    assert result.runs["error"].isna().all()
    assert len(result.runs) == SMALL.n_runs


def test_a_simulated_driver_submits_every_cell_and_resumes(tmp_path):
    """The missing runs after the resumption are those of the chunks without a part."""
    simulation = simulate(4_000, SweepFolder(str(tmp_path)))
    assert simulation.n_cells == 4_000
    assert simulation.n_chunks > 10
    assert simulation.part_megabytes > 0


def test_a_cell_that_is_given_up_beside_others_is_trained_alone(tmp_path):
    """Not the cell but what trained beside it may have ended the worker."""
    attempts = []

    def gives_up(chunk):
        holds = any(group.point == 2 and 1 in group.variants for group in chunk.groups)
        attempts.extend([chunk] * holds)
        return holds and len(attempts) < 3

    _, result = run_inline(SMALL, tmp_path / "sweep", workers=Inline(gives_up))
    assert len(attempts) == 3
    assert result.runs["error"].isna().all()


def test_an_error_of_a_task_ends_the_sweep(tmp_path):
    """A full disk is not the fault of a cell, and is not recorded as one."""

    class Full(Inline):
        def submit(self, fn, sweep, chunk, folder):
            """Return a future with the error of a full disk."""
            future = Future()
            future.set_exception(OSError(28, "No space left on device"))
            return future

    with pytest.raises(OSError, match="No space left"):
        run_inline(SMALL, tmp_path / "sweep", workers=Full())


def test_cells_are_known_by_all_their_settings(tmp_path):
    """Those that have the same place in another grid replace no part, and a new axis repeats none.

    The folder lies below a hidden one: only names of temporary parts begin with a dot.
    """
    folder, settings = tmp_path / ".hidden" / "sweep", SMALL.to_dict()
    assert len(run_inline(SMALL, folder)[1].runs) == SMALL.n_runs
    axes = {"d_head": [5, 7], "n_entries": [2, 5]}
    run_inline(Sweep(**{**settings, "axes": axes}), folder)
    assert run_inline(SMALL, folder)[0] == 0
    sweep = Sweep(**{**settings, "axes": {**settings["axes"], "n_names": [16, 32]}})
    n_trained, result = run_inline(sweep, folder)
    assert n_trained == 16
    assert result.runs.groupby("n_names").size().to_dict() == {16: 16, 32: 16}


def test_a_rate_of_an_axis_is_used_to_its_last_digit(tmp_path):
    """Rows lie where the axis has them."""
    rates = [0.00310723, 0.01]
    sweep = Sweep(**{**SMALL.to_dict(), "axes": {"learning_rate": rates}})
    _, result = run_inline(sweep, tmp_path / "sweep")
    assert sorted(set(result.runs["learning_rate"])) == rates


def test_a_folder_may_be_any_that_fsspec_knows():
    """Nothing depends on files of this machine."""
    address = f"memory://{os.getpid()}/sweep"
    _, result = run_inline(SMALL, address)
    assert len(result.runs) == SMALL.n_runs
    assert run_inline(SMALL, address)[0] == 0


def test_a_sweep_that_may_not_start_says_why(tmp_path):
    """A folder in use, another engine and a small budget are refused before anything is written."""
    folder = tmp_path / "sweep"
    run_inline(SMALL, folder)
    before = sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    for change, message in (
        ({}, "out: .* holds a sweep already"),
        ({"engine": "torch"}, "engine: got 'torch', allowed 'kernel'"),
        ({"budget": {"core_hours": 1e-9}, "n_seeds": 3}, "budget.core_hours: got 1e-09, but"),
    ):
        sweep = Sweep(**{**SMALL.to_dict(), **change})
        with pytest.raises(InvalidSweep, match=message):
            run_inline(sweep, folder, resume=bool(change))
    assert before == sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))


def test_a_damaged_part_is_named(tmp_path):
    """The message says what to do; nothing is trained on top of it."""
    folder = tmp_path / "sweep"
    run_inline(SMALL, folder)
    part = min((folder / "parts").iterdir())
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(InvalidSweep, match=rf"{part.name} is damaged .*; delete it, and `resume`"):
        run_inline(SMALL, folder)


def test_a_result_is_read_back_from_one_file(tmp_path):
    """The file holds the runs and the specification."""
    _, result = run_inline(SMALL, tmp_path / "sweep")
    result.save(tmp_path / "runs.parquet")
    loaded = SweepResult.load(tmp_path / "runs.parquet")
    assert loaded.sweep == SMALL
    pd.testing.assert_frame_equal(loaded.runs, result.runs)
    (tmp_path / "text.parquet").write_text("nothing")
    with pytest.raises(InvalidSweep, match="is not the result of a sweep"):
        SweepResult.load(tmp_path / "text.parquet")


def test_a_repetition_compares_bits(tmp_path):
    """Equal runs are equal to the bit; a changed record is found."""
    _, result = run_inline(SMALL, tmp_path / "sweep")
    repetition = repeat_sample(result, 3)
    assert repetition.n_cells == 3
    assert len(repetition.table) == 6
    assert repetition.table["equal"].all()
    result.runs.loc[:, "loss"] += 0.5
    table = repeat_sample(result, 100).table
    assert not table["equal"].any()
    assert table["loss_difference"].tolist() == pytest.approx([0.5] * 16)


def test_estimates_are_corrected_by_what_chunks_take(tmp_path):
    """A variant that takes ten times as long as expected is estimated ten times as long next."""
    folder = SweepFolder(str(tmp_path / "sweep"))
    prepared = prepare(SMALL, folder)
    model: CostModel = prepared.model
    group = next(prepared.plan.groups())
    chunk = next(prepared.plan.chunks(model.seconds, 1))
    before = [model.seconds(type(group)(0, (variant,), SMALL.seeds)) for variant in (0, 1)]
    report = type("Report", (), {"seconds": {}})()
    for variant in (0, 1):
        own = sum(
            model.seconds(type(group)(g.point, (variant,), g.seeds))
            for g in chunk.groups
            if variant in g.variants
        )
        report.seconds[variant] = own * (10 if variant else 1)
    model.learn(chunk, report)
    after = [model.seconds(type(group)(0, (variant,), SMALL.seeds)) for variant in (0, 1)]
    assert after == pytest.approx([before[0], 10 * before[1]])


def _end_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def _end_always() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.server
def test_local_workers_repeat_what_a_killed_one_had(tmp_path):
    """A task whose worker is killed once succeeds; one whose worker always ends raises."""
    executor = LocalExecutor(1)
    try:
        assert executor.submit(_end_once, str(tmp_path / "marker")).result(60) == "done"
        with pytest.raises(Exception, match="terminated abruptly"):
            executor.submit(_end_always).result(60)
        assert executor.submit(os.getpid).result(60) != os.getpid()
    finally:
        executor.shutdown(cancel_futures=True)


@pytest.mark.server
def test_a_killed_command_leaves_no_worker_and_goes_on(tmp_path, long, seed):
    """After SIGKILL at moments drawn from the seed, --resume trains the rest, each run once.

    Two commands and their workers start for each kill; ten kills at night.
    """
    base = {**SMALL.base, "steps": 100, "evaluate_every": 50}
    axes = {"d_head": [2, 3, 5], "n_entries": [2, 3, 5]}
    sweep = Sweep(**{**SMALL.to_dict(), "base": base, "axes": axes})
    _, alone = run_inline(sweep, tmp_path / "alone")
    draw, environment = random.Random(seed), environment_with_package()
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
        _, alive = psutil.wait_procs(workers, timeout=30)
        assert not alive
        assert 0 < len(SweepResult.read(SweepFolder(str(folder)), sweep).runs) <= sweep.n_runs
        again = [*command, "--resume"]
        ended = subprocess.run(again, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, f"seed {seed}, kill {kill}: {ended.stderr}"
        result = SweepResult.load(folder / "runs.parquet")
        assert len(result.runs) == sweep.n_runs
        assert not result.runs.duplicated(["cell", "seed"]).any()
        numbers = ["cell", "seed", "accuracy", "loss", "score_symmetry"]
        pd.testing.assert_frame_equal(result.runs[numbers], alone.runs[numbers])


@pytest.mark.server
def test_a_script_whose_workers_start_it_again_is_told_why(tmp_path):
    """Without `if __name__ == "__main__":` no worker starts, and no cell is recorded as failed."""
    script = tmp_path / "script.py"
    script.write_text("from attnkit.sweeps.run import start_workers\nstart_workers('local', 10**6)")
    environment = environment_with_package()
    ended = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True
    )
    message = ended.stderr.splitlines()[-1]
    assert "InvalidSweep: place: no worker process can start here" in message
    assert 'if __name__ == "__main__":' in message
