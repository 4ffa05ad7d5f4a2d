"""The Ray executor: tasks, sweeps, lost workers and machines, and errors of one line.

By day all run on one cluster, which the executor starts itself. Machines that join and are lost
need nodes of `ray start`; they are killed at night, at moments drawn from the seed.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import CancelledError

import pandas as pd
import psutil
import pytest
import ray_tasks
from inline_sweeps import changed, run_inline
from ray_cluster import PATIENCE, busy_workers, kill_node, new_cluster, nodes, raylet_of

from attnkit.foundation.extras import install_hint
from attnkit.foundation.plugins import PLUGINS
from attnkit.foundation.process import environment_with_package
from attnkit.sweeps import SweepResult
from attnkit.sweeps.cluster import ClusterUnavailable, RayExecutor

pytestmark = pytest.mark.server

N_KILLS = 20
"""Number of moments at which each kind of process is killed at night."""


@pytest.fixture(scope="module")
def cluster():
    """The cluster of all tests, with one CPU."""
    with new_cluster() as started:
        yield started


@pytest.fixture(scope="module")
def executor(cluster):
    """An executor of that cluster, whose machines get the module `ray_tasks` as a plugin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PLUGINS, "ray_tasks")
        before = signal.getsignal(signal.SIGTERM)
        with RayExecutor(cluster.address) as executor:
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
    """At once: Ray may be missing, an address wrong or silent, also that of the environment."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        hint = install_hint("cluster")
        assert one_line() == f"place: got 'ray', allowed 'local', or 'ray' after {hint}"
    pytest.importorskip("ray", reason="Ray is in the extra `cluster`")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    for given in (None, address):
        assert one_line(given).startswith(f"address: got {address!r}, where no cluster answers (")
    for given in ("ray://127.0.0.1:10001", "127.0.0.1", ":6379"):
        assert one_line(given) == f"address: got {given!r}, allowed HOST:PORT or 'auto'"


def test_a_cluster_of_another_version_of_ray(cluster, monkeypatch):
    """Both versions are named. The first test of the cluster waits for its start, some seconds."""
    from ray._private import utils

    monkeypatch.setattr(utils, "compute_version_info", lambda: ("2.0.0", "3.9.1"))
    assert "Ray: 2.0.0" in one_line(cluster.address)


@pytest.mark.long
def test_a_new_cluster_ends_with_its_process_if_that_is_killed():
    """Its services notice that nobody needs them."""
    with new_cluster(killed=True):
        pass


def test_workers_have_this_code_the_plugins_and_one_thread(executor):
    """Code comes from the shipped copies, although the nodes could import it."""
    package, plugin, environment, cores = executor.submit(ray_tasks.surroundings).result(PATIENCE)
    for path in (package, plugin):
        assert "working_dir_files" in path
    assert environment[PLUGINS] == "ray_tasks"
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "1"
    assert cores == 1


def test_results_and_errors_reach_the_futures(executor, tmp_path):
    """An error is the task's own, a missing module the machine's; a killed task starts again."""
    assert list(executor.map(divmod, (7, 9), (2, 2), timeout=PATIENCE)) == [(3, 1), (4, 1)]
    error = executor.submit(int, "no number").exception(PATIENCE)
    assert type(error) is ValueError
    assert "no number" in str(error)
    with pytest.raises(ClusterUnavailable, match=r"cannot run tasks \(No module named 'no_such"):
        executor.submit(ray_tasks.lacking).result(PATIENCE)
    assert executor.submit(ray_tasks.dying, tmp_path).result(PATIENCE) == 2


def test_a_task_that_runs_is_cancelled(executor, tmp_path):
    """Its worker ends, and the next task runs."""
    future = executor.submit(ray_tasks.waiting, tmp_path)
    deadline = time.monotonic() + PATIENCE
    while not (arrived := list(tmp_path.glob("*.arrived"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(PATIENCE)
    assert executor.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
    assert not psutil.pid_exists(int(arrived[0].stem))


def test_a_process_that_is_connected_shares_the_connection(executor):
    """As a task inside the cluster would; its end leaves the connection."""
    with RayExecutor() as second:
        assert second.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
    with pytest.raises(RuntimeError, match="after shutdown"):
        second.submit(divmod, 7, 2)
    assert executor.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)


def sweep_of(steps, **axes):
    """A sweep; a new node would compile the kernel for half a minute, so torch trains."""
    base = {"steps": steps, "evaluate_every": steps // 2, "n_eval": 16, "batch_size": 16}
    return changed(base=base, axes=axes, engine="torch")


def numbers(runs):
    """Return all that does not depend on the clock, of runs without an error."""
    assert runs["error"].isna().all(), runs["error"].dropna().iloc[0]
    return runs.drop(columns=["seconds"])


def test_a_cluster_gives_the_bits_of_this_machine(executor, tmp_path, run, monkeypatch):
    """The command says nothing of Ray's; workers have working folders of their own."""
    sweep = sweep_of(20, d_head=[2, 3])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text(sweep.to_toml())
    code, output, errors = run("sweep", "sweep.toml", "--engine", "ray")
    assert (code, "ray" in f"{output}{errors}".lower()) == (0, False)
    found = SweepResult.load(tmp_path / "sweep" / "runs.parquet").runs
    assert len(found) == sweep.n_runs
    _, alone = run_inline(sweep, tmp_path / "alone")
    pd.testing.assert_frame_equal(numbers(found), numbers(alone.runs))


