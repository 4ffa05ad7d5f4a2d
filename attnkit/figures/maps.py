"""Attention maps of the probe example, one per sharing: values in, plain drawing data out."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from attnkit.figures.palette import colors_of
from attnkit.results import Snapshot


def attention_maps(
    snapshot: Snapshot, seed: int, layer: int = 0, head: int | None = 0
) -> dict[str, Any]:
    """Maps of one seed's runs: rows ask, columns are looked at.

    Columns are the entries; if the questions are tokens of their own, what falls on those is
    summed in a last column.

    Args:
        seed: one of the experiment's seeds.
        layer: counted from 0.
        head: counted from 0; None for the mean over heads.
    """
    experiment, probe = snapshot.experiment, snapshot.probe
    task = experiment.task
    labels = task.label(probe.tokens)
    first = task.answers_from
    pattern = snapshot.per_sharing(np.moveaxis(probe.pattern[:, layer], 0, -1))
    place = experiment.seeds.index(seed)
    pattern = pattern[..., place]  # (h, i, j, sharing)
    chosen = (pattern.mean(0) if head is None else pattern[head])[first:]
    entries = labels[:first] if first else labels
    if first:
        rest = chosen[:, first:].sum(1, keepdims=True)
        chosen = np.concatenate([chosen[:, :first], rest], 1)
    answers = snapshot.per_sharing(probe.answers.T)[..., place]
    colors = colors_of(experiment.sharing)
    panels = []
    for i, sharing in enumerate(experiment.sharing):
        levels = np.nan_to_num(chosen[..., i]).clip(0, 1)
        right = answers[:, i] == probe.labels
        panels.append(
            {
                "name": sharing.value,
                "color": colors[i],
                "cells": base64.b64encode((levels * 255).round().astype(np.uint8)).decode(),
                "answers": [task.answer_text(int(answer)) for answer in answers[:, i]],
                "right": right.tolist(),
                "summary": f"{right.sum()} of {len(right)} right",
            }
        )
    return {
        "panels": panels,
        "rows": [label.asking for label in labels[first:]],
        "columns": [label.short for label in entries] + (["rest"] if first else []),
        "column_titles": [label.short for label in entries]
        + (["the other questions"] if first else []),
        "target": probe.target.tolist(),
        "reverse": probe.reverse.tolist(),
    }
