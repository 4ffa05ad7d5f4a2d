"""A cohort: some runs of an experiment, trained as one batched computation.

A cohort knows nothing of the others. It is trained by one thread at a time, gives the same bits
whatever else runs, and keeps its own evaluations.
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
from attnkit.model.parameters import TABLE
from attnkit.model.reference import Layer
from attnkit.tasks import Examples, Task
from attnkit.training import metrics
from attnkit.training.data import TrainingData, held_out_examples, stack, unstack
from attnkit.training.engine import Engine, kernel_knows
from attnkit.variants import Variant
from attnkit.variants.sharing import ROLES
from attnkit.variants.size import ALIGNED
from attnkit.variants.tying import kept_role


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What was measured on the held-out examples at one step; runs in the experiment's order.

    Attributes:
        metrics: name → (r,). head_symmetry: (r, l, h) score symmetry; NaN where a head is not, or
            where those who ask are not those who are looked at.
        slice_accuracy: (r, slices) accuracy on each of the task's groups of answers.
    """

    step: int
    metrics: dict[str, Float32[np.ndarray, " r"]]
    head_symmetry: Float32[np.ndarray, "r l h"]
    slice_accuracy: Float32[np.ndarray, "r slices"]


_Alike: TypeAlias = list[tuple[slice, Layer]]
"""One place in the model: neighbouring runs whose layers have equal shapes, and those layers."""


