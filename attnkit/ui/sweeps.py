"""A visitor's choices on the page Capacity with their link, and a small sweep of their own.

Which values a choice may have depends on the sweep, so that `read_for` reads them once it is known.
A sweep of the visitor's own has a form, and is trained point by point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st

from attnkit.experiment.experiment import Experiment, settings
from attnkit.figures.capacity import MEASURES, MOST_PANELS, Measure, middle_of
from attnkit.foundation.settings import InvalidExperiment, Problem, Setting, Value
from attnkit.service.jobs import Watcher
from attnkit.service.server import server_settings
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.cells import COSTS, Cost
from attnkit.sweeps.conclusion import Conclusion, conclusion, label_of
from attnkit.sweeps.planning import Plan
from attnkit.sweeps.result import SHIPPED, failed_rows, labelled
from attnkit.sweeps.specification import NOT_AN_AXIS, InvalidSweep
from attnkit.tasks import TASKS, OwnData, Task, task_named
from attnkit.training.pace import duration_in_words
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import run_table
from attnkit.ui.address import Linked, LinkField, LinkList, by_text
from attnkit.ui.cache import cached_by_language
from attnkit.ui.lab.lab import Lab, labels_of
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import training_service, watcher
from attnkit.ui.server.turns import fragment
from attnkit.ui.watched_job import Series
from attnkit.ui.widgets import bound
from attnkit.variants import CATALOGUE, Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.sharing import Sharing

OWN = "own"
"""Value of `sweep` in a link for the sweep that the visitor has run."""

SECTIONS = {
    "slices": "Slices",
    "difference": "Difference of two variants",
    "frontier": "Accuracy and cost",
    "numbers": "The numbers",
    "live": "A sweep of your own",
}
"""Title of each section below the phase diagram, by its name in a link."""

PLAN = "plan"
"""Field of a link with the visitor's own sweep as TOML, so that it can be opened again where the
session has ended."""

_NAMES = {"sweep", PLAN, "measure", "x", "y", "variants", "show", "one", "other", "cost", "cell"}
"""Fields of a link of this page, besides the names of axes."""

BASELINE = Variant("QKV")


class Cell(NamedTuple):
    """A variant at a point of a sweep, the values of its axes in their order."""

    point: tuple[Value, ...]
    variant: Variant

    def __str__(self) -> str:
        """Return the cell as a link has it: the values of the axes, then the variant."""
        return "/".join([*map(text_of, self.point), self.variant])

    def in_words(self, sweep: Sweep) -> str:
        """Return the variant and the value of every axis as text."""
        values = self.values_in(sweep).items()
        texts = [f"{label_of(name)} {text_of(value)}" for name, value in values]
        return ", ".join([title_of(self.variant), *texts])

    def values_in(self, sweep: Sweep) -> dict[str, Value]:
        """Return the values of the axes by their names."""
        return dict(zip(sweep.axes, self.point, strict=True))


@dataclass
class CapacityChoice(Linked):
    """One visitor's choices.

    Attributes:
        sweep: Name of the sweep in `SHIPPED`, or `OWN`.
        y: Name of the axis upwards; empty if the sweep has a single axis.
        fixed: Value of every axis, which counts where the axis is not drawn.
        section: Name of the open section; empty if none is open.
        cell: The cell whose numbers are shown; None if none was chosen.
        unread: What a link says about a sweep that is not known yet.
    """

    sweep: str = next(iter(SHIPPED))
    measure: Measure = "accuracy"
    x: str = ""
    y: str = ""
    fixed: dict[str, Value] = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()
    section: str = ""
    one: Variant = BASELINE
    other: Variant = BASELINE
    cost: Cost = "attention_parameters"
    cell: Cell | None = None
    problems: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict, repr=False)
    _read_for: Sweep | None = field(default=None, repr=False)

    def _fields(self) -> Iterator[tuple[str, LinkField[Any]]]:
        """Yield the choices that every sweep has, by the name of their attribute."""
        costs = self.section == "frontier"
        yield "sweep", LinkField("sweep", CapacityChoice.sweep, by_text([*SHIPPED, OWN]))
        yield "measure", LinkField("measure", CapacityChoice.measure, by_text(MEASURES))
        shown = by_text(SECTIONS) | {"matching": "frontier"}  # a section of older versions
        yield "section", LinkField("show", "", shown, ", ".join(SECTIONS))
        yield "cost", LinkField("cost", CapacityChoice.cost, by_text(COSTS), is_shown=costs)

    def _fields_of(self, sweep: Sweep) -> Iterator[tuple[dict[str, Any], str, LinkField[Any]]]:
        """Yield the choices that depend on the sweep, but for the variants that have a panel.

        Each comes with its holder and its name there. A link has the values of axes that are not
        drawn.
        """
        own, axes = vars(self), list(sweep.axes)
        yield own, "x", LinkField("x", (axes or [""])[0], by_text(axes))
        others = [name for name in axes if name != self.x]
        yield own, "y", LinkField("y", (others or [""])[0], by_text(others))
        present, pair = by_text(sweep.sharing), _default_pair(sweep.sharing)
        compares = self.section == "difference"
        for side, variant in zip(("one", "other"), pair, strict=True):
            yield own, side, LinkField(side, variant, present, is_shown=compares)
        allowed = "the values of all axes, and a variant"
        yield own, "cell", LinkField("cell", None, _cells_by_link(sweep), allowed)
        drawn = [self.x] if self.section in ("slices", "frontier") else [self.x, self.y]
        for name, values in sweep.axes.items():
            texts, is_shown = {text_of(value): value for value in values}, name not in drawn
            yield self.fixed, name, LinkField(name, middle_of(values), texts, is_shown=is_shown)

    def follow(self, params: dict[str, str]) -> None:
        """Take over a link; what depends on the sweep is left to `read_for`.

        A link that names no choice of this page, as the browser's Back may bring one of the Lab,
        changes nothing.
        """
        self.link, self.problems = params, []
        if params and _NAMES.isdisjoint(params):
            return
        self.unread, self._read_for = params, None
        self.x = self.y = ""
        self.fixed, self.cell = {}, None
        self.one = self.other = BASELINE
        for name, declared in self._fields():
            setattr(self, name, declared.read(params, self.problems))

    def read_for(self, sweep: Sweep) -> None:
        """Read the rest of the link, and replace what a sweep does not have by defaults."""
        if self._read_for == sweep:
            return
        self._read_for = sweep
        if self.one == self.other or {self.one, self.other} - set(sweep.sharing):
            self.one, self.other = _default_pair(sweep.sharing)
        for holder, name, declared in self._fields_of(sweep):
            holder[name] = declared.read(self.unread, self.problems, holder.get(name))
        self.fixed = {name: self.fixed[name] for name in sweep.axes}
        variants = _variants_of(sweep).read_all(self.unread, self.problems)
        self.variants = tuple(variants) or sweep.sharing[:MOST_PANELS]
        self.unread = {}

    @property
    def beside(self) -> dict[str, Value]:
        """Values of the axes that are not drawn."""
        return {name: v for name, v in self.fixed.items() if name not in (self.x, self.y)}

    @property
    def beside_x(self) -> dict[str, Value]:
        """Values of all axes but the one across, for figures over one axis."""
        return {name: value for name, value in self.fixed.items() if name != self.x}

    def take_axis(self, side: str, name: str) -> None:
        """Choose the axis of a side, "x" or "y"; the axis that is on the other side moves over."""
        if name == (self.y if side == "x" else self.x):
            self.x, self.y = self.y, self.x
        setattr(self, side, name)

    def take_variants(self, sweep: Sweep, chosen: list[Variant]) -> None:
        """Show the chosen variants in the order of the sweep; at least one of them stays."""
        self.variants = tuple(v for v in sweep.sharing if v in chosen) or self.variants

    def write_link(self) -> None:
        """Write the choices into the address bar, without those that are the default."""
        sweep, link, live = self._read_for, self.written(self._fields()), open_live_sweep()
        if self.sweep == OWN and live is not None and live.sweep.base["task"] in TASKS:
            link[PLAN] = live.sweep.to_toml()  # servers log addresses, so own data stay out
        if sweep is not None:
            for holder, name, declared in self._fields_of(sweep):
                link |= declared.write(holder[name])
            if self.variants != sweep.sharing[:MOST_PANELS]:
                link |= _variants_of(sweep).write_all(self.variants)
        self.set_link(link and {**link, "sweep": self.sweep})


def _variants_of(sweep: Sweep) -> LinkList[Variant]:
    return LinkList("variants", sweep.sharing[0], by_text(sweep.sharing))


def _default_pair(variants: tuple[Variant, ...]) -> tuple[Variant, Variant]:
    """Return the variants that are compared at first: QKV and K=V, or else the first two."""
    preferred = [v for v in (BASELINE, Variant("K=V"), *variants) if v in variants]
    first, *others = dict.fromkeys(preferred)
    return first, (others or [first])[0]


def cells_of(sweep: Sweep) -> list[Cell]:
    """Return all cells of a sweep, in the order of its variants, then of its points."""
    points = [tuple(point.values()) for point in sweep.points()]
    return [Cell(point, variant) for variant in sweep.sharing for point in points]


@lru_cache(maxsize=16)
def _cells_by_link(sweep: Sweep) -> dict[str, Cell]:
    return {str(cell): cell for cell in cells_of(sweep)}


def text_of(value: Value) -> str:
    """Return a value of an axis as a link and a list on screen have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


