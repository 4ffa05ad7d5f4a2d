"""The runs of one cohort: their parameters, answers and gradients.

A `Model` holds the parameters of some variants and seeds, ordered as in the experiment: by variant,
then seed. Each variant is computed by itself, for all its seeds at once, by a `Transformer`; see
`attnkit.model.reference`, which also explains the index letters.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.experiment.layer_specs import LayerSpec
from attnkit.model.initial import generator_for, initial_numbers, weight_outside
from attnkit.model.parameters import TABLE, Parameters, Shape
from attnkit.model.reference import Layer, Transformer, cross_entropy
from attnkit.variants import Variant, Wiring
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import Role

SELF_MASK = -1e5
"""Added to a token's score with itself: soft, so a token with no other target still sees itself."""


class Model:
    """The transformers of all runs of one cohort.

    Args:
        experiment: its variants, sizes and task decide every shape.
        seeds: those of the experiment's seeds that are in this cohort.
        device: where the parameters are.
        sharing: those of the experiment's variants that are in this cohort; None: all.
        tied: those of the variants that are tied during training and have been by now.
        embedding_frozen: whether no training step changes the embedding any more.
        drawn: whether initial numbers are drawn; otherwise all are to be filled in.

    Attributes:
        places: the attention layers.
        variants: those of the cohort. forms: what each of them is at this stage.
        wirings: variant → what its attention computes at this stage.
        numbers: the parameters of all runs as one vector; see `attnkit.model.parameters`.
        gradient: the gradient of `numbers` after `differentiate`.
        movable: 1 for every number that training may change, else 0; None: it may change all.
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
        self.size = experiment.size
        self.task = experiment.task
        self.layer_specs = experiment.layer_specs
        self.device = device
        self.seeds = list(seeds)
        self.variants = list(experiment.sharing if sharing is None else sharing)
        self.forms = [variant.stages[-1 if variant in tied else 0] for variant in self.variants]
        self.wirings = {
            variant: experiment.wiring(variant, form)
            for variant, form in zip(self.variants, self.forms, strict=True)
        }
        self.n_runs = len(self.variants) * len(self.seeds)
        shapes = [self._shapes(self.wirings[variant]) for variant in self.variants]
        self._parameters = Parameters(shapes, len(self.seeds), device)
        self.numbers, self.gradient = self._parameters.numbers, self._parameters.gradient
        self._masks = {
            variant: [self.mask(variant, place) for place in self.layer_specs]
            for variant in self.variants
        }
        if drawn:
            self._initialise()
        self.movable = self._find_movable(embedding_frozen)

    @torch.no_grad()
    def logits(
        self, tokens: Int64[Tensor, "s b n fields"], layers: list[Layer] | None = None
    ) -> Float[Tensor, "r b a c"]:
        """Answer a batch per seed with every run.

        Args:
            tokens: one batch per seed, shared by the seed's variants.
            layers: if given, the scores and the pattern of every layer are appended: all layers
                of the first variant, then those of the next.
        """
        found = [self.transformer(variant).logits(tokens, layers) for variant in self.variants]
        return torch.cat(found)

    def differentiate(
        self, tokens: Int64[Tensor, "s b n fields"], labels: Int64[Tensor, "s b a"]
    ) -> None:
        """Put the gradient of every run's mean cross-entropy into `gradient`."""
        for place, variant in enumerate(self.variants):
            weights = {
                name: view.detach().requires_grad_()
                for name, view in self._parameters.of_variant(place, self.numbers).items()
            }
            loss = cross_entropy(self.transformer(variant, weights).logits(tokens), labels).sum()
            found = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
            gradients = self._parameters.of_variant(place, self.gradient)
            for gradient, value in zip(gradients.values(), found, strict=True):
                gradient.copy_(value)
        if self.movable is not None:
            self.gradient.mul_(self.movable)

    def transformer(
        self, variant: Variant, weights: dict[str, Tensor] | None = None
    ) -> Transformer:
        """Return the computation of one variant's runs.

        Args:
            weights: its parameters by name, (s, *shape); None: those in `numbers`.
        """
        if weights is None:
            weights = self._parameters.of_variant(self.variants.index(variant), self.numbers)
        n_answers = self.task.n_ctx - self.task.answers_from
        wiring, masks = self.wirings[variant], self._masks[variant]
        return Transformer(wiring, weights, self.layer_specs, masks, n_answers)

    def clip(self, largest: float) -> None:
        """Shorten every run's gradient to this norm if it is longer."""
        self._parameters.clip(largest)

    def run_parameters(self, run: int, vector: Tensor | None = None) -> dict[str, Tensor]:
        """Return views of the parameters of one run by name, without the run axis.

        Args:
            vector: another vector with a number for every parameter; None: `numbers`.
        """
        return self._parameters.of_run(run, self.numbers if vector is None else vector)

    def block(self, run: int) -> slice:
        """Return where the numbers of a run are in `numbers`."""
        return self._parameters.block(run)

    def offsets(self, variant: Variant) -> dict[str, tuple[int, Shape]]:
        """Return name → (offset from the beginning of a run's block, shape)."""
        return self._parameters.offsets[self.variants.index(variant)]

    @torch.no_grad()
    def role_weights(self, layer: int, role: Role) -> list[Float[Tensor, "s h m d"]]:
        """Return the matrix that each run's heads use for a role, one tensor for each variant.

        Where rules beyond a fixed matrix act (unit keys, turned vectors), that before them.
        """
        matrices = [self.transformer(v).heads(layer).matrix(role) for v in self.variants]
        return [each.to(self.device).expand(len(self.seeds), -1, -1, -1) for each in matrices]

    def mask(self, variant: Variant, place: LayerSpec) -> Float[Tensor, "i j"] | None:
        """Return what is added to a variant's scores in one layer; None adds nothing."""
        self_mask = self.wirings[variant].sizes.self_mask and place.square
        if not (place.causal or self_mask):
            return None
        n_keys = place.n_keys
        mask = torch.zeros(n_keys, n_keys, device=self.device)
        if place.causal:
            future = torch.ones(n_keys, n_keys, dtype=torch.bool, device=self.device).triu(1)
            mask = mask.masked_fill(future, -math.inf)
        if self_mask:
            mask = mask + SELF_MASK * torch.eye(n_keys, device=self.device)
        return mask

    def _shapes(self, wiring: Wiring) -> dict[str, Shape]:
        """Return the shapes of one run's parameters by name, in the order of the computation."""
        sizes, task, d_model = wiring.sizes, self.task, self.size.d_model
        shapes: dict[str, Shape] = {TABLE: (task.d_vocab, d_model)}
        if POSITIONS[sizes.positions].embedded:
            shapes["W_pos"] = (task.n_ctx, d_model)
        if sizes.standard:
            shapes["b_E"] = (d_model,)
        for layer, place in enumerate(self.layer_specs):
            for name, full in wiring.names(layer).items():
                shapes.setdefault(full, wiring.weights[name].shape)  # some are the first layer's
            norms = ["ln1"]
            if sizes.d_mlp and place.has_mlp:
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
        """Draw the initial numbers: one generator per seed and name, whichever run has them."""
        for run in range(self.n_runs):
            variant, place = divmod(run, len(self.seeds))
            wiring, seed = self.wirings[self.variants[variant]], self.seeds[place]
            own = self.run_parameters(run)
            for name, value in own.items():
                shape = tuple(value.shape)
                weight = wiring.weights.get(name.partition(".")[2])
                weight = weight or weight_outside(name, shape, wiring.sizes, self.task)
                value.copy_(initial_numbers(seed, name, weight))
            fixed = self._fixed_rows(seed)
            if fixed is not None:
                ids, rows = fixed
                own[TABLE][ids] = rows.to(self.device)

    def _fixed_rows(self, seed: int) -> tuple[Tensor, Tensor] | None:
        """Return the tokens whose embeddings the task gives, and those embeddings."""
        generator = generator_for(seed, "fixed embedding")
        return self.task.fixed_embedding(self.size.d_model, generator)

    def _find_movable(self, embedding_frozen: bool) -> Tensor | None:
        """Return 1 for every number that training may change, else 0; None: it may change all."""
        if not embedding_frozen and self._fixed_rows(self.seeds[0]) is None:
            return None
        movable = torch.ones_like(self.numbers)
        for run in range(self.n_runs):
            rows = self.run_parameters(run, movable)[TABLE]
            fixed = self._fixed_rows(self.seeds[run % len(self.seeds)])
            if embedding_frozen:
                rows.zero_()
            elif fixed is not None:
                rows[fixed[0]] = 0.0
        return movable
