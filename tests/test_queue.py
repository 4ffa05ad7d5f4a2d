"""The queue of a training service, its limits, and results that are stored before they count."""

import threading
import time
from contextlib import closing
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from threaded import in_threads
from waiting import (
    PATIENCE,
    assert_same_bits,
    assert_stored,
    finish,
    small,
    unending,
    wait_until,
)

from attnkit.experiment import Experiment
from attnkit.service import writer as writer_module
from attnkit.service.jobs import Watcher
from attnkit.service.server import ServerSettings
from attnkit.service.service import Refused, TrainingService
from attnkit.service.store import ResultStore, Unavailable
from attnkit.service.writer import ResultWriter
from attnkit.training import train
from attnkit.training.memory import peak_megabytes

__all__ = ["in_threads"]

ANNA, BERT = Watcher("tab of Anna", "Anna"), Watcher("tab of Bert", "Bert")
CLOSED = "because its tab was closed while others waited"

ONE_AT_A_TIME = ServerSettings(max_active=1, max_waiting=2, visitor_active=1, visitor_waiting=1)


@pytest.fixture(scope="module")
def shared(in_threads, tmp_path_factory):
    """A service with a store."""
    store = ResultStore(tmp_path_factory.mktemp("store"))
    with closing(store), closing(TrainingService(ServerSettings(), store)) as service:
        yield service


@pytest.fixture
def service(shared, monkeypatch):
    """The service, where one experiment trains at a time; all that trains ends with the test."""
    limits(monkeypatch, shared)
    yield shared
    for row in shared.overview():
        shared.stop(row["id"])


def limits(monkeypatch, service, **changed):
    """Give the service these limits for one test."""
    monkeypatch.setattr(service._queue, "settings", ONE_AT_A_TIME.model_copy(update=changed))


def finishes(service, job_id):
    """Whether a job gets its turn and finishes."""
    return wait_until(service, job_id, lambda job: job.over).state == "finished"


def test_who_comes_later_waits_and_can_be_paused_stepped_and_stopped(service, monkeypatch):
    """Its place and how long it takes are told; it does what was asked for last, when it begins.

    Stopped, it never begins.
    """
    limits(monkeypatch, service, visitor_waiting=2)
    first = service.submit(unending(1), watcher=ANNA)
    second = service.submit(small(300, 2), watcher=BERT)
    third = service.submit(unending(2), watcher=BERT)
    assert [service.job(job_id).begun for job_id in (first, second)] == [True, False]
    outlook = service.outlook(second)
    assert (outlook.place, outlook.n_active) == (1, 1)
    assert 0 < outlook.begins <= outlook.ends
    service.stop(third)
    job = service.job(third)
    assert (job.state, job.begun, job.settled, job.over) == ("stopped", False, True, True)
    service.pause(second)
    assert not service.job(second).settled
    service.step(second)
    service.stop(first)
    job = wait_until(service, second, lambda job: job.state == "paused" and job.step)
    assert job.step == 11


def test_more_than_the_limits_wait_or_are_refused(service, monkeypatch):
    """A visitor's second waits though there is room, and a third is refused, as by a full queue."""
    limits(monkeypatch, service, max_active=5)
    service.submit(unending(1), watcher=ANNA)
    second = service.submit(unending(2), watcher=ANNA)
    assert service.job(second).queued
    with pytest.raises(Refused, match="in other tabs"):
        service.submit(unending(3), watcher=ANNA)
    assert service.job(service.submit(unending(3), watcher=ANNA, replaces=second)).queued
    assert service.job(service.submit(unending(4), watcher=BERT)).begun
    limits(monkeypatch, service)
    service.submit(unending(5))
    with pytest.raises(Refused, match="2 experiments wait already: try again"):
        service.submit(unending(6))


def test_limits_hold_whatever_the_page_allows(service, monkeypatch):
    """Each is named with what is allowed, and nothing begins."""
    most = {"max_steps": 3, "max_runs": 1, "max_parameters": 10, "max_megabytes": 1}
    limits(monkeypatch, service, **most)
    before = len(service.overview())
    with pytest.raises(Refused) as refused:
        service.submit(Experiment())
    for name in ("steps: got 600", "n_seeds: got 5", "parameters: got", "memory: got"):
        assert name in str(refused.value)
    assert len(service.overview()) == before


def test_training_time_is_limited(service, monkeypatch):
    """A stopped job keeps its last state, and its error names the limit."""
    limits(monkeypatch, service, job_seconds=0.1)
    job = wait_until(service, service.submit(unending(1)), lambda job: job.over)
    assert job.state == job.snapshot.status == "stopped"
    assert "the limit of this copy" in job.error
    assert job.step > 0


# addresses


