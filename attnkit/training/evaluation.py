"""Evaluation: measurements of a cohort's runs on held-out examples, and their answers.

An `Evaluator` has the examples. At an evaluation, the model answers them, a `Recording` keeps its
logits, scores and patterns, and every metric of `attnkit.training.metrics` is computed from it.
Evaluations change no weights.

Index letters as in `attnkit.model.reference`, with `r` run, and `l` layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.experiment.experiment import longer_experiment
from attnkit.experiment.layer_specs import LayerSpec
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.model.model import Model, RunGroup
from attnkit.model.reference import Layer
from attnkit.tasks import Examples, Task
from attnkit.training import metrics
from attnkit.training.data import held_out_examples, of_seeds, stack, unstack
from attnkit.training.metrics import METRICS, AttentionMetric
from attnkit.training.plans import MORE_ON_A_GPU, runs_recorded_together
from attnkit.variants.size import ALIGNED

RunAnswers: TypeAlias = tuple[
    Int64[np.ndarray, "r b a"],
    Float32[np.ndarray, "r b l h i j"],
    Float32[np.ndarray, "r b l h i j"],
]
"""Answers, attention patterns and scores of every run on a batch."""

Others: TypeAlias = dict[str, tuple[Model, Examples]]
"""Examples of every seed that are not the held-out ones, with the model that answers them."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Measurements of a cohort's runs on the held-out examples at one step.

    Attributes:
        step: Optimiser steps taken.
        metrics: Metrics (r,) by name.
        head_symmetry: Score symmetry (r, l, h); NaN for heads that a variant lacks and in layers
            whose query positions are not their key positions.
        slice_accuracy: Accuracy (r, slices) on each of the task's groups of answers.
    """

    step: int
    metrics: dict[str, Float32[np.ndarray, " r"]]
    head_symmetry: Float32[np.ndarray, "r l h"]
    slice_accuracy: Float32[np.ndarray, "r slices"]

    def clear(self, runs: Bool[np.ndarray, " r"]) -> None:
        """Replace all measurements of these runs by NaN."""
        for values in (*self.metrics.values(), self.head_symmetry, self.slice_accuracy):
            values[runs] = np.nan


class Evaluator:
    """Evaluation of a cohort's runs while they are trained on one task.

    Args:
        experiment: The experiment to which the runs belong.
        seeds: Seeds of the cohort.
        device: The device that evaluates.
        task: The task that is trained now.
        trained_on: Training examples to measure training accuracy on; None if all are new.

    Attributes:
        held_out: Held-out examples of every seed, (s, b, …).
        trained_on: Training examples of every seed, or None.
    """

    def __init__(
        self,
        experiment: Experiment,
        seeds: Sequence[int],
        device: torch.device,
        task: Task,
        trained_on: Examples | None,
    ) -> None:
        self.held_out = held_out_examples(experiment, seeds, device, task)
        self.trained_on = trained_on
        longer = longer_experiment(experiment)
        self._longer = longer and (longer.task, held_out_examples(longer, seeds, device))
        self._experiment, self._n_heads, self._task = experiment, experiment.n_heads, task
        self._is_final = task == experiment.task
        self._n_slices = len(experiment.task.slice_names)
        together = min(runs_recorded_together(e) for e in (experiment, longer) if e)
        self._n_together = together if device.type == "cpu" else MORE_ON_A_GPU * together

    def evaluate(self, model: Model, step: int, *, attention: bool = True) -> Evaluation:
        """Return the measurements of every run.

        Args:
            model: Model of the cohort.
            step: Optimiser steps taken.
            attention: Whether attention is measured; otherwise its metrics are NaN.
        """
        # Small calls take longer than their arithmetic, and large groups of runs much memory.
        groups = model.run_groups(self._n_together)
        others = {"training": (model, self.trained_on)} if self.trained_on else {}
        if self._longer:
            others["longer"] = model.at_length(self._longer[0]), self._longer[1]
        measured = [self._measure(model, group, others, attention=attention) for group in groups]
        by_name, symmetries, slices = zip(*measured, strict=True)
        return Evaluation(
            step,
            {name: np.concatenate([values[name] for values in by_name]) for name in METRICS},
            np.concatenate(symmetries),
            np.concatenate(slices),
        )

    def _measure(
        self, model: Model, group: RunGroup, others: Others, *, attention: bool
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Return the metrics, the head symmetry and the slice accuracy of a group of runs."""
        recording = Recording(model, group, self._n_heads, self.held_out, others)
        no_symmetry = recording.nan(len(model.layer_specs), self._n_heads)
        by_name = dict.fromkeys(METRICS, recording.nan())
        for name, metric in METRICS.items():
            if attention or not isinstance(metric, AttentionMetric):
                by_name[name] = metric.measure(recording)
                if by_name[name].shape != (group.n_runs,):
                    shape = tuple(by_name[name].shape)
                    raise ValueError(f"{name}: got shape {shape}, expected ({group.n_runs},)")
        return (
            {name: _as_numpy(values) for name, values in by_name.items()},
            _as_numpy(recording.head_symmetry if attention else no_symmetry),
            _as_numpy(self._slice_accuracy(recording)),
        )

    def _slice_accuracy(self, recording: Recording) -> Float[Tensor, "r slices"]:
        """Return the accuracy on each group of answers; NaN on an earlier task."""
        if not self._n_slices or not self._is_final:
            return recording.nan(self._n_slices)
        per_seed = unstack(recording.held_out.to("cpu"))
        slices = torch.stack([self._task.slices(examples) for examples in per_seed])
        of_runs = recording.for_runs(slices.to(recording.logits.device))
        return metrics.slice_accuracy(recording.logits, recording.labels, of_runs, self._n_slices)

    def answer(self, model: Model, examples: Examples) -> RunAnswers:
        """Return the answers, the attention patterns and the scores of every run on a batch.

        Scores are scaled, before masks and softmax; where a head has several maps, they are the
        mean of the maps. Pairs of positions that a layer does not compare have weight 0 and score
        NaN.
        """
        n_examples, n_ctx = len(examples.tokens), model.task.n_ctx
        # Batches of a multiple of ALIGNED examples round a run the same in every cohort.
        repeated = examples.take(torch.arange(n_examples + -n_examples % ALIGNED) % n_examples)
        same_for_all = stack([repeated] * len(model.seeds), len(model.seeds), model.device).tokens

        def answers_of(group: RunGroup) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            logits, layers = record(model, same_for_all[group.seeds], group)

            def by_example(values: Callable[[Layer], Tensor], fill: float) -> Tensor:
                by_head = layers.by_head(
                    lambda layer, spec: _full_size(
                        values(layer)[:, :n_examples], spec, n_ctx, fill
                    ),
                    self._n_heads,
                )  # (r, l, h, b, i, j)
                return by_head.movedim(3, 1)

            patterns = by_example(lambda layer: layer.pattern, 0.0)
            scores = by_example(mean_scores, torch.nan)
            answers = logits[:, :n_examples].argmax(-1)
            return _as_numpy(answers), _as_numpy(patterns), _as_numpy(scores)

        n_together = runs_recorded_together(self._experiment, len(repeated.tokens))
        of_groups = [answers_of(group) for group in model.run_groups(n_together)]
        answers, patterns, scores = (np.concatenate(a) for a in zip(*of_groups, strict=True))
        return answers, patterns, scores


