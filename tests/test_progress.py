"""Progress of a training: in a pipe, on a terminal, in a notebook, and when it is interrupted."""

import io
import multiprocessing
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

import plotly.graph_objects as go
import plotly.io as pio
import pytest
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import attnkit as ak
from attnkit.examples import load_example
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.progress import LiveFigure, current_place
from attnkit.training.training import Training

STOPPED = r"Stopped .* ([\d,]+) of ([\d,]+); the (result|film) .*"


def small(steps=40):
    """Return an experiment of 4 runs that trains in a moment."""
    sizes = {"d_head": 3, "batch_size": 16, "n_eval": 16}
    return ak.Experiment(task="phonebook", sharing=["QKV", "Q=K"], n_seeds=2, steps=steps, **sizes)


def terminal():
    """Return a standard error that says it is a terminal."""
    made = io.StringIO()
    made.isatty = lambda: True
    return made


@pytest.fixture
def interrupted(monkeypatch, interruptible):
    """Let Ctrl-C come after 40 steps of every training, or when `.when(training)` is true."""
    found = SimpleNamespace(when=lambda training: training.step >= 40)
    plain = Training.advance

    def advance(training, n_steps):
        plain(training, n_steps)
        if found.when(training):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Training, "advance", advance)
    return found


def test_an_interrupt_is_one_line_and_keeps_what_was_trained(interrupted, capsys):
    """Whoever asks for silence reads the status; the last step leaves nothing to stop."""
    for progress in (None, True, lambda training: None):
        result = ak.train(small(400), "cpu", progress)
        last = capsys.readouterr().err.splitlines()[-1]
        assert result.status == result.snapshot.status == "stopped"
        assert result.snapshot.step == result.snapshot.eval_steps[-1] == 40
        assert len(result.parameters) == 4
        assert re.fullmatch(STOPPED, last).groups() == ("40", "400", "result")
    assert 0 < ak.record(small(400), device="cpu").steps[-1] <= 40
    assert re.search(STOPPED, capsys.readouterr().err).groups() == ("40", "400", "film")
    assert ak.train(small(400), "cpu", progress=False).snapshot.status == "stopped"
    assert ak.train(small(), "cpu").snapshot.status == "finished"
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_and_the_line_of_an_interrupt(interrupted, monkeypatch):
    """The bar has the steps, and is gone when the line comes; no notebook is imported."""
    for name in ("IPython", "marimo"):
        monkeypatch.setitem(sys.modules, name, None)  # its import fails
    monkeypatch.setattr(sys, "stderr", shown := terminal())
    interrupted.when = lambda training: re.search(r"[1-9]\d*/40000 ", shown.getvalue())
    assert 0 < ak.train(small(40_000), "cpu").snapshot.step < 40_000
    line = shown.getvalue().rpartition("\r")[2]
    assert re.fullmatch(STOPPED, line.strip())[2] == "40,000"


def test_forced_progress_is_a_line_per_tenth_in_a_pipe(capsys, monkeypatch):
    """A program without a console trains, too; what cannot be progress is refused."""
    ak.train(small(), "cpu")
    assert capsys.readouterr() == ("", "")
    ak.train(small(200), "cpu", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"step {step} of 200" for step in range(20, 201, 20)]
    monkeypatch.setattr(sys, "stderr", None)
    assert ak.train(small(20), "cpu", progress=True).snapshot.status == "finished"
    for progress in ("yes", 1, []):
        with pytest.raises(InvalidExperiment, match=r"progress: got .*, allowed True"):
            ak.train(small(), "cpu", progress)


def test_the_place_is_found_from_the_program(monkeypatch):
    """A notebook is IPython with a kernel; threads and processes would write over each other."""
    assert current_place() == "pipe"
    ipython = ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    for shell, errors, place in (
        (None, sys.stderr, "pipe"),  # a library has imported it in a plain program
        (SimpleNamespace(kernel=object()), terminal(), "jupyter"),
        (SimpleNamespace(kernel=None), terminal(), "terminal"),  # IPython in a terminal
    ):
        ipython.get_ipython = lambda shell=shell: shell
        monkeypatch.setattr(sys, "stderr", errors)
        assert current_place() == place
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(current_place).result() == "worker"
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    assert current_place() == "worker"


