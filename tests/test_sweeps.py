"""Sweeps: their text and points, plans, chunks, how they go on, and those of visitors.

Those on Ray come last; all share one cluster, which the executor starts itself.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, patch

import numpy as np
import pandas as pd
import psutil
import pytest
import ray_tasks
import uv
from children import child
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly

import attnkit as ak
from attnkit.experiment.experiment import settings
from attnkit.foundation.plugins import PLUGINS
from attnkit.foundation.process import environment_with_package
from attnkit.service.jobs import Watcher
from attnkit.service.server import ServerSettings
from attnkit.service.service import Refused
from attnkit.sweeps import Sweep, SweepResult, run_sweep
from attnkit.sweeps.planning import Plan, n_runs_of
from attnkit.sweeps.result import FOLDER, SHIPPED, SweepFolder, load_shipped
from attnkit.sweeps.run import repeat_sample, train_chunk
from attnkit.sweeps.specification import InvalidSweep, read_values
from attnkit.sweeps.workers import PLACES, LocalWorkers, RayWorkers, WorkerLost, open_workers
from attnkit.tasks import TASKS
from attnkit.training import train
from attnkit.training.summary import run_table
from attnkit.ui import sweeps as own_sweeps
from attnkit.ui.sweeps import PAUSED, STOPPED, LiveSweep

SMALL = Sweep(
    base={"task": "phonebook", "steps": 4, "evaluate_every": 2, "n_eval": 16, "batch_size": 16},
    axes={"d_head": [2, 3], "n_entries": [2, 5]},
    sharing=["QKV", "K=V"],
    n_seeds=2,
    first_seed=7,
)


def changed(sweep=SMALL, **changes):
    """Return a sweep with other settings."""
    return Sweep(**{**sweep.to_dict(), **changes})


class Inline:
    """Workers that run tasks at once in this process, and lose those that they are told to."""

    n_workers, cancelled = 1, False

    def __init__(self, loses=lambda chunk: False, error=None):
        self.n_runs, self._loses = 0, loses
        self._error = error or WorkerLost("the worker ended")

    def submit(self, function, *args):
        """Run a task; it is what its result is."""
        if function is not train_chunk:
            return lambda: None
        if self._loses(args[1]):
            return Mock(side_effect=self._error)
        self.n_runs += n_runs_of(args[1])
        return Mock(return_value=function(*args))

    def wait(self, tasks, seconds):
        """Return all tasks, which are finished."""
        return list(tasks)

    def result(self, task):
        """Return the result of a task, or raise its error."""
        return task()

    def shutdown(self, *, cancel):
        """Note how it ended."""
        self.cancelled = cancel


@contextlib.contextmanager
def at(workers):
    """Let sweeps train with these workers, wherever they are to be."""
    with patch.dict("attnkit.sweeps.workers.PLACES", local=lambda _: workers):
        yield


def run_inline(sweep, folder, workers=None, **options):
    """Run a sweep in this process; return the number of runs that were trained and the result."""
    workers = workers or Inline()
    with at(workers):
        result = run_sweep(sweep, folder, **options)
    return workers.n_runs, result


BAD = {  # specification → key that the message must name first
    "n_seeds = ": "specification 'bad.toml'",
    "engine = 'steam'": "engine in 'bad.toml'",
    "[base]\nd_hed = 3": "base.d_hed",
    "[base]\nn_entries = 40": "base.n_entries",
    "[axes]\ntask = ['phonebook', 'x']": "axes.task",
    "[axes]\nd_head = []": "axes.d_head",
    "[axes]\nsharing = ['QKV']": "axes.sharing",
    "[axes]\ncausal = {from = 0, to = 1, count = 2}": "axes.causal",
    "[axes]\nd_head = {from = 1, to = 8, count = 1}": "axes.d_head.count",
    "[axes]\nd_head = {from = 0, to = 8, count = 2, scale = 'log'}": "axes.d_head",
    "[axes]\nn_entries = [8, 16]\n[base]\nn_names = 12": "axes.n_entries",
    "\n".join(["[axes]", *(f"{x} = {[*range(1, 1001)]}" for x in ("steps", "n_eval"))]): "axes.n_e",
    "sharing = ['QKV learning_rate=0.1']": "sharing",
    "sharing = ['QKV', 'QKV kv_heads=2']": "sharing",
    "[rates]\nmultiples = [0]": "rates.multiples",
    "[rates]\nmultiples = [1, 2]\n[axes]\nlearning_rate = [0.1, 0.2]": "rates.multiples",
    "[budget]\ncore_hours = -1": "budget.core_hours",
}


def test_a_bad_specification_or_argument_ends_with_one_line_that_names_it(tmp_path, run):
    """Nothing is trained or written; `engine` is an option and also a key of the file."""

    def refused(*arguments):
        code, output, errors = run("sweep", *map(str, arguments))
        assert (code, output, errors.count("\n")) == (2, "", 1), (arguments, errors)
        return errors.removeprefix("attnkit: error: ")

    bad, file, folder = (tmp_path / name for name in ("bad.toml", "mine.toml", "used"))
    for text, key in BAD.items():
        bad.write_text(text)
        assert refused(bad).startswith(key), text
        assert list(tmp_path.iterdir()) == [bad], text
    file.write_text('engine = "torch"\nn_seeds = 1\n[base]\nsteps = 5\n')
    SweepFolder(str(folder)).write_specification(Sweep(engine="kernel"))
    out = [file, "--out", folder]
    for arguments, message in (
        (["missing.toml"], ".*missing.toml"),
        ([file, "--engine", "slurm"], "--engine: "),
        ([file, "--retry-failed"], "--retry-failed: "),
        ([file, "--check", "3"], "--check: "),
        ([file, "--out", "unknown://place"], "--out: "),
        (out, "--out: .*--resume"),
        ([*out, "--resume"], r"engine in 'mine\.toml': got 'torch'"),
    ):
        assert re.match(message, refused(*arguments)), arguments


def test_a_toml_text_is_a_sweep_whose_points_are_the_product_of_its_axes():
    """Cells are named by all that decides their numbers, whatever is spelled out; not by seeds."""
    sweep = Sweep(
        base={"task": "phonebook", "steps": 30},
        axes={
            "d_head": {"from": 1, "to": 64, "count": 7, "scale": "log"},
            "learning_rate": {"from": 0.001, "to": 0.1, "count": 3, "scale": "log"},
            "n_entries": {"from": 2, "to": 8, "count": 3},
            "positions": ["none", "learned"],
        },
        sharing=["K=V", "QKV"],
        budget={"core_hours": 2},
    )
    assert sweep.axes["d_head"] == (1, 2, 4, 8, 16, 32, 64)
    assert (sweep.axes["learning_rate"], sweep.axes["n_entries"]) == ((0.001, 0.01, 0.1), (2, 5, 8))
    assert Sweep.from_toml(sweep.to_toml()) == sweep
    assert sweep.n_cells == 7 * 3 * 3 * 2 * 2
    points = [tuple(point.values()) for point in sweep.points()]
    assert points == list(product(*sweep.axes.values()))
    assert len(list(Sweep().points())) == 1
    assert all(told in sweep.conditions for told in ("Phone book", "30 steps", "5 seeds"))
    axes = {"d_head": [4, 8]}
    sweep = Sweep(base={"task": "phonebook"}, axes=axes)
    other = Sweep(base={"task": "phonebook", "n_entries": 8.0}, axes={"d_head": [8.0]}, n_seeds=3)
    assert other.cell_hashes()[0].tolist() == sweep.cell_hashes()[1].tolist()
    changes = ({}, {"engine": "torch"}, {"base": {"steps": 5}})
    changes += tuple({"rates": {"multiples": [1, 2], "tuning_seeds": n}} for n in (1, 3))
    sweeps = [Sweep(**{"axes": axes, **change}) for change in changes]
    hashes = {name for sweep in sweeps for name in sweep.cell_hashes().ravel().tolist()}
    assert len(hashes) == sum(sweep.n_cells for sweep in sweeps)
    sharing = ["QKV", "QKV kv_heads=2"]  # which must be possible somewhere
    assert Sweep(axes={"n_heads": [1, 2]}, sharing=sharing).n_cells == 4


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


def read(folder):
    """Return the runs in a folder of the small sweep."""
    return SweepResult.read(SweepFolder(str(folder)), SMALL)


def failed(result):
    """Return the runs that could not be trained; every planned run is there once."""
    assert len(result.runs) == result.sweep.n_runs
    assert not result.runs.duplicated(["cell", "seed"]).any()
    return result.runs[result.runs["error"].notna()]


@given(st.lists(st.booleans(), min_size=90, max_size=90), st.floats(0.01, 200))
@briefly(40)
def test_chunks_hold_every_missing_run_once(bits, seconds):
    """Whatever is finished, no run is left out or repeated; a long sweep has chunks of a minute."""
    sweep = Sweep(axes={"d_head": [2, 3, 5], "n_layers": [1, 2]}, sharing=["QKV", "K=V", "Q=K"])
    missing, hashes = np.array(bits).reshape(6, 3, 5), sweep.cell_hashes().astype("U16")
    finished = [(hashes[p, v], seed) for p, v, seed in np.argwhere(~missing)]
    plan = Plan.of(sweep, pd.DataFrame(finished, columns=["cell", "seed"]))
    found = []
    for chunk in plan.chunks(lambda group: seconds * len(group.variants), 2):
        for group in chunk:
            found += product([group.point], group.variants, group.seeds)
    assert len(found) == plan.n_missing
    assert set(found) == {tuple(index) for index in np.argwhere(missing).tolist()}
    long = Plan.of(Sweep(axes={"d_head": list(range(1, 65)), "n_layers": [1, 2]}))
    chunks = long.chunks(lambda group: 2.0 * len(group.variants), 4)
    lengths = [sum(2.0 * len(group.variants) for group in chunk) for chunk in chunks]
    assert all(10 <= length <= 60 for length in lengths[:-1])


def test_a_sweep_gives_the_numbers_of_train(tmp_path):
    """To the bit, also at the best of several rates, which is chosen on other seeds."""
    axes = {"learning_rate": [0.00310723, 0.01], "n_entries": [2, 5]}
    sweep, address = changed(axes=axes), f"memory://{os.getpid()}/sweep"
    n_trained, result = run_inline(sweep, address)
    assert n_trained == len(result.runs) == sweep.n_runs
    assert run_inline(sweep, address)[0] == 0
    rates = {"multiples": [1e-2, 4.0], "tuning_seeds": 1}
    _, tuned = run_inline(changed(axes={"d_head": [3]}, rates=rates), tmp_path / "sweep")
    for row in tuned.runs.to_dict("records"):
        tried = {float(rate): mean for rate, mean in json.loads(row["tried"]).items()}
        assert set(tried) == {5e-5, 0.02}
        assert tried[row["learning_rate"]] >= max(tried.values()) - 0.005
    for runs, names in ((result.runs, [*axes, "sharing"]), (tuned.runs, ["d_head", "sharing"])):
        for _, rows in runs.groupby(names):
            given = rows[[*names, "learning_rate"]].iloc[0].to_dict()
            experiment = ak.Experiment(**sweep.base, **given, n_seeds=2, first_seed=7)
            alone = run_table(ak.train(experiment, "cpu").snapshot)
            for name in ("seed", "accuracy", "loss", "score_symmetry", "parameters"):
                assert rows[name].tolist() == alone[name].tolist(), given


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
    numbers = ["cell", "seed", "accuracy", "loss", "score_symmetry"]
    pd.testing.assert_frame_equal(read(folder).runs[numbers], before[numbers])


def test_a_cell_is_recorded_as_failed_if_its_worker_ends_when_it_trains_alone(tmp_path):
    """Before, what trained beside it may have ended the worker; a retry replaces the record."""
    for most, n_failed in ((2, 0), (10**6, 2)):
        attempts, folder = [], tmp_path / str(most)

        def loses(chunk, attempts=attempts, most=most):
            holds = any(group.point == 2 and 1 in group.variants for group in chunk)
            attempts.extend([chunk] * holds)
            return holds and len(attempts) <= most

        rows = failed(run_inline(SMALL, folder, Inline(loses))[1])
        assert len(attempts) == 3
        told = [SMALL.sharing[1].value, "the worker ended"]
        assert rows[["sharing", "error"]].to_numpy().tolist() == [told] * n_failed
    assert run_inline(SMALL, folder)[0] == 0
    n_trained, result = run_inline(SMALL, folder, retry_failed=True)
    assert (n_trained, len(failed(result))) == (2, 0)
    full = Inline(lambda _: True, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):  # which is the fault of no cell
        run_inline(SMALL, tmp_path / "full", full)
    assert full.cancelled


def test_a_sweep_that_may_not_start_says_why(folder, monkeypatch):
    """The reason is another engine, a small budget, a damaged part or a script."""
    before = sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    small = {"budget": {"core_hours": 1e-9}, "n_seeds": 3}
    for change, field in (({"engine": "torch"}, "engine"), (small, "budget.core_hours")):
        with pytest.raises(InvalidSweep, match=f"{field}: got "):
            run_inline(changed(**change), folder)
    assert before == sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    part = min((folder / "parts").iterdir())
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(InvalidSweep, match=part.name):
        run_inline(SMALL, folder)
    monkeypatch.setattr(LocalWorkers, "result", Mock(side_effect=WorkerLost))
    for place, message in (("local", "__main__"), ("moon", "place: got 'moon', allowed local")):
        with pytest.raises(InvalidSweep, match=message), open_workers(place, 1e9):
            pass


def test_a_result_is_read_back_from_one_file_and_repeated_to_the_bit(trained, tmp_path):
    """The file holds the runs and the specification; a changed record is found."""
    result = read(trained)
    result.save(tmp_path / "runs.parquet")
    loaded = SweepResult.load(tmp_path / "runs.parquet")
    assert loaded.sweep == SMALL
    pd.testing.assert_frame_equal(loaded.runs, result.runs)
    (tmp_path / "text.parquet").write_text("nothing")
    with pytest.raises(InvalidSweep, match=r"text\.parquet"):
        SweepResult.load(tmp_path / "text.parquet")
    _, table = repeat_sample(result, 3)
    assert (table["cell"].nunique(), len(table)) == (3, 6)
    assert table["equal"].all()
    result.runs.loc[:, "loss"] += 0.5
    _, table = repeat_sample(result, 100)
    assert not table["equal"].any()
    assert table["loss_difference"].tolist() == pytest.approx([0.5] * 16)


def test_the_command_tells_what_is_missing_trains_it_and_repeats_a_sample(folder, run, monkeypatch):
    """An estimate trains nothing; all runs are in one file at the end."""
    monkeypatch.setitem(PLACES, "local", lambda _: Inline())
    file = folder.with_suffix(".toml")
    file.write_text(changed(n_seeds=3, budget={"price_per_core_hour": 2}).to_toml())
    code, output, errors = run("sweep", str(file), "--resume", "--estimate")
    assert (code, output) == (0, "")
    told = "8 runs .* 16 .* 1 s of one core, 1 s on 1 worker, 1 s of it to start.*cost 0.00\n$"
    assert re.match(told, errors)
    code, output, errors = run("sweep", str(file), "--resume")
    assert (code, f"\n24 runs in {folder}; all of" in output) == (0, True)
    heading, *rows = (line.split() for line in output.splitlines()[:-1])
    assert heading == ["d_head", "n_entries", "sharing", "runs", "accuracy", "solved", "failed"]
    points = [(*map(str, point), name) for *point, name in product((2, 3), (2, 5), ("QKV", "K=V"))]
    assert [(*row[:4], *row[5:]) for row in rows] == [(*one, "3", "0/3", "0") for one in points]
    assert "8 of 8 runs, 1 workers" in errors
    assert len(SweepResult.load(folder / "runs.parquet").runs) == 24
    code, output, _ = run("sweep", str(file), "--check", "2")
    assert (code, output.startswith("6 runs of 2 cells ")) == (0, True)
    assert re.search(r"\b6 equal", output)


@pytest.mark.server
def test_a_sweep_with_local_workers_survives_the_death_of_one(tmp_path):
    """It is killed in the middle of its first chunk, with others in flight, and is replaced."""
    workers, kills = LocalWorkers(1), []
    submit = workers.submit

    def submit_and_kill(function, *args):
        task = submit(function, *args)
        if function is train_chunk and kills:
            psutil.Process(kills.pop()).kill()
        return task

    kills.append(workers.result(submit(os.getpid)))
    assert kills != [os.getpid()]
    workers.submit, workers.n_runs = submit_and_kill, None
    assert failed(run_inline(SMALL, tmp_path / "sweep", workers)[1]).empty
    assert not kills


# A book of 11 names has no 16 entries: one of four points is impossible.
AXES = {"n_entries": [5, 16], "n_names": [20, 11]}
SWEEP = changed(base={**SMALL.base, "task": "directed"}, axes=AXES)


@pytest.fixture
def service(monkeypatch):
    """Stands in for the training service: trains at once, or refuses."""
    begun = []

    def submit(experiment, **_):
        if found.refusal:
            raise Refused(found.refusal)
        begun.append(experiment)
        return str(len(begun) - 1)

    def job(job_id, watcher):
        snapshot = train(begun[int(job_id)], "cpu").snapshot
        return SimpleNamespace(state="finished", snapshot=snapshot)

    found = SimpleNamespace(submit=submit, job=job, refusal="", estimate=lambda experiment: 40.0)
    found.wait = found.stop_watching = found.note_begin = found.note_end = lambda *_: None
    for module in ("watched_job", "sweeps"):
        monkeypatch.setattr(f"attnkit.ui.{module}.training_service", lambda: found)
    return found


def test_the_form_reads_values_and_tells_wrong_ones_in_the_words_of_the_page(service, monkeypatch):
    """The form suggests sweeps that can run. Shipped sweeps are complete and small."""
    for text, values in {
        "2, 4, 8": (2, 4, 8),
        "2 … 16": (2, 4, 8, 16),
        "3..20": (3, 6, 12, 20),  # doubling misses the last one
    }.items():
        assert read_values("d_head", text, "phonebook") == values, text
    width, many = settings("directed")["d_head"].label, ", ".join(map(str, range(4, 17)))
    for typed, found in (
        *(({"first_values": text}, width) for text in ("", "many", "8 … 2", "0 … 8", "4, 100000")),
        ({"second": "d_head"}, "twice"),
        ({"first_values": many, "second_values": many}, str(own_sweeps.MOST_POINTS)),
    ):
        form = own_sweeps.SweepForm(task="directed")
        vars(form).update({"first_values": many, "second": "n_values"} | typed)
        with pytest.raises(InvalidSweep) as caught:
            form.sweep()
        message = own_sweeps.on_screen(caught.value, "directed")
        assert found in message, typed
        assert not re.search("d_head|axes", message), typed
    for task in TASKS:
        form = own_sweeps.SweepForm()
        form.set_task(task)
        assert 1 <= form.sweep().n_points <= own_sweeps.MOST_POINTS, task
        for name in own_sweeps.axes_of(task):
            assert read_values(name, own_sweeps.suggested(name, form.base), task), (task, name)
    assert re.match("12 models .* 4 points; 4 .*about 2 min", own_sweeps.estimate_in_words(SWEEP))
    limits = ServerSettings(max_steps=3)
    monkeypatch.setattr("attnkit.ui.sweeps.server_settings", lambda: limits)
    (problem,) = own_sweeps.problems_here(SWEEP)
    assert re.search(r"\b4\b.*\b3\b", problem)
    for name in SHIPPED:
        assert load_shipped(name).n_missing == 0, name
        assert (FOLDER / f"{name}.parquet").stat().st_size <= 2_000_000, name


def test_a_live_sweep_has_the_numbers_of_the_command_line(service, tmp_path, monkeypatch):
    """A series that is paused or refused goes on with the next point, and tells what ended it."""
    live = LiveSweep.of(SWEEP, Watcher("tab", "visitor"))
    live.go_on()
    assert len(live.result().runs) == 4
    live.follow()
    live.stop(PAUSED)
    assert (live.moving, live.ended, live.n_finished) == (False, False, 1)
    service.refusal = "12 experiments wait already"
    live.go_on()
    assert "12 experiments wait already" in live.problem
    service.refusal = ""
    for job, problem in (
        (None, "."),
        (SimpleNamespace(state="failed", error="not enough memory"), "not enough memory."),
    ):
        live.go_on()
        with monkeypatch.context() as patch:
            patch.setattr(service, "job", lambda *_, job=job: job)
            live.follow()
        assert (live.problem.endswith(problem), live.moving) == (True, False)
    live.go_on()
    while live.moving:
        assert live.result().n_missing == SWEEP.n_runs - 4 * live.n_finished
        live.follow()
    result = live.result()
    assert (live.finished, len(live.experiments)) == (True, 3)
    assert live.result() is result  # until another point is finished
    (tmp_path / "sweep.parquet").write_bytes(result.to_bytes())
    loaded = SweepResult.load(tmp_path / "sweep.parquet")
    assert loaded.sweep == SWEEP
    assert loaded.runs.to_csv() == result.runs.to_csv()
    expected = run_inline(SWEEP, tmp_path / "sweep")[1].runs
    assert expected["error"].notna().sum() == 4
    names = list(expected.columns.drop(["seconds", "tried"]))
    assert result.runs[names].to_csv() == expected[names].to_csv()
    other = LiveSweep.of(SWEEP, Watcher("tab", "visitor"))
    other.go_on()
    other.stop(STOPPED)
    assert other.ended


PATIENCE = 300  # seconds after which a wait has failed

NEW_CLUSTER = """
import os, warnings
warnings.simplefilter("error")
from attnkit.sweeps.workers import WorkerLost, open_workers
with open_workers("ray", 1e9) as workers:
    assert workers.n_workers == 1
    try:
        workers.result(workers.submit(os.abort))
    except WorkerLost as error:
        assert "died" in str(error)
    import ray
    print(ray.get_runtime_context().gcs_address, flush=True)
    input()
