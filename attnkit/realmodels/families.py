"""Finds the attention layers of models that Hugging Face transformers has saved.

The names of the tensors are in `layouts.py`. Every shape is compared with the configuration before
a layer is returned.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from attnkit.realmodels.base import AttentionLayer, Kind, Rope
from attnkit.realmodels.configuration import D_MODEL, LAYER_TYPES, N_PREDICTING, Configuration
from attnkit.realmodels.errors import Unreadable, choices, listing, quote
from attnkit.realmodels.latent import StoredLatentLayer, latent_layers
from attnkit.realmodels.layer_sizes import layer_sizes
from attnkit.realmodels.layers import Linear, Norm, StoredLayer, attention_layers
from attnkit.realmodels.layouts import FAMILIES, FIELD_NOTES, SPARSE
from attnkit.realmodels.notes import (
    HYBRID,
    K_IS_V,
    KV_REUSED,
    NO_ENCODER,
    NORMED,
    PREDICTING,
    SLOPED,
    TEXT_ONLY,
    quantised,
)
from attnkit.realmodels.rotary import ropes
from attnkit.realmodels.stack import Stack
from attnkit.realmodels.tensors import TensorFile

_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Names of the part of a configuration that describes the model of text."""

UNQUANTISED = ("F64", "F32", "F16", "BF16")
"""Types of numbers that are not rounded any further."""

_OTHER_MODALITIES = ("vision", "visual", "image", "audio", "speech")
_QK_NORM = re.compile(r"\.?(attn_)?(q|k|query|key)_?(layer)?norm")
_PREDICTING = re.compile(r"(^|\.)(mtp|nextn)\.")
_MAX_NAME_LENGTH = 300


def hugging_face_layers(
    tensors: TensorFile, config: Mapping[str, Any]
) -> tuple[str, tuple[AttentionLayer, ...], tuple[str, ...]]:
    """Find the attention layers of a model that transformers has saved.

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
    layers, notes = family_layers(tensors, family, FAMILIES[family], Configuration(fields))
    return family, layers, notes


def family_layers(
    tensors: TensorFile, family: str, stacks: tuple[Stack, ...], config: Configuration
) -> tuple[tuple[AttentionLayer, ...], tuple[str, ...]]:
    """Find the attention layers of a family's model; arguments and errors as above.

    Args:
        tensors: The model's file.
        family: Name of the family.
        stacks: Names of its tensors, and its rules.
        config: The model's configuration, with the field names of transformers.
    """
    stored: list[StoredLayer | StoredLatentLayer] = []
    notes: list[str] = []
    for stack in stacks:
        if (found := _find_stack(stack, tensors)) is None:
            continue
        model_prefix, numbers = found
        own = config.with_defaults(stack.defaults)
        n_layers, indices = _indices(stack, model_prefix, own, numbers)
        notes += stack.notes
        if stack.latent is not None:
            stored += latent_layers(stack, stack.latent, model_prefix, own, n_layers)
            continue
        stack_layers, stack_notes = _stack_layers(
            stack, model_prefix, own, indices, n_layers, tensors.entries
        )
        stored += stack_layers
        notes += stack_notes
        notes += [HYBRID] if len(indices) < n_layers and len(stacks) == 1 else []
    if not stored:
        stack = stacks[0]
        name = f"{stack.prefix.format(0)}{stack.modules[0][0]}.weight"
        raise Unreadable(
            f"no attention found where a model of type {family} has it, for example {name}; "
            + tensors.contents
        )
    layers = attention_layers(tensors, stored)
    kinds = {layer.kind for layer in layers}
    if Kind.CROSS in kinds and len({stack.kind for stack in stacks}) == len(Kind) > len(kinds):
        notes.append(NO_ENCODER)
    notes += _field_notes(config)
    types = {tensors.entries[weight].type for layer in stored for weight in layer.weights}
    if types := types - set(UNQUANTISED):
        notes.insert(0, quantised(types))
    if _has_other_modality(tensors.entries):
        notes.append(TEXT_ONLY)
    if any(_PREDICTING.search(name[:_MAX_NAME_LENGTH]) for name in tensors.entries):
        notes.append(PREDICTING)
    return layers, tuple(dict.fromkeys(notes))


def _family(tensors: TensorFile, config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the model_type and the fields of the part of the model that reads text."""
    if not isinstance(config, Mapping):
        raise Unreadable(f"config.json is {quote(config)}; it must be an object")
    inner = [config.get(name) for name in _TEXT_PARTS]
    for fields in (*(part for part in inner if isinstance(part, dict)), config):
        family = fields.get("model_type")
        if isinstance(family, str) and family in FAMILIES:
            if fields is config:
                return family, fields
            present = {name: value for name, value in fields.items() if value is not None}
            return family, {**SPARSE.get(family, {}), **present}
    family = config.get("model_type")
    raise Unreadable(
        f"config.json: model_type is {quote(family)}; it must be {choices(family, FAMILIES)}; "
        f"{tensors.contents}{_similar(tensors)}"
    )


