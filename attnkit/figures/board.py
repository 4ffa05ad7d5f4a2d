"""Drawing data for the board of the Lab, which `ui/assets/board.js` draws: one column per variant.

A column has the diagram of the variant, its accuracy, its learning curve, the attention map of the
probe example and the asymmetry of the scores.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnkit.analysis.attention_map import MOST_COLUMNS, MapLayout, example_of, map_layout_of
from attnkit.analysis.reasons import marked_pair
from attnkit.experiment import Experiment
from attnkit.experiment.costs import TOLERANCE
from attnkit.figures.curves import stays_at_plateau
from attnkit.figures.diagram import count_matrices, variant_diagram
from attnkit.figures.maps import attention_maps
from attnkit.figures.panels import thin
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import (
    asymmetry_in_words,
    percent,
    percent_interval,
    two_numbers,
)
from attnkit.variants import Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import colors_of

BOARD_WIDTH = 1100
"""Width in pixels of all columns together in a window of 1440.

It limits how much of a long example a map shows, so that all names of rows and columns fit.
"""

_LABELS = 78
"""Width in pixels of the labels beside the cells of a map."""

_LEAST_COLUMNS = 8
"""Smallest number of columns that a map is cut to."""

_LETTER, _NAME = 8, 11
"""Widths in pixels of a cell under a single letter and under a name."""

_LARGEST = 65_500
"""Largest size of a recorded score; of a larger score, only the sign is known."""

_VISIBLE = 0.0005
"""Smallest relative difference of costs that is shown."""


def board(
    snapshot: Snapshot,
    experiment: Experiment,
    seed: int,
    layer: int = 0,
    head: int | None = 0,
    previous: Snapshot | None = None,
) -> dict[str, Any]:
    """Return the board of a snapshot, with the columns of an experiment.

    Args:
        snapshot: Snapshot with the results.
        experiment: Experiment whose variants are the columns; it differs from the snapshot's in
            nothing else. A variant that the snapshot lacks has an empty column.
        seed: Seed whose attention map is shown.
        layer: See `attention_maps`.
        head: See `attention_maps`.
        previous: Snapshot of an earlier experiment, whose curves are drawn in grey.
    """
    trained = snapshot.experiment
    steps, indices = thin(snapshot.eval_steps)
    name = "accuracy" if trained.task.loss_to_beat is None else "loss"
    values = snapshot.per_sharing(snapshot.history[name])
    top, levels = _top(snapshot, values), _shared_levels(trained)
    maps = _maps(snapshot, seed, layer, head, len(experiment.sharing))
    accuracies = _accuracy_texts(snapshot)
    pair_scores = _pair_scores(snapshot, seed, layer, head)
    asymmetry = snapshot.per_sharing(snapshot.asymmetry)
    columns = []
    for column, variant in zip(planned_columns(experiment), experiment.sharing, strict=True):
        if variant in trained.sharing:
            index = trained.sharing.index(variant)
            column |= accuracies[variant]
            column["curve"] = _curve(values[indices, index], top)
            column["curve"]["runs"] = _packed(values[indices, index].T)
            column["curve"]["previous"] = _previous(previous, variant, name)
            column["levels"] = levels + _levels_of(trained, variant, values[0, index], name)
            column["asymmetry"] = _curve(asymmetry[indices, index], 1.0)
            column["asymmetry_value"] = asymmetry_in_words(snapshot, variant)
            column["map"] = maps["panels"][index]
            column["scores"] = pair_scores.get(variant, [])
        else:
            column["map"] = {"lacking": "Not trained yet: press Train."}
        columns.append({**column, "said": _alt_text(column)})
    shown_levels = levels + [level for column in columns for level in column["levels"]]
    return {
        **planned_board(experiment),
        "step": snapshot.step,
        "last_step": trained.training.steps,
        "steps": _packed(steps),
        "previous_steps": "" if previous is None else _packed(thin(previous.eval_steps)[0]),
        "quantity": name,
        "top": top,
        "turn": trained.training.earlier_steps,
        "legend": _legend(trained, shown_levels, previous is not None),
        "mark": _mark(snapshot, layer, maps.pop("frame")),
        "columns": columns,
        "maps": {key: value for key, value in maps.items() if key != "panels"},
    }


def asymmetry_over_steps(snapshot: Snapshot) -> dict[str, Any]:
    """Return the mean score asymmetry of every variant at the steps that charts show, packed."""
    steps, indices = thin(snapshot.eval_steps)
    means = mean_interval(snapshot.per_sharing(snapshot.asymmetry)[indices]).mean
    return {"steps": _packed(steps), "means": [_packed(line) for line in means.T]}


def planned_board(experiment: Experiment) -> dict[str, Any]:
    """Return the board of an experiment before training: its columns without results.

    Its legends are those of the later curves, so that nothing moves when the curves appear. Only
    the level at which symmetric scores stay is left out, because it would tell which variants fail
    before anybody has guessed.
    """
    name = "accuracy" if experiment.task.loss_to_beat is None else "loss"
    levels = _shared_levels(experiment) + ([_untrained(0.0)] if name == "accuracy" else [])
    return {
        "step": 0,
        "last_step": experiment.training.steps,
        "steps": "",
        "previous_steps": "",
        "quantity": name,
        "top": 1.0,
        "turn": experiment.training.earlier_steps,
        "legend": _legend(experiment, levels, has_previous=False),
        "label_legend": experiment.task.label_legend,
        "has_mirrors": experiment.task.plateau is not None,
        "mark": None,
        "columns": [
            {**column, "said": _alt_text(column)} for column in planned_columns(experiment)
        ],
        "maps": None,
        "task": experiment.task.name,
        "title": experiment.task.title,
    }


def planned_columns(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the columns of an experiment before training: names, diagrams and costs."""
    return [
        {
            "name": title_of(variant),
            "text": variant.value,
            "second": second_line_of(variant),
            "meaning": variant.meaning,
            "color": color,
            "diagram": variant_diagram(variant, experiment.wiring(variant), color),
            "facts": facts(experiment, variant),
            "value": "–",
            "note": "not trained yet",
            "curve": None,
            "levels": [],
            "asymmetry": None,
            "asymmetry_value": "",
            "map": None,
            "scores": [],
        }
        for variant, color in zip(experiment.sharing, colors_of(experiment.sharing), strict=True)
    ]


