"""Progress of a training: in a pipe, on a terminal, in a notebook, and when it is interrupted."""

import io
import multiprocessing
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
from types import ModuleType, SimpleNamespace

import pytest
from children import child
from jupyter_client.manager import start_new_kernel

import attnkit as ak
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training import progress as progress_module
from attnkit.training.progress import LEAST_SECONDS, SHARE, LiveFigure, current_place
from attnkit.training.training import Training

SMALL = "task='phonebook', sharing=['QKV', 'Q=K'], n_seeds=2, d_head=3, batch_size=16, n_eval=16"
STOPPED = (
    r"Stopped at step ([\d,]+) of ([\d,]+); the (result|film) holds what was trained until then\."
)
SECONDS = 60
"""Time that any process here may take."""

TRAINS = f"""
import sys, signal, attnkit as ak
signal.signal(signal.SIGINT, signal.default_int_handler)
result = ak.train(ak.Experiment({SMALL}, steps=40_000))
print(result.snapshot.status, result.snapshot.step, len(result.parameters))
print(*sorted({{"IPython", "marimo"}} & set(sys.modules)))
"""


def small(steps=40):
    """Return an experiment of 4 runs that trains in a moment."""
    return eval(f"Experiment({SMALL}, steps=steps)", {"Experiment": ak.Experiment, "steps": steps})


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    def isatty(self):
        """Return True."""
        return True


class Pictures(LiveFigure):
    """Live figure that keeps all its pictures."""

    def __init__(self):
        super().__init__()
        self.shown = []

    def show(self, html):
        """Keep the picture."""
        self.shown.append(html)


@pytest.mark.server
def test_a_terminal_gets_a_bar_and_the_line_of_an_interrupt():
    """The bar has the steps, and nothing that only notebooks need is imported.

    A process of its own takes some seconds to import torch.
    """
    reading, writing = pty.openpty()
    termios.tcsetwinsize(writing, (24, 80))
    options = {"stdout": subprocess.PIPE, "stderr": writing, "text": True}
    with child(sys.executable, "-c", TRAINS, **options) as process:
        os.close(writing)
        shown = ""
        while not re.search(r"[1-9]\d*/40000", shown):
            shown += os.read(reading, 4096).decode()
        process.send_signal(signal.SIGINT)
        while not re.search(STOPPED, shown):
            shown += os.read(reading, 4096).decode()
        output, _ = process.communicate(timeout=SECONDS)
    os.close(reading)
    step = re.search(STOPPED, shown)[1].replace(",", "")
    assert output == f"stopped {step} 4\n\n"
    assert 0 < int(step) < 40_000


def test_an_interrupt_is_one_line_and_keeps_what_was_trained(monkeypatch, capsys):
    """Whoever asks for silence reads the status; the last step leaves nothing to stop."""
    plain = Training.advance

    def advance_and_interrupt(training, n_steps):
        plain(training, n_steps)
        if training.step >= 40:
            raise KeyboardInterrupt

    assert ak.train(small(), "cpu").status == "finished"
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(Training, "advance", advance_and_interrupt)
    for progress in (None, True, lambda training: None):
        result = ak.train(small(400), "cpu", progress)
        last = capsys.readouterr().err.splitlines()[-1]
        assert result.status == result.snapshot.status == "stopped"
        assert re.fullmatch(STOPPED, last).groups() == ("40", "400", "result")
    assert 0 < ak.record(small(400), device="cpu").steps[-1] <= 40
    assert re.search(STOPPED, capsys.readouterr().err).groups() == ("40", "400", "film")
    assert ak.train(small(400), "cpu", progress=False).snapshot.status == "stopped"
    assert ak.train(small(), "cpu").snapshot.status == "finished"
    assert capsys.readouterr() == ("", "")


def test_forced_progress_is_a_line_per_tenth_in_a_pipe(capsys, monkeypatch):
    """A program without a console trains, too; what cannot be progress is refused."""
    ak.train(small(200), "cpu", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"step {step} of 200" for step in range(20, 201, 20)]
    monkeypatch.setattr(sys, "stderr", None)
    assert ak.train(small(20), "cpu", progress=True).snapshot.status == "finished"
    for progress in ("yes", 1, []):
        with pytest.raises(InvalidExperiment, match=r"progress: got .*, allowed True, False, None"):
            ak.train(small(), "cpu", progress)


def test_the_place_is_found_from_the_program(monkeypatch):
    """A notebook is IPython with a kernel; threads and processes would write over each other."""
    assert current_place() == "pipe"
    ipython = ModuleType("IPython")
    for shell, errors, place in (
        (SimpleNamespace(kernel=object()), Terminal(), "jupyter"),
        (SimpleNamespace(kernel=None), Terminal(), "terminal"),  # IPython in a terminal
        (None, sys.stderr, "pipe"),  # a library has imported it in a plain program
    ):
        ipython.get_ipython = lambda shell=shell: shell
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setattr(sys, "stderr", errors)
        assert current_place() == place
    monkeypatch.setattr(sys, "stderr", Terminal())
    found = []
    thread = threading.Thread(target=lambda: found.append(current_place()))
    thread.start()
    thread.join()
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    assert [*found, current_place()] == ["worker", "worker"]


