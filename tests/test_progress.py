"""Progress of a training: in a pipe, on a terminal, in a notebook, and when it is interrupted."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import ModuleType, SimpleNamespace

import pytest
from children import child
from jupyter_client.manager import start_new_kernel

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training import progress as progress_module
from attnkit.training.camera import record
from attnkit.training.progress import LEAST_SECONDS, SHARE, LiveFigure, current_place, display_for
from attnkit.training.training import Training, train

SMALL = "task='phonebook', sharing=['QKV', 'Q=K'], n_seeds=2, d_head=3, batch_size=16, n_eval=16"
STOPPED = (
    r"Stopped at step ([\d,]+) of ([\d,]+); the (result|film) holds what was trained until then\."
)
SECONDS = 60
"""Time that any process here may take."""

TRAINS = f"""
import sys, signal, attnkit as ak
signal.signal(signal.SIGINT, signal.default_int_handler)
result = ak.train(ak.Experiment({SMALL}, steps=int(sys.argv[1])))
print(result.snapshot.status, result.snapshot.step, len(result.parameters))
print(*sorted({{"IPython", "marimo"}} & set(sys.modules)))
"""


def small(**given):
    """Return an experiment of 4 runs that trains in a moment."""
    return eval(f"Experiment({SMALL}, **given)", {"Experiment": Experiment, "given": given})


def script(steps, stderr):
    """Run a program that trains for some steps; its standard error is a file descriptor."""
    program = [sys.executable, "-c", TRAINS, str(steps)]
    return child(*program, stdout=subprocess.PIPE, stderr=stderr, text=True)


def read_until(descriptor, pattern, text=""):
    """Read from a terminal until the text matches a pattern, and return the text."""
    while not re.search(pattern, text):
        text += os.read(descriptor, 4096).decode()
    return text


@pytest.mark.server
def test_a_pipe_gets_nothing():
    """A program whose errors go to a pipe trains in silence and imports nothing for displays."""
    with script(20, subprocess.PIPE) as process:
        output, errors = process.communicate(timeout=SECONDS)
    assert errors == ""
    assert output == "finished 20 4\n\n"


@pytest.mark.server
def test_a_terminal_gets_a_bar_and_the_line_of_an_interrupt():
    """The bar has the steps; after Ctrl-C one line says what the result holds."""
    reading, writing = pty.openpty()
    termios.tcsetwinsize(writing, (24, 80))
    with script(40_000, writing) as process:
        os.close(writing)
        shown = read_until(reading, r"[1-9]\d*/40000")
        process.send_signal(signal.SIGINT)
        shown = read_until(reading, STOPPED, shown)
        output, _ = process.communicate(timeout=SECONDS)
    os.close(reading)
    step = re.search(STOPPED, shown)[1].replace(",", "")
    assert output == f"stopped {step} 4\n\n"
    assert 0 < int(step) < 40_000


@pytest.mark.parametrize("progress", [None, True, lambda training: None])
def test_an_interrupt_is_always_said(progress, monkeypatch, capsys):
    """Ctrl-C is one line on standard error, in a pipe too, and the result is stopped."""
    interrupt_at(monkeypatch, 40)
    result = train(small(steps=400), "cpu", progress)
    last = capsys.readouterr().err.splitlines()[-1]
    assert result.status == result.snapshot.status == "stopped"
    assert re.fullmatch(STOPPED, last).groups() == ("40", "400", "result")


def test_nothing_is_said_where_nothing_is_to_be_said(monkeypatch, capsys):
    """A caller that asks for silence looks at the status; a last step leaves nothing to stop."""
    interrupt_at(monkeypatch, 40)
    assert train(small(steps=400), "cpu", progress=False).snapshot.status == "stopped"
    assert train(small(steps=40), "cpu").snapshot.status == "finished"
    assert capsys.readouterr() == ("", "")


def test_a_film_says_where_it_was_stopped(monkeypatch, capsys):
    """A film has the frames until the interrupt."""
    interrupt_at(monkeypatch, 40)
    film = record(small(steps=400), device="cpu")
    assert 0 < film.steps[-1] <= 40
    assert re.search(STOPPED, capsys.readouterr().err).groups() == ("40", "400", "film")


def test_forced_progress_is_lines_in_a_pipe(capsys):
    """A log gets a line per tenth of the steps."""
    train(small(steps=200), "cpu", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"step {step} of 200" for step in range(20, 201, 20)]


def test_a_program_without_a_console_trains(monkeypatch):
    """Python has no standard error there."""
    monkeypatch.setattr(sys, "stderr", None)
    assert train(small(steps=20), "cpu", progress=True).snapshot.status == "finished"


@pytest.mark.parametrize("progress", ["yes", 1, []])
def test_other_progress_is_refused(progress):
    """The message names the field, the value and what is allowed."""
    with pytest.raises(InvalidExperiment, match=r"progress: got .*, allowed True, False, None or"):
        train(small(), "cpu", progress)


def interrupt_at(monkeypatch, step):
    """Press Ctrl-C when a training has reached a step."""
    plain = Training.advance

    def advance_and_stop(training, n_steps):
        plain(training, n_steps)
        if training.step >= step:
            raise KeyboardInterrupt

    monkeypatch.setattr(Training, "advance", advance_and_stop)


# Places


@pytest.mark.parametrize(
    ("shell", "errors", "place"),
    [
        (SimpleNamespace(kernel=object()), "terminal", "jupyter"),
        (SimpleNamespace(kernel=None), "terminal", "terminal"),  # IPython in a terminal
        (None, "pipe", "pipe"),  # a library has imported it in a plain program
    ],
)
def test_a_notebook_is_ipython_with_a_kernel(monkeypatch, shell, errors, place):
    """What pytest captures is read by neither a terminal nor a notebook."""
    assert current_place() == "pipe"
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    if errors == "terminal":
        monkeypatch.setattr(sys, "stderr", Terminal())
    assert current_place() == place


def test_threads_and_processes_are_workers(monkeypatch):
    """They are silent, because many of them would write over each other."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    found = []
    thread = threading.Thread(target=lambda: found.append(current_place()))
    thread.start()
    thread.join()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found.append(pool.submit(current_place).result(timeout=SECONDS))
    assert found == ["worker", "worker"]


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    def isatty(self):
        """Return True."""
        return True


