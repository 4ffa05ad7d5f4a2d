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
from attnkit.tasks import NOTHING, Task
from attnkit.training.snapshot import Snapshot
from attnkit.variants.catalogue import title_of
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
    seed_index = experiment.seeds.index(seed)
    patterns = snapshot.per_sharing(np.moveaxis(probe.pattern[:, layer], 0, -1))
    patterns = patterns[..., seed_index]  # (h, i, j, variant)
    answers = snapshot.per_sharing(probe.answers.T)[..., seed_index]  # (a, variant)
    is_query = probe.labels != NOTHING
    colors = colors_of(experiment.sharing)
    panels = []
    for i, variant in enumerate(experiment.sharing):
        n_heads = experiment.wiring(variant).sizes.n_heads
        heads = patterns[..., i][:n_heads, frame.rows].astype(np.float32)
        lacking = head is not None and head >= n_heads
        pattern = heads.mean(0) if head is None or lacking else heads[head]
        levels = levels_of(shown_columns(pattern, frame))
        right = answers[:, i] == probe.labels
        panels.append(
            {
                "name": title_of(variant),
                "text": variant.value,
                "lacking": lacking_note(n_heads) if lacking else "",
                "color": colors[i],
                "cells": base64.b64encode(levels.tobytes()).decode(),
                "answers": [
                    _short(task.answer_text(int(answers[a, i]))) if a >= 0 else ""
                    for a in frame.answers
                ],
                "right": [bool(right[a]) if a >= 0 else None for a in frame.answers],
                "summary": f"{(right & is_query).sum()} of {is_query.sum()} right",
            }
        )
    return {
        "panels": panels,
        **axes_of(task.label(probe.tokens), frame, example),
        "answer_letters": _answer_letters(task, probe.labels[is_query]),
    }


_LONGEST_ANSWER = 9
"""Most characters of an answer beside a map."""


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_ANSWER else text[: _LONGEST_ANSWER - 1] + "…"


def _answer_letters(task: Task, labels: np.ndarray) -> int:
    """Return the width of the column of answers in characters, which fits all possible answers."""
    classes = {*labels.tolist(), *range(min(task.n_classes, 128))}
    return max(len(_short(task.answer_text(answer))) for answer in classes)
