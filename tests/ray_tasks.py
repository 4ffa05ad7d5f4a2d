"""Tasks for the tests of the Ray cluster, which Ray ships to its machines as a plugin module."""

import os
import signal
import time

import attnkit
from attnkit.foundation.process import n_cores


def surroundings():
    """Return what a task finds: where its code is, variables and the number of cores."""
    return attnkit.__file__, __file__, dict(os.environ), n_cores()


def lacking():
    """Import what is not there."""
    import no_such_module  # noqa: F401


def arriving(folder, waits=False):
    """Leave a file that names the process; end the first process, or wait until it is killed."""
    (folder / f"{os.getpid()}.arrived").touch()
    n_attempts = len(list(folder.glob("*.arrived")))
    if waits:
        time.sleep(300)
    elif n_attempts == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return n_attempts
