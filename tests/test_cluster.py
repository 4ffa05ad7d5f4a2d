"""The Ray executor: tasks, sweeps, lost workers and commands, and errors of one line.

All run on one cluster, which the executor starts itself.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import CancelledError
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import psutil
import pytest
import ray_tasks
import uv
from children import child
from inline_sweeps import SMALL, changed, run_inline

from attnkit.foundation.plugins import PLUGINS
from attnkit.foundation.process import environment_with_package
from attnkit.sweeps import SweepResult
from attnkit.sweeps.cluster import ClusterUnavailable, RayExecutor

pytestmark = pytest.mark.server

PATIENCE = 300
"""Seconds after which a wait has failed."""

NEW_CLUSTER = """
import os, warnings
warnings.simplefilter("error")
from attnkit.sweeps.cluster import RayExecutor
with RayExecutor(n_workers=1) as executor:
    assert executor.n_workers == 1
    crashed = executor.submit(os.abort)
    assert "died" in str(crashed.exception())
    import ray
    print(ray.get_runtime_context().gcs_address, flush=True)
    input()
"""
"""A process with a cluster of its own, which is used, says its address, and waits."""


@pytest.fixture(scope="module", autouse=True)
def ray():
    """Import Ray, which changes sys.path and the hook of errors; change both back at the end."""
    path, hook = list(sys.path), sys.excepthook
    yield pytest.importorskip("ray", reason="Ray is in the extra `cluster`")
    sys.path[:], sys.excepthook = path, hook


@pytest.fixture(scope="module")
def cluster():
    """Address and raylet of the cluster of all tests, with one CPU.

    It listens on the loopback interface only, is silent, and leaves nothing. It runs below
    `uv run`, which Ray knows and would repeat in every worker.
    """
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


@pytest.fixture(autouse=True)
def variables():
    """Restore the environment, in which Ray sets variables of its own."""
    with patch.dict(os.environ):
        yield


@pytest.fixture
def executor(cluster):
    """An executor of that cluster, whose machines get the module `ray_tasks` as a plugin."""
    os.environ[PLUGINS] = "ray_tasks"
    before = signal.getsignal(signal.SIGTERM)
    with RayExecutor(cluster[0]) as executor:
        assert signal.getsignal(signal.SIGTERM) is before
        yield executor


def one_line(address=None):
    """Return the message of a cluster that cannot be used."""
    with pytest.raises(ClusterUnavailable) as raised:
        RayExecutor(address)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_a_cluster_that_cannot_be_used_is_told_in_one_line(monkeypatch):
    """At once, by the name of what holds a wrong or silent address; and where Ray is missing."""
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "ray", None)
        assert one_line().startswith("place: got 'ray', allowed 'local'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        silent = f"127.0.0.1:{free.getsockname()[1]}"
    wrong = ("http://127.0.0.1:8265", "ray://127.0.0.1:10001", "127.0.0.1", ":6379")
    for address in (silent, *wrong):
        monkeypatch.setenv("RAY_ADDRESS", address)
        for given, source in ((None, "RAY_ADDRESS"), (address, "address")):
            assert one_line(given).startswith(f"{source}: got {address!r}")
    monkeypatch.setenv("RAY_ADDRESS", silent)
    assert one_line("auto").startswith(f"RAY_ADDRESS: got {silent!r}")
    for local, passed in ((silent, "local"), ("local", None), ("", None)):
        monkeypatch.setenv("RAY_ADDRESS", local)
        monkeypatch.setenv("RAY_TMPDIR", "/no/such/folder")
        assert one_line(passed).startswith("RAY_TMPDIR: got '/no/such/folder'")


@pytest.mark.long(seconds=25)
def test_tasks_run_with_this_code_and_their_results_and_errors_return(executor, tmp_path):
    """Code comes from the shipped copies, with the plugins and one thread; a task can be cancelled.

    An error is the task's own, a missing module the machine's; a killed task starts again.
    """
    package, plugin, environment, cores = executor.submit(ray_tasks.surroundings).result(PATIENCE)
    assert all("working_dir_files" in path for path in (package, plugin))
    assert environment[PLUGINS] == "ray_tasks"
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "1"
    assert cores == 1
    assert list(executor.map(divmod, (7, 9), (2, 2), timeout=PATIENCE)) == [(3, 1), (4, 1)]
    error = executor.submit(int, "no number").exception(PATIENCE)
    assert type(error) is ValueError
    assert "no number" in str(error)
    with pytest.raises(ClusterUnavailable, match="no_such"):
        executor.submit(ray_tasks.lacking).result(PATIENCE)
    assert executor.submit(ray_tasks.dying, tmp_path).result(PATIENCE) == 2
    future = executor.submit(ray_tasks.waiting, tmp_path / "waiting")
    deadline = time.monotonic() + PATIENCE
    while not (arrived := list(tmp_path.glob("waiting/*.arrived"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(PATIENCE)
    with RayExecutor() as second:  # it shares the connection, which its end leaves
        assert second.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
    with pytest.raises(RuntimeError, match="shutdown"):
        second.submit(divmod, 7, 2)
    assert executor.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
    assert not psutil.pid_exists(int(arrived[0].stem))


def busy(raylet):
    """Return the processes that run a task now; idle ones have another name, and any may end."""
    found = []
    for one in raylet.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [one] * (one.cmdline()[:1] == ["ray::_call"])
    return found


def numbers(runs):
    """Return all that does not depend on the clock, of runs without an error."""
    assert runs["error"].isna().all(), runs["error"].dropna().iloc[0]
    return runs.drop(columns=["seconds"])


@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("victim", ["worker", "command"])
def test_a_sweep_survives_kills(victim, cluster, tmp_path, seed):
    """SIGKILL at drawn moments; the rest is trained by the cluster or by --resume.

    The numbers are those of this machine, to the bit. A run that is not killed says nothing of Ray.
    A new node would compile the kernel for half a minute, so torch trains.
    """
    chance, seconds = random.Random(f"{victim} {seed}"), 0.0
    base = {**SMALL.base, "steps": 200, "evaluate_every": 100}
    axes = {"d_head": [2, 3, 5], "n_entries": [2, 3, 5]}
    sweep = changed(base=base, axes=axes, engine="torch")
    alone = numbers(run_inline(sweep, tmp_path / "alone")[1].runs)
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
            output = subprocess.run(command, check=False, **pipes).stdout
        assert f"{sweep.n_runs} runs in " in output, f"seed {seed}, kill {number}: {output}"
        runs = SweepResult.load(tmp_path / str(number) / "runs.parquet").runs
        pd.testing.assert_frame_equal(numbers(runs), alone)
