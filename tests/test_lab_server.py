"""The dashboard's server as the command and `ak.lab` start it, and what it sends while training."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import psutil
import pytest
from children import child
from visiting import SMALL
from visitor import Visitor

import attnkit as ak
from attnkit.experiment import Experiment
from attnkit.foundation.process import environment_with_package
from attnkit.ui.server import launch

pytestmark = pytest.mark.server

PATIENCE = 120.0
"""Seconds after which anything here has failed."""


@pytest.mark.long(seconds=15)
def test_live_data_alone_come_by_themselves_until_the_end(port):
    """A tick sends some kilobytes without code or widgets; a picker afterwards the board only."""
    steps = 20_000  # a fast machine takes some seconds
    link = urlencode({**SMALL, "steps": str(steps), "n_entries": "4"})
    with Visitor(port, link) as visitor:
        visitor.wait_for("all thumbnails", lambda: not visitor.ticking)
        visitor.wait_until_idle()  # the page is drawn anew for the last ones
        visitor.press("train")
        visitor.wait_for("a curve", lambda: visitor.ticking and visitor.evaluated_to() > 0)
        early, ticks = visitor.evaluated_to(), set()
        before = [visitor.bytes_received, len(visitor.changes)]

        def has_ticked():
            if not visitor.run.fragments:  # the whole page is drawn
                before[:] = visitor.bytes_received, len(visitor.changes)
                ticks.clear()
            ticks.add(visitor.run.id)  # beside other programs, several may show the same step
            return len(visitor.changes) >= before[1] + 6

        visitor.wait_for("ticks", has_ticked)
        assert visitor.bytes_received - before[0] < 25_000 * len(ticks)
        assert early < visitor.evaluated_to() < steps
        visitor.wait_for("the end", lambda: visitor.says("Finished"))
        visitor.wait_until_idle()
        assert not visitor.ticking
        _, accuracy = visitor.curves()["QKV"]
        assert visitor.evaluated_to() == steps
        assert accuracy[-1] > accuracy[0] + 0.2
        n_before = len(visitor.changes)
        visitor.set("seed_0_1", "seed 0")
        assert visitor.run.fragments
        assert set(visitor.changes[n_before:]) <= {"board"}
        assert visitor.exceptions == []


@pytest.fixture
def _own_server(monkeypatch, tmp_path, interruptible):
    """Let servers store results in a folder of their own, and end them with Ctrl-C."""
    monkeypatch.setenv("ATTNKIT_STORE", str(tmp_path))
    for name in ("STREAMLIT_SERVER_ADDRESS", "STREAMLIT_SERVER_PORT"):
        monkeypatch.delenv(name, raising=False)


own_server = pytest.mark.usefixtures("_own_server")


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


@own_server
def test_the_command_serves_until_ctrl_c_and_leaves_no_process():
    """One line names the address, with the base path that a variable of Streamlit names."""
    port = launch.choose_port(launch.HOST, None)
    environment = {n: value for n, value in os.environ.items() if not n.startswith("COVERAGE")}
    environment["STREAMLIT_SERVER_BASE_URL_PATH"] = "attn"
    with child(
        *(sys.executable, "-m", "attnkit", "--port", str(port), "--no-browser"),
        env=environment,  # coverage handles no signals there
        cwd=Path(launch.__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        address = f"http://127.0.0.1:{port}/attn"
        assert command.stdout.readline().startswith(f"attnkit: {address} (")
        assert answers(f"{address}/_stcore/health")
        children = psutil.Process(command.pid).children(recursive=True)
        command.send_signal(signal.SIGINT)
        output, errors = command.communicate(timeout=PATIENCE)
    assert (command.returncode, output) == (130, "")
    assert errors.splitlines()[-1] == "attnkit: interrupted"
    assert "Traceback" not in errors
    assert children
    assert all_ended(children)


@own_server
def test_the_lab_in_python_shows_a_result_and_stops(monkeypatch):
    """It ends because its standard input does, as it does when this process is killed."""
    experiment = Experiment(task="mutual", steps=20, n_seeds=1, sharing=["QKV"])
    of_other_tests = set(psutil.Process().children(recursive=True))
    lab = ak.lab(ak.train(experiment, "cpu"), open_browser=False)
    try:
        server, _, link = lab.address.partition("/?")
        assert "task=mutual" in link
        assert lab.is_running
        with Visitor(int(server.rpartition(":")[2]), link=link, patience=PATIENCE) as visitor:
            visitor.wait_for("the stored result", lambda: visitor.says("Trained earlier"))
        children = set(psutil.Process().children(recursive=True)) - of_other_tests
        with monkeypatch.context() as patch:
            patch.setattr(subprocess.Popen, "terminate", None)
            lab.stop()
    finally:
        lab.stop()  # a second time changes nothing
    assert children
    assert all_ended(list(children))
    assert not answers(lab.address)
    assert "stopped" in lab._repr_html_()


@own_server
@pytest.mark.long(seconds=10)
def test_a_lab_ends_with_its_python_process():
    """A Python process that is killed ends nothing itself, and the dashboard ends all the same."""
    code = """
        import time, attnkit as ak
        lab = ak.lab(open_browser=False)
        print(lab.address, flush=True)
        time.sleep(600)
    """
    with child(
        *(sys.executable, "-c", textwrap.dedent(code)),
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


@own_server
def test_a_dashboard_that_does_not_start_says_why(monkeypatch):
    """The error has the last line of its messages, which names the setting."""
    monkeypatch.setenv("ATTNKIT_MAX_STEPS", "many")
    with pytest.raises(RuntimeError, match=r"ATTNKIT_MAX_STEPS.*'many'"):
        ak.lab(open_browser=False)
