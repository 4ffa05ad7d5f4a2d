"""Parameters, logits and gradients of all runs of one cohort.

A `Model` holds the parameters of several variants and seeds, ordered as in the experiment: by
variant, then by seed. A `Transformer` computes all seeds of one variant at once; see
`attnkit.model.reference`, which also explains the index letters.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.experiment.layer_specs import LayerSpec, layer_specs_of
from attnkit.model.graphs import StepGraph, side_by_side
from attnkit.model.initial import generator_for, initial_numbers, weight_outside_attention
from attnkit.model.module import ModuleTransformer, initial_of_module
from attnkit.model.parameters import EMBEDDING, Parameters, Shape
from attnkit.model.reference import Layer, Transformer, cross_entropy
from attnkit.tasks.base import Task
from attnkit.variants import Variant, Wiring
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import Role

SELF_MASK = -1e5
"""Added to the score of a token with itself; finite, so that a single token can still attend."""


@dataclass(frozen=True)
class RunGroup:
    """Neighbouring runs of a cohort: each of some variants with each of some seeds.

    Attributes:
        variants: Variants of the runs.
        seeds: Slice of the cohort's seeds.
        n_seeds: Number of seeds in the slice.
    """

    variants: Sequence[Variant]
    seeds: slice
    n_seeds: int

    @property
    def n_runs(self) -> int:
        """Number of runs: variants × seeds."""
        return len(self.variants) * self.n_seeds


class Model:
    """Transformers of all runs of one cohort.

    Args:
        experiment: Experiment whose variants, sizes and task determine all shapes.
        seeds: Seeds of the experiment that are in this cohort.
        device: Device of the parameters.
        sharing: Variants of the experiment that are in this cohort; None for all.
        tied: Variants whose tying during training has already happened.
        embedding_frozen: Whether training no longer changes the embedding.
        drawn: Whether initial parameters are drawn; otherwise they are zeros, to be filled in.

    Attributes:
        layer_specs: Specifications of the attention layers.
        variants: Variants of the cohort.
        forms: Form of each variant at this stage of training.
        wirings: Variant → wiring of its attention at this stage of training.
        numbers: Parameters of all runs as one vector; see `attnkit.model.parameters`.
        gradient: Gradient of `numbers`, set by `differentiate`.
        movable: 1 for every parameter that training may change, else 0; None if it may change all.
    """

    def __init__(
        self,
        experiment: Experiment,
        seeds: Sequence[int],
        device: torch.device,
        *,
        sharing: Sequence[Variant] | None = None,
        tied: Collection[Variant] = (),
        embedding_frozen: bool = False,
        drawn: bool = True,
    ) -> None:
        self._experiment, self.size = experiment, experiment.size
        self.device = device
        self.seeds = list(seeds)
        self.variants = list(experiment.sharing if sharing is None else sharing)
        self.forms = [variant.stages[-1 if variant in tied else 0] for variant in self.variants]
        self._alike = self._find_alike()
        self._graph: StepGraph | None = None
        self._fit(experiment.task)
        self.n_runs = len(self.variants) * len(self.seeds)
        shapes = [self._shapes(self.wirings[variant]) for variant in self.variants]
        self._parameters = Parameters(shapes, len(self.seeds), device)
        self.numbers, self.gradient = self._parameters.numbers, self._parameters.gradient
        if drawn:
            self._initialise()
        self.movable = self._find_movable(embedding_frozen)

    def _fit(self, task: Task) -> None:
        """Set the task, and all that depends on the length of its examples."""
        self.task = task
        self.layer_specs = layer_specs_of(self.size, task)
        self.wirings = {
            variant: self._experiment.wiring(variant, form, task)
            for variant, form in zip(self.variants, self.forms, strict=True)
        }
        self._masks = {
            variant: [self.mask(variant, spec) for spec in self.layer_specs]
            for variant in self.variants
        }

    def at_length(self, task: Task) -> Self:
        """Return this model for a task of the same vocabulary and another length.

        Both have the same parameters, so that what one learns the other knows.
        """
        other = copy(self)
        other._fit(task)
        return other

    @property
    def all_runs(self) -> RunGroup:
        """All runs as one group."""
        return RunGroup(self.variants, slice(None), len(self.seeds))

    def run_groups(self, most: int) -> Iterator[RunGroup]:
        """Divide the runs, in their order, into groups of at most `most` runs."""
        n_seeds = min(most, len(self.seeds))
        n_variants = most // n_seeds if n_seeds == len(self.seeds) else 1
        for first in range(0, len(self.variants), n_variants):
            for start in range(0, len(self.seeds), n_seeds):
                stop = min(start + n_seeds, len(self.seeds))
                variants = self.variants[first : first + n_variants]
                yield RunGroup(variants, slice(start, stop), stop - start)

    @torch.no_grad()
    def logits(
        self,
        tokens: Int64[Tensor, "s b n fields"],
        layers: list[Layer] | None = None,
        group: RunGroup | None = None,
    ) -> Float[Tensor, "r b a c"]:
        """Return the logits of every run of a group.

        Args:
            tokens: One batch for each seed of the group, which all variants share.
            layers: List to which the scores and the pattern of every layer are appended, if given:
                all layers of the first variant, then those of the next.
            group: The runs. None: all.
        """
        return torch.cat(self._logits(tokens, layers, group or self.all_runs))

    def _logits(
        self, tokens: Tensor, layers: list[Layer] | None, group: RunGroup
    ) -> list[Float[Tensor, "s b a c"]]:
        """Return the logits of every variant of a group."""
        transformers = [self._transformer_of(variant, group.seeds) for variant in group.variants]
        return [transformer.logits(tokens, layers) for transformer in transformers]

    def differentiate(
        self, tokens: Int64[Tensor, "s b n fields"], labels: Int64[Tensor, "s b a"]
    ) -> None:
        """Set `gradient` to the gradient of every run's mean cross-entropy."""
        with_module = any(wiring.module is not None for wiring in self.wirings.values())
        if self.device.type != "cuda" or with_module:  # a module may wait for the GPU
            self._differentiate(tokens, labels)
            return
        if self._graph is None:
            self._graph = StepGraph(self._differentiate, tokens, labels)
        self._graph(tokens, labels)

    def _differentiate(self, tokens: Tensor, labels: Tensor) -> None:
        for alike in side_by_side(self._alike, self.device):
            first, n_variants = alike.start, len(alike)
            weights = {
                name: view.detach().requires_grad_()
                for name, view in self._parameters.of_variants(alike, self.numbers).items()
            }
            transformer = self.transformer(self.variants[first], weights)
            logits = transformer.logits(tokens.repeat(n_variants, 1, 1, 1))
            loss = cross_entropy(logits, labels.repeat(n_variants, 1, 1)).sum()
            gradients = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
            views = self._parameters.of_variants(alike, self.gradient)
            for view, gradient in zip(views.values(), gradients, strict=True):
                view.copy_(gradient)
        if self.movable is not None:
            self.gradient.mul_(self.movable)

    def _find_alike(self) -> list[range]:
        """Return ranges of neighbouring variants that are differentiated as one batch.

        On a GPU, variants that differ in their learning rates only are one batch. On a CPU, every
        variant is alone, because smaller tensors fit its caches.
        """
        n = len(self.variants)
        if self.device.type == "cpu":
            return [range(index, index + 1) for index in range(n)]
        forms = [form.without("learning_rate") for form in self.forms]
        starts = [i for i in range(n) if i == 0 or forms[i] != forms[i - 1]]
        return [range(*ends) for ends in pairwise([*starts, n])]

    def transformer(
        self, variant: Variant, weights: dict[str, Tensor] | None = None
    ) -> Transformer:
        """Return the transformer of one variant's runs.

        Args:
            variant: Variant of the cohort.
            weights: Parameters by name, (s, *shape); None for those in `numbers`.
        """
        if weights is None:
            weights = self._parameters.of_variant(self.variants.index(variant), self.numbers)
        n_answers = self.task.n_ctx - self.task.answers_from
        wiring, masks = self.wirings[variant], self._masks[variant]
        of_kind = Transformer if wiring.module is None else ModuleTransformer
        return of_kind(wiring, weights, self.layer_specs, masks, n_answers)

    def _transformer_of(self, variant: Variant, seeds: slice) -> Transformer:
        """Return the transformer of the runs of one variant and some seeds."""
        weights = self._parameters.of_variant(self.variants.index(variant), self.numbers)
        return self.transformer(variant, {name: view[seeds] for name, view in weights.items()})

    def clip(self, largest: float) -> None:
        """Scale down the gradient of every run whose norm is larger than `largest`."""
        self._parameters.clip(largest)

    def run_parameters(self, run: int, vector: Tensor | None = None) -> dict[str, Tensor]:
        """Return views of one run's parameters by name, each with the parameter's own shape.

        Args:
            run: Index of the run.
            vector: Vector in the layout of `numbers`; None for `numbers`.
        """
        return self._parameters.of_run(run, self.numbers if vector is None else vector)

    def block(self, run: int) -> slice:
        """Return the slice of `numbers` that holds one run."""
        return self._parameters.block(run)

    def offsets(self, variant: Variant) -> dict[str, tuple[int, Shape]]:
        """Return the parameters of a variant: name → (offset in a run's block, shape)."""
        return self._parameters.offsets[self.variants.index(variant)]

    def fixed_weights(self, variant: Variant) -> list[slice]:
        """Return the parts of a run's block that hold weights which training never changes."""
        weights = self.wirings[variant].parameters()
        return [
            slice(offset, offset + math.prod(shape))
            for name, (offset, shape) in self.offsets(variant).items()
            if name in weights and weights[name].fixed
        ]

    @torch.no_grad()
    def role_weights(
        self, layer: int, role: Role, group: RunGroup | None = None
    ) -> list[Float[Tensor, "s h m d"]]:
        """Return the matrix that each run's heads use for a role, one tensor for each variant.

        Rules that no fixed matrix can express (unit keys, rotary positions) are left out. A
        PyTorch module has no such matrices: they are NaN.

        Args:
            layer: Index of the layer.
            role: The role.
            group: The runs. None: all.
        """
        group = group or self.all_runs
        matrices = [
            self._transformer_of(variant, group.seeds).matrix(layer, role)
            for variant in group.variants
        ]
        return [m.to(self.device).expand(group.n_seeds, -1, -1, -1) for m in matrices]

    def mask(self, variant: Variant, spec: LayerSpec) -> Float[Tensor, "i j"] | None:
        """Return the mask that is added to a variant's scores in one layer, or None."""
        self_mask = self.wirings[variant].sizes.self_mask and spec.square
        if not (spec.causal or self_mask):
            return None
        n_keys = spec.n_keys
        mask = torch.zeros(n_keys, n_keys, device=self.device)
        if spec.causal:
            future = torch.ones(n_keys, n_keys, dtype=torch.bool, device=self.device).triu(1)
            mask = mask.masked_fill(future, -math.inf)
        if self_mask:
            mask = mask + SELF_MASK * torch.eye(n_keys, device=self.device)
        return mask

    def _shapes(self, wiring: Wiring) -> dict[str, Shape]:
        """Return the shapes of one run's parameters by name, in the order of the computation."""
        sizes, task, d_model = wiring.sizes, self.task, self.size.d_model
        shapes: dict[str, Shape] = {EMBEDDING: (task.d_vocab, d_model)}
        if POSITIONS[sizes.positions].embedded:
            shapes["W_pos"] = (task.n_ctx, d_model)
        if sizes.standard:
            shapes["b_E"] = (d_model,)
        for layer, spec in enumerate(self.layer_specs):
            for name, full in wiring.names(layer).items():
                shapes.setdefault(full, wiring.weights[name].shape)  # layers may share parameters
            norms = ["ln1"] if wiring.module is None else []
            if sizes.d_mlp and spec.has_mlp:
                norms.append("ln2")
                shapes[f"{layer}.W_in"] = (d_model, sizes.d_mlp)
                shapes[f"{layer}.W_out"] = (sizes.d_mlp, d_model)
                if sizes.standard:
                    shapes |= {f"{layer}.b_in": (sizes.d_mlp,), f"{layer}.b_out": (d_model,)}
            if sizes.standard:
                shapes |= {f"{layer}.{norm}.{part}": (d_model,) for norm in norms for part in "wb"}
        if sizes.standard and sizes.final_norm:
            shapes |= {f"ln_final.{part}": (d_model,) for part in "wb"}
        shapes["W_U"] = (d_model, task.n_classes)
        if sizes.standard:
            shapes["b_U"] = (task.n_classes,)
        return shapes

    def _initialise(self) -> None:
        """Draw the initial parameters; they depend on seed and name only, not on the other runs."""
        for run in range(self.n_runs):
            variant, seed_index = divmod(run, len(self.seeds))
            wiring, seed = self.wirings[self.variants[variant]], self.seeds[seed_index]
            parameters = self.run_parameters(run)
            drawn = initial_of_module(wiring, self.task, seed)
            for name, value in parameters.items():
                if name in drawn:
                    value.copy_(drawn[name])
                    continue
                shape = tuple(value.shape)
                weight = wiring.weights.get(name.partition(".")[2])
                weight = weight or weight_outside_attention(name, shape, wiring.sizes, self.task)
                value.copy_(initial_numbers(seed, name, weight))
            fixed = self._fixed_rows(seed)
            if fixed is not None:
                ids, rows = fixed
                parameters[EMBEDDING][ids] = rows.to(self.device)

    def _fixed_rows(self, seed: int) -> tuple[Tensor, Tensor] | None:
        """Return the tokens whose embeddings the task fixes, and these embeddings; None if none."""
        generator = generator_for(seed, "fixed embedding")
        return self.task.fixed_embedding(self.size.d_model, generator)

    def _find_movable(self, embedding_frozen: bool) -> Tensor | None:
        """Return the value of `movable`."""
        weights = [self.fixed_weights(variant) for variant in self.variants]
        if not (embedding_frozen or any(weights)) and self._fixed_rows(self.seeds[0]) is None:
            return None
        movable = torch.ones_like(self.numbers)
        for run in range(self.n_runs):
            variant, seed = divmod(run, len(self.seeds))
            for part in weights[variant]:
                movable[self.block(run)][part] = 0.0
            rows = self.run_parameters(run, movable)[EMBEDDING]
            fixed = self._fixed_rows(self.seeds[seed])
            if embedding_frozen:
                rows.zero_()
            elif fixed is not None:
                rows[fixed[0]] = 0.0
        return movable