def _similar(tensors: TensorFile) -> str:
    """Return advice on an unknown model_type whose layers have the names of a known family."""
    for family in ("llama", "bert", "gpt2", "bart", "t5"):
        if _find_stack(FAMILIES[family][0], tensors) is not None:
            return (
                f". The names are those of a {family}: if the model computes attention as a "
                f"{family} does, write this model_type into a copy of its config.json"
            )
    return ""


def _find_stack(stack: Stack, tensors: TensorFile) -> tuple[str, set[int]] | None:
    """Return the start of all names of the model, and the indices of its layers of this stack.

    None if it has no such layers.
    """
    layer = re.escape(stack.prefix).replace(r"\{\}", r"(?P<layer>\d{1,5})")
    first_weight = re.escape(f"{stack.modules[0][0]}.weight")
    pattern = re.compile(rf"(?P<prefix>(?:.*?\.)?){layer}{first_weight}")
    found: dict[str, set[int]] = {}
    for name in tensors.entries:
        match = pattern.fullmatch(name[:_MAX_NAME_LENGTH])
        prefix = match["prefix"] if match else ""
        if match and not _is_other_modality(prefix) and not _PREDICTING.search(prefix):
            found.setdefault(prefix, set()).add(int(match["layer"]))
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
    stack: Stack,
    model_prefix: str,
    config: Configuration,
    indices: list[int],
    n_layers: int,
    names: Collection[str],
) -> tuple[list[StoredLayer], list[str]]:
    """Return names and shapes of the tensors of all layers of a stack, and notes on them.

    Args:
        stack: The stack.
        model_prefix: Start of all names of the model.
        config: The model's configuration.
        indices: Indices of the layers of this stack.
        n_layers: Number of all layers.
        names: Names of the tensors in the file.
    """
    for field, value in stack.required:
        if config.count(field, default=value) != value:
            raise Unreadable(f"config.json: {field} must be {value}; other values are not read")
    sizes = layer_sizes(stack, config, indices, n_layers)
    rope_of_layer: dict[int, Rope | None] = dict.fromkeys(sizes)
    notes: list[str] = []
    if stack.rotary and not config.flag("alibi", default=False):
        d_heads = {i: size.d_head for i, size in sizes.items()}
        rope_of_layer, notes = ropes(stack.rotary, config, d_heads, n_layers)
    normed = bool(stack.norm) and all(config.flag(name, default=True) for name in stack.norm_flags)
    d_model, kind = config.count(*D_MODEL), _kind(stack, config)
    prefixes = {i: model_prefix + stack.prefix.format(i) for i in sizes}
    stored = []
    for i, size in sizes.items():
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
            ("k=v" if size.k_is_v and roles == "k" else roles, module)
            for module, roles in stack.modules
            if not (size.k_is_v and roles == "v")
        ]
        stored.append(
            StoredLayer(
                kind,
                tuple(
                    Linear(roles, f"{name}.weight", f"{name}.bias")
                    for roles, module in modules
                    for name in [(prefix if "q" in roles else kv_prefix) + module]
                ),
                n_heads=size.n_heads,
                n_kv_heads=size.n_kv_heads,
                d_head=size.d_head,
                d_value=size.d_head,
                d_model=d_model,
                d_source=d_model,
                norm=q_norm,
                kv_norm=kv_norm,
                rope=rope_of_layer[i],
                kv_index=None if size.kv_layer == i else size.kv_layer,
                transposed=stack.transposed,
                grouped=stack.grouped,
                number=i,
                gated=stack.gated,
                # Without pairs of dimensions, a converter has not shuffled them.
                shuffled=stack.shuffled and size.d_head % 2 == 0,
            )
        )
    first = prefixes[indices[0]]
    parents = {first + module.rpartition(".")[0] for module, _ in stack.modules}
    if any(_QK_NORM.match(name.removeprefix(p)) for name in names for p in parents):
        notes.append(NORMED)
    notes += [K_IS_V] if any(size.k_is_v for size in sizes.values()) else []
    notes += [KV_REUSED] if any(layer.kv_index is not None for layer in stored) else []
    return stored, notes


def _indices(
    stack: Stack, model_prefix: str, config: Configuration, found: set[int]
) -> tuple[int, list[int]]:
    """Return the configured number of layers, and the indices of those with this attention.

    A model may also have layers after them that only predict later tokens in training.
    """
    n_layers = config.count(*stack.n_layers)
    expected = set(range(n_layers))
    if stack.hybrid:
        layer_types = config.words(*LAYER_TYPES, n_layers=n_layers)
        expected &= found
        if layer_types is not None:
            expected = {i for i, word in enumerate(layer_types) if word in stack.hybrid}
    n_predicting = config.count(*N_PREDICTING) if config.find(*N_PREDICTING)[1] else 0
    if found - set(range(n_layers, n_layers + n_predicting)) != expected:
        raise Unreadable(
            f"{config.file}: {config.find(*stack.n_layers)[0]} is {n_layers}, "
            f"but the file holds {len(found)} layers {quote(model_prefix + stack.prefix)}"
        )
    return n_layers, sorted(expected)


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
