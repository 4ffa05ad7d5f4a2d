"""Orders of a visitor's actions in the Lab, drawn from a seed, and what must hold after each."""

import random
import re

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
from attnkit.training.joining import can_share_runs
from attnkit.training.summary import percent
from attnkit.ui.server.service import training_service
from attnkit.variants.catalogue import title_of

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


class Visitor:
    """A tab of the Lab, and a source of random choices."""

    def __init__(self, rng, first_seed):
        self.rng, self.done = rng, []
        self.tab = visit(**{**SMALL, "steps": "30", "first_seed": str(first_seed)})
        self.lab = self.tab.session_state["lab"]

    def act(self):
        """Do something that is possible now, and check what must hold."""
        keys = {"train", "pause", "step", "stop", "reset", "new_seeds"} - disabled(self.tab)
        others = ["change", "change", "wait", "wait", "other page"]
        actions = [*sorted(keys), "train" if "train" in keys else "wait", *others]
        self.done.append(action := self.rng.choice(actions))
        getattr(self, action.replace(" ", "_"))(job_of(self.tab), self.lab.experiment)
        check(self.tab)

    def train(self, before, experiment):
        """The settings are trained; a run that was held goes on, and loses no step."""
        label = self.tab.button(key="train").label
        job = job_of(press(self.tab, "train"))
        assert job.experiment == experiment
        assert job.active or job.state == "finished"
        assert label != "Resume" or job.step >= before.step

    def pause(self, *_):
        """The run stands still, and says where, unless it was faster."""
        job = job_of(watch(press(self.tab, "pause"), lambda job: job.settled))
        held = status(self.tab).startswith(f"Paused: Step {job.step} of")
        assert job.state == ("paused" if held else "finished")

    def step(self, before, experiment):
        """The run stands at the next evaluation, of which there is one every ten steps."""
        held = before is not None and before.state in ("paused", "stopped")
        goes_on = held and before.experiment == experiment
        wanted = (before.step // 10 + 1) * 10 if goes_on else 10
        press(self.tab, "step")
        watch(self.tab, lambda job: job.settled and job.step >= wanted)
        assert (job_of(self.tab).step, job_of(self.tab).experiment) == (wanted, experiment)

    def stop(self, before, _):
        """The run keeps the steps that it has reached."""
        job = job_of(watch(press(self.tab, "stop"), lambda job: job.settled))
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
        """A run that still trains stays on screen while settings change, or variants."""
        settings = experiment.settings()
        changes = [{"d_head": 7 - settings["d_head"]}]  # 3 or 4
        long = {"steps": 20_030 - settings["steps"], "batch_size": 272 - settings["batch_size"]}
        changes += [long]  # 30 or 20,000 steps of 16 or 256 examples
        changes += [{"first_seed": settings["first_seed"] + 1}]
        sharings = ("QKV", "QKV Q=K", "QKV Q=K K=V", "Q=K K=V")
        changes = self.rng.choice(changes + [{"sharing": names.split()} for names in sharings])
        for name, value in changes.items():
            widget(self.tab, name).set_value(value)
        self.done[-1] += f" {changes}"
        show(self.tab)
        assert self.lab.experiment.settings() == {**settings, **changes}
        if before is not None and training_service().job(before.id).active:
            assert job_of(self.tab).id == before.id

    def wait(self, before, _):
        """A short run ends; a long one goes on."""
        if before is not None and before.active:
            watch(self.tab, lambda job: job.over or job.step > before.step)

    def other_page(self, before, experiment):
        """Settings, run and link are the same when the visitor comes back."""
        link = link_of(self.tab)
        show(self.tab.switch_page("pages/guide.py"))
        self.tab.query_params.clear()
        show(self.tab.switch_page("pages/lab.py"))
        assert (self.lab.experiment, link_of(self.tab)) == (experiment, link)
        assert getattr(job_of(self.tab), "id", None) == getattr(before, "id", None)


def check(tab):
    """Check what must hold of the Lab at any time: its link, boxes, buttons and accuracies."""
    lab, job, said = tab.session_state["lab"], job_of(tab), status(tab)
    assert [plain_text(one) for one in (*tab.error, *tab.warning)] == []
    assert from_params(link_of(tab)) == lab.experiment
    for name, value in lab.experiment.settings().items():
        if name not in ("task", "earlier_steps"):
            assert widget(tab, name).value == value, name
    state = re.match(r"\w+", said)[0]
    same = job is not None and job.experiment == lab.experiment
    moving, held = state in ("Step", "Starting", "Waiting"), state in ("Paused", "Pausing")
    assert moving or held or state in ("Finished", "Trained", "Stopped", "Stopping", "Not"), said
    wanted = {"step"} if moving else {"pause"}
    wanted |= set() if moving or held else {"stop"}
    wanted |= {"train"} if moving and same else set()
    assert disabled(tab) == wanted, said
    label = tab.button(key="train").label
    assert label.endswith(("new settings", "what is new")) == (job is not None and not same)
    if same and state in ("Paused", "Stopped"):
        assert (label == "Resume") == ("Step 0 of" not in said)
    check_results(tab, lab, job, said)


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
    over = re.match("Finished|Trained|Stopped", said)  # else it may have come further since
    for variant in chosen:
        if variant not in known:
            assert shown[variant] == "–"
            lacking = re.search(r"Not trained yet: ([^.]*)\.", re.sub(r"\\(\W|_)", r"\1", said))[1]
            assert title_of(variant) in lacking.split(", ")
            continue
        if not over and job.reused is not None and variant in trains:
            continue
        rows = history[:, known.index(variant)]
        last = rows[np.isfinite(rows).all(-1)][-1]
        assert shown[variant] == percent(last.mean()), variant


def test_whatever_a_visitor_does_the_lab_shows_what_is_so(seed):
    """In whatever order, with other pages in between."""
    for number in range(times(2)):
        visitor = Visitor(random.Random(f"{seed} {number}"), 900 * (number + 1))
        try:
            check(visitor.tab)
            for _ in range(16):
                visitor.act()
        except Exception as error:
            error.add_note(f"--seed {seed}, visit {number}: {', '.join(visitor.done)}")
            raise
        finally:
            for row in training_service().overview():
                training_service().stop(row["id"])
