"""A program: jobs that take a drawn amount of memory, trained by a worker that limits it.

Its only argument is the number that it draws from. It writes a JSON line with two lists of jobs:
those that failed, and those that had to.
"""

import json
import random
import sys
from types import SimpleNamespace

import numpy as np
from threaded import MemoryWorker
from waiting import small

from attnkit.foundation.process import prepare_for_training
from attnkit.service import worker
from attnkit.service.allowance import GAPS_MEGABYTES, MARGIN, SMALL_MEGABYTES, Allowance
from attnkit.service.protocol import Start, Update

TOGETHER = 300.0
"""Estimated memory in MiB of all jobs that train side by side."""

KEPT = 1500.0
"""Memory in MiB, beyond its allowance, that a job that fails asks for. Part of it may be memory
that the C library keeps from other jobs, and how much that is depends on the order of turns."""

N_JOBS = 60


class Hungry:
    """A training that keeps memory from its building on, and takes more in every step."""

    def __init__(self, draw, experiment, kept, taken):
        self.experiment, self.step, self.seconds = experiment, 0, 0.0
        self._draw, self._taken, self._steps = draw, taken, draw.randint(1, 8)
        self._kept = self._take(kept)

    def _take(self, megabytes):
        blocks, left = [], int(megabytes * 2**20)
        while left > 0:
            size = min(left, int(2 ** self._draw.uniform(14, 24)))
            blocks.append(np.ones(size, np.int8))
            left -= size
        return blocks

    def advance(self, n_steps):
        """Take memory and free it."""
        self._take(self._taken)
        self.step += 1

    @property
    def finished(self):
        """Whether it has taken all its steps."""
        return self.step == self._steps

    def snapshot(self, status=None):
        """Return nothing."""
        return SimpleNamespace(to_bytes=lambda: b"")

    def result(self):
        """Return nothing."""
        return SimpleNamespace(to_blobs=lambda: (b"", b""))


class Copy(MemoryWorker):
    """A worker that begins jobs as soon as there is memory for them."""

    def __init__(self, seed):
        super().__init__(Allowance)
        self._draw, self._estimates, self._memory = random.Random(seed), {}, {}
        self._archive = SimpleNamespace(keep=lambda *_: None)
        self.wrong, self._running = [], {}
        for number in range(N_JOBS):
            name, estimate = f"{number}", self._draw.choice([5, 20, 80, 299]) * self._draw.random()
            kept = estimate * self._draw.random()
            taken = estimate - kept
            if self._draw.random() < 0.15:
                self.wrong.append(name)
                more = MARGIN * estimate + SMALL_MEGABYTES + GAPS_MEGABYTES + KEPT - estimate
                kept, taken = (kept + more, taken) if self._draw.random() < 0.5 else (kept, more)
            self._estimates[name], self._memory[number] = estimate, (kept, taken)

    def build(self, experiment, engine):
        """Return a training that takes as much as was drawn for it."""
        training = Hungry(self._draw, experiment, *self._memory[experiment.first_seed])
        return training, SimpleNamespace(n_steps_left=0, record_frame=lambda: None)

    def estimate(self, experiment, engine=None):
        """Return the estimated memory."""
        return self._estimates[f"{experiment.first_seed}"]

    def write(self, message):
        """Begin further jobs when one has ended."""
        super().write(message)
        last = self.messages[-1]
        if isinstance(last, Update) and last.state in ("failed", "finished"):
            del self._running[last.job]
            self.begin()

    def begin(self):
        """Begin the next jobs as long as there is memory for them."""
        while self._estimates.keys() - self._begun:
            name = f"{len(self._begun)}"
            if sum(self._running.values()) + self._estimates[name] > TOGETHER:
                return
            self._running[name] = self._estimates[name]
            self._begun.add(name)
            text = small(50, int(name)).to_json()
            self.commands.put(Start(job=name, experiment=text, address=f"{int(name) % 3}"))

    @property
    def failed(self):
        """Jobs that have failed, with their errors."""
        return {u.job: u.error for u in self.of(Update) if u.state == "failed"}


def main():
    """Train all jobs."""
    prepare_for_training()
    copy = Copy(int(sys.argv[1]))
    copy._begun = set()
    worker.build, worker.peak_megabytes = copy.build, copy.estimate
    worker.SLICE_SECONDS = 0.0
    copy.begin()
    copy.work()
    ended = sum(update.state in ("failed", "finished") for update in copy.of(Update))
    assert ended == N_JOBS, ended
    sys.stdout.write(json.dumps([copy.failed, sorted(copy.wrong)]))


if __name__ == "__main__":
    main()