@cached_by_language(32)
def conclusion_of(
    result: SweepResult, x: str, y: str, fixed: tuple[tuple[str, Value], ...]
) -> Conclusion:
    """Return the conclusion of a sweep; kept for the newest results."""
    return conclusion(result, x, y or None, dict(fixed))


MOST_POINTS, MOST_VARIANTS, MOST_SEEDS, MOST_STEPS = 100, 10, 10, 5_000
"""Largest number of points, variants, seeds and steps of a sweep that runs live."""

TICK_SECONDS = 0.5
"""Seconds between two updates of a page while a sweep trains: then the next point begins."""

_VALUES_HELP = "A list such as 2, 4, 8; or a range such as 2 … 64, in which each value is doubled."

_ALL = tuple(Variant(sharing.value) for sharing in Sharing)

Part = tuple[dict[str, Value], Experiment]
"""A point and variants that are trained together there."""

PAUSED, STOPPED = "Paused.", "Stopped."
"""Problems of a live sweep that its visitor has paused or stopped."""


@dataclass
class SweepForm:
    """Form of a sweep as a visitor has filled it in.

    Attributes:
        second: Name of the setting of the second axis; empty for none.
        steps: Steps of every run, unless they are an axis.
        own: Task on the visitor's own data, if the Lab has any.
    """

    task: str = "phonebook"
    first: str = "d_head"
    first_values: str = ""
    second: str = ""
    second_values: str = ""
    sharing: list[Variant] = field(default_factory=lambda: list(_ALL))
    n_seeds: int = 3
    steps: int = 0
    own: OwnData | None = None

    def __post_init__(self) -> None:
        self.set_task(self.task)

    def offer(self, task: Task) -> list[str]:
        """Return the tasks to choose from, with that of the Lab if it is on own data."""
        own = task if isinstance(task, OwnData) else None
        changed, self.own = own != self.own, own
        offered = [*TASKS, *([] if own is None else [own.name])]
        if self.task not in offered or (changed and self.task not in TASKS):
            self.set_task(self.task if self.task in offered else "phonebook")
        return offered

    @property
    def base(self) -> dict[str, Value]:
        """The task, and for one on own data its dials, too."""
        if self.own is None or self.task != self.own.name:
            return {"task": self.task}
        return {"task": self.task, **self.own.model_dump()}

    def set_task(self, task: str) -> None:
        """Choose a task, keep the settings that it has, too, and suggest their values for it."""
        self.task, present = task, axes_of(task)
        self.steps = present["steps"].default
        own = [name for name in task_named(task).model_fields if name in present]
        first_own = next((name for name in own if present[name].kind is int), "")
        self.set_axis("first", self.first if self.first in present else "d_head")
        self.set_axis("second", self.second if self.second in present else first_own)

    def set_axis(self, side: str, name: str) -> None:
        """Choose the setting of an axis, "first" or "second", and suggest values."""
        setattr(self, side, name)
        setattr(self, f"{side}_values", suggested(name, self.base) if name else "")

    def sweep(self) -> Sweep:
        """Return the sweep; what is not allowed raises `InvalidSweep`."""
        if self.first == self.second:
            allowed = "but two different settings are allowed"
            raise InvalidSweep(Problem(f"axes.{self.first}", "chosen twice", allowed))
        axes = {self.first: self.first_values, self.second: self.second_values}
        axes.pop("", None)
        if not self.sharing:
            raise InvalidSweep(Problem("sharing", "", f"1 to {MOST_VARIANTS} variants"))
        base = {name: value for name, value in self.base.items() if name not in axes}
        if self.steps != settings(self.task)["steps"].default and "steps" not in axes:
            base["steps"] = self.steps
        sweep = Sweep(base=base, axes=axes, sharing=self.sharing, n_seeds=self.n_seeds)
        return _within_limits(sweep)


