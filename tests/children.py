"""Processes that tests start, and that never outlive them."""

import subprocess
from contextlib import contextmanager


@contextmanager
def child(*command, **options):
    """Start a process and kill it at the end; a test that fails does not wait for it."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()
