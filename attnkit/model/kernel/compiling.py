"""Compilation of all functions of the kernel."""

from __future__ import annotations

import torch

from attnkit.experiment import Experiment
from attnkit.model.kernel.model import KernelAdam, KernelModel


def compile_all() -> None:
    """Call every function of the kernel once: numba compiles it, or loads it from the cache."""
    experiment = Experiment(sharing=["QKV"], n_seeds=1, batch_size=16, clip=1.0)
    model = KernelModel(experiment, [0], torch.device("cpu"))
    task = experiment.task
    tokens = torch.zeros(1, 1, task.n_ctx, task.n_fields, dtype=torch.int64)
    labels = torch.zeros(1, 1, task.n_ctx - task.answers_from, dtype=torch.int64)
    model.differentiate(tokens, labels)
    model.clip(1.0)
    model.logits(tokens, [])
    optimiser = KernelAdam(model.numbers, model.gradient, [(slice(0, len(model.numbers)), 0.1)])
    optimiser.step()