# Live figures


class Pictures(LiveFigure):
    """Live figure that keeps all its pictures."""

    def __init__(self):
        super().__init__()
        self.shown = []

    def show(self, html):
        """Keep the picture."""
        self.shown.append(html)


def test_a_live_figure_begins_with_a_line_and_ends_with_the_last_snapshot():
    """The last line says what was trained; a running one has a bar."""
    pictures = Pictures()
    train(small(steps=40), "cpu", pictures)
    assert "0 of 40 steps" in pictures.shown[0]
    assert all('class="bar"' in html for html in pictures.shown[:-1])
    assert "Trained 4 models for 40 steps in " in pictures.shown[-1]
    assert 'class="bar"' not in pictures.shown[-1]
    assert "<svg" in pictures.shown[-1]


def test_an_interrupt_before_the_first_step_gives_an_untrained_result(capsys):
    """The first picture imports what pictures need, and people may press stop meanwhile."""

    class Interrupted(Pictures):
        def begin(self, training):
            raise KeyboardInterrupt

    figure = Interrupted()
    result = train(small(steps=40), "cpu", figure)
    assert (result.snapshot.status, result.snapshot.step) == ("stopped", 0)
    assert "Stopped at step 0 of 40" in figure.shown[-1]


def test_a_figure_that_cannot_be_drawn_loses_no_training(monkeypatch):
    """A task of one's own may raise an error when its tokens are labelled."""

    def fail(snapshot):
        raise ValueError("no <label>")

    monkeypatch.setattr("attnkit.training.snapshot.Snapshot._repr_html_", fail)
    figure = Pictures()
    assert train(small(steps=40), "cpu", figure).snapshot.status == "finished"
    assert "The figure cannot be drawn: no &lt;label&gt;" in figure.shown[-1]


def test_an_error_replaces_the_figure(monkeypatch):
    """Otherwise the seconds that are left would stay below the cell for ever."""

    class Failing(Pictures):
        def __call__(self, training):
            raise MemoryError

    figure = Failing()
    with pytest.raises(MemoryError):
        train(small(steps=40), "cpu", figure)
    assert "An error ended the training after step 20." in figure.shown[-1]


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
        experiment=small(steps=10_000), finished=False, seconds=1.0, snapshot=lambda: snapshot
    )
    figure = Slow()
    for training.step in range(1, 10_000):
        clock.now += 0.1
        figure(training)
    share = len(figure.shown) / clock.now
    assert SHARE / 2 < share <= SHARE + 1 / clock.now
    assert LEAST_SECONDS < 1 / SHARE


