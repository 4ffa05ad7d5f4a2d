"""Read files that may be hostile, in a process of its own, and print what each took.

Standard input is a JSON list of paths. Standard output has a JSON object per path: `outcome` is
"read", "unreadable" or the name of another exception; `said`, its message; `seconds` of processor
time; `megabytes` by which the process's greatest memory grew.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import warnings

from peak import peak_megabytes

from attnkit.realmodels import Unreadable
from attnkit.realmodels.sources import open_model

STOPS_AFTER = 5.0
"""Seconds of processor time after which a reader that goes on for ever is stopped."""


class TooLongError(BaseException):
    """Not an Exception, so that no reader takes it for a fault of the file."""


def stop(*_: object) -> None:
    """Stop a reader."""
    raise TooLongError


def read(path: str) -> tuple[str, str]:
    """Open a model and read every layer."""
    try:
        for layer in open_model(path).layers:
            layer.read()
    except Unreadable as error:
        return "unreadable", str(error)
    except (Exception, TooLongError) as error:
        return type(error).__name__, str(error)
    return "read", ""


if __name__ == "__main__":
    warnings.simplefilter("error")
    signal.signal(signal.SIGPROF, stop)
    paths = json.load(sys.stdin)
    for path in paths[:6]:  # intact ones: libraries are imported when first needed
        read(path)
    for path in paths:
        memory, start = peak_megabytes(), time.process_time()
        signal.setitimer(signal.ITIMER_PROF, STOPS_AFTER)
        outcome, said = read(path)
        signal.setitimer(signal.ITIMER_PROF, 0)
        took = {"seconds": time.process_time() - start, "megabytes": peak_megabytes() - memory}
        sys.stdout.write(json.dumps({"outcome": outcome, "said": said, **took}) + "\n")
