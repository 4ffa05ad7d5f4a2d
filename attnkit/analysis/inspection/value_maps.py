"""Maps from keys to values of trained models: fitted, trained on the loss, and taken up by W_O.

With the values K M, the heads read out (P K) M W_O, so each head's rows of W_O become M W_O. The
gradient of a map therefore follows from that of this W_O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from attnkit.analysis.linear_maps import (
    linear_map,
    orthogonal_map,
    random_orthogonal_maps,
    reduced_map,
    truncated,
)
from attnkit.analysis.tying import MAP_RATES, MapKind, Repair
from attnkit.experiment import Experiment
from attnkit.foundation.slices import pause
from attnkit.model.adam import Adam
from attnkit.model.model import Model
from attnkit.model.reference import cross_entropy
from attnkit.tasks import Task
from attnkit.training.data import TrainingData

EXAMPLES = 256
"""Number of training examples of each seed on which maps are fitted (the first ones), and on which
the losses of trained maps are compared (those after the last step)."""


def training_tokens(experiment: Experiment, task: Task) -> Int64[Tensor, "s b n fields"]:
    """Return the first examples of a task that each seed is trained on."""
    of_seeds = list[Tensor]()
    for seed in experiment.seeds:  # one at a time, because training sets may be large
        data = TrainingData(experiment, [seed], torch.device("cpu"), task)
        batches = [data.next()[0]]
        while sum(batch.shape[1] for batch in batches) < EXAMPLES:
            batches.append(data.next()[0])
        of_seeds.append(torch.cat(batches, 1)[:, :EXAMPLES])
        pause()
    return torch.cat(of_seeds)


def fitted_maps(
    repairs: Sequence[Repair],
    keys_and_values: Float[np.ndarray, "2 s g t d"],
    seeds: Sequence[int],
    layer: int,
) -> list[Float64[np.ndarray, "s g d d"]]:
    """Return the maps of one layer's heads, for each repair of another kind than "trained"."""
    keys, values = keys_and_values
    n_heads, d_head = keys.shape[1], keys.shape[-1]
    linear = linear_map(keys, values)
    random = [random_orthogonal_maps([seed, layer], n_heads, d_head) for seed in seeds]
    fit_by_kind: dict[MapKind, Callable[[int], np.ndarray]] = {
        "linear": lambda rank: truncated(linear, rank),
        "reduced": lambda rank: reduced_map(keys, values, rank),
        "orthogonal": lambda _: orthogonal_map(keys, values),
        "random": lambda _: np.stack(random),
    }
    maps = []
    for repair in repairs:
        pause()
        maps.append(fit_by_kind[repair.kind](repair.rank))
    return maps


def absorbed(
    output: Float[Tensor, "s hd m"], maps: Float64[Tensor, "s g d d"]
) -> Float[Tensor, "s hd m"]:
    """Return the output matrix that has taken up maps of the values: each head's rows are M W_O.

    Args:
        output: W_O with the rows of all heads, one head below the other.
        maps: Map of every key-value head, which adjacent heads may share.
    """
    d_head = maps.shape[-1]
    by_head = output.double().unflatten(1, (-1, d_head))  # (s, h, d, m)
    of_heads = maps.repeat_interleave(by_head.shape[1] // maps.shape[1], 1)
    new: Tensor = (of_heads @ by_head).flatten(1, 2).to(output.dtype)
    return new


class Outputs:
    """The W_O of every layer of tied models, which take up maps of the values.

    Args:
        tied: Models of one variant whose keys are their values.
    """

    def __init__(self, tied: Model) -> None:
        (self._wiring,) = tied.wirings.values()
        self._tied = tied
        self._names = [self._wiring.names(layer)["W_O"] for layer in range(len(tied.layer_specs))]
        weights = tied.transformer(tied.variants[0]).weights
        self._weights = [weights[name] for name in self._names]
        self._kept = [weight.clone() for weight in self._weights]

    def take_up(self, maps: Float64[Tensor, "s l g d d"]) -> list[Float[Tensor, "s hd m"]]:
        """Multiply the original W_O of every layer by maps, and return the products."""
        products = [absorbed(kept, maps[:, layer]) for layer, kept in enumerate(self._kept)]
        with torch.no_grad():
            for weight, product in zip(self._weights, products, strict=True):
                weight.copy_(product)
        return products

    def gradient(self) -> list[Float[Tensor, "s hd m"]]:
        """Return the gradient of W_O in every layer that the models computed last."""
        runs = [
            self._tied.run_parameters(run, self._tied.gradient) for run in range(self._tied.n_runs)
        ]
        return [torch.stack([run[name] for run in runs]) for name in self._names]


def trained_maps(
    tied: Iterable[Model],
    start: Float64[np.ndarray, "s l g d d"],
    experiment: Experiment,
    task: Task,
    n_steps: int,
) -> Float64[np.ndarray, "s l g d d"]:
    """Return maps that are trained on the loss, seed by seed.

    Args:
        tied: For every seed, copies of its tied model, one for each learning rate.
        start: The first maps.
        experiment: Experiment in which the variant was trained.
        task: Task at the step after which it was tied.
        n_steps: Number of steps at each learning rate.
    """
    maps = []
    for seed, copies, first in zip(experiment.seeds, tied, start, strict=True):
        data = TrainingData(experiment, [seed], torch.device("cpu"), task)
        maps.append(_trained_map(copies, first, data, n_steps))
    return np.stack(maps)


@torch.enable_grad()
def _trained_map(
    tied: Model, start: Float64[np.ndarray, "l g d d"], data: TrainingData, n_steps: int
) -> Float64[np.ndarray, "l g d d"]:
    """Return the maps of one seed's layers and heads, trained on the loss with all else frozen.

    Adam trains them with every one of `MAP_RATES`, which falls to zero along half a cosine.

    Args:
        tied: Copies of the tied model of this seed, one for every rate.
        start: The first maps.
        data: Training data of this seed.
        n_steps: Number of steps.
    """
    n_rates, outputs = len(MAP_RATES), Outputs(tied)
    numbers = torch.from_numpy(start).double().flatten().repeat(n_rates)
    gradient, n = torch.zeros_like(numbers), numbers.numel() // n_rates
    rates = [(slice(i * n, (i + 1) * n), rate) for i, rate in enumerate(MAP_RATES)]
    optimiser = Adam(numbers, gradient, rates)
    for step in range(n_steps):
        pause()
        maps = numbers.view(n_rates, *start.shape).clone().requires_grad_()
        products = outputs.take_up(maps)
        tokens, labels = (t.expand(n_rates, *t.shape[1:]).contiguous() for t in data.next())
        tied.differentiate(tokens, labels)
        (moved,) = torch.autograd.grad(products, maps, outputs.gradient())
        gradient.copy_(moved.flatten())
        optimiser.step((1 + math.cos(math.pi * step / n_steps)) / 2)
    maps = numbers.view(n_rates, *start.shape)
    outputs.take_up(maps)
    return maps[int(_losses(tied, data).argmin())].numpy()


def _losses(tied: Model, data: TrainingData) -> Float[Tensor, " s"]:
    """Return the loss of every copy on further training examples; infinite where not finite."""
    total, n_examples = torch.zeros(tied.n_runs, dtype=torch.float64), 0
    while n_examples < EXAMPLES:
        tokens, labels = (t.expand(tied.n_runs, *t.shape[1:]).contiguous() for t in data.next())
        total += len(labels[0]) * cross_entropy(tied.logits(tokens), labels)
        n_examples += len(labels[0])
    return total.nan_to_num(math.inf)
