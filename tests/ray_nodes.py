"""Nodes that join a Ray cluster: real `ray start` processes, loopback only, ended with the test.

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


VARIABLES = {
    "RAY_AUTH_MODE": "disabled",  # Ray reads a token once, when it is imported
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}
"""Of a cluster that tests connect to; it notices a lost node after 1.5 instead of 15 seconds."""


@dataclass
class Node:
    """A node of a cluster; its services end with its process."""

    process: subprocess.Popen

    def raylet(self):
        """Return the process that starts the node's workers."""
        children = psutil.Process(self.process.pid).children()
        return next(child for child in children if child.name() == "raylet")


def workers(raylet):
    """Return the workers of a node that run a task at this moment."""
    return [child for child in raylet.children() if child.cmdline()[:1] == ["ray::_call"]]


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
def nodes(address):
    """Give a function that starts a node of a cluster; all are killed at the end."""
    numbers = count()
    with contextlib.ExitStack() as ends:
        folder = ends.enter_context(short_folder())

        def start():
            node = _start(f"--address={address}", f"--temp-dir={folder / str(next(numbers))}")
            ends.callback(kill_node, node)
            return node

        yield start


def _start(*options):
    options = ["--num-cpus=1", *OPTIONS, *options]
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
            **VARIABLES,
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
    node = Node(process)
    if "--block" not in "".join(output[-1:]):
        kill_node(node)
        raise AssertionError("".join(output))
    return node
