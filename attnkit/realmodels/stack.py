"""Description of the attention layers of one kind in a model family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnkit.realmodels.base import Kind
from attnkit.realmodels.configuration import N_HEADS, N_LAYERS, Configuration
from attnkit.realmodels.rotary import Rotary


@dataclass(frozen=True)
class LatentNames:
    """Names of the linear layers and norms of latent attention; see `attnkit.realmodels.latent`.

    Attributes:
        q: Projection of queries in one step.
        q_a: First step of queries.
        q_norm: Norm between the two steps of queries.
        q_b: Second step of queries.
        kv_a: First step of keys and values.
        kv_norm: Norm between the two steps of keys and values.
        kv_b: Second step of keys and values.
        k_b: Second step of keys alone, which some files have instead of `kv_b`, as (heads, latent,
            width).
        v_b: Second step of values alone, as (heads, width, latent).
        kv: Projection in one step of the keys of one head, which serve as its values, too; "" if
            keys and values have two steps.
    """

    q: str = "q_proj"
    q_a: str = "q_a_proj"
    q_norm: str = "q_a_layernorm"
    q_b: str = "q_b_proj"
    kv_a: str = "kv_a_proj_with_mqa"
    kv_norm: str = "kv_a_layernorm"
    kv_b: str = "kv_b_proj"
    k_b: str = ""
    v_b: str = ""
    kv: str = ""


@dataclass(frozen=True)
class Stack:
    """Attention layers of one kind in a model family: names of tensors, and configuration fields.

    Attributes:
        kind: Positions that its queries attend to.
        prefix: Start of a layer's tensor names, after the prefix that all names of a model share;
            {} is the layer's index.
        modules: Name of each linear layer and the roles of its outputs: "q", "k", "v", or several
            of them, whose rows follow one another; "q=k" and "k=v" name roles that share all rows.
        norm: Name of the norm right before the projections; "" in a post-norm model.
        other_norm: Name of the norm that some models of the family have instead of `norm`.
        source_norm: Name of the norm at the end of the encoder, which cross-attention reads.
        grouped: Whether the outputs of a linear layer with all roles are ordered by key and value
            head: first the queries that share key and value head 0, then its key and its value.
        transposed: Whether weights are stored as (inputs, outputs).
        gated: Whether the rows of each head's queries are followed by as many rows of a gate.
        shuffled: Whether the two dimensions of a rotary pair are stored as neighbours although
            `rotary` has them half a head apart.
        hybrid: Layer types with this attention, of a model in which some layers have something else
            instead; () if all layers have it.
        n_layers: Fields with the number of layers.
        n_heads: Fields with the number of query heads.
        count_kv_heads: Function that returns the number of key and value heads from the
            configuration and the number of heads, if that takes more than one field; or None.
        layer_sizes: Whether layers that attend to all tokens can have heads of another width and
            number, use W_K as W_V, or reuse the keys and values of an earlier layer.
        latent: Names of the linear layers that project queries, keys and values from a latent
            vector each; None if there is no latent vector.
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
    gated: bool = False
    shuffled: bool = False
    hybrid: tuple[str, ...] = ()
    n_layers: tuple[str, ...] = N_LAYERS
    n_heads: tuple[str, ...] = N_HEADS
    count_kv_heads: Callable[[Configuration, int], int] | None = None
    layer_sizes: bool = False
    latent: LatentNames | None = None
    switches: tuple[tuple[str, bool | str, Kind], ...] = ()
    norm_flags: tuple[str, ...] = ()
    first_norm: int = 0
    gain_offset: float = 0.0
    rotary: Rotary | None = None
    notes: tuple[str, ...] = ()
    defaults: tuple[tuple[str, Any], ...] = ()
    required: tuple[tuple[str, int], ...] = ()
