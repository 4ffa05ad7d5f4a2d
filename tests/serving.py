"""A server without pages, in a process of its own: `python tests/serving.py FOLDER FIRST_SEED`.

It trains tiny experiments one after the other, for ever. It says the number of its training
process, then every experiment's hash as soon as it is reported as finished and stored.
"""

import subprocess
import sys
from collections import deque
from contextlib import contextmanager
from itertools import count

from children import child
from storing import tell
from waiting import small

from attnkit.service.service import TrainingService
from attnkit.service.store import ResultStore

AT_ONCE = 4
"""Experiments under way, so that one is written while others train."""


@contextmanager
def serving(folder, first_seed):
    """The server, and the number of its training process; killed at the end if it still runs."""
    command = [sys.executable, __file__, str(folder), str(first_seed)]
    with child(*command, stdout=subprocess.PIPE, text=True) as process:
        yield process, int(process.stdout.readline())


def main(folder, first_seed):
    """Train, store and tell until killed."""
    service = TrainingService(store=ResultStore(folder))
    tell(service.process_id)
    waiting = deque()
    for seed in count(first_seed):
        waiting.append(service.submit(small(1, seed)))
        if len(waiting) == AT_ONCE:
            job = service.job(waiting.popleft())
            while not (job.state == "finished" and job.stored):
                job = service.wait(job.id, job.version, 60)
            tell(job.experiment.hash)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
