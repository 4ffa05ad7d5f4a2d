"""Pages whose training process computes nothing, for tests of what pages do by themselves."""

import queue
from contextlib import contextmanager
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from attnkit.experiment import from_text
from attnkit.service.protocol import Answer, Request, Start, Steer
from attnkit.service.server import server_settings
from attnkit.ui.server.service import classes, result_store, training_service

DASHBOARD = str(Path(__file__).parents[1] / "dashboard.py")

PATIENCE = 120.0
"""Seconds after which a page has failed."""


class IdleProcess:
    """Stands in for the training process: takes every command, answers questions with a no."""

    id = 0

    def __init__(self):
        self.commands = []
        self._replies = queue.SimpleQueue()

    @property
    def begun(self):
        """The experiments that were to be trained."""
        return [from_text(c.experiment) for c in self.commands if isinstance(c, Start)]

    @property
    def most_active(self):
        """Return the largest number of experiments that were to be trained at the same time."""
        active, most = set(), 0
        for command in self.commands:
            if isinstance(command, Start):
                active.add(command.job)
            elif isinstance(command, Steer) and command.verb == "stop":
                active.discard(command.job)
            most = max(most, len(active))
        return most

    def send(self, command):
        """Take a command; a question is answered with a no."""
        self.commands.append(command)
        if isinstance(command, Request):
            self._replies.put(Answer((command.request,), error="idle"))

    def read(self):
        """Wait for a reply."""
        reply = self._replies.get()
        if reply is None:
            raise EOFError("the process has ended")
        return reply

    def hang_up(self):
        """Let whoever reads go."""
        self._replies.put(None)

    def do_nothing(self, seconds=0.0):
        """There is nothing to kill, to wait for or to close."""

    kill = end = close = do_nothing


@contextmanager
def idle_service(folder, **environment):
    """The server's service and store, new, in a folder; all processes that it starts, idle ones.

    Args:
        environment: settings of the copy, such as `hosted="true"`.
    """
    processes = []

    def start():
        processes.append(IdleProcess())
        return processes[-1]

    def clear():
        training_service.clear()
        classes.clear()
        result_store.clear()
        server_settings.cache_clear()

    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"store": str(folder), **environment}.items():
                patch.setenv(f"ATTNKIT_{name.upper()}", value)
            patch.setattr("attnkit.service.process.TrainingProcess", start)
            # The start sets options of the server.
            patch.setattr("attnkit.ui.server.service.start", lambda: None)
            clear()
            yield processes
    finally:  # also after a test that failed: the next one must not find these settings
        clear()


def visit(**params):
    """Open the dashboard with a link; the page must not fail."""
    tab = AppTest.from_file(DASHBOARD, default_timeout=PATIENCE)
    tab.query_params.update(params)
    return show(tab)


def open_page(name, **params):
    """Open a page with a link, as the first one of a tab."""
    tab = AppTest.from_file(DASHBOARD, default_timeout=PATIENCE)
    tab.query_params.update(params)
    return show(tab.switch_page(f"pages/{name}.py"))


def show(tab):
    """Run the page; it must not fail."""
    tab.run()
    assert not tab.exception, [(one.message, one.stack_trace) for one in tab.exception]
    return tab


def link_of(tab):
    """Return the address as one value per name."""
    params = tab.query_params.items()
    return {name: value if isinstance(value, str) else value[0] for name, value in params}
