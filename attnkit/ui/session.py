"""What one visitor's Lab remembers between reruns, and how it follows the link.

The link is the only home of the settings: it is read when a session begins (or goes back in the
browser's history), and written whenever a valid experiment has been set up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import streamlit as st

from attnkit.examples import load_example
from attnkit.experiment import Experiment, Problem, from_broken_params, settings
from attnkit.live.service import Job, TrainingService
from attnkit.results import Snapshot


@st.cache_resource(show_spinner=False)
def training_service() -> TrainingService:
    """The server's one training process, started with the first page so that it is warm."""
    return TrainingService()


_example = cache(load_example)


@dataclass
class Lab:
    """One visitor's Lab.

    Attributes:
        experiment: the last valid settings.
        link: the query parameters as last read or written; others mean that somebody else,
            the browser's history or a link in the page, has changed them.
        problems: what was wrong with the link the session began with.
        job_id: the job on screen, if one was started or found.
        previous: the last state of the job before it, drawn faded.
    """

    experiment: Experiment
    link: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    job_id: str | None = None
    previous: Snapshot | None = None

    @property
    def job(self) -> Job | None:
        """The job on screen as it is now."""
        return training_service().look(self.job_id) if self.job_id else None

    @property
    def example(self) -> Snapshot:
        """The shipped example of the task that is set up."""
        return _example(self.experiment.task.name)

    def train(self) -> None:
        """Begin the settings' experiment, or go on with the one on screen if it is the same."""
        job = self.job
        if job is not None and job.experiment == self.experiment and not job.over:
            training_service().resume(job.id)
        else:
            self._begin()

    def step(self) -> None:
        """Train to the next evaluation; from step 0 if nothing fitting is on screen."""
        job = self.job
        if job is None or job.experiment != self.experiment or job.over:
            job = self._begin(paused=True)
        training_service().step(job.id)

    def pause(self) -> None:
        """Hold the job on screen."""
        if self.job_id:
            training_service().pause(self.job_id)

    def stop(self) -> None:
        """End the job on screen and keep what it reached."""
        if self.job_id:
            training_service().stop(self.job_id)

    def reset(self) -> None:
        """Back to step 0: the same weights and the same data again."""
        self._begin(paused=True)

    def new_seeds(self) -> None:
        """The same settings on seeds not used so far."""
        n_seeds = self.experiment.n_seeds
        limit = settings(self.experiment.task.name)["first_seed"].high or 0
        first = self.experiment.first_seed + n_seeds
        self.set(self.experiment.replace(first_seed=first if first <= limit else 0))
        self._begin()

    def set(self, experiment: Experiment) -> None:
        """Take over an experiment from outside the widgets: a link, a task's defaults."""
        self.experiment = experiment
        for name, value in experiment.settings().items():
            st.session_state[f"set_{name}"] = value

    def _begin(self, *, paused: bool = False) -> Job:
        service = training_service()
        old = self.job
        if old is not None:
            if not old.over:
                service.stop(old.id)
            learnt = old.snapshot is not None and len(old.snapshot.eval_steps) > 1
            if learnt and old.experiment != self.experiment:
                self.previous = old.snapshot
        self.job_id = service.submit(self.experiment, paused=paused)
        job = service.wait(self.job_id, 0, FIRST_FRAME_SECONDS)
        assert job is not None  # it was submitted a moment ago
        return job


FIRST_FRAME_SECONDS = 0.3
"""How long a click waits for the first snapshot, so that it shows without another tick."""


def open_lab() -> Lab:
    """This visitor's Lab, made from the link if there is none yet or the link has changed."""
    params = st.query_params.to_dict()
    lab: Lab | None = st.session_state.get("lab")
    if lab is None:
        experiment, problems = from_broken_params(params)
        lab = Lab(experiment, params, problems)
        known = training_service().find(experiment)
        lab.job_id = known.id if known else None
        st.session_state.lab = lab
        lab.set(experiment)
    elif params and params != lab.link:
        experiment, lab.problems = from_broken_params(params)
        lab.link = params
        lab.set(experiment)
    for name, value in lab.experiment.settings().items():  # widgets of a page left are gone
        st.session_state.setdefault(f"set_{name}", value)
    return lab


def write_link(lab: Lab) -> None:
    """Make the address bar say what is set up."""
    lab.link = lab.experiment.to_params()
    if st.query_params.to_dict() != lab.link:
        st.query_params.from_dict(lab.link)


def change_task(lab: Lab, task: str) -> None:
    """Switch the task: what was set by hand and still exists is kept, the rest are its defaults."""
    kept = {
        name: value
        for name, value in lab.experiment.to_params().items()
        if name in settings(task) or name == "sharing"
    }
    experiment, _ = from_broken_params({**kept, "task": task})
    lab.set(experiment)
