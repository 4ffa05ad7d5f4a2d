"""Hosted copies under load: their processes, memory and open files, and what visitors see."""

import resource
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from dockerfile import ROOT, Dockerfile
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

    def log(self):
        """Return the log of the server, which is a file without a name."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def log_bytes(self):
        """Return the size of the log."""
        return self._log.stat().st_size

    @property
    def _log(self):
        return Path(f"/proc/{self.process.pid}/fd/1")

    def counts(self):
        """Return what could be left over: processes, threads and open files of the server."""
        return len(self.all()), self.process.num_threads(), self.process.num_fds()


FILES = 1024
"""Soft limit of open files with which most systems start a process."""


@contextmanager
def hosted(session_seconds=120, tree=ROOT, **settings):
    """Start the hosted copy on a free port, with an empty store, as the image starts it.

    Args:
        session_seconds: Streamlit keeps a session for so long after its tab is gone.
        tree: The repository's folder; another one is another version of the product.
        settings: Settings of the copy.
    """
    image = Dockerfile((tree / "Dockerfile").read_text(encoding="utf-8"))
    command = [*image.command[2:], f"--server.disconnectedSessionTTL={session_seconds}"]
    with TemporaryDirectory() as folder, limited_files():
        given = {"hosted": "true", "store": folder, **settings}
        environment = {f"ATTNKIT_{name.upper()}": str(value) for name, value in given.items()}
        environment["PYTHONPATH"] = str(tree)
        with dashboard(command=command, environment=environment, folder=tree) as port:
            own = psutil.Process().children()
            # A child of an earlier test that has ended has no command any more.
            commands = {child: child.as_dict(["cmdline"])["cmdline"] or () for child in own}
            server = next(one for one in own if str(port) in " ".join(commands[one]))
            yield Server(port, server)


@contextmanager
def limited_files():
    """Let processes that start inside the `with` statement open as many files as usual."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def finished(visitor):
    """Return whether the page says that training has ended."""
    return any(text.startswith("Finished") for text in visitor.texts())
