"""The Lab while a job runs, beside what `test_lab_actions` tries in any order."""

import pytest
from visiting import (
    UNENDING,
    disabled,
    job_of,
    press,
    show,
    status,
    step_of,
    switch,
    visit,
    visit_small,
    watch,
)

from attnkit.service.jobs import Watcher
from attnkit.ui.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


@pytest.fixture
def running():
    """A tab whose training has begun and goes on until the test ends."""
    tab = press(visit_small(**UNENDING), "train")
    begun = job_of(tab).id
    yield watch(tab, lambda job: step_of(job) > 0)
    for job_id in {begun, tab.session_state["lab"].job_id} - {None}:
        training_service().stop(job_id)


def test_a_running_job_can_be_stopped_while_settings_do_not_fit(running):
    """Faulty settings for the next experiment leave Pause and Stop of the running job enabled."""
    running.number_input(key="set_n_names").set_value(4)
    show(running)
    assert running.error
    assert disabled(running) == {"train", "step", "reset", "new_seeds"}
    assert status(running).endswith("your settings cannot be trained.")
    assert not running.dataframe  # tables wait until it stops
    press(running, "stop")
    watch(running, lambda job: job.state == "stopped")


def test_a_change_of_task_takes_the_job_off_the_screen(running):
    """A change of task takes the job off the screen and stops it for its owner."""
    before = job_of(running).id
    switch(running, "mutual")
    assert job_of(running) is None
    assert training_service().look(before).state == "stopped"
    assert "not trained yet" in status(running).lower()


def test_a_pause_holds_one_s_own_view_while_others_watch(running, monkeypatch):
    """A visitor's pause holds that visitor's view, while the job goes on for others who watch."""
    monkeypatch.setattr("attnkit.ui.session.watcher", lambda: Watcher("another tab", "another"))
    other = press(visit(**running.query_params), "pause")
    assert status(other).startswith("Paused: Step")
    assert status(other).endswith("For others who watch, it goes on.")
    assert disabled(other) == {"pause", "step"}
    assert training_service().look(job_of(running).id).active
    assert not status(press(other, "train")).startswith("Paused")
    assert disabled(press(other, "stop")) == {"pause", "stop"}
    assert training_service().look(job_of(running).id).active
