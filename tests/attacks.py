"""Attack a hosted copy of one's own, over loopback, and report what its other visitors notice.

`python tests/attacks.py` tries every move, `--attack mixture` several at once from several
addresses, drawn from `--seed`. `--tree` attacks another checkout, to compare it with this one.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
from attackers import FOREIGN, Attacker
from crowd import hosted
from dockerfile import ROOT
from moves import MOVES, TRAINING
from moves_on_pages import OWNER_SECRET
from victims import TITLES, Figures, Victims, losses_in_log
from visitor import Visitor

MIXTURE = "mixture"
"""Name of the attack that draws its moves."""

NICENESS = 19
"""Niceness of attackers: below the training process, whose own niceness is 10."""

WARM = 6.0
"""Processor seconds after which the training process has set up everything."""

AFTER = 10.0
"""Seconds from the end of an attack until pages must be as before."""


def plan(name, seed):
    """Return the attackers of an attack: an address and a seed for each, with threads.

    A single move has one attacker; a mixture up to three addresses with up to three at once.
    """
    if name != MIXTURE:
        return [(FOREIGN, f"{seed} {name}")]
    drawn = random.Random(seed)
    addresses = [f"127.0.0.{2 + number}" for number in range(drawn.randint(1, 3))]
    return [(one, f"{seed} {one} {n}") for one in addresses for n in range(drawn.randint(1, 3))]


def prepare():
    """Make an attacker's process the last to compute, and keep it silent."""
    os.nice(NICENESS)
    logging.disable()


def act(name, port, source, seed, seconds):
    """Make one attacker's moves for so many seconds; return counts of what happened."""
    counts, drawn = Counter(), random.Random(seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        chosen = drawn.choice(sorted(MOVES)) if name == MIXTURE else name
        deadline = end if name != MIXTURE else min(end, time.monotonic() + drawn.uniform(3, 8))
        me = Attacker(port, source, random.Random(drawn.random()), deadline, counts)
        counts[chosen] += 1
        MOVES[chosen](me)
    return counts


@contextmanager
def attackers(name, seed):
    """Start the processes of all attackers of an attack, and yield the function that begins it."""
    planned = plan(name, seed)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(planned), context, prepare) as pool:
        for one in [pool.submit(time.sleep, 1.0) for _ in planned]:  # all processes start
            one.result()
        yield lambda port, seconds: [pool.submit(act, name, port, *p, seconds) for p in planned]


class Meter:
    """Memory, log and processor time of a copy, above what they were when it was made."""

    def __init__(self, server):
        self._server, self.losses = server, []
        self._training = server.process.children()
        self._before = self._now()
        self._grown = [0.0, 0.0]
        self._log = server.log()

    def look(self):
        """Note the memory now, and a process that has gone."""
        if not self._server.process.is_running():
            self.losses.append("the server has ended")
        now = self._now()
        for kind in (0, 1):
            self._grown[kind] = max(self._grown[kind], now[kind] - self._before[kind])

    def seconds(self):
        """Return the processor seconds of the server and of the training process since then."""
        return tuple(
            now - before for now, before in zip(self._now()[2:], self._before[2:], strict=True)
        )

    def _now(self):
        found = [self._server.process, *self._training]
        try:
            times = [sum(one.cpu_times()[:2]) for one in found]
            memory = [one.memory_info().rss / 2**20 for one in found]
        except psutil.NoSuchProcess:
            self.losses.append("the training process has ended")
            return self._before
        return memory[0], sum(memory[1:]), times[0], sum(times[1:])

    def read(self, figures):
        """Put all into figures."""
        self.look()
        figures.server_megabytes, figures.training_megabytes = self._grown
        figures.seconds = self.seconds()
        log = self._server.log()[len(self._log) :]
        figures.log_kilobytes = len(log) / 1000
        figures.losses += [*dict.fromkeys(self.losses), *losses_in_log(log)]


def page_seconds(server, page="guide"):
    """Return the seconds until a visitor of this machine sees a page."""
    began = time.monotonic()
    with Visitor(server.port, page=page, patience=60):
        return time.monotonic() - began


