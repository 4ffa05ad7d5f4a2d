"""Drawing data for attention maps of the probe example, one per variant."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from attnkit.analysis.attention_map import (
    MapLayout,
    axes_of,
    example_of,
    lacking_note,
    levels_of,
    map_layout_of,
    shown_columns,
)
from attnkit.experiment import Experiment
from attnkit.foundation.language import tr
from attnkit.tasks import NOTHING, Task
from attnkit.training.snapshot import Snapshot
from attnkit.variants.catalogue import title_of


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
    panels = []
    for i, (variant, pattern) in enumerate(zip(experiment.sharing, patterns, strict=True)):
        right, cells, lacking = answers[:, i] == probe.labels, b"", ""
        if pattern is None:
            lacking = lacking_note(experiment.wiring(variant).sizes.n_heads)
        elif "module" in variant.given and np.isnan(pattern).all():
            lacking = tr("It does not return its pattern, so there is no map.")
        else:
            cells = levels_of(shown_columns(pattern[frame.rows], frame)).tobytes()
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
        "answer_letters": _answer_letters(task, probe.labels[is_query]),
    }


def of_head(
    snapshot: Snapshot, recorded: np.ndarray, seed: int, layer: int, head: int | None
) -> list[np.ndarray | None]:
    """Return what a layer's head recorded, (i, j), for every variant; None if it lacks the head.

    Args:
        snapshot: The snapshot.
        recorded: (r, l, h, i, j) patterns or scores of the probe example.
        seed: See `attention_maps`.
        layer: See `attention_maps`.
        head: See `attention_maps`.
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


_LONGEST_ANSWER = 9
"""Most characters of an answer beside a map."""


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_ANSWER else text[: _LONGEST_ANSWER - 1] + "…"


def _answer_letters(task: Task, labels: np.ndarray) -> int:
    """Return the width of the column of answers in characters, which fits all possible answers."""
    classes = {*labels.tolist(), *range(min(task.n_classes, 128))}
    return max(len(_short(task.answer_text(answer))) for answer in classes)
