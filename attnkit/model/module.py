"""Runs whose layers a PyTorch module of one's own computes, with embedding and read-out as ever.

Index letters as in `attnkit.model.reference`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attnkit.model.heads import KeysAndValues
from attnkit.model.initial import initial_numbers, weight_outside_attention
from attnkit.model.reference import Stages, Transformer
from attnkit.tasks import Task
from attnkit.variants import Wiring
from attnkit.variants.module_layers import ModuleLayers
from attnkit.variants.sharing import Role


class ModuleTransformer(Transformer):
    """All runs of one variant whose layers, with their MLPs, a module computes."""

    def attention(
        self,
        layer: int,
        x: Float[Tensor, "s b n m"],
        below: Sequence[KeysAndValues] = (),
        *,
        only_answers: bool = False,
    ) -> Stages:
        """Compute one layer, always at all query positions.

        Scores and pattern are NaN if the module does not return them. There are no queries, keys
        and values.
        """
        module = self.wiring.module
        assert isinstance(module, ModuleLayers)
        places = self.places(layer, x, only_answers=False)
        before, others = x[:, :, places.queries], x[:, :, places.keys]
        weights = {name: self.weights[full] for name, full in self.wiring.names(layer).items()}
        output = module.run(layer, weights, before, others, places.mask)
        maps = [one for one in (output.scores, output.pattern) if one is not None]
        n_heads = maps[0].shape[2] if maps else 1
        shape = (*x.shape[:2], n_heads, before.shape[2], others.shape[2])
        nan = x.new_full((1,) * 5, math.nan).expand(shape)
        scores = nan if output.scores is None else output.scores
        pattern = nan if output.pattern is None else output.pattern
        scores = scores.unsqueeze(3)
        none = x.new_zeros(*x.shape[:2], 1, 1, 0)
        return Stages(
            places=places,
            heads=self.heads(layer),
            x=x,
            rows=x,
            q=none,
            k=none,
            v=none,
            scores=scores,
            masked=scores,
            pattern=pattern,
            z=none,
            added=output.x - before,
        )

    def matrix(self, layer: int, role: Role) -> Float[Tensor, "s h m d"]:
        """Return NaN: what a module computes is not known to be a matrix for each role."""
        embedding = self.weights["W_E"]
        return embedding.new_full((1, 1, self.wiring.sizes.d_model, 1), math.nan)


def initial_of_module(wiring: Wiring, task: Task, seed: int) -> dict[str, Tensor]:
    """Return the initial numbers of a module's parameters by full name; none without a module.

    A parameter with the name and shape of one of QKV starts from the numbers of QKV, so that runs
    of one seed are alike, unless the constructor sets it to the same numbers whatever it draws.
    """
    module = wiring.module
    numbers: dict[str, Tensor] = {}
    if not isinstance(module, ModuleLayers):
        return numbers
    of_qkv = module.of_qkv
    for layer in range(wiring.sizes.n_layers):
        drawn, others = module.initial(seed, layer), module.initial(seed + 1, layer)
        for name, value in drawn.items():
            owner, _, kind = name.rpartition(".")  # of `W_Q.weight`, which is the transpose of W_Q
            transposed = kind == "weight"
            in_qkv = owner if transposed else f"b_{owner[2:]}"
            in_qkv = in_qkv if owner[:2] == "W_" and kind in ("weight", "bias") else ""
            weight = of_qkv.weights.get(in_qkv)
            if weight is None and in_qkv[2:] in ("in", "out") and of_qkv.sizes.d_mlp:
                shape = tuple(value.T.shape if transposed else value.shape)
                weight = weight_outside_attention(f"{layer}.{in_qkv}", shape, of_qkv.sizes, task)
            if weight is not None and not torch.equal(value, others[name]):
                paired = initial_numbers(seed, f"{layer}.{in_qkv}", weight)
                paired = paired.T if transposed else paired
                value = paired if paired.shape == value.shape else value
            numbers[f"{layer}.{name}"] = value
    return numbers
