"""Made results, and a process of its own that stores them: `python tests/storing.py WHERE`.

It says `ready` and then answers lines: `put SEED` with the hash as soon as `put` has returned, or
with why it was not stored; `full` and `room` with `done`: from `full` on no file may grow.
"""

import resource
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
from children import child
from finished import finished

from attnkit.experiment import Experiment
from attnkit.service.store import ResultStore, Unavailable
from attnkit.training.results import Result

SMALL = {"task": "directed", "n_seeds": 1, "n_entries": 6, "n_names": 11, "steps": 20}


def made(first_seed=0, n_numbers=5000, **given):
    """A finished result that nobody has trained, with so many random weights."""
    experiment = Experiment(**{**SMALL, "sharing": "QKV", "first_seed": first_seed, **given})
    accuracy = np.full((3, len(experiment.sharing), experiment.n_seeds), 0.5)
    weights = np.random.default_rng(first_seed).random(n_numbers).astype(np.float32)
    parameters = [{"W_Q": weights + run} for run in range(experiment.n_runs)]
    return Result(finished(experiment, accuracy), parameters)


@contextmanager
def storing(where):
    """A process that stores, ready; killed at the end if it still runs."""
    command = [sys.executable, __file__, str(where)]
    with child(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield process


def ask(process, *lines):
    """Send lines without waiting for answers."""
    process.stdin.write("".join(f"{line}\n" for line in lines))
    process.stdin.flush()


def answer(process):
    """The next answer."""
    return process.stdout.readline().strip()


def tell(text):
    """Write a line that is read at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(where):
    """Answer until the input ends."""
    store = ResultStore(where)
    tell("ready")
    sys.dont_write_bytecode = True  # on a full disk Python would cut compiled modules
    for line in sys.stdin:
        command, *seed = line.split()
        told = "done"
        if command == "put":
            result = made(int(seed[0]))
            try:
                store.put(*result.to_blobs())
                told = result.experiment.hash
            except Unavailable as error:
                told = str(error)
        else:
            most = 0 if command == "full" else resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        tell(told)


if __name__ == "__main__":
    main(sys.argv[1])
