"""Learning curves: histories of metrics, their reference levels, and figures over training.

Experiments that are kept are drawn in panels, one per variant, or one of them as a film. The store
keeps the weights of the last step only, so this film has no attention maps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int64

from attnkit.analysis.comparison import ComparedExperiment, Metric, levels_in_words
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.experiment import Experiment
from attnkit.figures.marks import Mark, curve, level, mean_curve, words
from attnkit.figures.panels import (
    SHARES,
    Axis,
    Figure,
    Panel,
    Title,
    draw_live,
    thin,
    titles_of,
)
from attnkit.foundation.language import mark, tr
from attnkit.tasks import Task
from attnkit.training.metrics import SHOWN
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import Interval, mean_interval
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import REFERENCE, colors_of, translucent

_MEASURES = {
    "asymmetry": (mark("asymmetry"), "solid",
    mark("asymmetry of the scores: 0 if a pair scores alike both ways, about ½ if its two scores "
    "are unrelated and zero on average (mean over heads and layers)")),
    "mass_on_target": (mark("right token"), "dash",
    mark("attention on the token that holds the answer")),
    "mass_on_reverse": (mark("mirrored entry"), "dot",
    mark("attention on the mirrored entry, which points back at the query")),
}  # fmt: skip
"""Name, dash and description of each measure of attention."""

_DASHES = {
    # Translators: before a colon and what is drawn with a solid line.
    "solid": mark("Line"), "thin": mark("Thin lines"), "dot": mark("Dotted"),
    "dash": mark("Dashed"), "longdashdot": mark("Dash-dotted"), "previous": mark("Grey"),
}  # fmt: skip
"""Names of the styles of lines."""

Legend = list[dict[str, str]]
"""Dash and text of every style of line."""


@dataclass(frozen=True, eq=False)
class History:
    """A metric at the steps that charts show."""

    steps: Int64[np.ndarray, " e"]
    runs: dict[Variant, Float[np.ndarray, "e s"]]
    intervals: dict[Variant, Interval]

    @classmethod
    def of(cls, name: str, snapshot: Snapshot) -> History:
        """Return a metric of a snapshot at no more than `MAX_POINTS` evaluations."""
        steps, indices = thin(snapshot.eval_steps)
        by_variant = np.moveaxis(snapshot.per_sharing(snapshot.curve(name))[indices], 1, 0)
        runs = dict(zip(snapshot.experiment.sharing, by_variant, strict=True))
        limits = vars(mean_interval(by_variant)).values()  # all at once, which is faster
        intervals = (Interval(*of_variant) for of_variant in zip(*limits, strict=True))
        return cls(steps, runs, dict(zip(runs, intervals, strict=True)))


@dataclass(frozen=True)
class Level:
    """A reference level of a metric: its value, and the dash and the name of its line."""

    value: float
    dash: str
    text: str


def metric_of(task: Task) -> Metric:
    """Return the metric by which the variants of a task are judged."""
    return "accuracy" if task.loss_to_beat is None else "loss"


def reference_levels(metric: Metric, task: Task, at_start: float = 0.0) -> list[Level]:
    """Return the levels that all variants of a task have.

    They are chance and the accuracy at the start of training, if it is known; or the loss to beat,
    if there is one.
    """
    if metric == "accuracy":
        chance = tr("chance {share}", share=percent(task.chance))
        levels = [Level(task.chance, "dot", chance)]
        if not math.isnan(at_start):
            levels.append(Level(at_start, "dash", tr("untrained")))
        return levels
    if task.loss_to_beat is None:
        return []
    text = f"{tr(task.simple_model)} {task.loss_to_beat:.2f}"
    return [Level(task.loss_to_beat, "dot", text)]


def plateau_levels(experiment: Experiment, variant: Variant) -> list[Level]:
    """Return the accuracy at which symmetric scores can keep a variant: a plain Q=K or Q=K=V."""
    if experiment.plateau is None or not (variant.is_partition and variant.sharing.symmetric):
        return []
    text = tr("guess between two entries {share}", share=percent(experiment.plateau))
    return [Level(experiment.plateau, "longdashdot", text)]


def levels_of(
    metric: Metric, experiment: Experiment, history: History
) -> dict[Variant, list[Level]]:
    """Return the reference levels of every variant of a history."""
    levels = {}
    for variant, interval in history.intervals.items():
        levels[variant] = reference_levels(metric, experiment.task, float(interval.mean[0]))
        if metric == "accuracy":
            levels[variant] += plateau_levels(experiment, variant)
    return levels


def top_of(metric: Metric, snapshots: Iterable[Snapshot]) -> float:
    """Return the upper end of the vertical axis of learning curves."""
    if metric == "accuracy":
        return 1.0
    ends = []
    for snapshot in snapshots:
        task, at_start = snapshot.experiment.task, snapshot.history["loss"][0]
        ends += [math.log(task.n_classes), task.loss_to_beat or 0.0]
        ends += at_start[np.isfinite(at_start)].tolist()
    return 1.05 * max(ends)


def legend_of(
    metric: Metric, experiment: Experiment, levels: Iterable[Level], *, has_previous: bool = False
) -> Legend:
    """Return the legend of learning curves with their reference levels."""
    n = experiment.n_seeds
    if n > 1:
        legend = {
            tr("mean of {n} seeds, 95% interval", n=n): "solid",
            tr("each seed"): "thin",
        }
    elif metric == "accuracy":
        legend = {tr("accuracy of the one seed"): "solid"}
    else:
        legend = {tr("loss of the one seed"): "solid"}
    legend |= {level.text: level.dash for level in levels}
    if experiment.training.earlier_steps:
        line = tr("vertical line: the embedding is frozen, and all else starts anew")
        legend[line] = "thin"
    if has_previous:
        legend[tr("previous experiment")] = "previous"
    return _entries(legend)


def _entries(legend: dict[str, str]) -> Legend:
    return [{"dash": dash, "text": text} for text, dash in legend.items()]


def legend_in_words(legend: Legend) -> str:
    """Return the styles of lines and what they mean as a text."""
    return " ".join(f"{tr(_DASHES[entry['dash']])}: {entry['text']}." for entry in legend)


def plot_metric(
    snapshot: Snapshot, metric: Metric = "accuracy", previous: Snapshot | None = None
) -> Figure:
    """Plot a metric over steps: mean with 95% interval, all seeds, reference levels.

    Args:
        metric: Held-out accuracy, or held-out cross-entropy in nats.
        previous: Snapshot of an earlier experiment, drawn in grey for the variants of both.
    """
    experiment, history = snapshot.experiment, History.of(metric, snapshot)
    before = None if previous is None else History.of(metric, previous)
    levels, top = levels_of(metric, experiment, history), top_of(metric, [snapshot])
    panels = []
    for variant, color in zip(experiment.sharing, colors_of(experiment.sharing), strict=True):
        marks = [level(one.value, one.dash, width=1.2) for one in levels[variant]]
        marks += _switch_line(snapshot)
        if before is not None and variant in before.intervals:
            grey, mean = translucent(REFERENCE, 0.55), before.intervals[variant].mean
            marks.append(curve(before.steps, mean, grey, width=3))
        area, line = mean_curve(history.steps, history.intervals[variant], color, top=top)
        runs = np.pad(history.runs[variant].T, ((0, 0), (0, 1)), constant_values=np.nan)
        x = np.tile(np.append(history.steps.astype(np.float32), np.nan), len(runs))
        of_each = curve(x, runs.ravel(), translucent(color, 0.4), width=1)  # with gaps between them
        panels.append([*marks, area, of_each, line])
    of_all = [one for of_variant in levels.values() for one in of_variant]
    legend = legend_of(metric, experiment, of_all, has_previous=previous is not None)
    return _by_step(snapshot, panels, metric_axis(metric, top), legend)


def plot_attention_measures(snapshot: Snapshot) -> Figure:
    """Plot score asymmetry, and attention on the right token and on the mirrored entry."""
    colors = colors_of(snapshot.experiment.sharing)
    panels, legend = [_switch_line(snapshot) for _ in colors], {}
    for metric, (name, dash, text) in _MEASURES.items():
        history = History.of(metric, snapshot)
        for marks, interval, color in zip(panels, history.intervals.values(), colors, strict=True):
            if not np.isnan(interval.mean).all():
                legend[tr(text)] = dash
                marks += mean_curve(history.steps, interval, color, dash=dash, name=tr(name))
    return _by_step(snapshot, panels, metric_axis("accuracy", 1.0), _entries(legend))


def _by_step(
    snapshot: Snapshot, marks: Sequence[Sequence[Mark]], y: Axis, legend: Legend
) -> Figure:
    x, titles = step_axis(snapshot.experiment), titles_of(snapshot.experiment.sharing)
    panels = [Panel(x, y, of_one, title) for of_one, title in zip(marks, titles, strict=True)]
    return draw_live(panels, legend, snapshot.experiment.hash, snapshot.step)


def step_axis(experiment: Experiment) -> Axis:
    """Return the horizontal axis of the steps of an experiment."""
    # Translators: name of the axis of the steps of training.
    return Axis(0, experiment.training.steps, tr("steps"), n_ticks=3)


def metric_axis(metric: Metric, top: float) -> Axis:
    """Return the vertical axis of a metric that ends at `top`; accuracies end at 1."""
    if metric == "loss":
        return Axis(0.0, top, n_ticks=5)
    return replace(SHARES, texts=("0", "", "½", "", "1"))


def _switch_line(snapshot: Snapshot) -> list[Mark]:
    step = snapshot.experiment.training.earlier_steps
    return [level(step, "solid", upright=True, width=1)] if step else []


INK = "currentColor"
"""The colour of the text: dark on a light page, light on a dark one."""

CURVES = ("accuracy", "loss", "asymmetry", "mass_on_target", "mass_on_reverse")
"""Metrics that have a curve; those without a number are left out."""

STYLES = tuple(
    zip(
        (INK, REFERENCE) * 4,
        ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "dash", "solid"),
        strict=True,
    )
)
"""Colour and dash for every letter: colours mean variants, so experiments differ in their dash."""


def style_of(experiment: ComparedExperiment) -> tuple[str, str]:
    """Return colour and dash of an experiment's lines."""
    return STYLES[ord(experiment.letter) - ord("A")]


