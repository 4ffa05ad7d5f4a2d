"""The state of one visitor's Lab between reruns, how it follows the link, and its settings.

The link is the only home of the settings: it is read when a session begins or the visitor goes back
in the browser's history, and it is written whenever the widgets describe a valid experiment.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import streamlit as st

from attnkit.analysis.responses import Answers, Example
from attnkit.examples import load_example
from attnkit.experiment.experiment import Experiment, default_settings, settings
from attnkit.experiment.links import from_broken_params, link_params, read_link, with_data
from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import InvalidExperiment, Problem, Setting
from attnkit.service.jobs import Job
from attnkit.service.server import server_settings
from attnkit.tasks import TASKS, OwnData, Task, hash_in_link
from attnkit.tasks.own_data import is_hash
from attnkit.training.joining import can_share_runs
from attnkit.training.snapshot import Snapshot
from attnkit.ui.address import QUIET, Linked, is_quiet, open_choice
from attnkit.ui.cache import curves_only, with_variants
from attnkit.ui.lab.classroom import lesson_link
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import stored_experiment, training_service, watcher
from attnkit.ui.watched_job import WatchedJob
from attnkit.variants import Variant, read_variants
from attnkit.variants.sharing import Sharing


@cache
def shipped_example(task: str) -> Snapshot | None:
    """Return the finished default experiment of a task; None if none ships or it is unreadable."""
    try:
        return load_example(task)
    except (OSError, ValueError):
        return None


@cache
def _default_experiment(task: str) -> Experiment:
    return Experiment(task=task)


def default_examples() -> dict[str, Example | str | None]:
    """Return an example of each task at its defaults, or the reason why there is none.

    None means that the training process has not answered yet.
    """
    examples: dict[str, Example | str | None] = {}
    for task in TASKS:
        try:
            experiment = _default_experiment(task)
        except Exception as error:  # a task of a plugin may raise anything; the others are shown
            examples[task] = str(error)
        else:
            examples[task] = training_service().example(experiment)
    return examples


MOST_COLUMNS = 6
"""Variants that the Lab shows side by side."""


def setting_key(name: str) -> str:
    """Return the key of a setting's widget; under it, the session's state has the value.

    `Lab.set` writes the values, the page draws widgets with these keys, and `Lab.read_widgets`
    reads what the visitor has changed.
    """
    return f"set_{name}"


def has_same_data(task: Task, other: Task) -> bool:
    """Return whether two tasks are one task with other dials, and on the same own data if any."""
    data = [one.data if isinstance(one, OwnData) else "" for one in (task, other)]
    return task.name == other.name and data[0] == data[1]


@dataclass
class Lab(WatchedJob, Linked):
    """The Lab of one visitor: the settings, their link, and the run on screen.

    The run on screen is a job of the settings, or else the shipped example.

    Attributes:
        came_finished: Whether the job was finished already when it came to the screen.
        previous: Last snapshot of the job before it on the same task; its curves are drawn in grey.
        filmed_id: The job whose film a page shows, if that is another one.
        hidden: Controls that a class link hides; they keep their values.
        unhidden: Controls that it hides and that the visitor has shown.
        offered: Composed variants that can be switched on and off, newest last.
        lost: Reasons why variants were switched off by a change of task; shown once.
        own_data: The visitor's last own data, by the hash that stands for them in a link.
        awaited: Fields of a link whose own data are missing; empty if none are.
    """

    experiment: Experiment
    came_finished: bool = False
    previous: Snapshot | None = None
    filmed_id: str | None = None
    quiet: bool = False
    hidden: tuple[str, ...] = ()
    unhidden: tuple[str, ...] = ()
    offered: list[Variant] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    lost: list[Problem] = field(default_factory=list)
    own_data: dict[str, str] = field(default_factory=dict)
    awaited: dict[str, Any] = field(default_factory=dict)
    opened_at: float = 0.0
    automatic: bool = False
    _followed: Experiment | None = None
    _answered: tuple[tuple[str, int, bytes], Answers] | None = None

    @property
    def opens_untrained(self) -> bool:
        """Whether no finished run is shown in place of a training that the visitor can watch.

        A class sees how the models learn, and visitors in the quiet mode guess before they see the
        result.
        """
        return self.quiet or bool(self.hidden)

    @property
    def watched(self) -> set[str]:
        """The jobs that go on for this visitor, whatever page they are on."""
        trainings = (st.session_state.get(key) for key in ("operation", "reruns", "live_sweep"))
        further = [getattr(training, "job_id", None) for training in trainings]
        return {job_id for job_id in (self.job_id, self.filmed_id, *further) if job_id}

    @property
    def example(self) -> Snapshot | None:
        """The shipped example of the task that is set up; None if there is none."""
        return shipped_example(self.experiment.task.name)

    def shown(self, job: Job | None) -> Snapshot | None:
        """Return the snapshot to draw: that of the job, or else the shipped example.

        It has the chosen variants only, as far as their runs are known. A job with other settings
        is shown as it was trained. An example with other settings is not shown, and none is shown
        if the visitor is to see the training first (see `opens_untrained`).
        """
        example = None if self.opens_untrained else self.example
        snapshot = example if job is None else job.snapshot
        if snapshot is None:
            return None
        if not can_share_runs(snapshot.experiment, self.experiment):
            return None if job is None else snapshot
        known = [v for v in self.experiment.sharing if v in snapshot.experiment.sharing]
        return with_variants(snapshot, tuple(known)) if known else None

    def lacking(self, trained: Experiment) -> list[Variant]:
        """Return the chosen variants that an experiment with the same settings has not trained."""
        return [v for v in self.experiment.sharing if v not in trained.sharing]

    @property
    def job_of_settings(self) -> Job | None:
        """The job on screen, if it has these settings."""
        job = self.job
        return job if job is not None and job.experiment == self.experiment else None

    @property
    def finished(self) -> Snapshot | None:
        """The finished run on screen, or else the shipped example if it has these settings."""
        job = self.job
        if job is not None:
            return job.snapshot if job.state == "finished" else None
        example = self.shown(None)
        return example if example is not None and example.experiment == self.experiment else None

    @property
    def is_trained(self) -> bool:
        """Whether the settings have a run to look into: finished, in training or in the queue.

        A failed run counts, too: the pages that look into it then show the error.
        """
        job = self.job
        return self.finished is not None or (job is not None and (job.begun or not job.over))

    def example_of_maps(self) -> Example | str | None:
        """Return the held-out example of the task that the attention maps show.

        None while the training process has not answered yet; a text if no example can be drawn.
        """
        # Half a second is usually enough, so that the page needs no second run for it.
        example = training_service().example(self.experiment, 0.5, self.watcher)
        return tr(example) if isinstance(example, str) else example

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
        if job is None:
            answers = service.ask_example(task, tokens, watcher=self.watcher)
        else:
            answers = service.ask(job.id, tokens, watcher=self.watcher)
        if isinstance(answers, str):
            return tr(answers)
        self._answered = (key, answers)
        return answers

    def read_widgets(self) -> list[Problem]:
        """Take over the values of the widgets; return their problems if they are not valid."""
        task = self.experiment.task.name
        keys = {name: setting_key(name) for name in default_settings(task) if name != "task"}
        values = {n: st.session_state[key] for n, key in keys.items() if key in st.session_state}
        if len(values.get("sharing", ())) > MOST_COLUMNS:
            allowed = mark("at most {most} columns", most=MOST_COLUMNS)
            return [Problem("sharing", len(values["sharing"]), allowed)]
        try:
            experiment = self.experiment.replace(**values)
        except InvalidExperiment as error:
            return error.problems
        problems = server_settings().problems(experiment)
        if not problems:
            self.experiment = experiment
        return problems

    def watch(self, job_id: str) -> None:
        """Put a job on the screen; the curves of a comparable job before it are drawn in grey."""
        old = self.job
        if old is not None and old.snapshot is not None:
            has_curves = len(old.snapshot.eval_steps) > 1
            same_task = has_same_data(old.experiment.task, self.experiment.task)
            has_other_runs = not can_share_runs(old.experiment, self.experiment)
            if has_curves and same_task and has_other_runs:
                self.previous = curves_only(old.snapshot)
        super().watch(job_id)
        self.came_finished = False

    def show_found(self, job: Job) -> None:
        """Put a job on the screen that was found, and note whether it was finished already."""
        self.watch(job.id)
        self.came_finished = job.state == "finished"

    def train(self) -> None:
        """Train the settings, or resume the run on screen if it has the same settings.

        A finished run of the settings is shown at once, unless the visitor is to see how it learns;
        if it is on screen already, it is trained again. A stopped run is resumed. Of other
        settings, only new variants are trained.
        """
        if self.read_widgets():
            return
        job = self.job_of_settings
        if job is not None:
            if job.state == "stopped":
                self.submit(self.experiment, resumes=job)
            elif job.over:
                self.submit(self.experiment)
            elif self.private_state is not None:
                self.private_state = None
            else:
                training_service().resume(job.id)
            return
        service, existing = training_service(), None
        if not self.opens_untrained:
            existing = service.find(self.experiment, self.watcher)
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
        elif self.automatic and service.estimate(self.experiment) < 2:
            self.submit(self.experiment, reuse=True)

    def step(self) -> None:
        """Train to the next evaluation, from step 0 if the run on screen has other settings."""
        if self.read_widgets():
            return
        job = self.job_of_settings
        if job is None or job.over:
            is_stopped = job is not None and job.state == "stopped"
            self.submit(self.experiment, paused=True, resumes=job if is_stopped else None)
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
        default = self.experiment.settings()["sharing"]
        return list(st.session_state.get(setting_key("sharing"), default))

    def preview(self, variant: Variant) -> tuple[Experiment | None, list[Problem]]:
        """Return an experiment that has a variant, and the problems of adding the variant.

        The experiment has the chosen variants, too. If they cannot stand side by side, it has this
        variant alone. It is None if the variant does not go with the settings.
        """
        problems: list[Problem] = []
        for others in (self.chosen, []):
            try:
                return self.experiment.replace(sharing=[*others, variant]), problems
            except InvalidExperiment as error:
                problems = error.problems
        return None, problems

    def add(self, variant: Variant) -> None:
        """Switch a variant on, and offer it from now on."""
        if variant.value not in self.columns:
            self.offered.append(variant)
        if variant.value not in self.chosen:
            st.session_state[setting_key("sharing")] = [*self.chosen, variant.value]

    def follow(self, params: dict[str, str]) -> None:
        """Take over a link: its settings, the controls it hides, and the run that it names."""
        self.quiet = self.quiet or st.query_params.get(QUIET) == "1"
        self.link, self.offered = params or lesson_link(), []
        link = read_link(self.link, stored_experiment, self.own_data)
        self.hidden, self.problems = link.hidden, link.problems
        self.unhidden = () if link.hidden else read_link(lesson_link(), stored_experiment).hidden
        self.set(link.experiment)
        self.awaited = dict(link.awaited)
        names_run = "run" in params and not self.quiet
        service, existing = training_service(), None
        if names_run or not self.opens_untrained:
            existing = service.find(link.experiment, self.watcher)
        existing = existing or service.restore(link.experiment, self.watcher)
        if existing is not None and existing.id != self.job_id:
            self.show_found(existing)

    def set(self, experiment: Experiment) -> None:
        """Set up an experiment in all widgets; a job on another task leaves the screen."""
        if not has_same_data(experiment.task, self.experiment.task):
            self.leave()
            self.previous = None
        self.awaited = {}
        if isinstance(experiment.task, OwnData):
            name = hash_in_link(experiment.task.data)
            self.own_data.pop(name, None)
            last = list(self.own_data.items())[-3:]  # with this one, for the way back to them
            self.own_data = {**dict(last), name: experiment.task.data}
        self.experiment = self._followed = experiment
        composed = [variant for variant in experiment.sharing if not variant.is_partition]
        self.offered += [variant for variant in composed if variant not in self.offered]
        for name, value in experiment.settings().items():
            st.session_state[setting_key(name)] = value

    def show_all(self) -> None:
        """Show all controls that a class link hides, at their present values, or hide them."""
        self.hidden, self.unhidden = self.unhidden, self.hidden

    def write_link(self) -> None:
        """Write the settings into the address bar, unless it is a link that awaits its data.

        Own data of a hosted copy are not written there, because servers log addresses.
        """
        if not self.awaited:
            private = server_settings().is_private(self.experiment)
            self.set_link(link_params(self.experiment, self.hidden, private=private))

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


def open_lab(page: str = "lab") -> Lab:
    """Return the Lab of this visitor, made from the link if it is new or the link has changed."""
    comes_from_elsewhere = st.session_state.get("page") != page
    lab = open_choice(
        page,
        "lab",
        lambda: Lab(Experiment(), watcher=watcher(), quiet=is_quiet()),
    )
    if comes_from_elsewhere:
        lab.opened_at = time.monotonic()
    # Streamlit drops unsent values when a page is drawn anew, and a browser that never received a
    # value draws an empty box: all are sent again for half a minute.
    opening = time.monotonic() - lab.opened_at < 30
    for name, value in lab.experiment.settings().items():
        key = setting_key(name)  # Streamlit may keep a left page's old values
        if comes_from_elsewhere:
            st.session_state[key] = value
        elif opening or key not in st.session_state:
            st.session_state[key] = st.session_state.get(key, value)
    return lab


def lab_link(label: str, params: dict[str, str] | None = None) -> None:
    """Draw a link that opens the Lab."""
    link = None if params is None else with_hidden(params)
    page_link("lab", label, icon=":material/science:", query_params=link)


def stay() -> None:
    """Keep the jobs of this visitor alive, whatever page they are on.

    A tab that was cut off comes back as another tab, so the watcher is read anew.
    """
    lab: Lab | None = st.session_state.get("lab")
    if lab is not None:
        lab.watcher = watcher()
        for job_id in lab.watched:
            training_service().job(job_id, lab.watcher)


def with_hidden(params: dict[str, str]) -> dict[str, str]:
    """Return query parameters of the Lab that hide the controls that this visitor's link hides.

    On a hosted copy, only the hash of own data stands in them: the session has the data.
    """
    data = params.get("data", "")
    if data and not is_hash(data) and server_settings().hosted:
        params = {**params, "data": hash_in_link(data)}
    lab: Lab | None = st.session_state.get("lab")
    return {**params, "hide": ",".join(lab.hidden)} if lab is not None and lab.hidden else params


def change_task(lab: Lab, task: str, data: str = "") -> None:
    """Switch the task, and keep the changed settings that the new task has, too.

    The first seed is not kept, so that the new task opens with its finished example.
    Variants that do not go with the new sizes stay on offer, switched off. Settings that do not
    go with the new task are those of the task; with data of one's own, a message says so. Data that
    cannot be used, or not on this copy, raise `InvalidExperiment`.
    """

    def experiment_of(fields: Mapping[str, Any]) -> tuple[Experiment, list[Problem]]:
        fields = {**fields, "task": task}
        return with_data(fields, data) if data else from_broken_params(fields)

    lab.read_widgets()
    defaults = default_settings(task)
    changed = {k: v for k, v in lab.experiment.to_params().items() if k in defaults}
    for name in ("sharing", "first_seed", "data", "n_entries" if data else ""):
        changed.pop(name, None)
    is_default = lab.chosen == defaults["sharing"]
    variants = [] if is_default else [Variant(name) for name in lab.chosen]
    without_variants, _ = experiment_of(changed)
    if over := server_settings().data_problems(without_variants):
        raise InvalidExperiment(over)
    fitting: list[Variant] = []
    lab.lost = []
    for variant in variants:
        try:
            without_variants.replace(sharing=[variant])
        except InvalidExperiment as error:
            lab.lost += error.problems
        else:
            fitting.append(variant)
    if fitting:
        changed["sharing"] = ",".join(fitting)
    experiment, problems = experiment_of(changed)
    if data:
        lab.lost += problems
    lab.set(experiment)


def use_data(lab: Lab, task: str, data: str) -> None:
    """Set up a task on data of one's own, with the settings of the link that awaits them."""
    if not lab.awaited:
        change_task(lab, task, data)
        return
    experiment, problems = with_data({**lab.awaited, "task": task}, data)
    if over := server_settings().data_problems(experiment):
        raise InvalidExperiment(over)
    if lab.awaited.get("data") not in ("", hash_in_link(experiment.settings()["data"])):
        reason = mark("but these are other data; all other settings are those of the link")
        problems.append(Problem("data", lab.awaited["data"], reason))
    lab.problems += problems
    lab.set(experiment)


