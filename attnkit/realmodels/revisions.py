"""Revisions of one model side by side: how alike its matrices are over training.

The name of a revision is the name of its model, "@" and a branch, tag or commit of the hub, or the
name of a checkpoint's folder: "pythia-70m@step1000", "run@checkpoint-500".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from attnkit.foundation.tables import markdown_table, markdown_text
from attnkit.foundation.words import counted, listed
from attnkit.realmodels.measures import MEASURES
from attnkit.training.summary import fixed

OVER_TRAINING = {
    "symmetry": "of whole layers",
    "cos_qk": "of whole layers",
    "overlap_qk": "mean over the heads of a layer",
}
"""Measures that are followed over training, and what of a layer they are."""

_CHECKPOINT = re.compile(r"(^|[-_.])(checkpoint|ckpt|(global_)?step|iter|epoch)[-_]?\d", re.I)
_STEP = re.compile(r"(?:checkpoint|ckpt|step|iter)[-_]?(\d+)(k)?(?![a-z0-9])", re.I)
_COMMIT = re.compile(r"(?=.*[a-f])[0-9a-f]{7,40}")


def is_checkpoint(folder: str) -> bool:
    """Return whether a folder's name is that of a checkpoint, such as "checkpoint-500"."""
    return _CHECKPOINT.search(folder) is not None


def step_of(revision: str) -> float:
    """Return the number in the name of a revision; NaN if there is none, or more than one.

    A number after a word for steps counts before others: "step1000-tokens4B" is 1000, and
    "step_20k" 20,000.
    """
    if found := _STEP.search(revision):
        return float(found[1]) * (1000 if found[2] else 1)
    numbers = re.findall(r"\d+", revision)
    if len(numbers) != 1 or _COMMIT.fullmatch(revision):
        return math.nan
    return float(numbers[0])


@dataclass(frozen=True)
class Revision:
    """One revision of a model.

    Attributes:
        model: Its name in the table of an atlas.
        label: What of this name says which revision it is.
        step: The number in the label; NaN for all revisions of a model unless each has another one.
    """

    model: str
    label: str
    step: float


def trainings(models: Iterable[str]) -> dict[str, list[Revision]]:
    """Return the revisions of every model of which there are several, in the order of training.

    It is that of the numbers in their names, if each has another one, else that of `models`. A
    model without "@" in its name is the revision "main" of those that begin with its name.

    Args:
        models: Names of models.

    Returns:
        Name of the model → its revisions.
    """
    found: dict[str, list[Revision]] = {}
    for model in dict.fromkeys(models):
        name, _, label = model.rpartition("@")
        revision = Revision(model, label if name else "main", step_of(label) if name else math.nan)
        found.setdefault(name or model, []).append(revision)
    several = {name: revisions for name, revisions in found.items() if len(revisions) > 1}
    for name, revisions in several.items():
        steps = {one.step for one in revisions if not math.isnan(one.step)}
        if len(steps) == len(revisions):
            several[name] = sorted(revisions, key=lambda one: one.step)
        else:
            several[name] = [replace(one, step=math.nan) for one in revisions]
    return several


def over_training(table: pd.DataFrame, *, folded: bool = False, offset: int = 0) -> pd.DataFrame:
    """Return how alike W_Q and W_K are in every layer, over the revisions of a model.

    Args:
        table: Table of an atlas with several revisions of a model; see `trainings`.
        folded: Whether the gains of the norm are multiplied into the matrices.
        offset: Distance of tokens in positions.

    Returns:
        A row per revision, kind of layer and layer, in the order of training, with the columns
        `training` (name of the model), `revision`, `place` (0, 1, …), `step` (the number in the
        revision's name; NaN for all revisions of a model unless each has another one), `kind`,
        `layer`, `symmetry` and `cos_qk` of the whole layer, `overlap_qk` as the mean over its
        heads, and `…_random`, their means for random matrices. No rows if no model has several
        revisions.
    """
    names = [name for measure in OVER_TRAINING for name in (measure, f"{measure}_random")]
    chosen = table[(table["folded"] == folded) & (table["offset"] == offset)]
    keys, rows = ["model", "kind", "layer"], []
    heads = chosen[chosen["head"].notna()].groupby(keys)[["overlap_qk", "overlap_qk_random"]]
    layers = chosen[chosen["head"].isna()].drop(columns=["overlap_qk", "overlap_qk_random"])
    layers = layers.merge(heads.mean().reset_index(), on=keys)
    for training, revisions in trainings(chosen["model"]).items():
        for place, one in enumerate(revisions):
            of_model = layers[layers["model"] == one.model]
            labelled = of_model.assign(training=training, revision=one.label)
            rows.append(labelled.assign(place=place, step=one.step))
    columns = ["training", "revision", "place", "step", "kind", "layer", *names]
    every = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=columns)
    return every[columns]


def describe_training(rows: pd.DataFrame) -> list[str]:
    """Describe the first and the last revision of each model, and what lies between.

    Args:
        rows: Rows of `over_training`.

    Returns:
        A sentence per model and kind of layer.
    """
    return [_described(part) for _, part in rows.groupby(["training", "kind"], sort=False)]


def _described(rows: pd.DataFrame) -> str:
    labels = rows.groupby("place")["revision"].first().tolist()
    changes, damaged = [], list[str]()
    for name in OVER_TRAINING:
        found = rows.groupby("place")[name].median()
        lacking = found.isna().to_numpy()
        if lacking.all():
            continue
        if lacking.any():
            damaged += [label for label, lacks in zip(labels, lacking, strict=True) if lacks]
        medians = found.ffill().bfill().to_numpy(float)
        farthest = int(np.abs(medians - medians[0]).argmax())
        start, middle, end = (fixed(medians[place], 2) for place in (0, farthest, -1))
        by_way = f" by way of {middle} at {labels[farthest]}" if middle not in (start, end) else ""
        changes.append(
            f"{MEASURES[name].title} goes from {start}{by_way} to {end} "
            f"(random {fixed(rows[f'{name}_random'].mean(), 2)})"
        )
    training, kind = rows[["training", "kind"]].iloc[0]
    span = f"{training}, {kind}, from {labels[0]} to {labels[-1]}"
    if not changes:
        return f"{span}: no revision has numbers that can be measured."
    without = f" No numbers: {listed(dict.fromkeys(damaged))}." if damaged else ""
    n_layers = counted(rows["layer"].nunique(), "layer")
    return f"{span}, median over {n_layers}: {'; '.join(changes)}.{without}"


def training_table(rows: pd.DataFrame) -> str:
    """Return a Markdown table of `over_training` with medians and ranges over layers."""
    head = ["model, kind", "revision", *(MEASURES[name].title for name in OVER_TRAINING)]
    lines = []
    for (training, kind, _), layers in rows.groupby(["training", "kind", "place"], sort=False):
        cells = [
            f"{markdown_text(str(training))} {kind}",
            markdown_text(layers["revision"].iloc[0]),
        ]
        for name in OVER_TRAINING:
            values = layers[name]
            span = f"[{fixed(values.min(), 2)}, {fixed(values.max(), 2)}]"
            cells.append(f"{fixed(values.median(), 3)} {span}")
        lines.append(cells)
    return markdown_table(head, lines, "llrrr")