def test_a_full_queue_takes_a_place_from_the_address_that_has_most(service, monkeypatch):
    """Its page says why; who comes from elsewhere waits, or trains at once where there is room.

    The owner can stop all of an address: none of it begins meanwhile.
    """
    script = [Watcher(f"tab {n}", f"script {n}", "198.51.100.7") for n in range(4)]
    first, *waiting = [service.submit(unending(n), watcher=script[n]) for n in range(3)]
    with pytest.raises(Refused, match="2 experiments wait already"):
        service.submit(unending(3), watcher=script[3])
    other = service.submit(unending(4), watcher=Watcher("t", "Anna", "203.0.113.9"))
    assert [service.job(job_id).over for job_id in (first, *waiting)] == [False, False, True]
    assert "your network had the most experiments" in service.job(waiting[1]).error
    assert service.job(other).queued
    limits(monkeypatch, service, max_active=2)
    wait_until(service, other, lambda job: job.begun)
    service.stop_address("198.51.100.7")
    stopped = [service.job(job_id) for job_id in (first, waiting[0])]
    assert [(job.state, job.begun) for job in stopped] == [("stopped", True), ("stopped", False)]
    assert {job.error for job in stopped} == {"by the owner of this copy"}
    assert service.job(other).active


# tabs


def test_the_place_of_a_closed_tab_is_free(service):
    """In the queue at once, if somebody needs it; before, whoever comes back keeps it."""
    watchers = [Watcher(f"tab {n}", f"visitor {n}") for n in range(3)]
    for watcher in watchers:
        service.arrive(watcher.tab)
    ids = [service.submit(unending(n), watcher=watchers[n]) for n in range(3)]
    service.leave(watchers[1].tab)
    assert service.outlook(ids[2]).place == 1
    again = Watcher("again", watchers[1].visitor)
    service.arrive(again.tab)
    service.job(ids[1], again)
    service._queue._outlooks = (0.0, {})
    assert service.outlook(ids[2]).place == 2
    service.leave(again.tab)
    service.submit(unending(4), watcher=ANNA)
    assert service.job(ids[1]).error == CLOSED


def test_what_trains_and_whose_tab_is_closed_makes_room_for_others(service, monkeypatch):
    """Not before somebody waits, and not while the tab may come back."""
    service.arrive(ANNA.tab)
    job_id = service.submit(unending(1), watcher=ANNA)
    service.leave(ANNA.tab)
    monkeypatch.setattr("attnkit.service.job_queue.CLOSED_SECONDS", 0.0)
    with service._changed:
        service._keep_order()
    assert service._queue.jobs[job_id].active  # `look` would be somebody who watches it
    assert finishes(service, service.submit(small(5, 2), watcher=BERT))
    assert service._queue.jobs[job_id].error == CLOSED


def test_what_is_paused_makes_room_when_others_wait(service, monkeypatch):
    """It holds memory that others need; its owner is told."""
    monkeypatch.setattr("attnkit.service.job_queue.PAUSED_IN_THE_WAY_SECONDS", 0.0)
    each = peak_megabytes(unending(1))
    limits(monkeypatch, service, training_megabytes=1.5 * each)
    first = service.submit(unending(1), paused=True, watcher=ANNA)
    wait_until(service, first, lambda job: job.state == "paused" and job.settled)
    assert finishes(service, service.submit(small(5, 2), watcher=BERT))
    assert service.job(first).state == "paused"
    too_large = service.submit(unending(2), watcher=BERT)
    wait_until(service, too_large, lambda job: job.begun)
    assert service.job(first).error == "because others waited for its memory"


def test_a_run_that_others_watch_is_theirs_too(service):
    """Who turns away ends it only if nobody else is there."""
    job_id = service.submit(unending(1), watcher=ANNA)
    assert not service.is_shared(job_id, ANNA)
    assert service.submit(unending(1), watcher=BERT) == job_id
    assert service.is_shared(job_id, ANNA)
    service.stop_watching(job_id, ANNA)
    assert service.job(job_id).active
    service.stop_watching(job_id, BERT)
    assert service.job(job_id).state == "stopped"


def test_a_tab_that_is_there_keeps_its_run(service, monkeypatch):
    """It need not look; when it has left, the lease runs."""
    service.arrive(ANNA.tab)
    job_id = service.submit(unending(1), watcher=ANNA)
    limits(monkeypatch, service, lease_seconds=1e-6)
    service.submit(small(5, 2), watcher=BERT)  # asking looks for what nobody watches
    assert service.job(job_id).active
    service.leave(ANNA.tab)
    wait_until(service, job_id, lambda job: job.over)


# results


