"""Adam over one vector that holds the parameters of all runs.

`torch.optim.Adam` costs more in its own bookkeeping than in arithmetic at these sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


class Adam:
    """Adam with the usual constants, in place.

    Args:
        numbers: what is trained. gradient: read at every step.
        learning_rates: for parts of the numbers, which cover all of them, the largest learning
            rate; see `step`.

    Attributes:
        mean, square: the running averages of the gradient and of its square.

    Source:
        Kingma and Ba 2015, arXiv 1412.6980, section 2, in the faster order of its last paragraph.
    """

    def __init__(
        self,
        numbers: Float[Tensor, " n"],
        gradient: Float[Tensor, " n"],
        learning_rates: Sequence[tuple[slice, float]],
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self._numbers, self._gradient = numbers, gradient
        self._learning_rates = list(learning_rates)
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
        self._move(unbiased, share * unbiased / (1 - first**self._step))

    def _move(self, unbiased: float, factor: float) -> None:
        """Update the averages and the numbers; both arguments correct for the first steps."""
        first, second = self._betas
        self.mean.lerp_(self._gradient, 1 - first)
        self.square.mul_(second).addcmul_(self._gradient, self._gradient, value=1 - second)
        torch.sqrt(self.square, out=self._root).add_(self._epsilon * unbiased)
        for part, rate in self._learning_rates:
            self._numbers[part].addcdiv_(self.mean[part], self._root[part], value=-rate * factor)

    def go_on_as(self, other: Adam) -> None:
        """Let another optimiser, whose averages have been set, take over at this step."""
        other._step = self._step
