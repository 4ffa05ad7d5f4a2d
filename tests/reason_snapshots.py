"""Finished snapshots with the numbers by which reasons are recognised, made without training."""

import dataclasses

import numpy as np
from finished import finished
from kinds import tiny

from attnkit.analysis.attention_map import example_of
from attnkit.analysis.reasons import marked_pair
from attnkit.variants import Variant

Q_K, QKV = Variant("Q=K"), Variant("QKV")

CYCLE = [1, 2, 3, 4, 0]
"""Boss of each entry of the book, as an index: entry i reports to entry CYCLE[i]."""


def pair_of(snapshot):
    """Return the marked pair of a snapshot's example."""
    return marked_pair(snapshot.experiment.task, example_of(snapshot))


def with_metrics(snapshot, **last):
    """Return the snapshot with other last values of metrics, one for each variant."""
    history = dict(snapshot.history)
    for name, by_variant in last.items():
        values = history[name].copy()
        values[-1] = np.repeat(by_variant, snapshot.experiment.n_seeds)
        history[name] = values
    return dataclasses.replace(snapshot, history=history)


def with_probe(snapshot, **arrays):
    """Return the snapshot with other arrays in its probe."""
    return dataclasses.replace(snapshot, probe=dataclasses.replace(snapshot.probe, **arrays))


def report(accuracy=(1.0, 0.5), right=(0.97, 0.45), wrong=(0.0, 0.44), error=(1.5, 0.0), **given):
    """Return a finished snapshot on who reports to whom, with five entries; QKV alone solves it.

    QKV scores 9 for the boss and 2 for the reversed entry, and Q=K scores both the same.

    Args:
        accuracy: Last accuracy of each variant.
        right: Attention of each variant on the boss.
        wrong: Attention of each variant on the reversed entry, which reports to the asking one.
        error: Symmetry error of each variant's scores.
        given: Other settings of the experiment.
    """
    experiment = tiny("directed", **{"sharing": ["QKV", "Q=K"], "n_seeds": 1, **given})
    n_heads = experiment.n_heads
    levels = np.repeat(np.array(accuracy), experiment.n_seeds).reshape(2, -1)
    rows = np.stack([levels * share for share in (0, 0.99, 0.99, 1, 1)])
    base = finished(experiment, rows)
    tokens = np.array([[i, 11 + CYCLE[i], 22 + i] for i in range(5)])
    scores = np.zeros((2, 1, 1, 5, 5))
    for i, target in enumerate(CYCLE):
        scores[:, 0, 0, i, target] = [9, 2 + i / 4]
        scores[:, 0, 0, target, i] = [2, 2 + i / 4]
    scores = scores.repeat(n_heads, 2).repeat(experiment.n_seeds, 0)
    masked = np.exp(scores - 1e5 * np.eye(5))
    base = with_probe(
        base,
        tokens=tokens,
        labels=np.array(CYCLE),
        target=np.array(CYCLE),
        reverse=np.argsort(CYCLE),
        scores=scores.astype(np.float16),
        pattern=(masked / masked.sum(-1, keepdims=True)).astype(np.float16),
    )
    symmetry = [1.0 if own < 0.1 else 0.0 for own in error]
    return with_metrics(
        base,
        mass_on_target=right,
        mass_on_reverse=wrong,
        symmetry_error=error,
        score_symmetry=symmetry,
    )


def rising(*curves, loss=None, kind="phonebook", last_steps=8, **given):
    """Return a finished snapshot from curves of accuracy.

    Args:
        curves: One curve for each variant and seed.
        loss: (e, variant, seed), one row per evaluation; else 1 everywhere.
        kind: Name of the task.
        last_steps: Number of steps.
        given: Other settings of the experiment.
    """
    rows = np.array(curves, float).transpose(2, 0, 1)
    experiment = tiny(kind, **{"n_seeds": rows.shape[2], "steps": last_steps, **given})
    loss = np.ones_like(rows) if loss is None else loss
    snapshot = finished(experiment, rows, loss)
    shares = np.full_like(snapshot.probe.pattern, 1 / experiment.task.n_ctx)
    return with_probe(snapshot, pattern=shares)


RISES, FLAT, SOLVED = [0, 0.3, 0.4, 0.5, 0.6], [0, 0.6, 0.6, 0.6, 0.6], [0, 1, 1, 1, 1]
