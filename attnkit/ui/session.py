"""What one visitor's Lab remembers between reruns, and how it follows the link.

The link is the only home of the settings: it is read when a session begins (or goes back in the
browser's history), and written whenever a valid experiment has been set up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import streamlit as st

from attnkit.analysis.responses import Answers, Example
from attnkit.examples import load_example
from attnkit.experiment.experiment import DEFAULT_TASK, Experiment, default_settings, settings
from attnkit.experiment.links import from_broken_params, link_params, read_link
from attnkit.foundation.settings import InvalidExperiment, Problem
from attnkit.service.jobs import NOBODY, Job, Watcher
from attnkit.service.server import server_settings
from attnkit.service.service import Refused
from attnkit.tasks import TASKS
from attnkit.training.joining import can_share_runs
from attnkit.training.snapshot import Snapshot
from attnkit.ui.address import Linked
from attnkit.ui.presence import watcher
from attnkit.ui.render_cache import curves_only
from attnkit.ui.service import training_service
from attnkit.ui.storage import stored_experiment
from attnkit.variants import Variant, read_variants
from attnkit.variants.sharing import Sharing

FAST_SECONDS = 2.0
"""Experiments that are estimated to take less train by themselves, if the visitor wants that."""

QUIET = "quiet"
"""Field of a link that opens the Lab in the quiet mode: `quiet=1`."""

MOST_COLUMNS = 6
"""Variants that the Lab shows side by side."""


@cache
def shipped_example(task: str) -> Snapshot | None:
    """The finished default experiment of a task; None if there is none that can be read."""
    try:
        return load_example(task)
    except (OSError, ValueError):
        return None


def thumbnail_examples() -> dict[str, Example]:
    """An example of every task at its defaults, of those that have come by now."""
    found = {name: _default_example(name) for name in TASKS}
    return {name: example for name, example in found.items() if isinstance(example, Example)}


def thumbnails_missing() -> bool:
    """Whether some are still being drawn."""
    return any(_default_example(name) is None for name in TASKS)


def _default_example(task: str) -> Example | str | None:
    """An example of a task at its defaults, why there is none, or None: it has not come."""
    try:
        experiment = default_experiment(task)
    except Exception as error:  # a task of one's own may raise anything; the others are shown
        return str(error)
    return training_service().example(experiment)


@cache
def default_experiment(task: str) -> Experiment:
    """A task at its defaults."""
    return Experiment(task=task)


@dataclass
class Lab(Linked):
    """One visitor's Lab.

    Attributes:
        experiment: the last valid settings.
        link: the query parameters as last read or written; others mean that somebody else,
            the browser's history or a link in the page, has changed them.
        offered: composed variants that can be switched on and off, newest last.
        hidden: controls that a class link hides; they keep their values.
        problems: what was wrong with the link that was read last.
        lost: why variants were left out when the task was changed; said once.
        watcher: this tab, as last known.
        job_id: the job on screen, if one was started or found.
        held: that job as this visitor has paused or stopped it while others watch it go on.
        refusal: why the last experiment that was asked for was not taken; said once.
        previous: the last state of the job before it on the same task, drawn faded.
        quiet: Whether the visitor guesses before anything is shown that gives the answer away.
        opened_at: When the page on screen was opened, on the clock of `time.monotonic`.
        automatic: Whether changed settings that train fast are trained without a press.
        filmed_id: the job whose film a page shows, if that is another one.
    """

    experiment: Experiment
    offered: list[Variant] = field(default_factory=list)
    hidden: tuple[str, ...] = ()
    problems: list[Problem] = field(default_factory=list)
    lost: list[Problem] = field(default_factory=list)
    watcher: Watcher = NOBODY
    job_id: str | None = None
    held: Job | None = None
    refusal: str = ""
    previous: Snapshot | None = None
    filmed_id: str | None = None
    quiet: bool = False
    opened_at: float = 0.0
    automatic: bool = False
    _followed: Experiment | None = None
    _answered: tuple[tuple[str, int, bytes], Answers] | None = None

    @property
    def watched(self) -> set[str]:
        """The jobs that go on for this visitor, whatever page they are on."""
        further = (st.session_state.get(name) for name in ("operation", "reruns"))
        others = [getattr(one, "job_id", None) for one in further]
        return {one for one in (self.job_id, self.filmed_id, *others) if one}

    @property
    def job(self) -> Job | None:
        """The job on screen as it is now."""
        if self.held is not None:
            return self.held
        return training_service().look(self.job_id, self.watcher) if self.job_id else None

    def shown(self, job: Job | None) -> Snapshot | None:
        """Return the snapshot to draw: the job's, or the shipped example of the task.

        In the quiet mode no example is shown: it would give the answer away.
        """
        if job is not None and job.snapshot is not None:
            return job.snapshot
        return None if self.quiet else self.example

    @property
    def is_finished(self) -> bool:
        """Whether the run on screen, or else the shipped example of the settings, is finished."""
        job = self.job
        if job is not None:
            return job.state == "finished"
        example = None if self.quiet else self.example
        return example is not None and example.experiment == self.experiment

    @property
    def is_trained(self) -> bool:
        """Whether there is a run of the settings to look into, be it in training or in the queue.

        A run that failed is one, too: whoever looks into it is told why.
        """
        job = self.job
        return self.is_finished or (job is not None and (job.begun or not job.over))

    @property
    def example(self) -> Snapshot | None:
        """The shipped example of the task that is set up; None if there is none."""
        return shipped_example(self.experiment.task.name)

    def probe(self) -> Example | str | None:
        """One held-out example of the task as it is set up, the one that the maps will show.

        None while the training process has not answered yet; or a text that says what is wrong.
        """
        return training_service().example(self.experiment, FIRST_EXAMPLE_SECONDS)

    def ask(self, job: Job | None, tokens: np.ndarray) -> Answers | str:
        """Return what models answer to a book, or why not; asked once while neither changes.

        Args:
            job: whose models; None: those of the shipped example.
        """
        task, service = self.experiment.task.name, training_service()
        name = f"example {task}" if job is None else job.id
        step = -1 if job is None or job.snapshot is None else job.snapshot.step
        key = (name, step, tokens.tobytes())
        if self._answered is not None and self._answered[0] == key:
            return self._answered[1]
        found = service.ask_example(task, tokens) if job is None else service.ask(job.id, tokens)
        if not isinstance(found, str):
            self._answered = (key, found)
        return found

    @property
    def quick(self) -> Experiment | None:
        """The task's quick preset; None if there is none, or nothing it may change."""
        task = self.experiment.task
        if not task.preset or not {"sharing", "add_variant", "buttons"}.issuperset(self.hidden):
            return None
        preset = Experiment(task=task.name, **task.preset)
        return None if preset == self.experiment else preset

    def set_quick(self) -> None:
        """Set the task's quick preset up, all else at its defaults."""
        if self.quick is not None:
            self.set(self.quick)

    def read_widgets(self) -> list[Problem]:
        """Take over what the widgets say; if they describe no experiment, what is wrong."""
        name = self.experiment.task.name
        keys = {key: f"set_{key}" for key in default_settings(name) if key != "task"}
        values = {k: st.session_state[key] for k, key in keys.items() if key in st.session_state}
        if len(values.get("sharing", ())) > MOST_COLUMNS:
            return [Problem("sharing", len(values["sharing"]), f"at most {MOST_COLUMNS} columns")]
        try:
            wanted = self.experiment.replace(**values)
        except InvalidExperiment as error:
            return error.problems
        problems = server_settings().problems(wanted)
        if not problems:
            self.experiment = wanted
        return problems

    def train(self) -> None:
        """Begin the settings' experiment, or go on with the one on screen if it is the same.

        What is finished is shown at once; asked for again while it is shown, it is trained again.
        What was stopped goes on. Of other settings, only variants that are new are trained.
        """
        if self.read_widgets():
            return
        job = self.job
        if job is not None and job.experiment == self.experiment:
            if job.state == "stopped":
                self._begin(resumes=job)
            elif job.over:
                self._begin()
            elif self.held is not None:
                self.held = None
            else:
                training_service().resume(job.id)
            return
        known = training_service().find(self.experiment)
        if known is not None and known.state == "finished":
            self._show(known.id)
        else:
            self._begin(reuse=True)

    def follow_settings(self) -> None:
        """Show the result of changed settings if there is one; else train them, where wanted.

        They are trained if the visitor wants that and it takes no time. What still trains is left
        alone.
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
        known = service.find(self.experiment, self.watcher)
        if known is not None and known.state == "finished":
            self._show(known.id)
        elif self.automatic and service.estimate(self.experiment) < FAST_SECONDS:
            self._begin(reuse=True)

    @property
    def n_new(self) -> int | None:
        """How many variants have to be trained beside those on screen; None if all have to be."""
        job = self.job
        if job is None or job.state != "finished":
            return None
        if not can_share_runs(job.experiment, self.experiment):
            return None
        return len(set(self.experiment.sharing) - set(job.experiment.sharing))

    def step(self) -> None:
        """Train to the next evaluation; from step 0 if nothing fitting is on screen."""
        if self.read_widgets():
            return
        job = self.job
        if job is not None and job.experiment == self.experiment and job.state == "stopped":
            self._begin(paused=True, resumes=job)
        elif job is None or job.experiment != self.experiment or job.over:
            self._begin(paused=True)
        if self.job_id and not self.refusal:
            training_service().step(self.job_id)

    def pause(self) -> None:
        """Hold the job on screen; if others watch it, hold what this visitor sees."""
        job = self.job
        if job is None:
            return
        if self._is_shared:
            self.held = replace(job, state="paused", obeyed=job.sent)
        else:
            training_service().pause(job.id)

    def stop(self) -> None:
        """End the job on screen and keep what it reached; for others who watch it goes on."""
        job = self.job
        if job is None:
            return
        if self._is_shared:
            self.held = replace(job, state="stopped", obeyed=job.sent)
            training_service().turn_away(job.id, self.watcher)
        else:
            self.held = None
            training_service().stop(job.id)

    def reset(self) -> None:
        """Back to step 0: the same weights and the same data again."""
        if not self.read_widgets():
            self._begin(paused=True)

    def new_seeds(self) -> None:
        """The same settings on the next seeds; after the last ones, on the first again."""
        if self.read_widgets():
            return
        limit = settings(self.experiment.task.name)["first_seed"].high or 0
        first = self.experiment.first_seed + self.experiment.n_seeds
        self.set(self.experiment.replace(first_seed=first if first <= limit else 0))
        self._begin()

    @property
    def columns(self) -> list[str]:
        """What can be switched on: the five sharings, then what was composed."""
        composed = read_variants(self.offered) if self.offered else ()  # in the order of the cards
        return [*(sharing.value for sharing in Sharing), *(v.value for v in composed)]

    @property
    def chosen(self) -> list[str]:
        """What is switched on."""
        return list(st.session_state.get("set_sharing", self.experiment.settings()["sharing"]))

    def preview(self, text: str) -> tuple[Variant, Experiment, list[Problem]]:
        """A variant as typed, an experiment that has it, and why it cannot stand beside the others.

        Raises:
            InvalidVariant, InvalidExperiment: if it is none, or does not go with the settings.
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
        """Switch the task: what was set by hand and still exists is kept, the rest its defaults.

        The first seed is not kept, so that the new task opens with its finished example.
        Variants that do not go with the new sizes stay on offer, switched off.
        """
        self.read_widgets()
        known = default_settings(task)
        kept = {k: v for k, v in self.experiment.to_params().items() if k in known}
        kept.pop("sharing", None)
        kept.pop("first_seed", None)
        wanted = [] if self.chosen == known["sharing"] else [Variant(name) for name in self.chosen]
        plain = from_broken_params({**kept, "task": task})[0]
        going: list[Variant] = []
        self.lost = []
        for variant in wanted:
            try:
                plain.replace(sharing=[variant])
            except InvalidExperiment as error:
                self.lost += error.problems
            else:
                going.append(variant)
        if going:
            kept["sharing"] = ",".join(going)
        self.set(from_broken_params({**kept, "task": task})[0])

    def follow(self, params: dict[str, str]) -> None:
        """Take over a link: its settings, what it hides, and the run it names if there is one."""
        self.quiet = self.quiet or params.get(QUIET) == "1"
        settings = {k: v for k, v in params.items() if (k, v) != (QUIET, "1")}
        link = read_link(settings, stored_experiment)
        self.hidden, self.problems = link.hidden, link.problems
        self.link, self.offered = params, []
        self.set(link.experiment)
        if self.quiet:
            return
        known = training_service().find(link.experiment, self.watcher)
        if known is not None and known.id != self.job_id:
            self._show(known.id)

    def set(self, experiment: Experiment) -> None:
        """Take over an experiment from elsewhere; a job on another task leaves the screen."""
        if experiment.task.name != self.experiment.task.name:
            self.leave_job()
            self.previous = None
        self.experiment = self._followed = experiment
        composed = [variant for variant in experiment.sharing if not variant.is_partition]
        self.offered += [variant for variant in composed if variant not in self.offered]
        for name, value in experiment.settings().items():
            st.session_state[f"set_{name}"] = value

    def show_all(self) -> None:
        """End a class link: every control is there again, at its present value."""
        self.hidden = ()

    def write_link(self) -> None:
        """Make the address bar say what is set up."""
        quiet = {QUIET: "1"} if self.quiet else {}
        self.set_link({**link_params(self.experiment, self.hidden), **quiet})

    def set_quiet(self, quiet: bool) -> None:
        """Turn the quiet mode on, which hides what is finished, or off, which shows it again."""
        self.quiet, job = quiet, self.job
        if quiet and job is not None and job.over:
            self.leave_job()
            self.previous = None
        elif not quiet and job is None:
            known = training_service().find(self.experiment, self.watcher)
            if known is not None:
                self._show(known.id)

    @property
    def _is_shared(self) -> bool:
        """Whether others watch the job on screen, so that this visitor may not hold it."""
        return self.job_id is not None and training_service().is_shared(self.job_id, self.watcher)

    def _begin(
        self, *, paused: bool = False, reuse: bool = False, resumes: Job | None = None
    ) -> None:
        """Ask for the settings' experiment and show it; the one before stays if it is refused."""
        service = training_service()
        try:
            job_id = service.submit(
                self.experiment, paused=paused, watcher=self.watcher, reuse=reuse, resumes=resumes
            )
        except Refused as error:
            self.refusal = str(error)
            return
        self._show(job_id)
        service.wait(job_id, 0, FIRST_FRAME_SECONDS, self.watcher)

    def _show(self, job_id: str) -> None:
        """Put a job on the screen; the one before fades if it is another on the same task."""
        old = self.job
        if old is not None and old.snapshot is not None:
            learnt = len(old.snapshot.eval_steps) > 1
            same_task = old.experiment.task.name == self.experiment.task.name
            others = not can_share_runs(old.experiment, self.experiment)
            if learnt and same_task and others:
                self.previous = curves_only(old.snapshot)
        if job_id != self.job_id:
            self.leave_job()
        self.job_id, self.held, self.refusal = job_id, None, ""

    def leave_job(self) -> None:
        """Take the job off the screen; it ends if nobody else watches it."""
        if self.job_id:
            training_service().turn_away(self.job_id, self.watcher)
        self.job_id, self.held = None, None


