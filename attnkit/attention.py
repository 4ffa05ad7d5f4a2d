"""Residual attention, batched over runs whose roles share their matrices in different ways.

A `_Plan` says once what is projected and who reads it; a step then only follows it. Runs stand in
`attnkit.model.COHORT_ORDER`, so that those that own a matrix are neighbours, and so are those that
read the same one. Index letters as in `attnkit.model`; `t` = b·i flattened, `a` the positions that
ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnkit.blocks import (
    NARROW,
    Layout,
    Norm,
    Parameter,
    multiply,
    product,
)
from attnkit.sharing import Role, Sharing


@dataclass(frozen=True)
class Layer:
    """What one attention layer computed, for measuring.

    Attributes:
        scores: scaled, before masks and softmax.
        pattern: after softmax.
    """

    scores: Float[Tensor, "r b h i j"]
    pattern: Float[Tensor, "r b h i j"]


@dataclass(frozen=True)
class _Projection:
    """Some runs' rows times their matrix of one role.

    Attributes:
        everywhere: at all positions; otherwise where answers are read.
        weight: the runs' matrices.
        writes: runs, and whether the gradient of their rows is added to what an earlier
            projection of the plan has written.
    """

    role: Role
    runs: slice
    everywhere: bool
    weight: Parameter
    writes: list[tuple[slice, bool]]


@dataclass(frozen=True)
class _Read:
    """Where neighbouring runs find what a projection made.

    Attributes:
        projection: its place in the plan. part: the runs among the projection's; None: all.
        also: whether these values are read in another role as well, whose gradient comes first.
    """

    n_runs: int
    projection: int
    part: slice | None
    also: bool

    def of(self, made: list[Tensor], each: int) -> Tensor:
        """These runs' values; `each` matrices belong to a run."""
        if self.part is None:
            return made[self.projection]
        return made[self.projection][self.part.start * each : self.part.stop * each]


class _Plan:
    """What is projected, in which order, and who reads it as queries, keys and values.

    Attributes:
        queries: places of the projections of Q, in the order of their runs.

    Args:
        asked: whether queries that are nobody's keys or values are projected only where answers
            are read.
    """

    def __init__(self, layout: Layout, roles: dict[Role, Parameter], *, asked: bool) -> None:
        def serves_others(sharing: Sharing) -> bool:
            return "Q" in (sharing.owner("K"), sharing.owner("V"))

        kind = serves_others if asked else lambda _: True
        wanted: list[tuple[Role, slice, bool]] = [
            ("Q", runs, everywhere) for runs, everywhere in layout.pieces(kind)
        ]
        wanted += [(role, layout.owners(role), True) for role in roles if role != "Q"]
        wanted.sort(key=lambda projection: not projection[2])  # all positions are written first
        written: set[int] = set()
        self.projections: list[_Projection] = []
        for role, runs, everywhere in wanted:
            own = layout.among_owners(role, runs)
            weight = roles[role].of(own)
            writes = _alike(runs, written)
            written |= set(range(runs.start, runs.stop))
            self.projections.append(_Projection(role, runs, everywhere, weight, writes))
        self.queries = sorted(
            (place for place, made in enumerate(self.projections) if made.role == "Q"),
            key=lambda place: self.projections[place].runs.start,
        )
        self.as_keys = [
            self._read(runs, owner, False) for runs, owner in layout.pieces(lambda s: s.owner("K"))
        ]
        self.as_values = [
            self._read(runs, owner, also)
            for runs, (owner, also) in layout.pieces(
                lambda s: (s.owner("V"), s.owner("V") == s.owner("K"))
            )
        ]
        self.as_queries = [
            (self._read(runs, "Q", also), self._read(runs, owner, False))
            for runs, (owner, also) in layout.pieces(lambda s: (s.owner("K"), serves_others(s)))
        ]

    def _read(self, runs: slice, role: Role, also: bool) -> _Read:
        n_runs = runs.stop - runs.start
        for place, made in enumerate(self.projections):
            if made.role == role and made.runs.start <= runs.start < made.runs.stop:
                start = runs.start - made.runs.start
                part = None if made.runs == runs else slice(start, start + n_runs)
                return _Read(n_runs, place, part, also)
        raise AssertionError(f"nothing projects {role} for {runs}")


def _alike(runs: slice, written: set[int]) -> list[tuple[slice, bool]]:
    """Neighbouring runs that all have been written, or all have not."""
    pieces: list[tuple[slice, bool]] = []
    for run in range(runs.start, runs.stop):
        start, add = run, run in written
        if pieces and pieces[-1][1] == add:
            start = pieces.pop()[0].start
        pieces.append((slice(start, run + 1), add))
    return pieces