"""


@pytest.fixture(scope="module")
def ray():
    """Import Ray, which changes sys.path and the hook of errors; change both back at the end."""
    path, hook = list(sys.path), sys.excepthook
    yield pytest.importorskip("ray", reason="Ray is in the extra `cluster`")
    sys.path[:], sys.excepthook = path, hook


@pytest.fixture(scope="module")
def cluster(ray):
    """Address and raylet of a silent cluster below `uv run`, which Ray would repeat in workers."""
    command = [uv.find_uv_bin(), "run", "--offline", "--no-project", sys.executable, "-c"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # as sockets need
        environment = {**environment_with_package(), "RAY_AUTH_MODE": "disabled"}
        environment |= {"RAY_TMPDIR": folder, "RAY_ADDRESS": ""}
        with child(*command, NEW_CLUSTER, text=True, env=environment, **pipes) as own:
            address = own.stdout.readline().strip()
            assert address, own.stderr.read()
            processes, listening = psutil.Process(own.pid).children(recursive=True), set()
            for one in processes:
                with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
                    connections = one.net_connections("tcp")
                    listening |= {c.laddr.ip for c in connections if c.status == "LISTEN"}
            assert {"127.0.0.1"} <= listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
            yield address, next(one for one in processes if one.name() == "raylet")
            assert own.communicate("\n", PATIENCE) == ("", "")
            assert not psutil.wait_procs(processes, timeout=PATIENCE)[1]
        assert not list(Path(folder).iterdir())


@pytest.fixture
def variables(ray):
    """Restore the environment, in which Ray sets variables of its own."""
    with patch.dict(os.environ):
        yield


@pytest.mark.server
def test_a_cluster_that_cannot_be_used_is_told_in_one_line(variables, monkeypatch):
    """This happens at once, by the name of what holds the address; and where Ray is missing."""

    def one_line():
        with pytest.raises(InvalidSweep) as raised:
            RayWorkers(1)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    with monkeypatch.context() as without:
        without.setitem(sys.modules, "ray", None)
        assert one_line().startswith("place: got 'ray', allowed 'local'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        silent = f"127.0.0.1:{free.getsockname()[1]}"
    wrong = ("http://127.0.0.1:8265", "ray://127.0.0.1:10001", "127.0.0.1", ":6379")
    for address in (silent, *wrong):
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert one_line().startswith(f"RAY_ADDRESS: got {address!r}")
    for local in ("local", ""):
        monkeypatch.setenv("RAY_ADDRESS", local)
        monkeypatch.setenv("RAY_TMPDIR", "/no/such/folder")
        assert one_line().startswith("RAY_TMPDIR: got '/no/such/folder'")


@pytest.mark.server
@pytest.mark.long(seconds=25)
def test_tasks_run_with_this_code_and_their_results_and_errors_return(cluster, variables, tmp_path):
    """An error is the task's own, a missing module the machine's; the end cancels what runs."""
    os.environ |= {PLUGINS: "ray_tasks", "RAY_ADDRESS": cluster[0]}
    handler = signal.getsignal(signal.SIGTERM)
    workers = RayWorkers(1)

    def result(*task):
        return workers.result(workers.submit(*task))

    assert signal.getsignal(signal.SIGTERM) is handler
    *paths, environment, cores = result(ray_tasks.surroundings)
    assert all("py_modules_files" in path for path in paths)
    names = (PLUGINS, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    assert ([environment[n] for n in names], cores) == (["ray_tasks", "1", "1"], 1)
    with pytest.raises(ValueError, match="no number") as raised:
        result(int, "no number")
    assert raised.type is ValueError
    with pytest.raises(InvalidSweep, match="no_such"):
        result(ray_tasks.lacking)
    assert result(ray_tasks.arriving, tmp_path) == 2
    second = RayWorkers(1)  # it shares the connection, which its end leaves
    assert second.result(second.submit(divmod, 7, 2)) == (3, 1)
    second.shutdown(cancel=False)
    assert result(divmod, 7, 2) == (3, 1)
    (tmp_path / "waiting").mkdir()
    task = workers.submit(ray_tasks.arriving, tmp_path / "waiting", True)
    assert not workers.wait([task], 0)
    deadline = time.monotonic() + PATIENCE
    while not (arrived := list(tmp_path.glob("waiting/*.arrived"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    workers.shutdown(cancel=True)
    assert not psutil.pid_exists(int(arrived[0].stem))


def busy(raylet):
    """Return the processes that run a task now; idle ones have another name, and any may end."""
    found = []
    for one in raylet.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [one] * (one.cmdline()[:1] == ["ray::_call"])
    return found


@pytest.mark.server
@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("victim", ["worker", "command"])
def test_a_sweep_survives_kills(victim, cluster, variables, tmp_path, seed):
    """After SIGKILL at drawn moments, cluster or --resume train the rest to the same bits."""
    chance, seconds = random.Random(f"{victim} {seed}"), 0.0
    base = {**SMALL.base, "steps": 200, "evaluate_every": 100}
    axes = {"d_head": [2, 3, 5], "n_entries": [2, 3, 5]}
    sweep = changed(base=base, axes=axes, engine="torch")  # a new node would compile the kernel
    alone = run_inline(sweep, tmp_path / "alone")[1].runs.drop(columns="seconds")
    assert alone["error"].isna().all()
    address, raylet = cluster
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": tmp_path}
    pipes["env"] = environment_with_package() | {"RAY_ADDRESS": address, PLUGINS: ""}
    for number in range(4):
        (tmp_path / f"{number}.toml").write_text(sweep.to_toml())
        command = f"{sys.executable} -m attnkit sweep {number}.toml --resume --engine ray".split()
        with child(*command, **pipes) as process:
            while process.poll() is None and not busy(raylet):
                time.sleep(0.01)
            began = time.monotonic()
            if number:  # the first run shows for how long one trains
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(0, seconds))
                for one in busy(raylet) if victim == "worker" else [process]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.kill()
            output, _ = process.communicate(timeout=PATIENCE)
        seconds = seconds or time.monotonic() - began
        assert number or "ray" not in output.lower()
        if victim == "command":
            output = subprocess.run(command, check=False, timeout=PATIENCE, **pipes).stdout
        assert f"{sweep.n_runs} runs in " in output, f"seed {seed}, kill {number}: {output}"
        runs = SweepResult.load(tmp_path / str(number) / "runs.parquet").runs
        pd.testing.assert_frame_equal(runs.drop(columns="seconds"), alone)
