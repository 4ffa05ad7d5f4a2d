"""A class at once, without browsers: `python tests/crowd.py --visitors 30 --soak 300 --idle 20`.

Starts the hosted copy with the Dockerfile's options on this machine and sends visitors that speak
Streamlit's protocol. Every visitor opens a page, presses Train on the default experiment with seeds
of its own, goes on changing settings, and waits for the end. The soak sends them a few at a time,
each on a small experiment; some reload, some vanish without a word. Needs psutil.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import psutil
from dockerfile import read

from attnkit.bench.visitor import HOST, Visitor, dashboard

PATIENCE = 900.0
"""Seconds that any wait lasts at most; training may take longer as long as its steps advance."""

SMALL = "sharing=QKV,Q%3DK&n_seeds=1&steps=40&n_entries=5&n_names=11&n_values=7&d_head=3"
"""An experiment of a moment."""

CHANGED = "set_d_head"
"""The setting that visitors change while they wait."""

CHANGE_SECONDS = 10.0
"""Between two changes of one visitor, on average."""


@dataclass
class Server:
    """A hosted copy under load: its processes and the most memory they ever had."""

    port: int
    process: psutil.Process
    megabytes: list[float] = field(default_factory=list)

    def all(self) -> list[psutil.Process]:
        """The server and its training process."""
        return [self.process, *self.process.children(recursive=True)]

    def memory(self) -> float:
        """Megabytes of all its processes now, shared libraries counted in each."""
        total = 0.0
        for process in self.all():
            try:
                total += process.memory_info().rss / 2**20
            except psutil.NoSuchProcess:
                continue
        self.megabytes.append(total)
        return total

    def seconds(self) -> float:
        """Of computing time, of all its processes so far."""
        return sum(sum(process.cpu_times()[:2]) for process in self.all())

    def counts(self) -> dict[str, int]:
        """What could be left over: processes, and threads and open files of the server."""
        return {
            "processes": len(self.all()),
            "threads": self.process.num_threads(),
            "files": self.process.num_fds(),
        }


@contextmanager
def hosted(session_seconds: int = 120, **settings: Any) -> Iterator[Server]:
    """The hosted copy on a free port, with an empty store, as the image starts it.

    Args:
        session_seconds: for so long Streamlit keeps a session whose tab is gone.
        settings: of the copy.
    """
    image = read()
    command = [*image.command[2:], f"--server.disconnectedSessionTTL={session_seconds}"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "ATTNKIT_HOSTED": "true",
            "ATTNKIT_STORE": folder,
            **{f"ATTNKIT_{name.upper()}": str(value) for name, value in settings.items()},
        }
        with dashboard(command=command, environment=environment) as port:
            own = psutil.Process().children()
            server = next(child for child in own if str(port) in " ".join(child.cmdline()))
            yield Server(port, server)


@contextmanager
def watched(server: Server) -> Iterator[None]:
    """Look at the server's memory twice a second meanwhile."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            server.memory()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass
class Visit:
    """What one visitor saw: seconds from the click to the end, and of every change's answer."""

    seconds: float = 0.0
    answers: list[float] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CrowdReport:
    """What a crowd saw.

    Attributes:
        finished: visitors that saw their end. seconds: of the fastest, and of the slowest.
        ratio: of the two. answer_95: 95th percentile of the seconds until a change was answered.
        megabytes: the most that server and training had together.
    """

    visitors: int
    finished: int
    seconds: tuple[float, float]
    ratio: float
    answer_50: float
    answer_95: float
    n_answers: int
    megabytes: float
    exceptions: list[str]


def finished(visitor: Visitor) -> bool:
    """Whether the page says that training has ended."""
    return any(text.startswith("Finished") for text in visitor.texts())


def failures(visitor: Visitor) -> list[str]:
    """Return the messages of the page that training has failed."""
    return [text for text in visitor.texts() if text.startswith("Training failed")]


def train(port: int, link: str, together: threading.Barrier, change_seconds: float) -> Visit:
    """Open a page, press Train when all are there, change settings until the end comes.

    Beside other busy processes, training takes many times as long, because it has the lowest
    priority. So a visitor gives up only if no step has been taken for `PATIENCE` seconds.
    """
    visit = Visit()
    with Visitor(port, link, patience=PATIENCE) as visitor:
        together.wait(PATIENCE)
        began = advanced = time.monotonic()
        visitor.press("train")
        width, step = 9, 0
        moments = random.Random(link)
        while not visitor.watch(
            moments.uniform(0.5, 1.5) * change_seconds, lambda: finished(visitor)
        ):
            width = 9 if width == 10 else 10
            visit.answers.append(visitor.set(CHANGED, float(width)))
            if visitor.progress() != step:
                step, advanced = visitor.progress(), time.monotonic()
            if failures(visitor) or time.monotonic() - advanced > PATIENCE:
                break
        else:
            visit.seconds = time.monotonic() - began
        visit.exceptions = [*visitor.exceptions, *failures(visitor)]
    return visit


def crowd(server: Server, n_visitors: int, settings: str = "") -> CrowdReport:
    """So many visitors at once, each on the same experiment with seeds of its own."""
    together = threading.Barrier(n_visitors)
    links = [f"v=1&first_seed={1000 + 20 * number}&{settings}" for number in range(n_visitors)]
    with watched(server), ThreadPoolExecutor(n_visitors) as pool:
        visits = list(
            pool.map(lambda link: train(server.port, link, together, CHANGE_SECONDS), links)
        )
    seconds = sorted(visit.seconds for visit in visits if visit.seconds) or [float("nan")]
    answers = [one for visit in visits for one in visit.answers] or [0.0]
    return CrowdReport(
        visitors=n_visitors,
        finished=sum(visit.seconds > 0 for visit in visits),
        seconds=(seconds[0], seconds[-1]),
        ratio=seconds[-1] / seconds[0],
        answer_50=float(np.percentile(answers, 50)),
        answer_95=float(np.percentile(answers, 95)),
        n_answers=len(answers),
        megabytes=max(server.megabytes),
        exceptions=[one for visit in visits for one in visit.exceptions],
    )