def axes_of(task: str) -> dict[str, Setting]:
    """Return the settings of a task that an axis may have, by name."""
    return {
        name: setting
        for name, setting in settings(task).items()
        if name not in (*NOT_AN_AXIS, "task") and (setting.kind is not str or setting.choices)
    }


def suggested(name: str, base: Mapping[str, Value]) -> str:
    """Return values of a setting as a text: all choices, or some around the default of a task.

    Those that do not go with the task and the other settings are left out.
    """
    setting = settings(str(base["task"]))[name]
    values: list[Value]
    if setting.kind is bool:
        values = [False, True]
    elif setting.choices:
        values = list(setting.choices)
    else:
        default, step = setting.default, setting.multiple_of or 1
        values = [default * factor for factor in (0.25, 0.5, 1, 2)] if default else [0, 1, 2]
        if setting.kind is int:
            values = [step * round(value / step) for value in map(float, values)]
    fitting = [value for value in dict.fromkeys(values) if _fits({**base, name: value})]
    return ", ".join(map(text_of, fitting))


def _fits(values: Mapping[str, Value]) -> bool:
    try:
        Experiment(**values)
    except InvalidExperiment:
        return False
    return True


def on_screen(error: InvalidSweep, task: str) -> str:
    """Return the message of an error in the words of the page."""
    labels = labels_of(task) | {"axes": "Settings"}
    labels |= {f"{table}.{name}": labels[name] for table in ("axes", "base") for name in labels}
    return " ".join(
        problem if isinstance(problem, str) else problem.on_screen(labels)
        for problem in error.problems
    )