class Recording:
    """Logits and attention of some runs on the held-out examples, from which metrics are computed.

    Args:
        model: Model of the cohort.
        group: The runs.
        n_heads: Largest number of heads of the experiment's variants.
        held_out: Held-out examples of every seed.
        others: Other examples by name, see `accuracy_on`.

    Attributes:
        held_out: Held-out examples of every seed of these runs.
        logits: Logits (r, b, a, c).
        labels: Right classes (r, b, a).
        layers: Scores and patterns of all attention layers, on the first examples only.
    """

    def __init__(
        self,
        model: Model,
        group: RunGroup,
        n_heads: int,
        held_out: Examples,
        others: Others,
    ) -> None:
        self._model, self._group, self._n_heads, self._others = model, group, n_heads, others
        self.held_out: Examples = of_seeds(held_out, group.seeds)
        first, *rest = self.held_out.tokens.split(MEASURED_TOGETHER, 1)
        logits, layers = record(model, first, group)
        self.layers: RecordedLayers = layers
        further = (model.logits(tokens, group=group) for tokens in rest)
        self.logits: Tensor = torch.cat([logits, *further], 1) if rest else logits
        self.labels: Tensor = self.for_runs(self.held_out.labels)

    def nan(self, *shape: int) -> Tensor:
        """Return NaN for every run, (r, *shape)."""
        return torch.full((self._group.n_runs, *shape), torch.nan, device=self._model.device)

    def for_runs(self, by_seed: Tensor) -> Tensor:
        """Repeat the values of the seeds for every variant, so that each run has its own."""
        return by_seed.expand(len(self._group.variants), *by_seed.shape).flatten(0, 1)

    def accuracy_on(self, name: str) -> Float[Tensor, " r"]:
        """Return the accuracy on "training" or "longer" examples; NaN if there are none."""
        if name not in self._others:
            return self.nan()
        model, examples = self._others[name]
        examples = of_seeds(examples, self._group.seeds)
        logits = model.logits(examples.tokens, group=self._group)
        return metrics.accuracy(logits, self.for_runs(examples.labels))

    @cached_property
    def head_symmetry(self) -> Float[Tensor, "r l h"]:
        """Score symmetry of every head; NaN for heads that a variant lacks, and if not square."""
        return self.layers.by_head(_head_symmetry, self._n_heads)

    def of_square_layers(self, measure: Callable[[Tensor], Tensor]) -> Float[Tensor, "r l"]:
        """Return a measurement of the scores of every layer; NaN where attention is not square."""

        def measured(layer: Layer, spec: LayerSpec, runs: slice) -> Tensor:
            return measure(layer.scores) if spec.square else self.nan()[runs]

        return self.layers.by_layer(measured)

    def mass_on(self, position: Int64[Tensor, "s b a"] | None) -> Float[Tensor, " r"]:
        """Return the mean over layers of the attention at a position; NaN if there is none.

        In an encoder and a decoder only cross-attention counts.
        """
        if position is None:
            return self.nan()
        by_run = self.for_runs(position[:, :MEASURED_TOGETHER])

        def mass(layer: Layer, spec: LayerSpec, runs: slice) -> Tensor:
            if spec.kind not in ("layer", "cross"):
                return self.nan()[runs]
            return metrics.mass_at(layer.pattern, by_run[runs])

        return self.layers.by_layer(mass).nanmean(1)

    def weight_symmetry(self) -> Float[Tensor, " r"]:
        """Return the symmetry of W_Q W_Kᵀ, the mean over heads, then layers."""
        per_layer = []
        for layer in range(len(self._model.layer_specs)):
            w_q, w_k = (self._model.role_weights(layer, role, self._group) for role in ("Q", "K"))
            measured = []
            for _, group in groupby(zip(w_q, w_k, strict=True), lambda pair: pair[0].shape):
                q, k = map(torch.cat, zip(*group, strict=True))
                # Aligned widths, and a mean of each row, round a run the same in every cohort.
                padding = (0, -q.shape[-1] % ALIGNED)
                by_head = metrics.weight_symmetry(F.pad(q, padding), F.pad(k, padding))
                measured.append(by_head.mean(1))
            per_layer.append(torch.cat(measured))
        return torch.stack(per_layer, 1).mean(1)