def plot_overlay(
    compared: Sequence[ComparedExperiment], variants: Sequence[Variant], metric: Metric
) -> Figure:
    """Plot means over seeds with 95% intervals, by training step, on held-out examples.

    Lines carry the letters of their experiments. Those in the colour of the text have none of their
    own: the page gives it to them.

    Args:
        variants: Variants, each in a panel with a line per experiment that has it.
    """
    last = max(one.experiment.training.steps for one in compared)
    of_each = [reference_levels(metric, one.experiment.task)[:1] for one in compared]
    levels = of_each[0] if of_each.count(of_each[0]) == len(of_each) else []  # if all have it
    top = top_of(metric, [one.snapshot for one in compared])
    histories = [History.of(metric, one.snapshot) for one in compared]
    x, y = Axis(0, last, "steps", n_ticks=3), metric_axis(metric, top)
    panels = []
    for variant in variants:
        curves = []
        for one, history in zip(compared, histories, strict=True):
            if variant not in history.intervals:
                continue
            (color, dash), letter, steps = style_of(one), one.letter, history.steps
            color, interval = "" if color == INK else color, history.intervals[variant]
            area, line = mean_curve(steps, interval, color, top=top, dash=dash, name=letter)
            # The letter stands below the line; those of equal lines stand beside each other.
            share = (ord(letter) - ord("A") + 1) / (len(compared) + 1)
            at = [round(share * (len(steps) - 1))]
            curves.append((area, line, words(steps[at], interval.mean[at], [letter], below=True)))
        marks = [level(one.value, width=1.2) for one in levels]  # bands lie under all lines
        marks += [mark for layer in zip(*curves, strict=True) for mark in layer]
        panels.append(Panel(x, y, marks, Title(title_of(variant), second_line_of(variant))))
    legend = [
        {"dash": dash, "color": color, "text": f"{one.letter} {one.name}"}
        for one in compared
        for color, dash in [style_of(one)]
    ]
    legend += [{"dash": one.dash, "text": one.text} for one in levels]
    revision = "-".join([metric, *(one.experiment.hash for one in compared)])
    return draw_live(panels, legend, revision, last)


