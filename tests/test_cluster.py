"""The Ray executor: tasks, sweeps, lost workers and commands, and errors of one line.

All run on one cluster, which the executor starts itself.
"""

import contextlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pandas as pd
import psutil
import pytest
import ray_tasks
import uv
from children import child
from inline_sweeps import SMALL, changed, run_inline

from attnkit.foundation.extras import install_hint
from attnkit.foundation.plugins import PLUGINS
from attnkit.foundation.process import environment_with_package
from attnkit.sweeps import SweepResult
from attnkit.sweeps.cluster import ClusterUnavailable, RayExecutor

pytestmark = pytest.mark.server

N_KILLS = 20
"""Number of moments at which each kind of process is killed at night."""


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


def listens_on(process):
    """Return the addresses on which a process listens; none if it has ended by now."""
    with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
        connections = process.net_connections("tcp")
        return [one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN]
    return []


@contextlib.contextmanager
def new_cluster(*, killed=False):
    """Address and raylet of a new cluster, which ends with its process and leaves nothing.

    It listens on the loopback interface only, and is silent. The process is killed, or it runs
    below `uv run`, which Ray knows and would repeat in every worker, and returns.
    """
    pytest.importorskip("ray", reason="Ray is in the extra `cluster`")
    below = [] if killed else [uv.find_uv_bin(), "run", "--offline", "--no-project"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # as sockets need
        environment = {**environment_with_package(), "RAY_AUTH_MODE": "disabled"}
        environment |= {"RAY_TMPDIR": folder, "RAY_ADDRESS": ""}
        command = (*below, sys.executable, "-c", NEW_CLUSTER)
        with child(*command, text=True, env=environment, **pipes) as own:
            address = own.stdout.readline().strip()
            assert address, own.stderr.read()
            processes = psutil.Process(own.pid).children(recursive=True)
            listening = {
                ip for one in (psutil.Process(own.pid), *processes) for ip in listens_on(one)
            }
            assert listening
            assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
            yield address, next(one for one in processes if one.name() == "raylet")
            if killed:
                own.kill()
            told = own.communicate("\n", PATIENCE)
            for one in processes if killed else ():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "Agent" in one.name():  # after a kill, Ray's agents go on for a minute
                        one.kill()
            assert not psutil.wait_procs(processes, timeout=PATIENCE)[1]
        assert killed or not list(Path(folder).iterdir())
    assert told == ("", "")


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
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        hint = install_hint("cluster")
        assert one_line() == f"place: got 'ray', allowed 'local', or 'ray' after {hint}"
    pytest.importorskip("ray", reason="Ray is in the extra `cluster`")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    for given, source in {None: "RAY_ADDRESS", "auto": "RAY_ADDRESS", address: "address"}.items():
        assert one_line(given).startswith(f"{source}: got {address!r}, where no cluster answers (")
    for given in ("http://127.0.0.1:8265", "ray://127.0.0.1:10001", "127.0.0.1", ":6379"):
        name = {"http": "Ray's dashboard and jobs; ", "ray": "Ray's client; "}
        rest = "the HOST:PORT that `ray start --head` prints, 'auto' for the cluster of this "
        rest += "machine, or 'local' for a new one"
        kind, scheme, _ = given.partition("://")
        other = f"{kind}:// is the address of {name[kind]}" if scheme else ""
        monkeypatch.setenv("RAY_ADDRESS", given)
        for source, passed in {"address": given, "RAY_ADDRESS": None}.items():
            assert one_line(passed) == f"{source}: got {given!r}, {other}allowed {rest}"
    for local, passed in ((address, "local"), ("local", None), ("", None)):
        monkeypatch.setenv("RAY_ADDRESS", local)
        monkeypatch.setenv("RAY_TMPDIR", "/no/such/folder")
        assert one_line(passed).startswith("RAY_TMPDIR: got '/no/such/folder', allowed a folder in")


def test_a_cluster_of_another_version_of_ray(cluster, monkeypatch):
    """Both versions are named. The first test of the cluster waits for its start, some seconds."""
    from ray._private import utils

    monkeypatch.setattr(utils, "compute_version_info", lambda: ("2.0.0", "3.9.1"))
    assert "Ray: 2.0.0" in one_line(cluster[0])


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
    base = {**SMALL.base, "steps": steps, "evaluate_every": steps // 2}
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
@pytest.mark.parametrize("victim", ["worker", "command"])
def test_a_sweep_survives_kills(victim, cluster, tmp_path, seed):
    """SIGKILL at drawn moments; the rest is trained by the cluster or by --resume."""
    chance, n_killed, seconds = random.Random(f"{victim} {seed}"), 0, 0.0
    sweep = sweep_of(200, d_head=[2, 3, 5], n_entries=[2, 3, 5])
    alone = numbers(run_inline(sweep, tmp_path / "alone")[1].runs)
    address, raylet = cluster
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": tmp_path}
    pipes["env"] = environment_with_package() | {"RAY_ADDRESS": address, PLUGINS: ""}
    for number in range(N_KILLS + 1):
        (tmp_path / f"{number}.toml").write_text(sweep.to_toml())
        options = f"-m attnkit sweep {number}.toml --resume --engine ray".split()
        began = time.monotonic()
        with subprocess.Popen([sys.executable, *options], **pipes) as process:
            if seconds:  # the first run shows how long one takes
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(0, seconds))
                busy = [one for one in raylet.children() if one.cmdline()[:1] == ["ray::_call"]]
                for one in busy if victim == "worker" else [process]:
                    one.kill()
                n_killed += bool(busy)
            output, _ = process.communicate(timeout=PATIENCE)
        seconds = seconds or time.monotonic() - began
        if victim == "command":
            output = subprocess.run([sys.executable, *options], check=False, **pipes).stdout
        assert f"{sweep.n_runs} runs in " in output, f"seed {seed}, kill {number}: {output}"
        runs = SweepResult.load(tmp_path / str(number) / "runs.parquet").runs
        pd.testing.assert_frame_equal(numbers(runs), alone)
    assert n_killed > N_KILLS / 4
