"""Cards of experiments and variants: tasks, diagrams, costs, and changed settings."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from attnkit.analysis.attention_map import example_of
from attnkit.examples import default_of, load_example
from attnkit.experiment import Experiment
from attnkit.experiment.experiment import settings
from attnkit.figures.board import planned_columns
from attnkit.figures.thumbnail import thumbnail
from attnkit.foundation.settings import InvalidExperiment, shown
from attnkit.foundation.words import counted
from attnkit.notebook.style import card, drawing, grid, paragraph, swatch, table
from attnkit.variants import Variant

MOST_COLUMNS = 12
"""Most variants with diagrams; all variants are in the table."""

_WIDTH = 190
"""Smallest width of a variant's column in pixels."""


def experiment_card(experiment: Experiment) -> str:
    """Return the card of an experiment."""
    n = len(experiment.sharing)
    columns = planned_columns(experiment)
    drawn = [_column(column) for column in columns[:MOST_COLUMNS]]
    left_out = ""
    if len(drawn) < n:
        left_out = f"The first {len(drawn)} of {n} variants are drawn; the table has all."
    return card(
        f"{title_of_runs(experiment)}, {experiment.training.steps:,} steps",
        paragraph(experiment.task.question),
        _example(experiment),
        paragraph(_changes(experiment)),
        grid(drawn, _WIDTH),
        paragraph(left_out, "quiet small"),
        _costs(experiment, columns),
        paragraph("ak.train(experiment) trains it.", "quiet small"),
    )


def title_of_runs(experiment: Experiment) -> str:
    """Return the task with the numbers of variants and seeds."""
    n_variants, n_seeds = len(experiment.sharing), experiment.n_seeds
    counts = f"{counted(n_variants, 'variant')}, {counted(n_seeds, 'seed')}"
    return f"{experiment.task.title}: {counts}"


def variant_card(variant: Variant) -> str:
    """Return the card of a variant, with its costs on a phone book if it is possible there."""
    try:
        experiment = default_of(variant)
    except InvalidExperiment as error:
        return card(variant, paragraph(variant.meaning), paragraph(str(error), "quiet small"))
    columns = planned_columns(experiment)
    return card(
        variant,
        grid([_column(columns[0])], _WIDTH),
        paragraph(f"Costs on the task “{experiment.task.title}”:", "quiet small"),
        _costs(experiment, columns),
    )


def _costs(experiment: Experiment, columns: Sequence[dict[str, str]]) -> str:
    """Return the table of all variants with their costs."""
    rows = []
    for column, variant in zip(columns, experiment.sharing, strict=True):
        costs = experiment.costs(variant)
        name = f"{swatch(column['color'])}{escape(column['name'])}"
        numbers = [costs.parameters, costs.kv_cache, costs.multiply_adds]
        rows.append([name, *("–" if n is None else f"{n:,}" for n in numbers)])
    heads = ["Variant", "Parameters", "KV cache, numbers per token", "Multiply-adds per token"]
    return table(heads, rows)


def _column(column: dict[str, str]) -> str:
    """Return the name, meaning and diagram of a variant."""
    second = f" ({column['second']})" if column["second"] else ""
    words = f"<b>{escape(column['name'])}</b>{escape(second)}"
    text = escape(column["meaning"])
    return (
        f'<div class="column"><div class="head">{column["diagram"]}'
        f'<div>{swatch(column["color"])}{words}</div></div><p class="quiet small">{text}</p></div>'
    )


def _example(experiment: Experiment) -> str:
    """Return a drawing of an example of the task if one of the same settings ships."""
    try:
        shipped = load_example(experiment.task.name)
    except (OSError, ValueError):
        return ""
    if shipped.experiment.task != experiment.task:
        return ""
    return drawing(thumbnail(experiment.task, example_of(shipped)))


def _changes(experiment: Experiment) -> str:
    """Return a sentence with the settings that differ from the task's defaults."""
    known = settings(experiment.task.name)
    changed = [
        f"{known[name].label} {shown(value)}"
        for name, value in experiment.to_params().items()
        if name in known
    ]
    if not changed:
        return "All settings are the defaults of the task."
    return f"Settings that differ from the defaults of the task: {', '.join(changed)}."