def test_marimo_replaces_the_output_of_the_cell(monkeypatch):
    """Its own function does, with HTML of its own type: first a bar, then the last snapshot."""
    shown = []
    marimo = ModuleType("marimo")
    marimo.running_in_notebook = lambda: True
    marimo.Html = lambda text: ("html", text)
    marimo.output = SimpleNamespace(replace=shown.append)
    monkeypatch.setitem(sys.modules, "marimo", marimo)
    assert current_place() == "marimo"
    ak.train(small(), "cpu")
    assert {kind for kind, _ in shown} == {"html"}
    *running, last = (html for _, html in shown)
    assert "0 of 40 steps" in running[0]
    assert all('class="bar"' in html for html in running)
    assert "Trained 4 models for 40 steps in " in last
    assert 'class="bar"' not in last
    assert "<svg" in last


def test_what_goes_wrong_in_a_live_figure_is_shown_in_it(monkeypatch):
    """An interrupt before the first step, an error, and a figure that cannot be drawn."""

    def fail(error):
        raise error

    early, failing, undrawn = Pictures(), Pictures(), Pictures()
    early.begin = lambda training: fail(KeyboardInterrupt)
    result = ak.train(small(), "cpu", early)
    assert (result.snapshot.status, result.snapshot.step) == ("stopped", 0)
    assert "Stopped at step 0 of 40" in early.shown[-1]

    monkeypatch.setattr(Pictures, "__call__", lambda *_: fail(MemoryError))
    with pytest.raises(MemoryError):
        ak.train(small(), "cpu", failing)
    assert "An error ended the training after step 20." in failing.shown[-1]
    monkeypatch.undo()

    error = ValueError("no <label>")  # as a task of one's own may raise
    monkeypatch.setattr("attnkit.training.snapshot.Snapshot._repr_html_", lambda _: fail(error))
    assert ak.train(small(), "cpu", undrawn).snapshot.status == "finished"
    assert "The figure cannot be drawn: no &lt;label&gt;" in undrawn.shown[-1]


def test_slow_pictures_take_a_bounded_share(monkeypatch):
    """Pictures that take a second each take 4% of a training of 1,000 seconds."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress_module.time, "perf_counter", lambda: clock.now)

    class Slow(Pictures):
        def show(self, html):
            super().show(html)
            clock.now += 1.0

    snapshot = SimpleNamespace(_repr_html_=lambda: "")
    training = SimpleNamespace(
        experiment=small(10_000), finished=False, seconds=1.0, snapshot=lambda: snapshot
    )
    figure = Slow()
    for training.step in range(1, 10_000):
        clock.now += 0.1
        figure(training)
    share = len(figure.shown) / clock.now
    assert SHARE / 2 < share <= SHARE + 1 / clock.now
    assert LEAST_SECONDS < 1 / SHARE


@pytest.mark.server
def test_a_notebook_shows_live_figures():
    """One display is updated, and its last picture stays below a line; nothing else is written.

    Only the line stays above a result that is the value of the cell. Of a loop of trainings, each
    leaves a line, and the last one its figure. A thread is silent. The stop button gives what was
    trained, and the next cell goes on with it. A kernel takes some seconds to start.
    """
    environment = {n: value for n, value in os.environ.items() if not n.startswith("COVERAGE")}
    manager, client = start_new_kernel(env=environment)
    try:

        def run(code, on_update=lambda: None):
            return run_cell(client, code, on_update)

        run(f"import attnkit as ak\nsmall = lambda steps: ak.Experiment({SMALL}, steps=steps)")
        (pictures,), value, texts = run("result = ak.train(small(200))")
        assert len(pictures) >= 3
        assert "0 of 200 steps" in pictures[0]
        assert "of 200 steps, about" in pictures[1]
        assert "Trained 4 models for 200 steps" in pictures[-1]
        assert "<svg" in pictures[-1]
        assert (value, texts) == (None, "")

        (pictures,), value, _ = run("ak.train(small(40))")
        assert ["<svg" in html for html in (pictures[-2], pictures[-1], value)] == [1, 0, 1]
        assert "Trained 4 models for 40 steps" in pictures[-1]

        (first, second), *_ = run("for n in (20, 40):\n    ak.train(small(n))")
        assert ["<svg" in html for html in (first[-1], second[-1])] == [False, True]
        assert "for 20 steps" in first[-1]

        thread = "from threading import Thread\nthread = Thread(target=ak.train, args=[small(20)])"
        assert run(f"{thread}\nthread.start(); thread.join()") == ([], None, "")

        (pictures,), _, texts = run("result = ak.train(small(40_000))", manager.interrupt_kernel)
        step, steps, _ = re.search(STOPPED, pictures[-1]).groups()
        assert (steps, texts) == ("40,000", "")
        assert "<svg" in pictures[-1]
        *_, printed = run("print(result.snapshot.status, result.snapshot.step)")
        assert printed == f"stopped {step.replace(',', '')}\n"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run_cell(client, code, on_update):
    """Run a cell; return the pictures of each display, its value as HTML and what it printed."""
    number = client.execute(code)
    displays, value, texts = {}, None, ""
    while True:
        message = client.get_iopub_msg(timeout=SECONDS)
        content, kind = message["content"], message["msg_type"]
        if message["parent_header"].get("msg_id") != number:
            continue
        if kind in ("display_data", "update_display_data"):
            shown = displays.setdefault(content["transient"]["display_id"], [])
            shown.append(content["data"]["text/html"])
            if len(shown) == 2:
                on_update()
        elif kind == "execute_result":
            value = content["data"]["text/html"]
        elif kind == "stream":
            texts += content["text"]
        elif kind == "error":
            pytest.fail("\n".join(content["traceback"]))
        elif kind == "status" and content["execution_state"] == "idle":
            return list(displays.values()), value, texts
