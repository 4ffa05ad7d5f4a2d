"""Adam for one vector that holds the parameters of all runs.

At these sizes `torch.optim.Adam` spends more time on bookkeeping than on arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


class Adam:
    """Adam with the usual constants; it updates the parameters in place.

    Args:
        numbers: Parameters to train.
        gradient: Their gradient, which every step reads.
        learning_rates: Slices of `numbers`, which together cover it, each with its largest
            learning rate; see `step`.
        betas: Decay of the running averages of the gradient and of its square.
        epsilon: Number that is added to the denominator.

    Attributes:
        mean: Running average of the gradient.
        square: Running average of the squared gradient.

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
        self._step = 0

    def step(self, share: float = 1.0) -> None:
        """Take one step with this share of the learning rates, from 0 to 1."""
        self._step += 1
        first, second = self._betas
        unbiased = (1 - second**self._step) ** 0.5
        self._move(unbiased, share * unbiased / (1 - first**self._step))

    def _move(self, unbiased: float, factor: float) -> None:
        """Update the averages and the parameters; both arguments include the bias correction."""
        first, second = self._betas
        self.mean.lerp_(self._gradient, 1 - first)
        self.square.mul_(second).addcmul_(self._gradient, self._gradient, value=1 - second)
        root = self.square.sqrt().add_(self._epsilon * unbiased)
        for block, rate in self._learning_rates:
            self._numbers[block].addcdiv_(self.mean[block], root[block], value=-rate * factor)

    def copy_step_to(self, other: Adam) -> None:
        """Set the number of steps of another optimiser, which continues this one's training."""
        other._step = self._step
