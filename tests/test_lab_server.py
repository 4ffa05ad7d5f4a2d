"""The dashboard's server as the command and `ak.lab` start it, and what it sends while training."""

import os
import signal
import subprocess
import sys
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
        assert visitor.evaluated_to() == steps
        n_before = len(visitor.changes)
        visitor.set("seed_0_1", "seed 0")
        assert visitor.run.fragments
        assert set(visitor.changes[n_before:]) <= {"board"}
        assert visitor.exceptions == []


def test_a_late_message_brings_no_reference_to_what_the_browser_has_dropped(port):
    """On a loaded server, the list of kept messages that comes with it may be older than they are.

    The browser would show nothing any more until it connects anew.
    """

    def draw(page, listed=()):
        tab.wait_until_idle()
        kept, tab._cache = tab._cache, {**dict(listed), **tab._cache}
        tab._page_hash, tab._page_name = "", page
        tab._send_rerun("")
        tab._cache = kept
        tab._awaited.add("")
        tab.wait_for("the page", lambda: not tab._awaited)

    with Visitor(port) as tab:
        early = tab._cache.copy()
        for _ in range(4):
            draw("guide")
        assert early.keys() - tab._cache.keys()
        draw("", early)
        assert tab.has("board")
        sizes = []
        for _ in range(3):  # fragments that draw themselves age what is kept, too
            before = tab.bytes_received
            draw("")
            sizes.append(tab.bytes_received - before)
        assert 0 < min(sizes) < 100_000  # what is kept does not come again


@pytest.fixture
def own_server(monkeypatch, tmp_path, interruptible):
    """Let servers store results in a folder of their own; yield what checks that one has ended."""
    monkeypatch.setenv("ATTNKIT_STORE", str(tmp_path))
    for name in ("STREAMLIT_SERVER_ADDRESS", "STREAMLIT_SERVER_PORT"):
        monkeypatch.delenv(name, raising=False)
    of_other_tests = set(psutil.Process().children(recursive=True))

    def children_of(pid):
        found = set(psutil.Process(pid).children(recursive=True)) - of_other_tests
        assert found
        return found

    return children_of


def has_ended(processes, address):
    """Return whether all processes have ended, and no server answers at an address."""
    is_gone = not psutil.wait_procs(list(processes), timeout=PATIENCE)[1]
    with pytest.raises(OSError, match="refused"):
        urlopen(address, timeout=10)
    return is_gone


def test_the_command_serves_until_ctrl_c_and_leaves_no_process(own_server):
    """One line names the address, with the base path that a variable of Streamlit names."""
    port = launch.choose_port(launch.HOST, None)
    # Coverage handles no signals there.
    environment = {n: value for n, value in os.environ.items() if not n.startswith("COVERAGE")}
    environment["STREAMLIT_SERVER_BASE_URL_PATH"] = "attn"
    with child(
        *(sys.executable, "-m", "attnkit", "--port", str(port), "--no-browser"),
        env=environment,
        cwd=Path(launch.__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        address = f"http://127.0.0.1:{port}/attn"
        assert command.stdout.readline().startswith(f"attnkit: {address} (")
        urlopen(f"{address}/_stcore/health", timeout=10).close()
        children = own_server(command.pid)
        command.send_signal(signal.SIGINT)
        output, errors = command.communicate(timeout=PATIENCE)
    assert (command.returncode, output) == (130, "")
    assert errors.splitlines()[-1] == "attnkit: interrupted"
    assert "Traceback" not in errors
    assert has_ended(children, address)


def test_the_lab_in_python_shows_a_result_and_stops(own_server, monkeypatch):
    """It ends because its standard input does, as it does when this process is killed."""
    experiment = Experiment(task="mutual", steps=20, n_seeds=1, sharing=["QKV"])
    lab = ak.lab(ak.train(experiment, "cpu"), open_browser=False)
    try:
        server, _, link = lab.address.partition("/?")
        assert "task=mutual" in link
        assert lab.is_running
        with Visitor(int(server.rpartition(":")[2]), link=link, patience=PATIENCE) as visitor:
            visitor.wait_for("the stored result", lambda: visitor.says("Trained earlier"))
        children = own_server(os.getpid())
        with monkeypatch.context() as patch:
            patch.setattr(subprocess.Popen, "terminate", None)
            lab.stop()
    finally:
        lab.stop()  # a second time changes nothing
    assert has_ended(children, lab.address)
    assert "stopped" in lab._repr_html_()


def test_a_dashboard_that_does_not_start_says_why(own_server, monkeypatch):
    """The error has the last line of its messages, which names the setting."""
    monkeypatch.setenv("ATTNKIT_MAX_STEPS", "many")
    with pytest.raises(RuntimeError, match=r"ATTNKIT_MAX_STEPS.*'many'"):
        ak.lab(open_browser=False)
