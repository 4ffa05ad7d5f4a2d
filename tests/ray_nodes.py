"""Ray clusters for the tests: real `ray start` processes, loopback only, ended with the test.

Every node has its own processes and temporary folder, so that a cluster of several machines fits
on one, and clusters of several tests beside each other. Nodes import the modules of this folder.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psutil

PATIENCE = 120
"""Seconds that a node may take to start or end on a busy machine."""

START = """
import ray._private.services
from ray.scripts.scripts import main
ray._private.services.resolve_ip_for_localhost = lambda host: host
main()
"""
"""The command `ray`, except that 127.0.0.1 stays the address of a node."""

OPTIONS = [
    "--node-ip-address=127.0.0.1",
    "--num-gpus=0",
    "--object-store-memory=80000000",
    "--min-worker-port=0",
    "--max-worker-port=0",
    "--dashboard-agent-listen-port=0",
    "--include-log-monitor=false",
    "--disable-usage-stats",
    "--block",
]


@dataclass
class Node:
    """A node of a cluster; its services end with its process."""

    process: subprocess.Popen
    folder: Path

    @property
    def address(self):
        """The address of the cluster."""
        return (self.folder / "ray_current_cluster").read_text().strip()

    def raylet(self):
        """Return the process that starts the node's workers."""
        children = psutil.Process(self.process.pid).children()
        return next(child for child in children if child.name() == "raylet")

    def workers(self):
        """Return the node's workers that run a task at this moment."""
        children = self.raylet().children()
        return [child for child in children if child.cmdline()[:1] == ["ray::_call"]]


HEAD_OPTIONS = [
    "--head",
    "--port=0",
    "--include-dashboard=false",
    "--no-monitor",
    # A lost node is noticed after one and a half seconds instead of fifteen.
    '--system-config={"health_check_period_ms": 500, "health_check_failure_threshold": 3}',
]


def start_head(folder, n_cpus=1):
    """Start the first node of a cluster, and return when it answers."""
    return _start(folder, n_cpus, *HEAD_OPTIONS)


def start_node(address, folder, n_cpus=1):
    """Start another node of the cluster at an address, and return when it has joined."""
    return _start(folder, n_cpus, f"--address={address}")


def kill_node(node):
    """End all processes of a node by SIGKILL, as if its machine lost power, and wait for them."""
    processes = []
    with contextlib.suppress(psutil.NoSuchProcess):
        processes = psutil.Process(node.process.pid).children(recursive=True)
    node.process.kill()
    node.process.wait(PATIENCE)
    node.process.stdout.close()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
    assert not alive, alive


@contextlib.contextmanager
def short_folder():
    """Give a temporary folder whose name is short, as those of sockets in it must be."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def clusters():
    """Give a function `start(n_cpus=1, address=None)`, and kill all nodes that it started."""
    numbers = count()
    with contextlib.ExitStack() as ends:
        folder = ends.enter_context(short_folder())

        def start(n_cpus=1, address=None):
            place = folder / str(next(numbers))
            node = start_node(address, place, n_cpus) if address else start_head(place, n_cpus)
            ends.callback(kill_node, node)
            return node

        yield start


def _start(folder, n_cpus, *options):
    options = [f"--temp-dir={folder}", f"--num-cpus={n_cpus}", *OPTIONS, *options]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", START, "start", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "RAY_AUTH_MODE": "disabled",
        },
    )
    late = threading.Timer(PATIENCE, process.kill)
    late.start()
    output = []
    for line in process.stdout:
        output.append(line)
        if "--block" in line:
            break
    late.cancel()
    node = Node(process, folder)
    if "--block" not in "".join(output[-1:]):
        kill_node(node)
        raise AssertionError("".join(output))
    return node
