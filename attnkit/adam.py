"""Adam over one vector that holds the parameters of all runs.

`torch.optim.Adam` costs more in its own bookkeeping than in arithmetic at these sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor


class Adam:
    """Adam with the usual constants, in place.

    Args:
        numbers: what is trained. gradient: read at every step.
        learning_rates: the largest ones; see `step`.
        which: for each number the place of its learning rate; None: all have the first.

    Attributes:
        mean, square: the running averages of the gradient and of its square.

    Source:
        Kingma and Ba 2015, arXiv 1412.6980, section 2, in the faster order of its last paragraph.
    """

    def __init__(
        self,
        numbers: Float[Tensor, " n"],
        gradient: Float[Tensor, " n"],
        learning_rates: Sequence[float],
        which: Int64[Tensor, " n"] | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self._numbers, self._gradient = numbers, gradient
        self._learning_rates, self._which = list(learning_rates), which
        self._betas, self._epsilon = betas, epsilon
        self.mean = torch.zeros_like(numbers)
        self.square = torch.zeros_like(numbers)
        self._root = torch.empty_like(numbers)
        self._step = 0

    def step(self, share: float = 1.0) -> None:
        """Move the numbers once, with this share of the learning rates."""
        self._step += 1
        first, second = self._betas
        unbiased = (1 - second**self._step) ** 0.5
        factor = share * unbiased / (1 - first**self._step)
        self.mean.lerp_(self._gradient, 1 - first)
        self.square.mul_(second).addcmul_(self._gradient, self._gradient, value=1 - second)
        torch.sqrt(self.square, out=self._root).add_(self._epsilon * unbiased)
        rates = [rate * factor for rate in self._learning_rates]
        if self._which is None:
            self._numbers.addcdiv_(self.mean, self._root, value=-rates[0])
            return
        table = torch.tensor(rates, dtype=self._numbers.dtype, device=self._numbers.device)
        step = table.index_select(0, self._which).mul_(self.mean)
        self._numbers.addcdiv_(step, self._root, value=-1)  # rounded as with one rate

    def go_on_as(self, other: Adam) -> None:
        """Let another optimiser, whose averages have been set, take over at this step."""
        other._step = self._step
