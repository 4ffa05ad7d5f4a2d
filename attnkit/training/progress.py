"""Progress of a training as people see it: a bar, lines, or a live figure in a notebook.

Nothing in this module changes a number of a training, and nothing that only one kind of display
needs, such as IPython or tqdm, is imported for another.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from attnkit.experiment import Experiment
from attnkit.foundation.display import in_jupyter, in_marimo, jupyter_shell
from attnkit.foundation.settings import InvalidExperiment, Problem
from attnkit.foundation.words import counted
from attnkit.training.film import Film
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from attnkit.training.training import Training

LEAST_SECONDS = 0.3
"""Shortest time between two pictures of a live figure, in seconds."""

SHARE = 0.04
"""Largest share of the time that a live figure takes from training, after its first picture."""

Place = Literal["jupyter", "marimo", "terminal", "pipe", "worker"]
"""Kind of the output that a training has; a "worker" is a thread or process of another program."""

Progress = bool | Callable[["Training"], None] | None
"""Progress that a caller may ask for; see `display_for`."""


class Display:
    """Display of a training's progress; this one only says if the training is interrupted."""

    def begin(self, training: Training) -> None:
        """Prepare the display, before the first step."""

    def __call__(self, training: Training) -> None:
        """Show how far the training is."""

    def close(self) -> None:
        """Remove what must not stay visible, also after an error."""

    def fail(self, training: Training) -> None:
        """Show that an error has ended the training."""

    def end(self, training: Training, message: str) -> None:
        """Show how the training ended.

        Args:
            training: The training, which takes no further steps.
            message: Sentence about an interruption; empty after the last step.
        """
        if message:
            _write(message)

    @contextmanager
    def follow(self, training: Training, product: str) -> Iterator[None]:
        """Show the progress of the training within a block, which a `KeyboardInterrupt` ends early.

        Args:
            training: The training that the block advances; the block calls `begin` first.
            product: Name of what the training gives, for the sentence about an interruption.
        """
        message = ""
        try:
            try:
                yield
            finally:
                self.close()
        except KeyboardInterrupt:
            if not training.finished:
                message = (
                    f"Stopped at step {training.step:,} of {training.experiment.training.steps:,}; "
                    f"the {product} holds what was trained until then."
                )
        except Exception:
            self.fail(training)
            raise
        self.end(training, message)


class Silence(Display):
    """Display that shows nothing and says nothing."""

    def end(self, training: Training, message: str) -> None:
        """Say nothing."""


class Calls(Display):
    """Calls of a function of the training."""

    def __init__(self, function: Callable[[Training], None]) -> None:
        self._function = function

    def __call__(self, training: Training) -> None:
        """Call the function."""
        self._function(training)


class Bar:
    """Progress of counted work on standard error: a bar on a terminal, else a line for every tenth.

    Args:
        unit: Name of what is counted.
    """

    def __init__(self, unit: str) -> None:
        self._unit, self._n_tenths = unit, 0
        self._bar: Any = None

    def show(self, n_done: int, total: int, line: str) -> None:
        """Move the bar, which the first call draws; or write the line if one is due."""
        if _has_terminal():
            from tqdm import tqdm

            options = {"unit": self._unit, "file": sys.stderr, "leave": False}
            self._bar = self._bar or tqdm(total=total, **options)
            self._bar.update(n_done - self._bar.n)
        elif 10 * n_done // total > self._n_tenths:
            self._n_tenths = 10 * n_done // total
            _write(line)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


class TextProgress(Display):
    """Progress of the steps as a `Bar`."""

    def __init__(self) -> None:
        self._bar = Bar("step")

    def begin(self, training: Training) -> None:
        """Draw the bar, if there is a terminal."""
        self._bar.show(0, training.experiment.training.steps, "")

    def __call__(self, training: Training) -> None:
        """Move the bar, or write the next line."""
        steps = training.experiment.training.steps
        self._bar.show(training.step, steps, f"step {training.step} of {steps}")

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class LiveFigure(Display, ABC):
    """Figure in the output of a notebook's cell that shows the training while it runs.

    It is what a `Snapshot` shows of itself, a card and its first figure, below a line with the
    step. At the end the last snapshot stays.
    """

    def __init__(self) -> None:
        self._next_picture = 0.0

    @abstractmethod
    def show(self, html: str, figure: Figure | None = None) -> None:
        """Replace what the display shows.

        Args:
            html: The line, and the card below it.
            figure: Figure below the card; None for none.
        """

    def _picture(self, line: str, snapshot: Snapshot) -> None:
        """Show a snapshot below a line; one that cannot be drawn does not end a training."""
        try:
            self.show(line + snapshot._repr_html_(), snapshot.plot())
        except Exception as error:
            self.show(line + _line(f"The figure cannot be drawn: {escape(str(error))}"))

    def begin(self, training: Training) -> None:
        """Show the untrained models, which also imports what pictures need."""
        line = f"0 of {training.experiment.training.steps:,} steps"
        self._picture(_line(line), training.snapshot())

    def __call__(self, training: Training) -> None:
        """Show the training, unless the last picture was just now or pictures take long."""
        started = time.perf_counter()
        if training.finished or started < self._next_picture:
            return
        steps = training.experiment.training.steps
        left = training.seconds / training.step * (steps - training.step)
        line = f"{training.step:,} of {steps:,} steps, about {left:.0f} s left"
        self._picture(_line(line), training.snapshot())
        ended = time.perf_counter()
        self._next_picture = ended + max(LEAST_SECONDS, (ended - started) / SHARE)

    def end(self, training: Training, message: str) -> None:
        """Show the last snapshot, below a line on what was trained or where it was stopped."""
        snapshot = training.snapshot("stopped" if message else "finished")
        self._picture(self.last_line(training, message), snapshot)

    def fail(self, training: Training) -> None:
        """Replace the figure, whose time that is left is wrong now."""
        self.show(_line(f"An error ended the training after step {training.step:,}."))

    @staticmethod
    def last_line(training: Training, message: str) -> str:
        """Return the line that stays above the last snapshot."""
        models = counted(training.experiment.n_runs, "model")
        done = f"Trained {models} for {training.step:,} steps in {training.seconds:.1f} s."
        return _line(message or done)


