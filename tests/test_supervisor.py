"""The training process and its service: one that dies is replaced, and closing leaves nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import (
    UNENDING,
    assert_same_bits,
    small,
    step_of,
    unending,
    wait_for_end,
    wait_until,
    wait_until_still,
)

from attnkit.service import job_control, supervisor
from attnkit.service.service import TrainingService
from attnkit.training import train

pytestmark = pytest.mark.server


def test_a_job_whose_process_is_killed_ends_with_the_same_bits(service):
    """A killed process is started again, and its job ends with the same bits."""
    job_id = service.submit(small(1000))
    wait_until(service, job_id, lambda job: job.snapshot is not None)
    killed = service.process_id
    os.kill(killed, signal.SIGKILL)
    ended = wait_until(service, job_id, lambda job: job.over)
    assert ended.restarts == 1
    assert service.process_id != killed
    assert_same_bits(ended.snapshot, train(small(1000), "cpu").snapshot)


def test_a_paused_job_whose_process_is_killed_stays_paused(service):
    """A paused job begins anew at step 0 after its process is killed, and stays paused."""
    job_id = service.submit(small(300), paused=True)
    wait_until_still(service, job_id, "paused")
    os.kill(service.process_id, signal.SIGKILL)
    wait_until(service, job_id, lambda job: job.restarts == 1)
    held = wait_until_still(service, job_id, "paused")
    service.stop(job_id)
    assert held.snapshot.step == 0


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


def test_a_job_whose_process_always_dies_fails(service, monkeypatch):
    """A job fails after `MAX_RESTARTS` deaths of its process, and later jobs are trained."""
    monkeypatch.setattr(job_control, "MAX_RESTARTS", 0)
    job_id = service.submit(unending())
    wait_until(service, job_id, lambda job: step_of(job) > 0)
    os.kill(service.process_id, signal.SIGKILL)
    failed = wait_until(service, job_id, lambda job: job.over)
    assert failed.state == "failed"
    assert "died" in failed.error
    after = service.submit(small(5))
    assert wait_until(service, after, lambda job: job.over).state == "finished"


@pytest.fixture(scope="module")
def closed_service():
    """A service that was closed before its process was ready."""
    service = TrainingService()
    service.close()
    return service


def test_closing_twice_is_harmless(closed_service):
    """A service can be closed twice."""
    closed_service.close()


def test_a_closed_service_takes_commands_in_silence(closed_service):
    """A closed service accepts commands, as pages may be drawn during the shutdown."""
    job_id = closed_service.submit(small(5))
    closed_service.pause(job_id)
    assert not closed_service.look(job_id).over


def test_no_training_process_outlives_a_killed_server():
    """The training process of a killed server ends by itself."""
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from attnkit.service.service import TrainingService\n"
            "from attnkit.experiment import Experiment\n"
            "service = TrainingService()\n"
            f"job = service.submit(Experiment(**{UNENDING!r}))\n"
            "while service.wait(job, 0, 1).snapshot is None: pass\n"
            "print(service.process_id, flush=True)\n"
            "while True: service.wait(job, 10**9, 60)\n",
        ],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    with server:
        worker = int(server.stdout.readline())
        server.kill()
    assert wait_for_end(worker)
