"""Cohorts: groups of runs of an experiment that train as one batched computation.

A cohort does not depend on the other cohorts. It is trained by one thread at a time, gives the
same bits whatever runs beside it, and keeps its own evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.experiment.layer_specs import LayerSpec
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.model.adam import Adam
from attnkit.model.model import Model
from attnkit.model.parameters import EMBEDDING
from attnkit.model.reference import Layer
from attnkit.tasks import Examples, Task
from attnkit.training import metrics
from attnkit.training.data import TrainingData, held_out_examples, stack, unstack
from attnkit.training.engine import Engine, kernel_knows
from attnkit.training.snapshot import METRICS
from attnkit.variants import Variant
from attnkit.variants.sharing import ROLES
from attnkit.variants.size import ALIGNED
from attnkit.variants.tying import kept_role


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


_LayerOfRuns: TypeAlias = list[tuple[slice, Layer]]
"""One attention layer of all runs, recorded for each slice of runs with equal shapes."""


class Cohort:
    """Group of runs that train as one; step 0 is evaluated on construction.

    Args:
        experiment: The experiment to train.
        seeds: Seeds of the experiment that this cohort trains.
        device: The device that trains.
        sharing: Variants of the experiment that this cohort trains. None: all.
        engine: Engine to train with. "kernel" requires that the kernel can train all variants;
            otherwise torch trains them.
        attention_curves: Whether every evaluation measures attention. If not, only the last one
            does, and these metrics are NaN in the others.

    Attributes:
        step: Optimiser steps taken.
        evaluations: All evaluations so far; the first one is that of step 0.
        diverged_at: Step (r,) of the evaluation that found a run's loss not finite; else −1.
    """

    def __init__(
        self,
        experiment: Experiment,
        seeds: Sequence[int],
        device: torch.device,
        sharing: Sequence[Variant] | None = None,
        engine: Engine = "torch",
        *,
        attention_curves: bool = True,
    ) -> None:
        self.experiment = experiment
        self.engine = engine
        self._attention_curves = attention_curves
        self.sharing = experiment.sharing if sharing is None else tuple(sharing)
        self.seeds = list(seeds)
        self.device = device
        self._on_kernel = engine == "kernel" and all(
            kernel_knows(experiment, variant) for variant in self.sharing
        )
        self._frozen = False
        self.model = self._make_model()
        self.step = 0
        self.evaluations: list[Evaluation] = []
        self.diverged_at = np.full(self.model.n_runs, -1, np.int64)
        self._n_heads = experiment.n_heads
        self._optimiser = self._make_optimiser()
        self._tie_steps = {v: experiment.tie_step(v) for v in self.sharing if len(v.stages) > 1}
        self._set_task(experiment.task_at(0))
        self._tie_due_variants()
        self._evaluate()

    @property
    def runs(self) -> list[tuple[Variant, int]]:
        """Variant and seed of every run, in the order of the runs in all arrays."""
        return [(variant, seed) for variant in self.sharing for seed in self.seeds]

    def advance(self, n_steps: int) -> None:
        """Take `n_steps` optimiser steps; evaluate every `evaluate_every` steps and at the end."""
        training = self.experiment.training
        for _ in range(n_steps):
            self._train_step()
            self.step += 1
            self._start_main_task_if_due()
            self._tie_due_variants()
            if self.step % training.evaluate_every == 0 or self.step == training.steps:
                self._evaluate()

    def answer(
        self, examples: Examples
    ) -> tuple[
        Int64[np.ndarray, "r b a"],
        Float32[np.ndarray, "r b l h i j"],
        Float32[np.ndarray, "r b l h i j"],
    ]:
        """Return the answers, the attention patterns and the scores of every run on a batch.

        Scores are scaled, before masks and softmax; where a head has several maps, they are the
        mean of the maps. Pairs of positions that a layer does not compare have weight 0 and score
        NaN.
        """
        n_examples = len(examples.tokens)
        repeated = examples.take(torch.arange(n_examples + -n_examples % ALIGNED) % n_examples)
        same_for_all = stack([repeated] * len(self.seeds), self.device)
        logits, layers = self._answer_and_record(same_for_all.tokens)
        answers = logits.argmax(-1)
        pattern = self._by_head(lambda layer, spec: self._full_size(layer.pattern, spec), layers)
        scores = self._by_head(
            lambda layer, spec: self._full_size(_mean_scores(layer), spec, torch.nan), layers
        )
        pattern, scores = pattern.movedim(3, 1), scores.movedim(3, 1)  # (r, b, l, h, i, j)
        return (
            _as_numpy(answers)[:, :n_examples],
            _as_numpy(pattern)[:, :n_examples],
            _as_numpy(scores)[:, :n_examples],
        )

    def parameters(self, seed: int | None = None) -> list[dict[str, np.ndarray]]:
        """Return a copy of the parameters of each run, by name; tied parameters are absent.

        Args:
            seed: Seed of the runs to copy. None: all runs.
        """
        return [
            {
                name: value.cpu().numpy().copy()
                for name, value in self.model.run_parameters(run).items()
            }
            for run, (_, run_seed) in enumerate(self.runs)
            if seed in (None, run_seed)
        ]

    def _train_step(self) -> None:
        training = self.experiment.training
        tokens, labels = self._data.next()
        self.model.differentiate(tokens, labels)
        if training.clip:
            self.model.clip(training.clip)
        self._optimiser.step(training.learning_rate_factor(self.step))

    def _set_task(self, task: Task) -> None:
        """Train and evaluate on a task from this step on."""
        self._data = TrainingData(self.experiment, self.seeds, self.device, task)
        self._held_out = held_out_examples(self.experiment, self.seeds, self.device, task)
        self._trained_on = self._data.evaluation_examples()

    def _start_main_task_if_due(self) -> None:
        """After the earlier task, freeze the embedding and draw all other parameters anew."""
        if self.step != self.experiment.training.earlier_steps:
            return
        old, self._frozen = self.model, True
        self.model = self._make_model({v for v, due in self._tie_steps.items() if due < self.step})
        for run in range(self.model.n_runs):
            self.model.run_parameters(run)[EMBEDDING].copy_(old.run_parameters(run)[EMBEDDING])
        self._optimiser = self._make_optimiser()
        self._set_task(self.experiment.task)

    def _make_model(self, tied: Collection[Variant] = ()) -> Model:
        model_class: type[Model] = Model
        if self._on_kernel:
            from attnkit.model.kernel.model import KernelModel

            model_class = KernelModel
        return model_class(
            self.experiment,
            self.seeds,
            self.device,
            sharing=self.sharing,
            tied=tied,
            embedding_frozen=self._frozen,
        )

    def _make_optimiser(self) -> Adam:
        rates = [
            (self.model.block(run), self._learning_rate(variant))
            for run, (variant, _) in enumerate(self.runs)
        ]
        if len({rate for _, rate in rates}) == 1:
            rates = [(slice(None), rates[0][1])]
        adam_class: type[Adam] = Adam
        if self._on_kernel:
            from attnkit.model.kernel.model import KernelAdam

            adam_class = KernelAdam
        return adam_class(self.model.numbers, self.model.gradient, rates)

    def _learning_rate(self, variant: Variant) -> float:
        option = variant.given.get("learning_rate")
        return self.experiment.training.learning_rate if option is None else float(option.value)

    def _tie_due_variants(self) -> None:
        """Tie the variants that are due at this step, with parameters made from the untied ones."""
        if self.step not in self._tie_steps.values():
            return
        old, optimiser = self.model, self._optimiser
        tied = {variant for variant, due in self._tie_steps.items() if due <= self.step}
        self.model = self._make_model(tied)
        self._optimiser = self._make_optimiser()
        optimiser.copy_step_to(self._optimiser)
        vectors = (
            (old.numbers, self.model.numbers),
            (optimiser.mean, self._optimiser.mean),
            (optimiser.square, self._optimiser.square),
        )
        for run, (variant, _) in enumerate(self.runs):
            for source, target in vectors:
                new = self.model.run_parameters(run, target)
                for name, value in tie(variant, old.run_parameters(run, source), new):
                    new[name].copy_(value)

    def _for_runs(self, by_seed: Tensor) -> Tensor:
        """Repeat the values of the seeds for every variant, so that each run has its own."""
        return by_seed.expand(len(self.model.variants), *by_seed.shape).flatten(0, 1)

    def _evaluate(self) -> None:
        examples = self._held_out
        first, *others = examples.tokens.split(MEASURED_TOGETHER, 1)
        logits, layers = self._answer_and_record(first)  # attention on the first examples only
        logits = torch.cat([logits, *map(self.model.logits, others)], 1)
        labels = self._for_runs(examples.labels)
        measured = {
            "accuracy": metrics.accuracy(logits, labels),
            "training_accuracy": self._training_accuracy(),
            "loss": metrics.loss(logits, labels),
        }
        if self._attention_curves or self.step == self.experiment.training.steps:
            symmetry = self._by_head(_head_symmetry, layers)  # (r, l, h)
            measured |= self._attention_metrics(layers, symmetry)
        else:
            n_layers = len(self.model.layer_specs)
            symmetry = torch.full((self.model.n_runs, n_layers, self._n_heads), torch.nan)
        undefined = torch.full((self.model.n_runs,), torch.nan)
        row = {name: _as_numpy(measured.get(name, undefined)) for name in METRICS}
        self.diverged_at[~np.isfinite(row["loss"]) & (self.diverged_at < 0)] = self.step
        head_symmetry = _as_numpy(symmetry)
        slice_accuracy = _as_numpy(self._slice_accuracy(logits, labels))
        for values in (*row.values(), head_symmetry, slice_accuracy):
            values[self.diverged_at >= 0] = np.nan
        self.evaluations.append(Evaluation(self.step, row, head_symmetry, slice_accuracy))

    def _attention_metrics(
        self, layers: list[_LayerOfRuns], symmetry: Float[Tensor, "r l h"]
    ) -> dict[str, Tensor]:
        """Return the metrics of scores, patterns and weights, (r,) by name."""
        errors = self._by_layer(_symmetry_error, layers)
        return {
            "score_symmetry": symmetry.nanmean((1, 2)),
            "symmetry_error": errors.nan_to_num(0.0).amax(1),
            "weight_symmetry": self._weight_symmetry(),
            "mass_on_target": self._attention_mass(layers, self._held_out.target),
            "mass_on_reverse": self._attention_mass(layers, self._held_out.reverse),
        }

    def _slice_accuracy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the accuracy on each group of answers, (r, slices); NaN on an earlier task."""
        task = self.experiment.task_at(self.step)
        n_slices = len(self.experiment.task.slice_names)
        if not n_slices or task != self.experiment.task:
            return torch.full((len(logits), n_slices), torch.nan, device=self.device)
        per_seed = unstack(self._held_out.to("cpu"))
        slices = torch.stack([task.slices(examples) for examples in per_seed]).to(self.device)
        return metrics.slice_accuracy(logits, labels, self._for_runs(slices), n_slices)

    def _training_accuracy(self) -> Tensor:
        """Return the accuracy on training examples; NaN if all training examples are new."""
        examples = self._trained_on
        if examples is None:
            return torch.full((self.model.n_runs,), torch.nan, device=self.device)
        return metrics.accuracy(self.model.logits(examples.tokens), self._for_runs(examples.labels))

    def _attention_mass(self, layers: list[_LayerOfRuns], position: Tensor | None) -> Tensor:
        """Return the mean over layers of the attention at a position; NaN if there is none.

        In an encoder and a decoder only cross-attention counts.
        """
        undefined = torch.full((self.model.n_runs,), torch.nan, device=self.device)
        if position is None:
            return undefined
        by_run = self._for_runs(position[:, :MEASURED_TOGETHER])

        def mass(layer: Layer, spec: LayerSpec, runs: slice) -> Tensor:
            if spec.kind not in ("layer", "cross"):
                return undefined[runs]
            return metrics.mass_at(layer.pattern, by_run[runs])

        return self._by_layer(mass, layers).nanmean(1)

    def _full_size(
        self, values: Float[Tensor, "r b h i j"], spec: LayerSpec, fill: float = 0.0
    ) -> Float[Tensor, "r h b n n"]:
        """Return a layer's values for all pairs of positions, with the heads before the batch.

        Args:
            fill: The value for pairs of positions that the layer does not compare.
        """
        by_head, n_ctx = values.transpose(1, 2), self.experiment.task.n_ctx
        if by_head.shape[-2:] == (n_ctx, n_ctx):
            return by_head
        full = by_head.new_full((*by_head.shape[:3], n_ctx, n_ctx), fill)
        full[..., slice(*spec.query_positions), slice(*spec.key_positions)] = by_head
        return full

    def _answer_and_record(
        self, tokens: Int64[Tensor, "s b n fields"]
    ) -> tuple[Float[Tensor, "r b a c"], list[_LayerOfRuns]]:
        """Return the logits of all runs, and the scores and patterns of every attention layer.

        Neighbouring variants whose layers have equal shapes are measured together, because small
        calls take longer than their arithmetic.
        """
        n_layers, n_seeds, recorded = len(self.model.layer_specs), len(self.seeds), list[Layer]()
        logits = self.model.logits(tokens, recorded)
        layers = []
        for index in range(n_layers):
            groups: _LayerOfRuns = []
            n_done = 0
            for _, group in groupby(recorded[index::n_layers], _shapes):
                members = list(group)
                runs = slice(n_done, n_done + n_seeds * len(members))
                scores, pattern = [x.scores for x in members], [x.pattern for x in members]
                groups.append((runs, Layer(torch.cat(scores), torch.cat(pattern))))
                n_done = runs.stop
            layers.append(groups)
        return logits, layers

    def _by_layer(
        self, measure: Callable[[Layer, LayerSpec, slice], Tensor], layers: list[_LayerOfRuns]
    ) -> Tensor:
        """Return a measurement of every attention layer of every run, (r, l, …)."""
        per_layer = [
            torch.cat([measure(layer, spec, runs) for runs, layer in groups])
            for spec, groups in zip(self.model.layer_specs, layers, strict=True)
        ]
        return torch.stack(per_layer, 1)

    def _by_head(
        self, measure: Callable[[Layer, LayerSpec], Tensor], layers: list[_LayerOfRuns]
    ) -> Tensor:
        """Return a measurement of every head, (r, l, h, …); NaN for heads that a variant lacks."""
        n_heads = self._n_heads

        def padded(layer: Layer, spec: LayerSpec, _: slice) -> Tensor:
            measured = measure(layer, spec)
            if measured.shape[1] == n_heads:
                return measured
            all_heads = measured.new_full((len(measured), n_heads, *measured.shape[2:]), torch.nan)
            all_heads[:, : measured.shape[1]] = measured
            return all_heads

        return self._by_layer(padded, layers)

    def _weight_symmetry(self) -> Tensor:
        per_layer = []
        for layer in range(len(self.model.layer_specs)):
            w_q, w_k = (self.model.role_weights(layer, role) for role in ROLES[:2])
            measured = []
            for _, group in groupby(zip(w_q, w_k, strict=True), lambda pair: pair[0].shape):
                q, k = map(torch.cat, zip(*group, strict=True))
                # Aligned widths, and a mean of each row, round a run the same in every cohort.
                padding = (0, -q.shape[-1] % ALIGNED)
                by_head = metrics.weight_symmetry(F.pad(q, padding), F.pad(k, padding))
                measured.append(by_head.mean(1))
            per_layer.append(torch.cat(measured))
        return torch.stack(per_layer, 1).mean(1)