class MarimoFigure(LiveFigure):
    """Live figure in marimo, which replaces it with the cell's value unless that is None."""

    def show(self, html: str, figure: Figure | None = None) -> None:
        """Replace what the cell shows."""
        sys.modules["marimo"].output.replace(in_marimo(html, figure))


class JupyterFigure(LiveFigure):
    """Live figure in Jupyter and in all that speaks its protocol, such as VS Code and Colab.

    Only the line stays if the cell's value shows the same experiment, or if another training
    follows in the same cell.
    """

    _in_this_cell: JupyterFigure | None = None
    """Figure in the output of the cell that runs now."""

    def __init__(self, shell: Any) -> None:
        super().__init__()
        self._shell = shell
        self._display_ids: dict[str, str] = {}
        self._line = ""
        self._experiment: Experiment | None = None

    def show(self, html: str, figure: Figure | None = None) -> None:
        """Replace the card and the figure, whose display is created with the first figure."""
        plain = "Progress of a training, for notebooks that show HTML"
        self._publish("card", {"text/html": html, "text/plain": plain})
        shown = {} if figure is None else in_jupyter(figure)
        if shown or "figure" in self._display_ids:
            self._publish("figure", shown or {"text/html": "", "text/plain": ""})

    def _publish(self, name: str, shown: dict[str, Any]) -> None:
        update = name in self._display_ids
        transient = {"display_id": self._display_ids.setdefault(name, uuid.uuid4().hex)}
        self._shell.display_pub.publish(shown, transient=transient, update=update)

    def begin(self, training: Training) -> None:
        """Show the untrained models; of an earlier training leave only its last line."""
        earlier = JupyterFigure._in_this_cell
        if earlier is not None:
            earlier.leave_cell()
            earlier.show(earlier._line)
        super().begin(training)

    def end(self, training: Training, message: str) -> None:
        """Show the last snapshot until the cell has ended and its value is known."""
        super().end(training, message)
        self._line, self._experiment = self.last_line(training, message), training.experiment
        JupyterFigure._in_this_cell = self
        self._shell.events.register("post_run_cell", self._check_value)

    def leave_cell(self) -> None:
        """Forget the cell."""
        JupyterFigure._in_this_cell = None
        self._shell.events.unregister("post_run_cell", self._check_value)

    def _check_value(self, execution: Any) -> None:
        self.leave_cell()
        value = execution.result
        if isinstance(value, Film | Result | Snapshot) and value.experiment == self._experiment:
            self.show(self._line)


def display_for(progress: Progress) -> Display:
    """Return the display of a training's progress.

    Args:
        progress: None: a live figure in a notebook, a bar on a terminal, otherwise nothing but a
            line about an interruption. True: the same, and a line per tenth of the steps where
            None shows nothing. False: nothing. A function: it is called with the training.

    Raises:
        InvalidExperiment: If `progress` is something else.
    """
    if isinstance(progress, Display):
        return progress
    if callable(progress):
        return Calls(progress)
    if progress is False:
        return Silence()
    if progress is not None and progress is not True:
        allowed = "True, False, None or a function of the training"
        raise InvalidExperiment([Problem("progress", progress, allowed)])
    place = current_place()
    if place == "marimo":
        return MarimoFigure()
    if place == "jupyter":
        return JupyterFigure(jupyter_shell())
    if progress or place == "terminal":
        return TextProgress()
    return Silence() if place == "worker" else Display()


def current_place() -> Place:
    """Return what kind of output a training has that begins now in this thread."""
    marimo = sys.modules.get("marimo")
    if marimo is not None and marimo.running_in_notebook():
        return "marimo"  # its cells may run in a process or a thread beside the main one
    in_main_thread = threading.current_thread() is threading.main_thread()
    if multiprocessing.parent_process() is not None or not in_main_thread:
        return "worker"
    if jupyter_shell() is not None:
        return "jupyter"
    return "terminal" if _has_terminal() else "pipe"


def _has_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _write(line: str) -> None:
    """Write a line to standard error, which a program without a console does not have."""
    if sys.stderr is not None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _line(text: str) -> str:
    """Return a line of text as HTML."""
    return f'<div style="font: 14px system-ui, sans-serif; padding: 4px">{text}</div>'