class Cohort:
    """Runs that train as one; step 0 is evaluated on construction.

    Args:
        experiment: what to train.
        seeds: which of its seeds are in this cohort.
        sharing: which of its variants are; None: all.
        device: where to train.
        engine: what trains the runs that the kernel knows.

    Attributes:
        evaluations: one per evaluation so far, first at step 0.
        diverged_at: (r,) step of the evaluation that found a run's loss not finite, else −1.
    """

    def __init__(
        self,
        experiment: Experiment,
        seeds: Sequence[int],
        device: torch.device,
        sharing: Sequence[Variant] | None = None,
        engine: Engine = "torch",
    ) -> None:
        self.experiment = experiment
        self.engine = engine
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
        self._tie_at = {v: experiment.tie_step(v) for v in self.sharing if len(v.stages) > 1}
        self._turn_to(experiment.task_at(0))
        self._tie_those_due()
        self._evaluate()

    @property
    def runs(self) -> list[tuple[Variant, int]]:
        """(variant, seed) of every run, in the order of all its arrays."""
        return [(variant, seed) for variant in self.sharing for seed in self.seeds]

    def advance(self, n_steps: int) -> None:
        """Take so many optimiser steps, evaluating on the experiment's cadence and at its end."""
        training = self.experiment.training
        for _ in range(n_steps):
            self._train_step()
            self.step += 1
            self._begin_anew_if_due()
            self._tie_those_due()
            if self.step % training.evaluate_every == 0 or self.step == training.steps:
                self._evaluate()

    def answer(
        self, examples: Examples
    ) -> tuple[
        Int64[np.ndarray, "r b a"],
        Float32[np.ndarray, "r b l h i j"],
        Float32[np.ndarray, "r b l h i j"],
    ]:
        """Return every run's answers to a batch, its attention patterns and its scores.

        Scores are scaled, before masks and softmax. Of several maps of a head they are the mean.
        Where the attention of a layer is not that of all positions to all positions, the other
        weights are 0 and the other scores NaN.
        """
        n_given = len(examples.tokens)
        repeated = examples.take(torch.arange(n_given + -n_given % ALIGNED) % n_given)
        same_for_all = stack([repeated] * len(self.seeds), self.device)
        logits, layers = self._answer_and_record(same_for_all.tokens)
        answers = logits.argmax(-1)
        pattern = self._by_head(lambda layer, place: self._framed(layer.pattern, place), layers)
        scores = self._by_head(
            lambda layer, place: self._framed(_mean_scores(layer), place, torch.nan), layers
        )
        pattern, scores = pattern.movedim(3, 1), scores.movedim(3, 1)  # (r, b, l, h, i, j)
        return (
            _as_numpy(answers)[:, :n_given],
            _as_numpy(pattern)[:, :n_given],
            _as_numpy(scores)[:, :n_given],
        )

    def parameters(self, seed: int | None = None) -> list[dict[str, np.ndarray]]:
        """A copy of each run's own parameters, in the experiment's order.

        Args:
            seed: whose runs; None: those of all.
        """
        return [
            {
                name: value.cpu().numpy().copy()
                for name, value in self.model.run_parameters(run).items()
            }
            for run, (_, own_seed) in enumerate(self.runs)
            if seed in (None, own_seed)
        ]

    def _train_step(self) -> None:
        training = self.experiment.training
        tokens, labels = self._data.next()
        self.model.differentiate(tokens, labels)
        if training.clip:
            self.model.clip(training.clip)
        self._optimiser.step(training.learning_rate_factor(self.step))

    def _turn_to(self, task: Task) -> None:
        """Train and evaluate on a task from now on."""
        self._data = TrainingData(self.experiment, self.seeds, self.device, task)
        self._held_out = held_out_examples(self.experiment, self.seeds, self.device, task)
        self._trained_on = self._data.evaluation_examples()

    def _begin_anew_if_due(self) -> None:
        """After the earlier task: keep the embedding and freeze it, begin with all else."""
        if self.step != self.experiment.training.earlier_steps:
            return
        old, self._frozen = self.model, True
        self.model = self._make_model({v for v, at in self._tie_at.items() if at < self.step})
        for run in range(self.model.n_runs):
            self.model.run_parameters(run)[TABLE].copy_(old.run_parameters(run)[TABLE])
        self._optimiser = self._make_optimiser()
        self._turn_to(self.experiment.task)

    def _make_model(self, tied: Collection[Variant] = ()) -> Model:
        kind: type[Model] = Model
        if self._on_kernel:
            from attnkit.model.kernel.model import KernelModel

            kind = KernelModel
        return kind(
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
        kind: type[Adam] = Adam
        if self._on_kernel:
            from attnkit.model.kernel.model import KernelAdam

            kind = KernelAdam
        return kind(self.model.numbers, self.model.gradient, rates)

    def _learning_rate(self, variant: Variant) -> float:
        own = variant.given.get("learning_rate")
        return self.experiment.training.learning_rate if own is None else float(own.value)

    def _tie_those_due(self) -> None:
        """Tie the variants whose time has come: other parameters, with numbers made of the old."""
        if self.step not in self._tie_at.values():
            return
        old, optimiser = self.model, self._optimiser
        tied = {variant for variant, step in self._tie_at.items() if step <= self.step}
        self.model = self._make_model(tied)
        self._optimiser = self._make_optimiser()
        optimiser.go_on_as(self._optimiser)
        vectors = (
            (old.numbers, self.model.numbers),
            (optimiser.mean, self._optimiser.mean),
            (optimiser.square, self._optimiser.square),
        )
        for run, (variant, _) in enumerate(self.runs):
            for source, target in vectors:
                own = self.model.run_parameters(run, target)
                for name, value in tie(variant, old.run_parameters(run, source), own):
                    own[name].copy_(value)

    def _for_runs(self, by_seed: Tensor) -> Tensor:
        """Repeat what belongs to seeds for all runs."""
        return by_seed.expand(len(self.model.variants), *by_seed.shape).flatten(0, 1)

    def _evaluate(self) -> None:
        examples = self._held_out
        first, *more = examples.tokens.split(MEASURED_TOGETHER, 1)
        logits, layers = self._answer_and_record(first)
        logits = torch.cat([logits, *map(self.model.logits, more)], 1)
        labels = self._for_runs(examples.labels)
        symmetry = self._by_head(_head_symmetry, layers)  # (r, l, h), NaN where a head is not
        errors = self._by_layer(_symmetry_error, layers)
        measured = {
            "accuracy": metrics.accuracy(logits, labels),
            "training_accuracy": self._training_accuracy(),
            "loss": metrics.loss(logits, labels),
            "score_symmetry": symmetry.nanmean((1, 2)),
            "symmetry_error": errors.nan_to_num(0.0).amax(1),
            "weight_symmetry": self._weight_symmetry(),
            "mass_on_target": self._mass(layers, examples.target),
            "mass_on_reverse": self._mass(layers, examples.reverse),
        }  # those of attention on the first examples only
        row = {name: _as_numpy(values) for name, values in measured.items()}
        self.diverged_at[~np.isfinite(row["loss"]) & (self.diverged_at < 0)] = self.step
        head_symmetry = _as_numpy(symmetry)
        slice_accuracy = _as_numpy(self._slice_accuracy(logits, labels))
        for values in (*row.values(), head_symmetry, slice_accuracy):
            values[self.diverged_at >= 0] = np.nan
        self.evaluations.append(Evaluation(self.step, row, head_symmetry, slice_accuracy))

    def _slice_accuracy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(r, slices); without columns where the task tells none apart."""
        task = self.experiment.task_at(self.step)
        n_slices = len(self.experiment.task.slice_names)
        if not n_slices or task != self.experiment.task:
            return torch.full((len(logits), n_slices), torch.nan, device=self.device)
        by_seed = [task.slices(own).to(self.device) for own in unstack(self._held_out.to("cpu"))]
        return metrics.slice_accuracy(
            logits, labels, self._for_runs(torch.stack(by_seed)), n_slices
        )

    def _training_accuracy(self) -> Tensor:
        """Accuracy on examples that are trained on; NaN where all are new."""
        examples = self._trained_on
        if examples is None:
            return torch.full((self.model.n_runs,), torch.nan, device=self.device)
        return metrics.accuracy(self.model.logits(examples.tokens), self._for_runs(examples.labels))

    def _mass(self, layers: list[_Alike], position: Tensor | None) -> Tensor:
        """Mean over layers of the attention at a position; NaN where the task has none.

        Of an encoder and a decoder, where the decoder asks the encoder.
        """
        if position is None:
            return torch.full((self.model.n_runs,), torch.nan, device=self.device)
        by_run = self._for_runs(position[:, :MEASURED_TOGETHER])
        nothing = torch.full((self.model.n_runs,), torch.nan, device=self.device)

        def mass(layer: Layer, place: LayerSpec, runs: slice) -> Tensor:
            if place.kind not in ("layer", "cross"):
                return nothing[runs]
            return metrics.mass_at(layer.pattern, by_run[runs])

        return self._by_layer(mass, layers).nanmean(1)

    def _framed(
        self, values: Float[Tensor, "r b h i j"], place: LayerSpec, outside: float = 0.0
    ) -> Tensor:
        """Return a layer's values for all positions, (r, h, b, i, j).

        Args:
            outside: the value of pairs of positions that the layer does not compare.
        """
        by_head, n_ctx = values.transpose(1, 2), self.experiment.task.n_ctx
        if by_head.shape[-2:] == (n_ctx, n_ctx):
            return by_head
        frame = by_head.new_full((*by_head.shape[:3], n_ctx, n_ctx), outside)
        frame[..., slice(*place.query_positions), slice(*place.key_positions)] = by_head
        return frame

    def _answer_and_record(
        self, tokens: Int64[Tensor, "s b n fields"]
    ) -> tuple[Float[Tensor, "r b a c"], list[_Alike]]:
        """Return the answers of all runs, and for each place in the model what its layers compute.

        Variants whose layers have equal shapes are measured together, since a call costs more than
        what it computes.
        """
        n_places, n_seeds, layers = len(self.model.layer_specs), len(self.seeds), list[Layer]()
        logits = self.model.logits(tokens, layers)
        recorded = []
        for place in range(n_places):
            alike, first = list[tuple[slice, Layer]](), 0
            for _, some in groupby(layers[place::n_places], _shapes):
                own = list(some)
                runs = slice(first, first := first + n_seeds * len(own))
                scores, pattern = [x.scores for x in own], [x.pattern for x in own]
                alike.append((runs, Layer(torch.cat(scores), torch.cat(pattern))))
            recorded.append(alike)
        return logits, recorded

    def _by_layer(
        self, measure: Callable[[Layer, LayerSpec, slice], Tensor], layers: list[_Alike]
    ) -> Tensor:
        """Return what is measured on each layer of each variant, (r, l, …)."""
        by_place = [
            torch.cat([measure(layer, place, runs) for runs, layer in alike])
            for place, alike in zip(self.model.layer_specs, layers, strict=True)
        ]
        return torch.stack(by_place, 1)

    def _by_head(
        self, measure: Callable[[Layer, LayerSpec], Tensor], layers: list[_Alike]
    ) -> Tensor:
        """What is measured on each head, (r, l, h, …), with NaN for heads that a variant lacks."""
        n_heads = self._n_heads

        def padded(layer: Layer, place: LayerSpec, _: slice) -> Tensor:
            found = measure(layer, place)
            if found.shape[1] == n_heads:
                return found
            all_heads = found.new_full((len(found), n_heads, *found.shape[2:]), torch.nan)
            all_heads[:, : found.shape[1]] = found
            return all_heads

        return self._by_layer(padded, layers)

    def _weight_symmetry(self) -> Tensor:
        per_layer = []
        for layer in range(len(self.model.layer_specs)):
            both = (self.model.role_weights(layer, role) for role in ROLES[:2])
            found = []
            for _, some in groupby(zip(*both, strict=True), lambda pair: pair[0].shape):
                q, k = map(torch.cat, zip(*some, strict=True))
                padding = (0, -q.shape[-1] % ALIGNED)  # for law 1
                of_heads = metrics.weight_symmetry(F.pad(q, padding), F.pad(k, padding))
                found.append(of_heads.mean(1))
            per_layer.append(torch.cat(found))
        return torch.stack(per_layer, 1).mean(1)  # row by row, for law 1


def tie(
    variant: Variant, old: dict[str, Tensor], new: dict[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """The numbers of a run after its variant is tied, or after another one is.

    Args:
        old: the run's parameters before. new: those after, of which the names are read.
    """
    before, after = variant.stages[0].sharing, variant.stages[-1].sharing
    for name in new:
        of_role = name[-4:-1] in (".W_", ".b_") and name[-1] in ROLES
        if old.keys() == new.keys() or not of_role:
            yield name, old[name]
            continue
        members = next(members for members in after.classes if members[0] == name[-1])
        kept = kept_role(variant, members)
        owners = [before.owner(role) for role in (members if kept is None else (kept,))]
        sources = [old[name[:-1] + owner] for owner in dict.fromkeys(owners)]
        yield name, torch.stack(sources).mean(0)


def _shapes(layer: Layer) -> tuple[torch.Size, torch.Size]:
    return layer.scores.shape, layer.pattern.shape


def _as_numpy(by_run: Tensor) -> np.ndarray:
    """Return an array; floats as float32."""
    array: np.ndarray = (by_run.float() if by_run.is_floating_point() else by_run).cpu().numpy()
    return array


def _mean_scores(layer: Layer) -> Tensor:
    """Return the scores of every head, (r, b, h, i, j); of several maps their mean."""
    n_heads = layer.pattern.shape[2]
    if layer.scores.shape[2] == n_heads:
        return layer.scores
    maps: Tensor = layer.scores.unflatten(2, (n_heads, -1))
    return maps.mean(3)


def _symmetry_error(layer: Layer, place: LayerSpec, _: slice) -> Tensor:
    """(r,) NaN where attention is not square."""
    if place.square:
        return metrics.symmetry_error(layer.scores)
    return layer.scores.new_full((len(layer.scores),), torch.nan)


def _head_symmetry(layer: Layer, place: LayerSpec) -> Tensor:
    """(r, h) score symmetry, NaN where attention is not square; of several maps their mean."""
    if not place.square:
        shape = (len(layer.pattern), layer.pattern.shape[2])
        return layer.pattern.new_full(shape, torch.nan, dtype=torch.double)
    found = metrics.score_symmetry(layer.scores).double().mean(1)
    n_maps = found.shape[1] // layer.pattern.shape[2]
    return found if n_maps == 1 else found.unflatten(1, (-1, n_maps)).mean(2)
