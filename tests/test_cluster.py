"""The Ray executor: tasks, sweeps, lost workers and machines, and errors of one line.

By day all run on one cluster, which the executor starts itself. Machines that join and are lost
need nodes of `ray start`; they are killed at night, at moments drawn from the seed.
"""

import contextlib
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
import ray_nodes
import ray_tasks
from children import child

from attnkit.foundation.extras import install_hint
from attnkit.foundation.plugins import PLUGINS
from attnkit.foundation.process import environment_with_package
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.cluster import ClusterUnavailable, RayExecutor
from attnkit.sweeps.folder import SweepFolder

pytestmark = pytest.mark.server

PATIENCE = 300
"""Seconds after which a wait has failed."""

N_KILLS = 20
"""Number of moments at which each kind of process is killed at night."""

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


class Cluster:
    """A cluster that an executor has started in a process of its own: loopback only, silent."""

    def __init__(self, process):
        self.address = process.stdout.readline().strip()
        assert self.address, process.stderr.read()
        self._process = psutil.Process(process.pid)
        self.owned = self._process.children(recursive=True)
        self.raylet = next(one for one in self.owned if one.name() == "raylet")
        listening = {ip for one in [*self.owned, self._process] for ip in listens_on(one)}
        assert listening
        assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}


def listens_on(process):
    """Return the addresses on which a process listens; none if it has ended by now."""
    with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
        connections = process.net_connections("tcp")
        return [one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN]
    return []


@contextlib.contextmanager
def new_cluster(*, killed=False):
    """A new cluster that ends with its process, which returns or is killed, and leaves nothing."""
    pytest.importorskip("ray", reason="Ray is in the extra `cluster`")
    with ray_nodes.short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.delenv("RAY_ADDRESS", raising=False)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environment = environment_with_package() | ray_nodes.VARIABLES
        command = [sys.executable, "-c", NEW_CLUSTER]
        with child(*command, text=True, env=environment, **pipes) as process:
            cluster = Cluster(process)
            yield cluster
            agents = [one for one in cluster.owned if killed and one.is_running()]
            agents = [one for one in agents if "Agent" in one.name()]
            if killed:
                process.kill()
            told = process.communicate("\n", PATIENCE)
            for agent in agents:
                with contextlib.suppress(psutil.NoSuchProcess):
                    agent.kill()  # after a kill, Ray's agents go on for a minute
            assert not psutil.wait_procs(cluster.owned, timeout=PATIENCE)[1]
        assert killed or not list(folder.iterdir())
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
        with RayExecutor(cluster.address) as executor:
            assert signal.getsignal(signal.SIGTERM) is before
            yield executor


@pytest.fixture
def start(cluster):
    """Start nodes of the cluster that end with the test."""
    with ray_nodes.nodes(cluster.address) as start:
        yield start


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


def test_a_process_that_is_connected_shares_the_connection(executor):
    """As a task inside the cluster would; its end leaves the connection."""
    with RayExecutor() as second:
        assert second.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
    with pytest.raises(RuntimeError, match="after shutdown"):
        second.submit(divmod, 7, 2)
    assert executor.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)


@pytest.mark.long
def test_a_task_whose_machine_is_lost_finishes_on_another(executor, cluster, start, tmp_path):
    """A second node joins, runs a task, and loses power."""
    assert executor.n_workers == 1
    node = start()
    futures = [executor.submit(ray_tasks.waiting, tmp_path) for _ in range(2)]
    raylets = {cluster.raylet.pid, node.raylet().pid}
    assert {raylet for raylet, _ in arrived(tmp_path, 2)} == raylets
    assert executor.n_workers == 2
    ray_nodes.kill_node(node)
    (tmp_path / "go").touch()
    assert {future.result(PATIENCE) for future in futures} == {cluster.raylet.pid}
    deadline = time.monotonic() + PATIENCE
    while executor.n_workers == 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)


# sweeps