def tie(
    variant: Variant, old: dict[str, Tensor], new: dict[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters of a run after variants were tied; it may be a run of another variant.

    Args:
        variant: The variant of the run.
        old: Parameters of the run before, by name.
        new: Parameters of the run after; only their names are used.
    """
    before, after = variant.stages[0].sharing, variant.stages[-1].sharing
    for name in new:
        has_role = name[-4:-1] in (".W_", ".b_") and name[-1] in ROLES
        if old.keys() == new.keys() or not has_role:
            yield name, old[name]
            continue
        tied_roles = next(roles for roles in after.classes if roles[0] == name[-1])
        source_role = kept_role(variant, tied_roles)
        source_roles = tied_roles if source_role is None else (source_role,)
        owners = dict.fromkeys(before.owner(role) for role in source_roles)
        yield name, torch.stack([old[name[:-1] + owner] for owner in owners]).mean(0)


def _shapes(layer: Layer) -> tuple[torch.Size, torch.Size]:
    return layer.scores.shape, layer.pattern.shape


def _as_numpy(by_run: Tensor) -> np.ndarray:
    """Return a tensor as an array, with floats as float32."""
    array: np.ndarray = (by_run.float() if by_run.is_floating_point() else by_run).cpu().numpy()
    return array


def _mean_scores(layer: Layer) -> Tensor:
    """Return the scores of every head, (r, b, h, i, j): the mean over the head's maps."""
    n_heads = layer.pattern.shape[2]
    if layer.scores.shape[2] == n_heads:
        return layer.scores
    maps: Tensor = layer.scores.unflatten(2, (n_heads, -1))
    return maps.mean(3)


def _symmetry_error(layer: Layer, spec: LayerSpec, _: slice) -> Tensor:
    """Return the symmetry error of each run, (r,); NaN where attention is not square."""
    if spec.square:
        return metrics.symmetry_error(layer.scores)
    return layer.scores.new_full((len(layer.scores),), torch.nan)


def _head_symmetry(layer: Layer, spec: LayerSpec) -> Tensor:
    """Return the score symmetry of each head, (r, h); NaN where attention is not square."""
    if not spec.square:
        shape = (len(layer.pattern), layer.pattern.shape[2])
        return layer.pattern.new_full(shape, torch.nan, dtype=torch.double)
    symmetry = metrics.score_symmetry(layer.scores).double().mean(1)
    n_maps = symmetry.shape[1] // layer.pattern.shape[2]
    return symmetry if n_maps == 1 else symmetry.unflatten(1, (-1, n_maps)).mean(2)