@pytest.mark.long
@pytest.mark.parametrize("victim", ["worker", "node", "command"])
def test_a_sweep_survives_kills(victim, executor, cluster, tmp_path, seed):
    """SIGKILL at drawn moments; the rest is trained by the cluster or by --resume."""
    chance, killed, seconds = random.Random(f"{victim} {seed}"), 0, 0.0
    sweep = sweep_of(200, d_head=[2, 3, 5], n_entries=[2, 3, 5])
    alone = numbers(run_inline(sweep, tmp_path / "alone")[1].runs)
    variables = {"RAY_ADDRESS": cluster.address, PLUGINS: ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with nodes(cluster.address) as start:
        node, n_workers = start(), executor.n_workers
        assert n_workers == 2
        for number in range(N_KILLS + 1):
            file = tmp_path / f"{number}.toml"
            file.write_text(sweep.to_toml())
            command = [sys.executable, "-m", "attnkit", "sweep", file.name, "--resume"]
            command += ["--engine", "ray"]
            pipes |= {"env": environment_with_package() | variables, "cwd": tmp_path}
            began = time.monotonic()
            with subprocess.Popen(command, **pipes) as process:
                if seconds:  # the first run shows how long one takes
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(chance.uniform(0, seconds))
                    workers = [*busy_workers(cluster.raylet), *busy_workers(raylet_of(node))]
                    if victim == "worker" and workers:
                        with contextlib.suppress(psutil.NoSuchProcess):
                            chance.choice(workers).kill()
                    elif victim == "node":
                        kill_node(node)
                    elif victim == "command":
                        process.kill()
                    killed += bool(workers)
                output, _ = process.communicate(timeout=PATIENCE)
            seconds = seconds or time.monotonic() - began
            if victim == "command":
                output = subprocess.run(command, check=False, **pipes).stdout
            assert f"{sweep.n_runs} runs in " in output, f"seed {seed}, kill {number}: {output}"
            runs = SweepResult.load(tmp_path / str(number) / "runs.parquet").runs
            pd.testing.assert_frame_equal(numbers(runs), alone)
            if node.poll() is not None:
                node = start()
    assert killed > N_KILLS / 4
    deadline = time.monotonic() + PATIENCE
    while executor.n_workers == n_workers:
        assert time.monotonic() < deadline
        os.sched_yield()
