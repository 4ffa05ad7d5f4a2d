"""Ray clusters of tests: one that an executor starts, and nodes of `ray start` that join it.

All listen on the loopback interface only and end with the test. Every node has its own processes
and temporary folder, so that a cluster of several machines fits on one, and clusters of several
tests beside each other. Nodes import the modules of this folder.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from itertools import count
from pathlib import Path

import psutil
import pytest
from children import child

from attnkit.foundation.process import environment_with_package

PATIENCE = 300
"""Seconds after which a wait has failed."""

_VARIABLES = {
    "RAY_AUTH_MODE": "disabled",  # Ray reads a token once, when it is imported
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}
"""Of a cluster that tests connect to; it notices a lost node after 1.5 instead of 15 seconds."""

_NEW_CLUSTER = """
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

_NODE = """
import ray._private.services
from ray.scripts.scripts import main
ray._private.services.resolve_ip_for_localhost = lambda host: host
main()
"""
"""The command `ray`, except that 127.0.0.1 stays the address of a node."""

_OPTIONS = (
    "--num-cpus=1 --node-ip-address=127.0.0.1 --num-gpus=0 --object-store-memory=80000000 "
    "--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0 "
    "--include-log-monitor=false --disable-usage-stats --block"
).split()


class Cluster:
    """A cluster that an executor has started in a process of its own: loopback only."""

    def __init__(self, process):
        self.address = process.stdout.readline().strip()
        assert self.address, process.stderr.read()
        own = psutil.Process(process.pid)
        self.owned = own.children(recursive=True)
        self.raylet = raylet_of(process)
        listening = {ip for one in [*self.owned, own] for ip in _listens_on(one)}
        assert listening
        assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}


def _listens_on(process):
    """Return the addresses on which a process listens; none if it has ended by now."""
    with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
        connections = process.net_connections("tcp")
        return [one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN]
    return []


def raylet_of(process):
    """Return the process that starts the workers of a cluster's or node's process."""
    children = psutil.Process(process.pid).children(recursive=True)
    return next(child for child in children if child.name() == "raylet")


def busy_workers(raylet):
    """Return the workers of a raylet that run a task at this moment."""
    return [child for child in raylet.children() if child.cmdline()[:1] == ["ray::_call"]]


@contextlib.contextmanager
def _short_folder():
    """Give a temporary folder whose name is short, as those of sockets in it must be."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def new_cluster(*, killed=False):
    """A new cluster that ends with its process, which returns or is killed, and leaves nothing."""
    pytest.importorskip("ray", reason="Ray is in the extra `cluster`")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", _NEW_CLUSTER]
    with _short_folder() as folder:
        environment = {**environment_with_package(), **_VARIABLES, "RAY_TMPDIR": str(folder)}
        environment.pop("RAY_ADDRESS", None)
        with child(*command, text=True, env=environment, **pipes) as process:
            cluster = Cluster(process)
            yield cluster
            if killed:
                process.kill()
            told = process.communicate("\n", PATIENCE)
            for one in cluster.owned if killed else ():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "Agent" in one.name():  # after a kill, Ray's agents go on for a minute
                        one.kill()
            assert not psutil.wait_procs(cluster.owned, timeout=PATIENCE)[1]
        assert killed or not list(folder.iterdir())
    assert told == ("", "")


def kill_node(process):
    """End all processes of a node by SIGKILL, as if its machine lost power, and wait for them."""
    owned = []
    with contextlib.suppress(psutil.NoSuchProcess):
        owned = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait(PATIENCE)
    process.stdout.close()
    for one in owned:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    assert not psutil.wait_procs(owned, timeout=PATIENCE)[1]


@contextlib.contextmanager
def nodes(address):
    """Give a function that starts a node of a cluster; all are killed at the end."""
    numbers = count()
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **_VARIABLES, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with contextlib.ExitStack() as ends:
        folder = ends.enter_context(_short_folder())

        def start():
            own = [f"--address={address}", f"--temp-dir={folder / str(next(numbers))}"]
            command = [sys.executable, "-c", _NODE, "start", *_OPTIONS, *own]
            process = subprocess.Popen(command, text=True, env=environment, **pipes)
            ends.callback(kill_node, process)
            late = threading.Timer(PATIENCE, process.kill)
            late.start()
            output = []
            for line in process.stdout:
                output.append(line)
                if "--block" in line:
                    break
            late.cancel()
            assert "--block" in "".join(output[-1:]), "".join(output)
            return process

        yield start
