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

from attnkit.analysis.attention_map import (
    MOST_COLUMNS,
    MapLayout,
    axes_of,
    example_of,
    lacking_note,
    map_layout_of,
    marked_pair,
    shown_columns,
    telling_layer,
)
from attnkit.analysis.attention_map import levels_of as cell_levels
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.reasons import headline
from attnkit.experiment import Experiment
from attnkit.experiment.costs import TOLERANCE
from attnkit.figures.curves import (
    History,
    legend_of,
    levels_of,
    metric_of,
    reference_levels,
    top_of,
)
from attnkit.figures.diagram import count_matrices, variant_diagram
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.tasks import NOTHING
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import (
    asymmetry_in_words,
    finding,
    in_percent,
    measures_finding,
    percent,
    percent_interval,
    percent_limits,
    two_numbers,
)
from attnkit.variants import Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import colors_of


def attention_maps(
    snapshot: Snapshot,
    seed: int,
    layer: int = 0,
    head: int | None = 0,
    frame: MapLayout | None = None,
) -> dict[str, Any]:
    """Return the attention maps of one seed's runs: rows are queries, columns are keys.

    Args:
        snapshot: Snapshot with the attention patterns of the probe example.
        seed: One of the experiment's seeds.
        layer: Index of the layer in `Experiment.layer_specs`.
        head: Index of the head; None for the mean over the heads of a variant.
        frame: Positions of rows and columns; None for those of `map_layout_of`.
    """
    experiment, probe = snapshot.experiment, snapshot.probe
    task = experiment.task
    example = example_of(snapshot)
    frame = frame or map_layout_of(task, experiment.layer_specs[layer], example)
    answers = snapshot.per_sharing(probe.answers.T)[..., experiment.seeds.index(seed)]
    is_query = probe.labels != NOTHING
    patterns = of_head(snapshot, probe.pattern, seed, layer, head)
    classes = {*probe.labels[is_query].tolist(), *range(min(task.n_classes, 128))}
    panels = []
    for i, (variant, pattern) in enumerate(zip(experiment.sharing, patterns, strict=True)):
        right, cells, lacking = answers[:, i] == probe.labels, b"", ""
        if pattern is None:
            lacking = lacking_note(experiment.wiring(variant).sizes.n_heads)
        elif "module" in variant.given and np.isnan(pattern).all():
            lacking = tr("It does not return its pattern, so there is no map.")
        else:
            cells = cell_levels(shown_columns(pattern[frame.rows], frame)).tobytes()
        panels.append(
            {
                "name": title_of(variant),
                "lacking": lacking,
                "cells": base64.b64encode(cells).decode(),
                "answers": [
                    _short(task.answer_text(int(answers[a, i]))) if a >= 0 else ""
                    for a in frame.answers
                ],
                "right": [bool(right[a]) if a >= 0 else None for a in frame.answers],
                "summary": tr(
                    "{n_right} of {n} right", n_right=(right & is_query).sum(), n=is_query.sum()
                ),
            }
        )
    return {
        "panels": panels,
        **axes_of(task.label(probe.tokens), frame, example),
        # The width of the column of answers fits all possible ones.
        "answer_letters": max(len(_short(task.answer_text(one))) for one in classes),
    }


def of_head(
    snapshot: Snapshot, recorded: np.ndarray, seed: int, layer: int, head: int | None
) -> list[np.ndarray | None]:
    """Return what a layer's head recorded, (i, j), for every variant; None if it lacks the head.

    `recorded` is (r, l, h, i, j) patterns or scores of the probe example; for the others see
    `attention_maps`.
    """
    experiment = snapshot.experiment
    by_variant = snapshot.per_sharing(np.moveaxis(recorded[:, layer], 0, -1))
    by_variant = by_variant[..., experiment.seeds.index(seed)]  # (h, i, j, variant)
    chosen: list[np.ndarray | None] = []
    for index, variant in enumerate(experiment.sharing):
        heads = by_variant[: experiment.wiring(variant).sizes.n_heads, :, :, index]
        if head is None:
            chosen.append(heads.mean(0, dtype=np.float64))
        else:
            chosen.append(heads[head].astype(np.float64) if head < len(heads) else None)
    return chosen


def where_in_words(experiment: Experiment, seed: int, layer: int, head: int | None) -> str:
    """Return seed, layer and head of maps in words, the latter two only if there are several."""
    parts = [tr("seed {seed}", seed=seed)]
    if len(experiment.layer_specs) > 1:
        parts.append(experiment.layer_specs[layer].name)
    if experiment.n_heads > 1:
        parts.append(tr("mean of heads") if head is None else tr("head {head}", head=head + 1))
    return ", ".join(parts)


