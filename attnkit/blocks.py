"""The parts of the toy transformer, batched over runs, each with its backward pass by hand.

A block's `forward` returns its output and what its `backward` needs; `backward` takes the gradient
of the output, writes those of the parameters where they belong, and returns that of the input.
Written out, a step makes few passes over memory: tied roles are projected once, sums of gradients
happen inside the matrix products, and the last layer asks from the answering positions only.
tests/test_blocks.py holds each against autograd on plain PyTorch.

Index letters as in `attnkit.model`; `t` = b·i flattened, `a` the positions that ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.sharing import Role, Sharing

NARROW = 16
"""Width below which a single run's products are computed as a batch of two; see `multiply`."""

_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Layout:
    """Which runs stand where: ordered by sharing, then seed."""

    sharings: tuple[Sharing, ...]
    n_seeds: int

    @property
    def n_runs(self) -> int:
        """Sharings × seeds."""
        return len(self.sharings) * self.n_seeds

    def owners(self, role: Role) -> slice:
        """The runs that own a matrix of this role; contiguous."""
        places = [i for i, sharing in enumerate(self.sharings) if sharing.owns(role)]
        return self._runs(places[0], places[-1] + 1) if places else slice(0, 0)

    def pieces(self, kind: Callable[[Sharing], _Kind]) -> Iterator[tuple[slice, _Kind]]:
        """Neighbouring runs whose sharings are of one kind."""
        start = 0
        while start < len(self.sharings):
            found, stop = kind(self.sharings[start]), start + 1
            while stop < len(self.sharings) and kind(self.sharings[stop]) == found:
                stop += 1
            yield self._runs(start, stop), found
            start = stop

    def _runs(self, start: int, stop: int) -> slice:
        return slice(start * self.n_seeds, stop * self.n_seeds)


@dataclass(frozen=True)
class Layer:
    """What one attention layer computed, for measuring.

    Attributes:
        scores: scaled, before masks and softmax.
        pattern: after softmax.
    """

    scores: Float[Tensor, "r b h i j"]
    pattern: Float[Tensor, "r b h i j"]


@dataclass
class Parameter:
    """The numbers of one name and where their gradient goes."""

    value: Tensor
    gradient: Tensor

    @cached_property
    def back(self) -> Tensor:
        """The value as a gradient meets it on its way back."""
        return self.value.transpose(1, 2)


