"""Residual attention along any wiring, batched over the seeds of one variant, by autograd.

The five partitions have `attnkit.attention`, whose backward pass is written out. Here a variant's
rules are a few lines of PyTorch each; what is differentiated reaches from the normalised residual
stream to what is added to it. Matrix products go through `product`, so that a run has the same bits
whatever else trains.

Index letters as in `attnkit.model`; rows are (s, b, h, i, d).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnkit.architecture import Place
from attnkit.attention import Layer
from attnkit.blocks import Norm, multiply, product
from attnkit.recipe import ALIGNED
from attnkit.sharing import Role
from attnkit.variants.wiring import TOKEN, Wiring


class _Product(torch.autograd.Function):
    """Each run's a @ b, with equal bits for any number of runs, there and back.

    The gradient of b is that of a run's weight if `weighs`: BLAS rounds by how an output lies, so
    each run's then begins on a cache line.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, weighs: bool) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.weighs = weighs
        return product(a, b)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        a, b = ctx.saved_tensors
        d_out = grad[0].contiguous()
        d_a = product(d_out, b.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return d_a, None, None
        each = b.shape[1] * b.shape[2]
        stride = each + -each % ALIGNED if ctx.weighs else each
        d_b = torch.empty_strided(b.shape, (stride, b.shape[2], 1), dtype=b.dtype, device=b.device)
        multiply(d_b, a.transpose(1, 2), d_out)
        return d_a, d_b, None


def _through(rows: Tensor, weight: Tensor) -> Tensor:
    """Each run's rows times its weight."""
    result: Tensor = _Product.apply(rows, weight, True)  # type: ignore[no-untyped-call]
    return result


def _times(a: Tensor, b: Tensor) -> Tensor:
    """The products of as many matrices, several for every run."""
    result: Tensor = _Product.apply(a, b, False)  # type: ignore[no-untyped-call]
    return result


class Heads:
    """What one layer of a wiring makes of tokens: vectors, keys and values, queries, the read-out.

    Args:
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
        """What a decoder keeps of these tokens: name → rows."""
        return {name: self._project(name, x, {}) for name in self.wiring.stored}

    def keys_and_values(self, store: dict[str, Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of keys and values of what has been stored, as the scores and the read-out see them.

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
        """Rows of queries.

        Args:
            store: what was stored of the same tokens; tied queries are taken from it.
        """
        return self._adjust("Q", self._project(self.wiring.roles["Q"], x, store or {}), at)

    def scores(self, q: Tensor, k: Tensor, asking: Tensor, looked_at: Tensor) -> Tensor:
        """Scaled scores before masks, (s, b, h, maps, i, j); one map if they are added."""
        wiring = self.wiring
        q = q * wiring.scale
        k = self.for_all_heads(k)
        flat = _times(q.flatten(0, 2), k.flatten(0, 2).transpose(1, 2))
        heads = (wiring.sizes.n_heads, wiring.n_maps)
        scores = flat.view(*q.shape[:2], *heads, q.shape[3], k.shape[3])
        for rule in wiring.rules:
            scores = rule.merge(scores, self.weights)
        for rule in wiring.rules:
            bias = rule.bias(self.weights, asking, looked_at, wiring)
            if bias is not None:
                scores = scores + bias.unsqueeze(3)
        return scores

    def pattern(self, scores: Tensor, mask: Float[Tensor, "i j"] | None) -> Tensor:
        """Attention after the softmax, (s, b, h, i, j); those of two maps combined."""
        pattern = torch.softmax(scores if mask is None else scores + mask, -1)
        if pattern.shape[3] == 1:
            return pattern.squeeze(3)
        for rule in self.wiring.rules:
            pattern = rule.combine(pattern, self.weights, self.layer)
        return pattern

    def read_out(self, pattern: Tensor, v: Tensor) -> Float[Tensor, "s t m"]:
        """What is added to the residual stream."""
        return self.leave(self.mix(pattern, v))

    def mix(self, pattern: Tensor, v: Tensor) -> Float[Tensor, "s b h i d"]:
        """The values of every head, weighted and summed."""
        v = self.for_all_heads(v)
        z = _times(pattern.flatten(0, 2), v.flatten(0, 2))
        z = z.view(*pattern.shape[:4], v.shape[-1])
        for rule in self.wiring.rules:
            z = rule.finish(z, self.weights, self.layer)
        return z

    def leave(self, z: Float[Tensor, "s b h i d"]) -> Float[Tensor, "s t m"]:
        """What the heads have read out on its way to the residual stream, through W_O if any."""
        merged = z.transpose(2, 3).flatten(3).flatten(1, 2)  # (s, b·i, h·d)
        if not self.wiring.has_output:
            return merged
        out = _through(merged, self.weights["W_O"])
        return out + self.weights["b_O"].unsqueeze(1) if "b_O" in self.weights else out

    def matrix(self, role: Role) -> Float[Tensor, "s h m d"]:
        """The matrix between the token and a role's vectors; rules that are not linear left out.

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
        """A vector's rows: those in `made`, or from what it reads."""
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
            read = _through(flat, self.weights[vector.weight])
            if vector.bias is not None and biased:
                read = read + self.weights[vector.bias].unsqueeze(1)
        heads = read.view(n_seeds, n_batch, n_ctx, vector.n_heads, vector.width)
        return heads.transpose(2, 3)

    def _through_heads(self, rows: Tensor, weight: str | None) -> Tensor:
        """Rows of every head times its own matrix, (s, h, d, d')."""
        assert weight is not None
        of_heads = []
        for head, own in enumerate(self.weights[weight].unbind(1)):
            read = rows[:, :, head]  # (s, b, i, d)
            out = _through(read.flatten(1, 2), own)
            of_heads.append(out.view(*read.shape[:3], -1))
        return torch.stack(of_heads, 2)

    def _adjust(self, role: Role, rows: Tensor, at: Tensor) -> Tensor:
        for rule in self.wiring.rules:
            rows = rule.adjust(role, rows, self.weights, at, self.wiring)
        return rows

    def for_all_heads(self, rows: Tensor) -> Tensor:
        """Keys or values, repeated for the query heads that share them."""
        sizes = self.wiring.sizes
        n_each = sizes.n_heads // sizes.kv_heads
        if n_each == 1 or rows.shape[2] >= sizes.n_heads:
            return rows
        return rows.repeat_interleave(n_each, 2)


class _Reached(NamedTuple):
    """What the backward pass needs: what the norm keeps, a leaf of the graph and its end."""

    normed: list[Tensor]
    rows: Tensor
    added: Tensor


@dataclass
class _Reused:
    """Keys and values for the layers above.

    Attributes:
        made: in this layer's graph. leaves: the same in the graphs of the layers above.
        d_made: their gradient, as far as it is known.
    """

    made: tuple[Tensor, Tensor]
    leaves: tuple[Tensor, Tensor]
    d_made: list[Tensor | None]

    def add(self, found: Sequence[Tensor | None]) -> None:
        """Add what one layer has found."""
        for place, gradient in enumerate(found):
            known = self.d_made[place]
            if gradient is not None:
                self.d_made[place] = gradient if known is None else known + gradient


class WiredAttention:
    """One residual attention layer of one variant; the interface of `attnkit.attention.Attention`.

    Args:
        heads: what it computes; its weights are leaves of the graph.
        gradients: where the gradients of the weights go, by the wiring's names.
        adds: names of those that are added to what a layer above has written.
        mask: (i, j), added to the scores; None adds nothing.
        place: who asks, and who is looked at.
        answers_from: the first position that is read from this layer; 0 in all but the last.
            Where not everyone asks, all are read.
        leader: the layer whose keys and values this one uses; None: its own.
    """

    def __init__(
        self,
        heads: Heads,
        norm: Norm,
        gradients: dict[str, Tensor],
        mask: Float[Tensor, "i j"] | None,
        *,
        adds: Collection[str],
        n_ctx: int,
        place: Place,
        answers_from: int,
        leader: WiredAttention | None = None,
    ) -> None:
        self.heads = heads
        self.norm = norm
        self._gradients, self._adds = gradients, adds
        self._mask, self._n_ctx = mask, n_ctx
        self._place, self._answers_from = place, answers_from
        self._leader = leader
        self._reused: _Reused | None = None

    def forward(
        self,
        x: Float[Tensor, "r t m"],
        layers: list[Layer] | None = None,
    ) -> tuple[Float[Tensor, "r a m"], _Reached]:
        """The residual stream after this layer, at the positions that are read; x is overwritten.

        A graph for `backward` is kept where gradients are enabled.

        Args:
            layers: if given, all positions ask, and this layer's scores and pattern are appended.
        """
        first = 0 if layers is not None else self._answers_from
        rows, normed = self.norm.forward(x)
        rows = rows.detach().requires_grad_(torch.is_grad_enabled())
        by_example = rows.view(len(x), -1, self._n_ctx, x.shape[-1])
        asks, looks = slice(*self._place.asks), slice(*self._place.looks)
        at = torch.arange(self._n_ctx, device=x.device)  # counted on each side by itself
        asking, looked_at = at[: asks.stop - asks.start][first:], at[: looks.stop - looks.start]
        heads = self.heads
        store = heads.store(by_example[:, :, looks]) if self._leader is None else None
        k, v = self._keys_and_values(store, looked_at)
        asked = dict[str, Tensor]()
        if self._place.square and store is not None:
            asked = {name: made[:, :, :, first:] for name, made in store.items()}
        q = heads.queries(by_example[:, :, asks][:, :, first:], asked, asking)
        scores = heads.scores(q, k, asking, looked_at)
        pattern = heads.pattern(scores, None if self._mask is None else self._mask[first:])
        added = heads.read_out(pattern, v)
        if layers is not None:
            layers.append(Layer(scores.flatten(2, 3), pattern))
        after = x
        if first:
            after = x.view_as(by_example)[:, :, first:].reshape(len(x), -1, x.shape[-1])
        self._asking(after, first).add_(added.detach().view(*q.shape[:2], -1, x.shape[-1]))
        return after, _Reached(normed, rows, added)

    def backward(self, dy: Float[Tensor, "r a m"], saved: _Reached) -> Float[Tensor, "r t m"]:
        """The gradient of x; dy is overwritten."""
        first = self._answers_from if dy.shape[1] != saved.rows.shape[1] else 0
        ends, d_ends = [saved.added], [self._asking(dy, first).flatten(1, 2)]
        if self._reused is not None:  # what the layers above have made of it
            used = zip(self._reused.made, self._reused.d_made, strict=True)
            for end, d_end in used:
                if d_end is not None:
                    ends.append(end)
                    d_ends.append(d_end)
            self._reused = None
        lent = None if self._leader is None else self._leader._reused
        leaves = [saved.rows, *self.heads.weights.values(), *(lent.leaves if lent else ())]
        d_rows, *d_leaves = torch.autograd.grad(ends, leaves, d_ends, allow_unused=True)
        if lent is not None:
            lent.add(d_leaves[-2:])
        for name, d_weight in zip(self.heads.weights, d_leaves, strict=False):
            self._write(name, d_weight)
        if not first:
            return self.norm.backward(d_rows, saved.normed, onto=dy)
        dx = self.norm.backward(d_rows, saved.normed)
        by_example = dx.view(len(dx), -1, self._n_ctx, dx.shape[-1])
        by_example[:, :, first:] += dy.view(*by_example.shape[:2], -1, dy.shape[-1])
        return dx

    def _asking(self, x: Float[Tensor, "r t m"], first: int) -> Float[Tensor, "r b a m"]:
        """A view of the rows of those who ask; of x, the positions from the first on are there."""
        by_example = x.view(len(x), -1, self._n_ctx - first, x.shape[-1])
        start, stop = self._place.asks
        return by_example if first else by_example[:, :, start:stop]

    def _write(self, name: str, found: Tensor | None) -> None:
        gradient = self._gradients[name]
        if name in self._adds:
            if found is not None:
                gradient += found
        elif found is None:
            gradient.zero_()
        else:
            gradient.copy_(found)

    def _keys_and_values(
        self, store: dict[str, Tensor] | None, at: Tensor
    ) -> tuple[Tensor, Tensor]:
        """This layer's, or those that its leader has made in this forward pass."""
        if store is None:
            assert self._leader is not None
            assert self._leader._reused is not None
            return self._leader._reused.leaves
        made = self.heads.keys_and_values(store, at)
        if self.heads.wiring.reuse > 1:
            k, v = (rows.detach().requires_grad_(torch.is_grad_enabled()) for rows in made)
            self._reused = _Reused(made, (k, v), [None, None])
        return made
