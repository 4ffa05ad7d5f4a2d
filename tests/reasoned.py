"""Finished snapshots whose numbers give a reason why a variant fails, made without training."""

import dataclasses

import numpy as np
from finished import finished
from kinds import tiny

from attnkit.analysis.reasons import reason
from attnkit.experiment import Experiment
from attnkit.variants import Variant

Q_K = Variant("Q=K")
CYCLE = [1, 2, 3, 4, 0]
"""Boss of each entry of the book, as an index: entry i reports to entry CYCLE[i]."""

RISES, FLAT, SOLVED = [0, 0.3, 0.4, 0.5, 0.6], [0, 0.6, 0.6, 0.6, 0.6], [0, 1, 1, 1, 1]
FALLING = np.array([3, 2.4, 2.0, 1.9, 1.8])[:, None, None]
NAN = np.nan


def changed(snapshot, probe=None, **last):
    """Return the snapshot with other arrays in its probe and other last values of metrics."""
    history = dict(snapshot.history)
    for name, by_variant in last.items():
        history[name] = history[name].copy()
        history[name][-1] = np.repeat(by_variant, snapshot.experiment.n_seeds)
    probe = dataclasses.replace(snapshot.probe, **(probe or {}))
    return dataclasses.replace(snapshot, history=history, probe=probe)


def report(accuracy=(1.0, 0.5), right=(0.97, 0.45), wrong=(0.0, 0.44), error=(1.5, 0.0), **given):
    """Return a finished snapshot on who reports to whom, with five entries; QKV alone solves it.

    For each variant: its last accuracy, attention on the boss and on the reversed entry, which
    reports to the asking one, and symmetry error. QKV scores 9 for the boss and 2 for the reversed
    entry, Q=K both the same. What else is given are settings, or arrays of the probe.
    """
    other = {name: given.pop(name) for name in ("pattern", "scores") if name in given}
    experiment = tiny("directed", **{"sharing": ["QKV", "Q=K"], "n_seeds": 1, **given})
    levels = [np.array(accuracy)[:, None] * share for share in (0, 0.99, 0.99, 1, 1)]
    scores = np.zeros((2, 1, experiment.n_heads, 5, 5))
    for i, target in enumerate(CYCLE):
        scores[:, 0, :, i, target] = np.array([9, 2 + i / 4])[:, None]
        scores[:, 0, :, target, i] = np.array([2, 2 + i / 4])[:, None]
    masked = np.exp(scores - 1e5 * np.eye(5))
    probe = {
        "tokens": np.array([[i, 11 + CYCLE[i], 22 + i] for i in range(5)]),
        "labels": np.array(CYCLE),
        "target": np.array(CYCLE),
        "reverse": np.argsort(CYCLE),
        "scores": scores.astype(np.float16),
        "pattern": (masked / masked.sum(-1, keepdims=True)).astype(np.float16),
    }
    metrics = {"mass_on_target": right, "mass_on_reverse": wrong, "symmetry_error": error}
    symmetry = [1.0 if own < 0.1 else 0.0 for own in error]
    return changed(finished(experiment, levels), probe | other, score_symmetry=symmetry, **metrics)


def own_relations(accuracy=0.55, other=1.0, error=0.0, **given):
    """Return a finished snapshot of QKV and Q=K on bosses, most of whom have several reports."""
    rows = "\n".join(f"P{i}\tboss\tP{(i - 1) // 3}" for i in range(1, 40))
    settings = {"sharing": ["QKV", "Q=K"], "n_seeds": 1, "steps": 8, **given}
    experiment = Experiment(task="relations", data=rows, **settings)
    levels = [[[other * share], [accuracy * share]] for share in (0, 0.99, 0.99, 1, 1)]
    last = {"symmetry_error": (1.5, error), "score_symmetry": (0.0, 1.0)}
    return changed(finished(experiment, levels), mass_on_target=(0.9, 0.2), **last)


def looking(itself, right=0.1, accuracy=0.4, n_others=0):
    """Return `report` where tokens of Q=K look at themselves, but the first few at another one."""
    pattern = report().probe.pattern.copy()
    pattern[1] = (1 - itself - right) / 3
    at = np.arange(5)
    pattern[1, :, :, at, at], pattern[1, :, :, at, CYCLE] = itself, right
    for i in range(n_others):
        pattern[1, :, :, i] = 0.04
        pattern[1, :, :, i, (i + 2) % 5] = 0.84
    return report((1.0, accuracy), wrong=(0.0, 0.1), pattern=pattern)


def rising(*curves, loss=None, kind="phonebook", pattern=None, **given):
    """Return a finished snapshot from curves of accuracy, for every variant one for each seed."""
    rows = np.array(curves, float).transpose(2, 0, 1)
    experiment = tiny(kind, **{"n_seeds": rows.shape[2], "sharing": ["Q=K"], **given})
    snapshot = finished(experiment, rows, np.ones_like(rows) if loss is None else loss)
    shares = np.full_like(snapshot.probe.pattern, 1 / experiment.task.n_ctx)
    return changed(snapshot, {"pattern": shares if pattern is None else shares * 0 + pattern})


def check(kind, words, snapshot, variant="Q=K", seed=0):
    """Hold the reason of one run against its kind, or "not" and a kind, and its words."""
    found = reason(snapshot, Variant(variant), seed)
    given = (found and found.kind, found and found.sentence)
    if kind.startswith("not "):
        assert given[0] != kind.removeprefix("not "), given
    else:
        assert given[0] == kind, (kind, words, given)
        assert words in given[1], given
