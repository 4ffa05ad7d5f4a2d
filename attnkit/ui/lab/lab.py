"""The state of one visitor's Lab between reruns, and how it follows the link.

The link is the only home of the settings: it is read when a session begins or the visitor goes back
in the browser's history, and it is written whenever the widgets describe a valid experiment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import streamlit as st

from attnkit.analysis.responses import Answers, Example
from attnkit.experiment.experiment import Experiment, default_settings, full_size, settings
from attnkit.experiment.links import from_broken_params, link_params, read_link
from attnkit.foundation.settings import InvalidExperiment, Problem
from attnkit.service.jobs import Job
from attnkit.service.server import server_settings
from attnkit.ui.address import QUIET, Linked, without_quiet
from attnkit.ui.lab.run_on_screen import RunOnScreen
from attnkit.ui.server.service import training_service
from attnkit.ui.server.storage import stored_experiment
from attnkit.variants import Variant, read_variants
from attnkit.variants.sharing import Sharing

FAST_SECONDS = 2.0
"""Estimated seconds of training below which changed settings train by themselves, if enabled."""

MOST_COLUMNS = 6
"""Variants that the Lab shows side by side."""

FIRST_EXAMPLE_SECONDS = 0.5
"""Seconds that a page waits for an example of its task, so that it needs no second run for it."""


@dataclass
class Lab(RunOnScreen, Linked):
    """The Lab of one visitor: the settings, their link, and the run on screen.

    Attributes:
        offered: Composed variants that can be switched on and off, newest last.
        problems: Problems of the link that was read last.
        lost: Reasons why variants were switched off by a change of task; shown once.
        opened_at: Time when the page on screen was opened, on the clock of `time.monotonic`.
        automatic: Whether changed settings that train fast are trained without a press.
    """

    offered: list[Variant] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    lost: list[Problem] = field(default_factory=list)
    opened_at: float = 0.0
    automatic: bool = False
    _followed: Experiment | None = None
    _answered: tuple[tuple[str, int, bytes], Answers] | None = None

    def probe(self) -> Example | str | None:
        """Return the held-out example of the task that the attention maps show.

        None while the training process has not answered yet; a text if no example can be drawn.
        """
        return training_service().example(self.experiment, FIRST_EXAMPLE_SECONDS)

    def ask(self, job: Job | None, tokens: np.ndarray) -> Answers | str:
        """Return the models' answers to a phone book, or the reason why there are none.

        The last answers are kept, and returned again while neither models nor book change.
        """
        task, service = self.experiment.task.name, training_service()
        name = f"example {task}" if job is None else job.id
        step = -1 if job is None or job.snapshot is None else job.snapshot.step
        key = (name, step, tokens.tobytes())
        if self._answered is not None and self._answered[0] == key:
            return self._answered[1]
        answers = service.ask_example(task, tokens) if job is None else service.ask(job.id, tokens)
        if not isinstance(answers, str):
            self._answered = (key, answers)
        return answers

    @property
    def full_size(self) -> Experiment | None:
        """The task at full size; None if the default is that, or if it is set up or hidden."""
        task = self.experiment.task
        if not task.full_size or not {"sharing", "add_variant", "buttons"}.issuperset(self.hidden):
            return None
        full = full_size(task.name)
        return None if full == self.experiment else full

    def read_widgets(self) -> list[Problem]:
        """Take over the values of the widgets; return their problems if they are not valid."""
        task = self.experiment.task.name
        keys = {name: f"set_{name}" for name in default_settings(task) if name != "task"}
        values = {n: st.session_state[key] for n, key in keys.items() if key in st.session_state}
        if len(values.get("sharing", ())) > MOST_COLUMNS:
            return [Problem("sharing", len(values["sharing"]), f"at most {MOST_COLUMNS} columns")]
        try:
            experiment = self.experiment.replace(**values)
        except InvalidExperiment as error:
            return error.problems
        problems = server_settings().problems(experiment)
        if not problems:
            self.experiment = experiment
        return problems

    def train(self) -> None:
        """Train the settings, or resume the run on screen if it has the same settings.

        A finished run of the settings is shown at once, unless the visitor is to see how it learns;
        if it is on screen already, it is trained again. A stopped run is resumed. Of other
        settings, only new variants are trained.
        """
        if self.read_widgets():
            return
        job = self.job
        if job is not None and job.experiment == self.experiment:
            if job.state == "stopped":
                self.submit(self.experiment, resumes=job)
            elif job.over:
                self.submit(self.experiment)
            elif self.held is not None:
                self.held = None
            else:
                training_service().resume(job.id)
            return
        existing = None if self.opens_untrained else training_service().find(self.experiment)
        if existing is not None and existing.state == "finished":
            self.show_found(existing)
        else:
            self.submit(self.experiment, reuse=not self.opens_untrained)

    def follow_settings(self) -> None:
        """Show the finished run of changed settings; train them if that is fast and enabled.

        A run that still trains stays on screen.
        """
        changed = self._followed not in (None, self.experiment)
        self._followed, job = self.experiment, self.job
        if (
            self.quiet
            or not changed
            or (job is not None and (not job.over or job.experiment == self.experiment))
        ):
            return
        service = training_service()
        existing = service.find(self.experiment, self.watcher)
        if existing is not None and existing.state == "finished" and not self.opens_untrained:
            self.show_found(existing)
        elif self.automatic and service.estimate(self.experiment) < FAST_SECONDS:
            self.submit(self.experiment, reuse=True)

    def step(self) -> None:
        """Train to the next evaluation, from step 0 if the run on screen has other settings."""
        if self.read_widgets():
            return
        job = self.job
        if job is not None and job.experiment == self.experiment and job.state == "stopped":
            self.submit(self.experiment, paused=True, resumes=job)
        elif job is None or job.experiment != self.experiment or job.over:
            self.submit(self.experiment, paused=True)
        if self.job_id and not self.refusal:
            training_service().step(self.job_id)

    def reset(self) -> None:
        """Go back to step 0: the same weights and the same data again."""
        if not self.read_widgets():
            self.submit(self.experiment, paused=True)

    def new_seeds(self) -> None:
        """Train the same settings on the next seeds; after the last seeds, on the first again."""
        if self.read_widgets():
            return
        limit = settings(self.experiment.task.name)["first_seed"].high or 0
        first = self.experiment.first_seed + self.experiment.n_seeds
        self.set(self.experiment.replace(first_seed=first if first <= limit else 0))
        self.submit(self.experiment)

    @property
    def columns(self) -> list[str]:
        """The variants that can be switched on: the five sharings, then the composed ones."""
        composed = read_variants(self.offered) if self.offered else ()  # in the order of the cards
        return [*(sharing.value for sharing in Sharing), *(v.value for v in composed)]

    @property
    def chosen(self) -> list[str]:
        """The variants that are switched on."""
        return list(st.session_state.get("set_sharing", self.experiment.settings()["sharing"]))

    def preview(self, text: str) -> tuple[Variant, Experiment, list[Problem]]:
        """Return the variant of a text, an experiment that has it, and its problems.

        The experiment has the chosen variants, too. If they cannot stand side by side, it has this
        variant alone, and the problems say why.

        Raises:
            InvalidVariant: If the text is no variant.
            InvalidExperiment: If the variant does not go with the settings.
        """
        variant = Variant(text)
        alone = self.experiment.replace(sharing=[variant])
        try:
            together = self.experiment.replace(sharing=[*self.chosen, variant])
        except InvalidExperiment as error:
            return variant, alone, error.problems
        return variant, together, []

    def add(self, text: str) -> None:
        """Switch a variant on, and offer it from now on."""
        variant = Variant(text)
        if variant.value not in self.columns:
            self.offered.append(variant)
        if variant.value not in self.chosen:
            st.session_state.set_sharing = [*self.chosen, variant.value]

    def change_task(self, task: str) -> None:
        """Switch the task, and keep the changed settings that the new task has, too.

        The first seed is not kept, so that the new task opens with its finished example.
        Variants that do not go with the new sizes stay on offer, switched off.
        """
        self.read_widgets()
        defaults = default_settings(task)
        changed = {k: v for k, v in self.experiment.to_params().items() if k in defaults}
        changed.pop("sharing", None)
        changed.pop("first_seed", None)
        is_default = self.chosen == defaults["sharing"]
        variants = [] if is_default else [Variant(name) for name in self.chosen]
        without_variants = from_broken_params({**changed, "task": task})[0]
        fitting: list[Variant] = []
        self.lost = []
        for variant in variants:
            try:
                without_variants.replace(sharing=[variant])
            except InvalidExperiment as error:
                self.lost += error.problems
            else:
                fitting.append(variant)
        if fitting:
            changed["sharing"] = ",".join(fitting)
        self.set(from_broken_params({**changed, "task": task})[0])

    def follow(self, params: dict[str, str]) -> None:
        """Take over a link: its settings, the controls it hides, and the run that it names."""
        self.quiet = self.quiet or params.get(QUIET) == "1"
        self.link, self.offered = without_quiet(params), []
        link = read_link(self.link, stored_experiment)
        self.hidden, self.problems = link.hidden, link.problems
        self.set(link.experiment)
        names_run = "run" in params and not self.quiet
        if self.opens_untrained and not names_run:
            return
        existing = training_service().find(link.experiment, self.watcher)
        if existing is not None and existing.id != self.job_id:
            self.show_found(existing)

    def set(self, experiment: Experiment) -> None:
        """Set up an experiment in all widgets; a job on another task leaves the screen."""
        if experiment.task.name != self.experiment.task.name:
            self.leave()
            self.previous = None
        self.experiment = self._followed = experiment
        composed = [variant for variant in experiment.sharing if not variant.is_partition]
        self.offered += [variant for variant in composed if variant not in self.offered]
        for name, value in experiment.settings().items():
            st.session_state[f"set_{name}"] = value

    def show_all(self) -> None:
        """Show all controls that a class link hides, at their present values."""
        self.hidden = ()

    def write_link(self) -> None:
        """Write the settings into the address bar."""
        self.set_link(link_params(self.experiment, self.hidden))

    def set_quiet(self, quiet: bool) -> None:
        """Turn the quiet mode on, which hides finished runs, or off, which shows them again."""
        self.quiet, job = quiet, self.job
        if quiet and job is not None and job.over:
            self.leave()
            self.previous = None
        elif not self.opens_untrained and job is None:
            existing = training_service().find(self.experiment, self.watcher)
            if existing is not None:
                self.show_found(existing)