AUTOMATIC = "train_automatically"
"""Key of the switch."""


def automatic_switch(lab: Lab) -> None:
    """Let the visitor choose whether changed settings train by themselves."""
    lab.automatic = st.toggle(
        "Train automatically",
        key=AUTOMATIC,
        help="Changed settings train at once if that takes less than two seconds.",
    )


OPENING_SECONDS = 10.0
"""For so long after a page was opened, every run of it tells the browser the values of all widgets.
Streamlit drops what it has not sent yet when a page is drawn anew, and a browser that was never
told a value draws an empty box."""

FIRST_FRAME_SECONDS = 0.3
"""How long a click waits for the first snapshot, so that it shows without another tick."""

FIRST_EXAMPLE_SECONDS = 0.5
"""How long a page waits for an example of its task, so that it shows without another run."""


def spoken(seconds: float) -> str:
    """Return a time to wait, as one says it."""
    return f"{max(seconds, 1):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def with_hidden(params: dict[str, str]) -> dict[str, str]:
    """A link into the Lab that hides what this visitor's class link hides."""
    lab: Lab | None = st.session_state.get("lab")
    return {**params, "hide": ",".join(lab.hidden)} if lab is not None and lab.hidden else params


def stay() -> None:
    """Keep this visitor's job, whatever page they are on; a tab that was cut off is another one."""
    lab: Lab | None = st.session_state.get("lab")
    if lab is not None:
        lab.watcher = watcher()
        for job_id in lab.watched:
            training_service().look(job_id, lab.watcher)


def open_lab(page: str = "lab") -> Lab:
    """This visitor's Lab, made from the link if there is none yet or the link has changed.

    Args:
        page: which page shows it; all that do have links of the same form.
    """
    params = st.query_params.to_dict()
    lab: Lab | None = st.session_state.get("lab")
    if lab is None:
        lab = st.session_state.lab = Lab(default_experiment(DEFAULT_TASK), watcher=watcher())
        lab.follow(params)
    elif lab.is_called(params, page):
        lab.follow(params)
    if lab.automatic:
        st.session_state.setdefault(AUTOMATIC, True)
    if st.session_state.get("page") != page:
        lab.opened_at = time.monotonic()
    opening = time.monotonic() - lab.opened_at < OPENING_SECONDS
    for name, value in lab.experiment.settings().items():
        key = f"set_{name}"  # widgets of a page that was left are gone
        if opening or key not in st.session_state:
            st.session_state[key] = st.session_state.get(key, value)
    st.session_state.page = page
    return lab