class Embedding:
    """Looks tokens up: one table row serves all sharings of a seed.

    Args:
        table: (s·vocab, v·m). positions: (r, i, m), or None.
    """

    def __init__(self, layout: Layout, table: Parameter, positions: Parameter | None) -> None:
        self._layout, self._table, self._positions = layout, table, positions
        n_vocab = len(table.value) // layout.n_seeds
        self._offsets = torch.arange(layout.n_seeds, device=table.value.device) * n_vocab

    def forward(
        self, tokens: Int64[Tensor, "s b i fields"]
    ) -> tuple[Float[Tensor, "r t m"], list[Tensor]]:
        """The sum over a token's fields, and its position's vector."""
        n_seeds, n_batch, n_ctx, n_fields = tokens.shape
        ids = tokens + self._offsets.view(-1, 1, 1, 1)
        by_field = [ids[..., field].reshape(-1) for field in range(n_fields)]
        rows = self._table.value.index_select(0, by_field[0])
        for field in by_field[1:]:
            rows += self._table.value.index_select(0, field)
        by_run = rows.view(n_seeds, n_batch, n_ctx, len(self._layout.sharings), -1)
        by_run = by_run.permute(3, 0, 1, 2, 4)  # (v, s, b, i, m)
        x = rows.new_empty(by_run.shape)
        if self._positions is None:
            x.copy_(by_run)
        else:
            at = self._positions.value.view(*by_run.shape[:2], 1, n_ctx, -1)
            torch.add(by_run, at, out=x)
        return x.view(self._layout.n_runs, n_batch * n_ctx, -1), by_field

    def backward(self, dx: Float[Tensor, "r t m"], by_field: list[Tensor]) -> None:
        """Nothing stands before it, so nothing is returned."""
        layout, width = self._layout, dx.shape[-1]
        if self._positions is not None:
            by_example = dx.view(layout.n_runs, -1, self._positions.value[0].numel())
            ones = dx.new_ones(1, 1, 1).expand(layout.n_runs, 1, by_example.shape[1])
            multiply(self._positions.gradient.view(layout.n_runs, 1, -1), ones, by_example)
        by_token = dx.view(len(layout.sharings), -1, width).transpose(0, 1)
        rows = by_token.reshape(-1, self._table.value.shape[1])
        self._table.gradient.zero_()
        for field in by_field:
            self._table.gradient.index_add_(0, field, rows)


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
            start = layout.owners(role).start
            own = slice(runs.start - start, runs.stop - start)
            weight = Parameter(roles[role].value[own], roles[role].gradient[own])
            writes = _alike(runs, written)
            written |= set(range(runs.start, runs.stop))
            self.projections.append(_Projection(role, runs, everywhere, weight, writes))
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

    normed: Float[Tensor, "r t m"]
    inverse: Float[Tensor, "r t 1"]
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
        roles: dict[Role, Parameter],
        out: Parameter,
        mask: Float[Tensor, "i j"] | None,
        *,
        n_ctx: int,
        n_heads: int,
        answers_from: int,
    ) -> None:
        self._out, self._mask = out, mask
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
        normed, inverse = rms_norm(x)
        rows, made = [], []
        for projection in plan.projections:
            of = _part(normed, projection.runs)
            rows.append(of if projection.everywhere else self._tail(of, first))
            made.append(self._split(product(rows[-1], projection.weight.value), n_batch))
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
        return after, _Attended(normed, inverse, rows, made, asking, pattern, merged)

    def backward(self, dy: Float[Tensor, "r a m"], saved: _Attended) -> Float[Tensor, "r t m"]:
        """The gradient of x; dy is overwritten."""
        normed, inverse, rows, made, asking, pattern, z = saved
        first = self._n_ctx - asking.shape[1]
        plan = self._plans[first > 0]
        n_batch, each = self._counts(normed)
        multiply(self._out.gradient, z.transpose(1, 2), dy)
        dz = self._split(product(dy, self._out.back), n_batch)
        d_made = self._through_attention(plan, made, asking, pattern, dz, each)
        dx = torch.empty_like(normed)
        for projection, into, d_values in zip(plan.projections, rows, d_made, strict=True):
            d_rows, weight = self._merge(d_values, n_batch), projection.weight
            multiply(weight.gradient, into.transpose(1, 2), d_rows)
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
            return rms_norm_backward(dx, normed, inverse, onto=dy)
        dx = rms_norm_backward(dx, normed, inverse)
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
        d_scores = _softmax_backward(d_pattern, pattern)
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
            values[:, first:] if first and projection.everywhere else values
            for projection, values in zip(plan.projections, made, strict=True)
            if projection.role == "Q"
        ]
        if len(queries) == 1:
            return queries[0].contiguous()
        order = [p.runs.start for p in plan.projections if p.role == "Q"]
        return torch.cat([q for _, q in sorted(zip(order, queries, strict=True), key=_first)])

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


class Mlp:
    """One residual MLP with GELU.

    Args:
        up: (r, m, f). down: (r, f, m).
    """

    def __init__(self, up: Parameter, down: Parameter) -> None:
        self._up, self._down = up, down

    def forward(self, x: Float[Tensor, "r t m"]) -> tuple[Float[Tensor, "r t m"], list[Tensor]]:
        """The residual stream after it; x is overwritten."""
        normed, inverse = rms_norm(x)
        hidden = product(normed, self._up.value)
        active = F.gelu(hidden)
        multiply(x, active, self._down.value, add=True)
        return x, [normed, inverse, hidden, active]

    def backward(self, dy: Float[Tensor, "r t m"], saved: list[Tensor]) -> Float[Tensor, "r t m"]:
        """The gradient of x."""
        normed, inverse, hidden, active = saved
        multiply(self._down.gradient, active.transpose(1, 2), dy)
        d_hidden = product(dy, self._down.back)
        torch.ops.aten.gelu_backward(d_hidden, hidden, grad_input=d_hidden)
        multiply(self._up.gradient, normed.transpose(1, 2), d_hidden)
        d_normed = product(d_hidden, self._up.back)
        return rms_norm_backward(d_normed, normed, inverse, onto=dy)


