"""A class at once, open tabs, and many who come and go: visitors without browsers, for minutes."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from attackers import Hasty
from attacks import say
from crowd import SMALL, finished, hosted
from victims import Seen
from visitor import Visitor

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.alone]

PATIENCE = 900.0
"""Seconds that any wait lasts at most; training may take longer as long as its steps advance."""

CHANGED = "set_d_head"
"""The setting that visitors change while they wait."""


def visiting(server, link="", **given):
    """Return a visitor of the server."""
    return Visitor(server.port, link and f"v=1&{link}", patience=PATIENCE, **given)


@pytest.fixture(scope="module")
def server():
    """A hosted copy whose training process is warm, where leases are short."""
    with hosted(3, lease_seconds=5) as started:
        with visiting(started, f"first_seed=990000&{SMALL}") as first:
            first.press("train")
            first.wait_for("the end", lambda: finished(first))
        yield started


def train(server, number, together):
    """Press Train when all are there, and change a setting now and then until the end comes.

    Return the seconds until then, and those until each change was answered. Beside other busy
    processes, training takes many times as long, because it has the lowest priority: a visitor
    gives up only if no step has been taken for `PATIENCE` seconds.
    """
    moments, answers, width, step = random.Random(number), [], 9, 0
    with visiting(server, f"first_seed={1000 + 20 * number}") as visitor:
        together.wait(PATIENCE)
        began = advanced = time.monotonic()
        visitor.press("train")
        while not visitor.watch(moments.uniform(5, 15), lambda: finished(visitor)):
            width = 19 - width
            answers.append(visitor.set(CHANGED, float(width)))
            if visitor.progress() != step:
                step, advanced = visitor.progress(), time.monotonic()
            assert time.monotonic() < advanced + PATIENCE
            assert not any(text.startswith("Training failed") for text in visitor.texts())
        assert visitor.exceptions == []
        return time.monotonic() - began, answers


def test_who_presses_train_together_ends_together(server):
    """Nobody's equal work takes more than half as long again, and nothing goes wrong on a page."""
    together, megabytes = threading.Barrier(30), []
    with ThreadPoolExecutor(30) as pool:
        visits = [pool.submit(train, server, number, together) for number in range(30)]
        while not all(visit.done() for visit in visits):
            megabytes.append(server.megabytes())
            time.sleep(0.5)
    seconds, answers = zip(*(visit.result() for visit in visits), strict=True)
    assert max(seconds) <= 1.5 * min(seconds)
    assert max(megabytes) <= 2500
    assert np.percentile([0.0, *(one for own in answers for one in own)], 95) <= 1.0


def refused(tab):
    """Return whether a page says that its visitor trains as much as one may."""
    return any("not accepted" in text for text in tab.texts())


def look_inside(server, number, page, link, seen, changes=6):
    """Open a page of a run and choose what it shows now and then, as its widgets offer."""
    moments = random.Random(f"{number} {page}")
    with ExitStack() as stack:
        with seen.waiting("pages"):
            tab = stack.enter_context(Hasty(server.port, link, page, PATIENCE))
        for _ in range(changes):
            tab.watch(moments.uniform(3, 15))
            with seen.waiting("presses"):
                tab.choose(moments, None)
        tab.wait_for("the figures", lambda: tab.has(page) or refused(tab))
        return tab.exceptions


def learn(server, number, together, seen):
    """Train, look at three pages at once, and press Reset and Train in the Lab meanwhile."""
    moments, link = random.Random(number), f"v=1&first_seed={500_000 + 20 * number}"
    with visiting(server, link[4:]) as lab, ThreadPoolExecutor(3) as pool:
        together.wait(PATIENCE)
        lab.press("train")
        lab.wait_for("the first steps", lambda: lab.progress() > 0)
        pages = [
            pool.submit(look_inside, server, number, page, link, seen)
            for page in ("attention", "asymmetry", "similarity")
        ]
        while not all(page.done() for page in pages):
            lab.watch(moments.uniform(5, 20))
            for button in ("reset", "train"):
                if not lab.find(button).disabled:
                    with seen.waiting("presses"):
                        lab.press(button)
        assert not refused(lab)
        return [lab.exceptions, *(page.result() for page in pages)]


def test_a_class_that_looks_inside_and_resets_is_served(server, capsys):
    """Thirty of one address, with four tabs each: every page and press is answered."""
    together, seen = threading.Barrier(30), Seen()
    with ThreadPoolExecutor(30) as pool:
        visits = [pool.submit(learn, server, number, together, seen) for number in range(30)]
    assert not any(shown for visit in visits for shown in visit.result())
    seconds = {kind: seen.slowest_twentieth(kind) for kind in ("pages", "presses")}
    with capsys.disabled():
        say(f"slowest twentieth of a class: {seconds}")


def test_open_tabs_cost_next_to_nothing(server):
    """Twenty of them a twentieth of a core."""
    with ExitStack() as opened, ThreadPoolExecutor(20) as pool:
        visitors = [opened.enter_context(visiting(server)) for _ in range(20)]
        for visitor in visitors:
            visitor.watch(2.0)
        began, spent = time.monotonic(), server.seconds()
        list(pool.map(lambda visitor: visitor.watch(30.0), visitors))
        assert server.seconds() - spent <= 0.05 * (time.monotonic() - began)


def come_and_go(server, number):
    """Train something small; vanish in the middle, change a setting, reload, or wait for the end.

    Return whether the end was seen. Without a cookie, whoever reloads is a stranger.
    """
    fate, link = random.Random(number).random(), f"first_seed={20 * number}&{SMALL}"
    for visit in (1, 2):
        with visiting(server, link) as visitor:
            if visit == 1 or not (finished(visitor) or visitor.find("train").disabled):
                visitor.press("train")
            if visit == 1 and 0.2 <= fate < 0.4:
                visitor.set(CHANGED, 4.0)
            if fate > 0.3 or visit == 2:
                visitor.wait_for("the end", lambda visitor=visitor: finished(visitor))
            assert visitor.exceptions == []
            if fate < 0.2 or finished(visitor):
                return fate >= 0.2
    raise AssertionError("nobody saw the end")


def become_quiet(server):
    """Wait until nothing trains and no more files are closed: leases and sessions have ended.

    Streamlit lets go of sessions that have ended when the next one comes.
    """
    deadline, quiet, files = time.monotonic() + PATIENCE, 0, server.process.num_fds()
    while quiet < 3:
        assert time.monotonic() < deadline, "the server computes on, though nobody is there"
        with visiting(server, page="guide"):
            pass
        before, files_before = server.seconds(), files
        time.sleep(5.0)
        files = server.process.num_fds()
        is_quiet = server.seconds() - before < 0.5 and files >= files_before
        quiet = quiet + 1 if is_quiet else 0


def test_nothing_is_left_of_those_who_come_and_go(server):
    """No process, thread or file; memory as after the first of them; no job that trains on."""
    left = []
    for numbers in (range(30), range(30, 300)):
        with ThreadPoolExecutor(6) as pool:
            ends = list(pool.map(lambda number: come_and_go(server, number), numbers))
        assert 0 < sum(ends) < len(ends)
        become_quiet(server)
        left.append((server.megabytes(), *server.counts()))
    (megabytes, processes, threads, files), after = left
    assert after[0] <= 1.1 * megabytes
    assert after[1] == processes
    assert after[2] <= threads + 2
    assert after[3] <= files + 8  # of two sessions that just ended
