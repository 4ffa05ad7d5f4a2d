"""Jobs of a training service: begun, paused, stepped, stopped, shared and forgotten."""

import sys
from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from searching import briefly
from threaded import ThreadProcess, in_threads
from waiting import (
    PATIENCE,
    assert_same_bits,
    finish,
    small,
    the_example,
    unending,
    wait_until,
)

from attnkit.service import answers, control, jobs, process
from attnkit.service.jobs import Watcher
from attnkit.service.service import TrainingService
from attnkit.training import Training, train

__all__ = ["in_threads"]

pytestmark = pytest.mark.usefixtures("in_threads")


@cache
def trained(first_seed):
    """The snapshot of a training without any service."""
    return train(small(300, first_seed), "cpu").snapshot


def kill(service, ids):
    """Kill the training process, and wait until all jobs that are not over have begun anew."""
    before = [service.job(job_id) for job_id in ids]
    service._supervisor.process.kill()
    for job in before:
        now = wait_until(service, job.id, lambda now, b=job: now.over or now.restarts > b.restarts)
        if not now.over:
            assert (now.state == "paused") == (job.state == "paused")
        if now.state == "paused":
            assert wait_until(service, job.id, lambda now: now.settled).step == 0


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
    service, monkeypatch, paused, commands
):
    """Two jobs share a process that may be killed: a job that is over stays so.

    Otherwise a pause holds the step, a step ends at the next evaluation, and what is killed begins
    anew at step 0.
    """
    monkeypatch.setattr("attnkit.service.control.MAX_RESTARTS", 99)
    ids = [service.submit(small(300, n), paused=paused[n]) for n in range(2)]
    killed = False
    for verb, n in commands:
        both = [wait_until(service, each, lambda job: job.settled or job.active) for each in ids]
        before = both[n]
        if verb == "kill" and not all(job.over for job in both):
            kill(service, ids)
            killed = True
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
        if ended.snapshot is None:  # it was stopped before it was built
            assert ended.state == "stopped"
            continue
        assert ended.state == ended.snapshot.status
        if ("stop", n) not in commands or ended.state == "finished":
            assert_same_bits(ended.snapshot, trained(n))


def test_what_kills_its_process_is_blamed_and_fails_alone(service, monkeypatch):
    """Jobs beside it begin anew and keep their bits; an example that kills is not drawn again."""
    monkeypatch.setattr(control, "MAX_RESTARTS", 1)

    def advance(training, n_steps, advance=Training.advance):
        if training.experiment == small(301):
            raise SystemExit  # ends the thread, as a crash ends a process
        return advance(training, n_steps)

    monkeypatch.setattr(Training, "advance", advance)
    before = service.n_restarts
    experiments = [small(300), small(301), small(300, 1)]
    ids = [service.submit(experiment, paused=True) for experiment in experiments]
    for job_id in ids:
        wait_until(service, job_id, lambda job: job.settled)
    for job_id in ids:
        service.resume(job_id)
    ended = [wait_until(service, job_id, lambda job: job.over) for job_id in ids]
    assert [job.state for job in ended] == ["finished", "failed", "finished"]
    assert [job.blamed for job in ended] == [0, 1, 0]
    assert service.n_restarts - before == 2
    assert ended[1].error == "the training process died"
    assert_same_bits(ended[0].snapshot, trained(0))
    drawn = []
    monkeypatch.setattr(answers, "draw_example", lambda of: drawn.append(of) or sys.exit())
    found = {service.example(small(302), PATIENCE) for _ in range(5)}
    assert found == {"The training process died while it answered this request"}
    assert len(drawn) == 1


