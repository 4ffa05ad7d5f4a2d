"""The parts of the toy transformer, batched over runs, each with its backward pass by hand.

A block's `forward` returns its output and what its `backward` needs; `backward` takes the gradient
of the output, writes those of the parameters where they belong, and returns that of the input.
Written out, a step makes few passes over memory: tied roles are projected once, sums of gradients
happen inside the matrix products, and the last layer asks from the answering positions only.
Attention has a module of its own. tests/test_blocks.py holds all against autograd on plain PyTorch.

Index letters as in `attnkit.model`; `t` = b·i flattened, `a` the positions that ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.sharing import Role, Sharing
from attnkit.tasks.base import NOTHING

NARROW = 16
"""Width below which a single run's products are computed as a batch of two; see `multiply`."""

EPSILON_OF_LAYER_NORM = 1e-5
"""As in PyTorch; that of RMSNorm is a tenth."""

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

    def among_owners(self, role: Role, runs: slice) -> slice:
        """Where some of a role's owners stand among all of them."""
        start = self.owners(role).start
        return slice(runs.start - start, runs.stop - start)

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


@dataclass
class Parameter:
    """The numbers of one name and where their gradient goes.

    Attributes:
        bias: what is added to the rows that a matrix makes; None adds nothing.
    """

    value: Tensor
    gradient: Tensor
    bias: Parameter | None = None

    @cached_property
    def back(self) -> Tensor:
        """The value as a gradient meets it on its way back."""
        return self.value.transpose(1, 2)

    def of(self, runs: slice) -> Parameter:
        """That of some of the runs."""
        bias = None if self.bias is None else self.bias.of(runs)
        return Parameter(self.value[runs], self.gradient[runs], bias)

    def apply(self, rows: Float[Tensor, "r t m"]) -> Float[Tensor, "r t n"]:
        """Each run's rows times its matrix, plus its bias."""
        out = product(rows, self.value)
        return out if self.bias is None else out.add_(self.bias.value.unsqueeze(1))

    def learn(
        self, rows: Float[Tensor, "r t m"], d_out: Float[Tensor, "r t n"], alpha: float = 1.0
    ) -> None:
        """Write the gradient that follows from that of `apply`."""
        multiply(self.gradient, rows.transpose(1, 2), d_out, alpha=alpha)
        if self.bias is not None:
            self.bias.sum_up(d_out, alpha)

    def sum_up(self, rows: Float[Tensor, "r t m"], alpha: float = 1.0) -> None:
        """Write the sum of the rows as the gradient."""
        ones = rows.new_ones(1, 1, 1).expand(len(rows), 1, rows.shape[1])
        multiply(self.gradient.unsqueeze(1), ones, rows, alpha=alpha)


class Norm:
    """Rows over their root mean square; or, with gain and shift, LayerNorm.

    Args:
        gain, shift: (r, m) both; None: neither, and rows are not centred.
    """

    def __init__(self, gain: Parameter | None = None, shift: Parameter | None = None) -> None:
        self._gain, self._shift = gain, shift

    def forward(self, x: Float[Tensor, "r t m"]) -> tuple[Float[Tensor, "r t m"], list[Tensor]]:
        """The normalised rows."""
        if self._gain is None or self._shift is None:
            normed, inverse = rms_norm(x)
            return normed, [normed, inverse]
        normed, inverse = rms_norm(x - x.mean(-1, keepdim=True), EPSILON_OF_LAYER_NORM)
        gain, shift = self._gain.value.unsqueeze(1), self._shift.value.unsqueeze(1)
        return torch.addcmul(shift, normed, gain), [normed, inverse]

    def backward(
        self,
        d_out: Float[Tensor, "r t m"],
        saved: list[Tensor],
        onto: Float[Tensor, "r t m"] | None = None,
    ) -> Float[Tensor, "r t m"]:
        """The gradient of x; added to `onto`, or in place of that of the output."""
        normed, inverse = saved
        if self._gain is None or self._shift is None:
            return rms_norm_backward(d_out, normed, inverse, onto)
        self._gain.sum_up(d_out * normed)
        self._shift.sum_up(d_out)
        dx = rms_norm_backward(d_out.mul_(self._gain.value.unsqueeze(1)), normed, inverse)
        dx -= dx.mean(-1, keepdim=True)
        return dx if onto is None else onto.add_(dx)


