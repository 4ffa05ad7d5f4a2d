"""What a run of the tests costs, by kind and by test, and the budget of the day's tests.

Costs are processor seconds of a test's process and of all processes that it starts. A *unit* is the
processor time of one fixed piece of training, measured in the same run beside the other tests, so
that a cost in units means the same on every machine.
"""

import collections
import contextlib
import os
import statistics
import time

import psutil
import pytest

from attnkit.experiment import Experiment
from attnkit.training.training import Training

BUDGET = 170
"""Units that the tests of a day may cost. Whoever adds a slow test makes another one cheaper."""

LARGEST_SHARE = 1 / 40
"""Largest share of the budget that a single test may cost."""

LEEWAY = 1.3
"""Beyond so many times the budget a run with `--price` fails; beyond the budget it warns."""

START, NIGHT = "start", "night"
"""Kinds of cost besides those of the day's tests: imports and collection, tests marked `long`."""

N_NAMED = 10
"""Number of tests that a run names, those that cost most."""

MANY = 500
"""Number of tests from which on a run measures the unit, which takes three seconds."""


class Price:
    """Plugin of pytest that measures costs, in every process of pytest-xdist, and reports them."""

    def __init__(self, config, kind):
        self._config, self._kind = config, kind
        self._costs, self._units, self._clock = {}, [], Clock()

    def pytest_collection_finish(self, session):
        """Measure the unit before the first test; in one process per core, all do so at once."""
        if len(session.items) >= MANY:
            self._units.append(unit())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """Measure a test, together with the fixtures that begin and end with it."""
        between = self._clock.since_last_time()
        self._costs.setdefault(f"start of process {os.getpid()}", (START, between))
        result = yield
        self._costs[item.nodeid] = self._kind(item), self._clock.since_last_time()
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Take over the costs of another process, which has ended."""
        given = getattr(node, "workeroutput", {})  # none of a process that has crashed
        costs, units = given.get("price", ({}, []))
        self._costs.update(costs)
        self._units += units

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        """Hand the costs over, or fail if they are beyond the budget and that is asked for."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["price"] = self._costs, self._units
        elif self._config.getoption("--price") and any(self._excesses(LEEWAY)):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        """Write the costs by kind, the ten largest, and what is beyond the budget."""
        kinds = collections.defaultdict(list)
        for kind, seconds in self._costs.values():
            kinds[kind].append(seconds)
        if not kinds:
            return
        write = terminalreporter.write_line
        terminalreporter.section("processor time")
        for kind, costs in kinds.items():
            write(f"{self._in_words(sum(costs))}: {kind}, {len(costs)}")
        write(f"{self._in_words(sum(map(sum, kinds.values())))}: together")
        tests = sorted(self._costs.items(), key=lambda item: item[1][1], reverse=True)
        for name, (kind, seconds) in tests[:N_NAMED]:
            write(f"{self._in_words(seconds)}: {name} ({kind})")
        for excess in self._excesses(1.0):
            write(f"warning: {excess}", yellow=True)

    def _in_units(self, seconds):
        return seconds / statistics.mean(self._units) if self._units else float("nan")

    def _in_words(self, seconds):
        units = f" = {self._in_units(seconds):5.2f} units" if self._units else ""
        return f"{seconds:7.1f} s{units}"

    def _excesses(self, leeway):
        """Yield a sentence for everything beyond `leeway` times the budget of a whole day."""
        if not self._units:
            return
        by_day = [seconds for kind, seconds in self._costs.values() if kind != NIGHT]
        units = self._in_units(sum(by_day))
        if units > leeway * BUDGET:
            yield f"the tests cost {units:.0f} units; allowed are {BUDGET} (tests/price.py)"
        for name, (kind, seconds) in self._costs.items():
            units = self._in_units(seconds)
            if kind not in (START, NIGHT) and units > leeway * LARGEST_SHARE * BUDGET:
                allowed = LARGEST_SHARE * BUDGET
                yield f"{name} costs {units:.1f} units; allowed are {allowed:.1f} for one test"


class Clock:
    """Processor seconds of this process and of all that it starts, directly or not."""

    def __init__(self):
        self._own, self._ended = {}, {}

    def since_last_time(self):
        """Return the seconds since this was last called; at first, since the process began."""
        own, ended = {}, {}
        this = psutil.Process()
        for process in (this, *this.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # it has ended just now
                times = process.cpu_times()
                own[process] = times.user + times.system
                ended[process] = times.children_user + times.children_system
        seconds = sum(value - self._own.get(process, 0.0) for process, value in own.items())
        # Children that ended were counted while they ran, but for those that were too short-lived.
        counted = sum(self._own[one] + self._ended[one] for one in self._own.keys() - own.keys())
        new = sum(value - self._ended.get(process, 0.0) for process, value in ended.items())
        self._own, self._ended = own, ended
        return seconds + max(0.0, new - counted)


def unit():
    """Return the processor seconds of one fixed training, about three of one thread."""
    training = Training(Experiment(n_seeds=1, steps=400), "cpu", "torch")
    training.advance(1)
    began = time.process_time()
    training.advance(399)
    return time.process_time() - began
