"""Cards of snapshots and results: the answer in words, a table of variants, and the Lab's board."""

from __future__ import annotations

import math
from base64 import b64decode
from html import escape
from typing import Any

import numpy as np

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.reasons import headline
from attnkit.figures.board import board
from attnkit.notebook.drawings import Chart, attention_map, thin
from attnkit.notebook.style import card, grid, paragraph, swatch, table
from attnkit.training.results import Result
from attnkit.training.snapshot import CONSECUTIVE, THRESHOLD, Snapshot
from attnkit.training.summary import (
    finding,
    percent,
    percent_interval,
    sharing_table,
    two_decimals,
)
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import colors_of

MOST_COLUMNS = 8
"""Most variants with drawings; all variants are in the table."""

MOST_RUNS = 10
"""Most seeds whose curves are drawn besides their mean."""

_BOARD = 950
"""Width in pixels of all columns together where a notebook has the space."""

_NARROWEST, _WIDEST = 186, 400
"""Smallest and largest natural width of a column in pixels."""

_SHRUNK = 0.84
"""Share of its natural width to which a column shrinks before the columns wrap."""


def result_card(result: Result) -> str:
    """Return the card of a result: that of its last snapshot."""
    return snapshot_card(result.snapshot)


def snapshot_card(snapshot: Snapshot) -> str:
    """Return the card of a snapshot."""
    experiment, steps = snapshot.experiment, snapshot.experiment.training.steps
    n, seeds = len(experiment.sharing), experiment.n_seeds
    title = (
        f"{experiment.task.title}: {n} variant{'s' * (n > 1)}, {seeds} seed{'s' * (seeds > 1)}, "
        f"step {snapshot.step:,} of {steps:,}"
    )
    parts = [paragraph(experiment.task.question, "quiet"), _progress(snapshot)]
    if snapshot.step:
        reason = headline(snapshot, experiment.first_seed)
        if reason is not None:
            sentence = reason.in_words(experiment, experiment.first_seed)
            parts.append(f"<p><b>{escape(sentence)}</b></p>")
        parts.append(paragraph(finding(snapshot)))
    else:
        parts.append(paragraph("Untrained: nothing is learnt yet."))
    parts += [_table(snapshot), _solved_note(snapshot), *_board(snapshot)]
    parts.append(paragraph(_footnote(snapshot), "quiet small"))
    return card(title, *parts)


def _progress(snapshot: Snapshot) -> str:
    """Return a bar for a training that runs, or a note that it was stopped."""
    if snapshot.status == "stopped":
        return paragraph("Stopped before the last step.")
    if snapshot.status == "finished":
        return ""
    share = f"{snapshot.step / snapshot.experiment.training.steps:.0%}"
    return (
        f'<div class="bar" role="img" aria-label="{share} of the steps are done">'
        f'<span style="width:{share}"></span></div>'
    )


def _table(snapshot: Snapshot) -> str:
    """Return the table of variants: means over seeds and costs."""
    experiment = snapshot.experiment
    on_loss = experiment.task.loss_to_beat is not None
    columns = ["Variant", "Accuracy", "95% interval"]
    columns += ["Loss"] if on_loss else ["Seeds that solve it", "Steps to solve it"]
    columns += ["Score asymmetry", "Parameters", "KV cache, numbers per token"]
    colors = colors_of(experiment.sharing)
    rows = []
    for i, row in enumerate(sharing_table(snapshot).to_dict("records")):
        variant = experiment.sharing[i]
        low, high = row["accuracy_low"], row["accuracy_high"]
        cells = [percent(row["accuracy"]), percent_interval(low, high) or "–"]
        if row["diverged"]:
            cells[1] = f"{row['diverged']} of {experiment.n_seeds} diverged"
        if on_loss:
            cells.append(two_decimals(row["loss"]))
        else:
            steps = row["steps_to_threshold"]
            cells.append(f"{row['solved']} of {experiment.n_seeds}")
            cells.append("–" if math.isnan(steps) else f"{steps:,.0f}")
        cells += [two_decimals(row["asymmetry"])]
        cells += [f"{row['parameters']:,}", f"{row['kv_cache_floats_per_token']:,}"]
        name = escape(title_of(variant))
        titled = f'<span title="{escape(variant.value, quote=True)}">{name}</span>'
        rows.append([swatch(colors[i]) + titled, *cells])
    return table(columns, rows)


def _solved_note(snapshot: Snapshot) -> str:
    """Return what it means to solve the task; nothing where the loss counts."""
    if snapshot.experiment.task.loss_to_beat is not None:
        return ""
    text = f"Solved: at least {percent(THRESHOLD)} right at {CONSECUTIVE} evaluations in a row."
    return paragraph(text, "quiet small")