def test_marimo_replaces_the_output_of_the_cell(monkeypatch):
    """Its own functions do, with card and figure: first a bar, then the last snapshot."""
    shown, marimo = [], ModuleType("marimo")
    marimo.running_in_notebook, marimo.Html, marimo.vstack = lambda: True, str, list
    marimo.output = SimpleNamespace(replace=shown.append)
    monkeypatch.setitem(sys.modules, "marimo", marimo)
    ak.train(small(), "cpu")
    (first, figure), *_, (last, last_figure) = shown
    assert type(figure) is type(last_figure) is go.Figure
    assert "0 of 40 steps" in first
    assert ['class="bar"' in html for html in (first, last)] == [True, False]
    assert "Trained 4 models for 40 steps in " in last
    card, figure = load_example("directed")._display_()
    assert ("<table" in card, type(figure)) == (True, go.Figure)


def test_what_goes_wrong_in_a_live_figure_is_shown_in_it(monkeypatch):
    """An interrupt before the first step, an error, and a figure that cannot be drawn."""
    shown = []
    methods = {"show": lambda display, html, figure=None: shown.append(html)}
    pictures = type("Pictures", (LiveFigure,), methods)
    early = pictures()
    early.begin = Mock(side_effect=KeyboardInterrupt)
    result = ak.train(small(), "cpu", early)
    assert (result.snapshot.status, result.snapshot.step) == ("stopped", 0)
    with monkeypatch.context() as patched:
        patched.setattr(pictures, "__call__", Mock(side_effect=MemoryError))
        with pytest.raises(MemoryError):
            ak.train(small(), "cpu", pictures())
    assert "step 20" in shown[-1]
    error = Mock(side_effect=ValueError("no <label>"))  # as a task of one's own may raise
    monkeypatch.setattr("attnkit.training.snapshot.Snapshot._repr_html_", error)
    assert ak.train(small(), "cpu", pictures()).snapshot.status == "finished"
    assert "no &lt;label&gt;" in shown[-1]


class Displays(DisplayPublisher):
    """Displays of a notebook's cell: the cards that each has shown, or a word for figures."""

    def publish(self, data, *, transient=None, update=False, **_):
        """Keep what is shown; only a display that is there can be updated."""
        displays = self.shell.displays
        name = (transient or {}).get("display_id", len(displays))
        assert update == (name in displays)
        displays.setdefault(name, []).append(data.get("text/html", "figure"))


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Run a cell of a notebook, whose kernel is this process, and return what it shows."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setattr(pio.renderers, "default", "plotly_mimetype")
    for name in ("displayhook", "excepthook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    config = Config(HistoryManager={"enabled": False})
    shell = InteractiveShell.instance(config=config, display_pub_class=Displays)
    shell.add_traits()
    shell.kernel = object()
    shell.push({"ak": ak, "small": small})

    def run_cell(code):
        shell.displays = {}
        shell.run_cell(code).raise_error()
        return list(shell.displays.values())

    yield run_cell
    InteractiveShell.clear_instance()


def test_a_notebook_shows_live_figures(notebook, request, capsys):
    """Two displays are updated; in a loop each training leaves a line; a stop keeps all."""
    cards, figures = notebook("result = ak.train(small(200))")
    assert "0 of 200 steps" in cards[0]
    assert "of 200 steps, about" in cards[1]
    assert "Trained 4 models for 200 steps" in cards[-1]
    assert ("<table" in cards[-1], figures) == (True, ["figure"] * len(cards))
    assert capsys.readouterr() == ("", "")
    cards, figures, *value = notebook("ak.train(small(40))")  # whose value shows the same
    assert ["<table" in html for html in (cards[-2], cards[-1], value[0][0])] == [1, 0, 1]
    assert (figures[-1], value[1]) == ("", ["figure"])
    first, first_figure, second, figure = notebook("for n in (20, 40):\n    ak.train(small(n))")
    assert ["<table" in html for html in (first[-1], second[-1])] == [False, True]
    assert (first_figure[-1], figure[-1]) == ("", "figure")
    assert "for 20 steps" in first[-1]
    capsys.readouterr()
    request.getfixturevalue("interrupted")
    cards, figures = notebook("result = ak.train(small(400))")
    assert re.search(STOPPED, cards[-1]).groups() == ("40", "400", "result")
    assert figures[-1] == "figure"
    assert notebook("print(result.snapshot.status, result.snapshot.step)") == []
    assert capsys.readouterr() == ("stopped 40\n", "")
