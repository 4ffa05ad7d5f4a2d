"""The training process and its service: one that dies is replaced, and closing leaves nothing."""

import os
import random
import signal

import pytest
from waiting import (
    assert_same_bits,
    small,
    step_of,
    wait_until,
    wait_until_still,
)

from attnkit.service import supervisor
from attnkit.service.service import TrainingService
from attnkit.training import train

pytestmark = pytest.mark.server


def test_a_job_whose_process_is_killed_ends_with_the_same_bits(service, long, seed):
    """Killed at moments drawn from the seed; what was paused begins anew at step 0, and stays so.

    Each death costs the start of a process, some seconds.
    """
    draw, expected = random.Random(seed), train(small(1000), "cpu").snapshot
    for kill in range(25 if long else 1):
        held = service.submit(small(300), paused=True)
        wait_until_still(service, held, "paused")
        job_id, moment = service.submit(small(1000)), draw.randrange(600)
        killed = service.process_id
        wait_until(service, job_id, lambda job, m=moment: job.over or step_of(job) >= m)
        os.kill(killed, draw.choice([signal.SIGKILL, signal.SIGSEGV]))
        ended = wait_until(service, job_id, lambda job: job.over)
        wait_until(service, held, lambda job: job.restarts == 1)
        told = f"seed {seed}, kill {kill} at step {moment}"
        assert (ended.state, service.process_id != killed) == ("finished", True), told
        assert_same_bits(ended.snapshot, expected)
        assert wait_until_still(service, held, "paused").snapshot.step == 0, told
        service.stop(held)


def test_a_process_that_is_stopped_is_replaced(service, monkeypatch):
    """A process that does not answer is replaced, and its job ends with the same bits."""
    monkeypatch.setattr(supervisor, "SILENT_CHECKS", 5)
    before = wait_until(service, service.submit(small(5)), lambda job: job.over)
    job_id = service.submit(small(1000))
    wait_until(service, job_id, lambda job: job.snapshot is not None)
    os.kill(service.process_id, signal.SIGSTOP)
    ended = wait_until(service, job_id, lambda job: job.over)
    assert (ended.state, ended.restarts) == ("finished", 1)
    assert_same_bits(ended.snapshot, train(small(1000), "cpu").snapshot)
    assert service.look(before.id).state == "finished"


def test_a_closed_service_takes_commands_in_silence():
    """Pages may be drawn during the shutdown; it was closed twice, before its process was ready."""
    service = TrainingService()
    for _ in range(2):
        service.close()
    job_id = service.submit(small(5))
    service.pause(job_id)
    assert not service.look(job_id).over
