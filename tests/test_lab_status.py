"""The words for every state of a job, and the buttons that go with them; nothing is trained."""

from dataclasses import replace
from types import SimpleNamespace

from attnkit.experiment import Experiment
from attnkit.service.jobs import Job
from attnkit.service.scheduler import Outlook
from attnkit.ui import watched_job
from attnkit.ui.lab import status, training_buttons
from attnkit.ui.lab.lab import Lab
from attnkit.ui.lab.task_examples import shipped_example

OVER = {"pause", "stop"}
MOVING = {"train", "step"}


def job(state, **given):
    """Return a job in a state that is hard to bring about; its snapshot is the example."""
    known = {"state": state, "begun": True, "submitted_at": 1.0, **given}
    return Job("fake", Experiment(), snapshot=shipped_example("directed"), **known)


FULL, UNWATCHED = "because the queue was full", "because nobody watched it"
STATES = [
    (replace(job("waiting"), snapshot=None), "Starting: the training process is", MOVING),
    (replace(job("failed", error="no memory"), snapshot=None), "failed: no memory. Press", OVER),
    (replace(job("stopped"), snapshot=None), "Stopped: Step 0 of 600.", OVER),
    (job("waiting", begun=False), "place 3 in the queue, begins in about 2 min. 32 exp", MOVING),
    (job("stopped", begun=False, error=FULL), f"its turn came, {FULL}. Press **Train** to q", OVER),
    (job("stopped", begun=False), "Stopped before its turn came. Press **Train** to queue", OVER),
    (job("running"), "about 45 s left: 32 experiments take turns", MOVING),
    (job("stopped", error=UNWATCHED), f"Stopped {UNWATCHED}: Step 600", OVER),
    (job("finished", unstored="full", tried_again=True), "Not stored yet: full.", OVER),
    (job("paused", restarts=1), "died and began anew.", {"pause"}),
    (job("finished", restarts=1), "died and began anew.", OVER),
]


def test_every_state_has_its_words_and_its_disabled_buttons(monkeypatch):
    """Troubles are told with their reasons and with what to do."""
    drawn = {}
    monkeypatch.setattr(
        training_buttons,
        "st",
        SimpleNamespace(button=lambda *_, key, disabled=False, **__: drawn.update({key: disabled})),
    )
    for one, words, greyed in STATES:
        outlook = Outlook(place=0 if one.begun else 3, n_active=32, begins=100.0, ends=45.0)
        service = SimpleNamespace(outlook=lambda _, outlook=outlook: outlook)
        monkeypatch.setattr(watched_job, "training_service", lambda service=service: service)
        lab = Lab(Experiment())
        assert words in status.status_line(lab, one, one.snapshot, is_valid=True)
        training_buttons.training_buttons(lab, lab.experiment, one)
        assert {key for key, disabled in drawn.items() if disabled} == greyed, words
