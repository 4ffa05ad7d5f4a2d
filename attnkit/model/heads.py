"""Attention heads of any variant, computed from its wiring for all seeds at once.

Each rule of a variant is a few lines of PyTorch that change one step between the normalised
residual stream and the output of the heads. Matrix products use `attnkit.model.products`, so that
the bits of a run do not depend on the other runs that train with it.

Index letters as in `attnkit.model.reference`; rows are (s, b, h, i, d).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnkit.model.products import product, project
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import TOKEN, Layer, Vector, Wiring

KeysAndValues: TypeAlias = tuple[Tensor, Tensor]
"""Keys and values of one layer, each (s, b, h, j, d)."""


class Heads:
    """Attention heads of one layer: queries, keys, values, scores, pattern and output.

    Args:
        wiring: Vectors, roles and rules of the variant.
        layer: Index of the layer, from 0.
        weights: Parameters of this layer by the wiring's names, with a leading axis of seeds.
        leaders: For keys and for values, the heads of the layer whose keys or values this layer
            uses, if it does not compute its own.
    """

    def __init__(
        self,
        wiring: Wiring,
        layer: int,
        weights: dict[str, Tensor],
        leaders: dict[Role, Heads] | None = None,
    ) -> None:
        self.wiring, self.layer, self.weights = wiring, layer, weights
        self.rule_layer = Layer(wiring, layer, weights)
        self.leaders = leaders or {}

    def project(self, x: Float[Tensor, "s b i m"]) -> dict[str, Tensor]:
        """Return the vectors x W of these tokens from which keys and values are computed.

        There is one for each class of tied roles: name → (s, b, h, i, d). A decoder caches them.
        There are none if the layer uses the keys and values of a lower layer.
        """
        names = [] if self.leaders else self.wiring.stored
        return {name: self.vector(name, {TOKEN: x}) for name in names}

    def keys_and_values(
        self, projected: dict[str, Tensor], positions: Tensor, below: Sequence[KeysAndValues] = ()
    ) -> KeysAndValues:
        """Return the keys and values of some tokens, after all rules.

        Both are the same tensor if keys enter the scores as values enter the output.

        Args:
            projected: Vectors of the tokens, as returned by `project`.
            positions: Positions of the tokens, (j,).
            below: Keys and values of all lower layers; needed if this layer uses them.
        """
        if self.leaders:
            return below[self.leaders["K"].layer][0], below[self.leaders["V"].layer][1]
        roles = self.wiring.roles
        k = self.vector(roles["K"], projected)
        v = k if roles["V"] == roles["K"] else self.vector(roles["V"], projected)
        k = self._adjust("K", k, positions)
        return k, k if self.wiring.value_is_key else self._adjust("V", v, positions)

    def queries(
        self, x: Float[Tensor, "s b i m"], tied: dict[str, Tensor], positions: Tensor
    ) -> Tensor:
        """Return the queries of some tokens, after all rules.

        Args:
            x: Residual stream of the tokens, normalised.
            tied: Vectors of the same tokens, as returned by `project`; queries may be one of them.
            positions: Positions of the tokens, (i,).
        """
        q = self.vector(self.wiring.roles["Q"], tied | {TOKEN: x})
        return self._adjust("Q", q, positions)

    def scores(
        self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """Return scaled scores before masks, (s, b, h, p, i, j); one map if maps are added."""
        wiring = self.wiring
        q = q * wiring.scale
        flat = product(q.flatten(0, 2), k.flatten(0, 2).transpose(1, 2))
        heads = (wiring.sizes.n_heads, wiring.n_maps)
        scores = flat.view(*q.shape[:2], *heads, q.shape[3], k.shape[3])
        for rule in wiring.rules:
            scores = rule.merge(scores, self.rule_layer)
        for rule in wiring.rules:
            bias = rule.bias(query_positions, key_positions, self.rule_layer)
            if bias is not None:
                scores = scores + bias.unsqueeze(3)
        return scores

    def pattern(self, masked: Float[Tensor, "s b h p i j"]) -> Float[Tensor, "s b h i j"]:
        """Return the softmax of masked scores, with the maps of each head combined."""
        pattern = torch.softmax(masked, -1)
        for rule in self.wiring.rules:
            pattern = rule.combine(pattern, masked, self.rule_layer)
        return pattern.squeeze(3)

    def mix(
        self, pattern: Tensor, v: Tensor, own_values: Tensor | None, positions: Tensor
    ) -> Float[Tensor, "s b h i d"]:
        """Return the values of every head, weighted by its pattern and summed, after all rules.

        Args:
            pattern: Pattern of every head.
            v: Values of the tokens that are seen, after all rules.
            own_values: Values at the query positions; None if queries and keys are different
                sequences.
            positions: Query positions, (i,).
        """
        z = product(pattern.flatten(0, 2), v.flatten(0, 2))
        z = z.view(*pattern.shape[:4], v.shape[-1])
        for rule in self.wiring.rules:
            z = rule.finish(z, own_values, positions, self.rule_layer)
        return z

    def output(self, z: Float[Tensor, "s b h i d"]) -> Float[Tensor, "s b i m"]:
        """Return the layer's output: z of all heads, concatenated and multiplied by W_O."""
        merged = z.transpose(2, 3).flatten(3)  # (s, b, i, h·d)
        if not self.wiring.has_output:  # W_O is the identity
            return merged
        out = project(merged.flatten(1, 2), self.weights["W_O"]).view(*merged.shape[:3], -1)
        return out + self.weights["b_O"][:, None, None] if "b_O" in self.weights else out

    def matrix(self, role: Role) -> Float[Tensor, "s h m d"]:
        """Return the matrix from the token to a role's vectors, including linear rules only.

        Several maps count as heads, unless their scores are added. Keys and values of grouped heads
        are repeated.
        """
        source = self.leaders.get(role, self)
        role = "K" if role == "V" and self.wiring.value_is_key else role
        weight = next(iter(source.weights.values()), torch.empty(1))
        d_model = self.wiring.sizes.d_model
        n_seeds = len(weight) if source.weights else 1
        eye = torch.eye(d_model, dtype=weight.dtype, device=weight.device)
        eye = eye.expand(n_seeds, 1, -1, -1)
        rows = source.vector(self.wiring.roles[role], {TOKEN: eye}, linear=True)
        positions = torch.zeros(d_model, dtype=torch.long, device=weight.device)
        for rule in self.wiring.rules:
            if rule.linear:
                rows = rule.adjust(role, rows, positions, source.rule_layer)
        heads = self.for_all_heads(rows)[:, 0]
        if self.wiring.adds_maps and role != "V":
            # Added maps are one bilinear form: their dimensions are concatenated.
            maps = heads.unflatten(1, (-1, self.wiring.n_maps))
            heads = maps.transpose(2, 3).flatten(3)
        return heads

    def vector(
        self, name: str, known: dict[str, Tensor], *, linear: bool = False
    ) -> Float[Tensor, "s b h i d"]:
        """Return a vector of the wiring, computed from the known ones along the graph.

        Args:
            name: Name of the vector.
            known: Vectors that are computed already, with the token.
            linear: Whether biases and the MLP of a vector are left out.
        """
        rows = dict(known)
        for needed in self.wiring.order(name):
            if needed not in rows:
                rows[needed] = self._compute(self.wiring.vectors[needed], rows, linear=linear)
        return rows[name]

    def _compute(
        self, vector: Vector, rows: dict[str, Tensor], *, linear: bool
    ) -> Float[Tensor, "s b h i d"]:
        """Return a vector, computed from the rows of the vectors that it reads."""
        inputs = rows[vector.reads]
        if vector.reads != TOKEN:  # (s, b, h, i, d)
            if vector.per_head:
                inputs = self._through_heads(inputs, vector.weight)
            if vector.shared_offset:
                inputs = inputs + rows[vector.shared_offset]
            if vector.shared_prefix:
                first = rows[vector.shared_prefix].expand(-1, -1, vector.n_heads, -1, -1)
                rest = inputs[..., : vector.width - first.shape[-1]]
                inputs = torch.cat([first, rest], -1)
            if vector.per_head or vector.shared_prefix:
                return inputs
            inputs = inputs.transpose(2, 3).flatten(3)
        if vector.gain is not None:
            inputs = F.gelu(inputs)
        n_seeds, n_batch, n_ctx, _ = inputs.shape
        if vector.weight is not None:
            flat = inputs.reshape(n_seeds, n_batch * n_ctx, -1)
            inputs = project(flat, self.weights[vector.weight])
            if vector.bias is not None and not linear:
                inputs = inputs + self.weights[vector.bias].unsqueeze(1)
        if vector.gain is not None:
            token, gain = rows[TOKEN].flatten(1, 2), self.weights[vector.gain].unsqueeze(1)
            inputs = F.layer_norm(inputs, inputs.shape[-1:], eps=1e-5) * gain
            inputs = token / 2 if linear else (token + inputs) / 2
        heads = inputs.view(n_seeds, n_batch, n_ctx, vector.n_heads, vector.width)
        return heads.transpose(2, 3)

    def _through_heads(self, rows: Tensor, weight: str | None) -> Tensor:
        """Return the rows of each head times the head's own matrix, (s, h, d, d')."""
        assert weight is not None
        outputs = []
        for head, matrix in enumerate(self.weights[weight].unbind(1)):
            inputs = rows[:, :, head]  # (s, b, i, d)
            out = project(inputs.flatten(1, 2), matrix)
            outputs.append(out.view(*inputs.shape[:3], -1))
        return torch.stack(outputs, 2)

    def _adjust(self, role: Role, rows: Tensor, positions: Tensor) -> Tensor:
        for rule in self.wiring.rules:
            rows = rule.adjust(role, rows, positions, self.rule_layer)
        return rows

    def for_all_heads(self, rows: Tensor) -> Tensor:
        """Repeat keys or values for the query heads that share them."""
        sizes = self.wiring.sizes
        n_repeats = sizes.n_heads // sizes.kv_heads
        if n_repeats == 1 or rows.shape[2] >= sizes.n_heads:
            return rows
        return rows.repeat_interleave(n_repeats, 2)
