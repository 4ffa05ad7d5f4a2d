"""Places: the positions at which one attention layer computes queries and keys.

In a stack of layers, every position has a query and a key. There are two exceptions. The attention
layers of an encoder and a decoder read and change a part of the positions only. And where the
logits are all that is read of the last layer, it has queries at the answering positions only.

Index letters as in `attnkit.model.reference`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.experiment.layer_specs import LayerSpec


@dataclass(frozen=True, eq=False)
class Places:
    """Positions of the queries and of the keys of one attention layer.

    Attributes:
        spec: Specification of the layer, with all its query positions (i) and key positions (j).
        full_mask: Mask that is added to the scores of all query positions; None if there is none.
        n_skipped: Number of query positions that are left out, which are the first ones.
        device: Device of the positions.
    """

    spec: LayerSpec
    full_mask: Tensor | None
    n_skipped: int
    device: torch.device

    @property
    def queries(self) -> slice:
        """Positions in the residual stream that have queries."""
        first, end = self.spec.query_positions
        return slice(first + self.n_skipped, end)

    @property
    def keys(self) -> slice:
        """Positions in the residual stream that have keys."""
        return slice(*self.spec.key_positions)

    @cached_property
    def query_numbers(self) -> Int64[Tensor, " i"]:
        """Numbers of the query positions; an encoder and a decoder both count from 0."""
        return torch.arange(self.n_skipped, self.spec.n_queries, device=self.device)

    @cached_property
    def key_numbers(self) -> Int64[Tensor, " j"]:
        """Numbers of the key positions; an encoder and a decoder both count from 0."""
        return torch.arange(self.spec.n_keys, device=self.device)

    @property
    def mask(self) -> Float[Tensor, "i j"] | None:
        """Mask that is added to the scores; None if there is none."""
        return None if self.full_mask is None else self.full_mask[self.n_skipped :]

    def tied(self, projected: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the projected vectors at the query positions; tied queries are these vectors.

        There are none if queries and keys are different sequences, as in cross-attention.
        """
        if not self.spec.square:
            return {}
        return {name: vectors[:, :, :, self.n_skipped :] for name, vectors in projected.items()}

    def own(self, v: Float[Tensor, "s b h j d"]) -> Float[Tensor, "s b h i d"] | None:
        """Return the values of the query positions; None if keys are another sequence."""
        return v[:, :, :, self.n_skipped :] if self.spec.square else None

    def put_back(
        self, x: Float[Tensor, "s b n m"], updated: Float[Tensor, "s b i m"]
    ) -> Float[Tensor, "s b n m"]:
        """Return the residual stream with new vectors at the query positions.

        If query positions are left out, the updated ones are all that is returned.
        """
        first, end = self.spec.query_positions
        if self.n_skipped or updated.shape == x.shape:
            return updated
        return torch.cat([x[:, :, :first], updated, x[:, :, end:]], 2)
