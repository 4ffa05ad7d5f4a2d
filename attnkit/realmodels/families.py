"""Finds the attention layers of models that Hugging Face transformers has saved.

The names of the tensors are in `layouts.py`. Every shape is compared with the configuration before
a layer is returned.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from attnkit.realmodels.base import AttentionLayer, Kind, Rope
from attnkit.realmodels.configuration import D_MODEL, N_PREDICTING, Configuration
from attnkit.realmodels.errors import Unreadable, listing, quote
from attnkit.realmodels.latent import StoredLatentLayer, latent_layers
from attnkit.realmodels.layer_sizes import layer_sizes
from attnkit.realmodels.layers import Linear, Norm, StoredLayer, attention_layers
from attnkit.realmodels.layouts import FAMILIES, FIELD_NOTES
from attnkit.realmodels.notes import K_IS_V, KV_REUSED, NO_ENCODER, NORMED, SLOPED, TEXT_ONLY
from attnkit.realmodels.rotary import ropes
from attnkit.realmodels.stack import Stack
from attnkit.realmodels.tensors import TensorFile

_OTHER_MODALITIES = ("vision", "visual", "image", "audio", "speech")
_QK_NORM = re.compile(r"(q|k|query|key)_?(layer)?norm")
_MAX_NAME_LENGTH = 300


def hugging_face_layers(
    tensors: TensorFile, config: Mapping[str, Any]
) -> tuple[str, tuple[AttentionLayer, ...], tuple[str, ...]]:
    """Find a model's attention layers.

    Args:
        tensors: The model's file.
        config: Its config.json.

    Returns:
        The model_type; the layers, encoder first, then causal, then cross-attention; and notes.

    Raises:
        Unreadable: If the model_type is not supported, or file and configuration contradict each
            other.
    """
    family, fields = _family(tensors, config)
    present_fields = {name: value for name, value in fields.items() if value is not None}
    stored: list[StoredLayer | StoredLatentLayer] = []
    notes: list[str] = []
    for stack in FAMILIES[family]:
        if (found := _find_stack(stack, tensors)) is None:
            continue
        model_prefix, indices = found
        configuration = Configuration({**fields, **dict(stack.defaults), **present_fields})
        n_layers = _n_layers(stack, model_prefix, configuration, indices)
        notes += stack.notes
        if stack.latent:
            stored += latent_layers(stack, model_prefix, configuration, n_layers)
            continue
        stack_layers, stack_notes = _stack_layers(
            stack, model_prefix, configuration, n_layers, tensors.entries
        )
        stored += stack_layers
        notes += stack_notes
    if not stored:
        stack = FAMILIES[family][0]
        name = f"{stack.prefix.format(0)}{stack.modules[0][0]}.weight"
        raise Unreadable(
            f"no attention found where a model of type {family} has it, for example {name}; "
            + tensors.contents
        )
    layers = attention_layers(tensors, stored)
    kinds = {layer.kind for layer in layers}
    if Kind.CROSS in kinds and len(FAMILIES[family]) == len(Kind) > len(kinds):
        notes.append(NO_ENCODER)
    notes += _field_notes(Configuration(fields))
    if _has_other_modality(tensors.entries):
        notes.append(TEXT_ONLY)
    return family, layers, tuple(dict.fromkeys(notes))


def _family(tensors: TensorFile, config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the model_type and the fields of the part of the model that reads text."""
    if not isinstance(config, Mapping):
        raise Unreadable(f"config.json is {quote(config)}; it must be an object")
    text_config = config.get("text_config")
    for fields in (text_config, config) if isinstance(text_config, dict) else (config,):
        family = fields.get("model_type")
        if isinstance(family, str) and family in FAMILIES:
            return family, fields
    raise Unreadable(
        f"config.json: model_type is {quote(config.get('model_type'))}; it must be one of "
        f"{', '.join(FAMILIES)}; {tensors.contents}"
    )


def _find_stack(stack: Stack, tensors: TensorFile) -> tuple[str, set[str]] | None:
    """Return the start of all names of the model, and the indices of its layers of this stack.

    None if it has no such layers.
    """
    layer = re.escape(stack.prefix).replace(r"\{\}", r"(?P<layer>\d{1,5})")
    first_weight = re.escape(f"{stack.modules[0][0]}.weight")
    pattern = re.compile(rf"(?P<prefix>(?:.*?\.)?){layer}{first_weight}")
    found: dict[str, set[str]] = {}
    for name in tensors.entries:
        match = pattern.fullmatch(name[:_MAX_NAME_LENGTH])
        if match and not _is_other_modality(match["prefix"]):
            found.setdefault(match["prefix"], set()).add(match["layer"])
    if len(found) > 1:
        raise Unreadable(
            f"{tensors.name} holds several models, whose names begin with "
            f"{listing(sorted(found))}; save one of them alone"
        )
    return next(iter(found.items()), None)


def _is_other_modality(name: str) -> bool:
    return any(word in name.lower() for word in _OTHER_MODALITIES)


