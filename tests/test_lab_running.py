"""The Lab while a job runs: what can be pressed, what goes on, and who else watches it."""

import re

import pytest
from visiting import (
    UNENDING,
    disabled,
    drawn,
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


def test_a_running_job_can_be_paused_and_stopped_only(running):
    """Only Train and Step are disabled while a job runs, and tables wait until it stops."""
    assert job_of(running).state == "running"
    assert re.match(r"Step \d+ of 20000, 2 models, [\d,]+ model-steps per second", status(running))
    assert disabled(running) == {"train", "step"}
    assert any("Tables appear" in caption.value for caption in running.caption)
    assert not running.dataframe


def test_live_figures_grow_with_training(running):
    """The accuracy curve of a running job reaches further than before."""

    def length():
        return len(drawn(running, "board")["steps"])

    before, step = length(), step_of(job_of(running))
    watch(running, lambda job: step_of(job) > step + 50)
    assert length() > before


def test_pause_holds_and_train_resumes(running):
    """Pause holds the step, and the button Resume goes on with the same job."""
    press(running, "pause")
    watch(running, lambda job: job.settled)
    assert status(running).startswith("Paused: Step ")
    assert running.button(key="train").label == "Resume"
    assert disabled(running) == {"pause"}
    held = step_of(job_of(running))
    paused = job_of(running).id
    press(running, "train")
    watch(running, lambda job: step_of(job) > held)
    assert job_of(running).id == paused
    assert disabled(running) == {"train", "step"}


def test_stop_keeps_what_was_reached(running):
    """A stopped job shows its tables, and Train begins another job."""
    stopped = job_of(running).id
    press(running, "stop")
    watch(running, lambda job: job.settled)
    assert status(running).startswith("Stopped: Step ")
    assert len(running.dataframe) == 1
    assert disabled(running) == {"pause", "stop"}
    press(running, "train")
    assert job_of(running).id != stopped


def test_reset_goes_back_to_step_0(running):
    """Reset shows the same experiment untrained at step 0, and ends the job before."""
    before = job_of(running)
    press(running, "reset")
    watch(running, lambda job: job.state == "paused" and job.snapshot is not None)
    assert status(running).startswith("Paused: Step 0 of 20000")
    assert any(text.value.startswith("Untrained") for text in running.markdown)
    assert job_of(running).experiment == before.experiment
    assert running.button(key="train").label == "Train"
    assert disabled(running) == {"pause"}
    assert training_service().look(before.id).state != "running"


def test_changed_settings_are_offered_for_training(running):
    """A running job goes on while settings change, and the button offers to train them."""
    running.number_input(key="set_d_head").set_value(4)
    show(running)
    assert job_of(running).experiment.size.d_head == 3
    assert running.button(key="train").label == "Train new settings"
    old = job_of(running).id
    press(running, "train")
    assert job_of(running).experiment.size.d_head == 4
    watch(running, lambda job: step_of(job) > 0)
    assert training_service().look(old).state == "stopped"


def test_a_running_job_can_be_stopped_while_settings_do_not_fit(running):
    """Faulty settings for the next experiment leave Pause and Stop of the running job enabled."""
    running.number_input(key="set_n_names").set_value(4)
    show(running)
    assert running.error
    assert disabled(running) == {"train", "step", "reset", "new_seeds"}
    press(running, "stop")
    watch(running, lambda job: job.state == "stopped")


def test_a_change_of_task_takes_the_job_off_the_screen(running):
    """A change of task takes the job off the screen and stops it for its owner."""
    before = job_of(running).id
    switch(running, "mutual")
    assert job_of(running) is None
    assert training_service().look(before).state == "stopped"
    assert "not trained yet" in status(running).lower()


def test_settings_and_training_survive_a_visit_to_the_guide(running):
    """Job, settings and link are the same after a visit to the Guide, which empties the address."""
    before, link = job_of(running).id, dict(running.query_params)
    show(running.switch_page("pages/guide.py"))
    running.query_params.clear()
    show(running.switch_page("pages/lab.py"))
    assert job_of(running).id == before
    assert running.number_input(key="set_d_head").value == 3
    assert running.query_params == link


def test_a_second_tab_with_the_same_link_sees_the_same_training(running):
    """A second tab with the same link shows the same running job."""
    other = visit(**running.query_params)
    assert job_of(other).id == job_of(running).id
    assert disabled(other) == {"train", "step"}


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