def test_a_process_that_is_silent_or_cannot_be_started_is_replaced(service, monkeypatch):
    """Its jobs end with the same bits, and those that ended before are as they were."""
    before, refusals = finish(service, small(5))[0], [OSError()]
    job_id = service.submit(small(300), paused=True)
    wait_until(service, job_id, lambda job: job.settled)

    def refuse_first():
        if refusals:
            raise refusals.pop()
        return ThreadProcess()

    monkeypatch.setattr("attnkit.service.process.TrainingProcess", refuse_first)
    with monkeypatch.context() as impatient:
        impatient.setattr(service._supervisor.process, "write", lambda frame: None)
        impatient.setattr(process, "CHECK_SECONDS", 0.1)
        impatient.setattr(process, "SILENT_CHECKS", 5)
        service.resume(job_id)
        wait_until(service, job_id, lambda job: job.restarts == 1)
    ended = wait_until(service, job_id, lambda job: job.over)
    assert (ended.state, refusals) == ("finished", [])
    assert_same_bits(ended.snapshot, trained(0))
    assert service.job(before.id).state == "finished"


def test_a_closed_service_takes_commands_in_silence():
    """Pages may be drawn during the shutdown; it was closed twice. Unknown jobs do no harm."""
    service = TrainingService()
    for _ in range(2):
        service.close()
    known = service.submit(small(5))
    for job_id in (known, "unknown"):
        for steer in (service.pause, service.resume, service.step):
            steer(job_id)
    assert not service.job(known).over
    assert service.job("unknown") is service.wait("unknown", 0, PATIENCE) is None


def test_the_same_experiment_is_trained_once(service):
    """A second submission joins the job that waits or trains, unless it begins paused.

    `find` returns the newest active job, or nothing. An example comes while they train.
    """
    first = service.submit(unending(7))
    assert service.submit(unending(7)) == first
    wait_until(service, first, lambda job: job.step > 0)
    assert service.submit(unending(7)) == first
    second = service.submit(unending(7), paused=True)
    assert second != first  # step 0 is for oneself
    assert service.find(unending(7)).id == first
    service.resume(second)
    wait_until(service, second, lambda job: job.step > 0)
    assert service.find(unending(8)) is None
    assert len(the_example(service, unending().replace(n_values=8)).tokens) == 5
    for newest in (second, first):
        assert service.find(unending(7)).id == newest
        service.stop(newest)
    assert service.find(unending(7)) is None


def test_others_train_while_a_job_of_another_address_takes_turns(service):
    """A job that waits to begin, is paused or has ended takes none."""
    job_id = service.submit(unending(9), watcher=Watcher("tab", "visitor", "1.1.1.1"))
    wait_until(service, job_id, lambda job: job.step > 0)
    assert service.others_train("2.2.2.2")
    assert not service.others_train("1.1.1.1")
    service.stop(job_id)
    wait_until(service, job_id, lambda job: job.over)
    assert not service.others_train("2.2.2.2")


@pytest.mark.parametrize(("limit", "most", "kept"), [("MAX_JOBS", 2, 2), ("MAX_BYTES", 1, 1)])
def test_ended_jobs_are_forgotten_beyond_a_number_and_a_size(
    service, monkeypatch, limit, most, kept
):
    """The least recently viewed ones first, but never the last one."""
    monkeypatch.setattr(jobs, limit, most)
    ids = []
    for _ in range(4):
        ids.append(service.submit(small(1)))
        wait_until(service, ids[-1], lambda job: job.over)
    assert [service.job(job_id) is None for job_id in ids] == [True] * (4 - kept) + [False] * kept
    assert service.job(ids[-1]).n_bytes > 1


def test_a_paused_job_nobody_looks_at_is_stopped_later(service, monkeypatch):
    """After `paused_seconds`, not after `lease_seconds`."""
    job_id = service.submit(small(300), paused=True)
    wait_until(service, job_id, lambda job: job.settled)
    for name, state in (("lease_seconds", "paused"), ("paused_seconds", "stopped")):
        settings = service.settings.model_copy(update={name: 1e-6})
        monkeypatch.setattr(service._queue, "settings", settings)
        service.submit(small(1))  # asking looks for what nobody watches
        assert service.job(job_id).state == state
    assert service.job(job_id).error == "because nobody watched it"