def facts(experiment: Experiment, variant: Variant) -> str:
    """Return the costs of a variant, and the changes that make costs equal, in words."""
    costs = experiment.costs(variant)
    n_matrices = count_matrices(experiment.wiring(variant))
    matrices = {0: "no matrix", 1: "1 matrix"}.get(n_matrices, f"{n_matrices} matrices")
    text = (
        f"{matrices}, {costs.parameters:,} parameters, "
        f"{costs.kv_cache:,} numbers kept per token (KV cache)"
    )
    changes = adjustment(experiment, variant)
    return f"{text}; {changes}" if changes else text


def adjustment(experiment: Experiment, variant: Variant) -> str:
    """Return the changes that make costs equal, and the remaining difference, in words."""
    if experiment.equal == "nothing":
        return ""
    adjusted = experiment.adjusted(variant)
    parts = [adjusted.changes] if adjusted.changes else []
    if abs(adjusted.difference) >= _VISIBLE:
        unequal = "not equal: " if abs(adjusted.difference) > TOLERANCE else ""
        parts.append(f"{unequal}{adjusted.difference:+.1%} {experiment.equal.replace('_', ' ')}")
    return ", ".join(parts) or "nothing changed"


def _accuracy_texts(snapshot: Snapshot) -> dict[Variant, dict[str, str]]:
    """Return the accuracy of every variant and a note with its interval, as parts of a column."""
    experiment = snapshot.experiment
    of_seeds = snapshot.per_sharing(snapshot.latest("accuracy"))
    accuracy = mean_interval(of_seeds)
    training = mean_interval(snapshot.per_sharing(snapshot.latest("training_accuracy"))).mean
    diverged = snapshot.per_sharing(snapshot.diverged_at >= 0).sum(-1)
    texts = {}
    for i, variant in enumerate(experiment.sharing):
        mean = accuracy.mean[i]
        limits = percent_interval(accuracy.low[i], accuracy.high[i])
        alike = len({percent(share) for share in of_seeds[i] if not np.isnan(share)}) == 1
        note = limits if " to " in limits or not alike else "every seed"
        note = note if limits else "right answers"
        if diverged[i]:
            note = f"{diverged[i]} of {experiment.n_seeds} diverged"
        texts[variant] = {"value": "–" if np.isnan(mean) else percent(mean), "note": note}
        if not np.isnan(training[i]):
            on_training = f"{percent(training[i])} right on training examples"
            texts[variant]["facts"] = f"{on_training}; {facts(experiment, variant)}"
    return texts


