"""The training service, whose process is a thread here: turns, ends of jobs, stored results."""

import sys
import threading
from contextlib import ExitStack, closing
from functools import cache
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from searching import briefly
from threaded import ThreadProcess, in_threads
from waiting import PATIENCE, assert_same_bits, assert_stored, finish, small, unending, wait_until

from attnkit.experiment import Experiment
from attnkit.service.jobs import Watcher
from attnkit.service.server import ServerSettings
from attnkit.service.service import Refused, TrainingService
from attnkit.service.store import ResultWriter, Unavailable
from attnkit.training import Training, train
from attnkit.training.memory import peak_megabytes

__all__ = ["in_threads"]

ANNA, BERT = Watcher("tab of Anna", "Anna"), Watcher("tab of Bert", "Bert")

ONE_AT_A_TIME = {"max_active": 1, "max_waiting": 2, "visitor_active": 1, "visitor_waiting": 1}


@pytest.fixture
def serve(in_threads, open_store):
    """Begin services, `serve(store, max_active=2)`, that end before their stores."""
    with ExitStack() as opened:

        def begin(store=None, **limits):
            allowed = ServerSettings().model_copy(update=limits)
            service = opened.enter_context(closing(TrainingService(allowed, store)))
            for watcher in (ANNA, BERT):
                service.arrive(watcher.tab)
            return service

        yield begin


@cache
def trained(first_seed):
    """Return the snapshot of a training without any service."""
    return train(small(300, first_seed), "cpu").snapshot


def over(service, job_id):
    """Return a job that is over."""
    return wait_until(service, job_id, lambda job: job.over)


@pytest.fixture(scope="module")
def service(in_threads):
    """A service for tests that leave no job behind."""
    with closing(TrainingService()) as opened:
        yield opened


VERBS = st.sampled_from(["pause", "step", "resume", "stop", "job", "kill"])


