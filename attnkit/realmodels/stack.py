"""Description of the attention layers of one kind in a model family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnkit.realmodels.base import Kind
from attnkit.realmodels.configuration import N_HEADS, N_LAYERS, Configuration
from attnkit.realmodels.rotary import Rotary


@dataclass(frozen=True)
class Stack:
    """Attention layers of one kind in a model family: names of tensors, and configuration fields.

    Attributes:
        kind: Positions that its queries attend to.
        prefix: Start of a layer's tensor names, after the prefix that all names of a model share;
            {} is the layer's index.
        modules: Name of each linear layer and the roles of its outputs: "q", "k", "v", or several
            of them, whose rows follow one another.
        norm: Name of the norm right before the projections; "" in a post-norm model.
        other_norm: Name of the norm that some models of the family have instead of `norm`.
        source_norm: Name of the norm at the end of the encoder, which cross-attention reads.
        grouped: Whether the outputs of a linear layer with all roles are ordered by key and value
            head: first the queries that share key and value head 0, then its key and its value.
        transposed: Whether weights are stored as (inputs, outputs).
        n_layers: Fields with the number of layers.
        n_heads: Fields with the number of query heads.
        count_kv_heads: Function that returns the number of key and value heads from the
            configuration and the number of heads, if that takes more than one field; or None.
        layer_sizes: Whether layers that attend to all tokens can have heads of another width and
            number, use W_K as W_V, or reuse the keys and values of an earlier layer.
        latent: Whether queries, keys and values are projected from a latent vector each.
        switches: Fields that change the kind, as (field, value, new kind).
        norm_flags: Fields that must not be false for the norm to exist and have a gain.
        first_norm: Index of the first layer that has the norm.
        gain_offset: Number to add to a norm's stored weight.
        rotary: Rotary positions, or None.
        notes: Notes on the family's scores.
        defaults: Values of fields that configurations of this family leave out.
        required: Values that fields must have if they are present.
    """

    kind: Kind
    prefix: str
    modules: tuple[tuple[str, str], ...]
    norm: str = ""
    other_norm: str = ""
    source_norm: str = ""
    grouped: bool = False
    transposed: bool = False
    n_layers: tuple[str, ...] = N_LAYERS
    n_heads: tuple[str, ...] = N_HEADS
    count_kv_heads: Callable[[Configuration, int], int] | None = None
    layer_sizes: bool = False
    latent: bool = False
    switches: tuple[tuple[str, bool | str, Kind], ...] = ()
    norm_flags: tuple[str, ...] = ()
    first_norm: int = 0
    gain_offset: float = 0.0
    rotary: Rotary | None = None
    notes: tuple[str, ...] = ()
    defaults: tuple[tuple[str, Any], ...] = ()
    required: tuple[tuple[str, int], ...] = ()
