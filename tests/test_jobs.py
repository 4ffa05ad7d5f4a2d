"""Who trains and who waits: first come, first served at each address, and addresses in turn."""

import re
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly
from waiting import small

from attnkit.service.jobs import OVERTAKE_SECONDS, Job, JobQueue, Refused, Watcher
from attnkit.service.server import ServerSettings

HOSTED = ServerSettings.of({"ATTNKIT_HOSTED": "true"})
STATES = {"": "waiting", "!": "waiting", "*": "running", "+": "paused"}


def job(name, address="home", megabytes=1.0, waited=0.0, **fields):
    """Return a job that waits."""
    at = time.monotonic() - waited
    own = {"address": address, "megabytes": megabytes, "submitted_at": at}
    return Job(name, small(100), **{**own, **fields})


def read(text):
    """Return a job: `a/Anna@school:60` waits, with `!` for long; `*` trains and `+` is paused."""
    pattern = r"(\w)(?:/(\w+))?(?:@(\w+))?(?::(\d+))?([!*+]?)"
    name, visitor, address, megabytes, sign = re.fullmatch(pattern, text).groups()
    waited = OVERTAKE_SECONDS + 1 if sign == "!" else 0.0
    state = {"begun": sign in ("*", "+"), "state": STATES[sign], "visitor": visitor or ""}
    return job(name, address or "home", float(megabytes or 1), waited, **state)


def queue_of(jobs, settings=None):
    """Return a queue with jobs in the order of their submission."""
    few = ServerSettings(max_active=3, training_megabytes=100, visitor_active=1, max_waiting=6)
    queue = JobQueue(settings or few, threading.Condition(threading.RLock()))
    queue.jobs = {each.id: each for each in jobs}
    return queue


@pytest.mark.parametrize(
    ("rule", "ready", "jobs"),
    [
        ("an address has a largest number", "abc", "a b c d"),
        ("and others are not shut out by it", "d", "x* y* z* a b d@school"),
        ("what is larger than all memory begins", "a", "a:150 b@school"),
        ("but alone", "", "x* a@school:150"),
        ("the next of an address waits for its first", "", "x@school:60* a:50 b"),
        ("others overtake it", "b", "x@school:60* a:50 b@street"),
        ("for a while", "", "x@school:60* a:50! b@street"),
        ("but not if its own address is in the way", "b", "x:60* a:50! b@street"),
        ("a quarter is for those who train nothing", "b", "x:60* a:20 b@school:40"),
        ("who holds least comes first", "ba", "x* a b@school"),
        ("a visitor's second job waits, and nobody for it", "b", "x/Anna* a/Anna b/Bert"),
        ("what is paused takes no turn", "abc", "x+ a b c d"),
        ("but memory", "", "x@school:60+ a:50"),
    ],
)
def test_jobs_begin_by_the_rules(rule, ready, jobs):
    """Each rule by hand."""
    assert "".join(queue_of(map(read, jobs.split())).ready()) == ready, rule


JOBS = st.lists(
    st.builds(
        job,
        st.uuids().map(str),
        st.sampled_from(["home", "school", "script"]),
        st.floats(1, 150),
        st.floats(0, 200),
        visitor=st.sampled_from(["", "Anna", "Bert"]),
    ),
    max_size=12,
)


@given(JOBS, st.lists(st.booleans(), min_size=12, max_size=12))
def test_limits_hold_and_nobody_waits_for_nothing(jobs, paused):
    """Jobs begin until nothing has room; each then has an outlook, and a newcomer finds memory."""
    queue = queue_of(jobs)
    began = queue.ready()
    assert bool(began) == bool(jobs)
    for number, name in enumerate(began):
        state = "paused" if paused[number] else "running"
        queue.jobs[name] = replace(queue.jobs[name], begun=True, state=state)
    holding = [queue.jobs[name] for name in began]
    assert sum(each.megabytes for each in holding) <= 100 or len(holding) == 1
    assert max(Counter(each.address for each in holding).values(), default=0) <= 3
    assert max(Counter(each.visitor for each in holding if each.visitor).values(), default=0) <= 1
    places = sorted(queue.outlook(each.id).place for each in jobs if each.id not in began)
    assert places == list(range(1, len(jobs) - len(began) + 1))
    outlooks = [queue.outlook(each.id) for each in jobs]
    assert all(0 <= outlook.begins <= outlook.ends for outlook in outlooks)
    if len({each.address for each in jobs}) == 1 < len(began):
        queue.jobs["new"] = job("new", "street", 25.0)
        assert "new" in queue.ready()


def test_watchers_are_remembered_only_while_a_job_goes_on():
    """Any number of tabs may look at what has ended, or leave what is forgotten."""
    queue = queue_of([job("a", state="finished", begun=True), job("b", begun=True)])
    for number in range(5):
        for name in "ab":
            queue.watch(name, Watcher(f"tab {number}", f"visitor {number}"))
    queue.stop_watching("forgotten", Watcher("tab 0", "visitor 0"))
    assert [len(queue.other_watchers(name)) for name in ("a", "b", "forgotten")] == [0, 5, 0]
    assert list(queue._watchers) == ["b"]
    queue.jobs["b"] = replace(queue.jobs["b"], state="finished")
    queue.watch("b", Watcher("tab", "visitor"))
    assert not queue._watchers


@briefly(10)
@given(st.floats(1, 100), st.integers(1, 20), st.floats(5, 40), st.sampled_from(["home", None]))
def test_nothing_starves(megabytes, seconds, size, address):
    """A large job begins though smaller ones arrive in every second, from anywhere."""
    queue, large = queue_of([]), job("large", "home", megabytes)
    for now in range(10 * seconds + int(OVERTAKE_SECONDS)):
        if now == 10:
            queue.jobs["large"] = large
        name = f"{now}"
        queue.jobs[name] = job(name, address or f"street {now}", size)
        for started in queue.ready():
            at = time.monotonic() + now  # the second in which it ends, kept beside it
            queue.jobs[started] = replace(
                queue.jobs[started], begun=True, state="running", begun_at=at + seconds
            )
        if queue.jobs["large"].begun if now >= 10 else False:
            return
        for each in [*queue.jobs.values()]:
            if each.begun and each.begun_at <= time.monotonic() + now:
                del queue.jobs[each.id]
            elif not each.begun:
                queue.jobs[each.id] = replace(each, submitted_at=each.submitted_at - 1)
    raise AssertionError


def test_a_full_queue_has_places_for_every_address():
    """One that has fewer than its part is not refused; one that has more is, and says how many."""
    queue = queue_of([read("x*"), *(job(f"{n}", waited=1) for n in range(8))])
    queue.jobs["x"] = replace(queue.jobs["x"], megabytes=100.0)
    with pytest.raises(Refused, match="8 experiments wait"):
        queue.check_place(job("more"))
    for number in range(3):
        pupil = job(f"pupil {number}", "school")
        queue.check_place(pupil)
        queue.jobs[pupil.id] = pupil
    with pytest.raises(Refused):
        queue.check_place(job("another", "school"))
    assert len(queue_of([job(f"{n}", "school", 27) for n in range(33)], HOSTED).ready()) == 32