def sweep_of(steps, **axes):
    """A sweep; a new node would compile the kernel for half a minute, so torch trains."""
    sizes = {"steps": steps, "evaluate_every": steps // 2, "n_eval": 16, "batch_size": 16}
    variants = {"sharing": ["QKV", "K=V"], "n_seeds": 2, "first_seed": 7}
    return Sweep(base={"task": "phonebook", **sizes}, axes=axes, engine="torch", **variants)


class Command:
    """The command `sweep` in a folder of its own, on a cluster or on this machine."""

    def __init__(self, sweep, folder, address=None):
        self.folder, self._sweep = folder / "sweep", sweep
        file = folder / "sweep.toml"
        file.write_text(sweep.to_toml())
        place = ["--engine", "ray"] if address else []
        # The name of the folder is relative; workers have working folders of their own.
        self._command = [sys.executable, "-m", "attnkit", "sweep", file.name, "--resume", *place]
        self._environment = environment_with_package() | {"RAY_ADDRESS": address or "", PLUGINS: ""}

    def start(self):
        """Start the command in the background."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(
            self._command, env=self._environment, cwd=self.folder.parent, **pipes
        )

    def run(self):
        """Run the command to its end; return its output."""
        with self.start() as process:
            output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, output
        return output

    def numbers(self):
        """Return all numbers of the finished sweep, which holds every planned run once."""
        runs = SweepResult.read(SweepFolder(str(self.folder)), self._sweep).runs
        assert len(runs) == self._sweep.n_runs
        assert not runs.duplicated(["cell", "seed"]).any()
        assert runs["error"].isna().all(), runs["error"].dropna().iloc[0]
        order = runs.sort_values(["cell", "seed"], ignore_index=True)
        return order.drop(columns=["seconds"])


def test_a_cluster_gives_the_bits_of_this_machine(cluster, tmp_path):
    """The command says the same, too, and nothing of Ray's. Two commands start and train."""
    numbers = []
    for name, address in ("local", None), ("cluster", cluster.address):
        (tmp_path / name).mkdir()
        command = Command(sweep_of(20, d_head=[2, 3]), tmp_path / name, address)
        output = command.run()
        assert "ray" not in output.lower().replace(str(tmp_path).lower(), "")
        numbers.append(command.numbers())
    pd.testing.assert_frame_equal(*numbers)


def kill_worker(cluster, node, process, chance):
    """Kill a worker that runs a task, if there is one."""
    workers = [w for raylet in (cluster.raylet, node.raylet()) for w in ray_nodes.workers(raylet)]
    if workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            chance.choice(workers).kill()
    return bool(workers)


def kill_node(cluster, node, process, chance):
    """Kill a machine, which is not the head."""
    ray_nodes.kill_node(node)
    return True


def kill_driver(cluster, node, process, chance):
    """Kill the command, if it still runs."""
    running = process.poll() is None
    process.kill()
    return running


@pytest.mark.long
@pytest.mark.parametrize("kill", [kill_worker, kill_node, kill_driver])
def test_a_sweep_survives_kills(kill, cluster, start, tmp_path, seed):
    """SIGKILL at drawn moments; the rest is trained by the cluster or by --resume."""
    chance = random.Random(f"{kill.__name__} {seed}")
    sweep = sweep_of(200, d_head=[2, 3, 5], n_entries=[2, 3, 5])
    local = Command(sweep, tmp_path)
    local.run()
    node, seconds, n_kills = start(), None, 0
    for number in range(N_KILLS + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        command = Command(sweep, folder, cluster.address)
        began = time.monotonic()
        with command.start() as process:
            if seconds is not None:  # the first run shows how long one takes
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(0, seconds))
                n_kills += kill(cluster, node, process, chance)
            output, _ = process.communicate(timeout=PATIENCE)
        seconds = seconds or time.monotonic() - began
        if kill is kill_driver:
            command.run()
        else:
            assert process.returncode == 0, f"seed {seed}: {output}"
        pd.testing.assert_frame_equal(command.numbers(), local.numbers())
        if node.process.poll() is not None:
            node = start()
    assert n_kills > N_KILLS / 4
