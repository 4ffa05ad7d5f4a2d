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
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.sharing import ROLES, Role, Sharing

NARROW = 16
"""Width below which a single run's products are computed as a batch of two; see `multiply`."""

_Kind = TypeVar("_Kind")

_EPSILON = 1e-6
"""Of RMSNorm."""


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


class _Projection(NamedTuple):
    """Some runs' rows times their matrix of one role.

    Attributes:
        everywhere: at all positions; otherwise where answers are read.
    """

    role: Role
    runs: slice
    everywhere: bool


class _Attended(NamedTuple):
    """What a layer's backward pass needs.

    Attributes:
        rows: what went into each projection. own: what came out, (runs·b·h, i, d).
    """

    normed: Float[Tensor, "r t m"]
    inverse: Float[Tensor, "r t 1"]
    rows: list[Tensor]
    own: list[Tensor]
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
        self._roles, self._out, self._mask = roles, out, mask
        self._n_ctx, self._n_heads = n_ctx, n_heads
        self._answers_from = answers_from
        inner = out.value.shape[1]
        self._scale = (inner // n_heads) ** -0.5
        self._owners = {role: layout.owners(role) for role in ROLES}
        others = [_Projection(role, self._owners[role], True) for role in roles if role != "Q"]
        everywhere = [_Projection("Q", slice(0, layout.n_runs), True), *others]
        asked = [
            _Projection("Q", runs, shared)
            for runs, shared in layout.pieces(lambda s: "Q" in (s.owner("K"), s.owner("V")))
        ]
        # Narrow queries stay in one call, so that no run is ever alone in one; see `multiply`.
        self._plans = [everywhere, [*asked, *others] if inner >= NARROW else everywhere]
        self._k_pieces = list(layout.pieces(lambda s: s.owner("K")))
        self._v_pieces = list(layout.pieces(lambda s: (s.owner("V"), s.owner("V") == s.owner("K"))))
        self._q_pieces = list(
            layout.pieces(lambda s: (s.owner("K"), "Q" in (s.owner("K"), s.owner("V"))))
        )

    def forward(
        self, x: Float[Tensor, "r t m"], layers: list[Layer] | None = None
    ) -> tuple[Float[Tensor, "r a m"], _Attended]:
        """The residual stream after this layer, at the positions that are read; x is overwritten.

        Args:
            layers: if given, all positions ask, and this layer's scores and pattern are appended.
        """
        first = 0 if layers is not None else self._answers_from
        n_batch, each = self._counts(x)
        normed, inverse = rms_norm(x)
        rows, own = [], []
        for role, runs, everywhere in self._plan(first):
            rows.append(normed[runs] if everywhere else self._tail(normed[runs], first))
            own.append(self._split(product(rows[-1], self._weight(role, runs).value), n_batch))
        asking = self._asking(own, first)
        scores = x.new_empty(len(asking), asking.shape[1], self._n_ctx)
        for runs, owner in self._k_pieces:
            k = self._of(own, owner, runs, first, each)
            at = _times(runs, each)
            multiply(scores[at], asking[at], k.transpose(1, 2), alpha=self._scale)
        if layers is None:
            if self._mask is not None:
                scores += self._mask[first:]
            pattern = torch.softmax(scores, -1, out=scores)
        else:
            pattern = torch.softmax(scores if self._mask is None else scores + self._mask, -1)
            shape = (len(x), n_batch, self._n_heads)
            layers.append(Layer(scores.unflatten(0, shape), pattern.unflatten(0, shape)))
        z = torch.empty_like(asking)
        for runs, (owner, _) in self._v_pieces:
            at = _times(runs, each)
            multiply(z[at], pattern[at], self._of(own, owner, runs, first, each))
        merged = self._merge(z, n_batch)
        after = self._tail(x, first) if first else x
        multiply(after, merged, self._out.value, add=True)
        return after, _Attended(normed, inverse, rows, own, asking, pattern, merged)

    def backward(self, dy: Float[Tensor, "r a m"], saved: _Attended) -> Float[Tensor, "r t m"]:
        """The gradient of x."""
        normed, inverse, rows, own, asking, pattern, z = saved
        first = self._n_ctx - asking.shape[1]
        n_batch, each = self._counts(normed)
        multiply(self._out.gradient, z.transpose(1, 2), dy)
        dz = self._split(product(dy, self._out.value.transpose(1, 2)), n_batch)
        d_pattern = torch.empty_like(pattern)
        for runs, (owner, _) in self._v_pieces:
            at = _times(runs, each)
            v = self._of(own, owner, runs, first, each)
            multiply(d_pattern[at], dz[at], v.transpose(1, 2))
        d_scores = torch._softmax_backward_data(d_pattern, pattern, -1, pattern.dtype)
        d_own = [torch.empty_like(values) for values in own]
        for runs, owner in self._k_pieces:
            at = _times(runs, each)
            dk = self._of(d_own, owner, runs, first, each)
            multiply(dk, d_scores[at].transpose(1, 2), asking[at], alpha=self._scale)
        for runs, (owner, also_keys) in self._v_pieces:
            at = _times(runs, each)
            dv = self._of(d_own, owner, runs, first, each)
            multiply(dv, pattern[at].transpose(1, 2), dz[at], add=also_keys)
        for runs, (owner, shared) in self._q_pieces:
            at = _times(runs, each)
            dq, k = self._of(d_own, "Q", runs, first, each), self._of(own, owner, runs, first, each)
            if dq.shape[1] == asking.shape[1]:
                multiply(dq, d_scores[at], k, alpha=self._scale, add=shared)
                continue
            if not shared:
                dq.zero_()
            dq[:, first:] += product(d_scores[at], k, alpha=self._scale)
        dx = torch.zeros_like(normed) if first else torch.empty_like(normed)
        for (role, runs, everywhere), into, values in zip(
            self._plan(first), rows, d_own, strict=True
        ):
            weight, d_values = self._weight(role, runs), self._merge(values, n_batch)
            multiply(weight.gradient, into.transpose(1, 2), d_values)
            w = weight.value.transpose(1, 2)
            if everywhere:
                multiply(dx[runs], d_values, w, add=bool(first) or role != "Q")
            else:
                self._examples(dx[runs])[:, :, first:] += product(d_values, w).view(
                    len(w), n_batch, -1, dx.shape[-1]
                )
        dx = rms_norm_backward(dx, normed, inverse)
        if not first:
            return dx.add_(dy)
        self._examples(dx)[:, :, first:] += dy.view(len(dy), n_batch, -1, dy.shape[-1])
        return dx

    def _plan(self, first: int) -> list[_Projection]:
        return self._plans[bool(first)]

    def _weight(self, role: Role, runs: slice) -> Parameter:
        """The matrices of some of a role's owners."""
        start = self._owners[role].start
        own = slice(runs.start - start, runs.stop - start)
        return Parameter(self._roles[role].value[own], self._roles[role].gradient[own])

    def _of(self, own: list[Tensor], role: Role, runs: slice, first: int, each: int) -> Tensor:
        """What some neighbouring runs projected for a role, out of the list of projections."""
        for planned, values in zip(self._plan(first), own, strict=True):
            if planned.role == role and planned.runs.start <= runs.start < planned.runs.stop:
                start = planned.runs.start
                return values[(runs.start - start) * each : (runs.stop - start) * each]
        raise AssertionError(f"no run of {runs} projects {role}")

    def _asking(self, own: list[Tensor], first: int) -> Float[Tensor, "rbh a d"]:
        """The queries of the positions that are read, of all runs."""
        queries = [
            values[:, first:] if planned.everywhere else values
            for planned, values in zip(self._plan(first), own, strict=True)
            if planned.role == "Q"
        ]
        return queries[0].contiguous() if len(queries) == 1 else torch.cat(queries)

    def _counts(self, x: Tensor) -> tuple[int, int]:
        """Examples in the batch, and how many matrices of scores a run has."""
        n_batch = x.shape[1] // self._n_ctx
        return n_batch, n_batch * self._n_heads

    def _examples(self, x: Float[Tensor, "r t m"]) -> Float[Tensor, "r b i m"]:
        return x.view(len(x), -1, self._n_ctx, x.shape[-1])

    def _tail(self, x: Float[Tensor, "r t m"], first: int) -> Float[Tensor, "r a m"]:
        """A copy of the positions that are read."""
        return self._examples(x)[:, :, first:].reshape(len(x), -1, x.shape[-1])

    def _split(self, x: Float[Tensor, "r t hd"], n_batch: int) -> Float[Tensor, "rbh i d"]:
        heads = x.view(len(x) * n_batch, -1, self._n_heads, x.shape[-1] // self._n_heads)
        return heads.transpose(1, 2).reshape(len(x) * n_batch * self._n_heads, -1, heads.shape[-1])

    def _merge(self, z: Float[Tensor, "rbh i d"], n_batch: int) -> Float[Tensor, "r t hd"]:
        n_runs = len(z) // (n_batch * self._n_heads)
        heads = z.view(n_runs * n_batch, self._n_heads, -1, z.shape[-1])
        return heads.transpose(1, 2).reshape(n_runs, -1, self._n_heads * z.shape[-1])


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
        d_hidden = product(dy, self._down.value.transpose(1, 2))
        torch.ops.aten.gelu_backward(d_hidden, hidden, grad_input=d_hidden)
        multiply(self._up.gradient, normed.transpose(1, 2), d_hidden)
        d_normed = product(d_hidden, self._up.value.transpose(1, 2))
        return rms_norm_backward(d_normed, normed, inverse).add_(dy)


class ReadOut:
    """From the residual stream to the logits of the answers.

    Args:
        w_u: (r, m, c).
    """

    def __init__(self, layout: Layout, w_u: Parameter) -> None:
        self._layout, self._w_u = layout, w_u

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
        by_run = labels.expand(len(self._layout.sharings), *labels.shape).reshape(
            *logits.shape[:2], 1
        )
        d_logits.scatter_add_(-1, by_run, d_logits.new_full((1, 1, 1), -1).expand_as(by_run))
        each = 1 / logits.shape[1]
        multiply(self._w_u.gradient, normed.transpose(1, 2), d_logits, alpha=each)
        d_normed = product(d_logits, self._w_u.value.transpose(1, 2), alpha=each)
        return rms_norm_backward(d_normed, normed, inverse)


def rms_norm(x: Float[Tensor, "r t m"]) -> tuple[Float[Tensor, "r t m"], Float[Tensor, "r t 1"]]:
    """x over its root mean square, and one over that."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    inverse = norm.square_().mul_(1 / x.shape[-1]).add_(_EPSILON).rsqrt_()
    return x * inverse, inverse


def rms_norm_backward(
    d_normed: Float[Tensor, "r t m"],
    normed: Float[Tensor, "r t m"],
    inverse: Float[Tensor, "r t 1"],
) -> Float[Tensor, "r t m"]:
    """The gradient of x, in place of that of its norm."""
    along = (d_normed * normed).sum(-1, keepdim=True).mul_(-1 / normed.shape[-1])
    return d_normed.addcmul_(normed, along).mul_(inverse)


def product(
    a: Float[Tensor, "r i k"], b: Float[Tensor, "r k j"], alpha: float = 1.0
) -> Float[Tensor, "r i j"]:
    """Each run's alpha · a @ b."""
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
    if len(a) == 1 and min(a.shape[1], a.shape[2], b.shape[2]) < NARROW:
        twice = out.repeat(2, 1, 1) if add else out.new_empty(2, *out.shape[1:])
        multiply(twice, a.expand(2, -1, -1), b.expand(2, -1, -1), alpha=alpha, add=add)
        out.copy_(twice[:1])
        return
    torch.baddbmm(out, a, b, beta=int(add), alpha=alpha, out=out)


def _times(runs: slice, each: int) -> slice:
    return slice(runs.start * each, runs.stop * each)