@dataclass(frozen=True, eq=False)
class RecordedLayers:
    """Scores and patterns of every attention layer of all runs.

    Attributes:
        specs: Specifications of the layers.
        groups: For every layer, ranges of neighbouring runs whose layers have equal shapes, with
            the layers of these runs. Neighbouring variants of equal shapes are measured together,
            because small calls take longer than their arithmetic.
    """

    specs: Sequence[LayerSpec]
    groups: list[list[tuple[slice, Layer]]]

    def by_layer(self, measure: Callable[[Layer, LayerSpec, slice], Tensor]) -> Tensor:
        """Return a measurement of every attention layer of every run, (r, l, …).

        Args:
            measure: Function of a layer of some runs, its specification, and the range of these
                runs; it returns one value for each of them.
        """
        per_layer = [
            torch.cat([measure(layer, spec, runs) for runs, layer in groups])
            for spec, groups in zip(self.specs, self.groups, strict=True)
        ]
        return torch.stack(per_layer, 1)

    def by_head(self, measure: Callable[[Layer, LayerSpec], Tensor], n_heads: int) -> Tensor:
        """Return a measurement of every head, (r, l, h, …); NaN for heads that a variant lacks."""

        def padded(layer: Layer, spec: LayerSpec, _: slice) -> Tensor:
            measured = measure(layer, spec)
            if measured.shape[1] == n_heads:
                return measured
            all_heads = measured.new_full((len(measured), n_heads, *measured.shape[2:]), torch.nan)
            all_heads[:, : measured.shape[1]] = measured
            return all_heads

        return self.by_layer(padded)