class ReadOut:
    """From the residual stream to the logits of the answers.

    Args:
        w_u: (r, m, c).
    """

    def __init__(self, layout: Layout, w_u: Parameter) -> None:
        self._layout, self._w_u = layout, w_u
        self._minus_one = torch.full((1, 1, 1), -1.0, device=w_u.value.device)

    def forward(self, x: Float[Tensor, "r a m"]) -> tuple[Float[Tensor, "r a c"], list[Tensor]]:
        """Logits."""
        normed, inverse = rms_norm(x)
        return product(normed, self._w_u.value), [normed, inverse]

    def backward(
        self,
        logits: Float[Tensor, "r a c"],
        labels: Int64[Tensor, "s b a"],
        saved: list[Tensor],
    ) -> Float[Tensor, "r a m"]:
        """The gradient of x, of every run's mean cross-entropy."""
        normed, inverse = saved
        d_logits = logits.softmax(-1)
        n_sharings = len(self._layout.sharings)
        by_run = labels.expand(n_sharings, *labels.shape).reshape(*logits.shape[:2], 1)
        d_logits.scatter_add_(-1, by_run, self._minus_one.expand_as(by_run))
        each = 1 / logits.shape[1]
        multiply(self._w_u.gradient, normed.transpose(1, 2), d_logits, alpha=each)
        d_normed = product(d_logits, self._w_u.back, alpha=each)
        return rms_norm_backward(d_normed, normed, inverse)


def rms_norm(x: Float[Tensor, "r t m"]) -> tuple[Float[Tensor, "r t m"], Float[Tensor, "r t 1"]]:
    """x over its root mean square, and one over that."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    inverse = torch.addcmul(_epsilon(x.device), norm, norm, value=1 / x.shape[-1]).rsqrt_()
    return x * inverse, inverse


def rms_norm_backward(
    d_normed: Float[Tensor, "r t m"],
    normed: Float[Tensor, "r t m"],
    inverse: Float[Tensor, "r t 1"],
    onto: Float[Tensor, "r t m"] | None = None,
) -> Float[Tensor, "r t m"]:
    """The gradient of x; added to `onto`, or in place of that of x's norm."""
    along = (d_normed * normed).sum(-1, keepdim=True)
    d_normed.addcmul_(normed, along, value=-1 / normed.shape[-1])
    return d_normed.mul_(inverse) if onto is None else onto.addcmul_(d_normed, inverse)


@cache
def _epsilon(device: torch.device) -> Tensor:
    """Keeps the norm of nothing finite."""
    return torch.tensor(1e-6, device=device)


def _softmax_backward(d_pattern: Tensor, pattern: Tensor) -> Tensor:
    """On one thread: of all that is computed here, its rounding alone depends on their number."""
    n_threads = torch.get_num_threads()
    if n_threads > 1:
        torch.set_num_threads(1)
    d_scores = torch._softmax_backward_data(d_pattern, pattern, -1, pattern.dtype)
    if n_threads > 1:
        torch.set_num_threads(n_threads)
    return d_scores


def product(
    a: Float[Tensor, "r i k"], b: Float[Tensor, "r k j"], alpha: float = 1.0
) -> Float[Tensor, "r i j"]:
    """Each run's alpha · a @ b."""
    if alpha == 1 and not _alone(a, b):
        return torch.bmm(a, b)
    out = a.new_empty(len(a), a.shape[1], b.shape[2])
    multiply(out, a, b, alpha=alpha)
    return out


def multiply(
    out: Float[Tensor, "r i j"],
    a: Float[Tensor, "r i k"],
    b: Float[Tensor, "r k j"],
    *,
    alpha: float = 1.0,
    add: bool = False,
) -> None:
    """Write each run's alpha · a @ b into `out`, or add it; equal bits for any number of runs.

    A batch of one goes through another BLAS kernel than a larger one, and for narrow matrices the
    two round the gradient of a weight differently (seen for widths of 5 to 11). A narrow run that
    is alone is computed twice, which costs next to nothing.
    """
    if _alone(a, b):
        twice = out.repeat(2, 1, 1) if add else out.new_empty(2, *out.shape[1:])
        multiply(twice, a.expand(2, -1, -1), b.expand(2, -1, -1), alpha=alpha, add=add)
        out.copy_(twice[:1])
        return
    if alpha == 1 and not add:
        torch.bmm(a, b, out=out)
    else:
        torch.baddbmm(out, a, b, beta=int(add), alpha=alpha, out=out)


def _alone(a: Tensor, b: Tensor) -> bool:
    return len(a) == 1 and min(a.shape[1], a.shape[2], b.shape[2]) < NARROW


def _part(x: Tensor, runs: slice) -> Tensor:
    """x[runs], for nothing if that is all of it."""
    return x if runs == slice(0, len(x)) else x[runs]


def _first(pair: tuple[int, Tensor]) -> int:
    return pair[0]
