"""The attention heads of any variant, along its wiring, for all seeds of the variant at once.

A variant's rules are a few lines of PyTorch each, which act on the way from the normalised residual
stream to what the heads add to it. Matrix products go through
`attnkit.model.products`, so that a run has the same bits whatever else trains.

Index letters as in `attnkit.model.reference`; rows are (s, b, h, i, d).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from attnkit.model.products import product, project
from attnkit.variants.sharing import Role
from attnkit.variants.wiring import TOKEN, Wiring


class Heads:
    """The attention heads of one layer: queries, keys and values, scores, and what they read out.

    Args:
        wiring: what the layer computes. layer: its number, from 0.
        weights: those of this layer by the wiring's names, with a leading axis of seeds.
        leader: the heads whose keys and values these use; None: they make their own.

    Attributes:
        source: the heads whose keys and values these use.
    """

    def __init__(
        self, wiring: Wiring, layer: int, weights: dict[str, Tensor], leader: Heads | None = None
    ) -> None:
        self.wiring, self.layer, self.weights = wiring, layer, weights
        self.source = leader or self

    def store(self, x: Float[Tensor, "s b i m"]) -> dict[str, Tensor]:
        """Return what a decoder keeps of these tokens: name → rows."""
        return {name: self._project(name, x, {}) for name in self.wiring.stored}

    def keys_and_values(self, store: dict[str, Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of the stored tokens, as the scores and the read-out see them.

        Args:
            at: positions of the stored tokens, (i,).
        """
        source, roles = self.source, self.wiring.roles
        k = source._project(roles["K"], None, store)
        v = k if roles["V"] == roles["K"] else source._project(roles["V"], None, store)
        return source._adjust("K", k, at), source._adjust("V", v, at)

    def queries(
        self, x: Float[Tensor, "s b i m"], store: dict[str, Tensor] | None, at: Tensor
    ) -> Tensor:
        """Return queries as the scores see them.

        Args:
            x: the tokens that ask.
            store: what was stored of the same tokens; tied queries are taken from it.
        """
        return self._adjust("Q", self._project(self.wiring.roles["Q"], x, store or {}), at)

    def scores(self, q: Tensor, k: Tensor, asking: Tensor, looked_at: Tensor) -> Tensor:
        """Return scaled scores before masks, (s, b, h, p, i, j); one map if maps are added."""
        wiring = self.wiring
        q = q * wiring.scale
        k = self.for_all_heads(k)
        flat = product(q.flatten(0, 2), k.flatten(0, 2).transpose(1, 2))
        heads = (wiring.sizes.n_heads, wiring.n_maps)
        scores = flat.view(*q.shape[:2], *heads, q.shape[3], k.shape[3])
        for rule in wiring.rules:
            scores = rule.merge(scores, self.weights)
        for rule in wiring.rules:
            bias = rule.bias(self.weights, asking, looked_at, wiring)
            if bias is not None:
                scores = scores + bias.unsqueeze(3)
        return scores

    def pattern(self, masked: Float[Tensor, "s b h p i j"]) -> Float[Tensor, "s b h i j"]:
        """Return the softmax of masked scores; the maps of a head are combined."""
        pattern = torch.softmax(masked, -1)
        if pattern.shape[3] == 1:
            return pattern.squeeze(3)
        for rule in self.wiring.rules:
            pattern = rule.combine(pattern, self.weights, self.layer)
        return pattern

    def mix(self, pattern: Tensor, v: Tensor) -> Float[Tensor, "s b h i d"]:
        """Return the values of every head, weighted by its pattern and summed."""
        v = self.for_all_heads(v)
        z = product(pattern.flatten(0, 2), v.flatten(0, 2))
        z = z.view(*pattern.shape[:4], v.shape[-1])
        for rule in self.wiring.rules:
            z = rule.finish(z, self.weights, self.layer)
        return z

    def leave(self, z: Float[Tensor, "s b h i d"]) -> Float[Tensor, "s b i m"]:
        """Return what all heads add to the residual stream, through W_O if there is one."""
        merged = z.transpose(2, 3).flatten(3)  # (s, b, i, h·d)
        if not self.wiring.has_output:
            return merged
        out = project(merged.flatten(1, 2), self.weights["W_O"]).view(*merged.shape[:3], -1)
        return out + self.weights["b_O"][:, None, None] if "b_O" in self.weights else out

    def matrix(self, role: Role) -> Float[Tensor, "s h m d"]:
        """Return the matrix between the token and a role's vectors; only linear rules count.

        Several maps count as heads, unless they are added. Keys and values of grouped heads are
        repeated.
        """
        source = self if role == "Q" else self.source
        one = next(iter(source.weights.values()), torch.empty(1))
        d_model = self.wiring.sizes.d_model
        n_seeds = len(one) if source.weights else 1
        eye = torch.eye(d_model, dtype=one.dtype, device=one.device).expand(n_seeds, 1, -1, -1)
        rows = source._project(self.wiring.roles[role], eye, {}, biased=False)
        at = torch.zeros(d_model, dtype=torch.long, device=one.device)
        for rule in self.wiring.rules:
            if rule.linear:
                rows = rule.adjust(role, rows, source.weights, at, self.wiring)
        heads = self.for_all_heads(rows)[:, 0]
        if self.wiring.adds_maps and role != "V":  # one form: the maps' numbers side by side
            maps = heads.unflatten(1, (-1, self.wiring.n_maps))
            heads = maps.transpose(2, 3).flatten(3)
        return heads

    def _project(
        self, name: str, x: Tensor | None, made: dict[str, Tensor], *, biased: bool = True
    ) -> Tensor:
        """Return the rows of a vector: those in `made`, or computed from what it reads."""
        if name in made:
            return made[name]
        vector = self.wiring.vectors[name]
        if vector.reads == TOKEN:
            assert x is not None
            read = x
        else:
            rows = self._project(vector.reads, x, made, biased=biased)  # (s, b, h, i, d)
            if vector.per_head:
                return self._through_heads(rows, vector.weight)
            read = rows.transpose(2, 3).flatten(3)
        n_seeds, n_batch, n_ctx, _ = read.shape
        if vector.weight is not None:
            flat = read.reshape(n_seeds, n_batch * n_ctx, -1)
            read = project(flat, self.weights[vector.weight])
            if vector.bias is not None and biased:
                read = read + self.weights[vector.bias].unsqueeze(1)
        heads = read.view(n_seeds, n_batch, n_ctx, vector.n_heads, vector.width)
        return heads.transpose(2, 3)

    def _through_heads(self, rows: Tensor, weight: str | None) -> Tensor:
        """Return the rows of every head times its own matrix, (s, h, d, d')."""
        assert weight is not None
        of_heads = []
        for head, own in enumerate(self.weights[weight].unbind(1)):
            read = rows[:, :, head]  # (s, b, i, d)
            out = project(read.flatten(1, 2), own)
            of_heads.append(out.view(*read.shape[:3], -1))
        return torch.stack(of_heads, 2)

    def _adjust(self, role: Role, rows: Tensor, at: Tensor) -> Tensor:
        for rule in self.wiring.rules:
            rows = rule.adjust(role, rows, self.weights, at, self.wiring)
        return rows

    def for_all_heads(self, rows: Tensor) -> Tensor:
        """Repeat keys or values for the query heads that share them."""
        sizes = self.wiring.sizes
        n_each = sizes.n_heads // sizes.kv_heads
        if n_each == 1 or rows.shape[2] >= sizes.n_heads:
            return rows
        return rows.repeat_interleave(n_each, 2)
