"""Scores and attention patterns of a network of `transformers`, recorded while it runs.

Every family computes its scores in its own way: scaled, with rotary positions, biases of the
distance, a cap. So nothing is computed a second way here. Between the product of queries and keys
and the softmax, each operation is done twice: as the network does it, and without the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnkit.realmodels.errors import Unreadable

MASKED = -1000.0
"""Number that only a mask adds to scores; biases of positions are far smaller."""

_PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm", "baddbmm_")
_SUMS = ("add", "add_", "__add__", "__iadd__", "__radd__")
_FILLS = ("masked_fill", "masked_fill_", "where")


class RecordedLayer(NamedTuple):
    """Attention of one layer for one sentence.

    Attributes:
        scores: Numbers that enter the softmax, without the mask.
        hidden: Whether the mask hides a key from a query.
        pattern: Attention after the softmax.
    """

    scores: Float[Tensor, "h i j"]
    hidden: Bool[Tensor, "h i j"]
    pattern: Float[Tensor, "h i j"]


class Recording(TorchFunctionMode):
    """Context in which a network runs on one sentence, and whose `layers` are then recorded.

    Args:
        n_tokens: Number of tokens of the sentence.
    """

    def __init__(self, n_tokens: int) -> None:
        super().__init__()
        self.layers: list[RecordedLayer] = []
        self._n = n_tokens
        self._scores: dict[int, tuple[Tensor, Tensor]] = {}  # by id: as computed, without the mask
        self._patterns: dict[int, Tensor] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Do an operation, and if it is one on scores, do it without the mask, too."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        scores = [x for x in (*args, *kwargs.values()) if id(x) in self._scores]
        unmasked = None
        if scores and name != "softmax":
            unmasked = self._without_mask(func, name, args, kwargs, scores[0])
        out = func(*args, **kwargs)
        if not isinstance(out, Tensor):
            return out
        if name == "softmax" and scores:
            self._record(scores[0], out)
        elif name in _PRODUCTS and any(id(x) in self._patterns for x in args):
            self._patterns.clear()  # values are read: the layer is over
        elif any(id(x) in self._patterns for x in args) and self._is_square(out):
            self._patterns[id(out)] = out
        elif name in _PRODUCTS and self._is_square(out) and all(x.ndim > 2 for x in args[-2:]):
            self._scores[id(out)] = (out, out.clone())
        elif isinstance(unmasked, Tensor):
            self._scores[id(out)] = (out, unmasked)
        return out

    def _is_square(self, x: Tensor) -> bool:
        return x.ndim > 2 and x.shape[-2:] == (self._n, self._n)

    def _without_mask(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        scores: Tensor,
    ) -> Any:
        """Return the outcome of an operation on scores as if there were no mask."""
        if name in _FILLS:
            return self._scores[id(scores)][1]

        def replaced(x: Any) -> Any:
            if id(x) in self._scores:
                return self._scores[id(x)][1]
            if name in _SUMS and isinstance(x, Tensor) and x.is_floating_point():
                return torch.where(x < MASKED, 0.0, x)
            return x

        return func(*map(replaced, args), **{key: replaced(x) for key, x in kwargs.items()})

    def _record(self, given: Tensor, pattern: Tensor) -> None:
        """Add a layer."""
        scores = self._scores[id(given)][1]
        self._scores.clear()
        self._patterns = {id(pattern): pattern}
        given, scores, pattern = (
            x.detach().float().reshape(-1, *x.shape[-2:]) for x in (given, scores, pattern)
        )
        hidden = given < scores + MASKED / 2
        if not torch.allclose(torch.where(hidden, 0.0, given), torch.where(hidden, 0.0, scores)):
            raise Unreadable("its scores and its mask cannot be told apart")
        self.layers.append(RecordedLayer(scores.clone(), hidden, pattern.clone()))
