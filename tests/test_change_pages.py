"""The Lab when something is changed: what is known is shown, what is new is trained."""

import pytest
from visiting import columns, job_of, press, show, visit_small, watch

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
    """The others are there already, and one that is switched off and on is there at once."""
    whole = job_of(trained).id
    tab = choose(trained, "QKV")
    assert list(job_of(tab).snapshot.experiment.sharing) == ["QKV"]
    assert job_of(tab).state == "finished"
    assert job_of(choose(tab, "QKV", "Q=K")).id == whole
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


def test_changed_settings_train_by_themselves_if_that_is_wanted(trained):
    """Not without the switch, nor what takes long; whatever page was open in between."""
    before = job_of(trained).id
    assert job_of(set_steps(trained, 40)).id == before
    tab = switch_on(trained)
    assert job_of(set_steps(tab, 20_000)).id == before
    tab = set_steps(tab, 20)
    tab = watch(tab, lambda job: job.over)
    assert job_of(tab).experiment.training.steps == 20
    tab.switch_page("pages/guide.py")
    show(tab).switch_page("pages/lab.py")
    assert show(tab).toggle(key="train_automatically").value
    tab = set_steps(tab, 10)
    assert watch(tab, lambda job: job.over).session_state["lab"].job.step == 10
