"""The stand-in for the training process leaves nothing behind in the process of the tests."""

import pytest
from idle import IdleProcess, idle_service

from attnkit.service.server import server_settings
from attnkit.ui.service import training_service


def test_a_test_that_fails_leaves_no_settings_behind(tmp_path):
    """Otherwise the next file is refused 20,000 steps, which a hosted copy does not train."""
    before = server_settings()

    def fail():
        with idle_service(tmp_path, hosted="true"):
            assert training_service().settings.hosted
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert server_settings() == before


def test_experiments_that_were_stopped_are_not_active():
    """Three are started in all, two of them at the same time."""
    process = IdleProcess(0)
    for word, job in ("start", "a"), ("start", "b"), ("stop", "a"), ("start", "c"):
        process.tell({"do": word, "job": job})
    assert process.most_active == 2
