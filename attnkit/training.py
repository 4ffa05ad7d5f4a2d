"""Train all runs of an experiment at once, and report as they learn.

`Training` is the experiment in progress: it advances by any number of steps and can be looked
at between them. When it is looked at changes no number. `stream` and `train` drive it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from attnkit import metrics
from attnkit.experiment import Experiment
from attnkit.model import Layer, Model, generator_for
from attnkit.results import METRICS, Probe, Result, Snapshot, Status
from attnkit.tasks import Examples

_STEPS_PER_DRAW = 16
"""Batches are drawn so many at a time, which costs less than one by one."""

_PROBE_SEED = 0


class Training:
    """One experiment in progress: step 0 is evaluated on construction.

    Args:
        experiment: what to train.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
    """

    def __init__(self, experiment: Experiment, device: str = "auto") -> None:
        started = time.perf_counter()
        self.experiment = experiment
        self.device = _pick_device(device)
        self.model = Model(experiment, self.device)
        self.step = 0
        self._optimiser = torch.optim.Adam(
            self.model.parameters.values(), lr=experiment.training.learning_rate, fused=True
        )
        self._data = [generator_for(seed, "training data") for seed in experiment.seeds]
        self._drawn: list[tuple[Tensor, Tensor]] = []
        n_eval = experiment.training.n_eval
        self._held_out = self._stack(
            [
                experiment.task.draw(n_eval, generator_for(seed, "evaluation"), held_out=True)
                for seed in experiment.seeds
            ]
        )
        probe = experiment.task.draw(1, generator_for(_PROBE_SEED, "probe"), held_out=True)
        self._probe = self._stack([probe] * experiment.n_seeds)
        self._evaluations: list[tuple[int, dict[str, np.ndarray]]] = []
        self._head_symmetry = np.empty(0, np.float32)
        self._diverged_at = np.full(experiment.n_runs, -1, np.int64)
        self._evaluate()
        self.seconds = time.perf_counter() - started

    @property
    def finished(self) -> bool:
        """Whether the last step has been taken."""
        return self.step >= self.experiment.training.steps

    def advance(self, n_steps: int) -> None:
        """Take up to so many optimiser steps, evaluating on the experiment's cadence."""
        started = time.perf_counter()
        training = self.experiment.training
        for _ in range(min(n_steps, training.steps - self.step)):
            self._train_step()
            self.step += 1
            if self.step % training.evaluate_every == 0 or self.finished:
                self._evaluate()
        self.seconds += time.perf_counter() - started

    def snapshot(self, status: Status | None = None) -> Snapshot:
        """What can be drawn now. A status is derived from the step unless given."""
        return Snapshot(
            experiment=self.experiment,
            status=status or ("finished" if self.finished else "running"),
            step=self.step,
            seconds=self.seconds,
            eval_steps=np.array([step for step, _ in self._evaluations], np.int64),
            history={
                name: np.stack([row[name] for _, row in self._evaluations]) for name in METRICS
            },
            head_symmetry=self._head_symmetry,
            diverged_at=self._diverged_at.copy(),
            probe=self._answer_probe(),
        )

    def result(self) -> Result:
        """The tables and the weights as they are now; "stopped" before the last step."""
        order = self.model.to_experiment_order.tolist()
        parameters = [
            {name: value.detach().cpu().numpy().copy() for name, value in own.items()}
            for own in (self.model.run_parameters(run) for run in order)
        ]
        return Result(self.snapshot("finished" if self.finished else "stopped"), parameters)

    def _train_step(self) -> None:
        if not self._drawn:
            self._draw()
        tokens, labels = self._drawn.pop()
        loss = self._losses(self.model.logits(tokens), labels).sum()
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self._optimiser.step()

    def _draw(self) -> None:
        n_batch = self.experiment.training.batch_size
        drawn = self._stack(
            [
                self.experiment.task.draw(n_batch * _STEPS_PER_DRAW, generator, held_out=False)
                for generator in self._data
            ]
        )
        batches = zip(drawn.tokens.split(n_batch, 1), drawn.labels.split(n_batch, 1), strict=True)
        self._drawn = [(tokens.contiguous(), labels) for tokens, labels in batches][::-1]

    def _losses(self, logits: Tensor, labels: Tensor) -> Float[Tensor, " r"]:
        """Mean cross-entropy of each run; labels are (s, b, a)."""
        by_run = self._for_runs(labels)
        each = F.cross_entropy(logits.flatten(0, 2), by_run.flatten(), reduction="none")
        return each.view(len(by_run), -1).mean(1)

    def _for_runs(self, by_seed: Tensor) -> Tensor:
        """Repeat what belongs to seeds for the runs, in cohort order."""
        n_sharings = len(self.model.sharings)
        return by_seed.expand(n_sharings, *by_seed.shape).flatten(0, 1)

    @torch.no_grad()
    def _evaluate(self) -> None:
        examples, layers = self._held_out, list[Layer]()
        logits = self.model.logits(examples.tokens, layers)
        symmetry = torch.stack(
            [metrics.score_symmetry(layer.scores).double().mean(1) for layer in layers], 1
        )  # (r, l, h)
        measured = {
            "accuracy": metrics.accuracy(logits, self._for_runs(examples.labels)),
            "loss": self._losses(logits, examples.labels),
            "score_symmetry": symmetry.mean((1, 2)),
            "symmetry_error": torch.stack(
                [metrics.symmetry_error(layer.scores) for layer in layers]
            ).amax(0),
            "weight_symmetry": self._weight_symmetry(),
            "mass_on_target": self._mass(layers, examples.target),
            "mass_on_reverse": self._mass(layers, examples.reverse),
        }
        order = self.model.to_experiment_order
        lost = ~torch.isfinite(measured["loss"][order]).cpu().numpy()
        self._diverged_at[lost & (self._diverged_at < 0)] = self.step
        gone = self._diverged_at >= 0
        row = {name: values[order].float().cpu().numpy() for name, values in measured.items()}
        for values in row.values():
            values[gone] = np.nan
        self._head_symmetry = symmetry[order].float().cpu().numpy()
        self._evaluations.append((self.step, row))

    def _mass(self, layers: list[Layer], position: Tensor | None) -> Tensor:
        """Mean over layers of the attention at a position; NaN where the task has none."""
        if position is None:
            return torch.full((self.model.n_runs,), torch.nan, device=self.device)
        by_run = self._for_runs(position)
        return torch.stack([metrics.mass_at(layer.pattern, by_run) for layer in layers]).mean(0)

    def _weight_symmetry(self) -> Tensor:
        heads = (self.experiment.size.n_heads, self.experiment.size.d_head)
        per_layer = []
        for layer in range(self.experiment.size.n_layers):
            q, k = (self.model.role_weights(layer, role) for role in ("Q", "K"))
            q, k = (w.unflatten(-1, heads).transpose(1, 2) for w in (q, k))
            per_layer.append(metrics.weight_symmetry(q, k).mean(1))
        return torch.stack(per_layer).mean(0)

    @torch.no_grad()
    def _answer_probe(self) -> Probe:
        layers = list[Layer]()
        logits = self.model.logits(self._probe.tokens, layers)[:, 0]
        order = self.model.to_experiment_order
        pattern = torch.stack([layer.pattern[:, 0] for layer in layers], 1)[order]
        target, reverse = self._probe.target[0, 0].cpu().numpy(), self._probe.reverse
        return Probe(
            tokens=self._probe.tokens[0, 0].cpu().numpy(),
            labels=self._probe.labels[0, 0].cpu().numpy(),
            target=target,
            reverse=np.full_like(target, -1) if reverse is None else reverse[0, 0].cpu().numpy(),
            answers=logits.argmax(-1)[order].cpu().numpy(),
            pattern=pattern.cpu().numpy(),
        )

    def _stack(self, per_seed: list[Examples]) -> Examples:
        """One batch per seed as one, (s, b, …), on the device."""
        reverses = [examples.reverse for examples in per_seed if examples.reverse is not None]
        return Examples(
            torch.stack([examples.tokens for examples in per_seed]).to(self.device),
            torch.stack([examples.labels for examples in per_seed]).to(self.device),
            torch.stack([examples.target for examples in per_seed]).to(self.device),
            torch.stack(reverses).to(self.device) if reverses else None,
        )


def stream(experiment: Experiment, device: str = "auto") -> Iterator[Snapshot]:
    """Train an experiment and yield snapshots, densely at first.

    They come at steps 0, 1, 2, 4, 8, … until that gap exceeds a fortieth of the steps, then
    evenly; the last one is finished.
    """
    training = Training(experiment, device)
    yield training.snapshot()
    widest = max(experiment.training.steps // 40, 1)
    while not training.finished:
        training.advance(min(max(training.step, 1), widest))
        yield training.snapshot()


def train(
    experiment: Experiment,
    device: str = "auto",
    progress: Callable[[Training], None] | None = None,
) -> Result:
    """Train an experiment to its last step.

    Args:
        experiment: what to train.
        device: "cpu", "cuda", or "auto".
        progress: called after every evaluation with the training, which it may only look at.
            A `KeyboardInterrupt` during training ends it early: the result is then what was
            reached, with status "stopped".
    """
    training = Training(experiment, device)
    try:
        while not training.finished:
            training.advance(experiment.training.evaluate_every)
            if progress is not None:
                progress(training)
    except KeyboardInterrupt:
        pass
    return training.result()


def _pick_device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)
