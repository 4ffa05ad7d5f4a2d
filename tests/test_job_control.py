"""Jobs of a training service: begun, paused, stepped, stopped, shared and forgotten."""

import pytest
from waiting import (
    PATIENCE,
    STILL,
    UNENDING,
    assert_same_bits,
    small,
    step_of,
    the_example,
    unending,
    wait_until,
    wait_until_still,
)

from attnkit.service import ended_jobs
from attnkit.training import train

pytestmark = pytest.mark.server


@pytest.fixture
def job(service):
    """The identifier of a job that goes on until the test ends."""
    started = service.submit(unending())
    wait_until(service, started, lambda job: step_of(job) > 0)
    yield started
    service.stop(started)


@pytest.fixture(scope="module")
def reference():
    """The snapshot of the same training without any service."""
    return train(small(300), "cpu").snapshot


def set_limits(monkeypatch, service, **limits):
    """Give the service other limits for one test."""
    monkeypatch.setattr(service._queue, "settings", service.settings.model_copy(update=limits))


def test_a_job_ends_finished_with_the_bits_of_train(service, reference):
    """Also beside another, and after it was held at step 0, stepped and resumed."""
    other = service.submit(unending(5))
    alone, held = service.submit(small(300)), service.submit(small(300), paused=True)
    assert wait_until_still(service, held, "paused").snapshot.step == 0
    for _ in range(3):
        service.step(held)
        wait_until_still(service, held, "paused")
    assert service.look(held).snapshot.step == 33
    service.resume(held)
    for job_id in (alone, held):
        job = wait_until(service, job_id, lambda job: job.over)
        assert job.state == job.snapshot.status == "finished"
        assert (job.restarts, job.active) == (0, False)
        assert_same_bits(job.snapshot, reference)
    service.stop(other)


def test_two_jobs_share_the_process_and_steps_never_fall(service, job):
    """Both advance before either ends; versions count up."""
    other = service.submit(unending(1))
    seen = {job: [service.look(job)], other: [service.look(other)]}
    for job_id, looks in seen.items():
        looks += [wait_until(service, job_id, lambda now, b=looks[0]: step_of(now) > step_of(b))]
    for job_id, looks in seen.items():
        step = step_of(looks[-1])
        looks += [wait_until(service, job_id, lambda now, b=step: step_of(now) > b)]
        assert [one.version for one in looks] == sorted(one.version for one in looks)
        assert [step_of(one) for one in looks] == sorted(step_of(one) for one in looks)
        assert looks[-1].state == "running"
    service.stop(other)


