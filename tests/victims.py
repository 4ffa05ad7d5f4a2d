"""What other visitors of a hosted copy notice: one who trains all the time, one who opens pages.

Their figures are those of one line of a report. Visitors come from an address of their own.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np
from attackers import REFUSED
from forging import TYPED
from visitor import Visitor

VICTIM = "127.0.0.9"
"""The visitors' address: no attacker's, and not that of a proxy on this machine."""

PATIENCE = 90.0
"""Seconds after which a page counts as not opened."""

WINDOW = 5.0
"""Seconds over which steps are counted."""

CHANGED = "set_d_head"
"""The setting that a visitor changes."""

TRAINED = "v=1&n_seeds=4&steps=5000&n_train=16000&first_seed={}"
"""The experiment of the visitor who trains, of some MB; new seeds follow when it ends."""


@dataclass
class Seen:
    """Observations of the visitors, with their times on the clock of `time.monotonic`.

    Attributes:
        steps: Steps trained so far, over all experiments.
        pages: When pages were requested, and when they were there; infinity for never.
        presses: The same of presses and their answers.
        losses: What must never happen, in words.
    """

    steps: list[tuple[float, int]] = field(default_factory=list)
    pages: list[list[float]] = field(default_factory=list)
    presses: list[list[float]] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    def lose(self, what):
        """Note a loss once."""
        if what not in self.losses:
            self.losses.append(what)

    def n_steps_since(self, moment):
        """Return the steps trained since a moment; 1 if there are none, so that ratios exist."""
        now, before = self._steps_at([time.monotonic(), moment])
        return max(1.0, now - before)

    def rate(self, begin, end):
        """Return the mean steps per second between two moments."""
        (before, after) = self._steps_at([begin, end])
        return (after - before) / (end - begin)

    def worst_rate(self, begin, end):
        """Return the fewest steps per second of all windows between two moments."""
        begins = np.arange(begin, max(begin, end - WINDOW) + 0.01, 0.25)
        steps = self._steps_at(np.concatenate([begins, begins + WINDOW]))
        return float(np.min(steps[len(begins) :] - steps[: len(begins)])) / WINDOW

    def standstill(self, begin, end):
        """Return the longest time between two moments in which no new step was seen."""
        moments = [when for when, _ in self.steps if begin < when < end]
        return float(np.max(np.diff([begin, *moments, end])))

    def worst(self, kind, begin, end):
        """Return the worst seconds of `pages` or `presses` under way between two moments."""
        waits = [wait for wait in getattr(self, kind) if wait[0] < end and wait[1] > begin]
        return max((min(there, end) - asked for asked, there in waits), default=0.0)

    @contextmanager
    def waiting(self, kind):
        """Note how long the body of a `with` statement waits for an answer."""
        wait = [time.monotonic(), np.inf]
        getattr(self, kind).append(wait)
        yield
        wait[1] = time.monotonic()

    def slowest_twentieth(self, kind):
        """Return the seconds that nineteen of twenty pages or presses have not exceeded."""
        return float(np.percentile([there - asked for asked, there in getattr(self, kind)], 95))

    def _steps_at(self, moments):
        """Return the steps trained until each moment, interpolated between what was seen."""
        when, steps = zip(*self.steps, strict=True) if self.steps else ((0.0,), (0,))
        return np.interp(moments, when, steps)


class Victims:
    """Two visitors and their tabs, in threads of this process, inside a `with` statement.

    Args:
        port: Port of the copy.
        drawn: What seeds and pages are drawn from.
    """

    def __init__(self, port, drawn):
        self._port, self._drawn = port, drawn
        self._over = threading.Event()
        self.seen = Seen()
        self._threads = [
            threading.Thread(target=self._keep_on, args=(act,), daemon=True)
            for act in (self._train, self._open_pages, self._press)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def wait_for_steps(self):
        """Wait until the first steps are trained."""
        deadline = time.monotonic() + PATIENCE
        while len(self.seen.steps) < 3:
            assert time.monotonic() < deadline, f"no step was trained: {self.seen.losses}"
            time.sleep(0.1)

    def _keep_on(self, act):
        """Act again and again; a tab that ends is a loss, except at the end."""
        while not self._over.is_set():
            try:
                act()
            except (*REFUSED, KeyError, ValueError) as error:
                if self._over.is_set():
                    return
                self.seen.lose(f"{act.__name__[1:]}: {type(error).__name__} {error}"[:200])
                time.sleep(0.2)

    def _visit(self, link="", page=""):
        return Visitor(self._port, link, page, PATIENCE, source_address=(VICTIM, 0))

    def _train(self):
        """Train one experiment after the other in one tab, and note every new step."""
        before = self.seen.steps[-1][1] if self.seen.steps else 0
        with self._visit(TRAINED.format(self._drawn.randrange(900_000))) as tab:
            button = "train"
            while not self._over.is_set():
                tab.press(button)
                self._follow(tab, before)
                before = self.seen.steps[-1][1] if self.seen.steps else before
                button = "new_seeds"

    def _follow(self, tab, before):
        """Note the steps of one experiment until it ends."""
        deadline = time.monotonic() + PATIENCE
        at, ended = 0, ""
        while not (ended or self._over.is_set()):
            tab.watch(0.2)
            step = tab.progress()
            if step > at:
                at = step
                self.seen.steps.append((time.monotonic(), before + step))
                deadline = time.monotonic() + PATIENCE
            elif 0 < step < at:
                self.seen.lose(f"training went back from step {at} to {step}")
                at = step
            ended = _end(tab)
            assert time.monotonic() < deadline, f"step {at} stays; {tab.texts()[:8]}"
        if ended and not ended.startswith("Finished"):
            self.seen.lose(ended[:200])
        if any("began anew" in text for text in tab.texts()):
            self.seen.lose("training began anew")
        self._note_exceptions(tab)

    def _note_exceptions(self, tab):
        for shown in tab.exceptions:
            self.seen.lose(f"exception on a page: {shown}"[:200])

    def _open_pages(self):
        """Open pages as newcomers do."""
        page = self._drawn.choice(("", "guide", "variants", "attention", "questions"))
        with ExitStack() as stack:
            with self.seen.waiting("pages"):
                tab = stack.enter_context(self._visit(page=page))
            self._note_exceptions(tab)
        self._over.wait(0.3)

    def _press(self):
        """Change a setting in a tab that stays open."""
        with self._visit() as tab:
            width = 9
            while not self._over.is_set():
                width = 19 - width
                with self.seen.waiting("presses"):
                    tab.set(CHANGED, float(width))
                tab.watch(1.0, self._over.is_set)
            self._note_exceptions(tab)


_ENDS = ("Finished", "Training failed", "Stopped", "Paused", "The experiment was not accepted")


def _end(tab):
    """Return what the page says about a training that does not go on; empty if it goes on."""
    return next((text for text in tab.texts() if text.startswith(_ENDS)), "")


@dataclass
class Figures:
    """Costs of one attack for other visitors: one line of a report.

    Attributes:
        name: The attack.
        addresses: Number of attackers' addresses that use the training process.
        page: Worst seconds of a page during the attack.
        page_after: Seconds of a page 10 s after it, the middle one of three.
        press: Worst seconds until the answer to a press.
        alone: Steps per second of the training alone, before the attack.
        steps: Steps per second during the attack and until the end of the measurement.
        worst_steps: The same in the worst window of 5 s.
        turns: Steps per processor second of the training process, against those before.
        standstill: Longest time in seconds without a new step.
        server_megabytes: Growth of the server's memory, at most.
        training_megabytes: Growth of the training process's memory, at most.
        log_kilobytes: Growth of the log.
        seconds: Processor seconds of server and training process during the attack.
        losses: Work lost, exceptions shown, tracebacks in the log.
        counts: What the attackers did.
    """

    name: str
    addresses: int = 0
    page: float = 0.0
    page_after: float = 0.0
    press: float = 0.0
    alone: float = 0.0
    steps: float = 0.0
    worst_steps: float = 0.0
    turns: float = 0.0
    standstill: float = 0.0
    server_megabytes: float = 0.0
    training_megabytes: float = 0.0
    log_kilobytes: float = 0.0
    seconds: tuple[float, float] = (0.0, 0.0)
    losses: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def share(self):
        """The worst window against the fair share, which is that of one address of all.

        Unlike `fair_turns` it also falls if other programs compute.
        """
        return self.worst_steps * (1 + self.addresses) / self.alone if self.alone else 0.0

    @property
    def fair_turns(self):
        """The training process's time that the visitor got, against the fair share."""
        return self.turns * (1 + self.addresses)

    def line(self):
        """Return the figures as one line of a table, below `TITLES`."""
        counts = ", ".join(f"{name} {n}" for name, n in sorted(self.counts.items()))
        megabytes = f"{self.server_megabytes:+6.0f} {self.training_megabytes:+6.0f}"
        return (
            f"{self.name:22}{self.page:6.1f}{self.page_after:6.2f}{self.press:6.1f}  "
            f"{self.alone:5.0f}{self.steps:6.0f}{self.worst_steps:6.0f}{self.share:6.2f}"
            f"{self.fair_turns:6.2f}{self.standstill:6.1f}  {megabytes}{self.log_kilobytes:8.0f}"
            f"{self.seconds[0]:7.1f}{self.seconds[1]:6.1f}  "
            f"{'; '.join(self.losses) or 'nothing'} | {counts}"
        )


TITLES = (
    f"{'attack':22}{'page':>6}{'after':>6}{'press':>6}  {'alone':>5}{'steps':>6}{'worst':>6}"
    f"{'share':>6}{'turns':>6}{'still':>6}  {'server':>6} {'train':>6}{'log kB':>8}{'cpu s':>7}"
    f"{'cpu t':>6}  lost | counts of the attackers"
)
"""Titles of a report's columns: seconds, steps per second, share of the fair share, MB and kB."""


def losses_in_log(text):
    """Return what a log must not contain: tracebacks, and what attackers typed."""
    errors = Counter(re.findall(r"^Traceback.*\n(?:[ \t].*\n|\n)*(.*)", text, re.MULTILINE))
    found = [f"{n} tracebacks of {error[:100]}" for error, n in errors.most_common(3)]
    return found + (["typed text in the log"] if TYPED in text else [])
