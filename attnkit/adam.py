"""Adam over one vector that holds the parameters of all runs.

`torch.optim.Adam` costs more in its own bookkeeping than in arithmetic at these sizes.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


class Adam:
    """Adam with the usual constants, in place.

    Args:
        numbers: what is trained. gradient: read at every step.
        learning_rate: constant.

    Source:
        Kingma and Ba 2015, arXiv 1412.6980, section 2, in the faster order of its last paragraph.
    """

    def __init__(
        self,
        numbers: Float[Tensor, " n"],
        gradient: Float[Tensor, " n"],
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self._numbers, self._gradient = numbers, gradient
        self._learning_rate, self._betas, self._epsilon = learning_rate, betas, epsilon
        self._mean = torch.zeros_like(numbers)
        self._square = torch.zeros_like(numbers)
        self._root = torch.empty_like(numbers)
        self._step = 0

    def step(self) -> None:
        """Move the numbers once."""
        self._step += 1
        first, second = self._betas
        unbiased = (1 - second**self._step) ** 0.5
        rate = self._learning_rate * unbiased / (1 - first**self._step)
        self._mean.lerp_(self._gradient, 1 - first)
        self._square.mul_(second).addcmul_(self._gradient, self._gradient, value=1 - second)
        torch.sqrt(self._square, out=self._root).add_(self._epsilon * unbiased)
        self._numbers.addcdiv_(self._mean, self._root, value=-rate)
