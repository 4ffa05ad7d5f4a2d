"""The dashboard's server as the command and `ak.lab` start it: real processes on free ports."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from children import child

import attnkit as ak
from attnkit.bench.visitor import Visitor
from attnkit.experiment import Experiment
from attnkit.foundation.process import environment_with_package
from attnkit.ui import launch

pytestmark = pytest.mark.server

PATIENCE = 120.0
"""Seconds after which anything here has failed."""


@pytest.fixture(autouse=True)
def own_server(monkeypatch, tmp_path):
    """Let servers store results in a folder of their own, and end them with Ctrl-C."""
    monkeypatch.setenv("ATTNKIT_STORE", str(tmp_path))
    for name in ("STREAMLIT_SERVER_ADDRESS", "STREAMLIT_SERVER_PORT"):
        monkeypatch.delenv(name, raising=False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def free_port():
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind((launch.HOST, 0))
        return probe.getsockname()[1]


def answers(address):
    """Return whether a server answers at an address."""
    try:
        with urlopen(address, timeout=10) as response:
            return response.status == 200
    except OSError:
        return False


def all_ended(processes):
    """Return whether all processes have ended."""
    return not psutil.wait_procs(processes, timeout=PATIENCE)[1]


def start(*arguments, **changes):
    """Start the command with some arguments; coverage handles no signals there."""
    environment = {n: value for n, value in os.environ.items() if not n.startswith("COVERAGE")}
    return child(
        sys.executable,
        "-m",
        "attnkit",
        *arguments,
        env={**environment, **changes},
        cwd=Path(launch.__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_serves_until_ctrl_c_and_leaves_no_process():
    """The address is one line, and the exit code is that of all interrupted commands."""
    port = free_port()
    with start("--port", str(port), "--no-browser") as command:
        assert command.stdout.readline() == f"attnkit: http://127.0.0.1:{port} (Ctrl-C ends it)\n"
        assert answers(f"http://127.0.0.1:{port}")
        children = psutil.Process(command.pid).children(recursive=True)
        command.send_signal(signal.SIGINT)
        output, errors = command.communicate(timeout=PATIENCE)
    assert command.returncode == 130
    assert output == ""
    assert errors.splitlines()[-1] == "attnkit: interrupted"
    assert "Traceback" not in errors
    assert "INFO" not in errors
    assert children
    assert all_ended(children)


def test_the_lab_in_python_shows_a_result_and_stops():
    """Its address has the experiment's link, the store has the result, and a notebook a link."""
    experiment = Experiment(task="mutual", steps=20, n_seeds=1, sharing=["QKV"])
    result = ak.train(experiment, "cpu")
    of_other_tests = set(psutil.Process().children(recursive=True))
    lab = ak.lab(result, open_browser=False)
    try:
        server, _, link = lab.address.partition("/?")
        assert "task=mutual" in link
        assert lab.is_running
        assert lab.address.replace("&", "&amp;") in lab._repr_html_()
        with Visitor(int(server.rpartition(":")[2]), link=link, patience=PATIENCE) as visitor:
            visitor.wait_for(
                "the stored result",
                lambda: any(text.startswith("Trained earlier") for text in visitor.texts()),
            )
        children = set(psutil.Process().children(recursive=True)) - of_other_tests
    finally:
        lab.stop()
    assert children
    assert all_ended(list(children))
    assert not answers(lab.address)
    assert "stopped" in lab._repr_html_()
    lab.stop()  # a second time changes nothing


def test_a_lab_ends_with_its_python_process():
    """A Python process that is killed ends nothing itself, and the dashboard ends all the same.

    It takes more than 5 s, because two processes start one after the other.
    """
    code = """
        import time, attnkit as ak
        lab = ak.lab(open_browser=False)
        print(lab.address, flush=True)
        time.sleep(600)
    """
    with child(
        sys.executable,
        "-c",
        textwrap.dedent(code),
        env=environment_with_package(),
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        address = parent.stdout.readline().strip()
        assert answers(address)
        children = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    assert all_ended(children)
    assert not answers(address)


def test_a_dashboard_that_does_not_start_says_why(monkeypatch):
    """The error has the last line of its messages."""
    monkeypatch.setenv("ATTNKIT_MAX_STEPS", "many")
    with pytest.raises(RuntimeError, match="did not start: attnkit: error: ATTNKIT_MAX_STEPS"):
        ak.lab(open_browser=False)
