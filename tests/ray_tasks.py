"""Tasks for the tests of the Ray cluster, which Ray ships to its machines as a plugin module."""

import os
import signal
import time
from pathlib import Path

import attnkit
from attnkit.foundation.process import n_cores


def surroundings():
    """Return what a task finds: where its code is, variables and the number of cores."""
    return attnkit.__file__, __file__, dict(os.environ), n_cores()


def lacking():
    """Import what is not there."""
    import no_such_module  # noqa: F401


def dying(folder):
    """End the worker the first time, and return the number of attempts."""
    n_attempts = _arrive(folder)
    if n_attempts == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return n_attempts


def waiting(folder):
    """Leave a file that names the process, and wait until it is killed."""
    _arrive(folder)
    time.sleep(300)


def _arrive(folder):
    """Leave a file, and return how many there are."""
    Path(folder).mkdir(exist_ok=True)
    (Path(folder) / f"{os.getpid()}.arrived").touch()
    return len(list(Path(folder).glob("*.arrived")))
