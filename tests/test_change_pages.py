"""The Lab when something is changed: what is known is shown, what is new is trained."""

import pytest
from visiting import columns, job_of, press, show, visit_small, watch

from attnkit.ui.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def choose(tab, *variants):
    """Switch these variants on, and all others off."""
    tab.session_state["set_sharing"] = list(variants)
    return show(tab)


def set_steps(tab, steps):
    """Type another number of steps."""
    tab.number_input(key="set_steps").set_value(steps)
    return show(tab)


def switch_on(tab):
    """Let changed settings train by themselves."""
    tab.toggle(key="train_automatically").set_value(True)
    return show(tab)


@pytest.fixture
def trained():
    """A tab that shows a finished experiment of two variants."""
    tab = watch(press(visit_small(steps="30"), "train"), lambda job: job.over)
    assert job_of(tab).state == "finished"
    return tab


def test_a_variant_that_is_added_trains_alone(trained):
    """The others are there already."""
    numbers = [column["value"] for column in columns(trained)]
    tab = choose(trained, "QKV", "Q=K", "K=V")
    assert tab.button(key="train").label == "Train what is new"
    *known, new = columns(tab)
    assert [column["value"] for column in known] == numbers
    assert new["map"] == {"lacking": "Not trained yet: press Train."}
    tab = watch(press(tab, "train"), lambda job: job.over)
    assert job_of(tab).trains.sharing == ("K=V",)
    assert list(job_of(tab).snapshot.experiment.sharing) == ["QKV", "Q=K", "K=V"]
    assert tab.session_state["lab"].previous is None


def test_a_variant_that_is_switched_off_and_on_is_there_at_once(trained):
    """Without a press, and without training."""
    whole = job_of(trained).id
    tab = choose(trained, "QKV")
    assert list(job_of(tab).snapshot.experiment.sharing) == ["QKV"]
    assert job_of(tab).state == "finished"
    tab = choose(tab, "QKV", "Q=K")
    assert job_of(tab).id == whole


def test_settings_that_were_trained_before_are_shown_when_they_come_back(trained):
    """A finished result is found again when its settings come back."""
    whole = job_of(trained).id
    tab = watch(
        press(set_steps(trained, 20), "train"),
        lambda job: job.over,
    )
    assert job_of(tab).id != whole
    assert job_of(set_steps(tab, 30)).id == whole


def test_changed_settings_train_by_themselves_if_that_is_wanted(trained):
    """As long as the switch is on, whatever page was open in between."""
    tab = switch_on(trained)
    tab = set_steps(tab, 20)
    tab = watch(tab, lambda job: job.over)
    assert job_of(tab).experiment.training.steps == 20
    tab.switch_page("pages/guide.py")
    show(tab).switch_page("pages/lab.py")
    assert show(tab).toggle(key="train_automatically").value
    tab = set_steps(tab, 10)
    assert watch(tab, lambda job: job.over).session_state["lab"].job.step == 10


def test_what_takes_long_does_not_train_by_itself(trained):
    """It waits for a press."""
    before = job_of(trained).id
    tab = switch_on(trained)
    tab = set_steps(tab, 20_000)
    assert job_of(tab).id == before


def test_nothing_trains_by_itself_unless_that_is_wanted(trained):
    """The default is a press."""
    before = job_of(trained).id
    assert job_of(set_steps(trained, 20)).id == before


@pytest.mark.parametrize("key", ["step", "train"])
def test_a_stopped_run_goes_on_where_it_was(key):
    """With Step and with Train; Reset is what begins anew."""
    tab = press(visit_small(steps="20000", batch_size="256"), "train")
    tab = press(watch(tab, lambda job: job.step > 0), "stop")
    tab = watch(tab, lambda job: job.settled)
    reached = job_of(tab).step
    assert tab.button(key="train").label == "Resume"
    tab = press(tab, key)
    assert job_of(tab).step >= reached
    tab = watch(tab, lambda job: job.step > reached)
    training_service().stop(job_of(tab).id)