def test_marimo_replaces_the_output_of_the_cell(monkeypatch):
    """Its own function does, with HTML of its own type."""
    shown = []
    marimo = ModuleType("marimo")
    marimo.running_in_notebook = lambda: True
    marimo.Html = lambda text: ("html", text)
    marimo.output = SimpleNamespace(replace=shown.append)
    monkeypatch.setitem(sys.modules, "marimo", marimo)
    assert current_place() == "marimo"
    train(small(steps=20), "cpu")
    assert all(kind == "html" for kind, _ in shown)
    assert "Trained 4 models" in shown[-1][1]


# A notebook of Jupyter


@pytest.fixture(scope="module")
def kernel():
    """A kernel as notebooks have it: `run(code)` returns its messages."""
    environment = {n: value for n, value in os.environ.items() if not n.startswith("COVERAGE")}
    manager, client = start_new_kernel(env=environment)
    kernel = Kernel(manager, client)
    kernel.run(f"import attnkit as ak\nsmall = dict({SMALL})")
    yield kernel
    client.stop_channels()
    manager.shutdown_kernel(now=True)


class Kernel:
    """A kernel and what it shows."""

    def __init__(self, manager, client):
        self.manager, self.client = manager, client

    def run(self, code, on_update=lambda: None):
        """Run a cell and return its displays by id, its value, its error and its streams."""
        number = self.client.execute(code)
        displays, value, texts = {}, None, ""
        while True:
            message = self.client.get_iopub_msg(timeout=SECONDS)
            content, kind = message["content"], message["msg_type"]
            if message["parent_header"].get("msg_id") != number:
                continue
            if kind in ("display_data", "update_display_data"):
                shown = displays.setdefault(content["transient"]["display_id"], [])
                shown.append(content["data"]["text/html"])
                if len(shown) == 2:
                    on_update()
            elif kind == "execute_result":
                value = content["data"]
            elif kind == "stream":
                texts += content["text"]
            elif kind == "error":
                pytest.fail("\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                return SimpleNamespace(displays=list(displays.values()), value=value, texts=texts)


@pytest.mark.server
def test_a_notebook_shows_live_figures(kernel):
    """One display is updated, and its last picture stays below a line; nothing else is written.

    Only the line stays above a result that is the value of the cell. Of a loop of trainings, each
    leaves a line, and the last one its figure. A thread is silent, and so is who asks for silence.
    """
    cell = kernel.run("result = ak.train(ak.Experiment(**small, steps=200))")
    (pictures,) = cell.displays
    assert len(pictures) >= 3
    assert "0 of 200 steps" in pictures[0]
    assert "of 200 steps, about" in pictures[1]
    assert "Trained 4 models for 200 steps" in pictures[-1]
    assert "<svg" in pictures[-1]
    assert (cell.value, cell.texts) == (None, "")

    cell = kernel.run("ak.train(ak.Experiment(**small, steps=40))")
    (pictures,) = cell.displays
    assert "<svg" in pictures[-2]
    assert "<svg" not in pictures[-1]
    assert "Trained 4 models for 40 steps" in pictures[-1]
    assert "<svg" in cell.value["text/html"]
    assert kernel.run("result").displays == []

    cell = kernel.run("for n in (20, 40):\n    ak.train(ak.Experiment(**small, steps=n))")
    first, second = cell.displays
    assert "<svg" not in first[-1]
    assert "for 20 steps" in first[-1]
    assert "<svg" in second[-1]

    cell = kernel.run("result = ak.train(ak.Experiment(**small, steps=40), progress=False)")
    assert (cell.displays, cell.value, cell.texts) == ([], None, "")
    code = "from threading import Thread\nthread = Thread(target=ak.train, args=[ak.Experiment("
    cell = kernel.run(f"{code}**small, steps=20)])\nthread.start(); thread.join()")
    assert (cell.displays, cell.texts) == ([], "")


@pytest.mark.server
def test_the_stop_button_gives_what_was_trained(kernel):
    """The next cell runs on with a result that is stopped, and the figure says so."""
    cell = kernel.run(
        "result = ak.train(ak.Experiment(**small, steps=40_000))", kernel.manager.interrupt_kernel
    )
    (pictures,) = cell.displays
    step, steps, _ = re.search(STOPPED, pictures[-1]).groups()
    assert (steps, cell.texts) == ("40,000", "")
    assert "<svg" in pictures[-1]
    printed = kernel.run("print(result.snapshot.status, result.snapshot.step)").texts
    assert printed == f"stopped {step.replace(',', '')}\n"


def test_display_for_takes_a_display():
    """A caller may bring its own, as the command does."""
    pictures = Pictures()
    assert display_for(pictures) is pictures