@dataclass(frozen=True)
class SoakReport:
    """What a server is like after many visitors.

    Attributes:
        finished: experiments whose end somebody saw. vanished: visitors that left in the middle.
        growth: memory at the end over that after the first tenth.
        before, after: processes, threads and open files, then and at the end.
    """

    experiments: int
    finished: int
    vanished: int
    growth: float
    megabytes: tuple[float, float]
    before: dict[str, int]
    after: dict[str, int]
    exceptions: list[str]


def come_and_go(port: int, number: int, fate: float) -> tuple[bool, list[str]]:
    """One visitor of the soak; whether it saw the end, and what went wrong on its page."""
    link = f"v=1&first_seed={20 * number}&{SMALL}"
    with Visitor(port, link, patience=PATIENCE) as visitor:
        visitor.press("train")
        if fate < 0.2:  # vanishes in the middle
            return False, visitor.exceptions
        if fate < 0.4:
            visitor.set(CHANGED, 4.0)
        if fate > 0.3:
            visitor.wait_for("the end", lambda: finished(visitor))
            return True, visitor.exceptions
    with Visitor(port, link, patience=PATIENCE) as again:  # a reload; without a cookie, a stranger
        if not finished(again) and not again.find("train").disabled:
            again.press("train")
        again.wait_for("the end", lambda: finished(again))
        return True, again.exceptions


def soak(server: Server, n_experiments: int, n_at_once: int = 6) -> SoakReport:
    """So many experiments of visitors that come and go, a few at once."""
    fates = random.Random(0)
    n_first = max(n_experiments // 10, 1)

    def send(numbers: range) -> list[tuple[bool, list[str]]]:
        with ThreadPoolExecutor(n_at_once) as pool:
            drawn = [fates.random() for _ in numbers]
            return list(pool.map(lambda n, f: come_and_go(server.port, n, f), numbers, drawn))

    seen = send(range(n_first))
    wait_until_quiet(server)
    first, before = server.memory(), server.counts()
    seen += send(range(n_first, n_experiments))
    wait_until_quiet(server)
    last, after = server.memory(), server.counts()
    return SoakReport(
        experiments=n_experiments,
        finished=sum(saw for saw, _ in seen),
        vanished=sum(not saw for saw, _ in seen),
        growth=last / first,
        megabytes=(first, last),
        before=before,
        after=after,
        exceptions=[one for _, found in seen for one in found],
    )


def wait_until_quiet(server: Server) -> None:
    """Until nothing trains and no more files are closed: leases and sessions have ended.

    Streamlit lets go of sessions that have ended when the next one comes.
    """
    deadline = time.monotonic() + PATIENCE
    quiet, files = 0, server.process.num_fds()
    while quiet < 3:
        if time.monotonic() > deadline:
            raise TimeoutError("the server computes on, though nobody is there")
        with Visitor(server.port, page="guide", patience=PATIENCE):
            pass
        before = server.seconds()
        time.sleep(5.0)
        fewer = server.process.num_fds() < files
        files = server.process.num_fds()
        quiet = quiet + 1 if server.seconds() - before < 0.5 and not fewer else 0


def idle(server: Server, n_tabs: int, seconds: float) -> float:
    """The share of a core that so many open tabs cost, of which nobody does anything."""
    visitors = [Visitor(server.port, patience=PATIENCE) for _ in range(n_tabs)]
    opened: list[Visitor] = []
    try:
        opened.extend(visitor.__enter__() for visitor in visitors)
        for visitor in opened:
            visitor.watch(2.0)
        began, spent = time.monotonic(), server.seconds()
        with ThreadPoolExecutor(n_tabs) as pool:
            list(pool.map(lambda visitor: visitor.watch(seconds), opened))
        return (server.seconds() - spent) / (time.monotonic() - began)
    finally:
        for visitor in opened:
            visitor.__exit__(None, None, None)


def main() -> None:
    """Measure what is asked for, by default a crowd of 30, and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=0, help="at once")
    parser.add_argument("--settings", default="", help="of their experiment, as in a link")
    parser.add_argument("--soak", type=int, default=0, help="experiments of those who come and go")
    parser.add_argument("--idle", type=int, default=0, help="open tabs")
    asked = parser.parse_args()
    if not (asked.visitors or asked.soak or asked.idle):
        asked.visitors = 30
    with hosted(3 if asked.soak else 120, lease_seconds=5 if asked.soak else 120) as server:
        with Visitor(server.port, f"v=1&first_seed=990000&{SMALL}", patience=PATIENCE) as first:
            first.press("train")  # the training process is warm from here on
            first.wait_for("the end", lambda: finished(first))
        if asked.idle:
            _tell("share of a core", idle(server, asked.idle, 30.0))
        if asked.visitors:
            _tell("crowd", asdict(crowd(server, asked.visitors, asked.settings)))
        if asked.soak:
            _tell("soak", asdict(soak(server, asked.soak)))


def _tell(what: str, found: Any) -> None:
    print(json.dumps({what: found, "host": HOST}, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