@lru_cache(maxsize=64)
def problems_here(sweep: Sweep) -> list[str]:
    """Return why this copy does not train a sweep, in sentences; empty if it does."""
    labels, limits = labels_of(str(sweep.base["task"])), server_settings()
    problems = (p for _, one in parts_of(sweep)[0] for p in limits.problems(one))
    return list(dict.fromkeys(problem.on_screen(labels) for problem in problems))


def estimate_in_words(sweep: Sweep) -> str:
    """Return what will be trained, and about how long that takes if nothing else trains."""
    experiments = [experiment for _, experiment in parts_of(sweep)[0]]
    n_runs = sum(experiment.n_runs for experiment in experiments)
    seconds = sum(training_service().estimate(one) + TICK_SECONDS for one in experiments)
    text = f"{n_runs:,} models at {sweep.n_points} points"
    impossible = sweep.n_runs - n_runs
    if impossible:
        text += f"; {impossible:,} more are impossible with these sizes"
    return f"{text}. That takes about {duration_in_words(seconds)} if nothing else trains here."


@dataclass
class LiveSweep(Series):
    """A sweep that is trained for a visitor, one experiment for each point."""

    sweep: Sweep
    points: list[dict[str, Value]]
    _tables: list[pd.DataFrame] = field(default_factory=list, repr=False)
    _result: tuple[int, SweepResult] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, sweep: Sweep, watcher: Watcher) -> LiveSweep:
        """Return a sweep that has not begun; cells that are impossible have failed already."""
        parts, failed = parts_of(sweep)
        points, experiments = [point for point, _ in parts], [experiment for _, experiment in parts]
        tables = [failed_rows(sweep, point, v, sweep.seeds, reason) for point, v, reason in failed]
        return cls(sweep, points, tables, experiments=experiments, watcher=watcher)

    def keep(self, snapshot: Snapshot) -> None:
        """Take over the rows of the point that has just finished."""
        experiment = snapshot.experiment
        rows = run_table(snapshot).assign(
            learning_rate=experiment.training.learning_rate,
            tried="{}",
            seconds=snapshot.seconds / experiment.n_runs,
            engine=snapshot.engine,
            processor=snapshot.processor,
            error=None,
        )
        self._tables.append(labelled(self.sweep, self.points[self.n_finished], rows))

    def result(self) -> SweepResult:
        """Return the result of all finished runs; the same object until there are more."""
        if self._result is None or self._result[0] != self.n_finished:
            rows = pd.concat(self._tables, ignore_index=True) if self._tables else None
            self._result = (self.n_finished, SweepResult.of(self.sweep, rows))
        return self._result[1]

    @property
    def ended(self) -> bool:
        """Whether the sweep is finished, or its visitor has stopped it."""
        return self.finished or self.problem == STOPPED


