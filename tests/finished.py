"""Finished snapshots with the histories that a test wants, made without training."""

import numpy as np
from kinds import tiny

from attnkit.analysis.comparison import LETTERS, ComparedExperiment
from attnkit.training.metrics import METRICS
from attnkit.training.results import Result
from attnkit.training.snapshot import Probe, Snapshot

THREE_SEEDS = [[0.1, 0.2, 0.3], [0.8, 0.4, 0.5], [0.5, 0.6, 1.0]]
"""Three evaluations of three seeds."""


def finished(experiment, accuracy, loss=None, diverged_at=None):
    """A snapshot of an experiment's end.

    Args:
        accuracy: (e, variant, seed), one row per evaluation from step 0 on, evenly spaced.
        loss: the same, if it matters; else 1 − accuracy.
        diverged_at: (variant, seed), if any did.
    """
    accuracy = np.asarray(accuracy, np.float32)
    loss = 1 - accuracy if loss is None else np.asarray(loss, np.float32)
    n_evaluations, n_runs = len(accuracy), experiment.n_runs
    task, n_ctx = experiment.task, experiment.task.n_ctx
    n_answers = n_ctx - task.answers_from
    heads = (n_runs, len(experiment.layer_specs), experiment.n_heads)
    history = {name: np.full((n_evaluations, n_runs), np.nan, np.float32) for name in METRICS}
    history |= {"accuracy": accuracy.reshape(n_evaluations, n_runs)}
    history |= {"loss": loss.reshape(n_evaluations, n_runs)}
    steps = np.linspace(0, experiment.training.steps, n_evaluations).round().astype(np.int64)
    lost = np.full(n_runs, -1) if diverged_at is None else np.ravel(diverged_at)
    return Snapshot(
        experiment=experiment,
        status="finished",
        step=experiment.training.steps,
        seconds=1.5,
        eval_steps=steps,
        history=history,
        head_symmetry=np.zeros(heads, np.float32),
        slice_accuracy=np.zeros((n_runs, len(task.slice_names)), np.float32),
        diverged_at=lost.astype(np.int64),
        probe=Probe(
            tokens=np.zeros((n_ctx, task.n_fields), np.int64),
            labels=np.zeros(n_answers, np.int64),
            target=np.zeros(n_answers, np.int64),
            reverse=np.full(n_answers, -1, np.int64),
            answers=np.zeros((n_runs, n_answers), np.int64),
            pattern=np.zeros((*heads, n_ctx, n_ctx), np.float16),
        ),
    )


def store_finished(store, experiment, level=0.5):
    """Keep an experiment that rose to an accuracy; its hash."""
    shape = (3, len(experiment.sharing), experiment.n_seeds)
    snapshot = finished(experiment, np.linspace(0.1, level, 3)[:, None, None] + np.zeros(shape))
    store.put(*Result(snapshot, [{} for _ in experiment.runs]).to_blobs())
    return experiment.hash


def letters(*snapshots):
    """The snapshots under their letters."""
    named = zip(LETTERS, snapshots, strict=False)
    return [ComparedExperiment(letter, f"name {letter}", one) for letter, one in named]


def one_variant(accuracy, kind="directed", **given):
    """A finished experiment on QKV alone from (e, seed)."""
    accuracy = np.asarray(accuracy, float)
    experiment = tiny(kind, sharing=["QKV"], n_seeds=accuracy.shape[1], **given)
    return finished(experiment, accuracy[:, None])
