"""Hosted copies under load: their processes, memory, open files and log."""

import resource
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from proxy import read_dockerfile
from visitor import dashboard

SMALL = "v=1&sharing=QKV,Q%3DK&n_seeds=1&steps=40&n_entries=5&n_names=11&n_values=7&d_head=3"
"""The link of an experiment of a moment."""

FILES = 1024
"""Soft limit of open files with which most systems start a process."""


@dataclass
class Server:
    """A hosted copy: its port and its process."""

    port: int
    process: psutil.Process

    def all(self):
        """Return the server and its training process."""
        return [self.process, *self.process.children(recursive=True)]

    def megabytes(self):
        """Return the memory of the server and of its training process now."""
        own, *others = [one.memory_info().rss / 2**20 for one in self.all()]
        return own, sum(others)

    def seconds(self):
        """Return the processor seconds of the server and of its training process so far."""
        own, *others = [sum(one.cpu_times()[:2]) for one in self.all()]
        return own, sum(others)

    def log(self):
        """Return the log of the server, which is a file without a name."""
        return Path(f"/proc/{self.process.pid}/fd/1").read_text("utf-8", "replace")


@contextmanager
def hosted(session_seconds=120, **settings):
    """Start a hosted copy with these settings and an empty store, as the image starts it.

    Streamlit keeps a session for so many seconds after its tab is gone.
    """
    command = [*read_dockerfile().command[2:], f"--server.disconnectedSessionTTL={session_seconds}"]
    with TemporaryDirectory() as folder, limited_files():
        given = {"hosted": "true", "store": folder, **settings}
        environment = {f"ATTNKIT_{name.upper()}": str(value) for name, value in given.items()}
        with dashboard(command=command, environment=environment) as port:
            own = psutil.Process().children()
            # A child of an earlier test that has ended has no command any more.
            commands = {child: child.as_dict(["cmdline"])["cmdline"] or () for child in own}
            yield Server(port, next(one for one in own if str(port) in " ".join(commands[one])))


@contextmanager
def limited_files():
    """Let processes that start inside the `with` statement open as many files as usual."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
