"""A class at once, open tabs, and many who come and go: visitors without browsers, at night."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from crowd import SMALL, hosted
from visitor import Visitor

pytestmark = pytest.mark.server

PATIENCE = 150.0
"""Seconds that any wait lasts at most."""


@pytest.fixture(scope="module")
def server():
    """A hosted copy whose training process is warm, where leases are short."""
    with hosted(3, lease_seconds=5) as started:
        with Visitor(started.port, f"{SMALL}&first_seed=990000") as first:
            first.press("train")
            first.wait_for("the end", lambda: first.says("Finished"))
        yield started


@pytest.mark.long(seconds=40)
def test_a_class_that_trains_together_ends_together(server):
    """Fifteen of one address train equal work, look inside meanwhile, and see no exception."""
    together = threading.Barrier(15)

    def look_inside(link, page):
        with Visitor(server.port, link, page, PATIENCE) as tab:
            tab.wait_for("the figures", lambda: tab.has(page))
            return tab.exceptions

    def train(number):
        link = f"v=1&n_seeds=2&steps=300&first_seed={1000 + 20 * number}"
        page = random.Random(number).choice(("attention", "asymmetry", "similarity"))
        with Visitor(server.port, link, patience=PATIENCE) as lab, ThreadPoolExecutor(1) as other:
            together.wait(PATIENCE)
            began = time.monotonic()
            lab.press("train")
            lab.wait_for("steps", lambda: lab.progress() > 0 or lab.says("Finished"))
            looking = other.submit(look_inside, link, page)
            lab.wait_for("the end", lambda: lab.says("Finished"))
            return time.monotonic() - began, [*lab.exceptions, *looking.result()]

    with ThreadPoolExecutor(15) as pool:
        seconds, exceptions = zip(*pool.map(train, range(15)), strict=True)
    assert not any(exceptions)
    assert max(seconds) <= 1.5 * min(seconds), seconds


@pytest.mark.long(seconds=5)
def test_open_tabs_cost_next_to_nothing(server):
    """Twenty of them cost a twentieth of a core."""
    with ExitStack() as opened, ThreadPoolExecutor(20) as pool:
        visitors = [opened.enter_context(Visitor(server.port)) for _ in range(20)]
        for visitor in visitors:
            visitor.watch(2.0)
        began, spent = time.monotonic(), sum(server.seconds())
        list(pool.map(lambda visitor: visitor.watch(20.0), visitors))
        assert sum(server.seconds()) - spent <= 0.05 * (time.monotonic() - began)


def come_and_go(server, number):
    """Train something small; vanish in the middle, change a setting, reload, or wait for the end.

    Return whether the end was seen. Without a cookie, whoever reloads is a stranger.
    """
    fate, link = random.Random(number).random(), f"{SMALL}&first_seed={20 * number}"
    for visit in (1, 2):
        with Visitor(server.port, link, patience=PATIENCE) as visitor:
            if visit == 1 or not (visitor.says("Finished") or visitor.find("train").disabled):
                visitor.press("train")
            if visit == 1 and 0.2 <= fate < 0.4:
                visitor.set("set_d_head", 4.0)
            if fate > 0.3 or visit == 2:
                visitor.wait_for("the end", lambda visitor=visitor: visitor.says("Finished"))
            assert visitor.exceptions == []
            if fate < 0.2 or visitor.says("Finished"):
                return fate >= 0.2
    raise AssertionError("nobody saw the end")


def become_quiet(server):
    """Wait until nothing trains and no more files are closed: leases and sessions have ended.

    Streamlit lets go of sessions that have ended when the next one comes.
    """
    deadline, quiet, files = time.monotonic() + PATIENCE, 0, server.process.num_fds()
    while quiet < 3:
        assert time.monotonic() < deadline, "the server computes on, though nobody is there"
        with Visitor(server.port, page="guide"):
            pass
        before, files_before = sum(server.seconds()), files
        time.sleep(5.0)
        files = server.process.num_fds()
        is_quiet = sum(server.seconds()) - before < 0.5 and files >= files_before
        quiet = quiet + 1 if is_quiet else 0


@pytest.mark.long(seconds=40)
def test_nothing_is_left_of_those_who_come_and_go(server):
    """No process, thread or file; memory as after the first of them; no job that trains on."""
    left = []
    for numbers in (range(20), range(20, 80)):
        with ThreadPoolExecutor(6) as pool:
            ends = list(pool.map(lambda number: come_and_go(server, number), numbers))
        assert 0 < sum(ends) < len(ends)
        become_quiet(server)
        left.append((sum(server.megabytes()), *server.counts()))
    (megabytes, processes, threads, files), after = left
    assert after[0] <= 1.1 * megabytes
    assert after[1] == processes
    assert after[2] <= threads + 2
    assert after[3] <= files + 8  # of two sessions that just ended