def wait_until_warm(server):
    """Wait until the training process has drawn what pages begin with, and only trains."""
    while sum(sum(one.cpu_times()[:2]) for one in server.process.children()) < WARM:
        time.sleep(0.2)


def measure(name, server, seed=0, seconds=15.0, alone=10.0, after=AFTER):
    """Attack a running copy and return the figures.

    Args:
        name: A move, or `MIXTURE`.
        server: The copy.
        seed: What the attackers draw from.
        seconds: Length of the attack.
        alone: Seconds before it, in which the visitors are alone.
        after: Seconds after it, in which training is still measured.
    """
    uses_training = name in {MIXTURE, *TRAINING}
    n_addresses = len({source for source, _ in plan(name, seed)})
    figures = Figures(name, n_addresses if uses_training else 0)
    with attackers(name, seed) as begin, Victims(server.port, random.Random(seed)) as victims:
        seen = victims.seen
        victims.wait_for_steps()
        wait_until_warm(server)
        quiet, meter = time.monotonic(), Meter(server)
        time.sleep(alone)
        pace = seen.n_steps_since(quiet) / meter.seconds()[1]
        began, meter = time.monotonic(), Meter(server)
        under_way = begin(server.port, seconds)
        while not all(one.done() for one in under_way):
            meter.look()
            time.sleep(0.3)
        ended = time.monotonic()
        meter.look()
        while time.monotonic() < ended + after:
            meter.look()
            time.sleep(0.3)
        end = time.monotonic()
        figures.page_after = sorted(page_seconds(server) for _ in range(3))[1]
        figures.page = seen.worst("pages", began, end)
        figures.press = seen.worst("presses", began, end)
        figures.alone = seen.rate(quiet, began)
        figures.steps, figures.worst_steps = seen.rate(began, end), seen.worst_rate(began, end)
        figures.turns = seen.n_steps_since(began) / meter.seconds()[1] / pace
        figures.standstill = seen.standstill(began, end)
        meter.read(figures)
    figures.losses += seen.losses
    counts = Counter()
    for one in under_way:
        counts += one.result()
    figures.counts = dict(counts)
    return figures


def burn():
    """Use one core for ever, as another program of the machine."""
    while True:
        pass


@contextmanager
def loads(n):
    """Run so many other programs that compute all the time."""
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=burn, daemon=True) for _ in range(n)]
    try:
        for other in others:
            other.start()
        yield
    finally:
        for other in others:
            other.kill()


def say(text):
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main():
    """Try attacks on a copy, a new one for each, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = ", ".join([*MOVES, MIXTURE])
    parser.add_argument("--attack", nargs="+", default=[*MOVES], help=f"any of {names}")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each attack")
    parser.add_argument("--alone", type=float, default=10.0, help="seconds measured before it")
    parser.add_argument("--after", type=float, default=AFTER, help="seconds measured after it")
    parser.add_argument("--seed", type=int, default=0, help="what the attackers draw from")
    parser.add_argument("--loads", type=int, default=0, help="other programs that compute")
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout to attack")
    given = parser.parse_args()
    unknown = {*given.attack} - {*MOVES, MIXTURE}
    if unknown:
        parser.error(f"--attack: got {', '.join(sorted(unknown))}, allowed {names}")
    tree = given.tree.resolve()
    compile_kernel = [sys.executable, "-m", "attnkit.model.kernel"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    subprocess.run(compile_kernel, cwd=tree, env=environment, check=True)
    say(
        f"{tree.name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} "
        f"before, {given.loads} other programs, seed {given.seed}, {given.seconds:g} s"
    )
    say(TITLES)
    for name in given.attack:
        copy = hosted(tree=tree, owner_secret=OWNER_SECRET)
        with copy as server, loads(given.loads):
            figures = measure(name, server, given.seed, given.seconds, given.alone, given.after)
        say(figures.line())


if __name__ == "__main__":
    sys.exit(main())