MAIN_GROUPS: dict[str, tuple[str, ...]] = {
    mark("Model"): ("n_heads", "d_head", "n_layers", "d_mlp", "d_model", "self_mask", "equal"),
    mark("Training"): ("n_seeds", "steps", "learning_rate"),
}
"""Settings that are shown besides the task's own, by group; all others are under "More"."""


def setting_widgets(
    task: Task, hidden: Collection[str] = (), problems: Sequence[Problem] = ()
) -> None:
    """Draw one widget for each setting of a task, in groups; see `setting_key`.

    Data of one's own, and how they are learnt, have an area of their own.
    """
    if "settings" in hidden:
        return
    labels = labels_of(task.name)
    messages = {problem.field: problem.on_screen(labels) for problem in problems}
    present = {name: s for name, s in settings(task.name).items() if name not in hidden}
    for name in ("data", "learn"):
        present.pop(name, None)
    if task.earlier is None:
        present.pop("earlier_steps", None)
    if not task.lengths:
        present.pop("longer_test", None)
    for group, names in {mark("Task"): tuple(type(task).model_fields), **MAIN_GROUPS}.items():
        members = [present.pop(name) for name in names if name in present]
        if members:
            st.markdown(f"**{tr(group)}**")
        _grid(members, messages)
    if present and "more" not in hidden:
        with st.expander(tr("More"), expanded=not messages.keys().isdisjoint(present)):
            _grid(present.values(), messages)


