"""Hosted copies under load: their processes, memory and open files, and what visitors see."""

from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import psutil
from dockerfile import read
from visitor import dashboard

SMALL = "sharing=QKV,Q%3DK&n_seeds=1&steps=40&n_entries=5&n_names=11&n_values=7&d_head=3"
"""An experiment of a moment, as in a link."""


@dataclass
class Server:
    """A hosted copy: its port and its process."""

    port: int
    process: psutil.Process

    def all(self):
        """Return the server and its training process."""
        return [self.process, *self.process.children(recursive=True)]

    def megabytes(self):
        """Return the memory of all its processes now, shared libraries counted in each."""
        return sum(process.memory_info().rss / 2**20 for process in self.all())

    def seconds(self):
        """Return the computing time of all its processes so far."""
        return sum(sum(process.cpu_times()[:2]) for process in self.all())

    def counts(self):
        """Return what could be left over: processes, threads and open files of the server."""
        return len(self.all()), self.process.num_threads(), self.process.num_fds()


@contextmanager
def hosted(session_seconds=120, **settings):
    """Start the hosted copy on a free port, with an empty store, as the image starts it.

    Args:
        session_seconds: Streamlit keeps a session for so long after its tab is gone.
        settings: Settings of the copy.
    """
    command = [*read().command[2:], f"--server.disconnectedSessionTTL={session_seconds}"]
    with TemporaryDirectory() as folder:
        given = {"hosted": "true", "store": folder, **settings}
        environment = {f"ATTNKIT_{name.upper()}": str(value) for name, value in given.items()}
        with dashboard(command=command, environment=environment) as port:
            own = psutil.Process().children()
            server = next(child for child in own if str(port) in " ".join(child.cmdline()))
            yield Server(port, server)


def finished(visitor):
    """Return whether the page says that training has ended."""
    return any(text.startswith("Finished") for text in visitor.texts())