@lru_cache(maxsize=16)
def parts_of(
    sweep: Sweep,
) -> tuple[list[Part], list[tuple[dict[str, Value], Variant, str]]]:
    """Return the experiments to train together at each point, and why cells are impossible.

    Points are in the order of `Plan`, so that a sweep shows something everywhere early.
    """
    parts, failed = list[Part](), []
    for point in map(sweep.point, Plan.of(sweep).order.tolist()):
        experiments, errors = sweep.experiments_at(point)
        parts += [(point, experiment) for experiment in experiments]
        failed += [(point, variant, str(error)) for variant, error in errors.items()]
    return parts, failed


def open_linked_sweep(choice: CapacityChoice) -> None:
    """Open the sweep of the visitor's own that a link has, unless another one of theirs trains.

    It goes on if the server died while it trained.
    """
    live, plan = open_live_sweep(), choice.unread.pop(PLAN, "")
    if not plan or choice.sweep != OWN or (live is not None and live.moving):
        return
    try:
        sweep = _within_limits(Sweep.from_toml(plan))
        problems = problems_here(sweep)
    except InvalidSweep as error:
        problems = [str(error)]
    if problems:
        choice.problems.append(f"The sweep of the link cannot be trained. {' '.join(problems)}")
    elif live is None or live.sweep != sweep:
        live = st.session_state["live_sweep"] = LiveSweep.of(sweep, watcher())
        if live.moving:
            live.problem = "These points are not trained yet."
            live.take_up()


def _within_limits(sweep: Sweep) -> Sweep:
    for key, name, n, most in (
        ("axes", "combinations of values", sweep.n_points, MOST_POINTS),
        ("n_seeds", "seeds", sweep.n_seeds, MOST_SEEDS),
        ("sharing", "variants", len(sweep.sharing), MOST_VARIANTS),
    ):
        if n > most:
            allowed = f"at most {most} here; larger sweeps run from the command line"
            raise InvalidSweep(Problem(key, f"{n:,} {name}", allowed))
    return sweep


def open_live_sweep() -> LiveSweep | None:
    """Return the newest sweep that this visitor has run; None if there is none."""
    live: LiveSweep | None = st.session_state.get("live_sweep")
    return live


def sweep_form_area(choice: CapacityChoice) -> None:
    """Draw the form of a sweep of the visitor's own."""
    form: SweepForm = st.session_state.setdefault("sweep_form", SweepForm())
    with st.container(border=True, key="sweep_form_area"):
        fragment(_form_area)(form, choice)