class Embedding:
    """Looks tokens up: one table row serves all sharings of a seed.

    Args:
        table: (s·vocab, v·m).
        positions: neighbouring runs that have learned positions, and those, (runs, i, m).
        bias: what is added to every token, (r, m); None adds nothing.
    """

    def __init__(
        self,
        layout: Layout,
        table: Parameter,
        positions: Sequence[tuple[slice, Parameter]],
        bias: Parameter | None = None,
    ) -> None:
        self._layout, self._table, self._positions = layout, table, positions
        self._bias = bias
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
        x.copy_(by_run)
        for runs, positions in self._positions:
            x.view(self._layout.n_runs, n_batch, n_ctx, -1)[runs] += positions.value.unsqueeze(1)
        x = x.view(self._layout.n_runs, n_batch * n_ctx, -1)
        if self._bias is not None:
            x += self._bias.value.unsqueeze(1)
        return x, by_field

    def backward(self, dx: Float[Tensor, "r t m"], by_field: list[Tensor]) -> None:
        """Nothing stands before it, so nothing is returned."""
        layout, width = self._layout, dx.shape[-1]
        for runs, positions in self._positions:
            by_example = dx[runs].view(len(positions.value), -1, positions.value[0].numel())
            Parameter(positions.value, positions.gradient.view(len(by_example), -1)).sum_up(
                by_example
            )
        if self._bias is not None:
            self._bias.sum_up(dx)
        by_token = dx.view(len(layout.sharings), -1, width).transpose(0, 1)
        rows = by_token.reshape(-1, self._table.value.shape[1])
        self._table.gradient.zero_()
        for field in by_field:
            self._table.gradient.index_add_(0, field, rows)


class Mlp:
    """One residual MLP with GELU.

    Args:
        up: (r, m, f). down: (r, f, m).
    """

    def __init__(self, norm: Norm, up: Parameter, down: Parameter) -> None:
        self._norm, self._up, self._down = norm, up, down

    def forward(
        self, x: Float[Tensor, "r t m"]
    ) -> tuple[Float[Tensor, "r t m"], tuple[list[Tensor], list[Tensor]]]:
        """The residual stream after it; x is overwritten."""
        rows, normed = self._norm.forward(x)
        hidden = self._up.apply(rows)
        active = F.gelu(hidden)
        multiply(x, active, self._down.value, add=True)
        if self._down.bias is not None:
            x += self._down.bias.value.unsqueeze(1)
        return x, (normed, [rows, hidden, active])

    def backward(
        self, dy: Float[Tensor, "r t m"], saved: tuple[list[Tensor], list[Tensor]]
    ) -> Float[Tensor, "r t m"]:
        """The gradient of x; dy is overwritten."""
        normed, (rows, hidden, active) = saved
        self._down.learn(active, dy)
        d_hidden = product(dy, self._down.back)
        torch.ops.aten.gelu_backward(d_hidden, hidden, grad_input=d_hidden)
        self._up.learn(rows, d_hidden)
        return self._norm.backward(product(d_hidden, self._up.back), normed, onto=dy)


class ReadOut:
    """From the residual stream to the logits of the answers.

    Args:
        norm: what comes before; None: nothing does.
        w_u: (r, m, c).
        sparse: whether some labels are `NOTHING`.
    """

    def __init__(self, layout: Layout, norm: Norm | None, w_u: Parameter, *, sparse: bool) -> None:
        self._layout, self._norm, self._w_u, self._sparse = layout, norm, w_u, sparse
        self._minus_one = torch.full((1, 1, 1), -1.0, device=w_u.value.device)

    def forward(
        self, x: Float[Tensor, "r a m"]
    ) -> tuple[Float[Tensor, "r a c"], tuple[Tensor, list[Tensor]]]:
        """Logits."""
        rows, normed = (x, []) if self._norm is None else self._norm.forward(x)
        return self._w_u.apply(rows), (rows, normed)

    def backward(
        self,
        logits: Float[Tensor, "r a c"],
        labels: Int64[Tensor, "s b a"],
        saved: tuple[Tensor, list[Tensor]],
    ) -> Float[Tensor, "r a m"]:
        """The gradient of x, of every run's mean cross-entropy."""
        rows, normed = saved
        d_logits = logits.softmax(-1)
        n_sharings = len(self._layout.sharings)
        by_run = labels.expand(n_sharings, *labels.shape).reshape(*logits.shape[:2], 1)
        if self._sparse:
            asked = (by_run != NOTHING).to(logits.dtype)
            weights = asked / asked.sum(1, keepdim=True)
            d_logits.mul_(weights).scatter_add_(-1, by_run.clamp_min(0), -weights)
            each = 1.0
        else:
            d_logits.scatter_add_(-1, by_run, self._minus_one.expand_as(by_run))
            each = 1 / logits.shape[1]
        self._w_u.learn(rows, d_logits, alpha=each)
        dx = product(d_logits, self._w_u.back, alpha=each)
        return dx if self._norm is None else self._norm.backward(dx, normed)


def rms_norm(
    x: Float[Tensor, "r t m"], epsilon: float = 1e-6
) -> tuple[Float[Tensor, "r t m"], Float[Tensor, "r t 1"]]:
    """x over its root mean square, and one over that."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    inverse = torch.addcmul(
        _constant(epsilon, x.device), norm, norm, value=1 / x.shape[-1]
    ).rsqrt_()
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
def _constant(value: float, device: torch.device) -> Tensor:
    return torch.tensor(value, device=device)


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