def record(
    model: Model, tokens: Int64[Tensor, "s b n fields"], group: RunGroup
) -> tuple[Float[Tensor, "r b a c"], RecordedLayers]:
    """Return the logits of some runs, and the scores and patterns of every attention layer."""
    n_layers, recorded = len(model.layer_specs), list[Layer]()
    # It records all layers of a variant, then of the next.
    logits = model.logits(tokens, recorded, group)
    layers = []
    for index in range(n_layers):
        groups: list[tuple[slice, Layer]] = []
        n_done = 0
        for _, neighbours in groupby(recorded[index::n_layers], _shapes):
            members = list(neighbours)
            runs = slice(n_done, n_done + group.n_seeds * len(members))
            groups.append((runs, _joined(members)))
            n_done = runs.stop
        layers.append(groups)
    return logits, RecordedLayers(model.layer_specs, layers)


def _joined(layers: Sequence[Layer]) -> Layer:
    """Return the layers of neighbouring variants as one; a single one is copied only if needed."""
    if len(layers) == 1:
        return Layer(layers[0].scores.contiguous(), layers[0].pattern.contiguous())
    return Layer(torch.cat([x.scores for x in layers]), torch.cat([x.pattern for x in layers]))


def _shapes(layer: Layer) -> tuple[torch.Size, torch.Size]:
    return layer.scores.shape, layer.pattern.shape


def _as_numpy(by_run: Tensor) -> np.ndarray:
    """Return a tensor as an array, with floats as float32."""
    array: np.ndarray = (by_run.float() if by_run.is_floating_point() else by_run).cpu().numpy()
    return array


def mean_scores(layer: Layer) -> Float[Tensor, "r b h i j"]:
    """Return the scores of every head: the mean over the head's maps."""
    n_heads = layer.pattern.shape[2]
    if layer.scores.shape[2] == n_heads:
        return layer.scores
    maps: Tensor = layer.scores.unflatten(2, (n_heads, -1))
    return maps.mean(3)


def _head_symmetry(layer: Layer, spec: LayerSpec) -> Float[Tensor, "r h"]:
    """Return the score symmetry of each head; NaN where attention is not square."""
    if not spec.square:
        shape = (len(layer.pattern), layer.pattern.shape[2])
        return layer.pattern.new_full(shape, torch.nan, dtype=torch.double)
    symmetry = metrics.score_symmetry(layer.scores).double().mean(1)
    n_maps = symmetry.shape[1] // layer.pattern.shape[2]
    return symmetry if n_maps == 1 else symmetry.unflatten(1, (-1, n_maps)).mean(2)


def _full_size(
    values: Float[Tensor, "r b h i j"], spec: LayerSpec, n_ctx: int, fill: float
) -> Float[Tensor, "r h b n n"]:
    """Return a layer's values for all pairs of positions, with the heads before the batch.

    Args:
        values: Values of the pairs of positions that the layer compares.
        spec: Specification of the layer.
        n_ctx: Number of positions of the residual stream.
        fill: The value for pairs of positions that the layer does not compare.
    """
    by_head = values.transpose(1, 2)
    if by_head.shape[-2:] == (n_ctx, n_ctx):
        return by_head
    full = by_head.new_full((*by_head.shape[:3], n_ctx, n_ctx), fill)
    full[..., slice(*spec.query_positions), slice(*spec.key_positions)] = by_head
    return full