def _form_area(form: SweepForm, choice: CapacityChoice) -> None:
    _inputs(form)
    message = ""
    try:
        sweep = form.sweep()
        message = " ".join(problems_here(sweep))
    except InvalidSweep as error:
        sweep, message = None, on_screen(error, form.task)
    if message:
        st.error(plain(message), icon=":material/error:")
    elif sweep is not None:
        source = "are those of the Lab" if form.own else "are the task’s own"
        st.caption(
            f"{estimate_in_words(sweep)} All variants have the task’s own learning rate, seeds "
            f"count up from 0, and all other settings {source}."
        )
    live = open_live_sweep()
    if live is not None and live.moving:
        st.caption("A sweep of yours is training. It stops if you run this one.")
    # No callback: a button that its own press disables would not report the press.
    if st.button(
        "Run it now",
        type="primary",
        icon=":material/play_arrow:",
        disabled=bool(message),
        key="run_sweep",
    ):
        assert sweep is not None
        if live is not None:
            live.stop(STOPPED)
        live = st.session_state["live_sweep"] = LiveSweep.of(sweep, watcher())
        if live.moving:
            live.go_on()
        choice.sweep, choice.section = OWN, ""  # its diagram comes into sight
        st.rerun()
    if sweep is not None:
        on_the_command_line(sweep)


def _inputs(form: SweepForm) -> None:
    lab: Lab | None = st.session_state.get("lab")
    with st.container(horizontal=True):
        st.selectbox(
            "Task",
            form.offer(lab.experiment.task) if lab is not None else list(TASKS),
            format_func=lambda name: task_named(name).title,
            width=260,
            **bound(form, "task", "form_task", form.set_task),
        )
        are_axis = "steps" in (form.first, form.second)
        steps, seeds = bound(form, "steps", "form_steps"), bound(form, "n_seeds", "form_seeds")
        st.number_input("Steps", 1, MOST_STEPS, disabled=are_axis, width=130, **steps)
        st.number_input("Seeds", 1, MOST_SEEDS, width=130, **seeds)
    _axis_inputs(form)
    offered = [*_ALL, *(named.variant for named in CATALOGUE.values())]
    st.multiselect(
        "Variants",
        list(dict.fromkeys(offered)),
        format_func=title_of,
        max_selections=MOST_VARIANTS,
        **bound(form, "sharing", "form_sharing"),
    )


def _axis_inputs(form: SweepForm) -> None:
    labels, names = labels_of(form.task), list(axes_of(form.task))
    for side, label in (("first", "Change"), ("second", "and also")):
        with st.container(horizontal=True):
            st.selectbox(
                label,
                names if side == "first" else ["", *names],
                format_func=lambda name: labels.get(name, "nothing else"),
                width=260,
                **bound(form, side, f"form_{side}", partial(form.set_axis, side)),
            )
            st.text_input(
                "Values" if side == "first" else "Its values",
                disabled=not getattr(form, side),
                max_chars=400,
                help=_VALUES_HELP,
                width=300,
                **bound(form, f"{side}_values", f"form_{side}_values"),
            )


def on_the_command_line(sweep: Sweep) -> None:
    """Draw a sweep as the specification that the command line reads, folded."""
    with st.expander("For programmers: this sweep on the command line"):
        st.markdown(
            "Save this as `sweep.toml`, then `python -m attnkit sweep sweep.toml --out FOLDER` "
            "trains it on all cores."
        )
        st.code(sweep.to_toml(), language="toml", wrap_lines=True)


def live_bar(live: LiveSweep) -> None:
    """Draw how far the visitor's sweep is, and the buttons that pause, resume and stop it."""
    with st.container(border=True, key="live_bar"):
        n_points, n_done = len(live.experiments), live.n_finished
        if live.finished:
            st.markdown(f"**Your sweep** is finished: {n_points} points in {live.seconds:.0f} s.")
            return
        if live.problem:
            text = f"{live.problem} {n_done} of {n_points} points are trained."
            if live.problem == PAUSED:
                text += " The point that was training begins again."
        else:
            text = live.status("Point {n} of {total}: {status}")
        st.markdown(f"**Your sweep.** {plain(text)}")
        st.progress(live.share(live.job))
        with st.container(horizontal=True):
            if live.problem:
                if st.button("Go on", icon=":material/resume:", key="go_on_sweep"):
                    live.watcher = watcher()
                    live.go_on()
                    st.rerun()
            elif st.button("Pause", icon=":material/pause:", key="pause_sweep"):
                live.stop(PAUSED)
                st.rerun()
            if st.button("Stop", icon=":material/stop:", disabled=live.ended, key="stop_sweep"):
                live.stop(STOPPED)
                st.rerun()
