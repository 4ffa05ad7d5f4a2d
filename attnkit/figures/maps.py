"""Attention maps of the probe example, one per variant: values in, plain drawing data out."""

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
    """Maps of one seed's runs: rows ask, columns are looked at.

    Args:
        seed: one of the experiment's seeds.
        layer: counted from 0, in the order of `Experiment.layer_specs`.
        head: counted from 0; None for the mean over the heads that a variant has.
        frame: rows and columns; None for those of `map_layout_of`.
    """
    experiment, probe = snapshot.experiment, snapshot.probe
    task = experiment.task
    example = example_of(snapshot)
    frame = frame or map_layout_of(task, experiment.layer_specs[layer], example)
    pattern = snapshot.per_sharing(np.moveaxis(probe.pattern[:, layer], 0, -1))
    place = experiment.seeds.index(seed)
    pattern = pattern[..., place]  # (h, i, j, variant)
    answers = snapshot.per_sharing(probe.answers.T)[..., place]  # (a, variant)
    asked = probe.labels != NOTHING
    colors = colors_of(experiment.sharing)
    panels = []
    for i, variant in enumerate(experiment.sharing):
        n_heads = experiment.wiring(variant).sizes.n_heads
        own = pattern[..., i][:n_heads, frame.rows].astype(np.float32)
        lacking = head is not None and head >= n_heads
        chosen = own.mean(0) if head is None or lacking else own[head]
        levels = levels_of(shown_columns(chosen, frame))
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
                "summary": f"{(right & asked).sum()} of {asked.sum()} right",
            }
        )
    return {
        "panels": panels,
        **axes_of(task.label(probe.tokens), frame, example),
        "answer_letters": _answer_letters(task, probe.labels[asked]),
    }


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


_LONGEST = 9
"""Letters of an answer beside a map."""


def _answer_letters(task: Task, labels: np.ndarray) -> int:
    """Room for answers that stays the same while they change."""
    classes = {*labels.tolist(), *range(min(task.n_classes, 128))}
    return max(len(_short(task.answer_text(answer))) for answer in classes)
