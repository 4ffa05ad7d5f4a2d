"""Draws of distinct items, from which tasks make their examples.

Torch is imported inside functions only, as in all modules of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_ROWS = 2**10
"""Rows of which random numbers are in memory at once."""


def choose(n_rows: int, n_items: int, n_chosen: int, generator: torch.Generator) -> Tensor:
    """Draw a uniform ordered choice without replacement in every row, (n_rows, n_chosen).

    Every row sorts integers, each of which holds a random number of 24 bits and an item: numpy
    sorts them in a twentieth of the time of `torch.argsort`.
    """
    import torch

    chosen = np.empty((n_rows, n_chosen), np.int64)
    for first in range(0, n_rows, _ROWS):
        rows = chosen[first : first + _ROWS]
        random_numbers = torch.rand(len(rows), n_items, generator=generator).mul_(2**24).long()
        keys = random_numbers.mul_(n_items).add_(torch.arange(n_items)).numpy()
        keys.sort(axis=1)
        np.remainder(keys[:, :n_chosen], n_items, out=rows)
    return torch.from_numpy(chosen)


def choose_few(n_rows: int, n_items: int, n_chosen: int, generator: torch.Generator) -> Tensor:
    """Draw from the distribution of `choose`, faster if `n_chosen` is much less than `n_items`.

    Rows with a repetition are drawn again.
    """
    import torch

    if n_chosen**2 > 2 * n_items:
        return choose(n_rows, n_items, n_chosen, generator)
    rows = torch.randint(n_items, (n_rows, n_chosen), generator=generator)
    redrawn = torch.arange(n_rows)
    while True:
        ordered = rows[redrawn].sort(1).values
        redrawn = redrawn[(ordered[:, 1:] == ordered[:, :-1]).any(1)]
        if not len(redrawn):
            return rows
        rows[redrawn] = torch.randint(n_items, (len(redrawn), n_chosen), generator=generator)