def _board(snapshot: Snapshot) -> list[str]:
    """Return the drawings of the variants side by side, and how to read them."""
    experiment = snapshot.experiment
    layer = telling_layer(experiment.layer_specs)
    drawing = board(snapshot, experiment, experiment.first_seed, layer, head=0)
    shown = drawing["columns"][:MOST_COLUMNS]
    width = max(_NARROWEST, min(_BOARD // len(shown), _WIDEST))
    notes = []
    if len(shown) < len(drawing["columns"]):
        notes.append(
            f"Drawn are the first {len(shown)} of {len(drawing['columns'])} variants; "
            "the table has all."
        )
    notes += [_reading(drawing), _which(snapshot, layer)]
    columns = [_column(column, drawing, width) for column in shown]
    return [
        grid(columns, round(_SHRUNK * width)),
        paragraph(" ".join(filter(None, notes)), "quiet small"),
    ]


def _column(column: dict[str, Any], drawing: dict[str, Any], width: int) -> str:
    """Return the drawings of one variant."""
    quantity = "Loss" if drawing["quantity"] == "loss" else "Accuracy"
    head = (
        f'<div class="head"><div><b>{escape(column["name"])}</b>'
        f'<span class="value">{escape(column["value"])}</span>'
        f'<span class="quiet small">{escape(column["note"])}</span></div>{column["diagram"]}</div>'
    )
    curve = _curve(column, drawing, width, f"{quantity} of {column['name']}")
    parts = [head, _label(f"{quantity} on held-out examples"), curve]
    panel, maps = column["map"], drawing["maps"]
    parts.append(_label("Attention on one example"))
    if panel["lacking"]:
        parts.append(paragraph(panel["lacking"], "quiet"))
    else:
        shape = len(maps["rows"]), len(maps["columns"])
        levels = np.frombuffer(b64decode(panel["cells"]), np.uint8).reshape(shape)
        axes = {**maps, "answer_letters": _letters(drawing)}
        parts.append(attention_map(axes, panel, levels, drawing["mark"], width))
    scores = [score["text"] for score in column["scores"]]
    parts.append(paragraph(f"Scores: {', '.join(scores)}" if scores else "", "quiet small"))
    value = column["asymmetry_value"]
    parts.append(_label(f"Score asymmetry: {value}"))
    if any(np.isfinite(_floats(column["asymmetry"]["mean"]))):
        parts.append(_asymmetry(column, drawing, width))
    parts.append(f'<p class="quiet small">{escape(column["facts"])}.</p>')
    label = escape(column["name"], quote=True)
    return f'<div class="column" role="group" aria-label="{label}">{"".join(parts)}</div>'


def _label(text: str) -> str:
    return f'<div class="label">{escape(text)}</div>'


def _letters(drawing: dict[str, Any]) -> int:
    """Return the width of the answers beside the maps in characters."""
    panels = [column["map"] for column in drawing["columns"]]
    return max((len(text) for panel in panels for text in panel["answers"]), default=0)


def _curve(column: dict[str, Any], drawing: dict[str, Any], width: int, name: str) -> str:
    """Return the learning curve of a variant: levels, seeds, interval and mean."""
    as_percent = drawing["quantity"] == "accuracy"
    chart = Chart(width, 104, drawing["last_step"], drawing["top"], as_percent)
    steps = _floats(drawing["steps"])
    parts = [chart.level(level["value"], level["dash"]) for level in column["levels"]]
    parts += [chart.upright(drawing["turn"])] if drawing["turn"] else []
    runs = _floats(column["curve"]["runs"]).reshape(-1, len(steps))
    parts += _lines(chart, steps, column["curve"], column["color"], runs)
    return chart.draw(parts, f"{name} over training steps; now {column['value']}")


def _asymmetry(column: dict[str, Any], drawing: dict[str, Any], width: int) -> str:
    """Return the curve of a variant's score asymmetry."""
    chart = Chart(width, 74, drawing["last_step"])
    lines = _lines(chart, _floats(drawing["steps"]), column["asymmetry"], column["color"])
    label = f"Score asymmetry of {column['name']}; now {column['asymmetry_value']}"
    return chart.draw([chart.level(0.5, "dot"), *lines], label)


def _lines(
    chart: Chart,
    steps: np.ndarray,
    curve: dict[str, str],
    color: str,
    runs: np.ndarray | None = None,
) -> list[str]:
    """Return the interval, the single runs (if there are few) and the mean of a curve."""
    chosen = thin(steps)
    steps = steps[chosen]
    mean, low, high = (_floats(curve[name])[chosen] for name in ("mean", "low", "high"))
    parts = [chart.band(steps, low, high, color)]
    if runs is not None and 1 < len(runs) <= MOST_RUNS:
        parts += [chart.curve(steps, run[chosen], color, "run") for run in runs]
    return [*parts, chart.curve(steps, mean, color, "line")]


def _reading(drawing: dict[str, Any]) -> str:
    """Return how to read the drawings."""
    names = {"solid": "Line", "thin": "Thin lines", "dot": "Dotted", "dash": "Dashed"}
    legend = [
        f"{names.get(entry['dash'], 'Dashes and dots')}: {entry['text']}."
        for entry in drawing["legend"]
    ]
    maps = drawing["maps"]
    mirrored = any(column >= 0 for column in maps["reverse"])
    legend.append("Each row of a map looks at the brighter columns; ✓ ✗ mark its answer.")
    if any(column >= 0 for column in maps["target"]):
        legend.append("Frame: the right column.")
    if mirrored:
        legend.append("Circle: the entry that points back.")
    legend.append("Asymmetry 0: the scores are the same both ways; 0.5: unrelated.")
    return " ".join([*legend, maps["cut"]])


def _which(snapshot: Snapshot, layer: int) -> str:
    """Return which seed, layer and head the maps show, where there are several."""
    experiment = snapshot.experiment
    parts = [f"seed {experiment.first_seed}"]
    if len(experiment.layer_specs) > 1:
        parts.append(experiment.layer_specs[layer].title.lower())
    if experiment.n_heads > 1:
        parts.append("head 1")
    return f"Maps: {', '.join(parts)}."


def _footnote(snapshot: Snapshot) -> str:
    """Return who trained it and how long; empty if it is not trained."""
    seconds = snapshot.seconds
    took = f"{seconds:.1f} seconds" if seconds < 90 else f"{seconds / 60:.1f} minutes"
    return f"Trained in {took} by {snapshot.trained_by}." if snapshot.step else ""


def _floats(packed: str) -> np.ndarray:
    """Return the values of the board's packed arrays."""
    return np.frombuffer(b64decode(packed), "<f4")