def replay(snapshot: Snapshot, variants: Sequence[Variant], metric: Metric) -> bytes:
    """Return the curves of some variants, the means over seeds with their 95% intervals.

    Args:
        metric: Measure of the first curve and of the sentence at each step.
    """
    experiment = snapshot.experiment
    steps, moments = thin(snapshot.eval_steps)
    columns = [experiment.sharing.index(variant) for variant in variants]
    arrays, hints = dict[str, np.ndarray](), dict[str, str]()
    for name in CURVES:
        values = snapshot.per_sharing(snapshot.curve(name))[moments][:, columns]
        if np.isnan(values).all() and name != metric:
            continue
        interval = mean_interval(values).within(*SHOWN[name].limits)
        arrays[name] = interval.mean
        arrays |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
        bands = "; bands: 95% intervals" * bool((interval.high > interval.low).any())
        hints[name] = f"Means of {experiment.n_seeds} seeds{bands}."
        if experiment.n_seeds == 1:
            hints[name] = "One seed."
    colors = dict(zip(experiment.sharing, colors_of(experiment.sharing), strict=True))
    header = {
        "film": experiment.hash,
        "view": "replay",
        "task": experiment.task.name,
        "request": {"metric": metric, "variants": [variant.value for variant in variants]},
        "title": experiment.task.title,
        "chance": experiment.task.chance,
        "loss_to_beat": experiment.task.loss_to_beat,
        "simple_model": experiment.task.simple_model,
        "hints": hints,
        "steps": steps.tolist(),
        "total_steps": experiment.training.steps,
        "curves": {name: SHOWN[name].heading for name in CURVES if name in arrays},
        "sentences": {
            "conclusion": [
                levels_in_words(
                    variants, means.tolist(), metric, f"At step {step}, " if step else "Untrained, "
                )
                for step, means in zip(steps, arrays[metric], strict=True)
            ]
        },
        "variants": [
            {"name": title_of(variant), "text": variant.value, "color": colors[variant]}
            for variant in variants
        ],
    }
    framed = {name: values.astype(np.float32) for name, values in arrays.items()}
    return InspectionResult(header, framed, {}).to_bytes()
