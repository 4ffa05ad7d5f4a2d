"""“What rescues it?” on its page: what is tried is told, and taken back, where it belongs."""

import pytest
from test_inspection_page import small_link, turn_to, visit_at
from visiting import plain_text, press, show, visit, watch

from attnkit.experiment.experiment import from_params
from attnkit.service.service import Refused, TrainingService
from attnkit.training import train
from attnkit.ui import run_on_screen
from attnkit.ui.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def said(tab):
    """All that is said, without the backslashes that keep Markdown away."""
    return "\n".join(plain_text(element) for kind in (tab.markdown, tab.error) for element in kind)


def keys(tab):
    """Of the buttons."""
    return {button.key for button in tab.button}


def trained(**params):
    """The page of a small run, trained in the Lab."""
    tab = watch(press(visit(**small_link(**params)), "train"), lambda job: job.over)
    return turn_to(tab, "asymmetry")


def tried(tab):
    """More heads, trained to the end."""
    tab = press(tab, "rescue_n_heads")
    return show(watch(tab, lambda job: job.over))


def follow(tab, **link):
    """Open another link in the same tab."""
    tab.query_params.clear()
    tab.query_params.update(link)
    return show(tab)


def test_what_was_tried_is_told_and_taken_back_where_it_belongs():
    """On its own task, and only while its run is on screen; then the run before shows at once."""
    link = small_link()
    tab = trained(**link)
    before = tab.session_state["lab"].job_id
    assert "rescue_undo" not in keys(tab)
    tab = tried(tab)
    assert "with 1 head → " in said(tab)
    assert "with 4 heads (1 seed): not sure with one seed." in said(tab)

    tab = follow(tab, v="1", task="copy", sharing="Q=K", steps="40")
    assert tab.session_state["lab"].experiment.task.name == "copy"
    assert "4 heads (" not in said(tab)
    assert "rescue_undo" not in keys(tab)

    tab.query_params.clear()
    tab.query_params.update(small_link())
    tab = watch(press(turn_to(tab, "lab"), "train"), lambda job: job.over)
    tab = turn_to(tab, "asymmetry")
    assert "4 heads (" in said(tab)
    assert "rescue_undo" not in keys(tab)

    tab = follow(tab, **{**link, "n_heads": "4"})
    assert "4 heads (" in said(tab)
    tab = press(tab, "rescue_undo")
    assert tab.session_state["lab"].job_id == before
    assert "4 heads (" not in said(tab)
    assert "rescue_undo" not in keys(tab)


def test_a_shipped_example_is_shown_again_without_training(monkeypatch):
    """If the change was one of it."""
    link = small_link()
    experiment = from_params(link)
    snapshot = train(experiment).snapshot
    monkeypatch.setattr(run_on_screen, "shipped_example", lambda _: snapshot)
    tab = tried(visit_at("asymmetry", **link))
    tab = press(tab, "rescue_undo")
    lab = tab.session_state["lab"]
    assert lab.job is None
    assert lab.experiment == experiment
    assert training_service().find(experiment) is None
    assert "Change one thing and train it at once" in said(tab)
    assert "4 heads (" not in said(tab)


def test_what_is_refused_leaves_all_as_it_was(monkeypatch):
    """The attempt stays, and can be taken back later."""
    tab = tried(trained())
    known, experiment = tab.session_state["lab"].job_id, tab.session_state["lab"].experiment

    def refuse(*_, **__):
        raise Refused("60 experiments wait already")

    with monkeypatch.context() as patched:
        patched.setattr(TrainingService, "submit", refuse)
        patched.setattr(TrainingService, "find", lambda *_: None)
        tab = press(tab, "rescue_undo")
        assert "Not taken. 60 experiments wait already" in said(tab)
        assert tab.session_state["lab"].job_id == known
        assert tab.session_state["lab"].experiment == experiment
    tab = press(show(tab), "rescue_undo")
    assert tab.session_state["lab"].job_id != known
    assert "4 heads (" not in said(tab)