class _Attended(NamedTuple):
    """What a layer's backward pass needs.

    Attributes:
        rows: what went into each projection. made: what came out, (runs·b·h, i, d).
    """

    normed: list[Tensor]
    rows: list[Tensor]
    made: list[Tensor]
    asking: Float[Tensor, "rbh a d"]
    pattern: Float[Tensor, "rbh a j"]
    z: Float[Tensor, "r a hd"]


class Attention:
    """One residual attention layer.

    Args:
        roles: the matrices that exist, (runs that own it, m, h·d) each.
        out: (r, h·d, m).
        mask: (i, j), added to the scores; None adds nothing.
        n_heads: how many heads share the columns of a matrix.
        answers_from: the first position that is read from this layer; 0 in all but the last.
    """

    def __init__(
        self,
        layout: Layout,
        norm: Norm,
        roles: dict[Role, Parameter],
        out: Parameter,
        mask: Float[Tensor, "i j"] | None,
        *,
        n_ctx: int,
        n_heads: int,
        answers_from: int,
    ) -> None:
        self.norm, self._out, self._mask = norm, out, mask
        self._n_ctx, self._n_heads = n_ctx, n_heads
        self._answers_from = answers_from
        inner = out.value.shape[1]
        self._scale = (inner // n_heads) ** -0.5
        whole = _Plan(layout, roles, asked=False)
        # Narrow queries stay in one call, so that no run is ever alone in one; see `multiply`.
        self._plans = [whole, _Plan(layout, roles, asked=True) if inner >= NARROW else whole]

    def forward(
        self, x: Float[Tensor, "r t m"], layers: list[Layer] | None = None
    ) -> tuple[Float[Tensor, "r a m"], _Attended]:
        """The residual stream after this layer, at the positions that are read; x is overwritten.

        Args:
            layers: if given, all positions ask, and this layer's scores and pattern are appended.
        """
        first = 0 if layers is not None else self._answers_from
        plan = self._plans[first > 0]
        n_batch, each = self._counts(x)
        normalised, normed = self.norm.forward(x)
        rows, made = [], []
        for projection in plan.projections:
            of = _part(normalised, projection.runs)
            rows.append(of if projection.everywhere else self._tail(of, first))
            made.append(self._split(projection.weight.apply(rows[-1]), n_batch))
        asking = self._asking(plan, made, first)
        scores = x.new_empty(len(asking), asking.shape[1], self._n_ctx)
        sizes = [read.n_runs * each for read in plan.as_keys]
        for read, s, q in zip(plan.as_keys, scores.split(sizes), asking.split(sizes), strict=True):
            multiply(s, q, read.of(made, each).transpose(1, 2), alpha=self._scale)
        pattern = self._soften(scores, first, layers, (len(x), n_batch, self._n_heads))
        z = torch.empty_like(asking)
        sizes = [read.n_runs * each for read in plan.as_values]
        for read, to, p in zip(plan.as_values, z.split(sizes), pattern.split(sizes), strict=True):
            multiply(to, p, read.of(made, each))
        merged = self._merge(z, n_batch)
        after = self._tail(x, first) if first else x
        multiply(after, merged, self._out.value, add=True)
        if self._out.bias is not None:
            after += self._out.bias.value.unsqueeze(1)
        return after, _Attended(normed, rows, made, asking, pattern, merged)

    def backward(self, dy: Float[Tensor, "r a m"], saved: _Attended) -> Float[Tensor, "r t m"]:
        """The gradient of x; dy is overwritten."""
        normed, rows, made, asking, pattern, z = saved
        first = self._n_ctx - asking.shape[1]
        plan = self._plans[first > 0]
        n_batch, each = self._counts(normed[0])
        self._out.learn(z, dy)
        dz = self._split(product(dy, self._out.back), n_batch)
        d_made = self._through_attention(plan, made, asking, pattern, dz, each)
        dx = torch.empty_like(normed[0])
        for projection, into, d_values in zip(plan.projections, rows, d_made, strict=True):
            d_rows, weight = self._merge(d_values, n_batch), projection.weight
            weight.learn(into, d_rows)
            back = weight.back
            if not projection.everywhere:
                d_asked = self._examples(product(d_rows, back), self._n_ctx - first)
                self._examples(dx[projection.runs], self._n_ctx)[:, :, first:] += d_asked
                continue
            start = projection.runs.start
            for runs, add in projection.writes:
                own = slice(runs.start - start, runs.stop - start)
                multiply(_part(dx, runs), _part(d_rows, own), _part(back, own), add=add)
        if not first:
            return self.norm.backward(dx, normed, onto=dy)
        dx = self.norm.backward(dx, normed)
        self._examples(dx, self._n_ctx)[:, :, first:] += self._examples(dy, self._n_ctx - first)
        return dx

    def _through_attention(
        self,
        plan: _Plan,
        made: list[Tensor],
        asking: Tensor,
        pattern: Tensor,
        dz: Float[Tensor, "rbh a d"],
        each: int,
    ) -> list[Tensor]:
        """The gradient of every projection's values: as keys, then as values, then as queries."""
        d_made = [torch.empty_like(values) for values in made]
        d_pattern = torch.empty_like(pattern)
        sizes = [read.n_runs * each for read in plan.as_values]
        patterns, d_patterns, dzs = (part.split(sizes) for part in (pattern, d_pattern, dz))
        for read, to, d in zip(plan.as_values, d_patterns, dzs, strict=True):
            multiply(to, d, read.of(made, each).transpose(1, 2))
        d_scores = torch._softmax_backward_data(d_pattern, pattern, -1, pattern.dtype)
        sizes = [read.n_runs * each for read in plan.as_keys]
        keyed = zip(plan.as_keys, d_scores.split(sizes), asking.split(sizes), strict=True)
        for read, d, q in keyed:
            multiply(read.of(d_made, each), d.transpose(1, 2), q, alpha=self._scale)
        for read, p, d in zip(plan.as_values, patterns, dzs, strict=True):
            multiply(read.of(d_made, each), p.transpose(1, 2), d, add=read.also)
        asked = d_scores.split([query.n_runs * each for query, _ in plan.as_queries])
        for (query, key), d in zip(plan.as_queries, asked, strict=True):
            dq, k = query.of(d_made, each), key.of(made, each)
            if dq.shape[1] == d.shape[1]:
                multiply(dq, d, k, alpha=self._scale, add=query.also)
                continue
            if not query.also:
                dq.zero_()
            dq[:, -d.shape[1] :] += product(d, k, alpha=self._scale)
        return d_made

    def _soften(
        self,
        scores: Float[Tensor, "rbh a j"],
        first: int,
        layers: list[Layer] | None,
        shape: tuple[int, int, int],
    ) -> Float[Tensor, "rbh a j"]:
        """The pattern, in place of the scores unless they are wanted, too."""
        if layers is None:
            if self._mask is not None:
                scores += self._mask[first:]
            return torch.softmax(scores, -1, out=scores)
        pattern = torch.softmax(scores if self._mask is None else scores + self._mask, -1)
        layers.append(Layer(scores.unflatten(0, shape), pattern.unflatten(0, shape)))
        return pattern

    def _asking(self, plan: _Plan, made: list[Tensor], first: int) -> Float[Tensor, "rbh a d"]:
        """The queries of the positions that are read, of all runs."""
        queries = [
            made[place][:, first:] if first and plan.projections[place].everywhere else made[place]
            for place in plan.queries
        ]
        return queries[0].contiguous() if len(queries) == 1 else torch.cat(queries)

    def _counts(self, x: Tensor) -> tuple[int, int]:
        """Examples in the batch, and how many matrices of scores a run has."""
        n_batch = x.shape[1] // self._n_ctx
        return n_batch, n_batch * self._n_heads

    def _examples(self, x: Float[Tensor, "r t m"], n_each: int) -> Float[Tensor, "r b i m"]:
        return x.view(len(x), -1, n_each, x.shape[-1])

    def _tail(self, x: Float[Tensor, "r t m"], first: int) -> Float[Tensor, "r a m"]:
        """A copy of the positions that are read."""
        return self._examples(x, self._n_ctx)[:, :, first:].reshape(len(x), -1, x.shape[-1])

    def _split(self, x: Float[Tensor, "r t hd"], n_batch: int) -> Float[Tensor, "rbh i d"]:
        n_heads, inner = self._n_heads, x.shape[-1]
        if n_heads == 1:
            return x.view(len(x) * n_batch, -1, inner)
        heads = x.view(len(x) * n_batch, -1, n_heads, inner // n_heads).transpose(1, 2)
        return heads.reshape(len(x) * n_batch * n_heads, -1, inner // n_heads)

    def _merge(self, z: Float[Tensor, "rbh i d"], n_batch: int) -> Float[Tensor, "r t hd"]:
        n_heads, d_head = self._n_heads, z.shape[-1]
        n_runs = len(z) // (n_batch * n_heads)
        if n_heads == 1:
            return z.view(n_runs, -1, d_head)
        heads = z.view(n_runs * n_batch, n_heads, -1, d_head).transpose(1, 2)
        return heads.reshape(n_runs, -1, n_heads * d_head)


def _part(x: Tensor, runs: slice) -> Tensor:
    """x[runs], for nothing if that is all of it."""
    return x if runs == slice(0, len(x)) else x[runs]