def test_a_result_is_stored_before_it_counts_as_finished(service):
    """The store has what `train` gives, weights included, and another service finds it.

    If that trains the same again, its job is finished and stored, too.
    """
    job_id = service.submit(small(33, 3))
    job = wait_until(service, job_id, lambda job: job.state == "finished")
    assert (job.stored, job.unstored) == (True, "")
    store = service._writer._store
    kept, expected = store.result(job.experiment.hash), train(small(33, 3), "cpu")
    assert_same_bits(kept.snapshot, expected.snapshot)
    assert kept.to_blobs()[1] == expected.to_blobs()[1]
    with closing(TrainingService(ServerSettings(), store)) as other:
        found = other.find(small(33, 3))
        assert (found.state, found.stored, found.step) == ("finished", True, 33)
        assert other.job(found.id) is not None
        assert other.find(small(22, 5)) is None
        again = wait_until(other, other.submit(small(33, 3)), lambda job: job.over)
        assert (again.state, again.stored) == ("finished", True)


def test_a_pause_that_comes_too_late_does_not_leave_a_job_paused(service, monkeypatch):
    """Meanwhile the run has ended: while it is stored, it is shown as going on, not as paused."""
    release, put = threading.Event(), service._writer._store.put
    monkeypatch.setattr(
        service._writer._store, "put", lambda *blobs: release.wait(PATIENCE) and put(*blobs)
    )
    process = service._supervisor.process
    job_id = service.submit(small(44, 6))
    wait_until(service, job_id, lambda job: job.begun)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(process, "send", lambda message: None)
        service.pause(job_id)
        storing = wait_until(service, job_id, lambda job: job.storing)
    release.set()
    assert storing.active
    assert wait_until(service, job_id, lambda job: job.state == "finished").stored


away = Mock(side_effect=Unavailable("the database cannot be reached"))
"""Stands for a store that does not answer."""


def test_results_wait_for_a_store_that_is_away(service, monkeypatch):
    """Training goes on, and no page waits for it; in the end all results are stored."""
    monkeypatch.setattr(writer_module, "RETRY_SECONDS", 0.001)
    store, read = service._writer._store, []
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(store, "put", away)
        meanwhile.setattr(store, "snapshot", lambda key: read.append(key) or away())
        jobs = finish(service, *(small(5, first_seed) for first_seed in range(10, 13)))
        states = {(job.state, job.stored, job.unstored) for job in jobs}
        assert states == {("finished", False, "the database cannot be reached")}
        assert [service.find(small(5, 9)) for _ in range(5)] == [None] * 5
        assert len(read) == 1
    assert_stored(service, jobs)
    for job in jobs:
        assert_same_bits(store.snapshot(job.experiment.hash), job.snapshot)


def test_what_waits_for_the_store_is_bounded(monkeypatch):
    """The oldest are given up and told, the newest is tried again; a reason is told once."""
    monkeypatch.setattr(writer_module, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(writer_module, "MAX_BYTES", 4)
    told, tried = [], threading.Semaphore(0)
    store = SimpleNamespace(put=lambda *_: tried.release() or away())
    with closing(ResultWriter(store, lambda *said: told.append(said))) as writer:
        for name in "abc":
            writer.write(name, b"12", b"34")
        for _ in range(10):
            assert tried.acquire(timeout=PATIENCE)
    given_up = [(name, "too many results wait for the store", False) for name in "ab"]
    assert [said for said in told if not said[2]] == given_up
    assert ("c", "the database cannot be reached", True) in told
    assert len(told) == len(set(told))


# a clock that jumps


def test_a_jump_of_the_clock_neither_ends_nor_prolongs_a_lease(service, monkeypatch):
    """Jumps of the wall clock leave leases alone: only jobs without viewers end."""
    limits(monkeypatch, service, max_active=3)
    real, year, cleo = time.time_ns, 365 * 86400, Watcher("open tab", "Cleo")
    service.arrive(cleo.tab)
    watched, abandoned = service.submit(unending(1), watcher=cleo), service.submit(unending(2))
    for job_id in (watched, abandoned):
        wait_until(service, job_id, lambda job: job.step > 0)
    for jump in (2 * year, -2 * year):
        monkeypatch.setattr(time, "time_ns", lambda jump=jump: real() + jump * 10**9)
        monkeypatch.setattr(time, "time", lambda jump=jump: real() / 1e9 + jump)
        (job,) = finish(service, small(5, jump > 0))  # asking looks for what nobody watches
        assert_stored(service, [job])
        assert service.find(unending(2)).state == "running"
    limits(monkeypatch, service, lease_seconds=0.5)
    wait_until(service, watched, lambda _: service.find(unending(2)) is None)
    assert service.job(watched).state == "running"
    assert service.job(abandoned).error == "because nobody watched it"
