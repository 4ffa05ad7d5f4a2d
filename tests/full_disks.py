"""Disks that a test can fill and clear: a limit of SQLite's pages, and a small file system."""

import contextlib
import os
import subprocess

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool


class PageLimit:
    """A database file that may not grow while it is filled."""

    def __init__(self, folder):
        self.folder, self._most = folder, 10**6

    def __enter__(self):
        event.listen(Pool, "checkout", self._limit)
        return self

    def __exit__(self, *_):
        event.remove(Pool, "checkout", self._limit)

    def _limit(self, connection, *_):
        connection.execute(f"PRAGMA max_page_count = {self._most}")

    def fill(self):
        """Forbid the file to grow."""
        self._most = 1

    def clear(self):
        """Allow the file to grow again."""
        self._most = 10**6


class SmallDisk:
    """A file system of one megabyte."""

    def __init__(self, folder):
        self.folder, self._ballast = folder, folder / "ballast"

    def __enter__(self):
        self._run("mount", "-t", "tmpfs", "-o", "size=1m", "attnkit", str(self.folder))
        return self

    def __exit__(self, *_):
        self._run("umount", "--lazy", str(self.folder))

    def _run(self, *command):
        subprocess.run(command, check=True)

    def fill(self):
        """Write until nothing fits any more."""
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass

    def clear(self):
        """Remove the ballast."""
        self._ballast.unlink()


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
