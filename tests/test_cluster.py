"""The Ray executor: tasks, lost workers and machines, and errors of one line."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import CancelledError

import psutil
import pytest
import ray_nodes
import ray_tasks
from children import child

from attnkit.foundation.extras import install_hint
from attnkit.foundation.plugins import PLUGINS
from attnkit.foundation.process import environment_with_package
from attnkit.sweeps.cluster import ClusterUnavailable, RayExecutor

pytestmark = pytest.mark.server

PATIENCE = 120
"""Seconds after which a wait has failed."""

NEW_CLUSTER = """
import os, warnings
warnings.simplefilter("error")
from attnkit.sweeps.cluster import RayExecutor
with RayExecutor(n_workers=2) as executor:
    assert executor.n_workers == 2
    assert executor.submit(divmod, 7, 2).result() == (3, 1)
    crashed = executor.submit(os.abort)
    assert "died" in str(crashed.exception())
    print(os.getpid(), flush=True)
    input()
"""
"""A process with a cluster of its own, which is used, says its number, and waits."""


@pytest.fixture(scope="module")
def start():
    """Start nodes that end with the module: `start(address=None)`."""
    pytest.importorskip("ray", reason="Ray is in the extra `cluster`")
    with ray_nodes.clusters() as start:
        yield start


@pytest.fixture(scope="module")
def head(start):
    """The head of a cluster with one CPU."""
    return start()


@pytest.fixture(scope="module")
def executor(head):
    """An executor of that cluster, whose machines get the module `ray_tasks` as a plugin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PLUGINS, "ray_tasks")
        before = signal.getsignal(signal.SIGTERM)
        with RayExecutor(head.address) as executor:
            assert signal.getsignal(signal.SIGTERM) is before
            yield executor


def arrived(folder, n_tasks):
    """Wait until tasks have left so many files in a folder; return their nodes and workers."""
    deadline = time.monotonic() + PATIENCE
    while len(names := [path.name for path in folder.glob("*.arrived")]) < n_tasks:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [tuple(map(int, name.split(".")[:2])) for name in names]


def one_line(address=None):
    """Return the message of a cluster that cannot be used."""
    with pytest.raises(ClusterUnavailable) as raised:
        RayExecutor(address)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_ray_may_be_missing(monkeypatch):
    """The message says how to install it."""
    monkeypatch.setitem(sys.modules, "ray", None)
    assert one_line() == (
        f"place: got 'ray', allowed 'local', or 'ray' after {install_hint('cluster')}"
    )


def test_addresses_where_nothing_answers(monkeypatch):
    """They are refused at once, from the environment, too."""
    pytest.importorskip("ray", reason="Ray is in the extra `cluster`")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    for given in (None, address):
        assert one_line(given).startswith(f"address: got {address!r}, where no cluster answers (")
    for given in ("ray://127.0.0.1:10001", "127.0.0.1", ":6379"):
        assert one_line(given) == f"address: got {given!r}, allowed HOST:PORT or 'auto'"


def test_a_cluster_of_another_version_of_ray(head, monkeypatch):
    """Both versions are named."""
    utils = pytest.importorskip("ray._private.utils", reason="Ray is in the extra `cluster`")
    monkeypatch.setattr(utils, "compute_version_info", lambda: ("2.0.0", "3.9.1"))
    assert "Ray: 2.0.0" in one_line(head.address)


def listens_on(process):
    """Return the addresses on which a process listens; none if it has ended by now."""
    with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
        return [
            connection.laddr.ip
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
    return []


@pytest.mark.parametrize("end", ["returns", pytest.param("is killed", marks=pytest.mark.long)])
def test_a_new_cluster_is_silent_listens_on_loopback_and_ends_with_its_process(end):
    """Also if that process is killed."""
    pytest.importorskip("ray", reason="Ray is in the extra `cluster`")
    with ray_nodes.short_folder() as folder:
        environment = environment_with_package() | {"RAY_TMPDIR": str(folder)}
        environment.pop("RAY_ADDRESS", None)
        with child(
            sys.executable,
            "-c",
            NEW_CLUSTER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            said = process.stdout.readline()
            owned = psutil.Process(process.pid).children(recursive=True)
            agents = [one for one in owned if "Agent" in one.name()]
            listening = [
                ip for owner in [*owned, psutil.Process(process.pid)] for ip in listens_on(owner)
            ]
            if end == "is killed":
                process.kill()
            output, errors = process.communicate("\n", PATIENCE)
            for agent in agents if end == "is killed" else []:
                with contextlib.suppress(psutil.NoSuchProcess):
                    agent.kill()  # after a kill, Ray's agents go on for a minute
            assert not psutil.wait_procs(owned, timeout=PATIENCE)[1]
        assert end == "is killed" or not list(folder.iterdir())
    assert (said.strip(), output, errors) == (str(process.pid), "", "")
    assert listening
    assert set(listening) <= {"127.0.0.1", "::ffff:127.0.0.1"}


def test_workers_have_this_code_the_plugins_and_one_thread(executor):
    """Code comes from the shipped copies, although the nodes could import it."""
    package, plugin, environment, cores = executor.submit(ray_tasks.surroundings).result(PATIENCE)
    for path in (package, plugin):
        assert "working_dir_files" in path
    assert environment[PLUGINS] == "ray_tasks"
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "1"
    assert cores == 1


def test_results_and_errors_reach_the_futures(executor):
    """An error is the task's own; a missing module is the machine's."""
    assert list(executor.map(divmod, (7, 9), (2, 2), timeout=PATIENCE)) == [(3, 1), (4, 1)]
    error = executor.submit(ray_tasks.failing).exception(PATIENCE)
    assert type(error) is ValueError
    assert str(error) == "steps: got -1"
    with pytest.raises(ClusterUnavailable, match=r"cannot run tasks \(No module named 'no_such"):
        executor.submit(ray_tasks.lacking).result(PATIENCE)


def test_a_task_whose_worker_is_killed_starts_again(executor, tmp_path):
    """SIGKILL, as by the kernel where memory is short."""
    assert executor.submit(ray_tasks.dying, tmp_path).result(PATIENCE) == 2


def test_a_task_that_runs_is_cancelled(executor, tmp_path):
    """Its worker ends, and the next task runs."""
    future = executor.submit(ray_tasks.waiting, tmp_path)
    [(_, worker)] = arrived(tmp_path, 1)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(PATIENCE)
    assert executor.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
    assert not psutil.pid_exists(worker)


def test_a_task_whose_machine_is_lost_finishes_on_another(executor, head, start, tmp_path):
    """A second node joins, runs a task, and loses power."""
    assert executor.n_workers == 1
    node = start(address=head.address)
    futures = [executor.submit(ray_tasks.waiting, tmp_path) for _ in range(2)]
    assert {ray_node for ray_node, _ in arrived(tmp_path, 2)} == {
        head.raylet().pid,
        node.raylet().pid,
    }
    assert executor.n_workers == 2
    ray_nodes.kill_node(node)
    (tmp_path / "go").touch()
    assert {future.result(PATIENCE) for future in futures} == {head.raylet().pid}
    deadline = time.monotonic() + PATIENCE
    while executor.n_workers == 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_process_that_is_connected_shares_the_connection(executor):
    """As a task inside the cluster would; its end leaves the connection."""
    with RayExecutor() as second:
        assert second.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
    with pytest.raises(RuntimeError, match="after shutdown"):
        second.submit(divmod, 7, 2)
    assert executor.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