def labels_of(task: str) -> dict[str, str]:
    """Return the English label of every setting of a task, by the setting's name.

    So are labels of quantities that a copy limits.
    """
    others = {
        "sharing": mark("Variants"),
        "data": mark("Data"),
        "parameters": mark("Parameters"),
        "memory": mark("Memory"),
    }
    return others | {name: s.label for name, s in settings(task).items()}


def _grid(group: Iterable[Setting], messages: Mapping[str, str]) -> None:
    group = list(group)
    numbers = [setting for setting in group if setting.kind in (int, float)]
    rows = [numbers[first : first + 2] for first in range(0, len(numbers), 2)]
    rows += [[setting] for setting in group if setting not in numbers]
    for row in rows:
        columns = st.columns(2) if row[0] in numbers else [st.container()]
        for column, setting in zip(columns, row, strict=False):
            with column:
                _widget(setting)
                if setting.name in messages:
                    st.markdown(f":red[:material/error: {plain(messages[setting.name])}]")


def _widget(setting: Setting) -> None:
    common: dict[str, Any] = {"label": tr(setting.label), "key": setting_key(setting.name)}
    choices: dict[str, Any] = {
        "options": setting.choices,
        "format_func": lambda choice: tr(setting.label_of(choice)),
    }
    if setting.kind is bool:
        st.toggle(**common, help=tr(setting.help))
    elif len(setting.choices) > 3:  # more do not fit side by side
        st.selectbox(**common, **choices, help=tr(setting.help))
    elif setting.choices:
        st.segmented_control(**common, **choices, help=tr(setting.help), required=True)
    else:
        # For whole numbers the browser cuts decimals (3.7 to 3, 1e3 to 1), replaces an empty box
        # by its default and drops values out of bounds, all without a message. A decimal number
        # without default and bounds arrives as it was typed; `Lab.read_widgets` finds its problems.
        allowed = tr("Allowed: {allowed}.", allowed=tr(setting.allowed))
        help_text = f"{tr(setting.help)} {allowed}"
        st.number_input(**common, value=None, step=_step(setting), format="%g", help=help_text)


def _step(setting: Setting) -> float:
    """Return by how much one press of + changes a value: by more where values are large."""
    if setting.kind is float:
        return 0.001
    return float(setting.multiple_of or (100 if setting.default >= 500 else 1))
