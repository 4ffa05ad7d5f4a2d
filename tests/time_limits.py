"""Limits of time for code that is given damaged files."""

import contextlib
import signal


class TooLongError(BaseException):
    """Not an Exception, so that no reader takes it for a fault of the file."""


@contextlib.contextmanager
def at_most(seconds, *, waiting=False):
    """Raise TooLongError after seconds of processor time; with `waiting`, after seconds in all."""

    def stop(*_):
        raise TooLongError

    number, timer = signal.SIGPROF, signal.ITIMER_PROF
    if waiting:
        number, timer = signal.SIGALRM, signal.ITIMER_REAL
    handler = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, handler)
