"""Cards of snapshots and results: the answer in words, a table of variants, and the Lab's board."""

from __future__ import annotations

import math
from base64 import b64decode
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.reasons import headline
from attnkit.figures.board import board
from attnkit.figures.curves import History, Legend, legend_in_words, metric_axis, metric_curves
from attnkit.figures.maps import where_in_words
from attnkit.figures.marks import level, mean_curve, text
from attnkit.figures.panels import Panel, Title
from attnkit.notebook.drawings import MOST_POINTS, drawing
from attnkit.notebook.experiments import title_of_runs
from attnkit.notebook.heatmaps import map_panel
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

_ROW, _SHORT = 15, 260
"""Height of a row of a map, and width below which its rows have short names, in pixels."""

_SHRUNK = 0.84
"""Share of its natural width to which a column shrinks before the columns wrap."""


def result_card(result: Result) -> str:
    """Return the card of a result: that of its last snapshot."""
    return snapshot_card(result.snapshot)


def snapshot_card(snapshot: Snapshot) -> str:
    """Return the card of a snapshot."""
    experiment, steps = snapshot.experiment, snapshot.experiment.training.steps
    title = f"{title_of_runs(experiment)}, step {snapshot.step:,} of {steps:,}"
    parts = [paragraph(experiment.task.question, "quiet"), _progress(snapshot)]
    reason = headline(snapshot, experiment.first_seed) if snapshot.step else None
    if reason is not None:
        sentence = reason.in_words(experiment, experiment.first_seed)
        parts.append(f"<p><b>{escape(sentence)}</b></p>")
    parts.append(paragraph(finding(snapshot)))
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
        cache = experiment.costs(variant).kv_cache  # a module may not say it
        cells += [f"{row['parameters']:,}", "–" if cache is None else f"{cache:,}"]
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
    words = board(snapshot, experiment, experiment.first_seed, layer, head=0)
    panels, legend = metric_curves(words["quantity"], snapshot, most=MOST_POINTS)
    n = len(panels[:MOST_COLUMNS])
    width = max(_NARROWEST, min(_BOARD // n, _WIDEST))
    columns = [_column(snapshot, words, index, panels[index], width) for index in range(n)]
    where = where_in_words(experiment, experiment.first_seed, layer, 0)
    notes = [_reading(legend, words["maps"]), f"Maps: {where}."]
    if n < len(panels):
        notes.insert(0, f"The first {n} of {len(panels)} variants are drawn; the table has all.")
    return [
        grid(columns, round(_SHRUNK * width)),
        paragraph(" ".join(filter(None, notes)), "quiet small"),
    ]


def _column(snapshot: Snapshot, words: dict[str, Any], index: int, panel: Panel, width: int) -> str:
    """Return the drawings of one variant.

    Args:
        snapshot: The snapshot.
        words: The Lab's board of the snapshot, which has all texts.
        index: Place of the variant.
        panel: Its learning curve.
        width: Width in pixels.
    """
    column, quantity = words["columns"][index], words["quantity"].capitalize()
    name, now = column["name"], f"over training steps; now {column['value']}"
    head = (
        f'<div class="head"><div><b>{escape(name)}</b>'
        f'<span class="value">{escape(column["value"])}</span>'
        f'<span class="quiet small">{escape(column["note"])}</span></div>{column["diagram"]}</div>'
    )
    most = MOST_RUNS * (MOST_POINTS + 1)
    marks = [mark for mark in panel.marks if np.size(mark.values.get("x", 0)) <= most]
    curve = replace(panel, marks=marks, height=83)
    parts = [head, _label(f"{quantity} on held-out examples")]
    parts.append(drawing(curve, width, f"{quantity} of {name} {now}"))
    parts += [_label("Attention on one example"), _map(words["maps"], column["map"], width)]
    scores = [score["text"] for score in column["scores"]]
    parts.append(paragraph(f"Scores: {', '.join(scores)}" if scores else "", "quiet small"))
    value = column["asymmetry_value"]
    parts.append(_label(f"Score asymmetry: {value}"))
    history = History.of("asymmetry", snapshot, MOST_POINTS)
    asymmetry = history.intervals[snapshot.experiment.sharing[index]]
    if np.isfinite(asymmetry.mean).any():
        marks = [level(0.5), *mean_curve(history.steps, asymmetry, column["color"])]
        small = replace(panel, y=metric_axis("accuracy", 1.0), marks=marks, height=53)
        parts.append(drawing(small, width, f"Score asymmetry of {name}; now {value}"))
    parts.append(f'<p class="quiet small">{escape(column["facts"])}.</p>')
    label = escape(name, quote=True)
    return f'<div class="column" role="group" aria-label="{label}">{"".join(parts)}</div>'


def _map(maps: dict[str, Any], panel: dict[str, Any], width: int) -> str:
    """Return the attention map of a variant, with its answers; a text if it has none."""
    if panel["lacking"]:
        return paragraph(panel["lacking"], "quiet")
    rows = maps["short_rows"] if maps["short_rows"] and width < _SHORT else maps["rows"]
    shape = len(rows), len(maps["columns"])
    levels = np.frombuffer(b64decode(panel["cells"]), np.uint8).reshape(shape) / 255
    drawn = map_panel({**maps, "rows": rows}, levels, Title(panel["name"]))
    answers = [
        text(f"{answer} {'✓' if right else '✗'}", shape[1] - 0.5, row)
        for row, (answer, right) in enumerate(zip(panel["answers"], panel["right"], strict=True))
        if right is not None
    ]
    drawn = replace(drawn, marks=[*drawn.marks, *answers], height=_ROW * len(rows))
    return drawing(drawn, width, f"Attention map of {panel['name']}: {panel['summary']}")


def _label(text: str) -> str:
    return f'<div class="label">{escape(text)}</div>'


def _reading(legend: Legend, maps: dict[str, Any]) -> str:
    """Return how to read the drawings."""
    texts = [
        legend_in_words(legend),
        "Each row of a map looks at the brighter columns; ✓ ✗ mark its answer.",
    ]
    if any(column >= 0 for column in maps["target"]):
        texts.append("Frame: the right column.")
    if any(column >= 0 for column in maps["reverse"]):
        texts.append("Circle: the entry that points back.")
    texts.append("Asymmetry 0: the scores are the same both ways; 0.5: unrelated.")
    return " ".join([*texts, maps["cut"]])


def _footnote(snapshot: Snapshot) -> str:
    """Return who trained it and how long; empty if it is not trained."""
    seconds = snapshot.seconds
    took = f"{seconds:.1f} seconds" if seconds < 90 else f"{seconds / 60:.1f} minutes"
    return f"Trained in {took} by {snapshot.trained_by}." if snapshot.step else ""
