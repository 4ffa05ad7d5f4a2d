"""What pages that look inside models share: whose film is shown, how it gets to the browser.

They show the run that the Lab shows, one seed of it. A run that is not trained yet is offered for
training, with all its seeds: the Lab and Runs then show it, too. The film of a trained run is there
if it was trained here a short time ago; otherwise that seed is trained again, alone, which gives
the same numbers, and the page says so. While it trains, new frames are sent as they come, and the
browser adds them to those it has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import streamlit as st

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.experiment import Experiment
from attnkit.experiment.links import problems_in_words
from attnkit.service.jobs import Job
from attnkit.service.service import Refused
from attnkit.ui import components
from attnkit.ui.lab import Lab
from attnkit.ui.markdown import plain
from attnkit.ui.service import training_service
from attnkit.ui.session import open_lab, spoken
from attnkit.variants.catalogue import title_of

TICK_SECONDS = 0.5

KEPT_BYTES = 2**25
"""Of answers, for whoever asks the same."""


@dataclass
class Subject:
    """What a page looks into: one seed of a run.

    Attributes:
        lab: the visitor's. experiment: of the one seed. run: the same with all its seeds.
        refusal: why it cannot be trained here, if it cannot.
    """

    lab: Lab
    experiment: Experiment
    run: Experiment
    refusal: str = ""

    def ask_for_film(self) -> Job | None:
        """The job whose film is shown, as it is now; trained if there is none."""
        service, lab = training_service(), self.lab
        try:
            job_id = service.film(self.experiment, lab.job_id, lab.watcher)
        except Refused as error:
            self.refusal = str(error)
            return None
        former, lab.filmed_id = lab.filmed_id, job_id
        if former and former not in lab.watched:
            service.turn_away(former, lab.watcher)
        return service.look(job_id, lab.watcher)

    def try_again(self) -> None:
        """Train what has failed once more: the Lab's run, or the one seed that was to be filmed."""
        job = self.lab.job
        if job is not None and job.state == "failed":
            self.lab.train()
            return
        try:
            training_service().submit(self.experiment, kept=False, watcher=self.lab.watcher)
        except Refused as error:
            self.lab.refusal = str(error)

    def inspect(self, inspection: Inspection) -> bytes | str | None:
        """Arrays of the film; a text that says why not; None if there is none, or none yet."""
        job = self.ask_for_film()
        if job is None:
            return f"Not taken: {self.refusal}"
        if not job.begun or job.snapshot is None or job.state == "failed":
            return None
        key = (job.id, job.state, job.step, inspection)
        known = _FOUND.get(key)
        if known is not None:
            return known
        found = training_service().inspect(job.id, inspection)
        if isinstance(found, bytes):
            _FOUND.put(key, found)
        return found


