"""Attention maps of the probe example, one per variant: values in, plain drawing data out."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from attnkit.figures.palette import colors_of
from attnkit.results import Snapshot
from attnkit.variants.catalogue import title_of


def attention_maps(
    snapshot: Snapshot, seed: int, layer: int = 0, head: int | None = 0
) -> dict[str, Any]:
    """Maps of one seed's runs: rows ask, columns are looked at.

    Columns are the entries; if the questions are tokens of their own, what falls on those is
    summed in a last column.

    Args:
        seed: one of the experiment's seeds.
        layer: counted from 0.
        head: counted from 0; None for the mean over the heads that a variant has.
    """
    experiment, probe = snapshot.experiment, snapshot.probe
    task = experiment.task
    labels = task.label(probe.tokens)
    first = task.answers_from
    pattern = snapshot.per_sharing(np.moveaxis(probe.pattern[:, layer], 0, -1))
    place = experiment.seeds.index(seed)
    pattern = pattern[..., place]  # (h, i, j, variant)
    entries = labels[:first] if first else labels
    answers = snapshot.per_sharing(probe.answers.T)[..., place]
    colors = colors_of(experiment.sharing)
    panels = []
    for i, variant in enumerate(experiment.sharing):
        n_heads = experiment.wiring(variant).sizes.n_heads
        own = pattern[:n_heads, first:, :, i]
        lacking = head is not None and head >= n_heads
        chosen = own.mean(0) if head is None or lacking else own[head]
        if first:
            rest = chosen[:, first:].sum(1, keepdims=True)
            chosen = np.concatenate([chosen[:, :first], rest], 1)
        levels = np.nan_to_num(chosen).clip(0, 1)
        right = answers[:, i] == probe.labels
        panels.append(
            {
                "name": title_of(variant),
                "text": variant.value,
                "lacking": f"It has {n_heads} head{'s' * (n_heads > 1)} only." if lacking else "",
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
