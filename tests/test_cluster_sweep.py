"""Sweeps on a Ray cluster give the bits of local ones, whatever is killed while they run."""

import contextlib
import random
import subprocess
import sys
import time

import pandas as pd
import psutil
import pytest
import ray_nodes

from attnkit.foundation.process import environment_with_package
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.folder import SweepFolder

pytestmark = pytest.mark.server

PATIENCE = 300
"""Seconds that a sweep may take."""

N_KILLS = 20
"""Number of random moments at which each kind of process is killed."""

SWEEP = Sweep(
    base={
        "task": "phonebook",
        "steps": 200,
        "evaluate_every": 100,
        "n_eval": 16,
        "batch_size": 16,
    },
    axes={"d_head": [2, 3, 5], "n_entries": [2, 3, 5]},
    sharing=["QKV", "K=V"],
    n_seeds=2,
    first_seed=7,
    engine="torch",  # every new node would compile the kernel for half a minute
)


class Command:
    """The command `sweep` in a folder of its own, on a cluster or on this machine."""

    def __init__(self, folder, address=None):
        self.folder = folder / "sweep"
        file = folder / "sweep.toml"
        file.write_text(SWEEP.to_toml())
        place = ["--engine", "ray"] if address else []
        self._command = [sys.executable, "-m", "attnkit", "sweep", str(file), "--resume", *place]
        self._environment = environment_with_package() | {"RAY_ADDRESS": address or ""}

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
        runs = SweepResult.read(SweepFolder(str(self.folder)), SWEEP).runs
        assert len(runs) == SWEEP.n_runs
        assert not runs.duplicated(["cell", "seed"]).any()
        assert runs["error"].isna().all(), runs["error"].dropna().iloc[0]
        order = runs.sort_values(["cell", "seed"], ignore_index=True)
        return order.drop(columns=["seconds"])


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
def expected(tmp_path_factory):
    """The numbers of the same sweep on this machine."""
    command = Command(tmp_path_factory.mktemp("local"))
    command.run()
    return command.numbers()


def test_a_cluster_gives_the_bits_of_this_machine(head, expected, tmp_path):
    """The command says the same, too, and nothing of Ray's."""
    command = Command(tmp_path, head.address)
    output = command.run()
    assert "ray" not in output.lower().replace(str(tmp_path).lower(), "")
    pd.testing.assert_frame_equal(command.numbers(), expected)


def kill_worker(head, node, process, chance):
    """Kill a worker that runs a task, if there is one."""
    workers = [worker for each in (head, node) for worker in each.workers()]
    if workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            chance.choice(workers).kill()
    return bool(workers)


def kill_node(head, node, process, chance):
    """Kill a machine, which is not the head."""
    ray_nodes.kill_node(node)
    return True


def kill_driver(head, node, process, chance):
    """Kill the command, if it still runs."""
    running = process.poll() is None
    process.kill()
    return running


@pytest.mark.long
@pytest.mark.parametrize("kill", [kill_worker, kill_node, kill_driver])
def test_a_sweep_survives_kills(kill, head, start, expected, tmp_path):
    """SIGKILL at random moments; the rest is trained by the cluster or by --resume."""
    chance = random.Random(kill.__name__)
    node = start(address=head.address)
    seconds = None
    n_kills = 0
    for number in range(N_KILLS + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        command = Command(folder, head.address)
        began = time.monotonic()
        with command.start() as process:
            if seconds is not None:  # the first run shows how long one takes
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(0, seconds))
                n_kills += kill(head, node, process, chance)
            output, _ = process.communicate(timeout=PATIENCE)
        seconds = seconds or time.monotonic() - began
        if kill is kill_driver:
            command.run()
        else:
            assert process.returncode == 0, output
        pd.testing.assert_frame_equal(command.numbers(), expected)
        if node.process.poll() is not None:
            node = start(address=head.address)
    ray_nodes.kill_node(node)
    assert n_kills > N_KILLS / 4