def _short(text: str) -> str:
    return text if len(text) <= 9 else text[:8] + "…"


_LARGEST = 65_500
"""Largest size of a recorded score; of a larger score, only the sign is known."""


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
        experiment: Experiment whose variants are the columns; it differs from the snapshot's in
            nothing else. A variant that the snapshot lacks has an empty column.
        previous: Snapshot of an earlier experiment, whose curves are drawn in grey.
    """
    trained = snapshot.experiment
    metric = metric_of(trained.task)
    history, asymmetry = History.of(metric, snapshot), History.of("asymmetry", snapshot)
    before = None if previous is None else History.of(metric, previous)
    earlier = {} if before is None else before.intervals
    top, levels = top_of(metric, [snapshot]), levels_of(metric, trained, history)
    maps = _maps(snapshot, seed, layer, head, len(experiment.sharing))
    panels = dict(zip(trained.sharing, maps.pop("panels"), strict=True))
    accuracies = _accuracy_texts(snapshot)
    pair_scores = _pair_scores(snapshot, seed, layer, head)
    columns = []
    for column, variant in zip(planned_columns(experiment), experiment.sharing, strict=True):
        if variant in panels:
            column |= accuracies[variant]
            column["curve"] = _curve(history, variant, top)
            column["curve"]["runs"] = _packed(history.runs[variant].T)
            known = variant in earlier
            column["curve"]["previous"] = _packed(earlier[variant].mean) if known else ""
            column["levels"] = [vars(level) for level in levels[variant]]
            column["asymmetry"] = _curve(asymmetry, variant, 1.0)
            column["asymmetry_value"] = asymmetry_in_words(snapshot, variant)
            column["map"] = panels[variant]
            column["scores"] = pair_scores.get(variant, [])
        else:
            column["map"] = {"lacking": tr("Not trained yet: press Train.")}
        columns.append({**column, "alt": _alt_text(column)})
    shown = [level for variant in experiment.sharing for level in levels.get(variant, [])]
    return {
        **planned_board(experiment),
        "step": snapshot.step,
        "steps": _packed(history.steps),
        "previous_steps": "" if before is None else _packed(before.steps),
        "top": top,
        "legend": legend_of(metric, trained, shown, has_previous=previous is not None),
        "mark": _mark(snapshot, layer, maps.pop("frame")),
        "columns": columns,
        "maps": maps,
    }


def asymmetry_over_steps(snapshot: Snapshot) -> dict[str, Any]:
    """Return the mean score asymmetry of every variant at the steps that charts show, packed."""
    history = History.of("asymmetry", snapshot)
    means = [_packed(interval.mean) for interval in history.intervals.values()]
    return {"steps": _packed(history.steps), "means": means}


def planned_board(experiment: Experiment) -> dict[str, Any]:
    """Return the board of an experiment before training: its columns without results.

    Its legends are those of the later curves, so that nothing moves when the curves appear. Only
    the level at which symmetric scores stay is left out, because it would tell which variants fail
    before anybody has guessed.
    """
    task, metric = experiment.task, metric_of(experiment.task)
    return {
        "step": 0,
        "last_step": experiment.training.steps,
        "steps": "",
        "previous_steps": "",
        "quantity": metric,
        "asks_trained": task.asks_trained,
        "top": 1.0,
        "turn": experiment.training.earlier_steps,
        "legend": legend_of(metric, experiment, reference_levels(metric, task)),
        "label_legend": tr(task.label_legend),
        "has_mirrors": task.plateau is not None,
        "mark": None,
        "columns": [{**one, "alt": _alt_text(one)} for one in planned_columns(experiment)],
        "maps": None,
        "task": task.name,
        "title": tr(task.title),
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
            # Translators: said of a variant.
            "note": tr("not trained yet"),
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
    module = experiment.wiring(variant).module
    if module is not None:
        text = tr(
            "a PyTorch module from {file}, {parameters:,} parameters, {numbers:,.0f} numbers kept "
            "per token (KV cache)",
            file=module.origin,
            parameters=costs.parameters,
            numbers=costs.kv_cache or 0,
        )
        if costs.kv_cache is None:
            text = tr(
                "a PyTorch module from {file}, {parameters:,} parameters, an unknown number of "
                "numbers kept per token (KV cache)",
                file=module.origin,
                parameters=costs.parameters,
            )
        return f"{text}. {tr(module.missing).removesuffix('.')}" if module.missing else text
    values = {"parameters": costs.parameters, "numbers": costs.kv_cache}
    n_matrices = count_matrices(experiment.wiring(variant))
    if n_matrices:
        text = tr_n(
            "{n} matrix, {parameters:,} parameters, {numbers:,} numbers kept per token (KV cache)",
            "{n} matrices, {parameters:,} parameters, {numbers:,} numbers kept per token (KV "
            "cache)",
            n_matrices,
            **values,
        )
    else:
        text = tr(
            "no matrix, {parameters:,} parameters, {numbers:,} numbers kept per token (KV cache)",
            **values,
        )
    changes = adjustment(experiment, variant)
    return f"{text}; {changes}" if changes else text


def adjustment(experiment: Experiment, variant: Variant) -> str:
    """Return the changes that make costs equal, and the remaining difference, in words."""
    if experiment.equal == "nothing":
        return ""
    adjusted = experiment.adjusted(variant)
    parts = [tr(adjusted.changes)] if adjusted.changes else []
    if abs(adjusted.difference) >= 0.0005:
        share = in_percent(f"{adjusted.difference:+.1%}".replace("-", "−").removesuffix("%"))
        is_equal = abs(adjusted.difference) <= TOLERANCE
        parts.append(tr(_DIFFERENCES[experiment.equal, is_equal], share=share))
    return ", ".join(parts) or tr("nothing changed")


_DIFFERENCES = {
    ("parameters", True): mark("{share} parameters"),
    ("multiply_adds", True): mark("{share} multiply adds"),
    ("kv_cache", True): mark("{share} kv cache"),
    ("parameters", False): mark("not equal: {share} parameters"),
    ("multiply_adds", False): mark("not equal: {share} multiply adds"),
    ("kv_cache", False): mark("not equal: {share} kv cache"),
}
"""Differences that remain where costs are made equal, and whether they are small."""


def _accuracy_texts(snapshot: Snapshot) -> dict[Variant, dict[str, str]]:
    """Return the accuracy of every variant and a note with its interval, as parts of a column."""
    experiment = snapshot.experiment
    of_seeds = snapshot.per_sharing(snapshot.latest("accuracy"))
    accuracy = mean_interval(of_seeds)
    others = {
        "training_accuracy": mark("{accuracy} right on training examples"),
        "longer_accuracy": mark("{accuracy} right on examples {times} times as long"),
    }
    times = experiment.training.longer_test
    latest = {name: snapshot.per_sharing(snapshot.latest(name)) for name in others}
    diverged = snapshot.per_sharing(snapshot.diverged_at >= 0).sum(-1)
    texts = {}
    for i, variant in enumerate(experiment.sharing):
        mean = accuracy.mean[i]
        ends = accuracy.low[i], accuracy.high[i]
        alike = len({percent(share) for share in of_seeds[i] if not np.isnan(share)}) == 1
        if diverged[i]:
            note = tr("{n} of {n_seeds} diverged", n=diverged[i], n_seeds=experiment.n_seeds)
        elif np.isnan(ends[0]):
            note = tr("right answers")
        elif alike and not percent_limits(*ends):
            # Translators: all seeds have the same percentage of right answers.
            note = tr("every seed")
        else:
            note = percent_interval(*ends)
        texts[variant] = {"value": "–" if np.isnan(mean) else percent(mean), "note": note}
        right = [
            tr(text, accuracy=percent(measured), times=times)
            for name, text in others.items()
            if (measured := float(mean_interval(latest[name][i]).mean)) == measured
        ]
        texts[variant]["facts"] = "; ".join([*right, facts(experiment, variant)])
    return texts


def _curve(history: History, variant: Variant, top: float) -> dict[str, str]:
    return {name: _packed(v) for name, v in vars(history.intervals[variant].within(0, top)).items()}


def _maps(
    snapshot: Snapshot, seed: int, layer: int, head: int | None, n_columns: int
) -> dict[str, Any]:
    experiment = snapshot.experiment
    # So many columns that all names fit. In pixels: all columns of the board in a window of 1440,
    # the labels beside a map, and a cell under a single letter or a name.
    width = 1100 / n_columns - 78
    labels = experiment.task.label(snapshot.probe.tokens)
    has_letters = all(len(label.short) == 1 for label in labels)
    most_columns = int(width / (8 if has_letters else 11)) - 1
    frame = map_layout_of(
        experiment.task,
        experiment.layer_specs[layer],
        example_of(snapshot),
        most_columns=min(max(most_columns, 8), MOST_COLUMNS),
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
    pair = _pair(snapshot, layer)
    scores = snapshot.probe.scores
    if scores is None or pair is None:
        return {}
    experiment = snapshot.experiment
    names = [experiment.task.label(snapshot.probe.tokens)[i].short for i in pair]
    same_both_ways = snapshot.per_sharing(snapshot.same_both_ways)[:, experiment.seeds.index(seed)]
    by_variant = of_head(snapshot, scores, seed, layer, head)
    texts: dict[Variant, list[dict[str, Any]]] = {}
    for k, (variant, recorded) in enumerate(zip(experiment.sharing, by_variant, strict=True)):
        if recorded is None:
            continue
        score, mirrored = float(recorded[pair]), float(recorded[pair[::-1]])
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
    if score > 0:
        return tr("above {most:,}", most=_LARGEST)
    return tr("below −{most:,}", most=_LARGEST)


def _alt_text(column: dict[str, Any]) -> str:
    # Translators: the note is for example "41 to 59%", "every seed" or "not trained yet".
    parts = [tr("accuracy {value}, {note}", value=column["value"], note=column["note"])]
    if column["map"] is not None:
        panel = column["map"]
        parts.append(tr("attention map: {text}", text=panel["lacking"] or panel["summary"]))
    if column["scores"]:
        first, second = (score["text"] for score in column["scores"])
        # Translators: two scores, such as "Ada→Cem 1.20".
        parts.append(tr("scores {first} and {second}", first=first, second=second))
    if column["asymmetry_value"]:
        # Translators: {asymmetry} is for example "0.25" or "0.00, the same both ways".
        parts.append(tr("score asymmetry {asymmetry}", asymmetry=column["asymmetry_value"]))
    return f"{column['name']}: {'; '.join(parts)}. {column['facts']}."


def _packed(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()


def board_film(snapshots: Sequence[Snapshot]) -> bytes:
    """Return the boards of one training at several moments, as a blob that browsers read."""
    last = snapshots[-1]
    experiment = last.experiment
    layer = telling_layer(experiment.layer_specs)
    head = None if experiment.n_heads > 1 else 0
    boards, conclusions = [], []
    for snapshot in snapshots:  # as the Lab shows them first
        seed = experiment.first_seed
        reason = headline(snapshot, seed) if snapshot.step else None
        because = "" if reason is None else reason.in_words(experiment, seed)
        conclusions.append(f"{because} {finding(snapshot)}".lstrip())
        alt = f"{finding(snapshot)} {measures_finding(snapshot)}"
        file = f"attnkit-{experiment.task.name}-board"
        drawing = board(snapshot, experiment, seed, layer, head)
        boards.append({**drawing, "alt": alt, "file": file})
    accuracy = np.stack(
        [one.per_sharing(one.history["accuracy"][-1]).mean(-1) for one in snapshots]
    )
    header = {
        "film": experiment.hash,
        "view": "training",
        "task": experiment.task.name,
        "request": {},
        "title": experiment.task.title,
        "steps": [snapshot.step for snapshot in snapshots],
        "total_steps": experiment.training.steps,
        "sentences": {"conclusion": conclusions},
        "variants": [
            {"name": one["name"], "text": one["text"], "color": one["color"]}
            for one in boards[-1]["columns"]
        ],
        "board": boards[-1],
        "changes": [changes(one, boards[-1]) for one in boards],
    }
    return InspectionResult(header, {"accuracy": accuracy.astype(np.float32)}, {}).to_bytes()


def changes(value: Any, base: Any) -> Any:
    """Return what differs in a value of JSON from another one.

    Returns:
        For two dictionaries with the same keys, or two lists of the same length, a dictionary with
        the changes of those entries that differ; otherwise the value in a list of its own.
    """
    if isinstance(value, dict) and isinstance(base, dict) and value.keys() == base.keys():
        entries = {key: (one, base[key]) for key, one in value.items()}
    elif isinstance(value, list) and isinstance(base, list) and len(value) == len(base):
        entries = {str(k): pair for k, pair in enumerate(zip(value, base, strict=True))}
    else:
        return [value]
    return {key: changes(one, other) for key, (one, other) in entries.items() if one != other}
