"""One layer of a cohort: attention by groups of runs, then MLPs by widths."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnkit.architecture import Place
from attnkit.attention import Attention, Layer
from attnkit.blocks import Mlp
from attnkit.wired import WiredAttention


class Level:
    """A layer of all runs; every block has neighbouring ones.

    Args:
        place: who asks, and who is looked at.
        n_ctx: positions in the residual stream.

    Attributes:
        attention: runs and their block. mlps: runs and their block, where they have one.
    """

    def __init__(
        self,
        attention: list[tuple[slice, Attention | WiredAttention]],
        mlps: list[tuple[slice, Mlp]],
        place: Place,
        n_ctx: int,
    ) -> None:
        self.attention, self.mlps = attention, mlps
        self._n_ctx = n_ctx
        self._window = None if place.asks == (0, n_ctx) else slice(*place.asks)

    def forward(
        self, x: Float[Tensor, "r t m"], layers: list[Layer] | None = None
    ) -> tuple[Float[Tensor, "r a m"], list[Any]]:
        """The residual stream after the layer, at the positions that are read; x is overwritten."""
        after: list[Tensor] = []
        kept: list[Any] = []
        for runs, block in self.attention:
            out, saved = block.forward(x[runs], layers)
            after.append(out)
            kept.append(saved)
        if len(after) == 1:
            x = after[0]
        elif after[0].shape[1] != x.shape[1]:  # otherwise they have written into x
            x = torch.cat(after)
        return x, kept + self.forward_mlps(x)

    def forward_mlps(self, x: Float[Tensor, "r a m"]) -> list[Any]:
        """Overwrite the residual stream after attention by that after the MLPs."""
        kept: list[Any] = []
        for runs, mlp in self.mlps:
            rows, of_mlp = mlp.forward(self._asking(x[runs]))
            self._put_back(x[runs], rows)
            kept.append(of_mlp)
        return kept

    def backward(self, dy: Float[Tensor, "r a m"], kept: list[Any]) -> Float[Tensor, "r t m"]:
        """The gradient of x; dy is overwritten."""
        for runs, mlp in reversed(self.mlps):
            self._put_back(dy[runs], mlp.backward(self._asking(dy[runs]), kept.pop()))
        before: list[Tensor] = []
        for runs, block in reversed(self.attention):
            before.append(block.backward(dy[runs], kept.pop()))
        if len(before) == 1:
            return before[0]
        if before[0].shape[1] == dy.shape[1]:
            return dy  # they have written into it
        return torch.cat(before[::-1])

    def _asking(self, x: Float[Tensor, "r t m"]) -> Float[Tensor, "r a m"]:
        """The rows of those who ask: all, or a copy of some."""
        if self._window is None:
            return x
        rows: Tensor = x.unflatten(1, (-1, self._n_ctx))[:, :, self._window].flatten(1, 2)
        return rows

    def _put_back(self, x: Float[Tensor, "r t m"], rows: Float[Tensor, "r a m"]) -> None:
        """Write rows of those who ask where they belong, if they are a copy."""
        if self._window is not None:
            by_example = x.unflatten(1, (-1, self._n_ctx))
            by_example[:, :, self._window] = rows.unflatten(1, (by_example.shape[1], -1))