class _Blobs:
    """The most recently used answers, up to so many bytes; shared by all visitors."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._lock = most_bytes, Lock()
        self._kept: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()

    def get(self, key: tuple[Any, ...]) -> bytes | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: tuple[Any, ...], blob: bytes) -> None:
        with self._lock:
            self._kept[key] = blob
            while sum(map(len, self._kept.values())) > self._most_bytes:
                self._kept.popitem(last=False)


_FOUND = _Blobs(KEPT_BYTES)


def open_subject(page: str, title: str) -> Subject:
    """The head of a page: its title, which run is looked into, the seed picker.

    Args:
        page: its name in the address.
    """
    lab = open_lab(page)
    job = lab.job
    experiment = lab.experiment if job is None else job.experiment
    st.title(title, anchor=False)
    if lab.problems:  # the Lab says it once more
        st.warning(f"The link was not fully understood. {plain(problems_in_words(lab.problems))}")
    with st.container(horizontal=True, vertical_alignment="bottom", key="subject"):
        names = ", ".join(title_of(variant) for variant in experiment.sharing)
        st.markdown(f"**{plain(experiment.task.title)}**: {plain(names)}")
        seed = experiment.first_seed
        if experiment.n_seeds > 1:
            seeds = list(experiment.seeds)
            key = f"inspected_seed_{seeds[0]}_{len(seeds)}"
            remember(key, seeds, seed)
            seed = st.selectbox("Seed", seeds, key=key, width=90)
        st.page_link("pages/lab.py", label="Change it in the Lab", icon=":material/science:")
    lab.write_link()
    if not lab.is_trained:
        _offer_training(lab)
        st.stop()
    return Subject(lab, experiment.replace(first_seed=seed, n_seeds=1), experiment)


def _offer_training(lab: Lab) -> None:
    """Say that there is nothing to look into yet, and what pressing the button trains."""
    if lab.refusal:
        st.error(f"Not taken: {plain(lab.refusal)}.", icon=":material/error:")
        lab.refusal = ""
    if lab.quiet:
        st.info("Not trained yet. Guess in the Lab what will come out, then train it there.")
        return
    seconds = training_service().estimate(lab.experiment)
    models = "1 model" if lab.experiment.n_runs == 1 else f"{lab.experiment.n_runs} models"
    st.info(
        f"These settings are not trained yet. **Train** trains {models}, which takes "
        f"{spoken(seconds)} or so; the Lab and Runs show them, too."
    )
    st.button(
        "Train",
        type="primary",
        icon=":material/play_arrow:",
        on_click=lab.train,
        key="train_here",
    )


def remember(key: str, options: Sequence[Any], otherwise: Any, name: str = "") -> None:
    """Let a picker begin with what was picked on another page, if that is an option here.

    Streamlit keeps nothing of the widgets of a page that is left, and a widget of the same key on
    another page is a new one. Call this before each run's widget.

    Args:
        name: what is remembered, if widgets of several keys pick the same.
    """
    memory: dict[str, Any] = st.session_state.setdefault("remembered", {})
    place = st.session_state.page
    if key in st.session_state:
        memory[name or key] = st.session_state[key]
    wanted = memory.get(name or key, otherwise)
    if memory.get(f"{key} on") != place or wanted not in options:
        st.session_state[key] = wanted if wanted in options else otherwise
    memory[f"{key} on"] = place


def pick_layer_and_head(subject: Subject) -> tuple[int, int]:
    """Pickers, where there is a choice; those of one visitor hold on all pages."""
    places, n_heads = subject.experiment.layer_specs, subject.experiment.n_heads
    layer = head = 0
    if len(places) > 1:
        remember("inspected_layer", range(len(places)), telling_layer(places))
        layer = st.selectbox(
            "Layer",
            range(len(places)),
            format_func=lambda i: places[i].title.removeprefix("Layer "),
            key="inspected_layer",
            width=130,
        )
    if n_heads > 1:
        remember("inspected_head", range(n_heads), 0)
        head = st.selectbox(
            "Head", range(n_heads), format_func=lambda i: f"{i + 1}", key="inspected_head", width=90
        )
    return layer, head


def show_film(subject: Subject, inspection: Inspection, component: str) -> None:
    """Draw what an inspection finds, and go on as long as the run trains.

    Args:
        component: the name of its script. What is clicked in it is in
            `st.session_state[component].picked`: any of layer, head and asking.
    """
    moving = moves(subject.ask_for_film())
    st.session_state[f"sent_{component}"] = _Sent()
    st.fragment(_draw, run_every=TICK_SECONDS if moving else None)(
        subject, inspection, component, moving
    )


def moves(job: Job | None) -> bool:
    """Whether new frames come by themselves."""
    return job is not None and not job.over and job.state != "paused"


@dataclass
class _Sent:
    """What one drawing of a page has sent so far.

    Attributes:
        film: the job. step: of the last frame. blob: the last bytes.
        trouble: why there are none; it is not asked again before somebody wants it.
    """

    film: str = ""
    step: int = -1
    blob: bytes = b""
    trouble: str = ""


_HEIGHT = 600
"""Pixels that are kept until the first frame is there."""


def _draw(subject: Subject, inspection: Inspection, component: str, moving: bool) -> None:
    """The status line and the component; drawn anew at every tick."""
    if st.session_state.pop("picked_anew", False):  # the pickers above and the question change, too
        st.rerun()
    sent: _Sent = st.session_state[f"sent_{component}"]
    job = subject.ask_for_film()
    if job is not None and job.id != sent.film:
        sent.film, sent.step = job.id, -1
    st.markdown(_status(job, subject))
    if job is not None and job.state == "failed":
        st.button("Train it again", icon=":material/replay:", on_click=subject.try_again)
        if subject.lab.refusal:
            st.error(f"Not taken: {plain(subject.lab.refusal)}.", icon=":material/error:")
            subject.lab.refusal = ""
    if not sent.trouble:
        _fetch(subject, inspection, sent, whole=job is None or job.over)
    if sent.trouble:
        st.error(plain(f"{sent.trouble}."), icon=":material/error:")
        again, args = f"again_{component}", (component,)
        st.button("Ask again", icon=":material/refresh:", key=again, on_click=_send_all, args=args)
    if sent.blob:
        components.film(
            component,
            sent.blob,
            key=component,
            picked=partial(_take_picked, component),
            resend=partial(_send_all, component),
        )
    elif moving:
        st.skeleton(height=_HEIGHT)
    if moves(subject.ask_for_film()) != moving:  # it has ended, or its film had to be had back
        st.rerun()


def _fetch(subject: Subject, inspection: Inspection, sent: _Sent, *, whole: bool) -> None:
    """Ask for the frames that are new, or for all."""
    found = subject.inspect(replace(inspection, since=-1 if whole else sent.step))
    if isinstance(found, str):
        sent.trouble = found
    elif found is not None:
        header = InspectionResult.from_bytes(found).header
        if header["steps"]:
            sent.step, sent.blob = header["steps"][-1], found


def _status(job: Job | None, subject: Subject) -> str:
    """How far the run is that is looked into."""
    seed = subject.experiment.first_seed
    if job is None:
        return "Nothing to look into."
    if job.state == "failed":
        return f"Training failed: {plain(job.error)}."
    if job.state == "stopped" and not job.begun:
        return f"Stopped before it began{f', {plain(job.error)}' if job.error else ''}."
    if not job.begun or job.snapshot is None:
        return "Waiting for a turn to train it." if not job.begun else "Training begins."
    where = f"step {job.step} of {job.experiment.training.steps}"
    if job.state == "paused":
        return f"Paused at {where}."
    if job.over:
        return (
            f"Trained for {job.step} steps; the figures are of one run each, seed {seed}. "
            "Drag the slider, or press Play, to go through them."
        )
    if not job.kept and subject.lab.is_finished:
        return (
            f"The models of seed {seed} are trained once more to film them, with the same numbers: "
            f"{where}. New moments are added as they come."
        )
    return f"Training: {where}. New moments are added as they come."


def _take_picked(component: str) -> None:
    """Take over what was clicked in a figure."""
    for name, value in (st.session_state[component].picked or {}).items():
        if name in ("layer", "head", "asking") and isinstance(value, int) and value >= 0:
            st.session_state[f"inspected_{name}"] = value
            st.session_state["picked_anew"] = True


def _send_all(component: str) -> None:
    """Ask for all frames at the next tick: the browser lacks some, or there was trouble."""
    st.session_state[f"sent_{component}"] = _Sent()
