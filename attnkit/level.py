"""One layer of a cohort: attention by groups of runs, then MLPs by widths."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnkit.attention import Attention, Layer
from attnkit.blocks import Mlp
from attnkit.wired import WiredAttention


class Level:
    """A layer of all runs; every block has neighbouring ones.

    Attributes:
        attention: runs and their block. mlps: runs and their block, where they have one.
    """

    def __init__(
        self,
        attention: list[tuple[slice, Attention | WiredAttention]],
        mlps: list[tuple[slice, Mlp]],
    ) -> None:
        self.attention, self.mlps = attention, mlps

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
        for runs, mlp in self.mlps:
            _, of_mlp = mlp.forward(x[runs])
            kept.append(of_mlp)
        return x, kept

    def backward(self, dy: Float[Tensor, "r a m"], kept: list[Any]) -> Float[Tensor, "r t m"]:
        """The gradient of x; dy is overwritten."""
        for runs, mlp in reversed(self.mlps):
            mlp.backward(dy[runs], kept.pop())
        before: list[Tensor] = []
        for runs, block in reversed(self.attention):
            before.append(block.backward(dy[runs], kept.pop()))
        if len(before) == 1:
            return before[0]
        if before[0].shape[1] == dy.shape[1]:
            return dy  # they have written into it
        return torch.cat(before[::-1])
