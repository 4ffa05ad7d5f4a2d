"""Number and width of the heads of every layer, and whose keys and values it uses.

In most families all layers are alike. In Gemma 4, layers that attend to all tokens have wider heads
than others and may use W_K as W_V, and the last layers may reuse the keys and values of an earlier
layer of the same type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnkit.realmodels.configuration import D_HEAD, D_MODEL, N_KV_HEADS, Configuration
from attnkit.realmodels.errors import Unreadable, quote
from attnkit.realmodels.rotary import FULL, layer_types_of
from attnkit.realmodels.stack import Stack


@dataclass(frozen=True)
class LayerSize:
    """Heads of one layer.

    Attributes:
        n_heads: Number of query heads.
        n_kv_heads: Number of key and value heads.
        d_head: Width of a head.
        kv_layer: Index of the layer whose keys and values it uses, in most cases its own.
        k_is_v: Whether the layer has no W_V, because W_K serves as W_V.
    """

    n_heads: int
    n_kv_heads: int
    d_head: int
    kv_layer: int
    k_is_v: bool = False


def layer_sizes(
    stack: Stack, config: Configuration, indices: Sequence[int], n_layers: int
) -> dict[int, LayerSize]:
    """Return the heads of the layers with these indices, of a model with `n_layers` layers.

    Raises:
        Unreadable: If a field is missing or wrong, or fields contradict each other.
    """
    sizes = {layer: _size(stack, config.of_layer(layer), layer) for layer in indices}
    if stack.layer_sizes and stack.rotary:
        layer_types = layer_types_of(stack.rotary, config, n_layers)
        sizes = _reused(config, layer_types, _overridden(config, layer_types, sizes))
    return sizes


def _size(stack: Stack, config: Configuration, layer: int) -> LayerSize:
    """Return the heads of a layer from the fields of this layer."""
    n_heads = config.count(*stack.n_heads)
    if stack.count_kv_heads is None:
        n_kv_heads = config.count(*N_KV_HEADS, default=n_heads)
    else:
        n_kv_heads = stack.count_kv_heads(config, n_heads)
    return LayerSize(n_heads, n_kv_heads, _d_head(config, n_heads), layer)


def _d_head(config: Configuration, n_heads: int) -> int:
    if config.find(*D_HEAD)[0]:
        return config.count(*D_HEAD)
    d_model = config.count(*D_MODEL)
    if d_model % n_heads:
        raise Unreadable(
            f"{config.file}: the width {d_model} cannot be divided among {n_heads} heads"
        )
    return d_model // n_heads


def _overridden(
    config: Configuration, layer_types: tuple[str, ...], sizes: dict[int, LayerSize]
) -> dict[int, LayerSize]:
    """Return the sizes with those of layers that attend to all tokens.

    Newer configurations have an object of fields for every such layer, and older ones have fields
    of the model.
    """
    k_is_v = config.flag("attention_k_eq_v", default=False)
    by_layer = config.section("per_layer_config")
    overridden = {}
    for layer, size in sizes.items():
        layer_type, d_head, n_kv_heads = layer_types[layer], size.d_head, size.n_kv_heads
        if by_layer is not None:
            fields = by_layer.section(str(layer)) or Configuration({})
            d_head = fields.count("head_dim", default=d_head)
            n_kv_heads = fields.count("num_key_value_heads", default=n_kv_heads)
        elif layer_type == FULL:
            d_head = config.count("global_head_dim", default=d_head)
            if k_is_v:
                n_kv_heads = config.count("num_global_key_value_heads", default=n_kv_heads)
        overridden[layer] = replace(
            size, d_head=d_head, n_kv_heads=n_kv_heads, k_is_v=k_is_v and layer_type == FULL
        )
    return overridden


def _reused(
    config: Configuration, layer_types: tuple[str, ...], sizes: dict[int, LayerSize]
) -> dict[int, LayerSize]:
    """Return the sizes with the keys and values that the last layers reuse.

    A layer reuses those of the last layer of its type that has its own.
    """
    field = "num_kv_shared_layers"
    name, n_reusing = config.find(field)
    if n_reusing in (None, 0):
        return sizes
    n_own = max(0, len(sizes) - config.count(field))
    last_of_type = {layer_type: layer for layer, layer_type in enumerate(layer_types[:n_own])}
    reused = dict(sizes)
    for layer in range(n_own, len(sizes)):
        if layer_types[layer] not in last_of_type:
            raise Unreadable(
                f"{config.file}: {name} is {n_reusing}, so that no layer has keys and values for "
                f"layer {layer}, whose type is {quote(layer_types[layer])}"
            )
        reused[layer] = replace(sizes[layer], kv_layer=last_of_type[layer_types[layer]])
    return reused