def test_pause_holds_the_step_and_step_stops_at_the_next_evaluation(service, job):
    """Nothing is trained while a job is paused; resume goes on from there."""
    service.pause(job)
    paused = wait_until_still(service, job, "paused")
    held = paused.snapshot.step
    assert 0 < held < UNENDING["steps"]
    assert not paused.active
    assert not paused.over
    service.step(job)
    after = wait_until_still(service, job, "paused").snapshot
    assert after.step == after.eval_steps[-1] == (held // 11 + 1) * 11
    service.resume(job)
    wait_until(service, job, lambda job: job.state == "running" and step_of(job) > after.step)


def test_step_ends_at_the_last_step(service):
    """Step ends at the last step, although it is no multiple of the interval."""
    job_id = service.submit(small(20), paused=True)
    for _ in range(2):
        service.step(job_id)
        ended = wait_until(service, job_id, lambda job: job.state in ("paused", "finished"))
        wait_until_still(service, job_id, ended.state)
    assert service.look(job_id).state == "finished"
    assert service.look(job_id).snapshot.step == 20


def test_stop_keeps_the_last_snapshot(service, job):
    """A stopped job keeps its last snapshot, marked as stopped."""
    reached = service.look(job).snapshot.step
    service.stop(job)
    stopped = wait_until(service, job, lambda job: job.settled)
    assert stopped.state == stopped.snapshot.status == "stopped"
    assert reached <= stopped.snapshot.step < UNENDING["steps"]
    assert service.wait(job, stopped.version, STILL).version == stopped.version


def test_a_job_that_is_over_cannot_be_steered(service):
    """Commands to a job that is over change nothing."""
    job_id = service.submit(small(5))
    ended = wait_until(service, job_id, lambda job: job.over)
    for steer in (service.pause, service.resume, service.step, service.stop):
        steer(job_id)
    assert service.wait(job_id, ended.version, STILL).version == ended.version
    assert service.look(job_id).state == "finished"


def test_an_example_comes_while_a_job_trains(service, job):
    """The training process draws an example between two turns of a job."""
    assert len(the_example(service, unending().replace(n_values=8)).tokens) == 5
    assert service.look(job).state == "running"


def test_the_same_experiment_is_trained_once(service):
    """A second submission joins the job that waits or trains, unless it begins paused."""
    first = service.submit(unending(7))
    assert service.submit(unending(7)) == first
    wait_until(service, first, lambda job: step_of(job) > 0)
    assert service.submit(unending(7)) == first
    assert service.submit(unending(7), paused=True) != first  # step 0 is for oneself
    service.stop(first)


def test_find_gives_the_newest_job_of_the_same_experiment(service):
    """`find` returns the newest active job of an experiment, or nothing."""
    ids = [service.submit(unending(7), paused=True) for _ in range(2)]
    for job_id in ids:
        service.resume(job_id)
        wait_until(service, job_id, lambda job: step_of(job) > 0)
    assert service.find(unending(7)).id == ids[1]
    assert service.find(unending(8)) is None
    service.stop(ids[1])
    assert service.find(unending(7)).id == ids[0]
    service.stop(ids[0])
    assert service.find(unending(7)) is None


def test_unknown_jobs_are_harmless(service):
    """Commands to an unknown job do nothing, and it is looked up as None."""
    for steer in (service.pause, service.resume, service.step, service.stop):
        steer("unknown")
    assert service.look("unknown") is None
    assert service.wait("unknown", 0, PATIENCE) is None


@pytest.mark.parametrize(("limit", "most", "kept"), [("MAX_JOBS", 2, 2), ("MAX_BYTES", 1, 1)])
def test_ended_jobs_are_forgotten_beyond_a_number_and_a_size(
    service, monkeypatch, limit, most, kept
):
    """The least recently viewed ones first, but never the last one."""
    assert ended_jobs.MAX_JOBS > 2
    monkeypatch.setattr(ended_jobs, limit, most)
    ids = []
    for _ in range(4):
        ids.append(service.submit(small(1)))
        wait_until(service, ids[-1], lambda job: job.over)
    assert [service.look(job_id) is None for job_id in ids] == [True] * (4 - kept) + [False] * kept
    assert service.look(ids[-1]).n_bytes > 1


def test_a_job_nobody_looks_at_is_stopped(service, monkeypatch):
    """A job without viewers stops after the lease, and a job with viewers goes on."""
    watched, abandoned = service.submit(unending(12)), service.submit(unending(11))
    wait_until(service, abandoned, lambda job: step_of(job) > 0)
    set_limits(monkeypatch, service, lease_seconds=2.0)
    wait_until(service, watched, lambda _: service.find(unending(11)) is None)  # find is no look
    assert service.look(watched).state == "running"
    assert service.look(abandoned).state == "stopped"
    service.stop(watched)


def test_a_paused_job_nobody_looks_at_is_stopped_later(service, monkeypatch):
    """A paused job without viewers stops after `paused_seconds`, not after `lease_seconds`."""
    job_id = service.submit(small(300), paused=True)
    wait_until_still(service, job_id, "paused")
    set_limits(monkeypatch, service, lease_seconds=1e-6)
    service.submit(small(1))
    assert service.look(job_id).state == "paused"
    set_limits(monkeypatch, service, paused_seconds=1e-6)
    service.submit(small(2))
    assert service.look(job_id).state == "stopped"
    assert service.look(job_id).error == "because nobody watched it"