def _top(snapshot: Snapshot, values: np.ndarray) -> float:
    """Return the upper end of the vertical axis of the learning curves."""
    task = snapshot.experiment.task
    if task.loss_to_beat is None:
        return 1.0
    start = values[0][np.isfinite(values[0])].max(initial=0.0)
    return 1.05 * max(math.log(task.n_classes), task.loss_to_beat, float(start))


def _shared_levels(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the reference level of all columns: chance, or the loss to beat."""
    task = experiment.task
    if task.loss_to_beat is None:
        return [{"value": task.chance, "dash": "dot", "text": f"chance {percent(task.chance)}"}]
    text = f"{task.simple_model} {task.loss_to_beat:.2f}"
    return [{"value": task.loss_to_beat, "dash": "dot", "text": text}]


def _levels_of(
    experiment: Experiment, variant: Variant, at_start: np.ndarray, name: str
) -> list[dict[str, Any]]:
    """Return the levels of one column: untrained accuracy, and the plateau of symmetric scores."""
    if name == "loss":
        return []
    start = float(mean_interval(at_start).mean)
    levels = [] if np.isnan(start) else [_untrained(start)]
    if experiment.plateau is not None and stays_at_plateau(variant):
        text = f"guess between two entries {percent(experiment.plateau)}"
        levels.append({"value": experiment.plateau, "dash": "longdashdot", "text": text})
    return levels


def _untrained(value: float) -> dict[str, Any]:
    """Return the level of the accuracy before training."""
    return {"value": value, "dash": "dash", "text": "untrained"}


def _legend(
    experiment: Experiment, levels: Sequence[dict[str, Any]], has_previous: bool
) -> list[dict[str, str]]:
    """Return the legend of the learning curves: a text for each style of line."""
    n = experiment.n_seeds
    entries = [{"dash": "solid", "text": f"mean of {n} seeds, 95% interval" if n > 1 else "1 seed"}]
    if n > 1:
        entries.append({"dash": "thin", "text": "each seed"})
    entries += [{"dash": level["dash"], "text": level["text"]} for level in levels]
    if experiment.training.earlier_steps:
        entries.append({"dash": "thin", "text": "vertical line: the embedding is frozen"})
    if has_previous:
        entries.append({"dash": "previous", "text": "previous experiment"})
    return list({entry["text"]: entry for entry in entries}.values())


def _curve(values: np.ndarray, top: float) -> dict[str, str]:
    """Return the mean of (e, s) values with its 95% limits, cut to the axis."""
    interval = mean_interval(values)
    low, high = (limit.clip(0, top) for limit in (interval.low, interval.high))
    return {"mean": _packed(interval.mean), "low": _packed(low), "high": _packed(high)}


def _previous(previous: Snapshot | None, variant: Variant, name: str) -> str:
    if previous is None or variant not in previous.experiment.sharing:
        return ""
    index = previous.experiment.sharing.index(variant)
    _, indices = thin(previous.eval_steps)
    values = previous.per_sharing(previous.history[name])[indices, index]
    return _packed(mean_interval(values).mean)


def _maps(
    snapshot: Snapshot, seed: int, layer: int, head: int | None, n_columns: int
) -> dict[str, Any]:
    """Return the attention maps, cut to the width of one of `n_columns` columns of the board."""
    experiment = snapshot.experiment
    width = BOARD_WIDTH / n_columns - _LABELS
    labels = experiment.task.label(snapshot.probe.tokens)
    has_letters = all(len(label.short) == 1 for label in labels)
    most_columns = int(width / (_LETTER if has_letters else _NAME)) - 1
    frame = map_layout_of(
        experiment.task,
        experiment.layer_specs[layer],
        example_of(snapshot),
        most_columns=min(max(most_columns, _LEAST_COLUMNS), MOST_COLUMNS),
    )
    names = [labels[row].short for row in frame.rows]
    return {
        **attention_maps(snapshot, seed, layer, head, frame),
        "short_rows": names if set(frame.rows) <= set(frame.columns) else None,
        "frame": frame,
    }


def _mark(snapshot: Snapshot, layer: int, frame: MapLayout) -> dict[str, int] | None:
    """Return row and column of the marked pair in the map, and of its mirror; None if hidden."""
    pair = _pair(snapshot, layer)
    if pair is None or not all(i in frame.rows and i in frame.columns for i in pair):
        return None
    query, key = pair
    return {
        "row": frame.rows.index(query),
        "column": frame.columns.index(key),
        "mirror_row": frame.rows.index(key),
        "mirror_column": frame.columns.index(query),
    }


def _pair(snapshot: Snapshot, layer: int) -> tuple[int, int] | None:
    """Return the marked pair of positions if the layer has scores for both directions."""
    layer_spec = snapshot.experiment.layer_specs[layer]
    pair = marked_pair(snapshot.experiment.task, example_of(snapshot))
    both = range(
        max(layer_spec.query_positions[0], layer_spec.key_positions[0]),
        min(layer_spec.query_positions[1], layer_spec.key_positions[1]),
    )
    return pair if pair is not None and all(i in both for i in pair) else None


def _pair_scores(
    snapshot: Snapshot, seed: int, layer: int, head: int | None
) -> dict[Variant, list[dict[str, Any]]]:
    """Return the two scores of the marked pair for every variant, as texts."""
    pair = _pair(snapshot, layer)
    scores = snapshot.probe.scores
    if scores is None or pair is None:
        return {}
    experiment = snapshot.experiment
    names = [experiment.task.label(snapshot.probe.tokens)[i].short for i in pair]
    scores = snapshot.per_sharing(np.moveaxis(scores[:, layer], 0, -1))
    scores = scores[..., experiment.seeds.index(seed)].astype(np.float64)  # (h, i, j, variant)
    same_both_ways = snapshot.per_sharing(snapshot.same_both_ways)[:, experiment.seeds.index(seed)]
    texts: dict[Variant, list[dict[str, Any]]] = {}
    for k, variant in enumerate(experiment.sharing):
        n_heads = experiment.wiring(variant).sizes.n_heads
        if head is not None and head >= n_heads:
            continue
        of_head = scores[:n_heads, :, :, k].mean(0) if head is None else scores[head, :, :, k]
        score, mirrored = float(of_head[pair]), float(of_head[pair[::-1]])
        if math.isnan(score) or math.isnan(mirrored):
            continue
        same = bool(same_both_ways[k])
        there, back = two_numbers(score, mirrored, same=same)
        texts[variant] = [
            {"text": f"{names[0]}→{names[1]} {_beyond(score) or there}", "same": same},
            {"text": f"{names[1]}→{names[0]} {_beyond(mirrored) or back}", "same": same},
        ]
    return texts


def _beyond(score: float) -> str:
    """Return the words for a score that is too large to be recorded; empty for other scores."""
    if abs(score) < _LARGEST:
        return ""
    return f"above {_LARGEST:,}" if score > 0 else f"below −{_LARGEST:,}"


def _alt_text(column: dict[str, Any]) -> str:
    """Describe a column for screen readers."""
    parts = [f"accuracy {column['value']}, {column['note']}"]
    if column["map"] is not None:
        panel = column["map"]
        parts.append(f"attention map: {panel['lacking'] or panel['summary']}")
    if column["scores"]:
        parts.append("scores " + " and ".join(score["text"] for score in column["scores"]))
    if column["asymmetry_value"]:
        parts.append(f"score asymmetry {column['asymmetry_value']}")
    return f"{column['name']}: {'; '.join(parts)}. {column['facts']}."


def _packed(values: np.ndarray) -> str:
    """Return values as little-endian float32 in base64."""
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()