def _has_other_modality(names: Iterable[str]) -> bool:
    """Return whether the model also has attention over images or sound."""
    return any(
        _is_other_modality(name.split(".self_attn")[0]) for name in names if ".self_attn" in name
    )


def _kind(stack: Stack, config: Configuration) -> Kind:
    for field, value, kind in stack.switches:
        if isinstance(value, str):
            found = config.find(field)[1] == value
        else:
            found = config.flag(field, default=not value) == value
        if found:
            return kind
    return stack.kind


def _stack_layers(
    stack: Stack, model_prefix: str, config: Configuration, n_layers: int, names: Collection[str]
) -> tuple[list[StoredLayer], list[str]]:
    """Return names and shapes of the tensors of all layers of a stack, and notes on them.

    Args:
        stack: The stack.
        model_prefix: Start of all names of the model.
        config: The model's configuration.
        n_layers: Number of layers.
        names: Names of the tensors in the file.
    """
    for field, value in stack.required:
        if config.count(field, default=value) != value:
            raise Unreadable(f"config.json: {field} must be {value}; other values are not read")
    sizes = layer_sizes(stack, config, n_layers)
    rope_of_layer: list[Rope | None] = [None] * len(sizes)
    notes: list[str] = []
    if stack.rotary and not config.flag("alibi", default=False):
        rope_of_layer, notes = ropes(stack.rotary, config, [size.d_head for size in sizes])
    normed = bool(stack.norm) and all(config.flag(name, default=True) for name in stack.norm_flags)
    d_model, kind = config.count(*D_MODEL), _kind(stack, config)
    prefixes = [model_prefix + stack.prefix.format(i) for i in range(n_layers)]
    stored = []
    for i, (size, rope) in enumerate(zip(sizes, rope_of_layer, strict=True)):
        prefix, kv_prefix = prefixes[i], prefixes[size.kv_layer]
        other = f"{prefix}{stack.other_norm}.weight"
        norm = stack.other_norm if stack.other_norm and other in names else stack.norm
        q_norm, kv_norm = (
            Norm(f"{prefixes[of]}{norm}.weight", stack.gain_offset)
            if normed and of >= stack.first_norm
            else None
            for of in (i, size.kv_layer)
        )
        if stack.kind is Kind.CROSS:
            source_norm = f"{model_prefix}{stack.source_norm}.weight"
            has_source_norm = bool(stack.source_norm) and source_norm in names
            kv_norm = Norm(source_norm, stack.gain_offset) if has_source_norm else None
        modules = [
            (roles, (prefix if "q" in roles else kv_prefix) + module)
            for module, roles in stack.modules
            if not (size.k_is_v and roles == "v")
        ]
        stored.append(
            StoredLayer(
                kind,
                tuple(Linear(roles, f"{name}.weight", f"{name}.bias") for roles, name in modules),
                n_heads=size.n_heads,
                n_kv_heads=size.n_kv_heads,
                d_head=size.d_head,
                d_value=size.d_head,
                d_model=d_model,
                d_source=d_model,
                norm=q_norm,
                kv_norm=kv_norm,
                rope=rope,
                kv_index=None if size.kv_layer == i else size.kv_layer,
                transposed=stack.transposed,
                grouped=stack.grouped,
                k_is_v=size.k_is_v,
            )
        )
    parents = {prefixes[0] + module.rpartition(".")[0] + "." for module, _ in stack.modules}
    if any(_QK_NORM.match(name.removeprefix(p)) for name in names for p in parents):
        notes.append(NORMED)
    notes += [K_IS_V] if any(size.k_is_v for size in sizes) else []
    notes += [KV_REUSED] if any(layer.kv_index is not None for layer in stored) else []
    return stored, notes


def _n_layers(stack: Stack, model_prefix: str, config: Configuration, indices: set[str]) -> int:
    """Return the configured number of layers if the file has exactly these layers.

    It may also have layers after them that only predict later tokens in training.
    """
    n_layers = config.count(*stack.n_layers)
    n_predicting = config.count(*N_PREDICTING) if config.find(*N_PREDICTING)[1] else 0
    in_order = all(str(i) in indices for i in range(len(indices)))
    if len(indices) not in (n_layers, n_layers + n_predicting) or not in_order:
        raise Unreadable(
            f"config.json: {config.find(*stack.n_layers)[0]} is {n_layers}, "
            f"but the file holds {len(indices)} layers {quote(model_prefix + stack.prefix)}"
        )
    return n_layers


def _field_notes(config: Configuration) -> list[str]:
    """Return the notes that fields of the configuration, or of its attention, call for."""
    notes = [
        note
        for fields in (config, config.section("attn_config") or Configuration({}))
        for field, note in FIELD_NOTES.items()
        if fields.find(field)[1] not in (None, False)
        and not (field == "sliding_window" and not config.flag("use_sliding_window", True))
    ]
    _, positions = config.find("position_embedding_type")
    if isinstance(positions, str) and positions.startswith("relative"):
        notes.append(SLOPED)
    return notes