@settings(
    briefly(7),
    phases=[Phase.generate],  # times differ, so nothing can be made simpler
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    paused=st.tuples(st.booleans(), st.booleans()),
    commands=st.lists(st.tuples(VERBS, st.integers(0, 1)), max_size=12),
)
def test_whatever_is_commanded_jobs_end_with_the_bits_of_train(
    serve, in_threads, monkeypatch, paused, commands
):
    """A pause holds the step, a step ends at the next evaluation, what is killed begins anew."""
    monkeypatch.setattr("attnkit.service.service.MAX_RESTARTS", 99)
    service = serve()
    ids = [service.submit(small(300, n), paused=paused[n]) for n in range(2)]
    killed = False
    for verb, n in commands:
        both = [wait_until(service, each, lambda job: job.settled or job.active) for each in ids]
        before = both[n]
        if verb == "kill" and not all(job.over for job in both):
            in_threads[-1].kill()
            killed = True
            for b in both:
                now = wait_until(
                    service, b.id, lambda now, b=b: now.over or now.restarts > b.restarts
                )
                assert now.over or (now.state == "paused") == (b.state == "paused")
                if now.state == "paused":
                    assert wait_until(service, b.id, lambda now: now.settled).step == 0
            continue
        if verb != "kill":
            getattr(service, verb)(ids[n])
        after = wait_until(service, ids[n], lambda job: job.settled or job.active)
        if before.over:
            assert (after.state, after.version) == (before.state, before.version)
        elif verb in ("pause", "step"):
            after = wait_until(service, ids[n], lambda job: job.settled)
            assert after.state in ("paused", "finished")
            if before.state == "paused":
                further = (before.step // 11 + 1) * 11 if verb == "step" else before.step
                assert after.step == min(further, 300)
            assert verb == "pause" or after.step % 11 == 0 or after.step == 300
        elif verb == "stop":
            assert after.state in ("stopped", "finished")
        assert killed or after.step >= before.step
    for n, job_id in enumerate(ids):
        service.resume(job_id)
        ended = wait_until(service, job_id, lambda job: job.over and job.settled)
        assert ended.state == (ended.snapshot.status if ended.snapshot else "stopped")
        if ("stop", n) not in commands or ended.state == "finished":
            assert_same_bits(ended.snapshot, trained(n))


def test_what_kills_its_process_is_blamed_and_fails_alone(service, monkeypatch):
    """Jobs beside it begin anew and keep their bits; an example that kills is not drawn again."""
    monkeypatch.setattr("attnkit.service.service.MAX_RESTARTS", 1)

    def advance(training, n_steps, advance=Training.advance):
        if training.experiment == small(301):
            raise SystemExit  # ends the thread, as a crash ends a process
        return advance(training, n_steps)

    monkeypatch.setattr(Training, "advance", advance)
    before = service.supervisor.n_restarts
    ids = [service.submit(of, paused=True) for of in (small(300), small(301), small(300, 1))]
    for job_id in ids:
        wait_until(service, job_id, lambda job: job.settled)
    for job_id in ids:
        service.resume(job_id)
    ended = [over(service, job_id) for job_id in ids]
    assert [job.state for job in ended] == ["finished", "failed", "finished"]
    assert [job.blamed for job in ended] == [0, 1, 0]
    # A job that comes after the first death is in company with the second one.
    assert service.supervisor.n_restarts - before in (2, 3)
    assert "died" in ended[1].error
    assert_same_bits(ended[0].snapshot, trained(0))
    drawn = []
    monkeypatch.setattr(
        "attnkit.service.answers.draw_example", lambda of: drawn.append(of) or sys.exit()
    )
    (told,) = {service.example(small(302), PATIENCE) for _ in range(5)}
    assert "died" in told
    assert len(drawn) == 1


def test_a_process_that_is_silent_or_cannot_be_started_is_replaced(serve, in_threads, monkeypatch):
    """Its jobs end with the same bits, and those that ended before are as they were."""
    service, refusals = serve(), [OSError()]
    (before,) = finish(service, small(5))
    job_id = service.submit(small(300), paused=True)
    wait_until(service, job_id, lambda job: job.settled)
    with monkeypatch.context() as impatient:

        def refuse_first():
            if refusals:
                raise refusals.pop()
            impatient.undo()
            return ThreadProcess()

        impatient.setattr(in_threads[-1], "write", lambda frame: None)
        impatient.setattr("attnkit.service.process.SILENT_CHECKS", 5)
        impatient.setattr("attnkit.service.process.TrainingProcess", refuse_first)
        service.resume(job_id)
        ended = over(service, job_id)
    assert (ended.state, ended.restarts, refusals) == ("finished", 1, [])
    assert_same_bits(ended.snapshot, trained(0))
    assert service.job(before.id).state == "finished"


def test_a_closed_service_takes_commands_in_silence(serve):
    """Pages may be drawn during the shutdown, and unknown jobs do no harm."""
    service = serve()
    service.close()
    known = service.submit(small(5))
    for steer in (service.pause, service.resume, service.step):
        steer(known)
        steer("unknown")
    assert not service.job(known).over
    assert service.job("unknown") is service.wait("unknown", 0, PATIENCE) is None


def test_the_same_experiment_is_trained_once(service):
    """Not if it begins paused. Who turns away ends a run only if nobody else watches it."""
    first = service.submit(unending(7), watcher=Watcher("tab", "visitor", "1.1.1.1"))
    assert service.submit(unending(7)) == first
    wait_until(service, first, lambda job: job.step > 0)
    assert service.submit(unending(7)) == first
    second = service.submit(unending(7), paused=True)
    assert second != first  # step 0 is for oneself
    assert service.find(unending(7)).id == first
    service.resume(second)
    wait_until(service, second, lambda job: job.step > 0)
    assert service.find(unending(8)) is None
    for newest in (second, first):
        assert service.find(unending(7)).id == newest
        service.stop(newest)
    assert service.find(unending(7)) is None
    over(service, first)
    shared = service.submit(unending(1), watcher=ANNA)
    service.arrive(ANNA.tab)
    service.leave(ANNA.tab)
    reloaded = Watcher("again", ANNA.visitor)
    assert service.submit(unending(1), watcher=reloaded) == shared
    assert not service.is_shared(shared, reloaded)
    assert service.submit(unending(1), watcher=BERT) == shared
    assert service.is_shared(shared, reloaded)
    service.stop_watching(shared, reloaded)
    assert service.job(shared).active
    service.stop_watching(shared, BERT)
    assert service.job(shared).state == "stopped"


@pytest.mark.parametrize(("limit", "most", "kept"), [("MAX_JOBS", 2, 2), ("MAX_BYTES", 1, 1)])
def test_ended_jobs_are_forgotten_beyond_a_limit(service, monkeypatch, limit, most, kept):
    """The least recently viewed ones go first, but never the last one."""
    monkeypatch.setattr(f"attnkit.service.jobs.{limit}", most)
    ids = [job.id for _ in range(4) for job in finish(service, small(1))]
    assert [service.job(job_id) is None for job_id in ids] == [True] * (4 - kept) + [False] * kept
    assert service.job(ids[-1]).n_bytes > 1


def test_who_comes_later_waits_and_can_be_paused_stepped_and_stopped(serve):
    """A job does what was asked for last when it begins; stopped, it never begins."""
    service = serve(**{**ONE_AT_A_TIME, "visitor_waiting": 2})
    first = service.submit(unending(1), watcher=ANNA)
    second = service.submit(small(300, 2), watcher=BERT)
    third = service.submit(unending(2), watcher=BERT)
    assert [service.job(job_id).begun for job_id in (first, second)] == [True, False]
    service.stop(third)
    job = service.job(third)
    assert (job.state, job.begun, job.settled, job.over) == ("stopped", False, True, True)
    service.pause(second)
    assert not service.job(second).settled
    service.step(second)
    service.stop(first)
    job = wait_until(service, second, lambda job: job.state == "paused" and job.step)
    assert job.step == 11


def test_more_than_the_limits_wait_or_are_refused(serve):
    """Whoever comes from elsewhere is not shut out by an address that has most."""
    service = serve(**{**ONE_AT_A_TIME, "max_active": 2})
    service.submit(unending(1), watcher=ANNA)
    second = service.submit(unending(2), watcher=ANNA)
    assert service.job(second).queued
    with pytest.raises(Refused, match="other tabs"):
        service.submit(unending(3), watcher=ANNA)
    third = service.submit(unending(3), watcher=ANNA, replaces=second)
    assert service.job(third).queued
    service.stop(second)
    service.stop(third)
    script = [Watcher(f"tab {n}", f"script {n}", "198.51.100.7") for n in range(3)]
    jobs = [service.submit(unending(4 + n), watcher=watcher) for n, watcher in enumerate(script)]
    assert [service.job(job_id).begun for job_id in jobs] == [True, True, False]
    other = service.submit(unending(9), watcher=Watcher("t", "Cleo", "203.0.113.9"))
    service.stop_address("198.51.100.7")
    stopped = [service.job(job_id) for job_id in jobs]
    assert [job.state for job in stopped] == ["stopped"] * 3
    assert all("owner" in job.error for job in stopped)
    assert service.job(other).active


def test_limits_of_an_experiment_hold_whatever_the_page_allows(serve):
    """All are named with what is allowed; what trains for too long keeps its last state."""
    service = serve(max_steps=3, max_runs=1, max_parameters=10, max_megabytes=1)
    with pytest.raises(Refused, match=r"steps: .*n_seeds: .*parameters: .*memory: "):
        service.submit(Experiment())
    assert service.overview() == []
    service = serve(job_seconds=0.1)
    job = over(service, service.submit(unending(1)))
    assert job.state == job.snapshot.status == "stopped"
    assert "limit" in job.error
    assert job.step > 0


def test_what_a_closed_tab_trains_goes_on_and_who_comes_back_joins_it(serve, open_store, tmp_path):
    """Whether it trains or waits; its result is stored; jumps of the wall clock change nothing."""
    service = serve(open_store(tmp_path), **ONE_AT_A_TIME)
    ids = [service.submit(small(300, n), watcher=w) for n, w in enumerate((ANNA, BERT))]
    for watcher in (ANNA, BERT):
        service.leave(watcher.tab)
    again = Watcher("again", BERT.visitor)
    service.arrive(again.tab)
    assert service.find(small(300, 1), again).id == ids[1]
    assert not service.is_shared(ids[1], again)
    other = service.submit(small(300, 2), watcher=again)  # what was left does not count as theirs
    for job_id in (*ids, other):
        assert wait_until(service, job_id, lambda job: job.stored).state == "finished"


def test_what_its_server_has_not_survived_begins_anew_for_who_began_it(
    serve, open_store, where, monkeypatch
):
    """Nothing else does, and what no server survives fails and says so."""
    monkeypatch.setattr("attnkit.service.service.MAX_RESTARTS", 1)
    hers = [small(5), unending(1), unending(2), unending(3)]
    service = serve(open_store(where))
    finished, stopped, *_ = ids = [
        service.submit(one, watcher=ANNA, paused=one == hers[2]) for one in hers
    ]
    service.stop(stopped)
    wait_until(service, finished, lambda job: job.stored)
    assert service.submit(hers[3], watcher=BERT) == ids[3]
    assert [service.restore(one, ANNA) for one in hers] == [None] * 4  # this server has not died
    for deaths in (1, 2):
        service.close()
        service = serve(open_store(where))
        began = [service.restore(one, ANNA) for one in hers]
        assert began[:3] == [None] * 3
        assert (began[3].experiment, began[3].state) == (
            hers[3],
            "waiting" if deaths == 1 else "failed",
        )
    assert service.restore(hers[3], BERT).restarts == 1  # whose own training has died once only


def test_what_is_paused_makes_room_for_others(serve, monkeypatch):
    """Not before somebody waits for its memory."""
    monkeypatch.setattr("attnkit.service.jobs.PAUSED_SECONDS", 0.0)
    service = serve(**ONE_AT_A_TIME, training_megabytes=1.5 * peak_megabytes(unending(1)))
    paused = service.submit(unending(1), paused=True, watcher=ANNA)
    wait_until(service, paused, lambda job: job.state == "paused" and job.settled)
    assert over(service, service.submit(small(6, 2), watcher=BERT)).state == "finished"
    assert service.job(paused).state == "paused"  # both had room
    wait_until(service, service.submit(unending(2), watcher=BERT), lambda job: job.begun)
    assert "memory" in service.job(paused).error


def test_a_result_is_stored_before_it_counts_as_finished(serve, open_store, tmp_path):
    """Another service on the same store finds it."""
    store = open_store(tmp_path)
    service = serve(store)
    job = wait_until(service, service.submit(small(33, 3)), lambda job: job.state == "finished")
    assert (job.stored, job.unstored) == (True, "")
    other = serve(store)
    found = other.find(small(33, 3))
    assert (found.state, found.stored, found.step) == ("finished", True, 33)
    assert other.job(found.id) is not None
    assert other.find(small(22, 5)) is None
    again = over(other, other.submit(small(33, 3)))
    assert (again.state, again.stored) == ("finished", True)


def test_results_wait_for_a_store_that_is_away(serve, open_store, tmp_path, monkeypatch, capsys):
    """Training goes on, and no page waits for it; in the end all results are stored.

    Of an unexpected error the log has the type only, because its text may hold anything.
    """
    monkeypatch.setattr("attnkit.service.store.RETRY_SECONDS", 0.001)
    store, away = open_store(tmp_path), Mock(side_effect=Unavailable("the database is away"))
    service, read = serve(store), Mock(side_effect=away.side_effect)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(store, "put", away)
        meanwhile.setattr(store, "snapshot", read)
        jobs = finish(service, *(small(5, first_seed) for first_seed in range(10, 13)))
        found = {(job.state, job.stored, job.unstored, job.tried_again) for job in jobs}
        assert found == {("finished", False, "the database is away", True)}
        assert [service.find(small(5, 9)) for _ in range(5)] == [None] * 5
        assert read.call_count == 1
    assert_stored(service, jobs)
    monkeypatch.setattr(store, "put", Mock(side_effect=OSError("no room at /home/eva")))
    (job,) = finish(service, small(5, 13))
    assert "eva" in job.unstored
    assert "eva" not in capsys.readouterr().err


def test_what_waits_for_the_store_is_bounded(monkeypatch):
    """The oldest are given up and told, the newest is tried again; a reason is told once."""
    monkeypatch.setattr("attnkit.service.store.RETRY_SECONDS", 0.001)
    monkeypatch.setattr("attnkit.service.store.MAX_BYTES", 4)
    told, tried = [], threading.Semaphore(0)

    def put(*_):
        tried.release()
        raise Unavailable("the database is away")

    with closing(ResultWriter(SimpleNamespace(put=put), lambda *said: told.append(said))) as writer:
        for name in "abc":
            writer.write(name, b"12", b"34")
        for _ in range(10):
            assert tried.acquire(timeout=PATIENCE)
    assert [name for name, reason, again in told if not again] == ["a", "b"]
    assert ("c", "the database is away", True) in told
    assert len(told) == len(set(told))
