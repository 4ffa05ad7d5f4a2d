"""Orders of a visitor's actions in the Lab, drawn from a seed, and what must hold after each."""

import random
import re
from functools import cache

import numpy as np
import pytest
from idle import link_of
from plotted import unpacked
from searching import times
from visiting import (
    SMALL,
    columns,
    disabled,
    drawn,
    job_of,
    plain_text,
    press,
    show,
    status,
    visit,
    watch,
    widget,
)

from attnkit.experiment.experiment import from_params
from attnkit.service.jobs import Watcher
from attnkit.training import train
from attnkit.training.joining import can_share_runs
from attnkit.training.summary import percent
from attnkit.ui.server.service import training_service
from attnkit.variants.catalogue import title_of

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

N_VISITS, N_ACTIONS = 3, 16
"""Visits of one or two tabs, and the actions in each."""

SHORT, ENDLESS = {"steps": 30, "batch_size": 16}, {"steps": 20_000, "batch_size": 256}

SHARINGS = (["QKV"], ["QKV", "Q=K"], ["QKV", "Q=K", "K=V"], ["Q=K", "K=V"])

BUTTONS = ("train", "pause", "step", "stop", "reset", "new_seeds")


class Visitor:
    """One or two tabs of the Lab, one of them in front, and a source of random choices."""

    def __init__(self, rng, first_seed, monkeypatch):
        self.rng, self.done, self.watchers, self.behind = rng, [], {}, None
        monkeypatch.setattr("attnkit.ui.session.watcher", lambda: self.watcher)
        self.tab = self.opened({**SMALL, "steps": "30", "first_seed": str(first_seed)})

    def opened(self, params):
        """Return a new tab with a link."""
        name = f"tab {len(self.watchers)} of {id(self)}"
        self.watcher = Watcher(name, name)
        tab = visit(**params)
        self.watchers[id(tab)] = self.watcher
        return tab

    @property
    def lab(self):
        """Return the Lab of the tab in front."""
        return self.tab.session_state["lab"]

    def act(self):
        """Do something that is possible now, and check what must hold."""
        enabled = [key for key in BUTTONS if key not in disabled(self.tab)]
        others = ["change", "change", "wait", "wait", "other page", "reload", "other tab"]
        action = self.rng.choice([*enabled, "train" if "train" in enabled else "wait", *others])
        self.done.append(action)
        getattr(self, action.replace(" ", "_"))(job_of(self.tab), self.lab.experiment)
        check(self.tab)

    def press_and_settle(self, key):
        """Press a button, and return the job as soon as it has done what was asked."""
        watch(press(self.tab, key), lambda job: job.settled)
        return job_of(self.tab)

    def train(self, before, experiment):
        """The settings are trained; a run that was held goes on, and loses no step."""
        label = self.tab.button(key="train").label
        press(self.tab, "train")
        job = job_of(self.tab)
        assert job.experiment == experiment
        assert job.active or job.state == "finished"
        if label == "Resume":
            assert job.step >= before.step

    def pause(self, *_):
        """The run stands still, and says where, unless it was faster."""
        job = self.press_and_settle("pause")
        held = status(self.tab).startswith(f"Paused: Step {job.step} of")
        assert job.state == ("paused" if held else "finished")

    def step(self, before, experiment):
        """The run stands at the next evaluation, of which there is one every ten steps."""
        held = before is not None and before.state in ("paused", "stopped")
        own = self.lab.private_state is None
        wanted = 10
        if held and before.experiment == experiment:
            wanted = (before.step // 10 + 1) * 10
        press(self.tab, "step")
        if own:
            watch(self.tab, lambda job: job.settled and job.step >= wanted)
            assert (job_of(self.tab).step, job_of(self.tab).experiment) == (wanted, experiment)

    def stop(self, before, _):
        """The run keeps the steps that it has reached."""
        job = self.press_and_settle("stop")
        assert job.state in ("stopped", "finished")
        assert job.step >= before.step

    def reset(self, _, experiment):
        """The run of the same settings stands at step 0."""
        press(self.tab, "reset")
        watch(self.tab, lambda job: job.settled and job.snapshot is not None)
        assert (job_of(self.tab).experiment, job_of(self.tab).step) == (experiment, 0)
        assert status(self.tab).startswith("Paused: Step 0 of")

    def new_seeds(self, _, experiment):
        """The seeds after the last one are trained."""
        press(self.tab, "new_seeds")
        wanted = experiment.replace(first_seed=experiment.first_seed + experiment.n_seeds)
        assert job_of(self.tab).experiment == self.lab.experiment == wanted

    def change(self, before, experiment):
        """A run that trains goes on while settings change, or variants are switched on and off."""
        settings = experiment.settings()
        changes = self.rng.choice(
            [
                {"d_head": 7 - settings["d_head"]},  # 3 or 4
                ENDLESS if settings["steps"] == SHORT["steps"] else SHORT,
                {"first_seed": settings["first_seed"] + 1},
                *({"sharing": chosen} for chosen in SHARINGS),
            ]
        )
        for name, value in changes.items():
            widget(self.tab, name).set_value(value)
        self.done[-1] += f" {changes}"
        show(self.tab)
        assert self.lab.experiment.settings() == {**settings, **changes}
        if before is not None and before.active:
            assert job_of(self.tab).id == before.id

    def wait(self, before, _):
        """A short run ends; a long one goes on."""
        if before is not None and before.active:
            watch(self.tab, lambda job: job.over or job.step > before.step)
        else:
            show(self.tab)

    def other_page(self, before, experiment):
        """Settings, run and link are the same when the visitor comes back."""
        link = link_of(self.tab)
        show(self.tab.switch_page("pages/guide.py"))
        self.tab.query_params.clear()
        show(self.tab.switch_page("pages/lab.py"))
        assert (self.lab.experiment, link_of(self.tab)) == (experiment, link)
        assert getattr(job_of(self.tab), "id", None) == getattr(before, "id", None)

    def reload(self, before, experiment):
        """The link opens the same settings, and finds their run."""
        held = self.lab.private_state
        training_service().leave(self.watchers[id(self.tab)].tab)
        self.tab = self.opened(link_of(self.tab))
        assert self.lab.experiment == experiment
        if before is not None and before.experiment == experiment and held is None:
            if before.state == "finished":
                assert job_of(self.tab).state == "finished"
            elif before.active and before.step > 0:
                assert job_of(self.tab).id == before.id

    def other_tab(self, _, experiment):
        """A second tab with the same link; then the first one comes to the front again."""
        link, is_new = link_of(self.tab), self.behind is None
        self.tab, self.behind = self.behind or self.opened(link), self.tab
        self.watcher = self.watchers[id(self.tab)]
        show(self.tab)
        assert not is_new or self.lab.experiment == experiment


@cache
def trained(experiment):
    """Return what an experiment reaches when it is trained by itself."""
    snapshot = train(experiment, "cpu").snapshot
    return snapshot.per_sharing(snapshot.latest("accuracy")).mean(-1)


def check(tab):
    """Check what must hold of the Lab at any time."""
    lab, job, said = tab.session_state["lab"], job_of(tab), status(tab)
    assert [plain_text(one) for one in (*tab.error, *tab.warning)] == []
    assert from_params(link_of(tab)) == lab.experiment
    for name, value in lab.experiment.settings().items():
        if name not in ("task", "earlier_steps"):
            assert widget(tab, name).value == value, name
    check_buttons(tab, lab, job, said)
    check_results(tab, lab, job, said)


def check_buttons(tab, lab, job, said):
    """Check that the buttons fit the status line."""
    state = re.match(r"\w+", said)[0]
    same = job is not None and job.experiment == lab.experiment
    moving = state in ("Step", "Starting", "Waiting")
    held = state in ("Paused", "Pausing")
    assert moving or held or state in ("Finished", "Trained", "Stopped", "Stopping", "Not"), said
    wanted = set() if moving else {"pause"}
    wanted |= set() if moving or held else {"stop"}
    wanted |= {"step"} if moving or (held and lab.private_state is not None) else set()
    wanted |= {"train"} if moving and same else set()
    assert disabled(tab) == wanted, said
    label = tab.button(key="train").label
    assert label.endswith(("new settings", "what is new")) == (job is not None and not same)
    if same and state in ("Paused", "Stopped"):
        assert (label == "Resume") == ("Step 0 of" not in said)


def check_results(tab, lab, job, said):
    """Check that accuracies are those of the run on screen, and what it lacks is told."""
    shown = {column["text"]: column["value"] for column in columns(tab)}
    if job is None or job.snapshot is None or not drawn(tab, "board")["steps"]:
        assert set(shown.values()) == {"–"}
        return
    share = can_share_runs(job.experiment, lab.experiment)
    chosen = (lab.experiment if share else job.experiment).sharing
    snapshot, known = job.snapshot, job.snapshot.experiment.sharing
    if not any(variant in known for variant in chosen):
        assert "ot trained yet" in said
        assert set(shown.values()) == {"–"}
        return
    assert list(shown) == [variant.value for variant in chosen]
    assert ("had other settings" in said) == (not share), said
    steps = unpacked(drawn(tab, "board")["steps"])
    (at,) = np.flatnonzero(snapshot.eval_steps == steps[-1])
    history = snapshot.per_sharing(snapshot.history["accuracy"])[: at + 1]
    trains = job.trains.sharing
    for variant in chosen:
        if variant not in known:
            assert shown[variant] == "–"
            lacking = re.search(r"Not trained yet: ([^.]*)\.", re.sub(r"\\(\W|_)", r"\1", said))[1]
            assert title_of(variant) in lacking.split(", ")
            continue
        if job.active and job.reused is not None and variant in trains:
            continue  # it may have come further since the board was drawn
        rows = history[:, known.index(variant)]
        last = rows[np.isfinite(rows).all(-1)][-1]
        assert shown[variant] == percent(last.mean()), variant
        if said.startswith(("Finished", "Trained")):
            own = trained(job.experiment)[job.experiment.sharing.index(variant)]
            assert shown[variant] == percent(own), variant


def test_whatever_a_visitor_does_the_lab_shows_what_is_so(seed, monkeypatch):
    """In whatever order, in one tab or two, with reloads and other pages in between."""
    for number in range(times(N_VISITS)):
        visitor = Visitor(random.Random(f"{seed} {number}"), 900 * (number + 1), monkeypatch)
        try:
            check(visitor.tab)
            for _ in range(N_ACTIONS):
                visitor.act()
        except Exception as error:
            error.add_note(f"--seed {seed}, visit {number}: {', '.join(visitor.done)}")
            raise
        finally:
            for row in training_service().overview():
                training_service().stop(row["id"])
