"""Finds the attention layers of models that Hugging Face transformers has saved.

The names of the tensors are in `layouts.py`. Every shape is compared with the configuration before
a layer is returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from attnkit.realmodels.base import (
    AttentionLayer,
    Kind,
    Projections,
    Rope,
    TensorFile,
    Unreadable,
    bias_per_head,
    listing,
    per_head,
    quote,
)
from attnkit.realmodels.configuration import Configuration
from attnkit.realmodels.latent import latent_layers
from attnkit.realmodels.layer_sizes import WIDTH_FIELDS, LayerSize, layer_sizes
from attnkit.realmodels.layouts import FAMILIES, FIELD_NOTES
from attnkit.realmodels.notes import K_IS_V, KV_REUSED, NO_ENCODER, NORMED, SLOPED, TEXT_ONLY
from attnkit.realmodels.rotary import ropes
from attnkit.realmodels.stack import Stack
from attnkit.realmodels.tensor_checks import check_shape, contents

_OTHER_MODALITIES = ("vision", "visual", "image", "audio", "speech")
_PREDICTING = ("num_nextn_predict_layers", "num_mtp_layers")
_QK_NORM = re.compile(r"(q|k|query|key)_?(layer)?norm")
_MAX_NAME_LENGTH = 300


@dataclass(frozen=True)
class _LayerSpec:
    """Names and shapes that the tensors of one attention layer must have.

    Attributes:
        stack: Names of the family.
        modules: Full name and roles of each linear layer.
        size: Heads of the layer.
        d_model: Width of the residual stream.
        norm: Full name of the norm before the queries; "" if there is none.
        kv_norm: Full name of the norm before keys and values; "" if there is none.
        rope: Rotary positions, or None.
    """

    stack: Stack
    modules: tuple[tuple[str, str], ...]
    size: LayerSize
    d_model: int
    norm: str
    kv_norm: str
    rope: Rope | None

    def n_heads_of(self, role: str) -> int:
        return self.size.n_heads if role == "q" else self.size.n_kv_heads

    def n_outputs(self, roles: str) -> int:
        return sum(self.n_heads_of(role) for role in roles) * self.size.d_head


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
    layers: list[AttentionLayer] = []
    notes: list[str] = []
    for stack in FAMILIES[family]:
        if (model_prefix := _model_prefix(stack, tensors)) is None:
            continue
        configuration = Configuration({**fields, **dict(stack.defaults), **present_fields})
        find = latent_layers if stack.latent else _stack_layers
        n_layers = _n_layers(stack, model_prefix, configuration, tensors)
        stack_layers, stack_notes = find(stack, model_prefix, configuration, tensors, n_layers)
        layers += stack_layers
        notes += (*stack.notes, *stack_notes)
    if not layers:
        stack = FAMILIES[family][0]
        name = f"{stack.prefix.format(0)}{stack.modules[0][0]}.weight"
        raise Unreadable(
            f"no attention found where a model of type {family} has it, for example {name}; "
            + contents(tensors.shapes, fields)
        )
    kinds = {layer.kind for layer in layers}
    if Kind.CROSS in kinds and len(FAMILIES[family]) == len(Kind) > len(kinds):
        notes.append(NO_ENCODER)
    notes += _field_notes(Configuration(fields))
    if _has_other_modality(tensors.shapes):
        notes.append(TEXT_ONLY)
    return family, tuple(layers), tuple(dict.fromkeys(notes))


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
        f"{', '.join(FAMILIES)}; {contents(tensors.shapes, config)}"
    )


def _model_prefix(stack: Stack, tensors: TensorFile) -> str | None:
    """Return the start of all names of the model, or None if it has no layers of this stack."""
    pattern = _first_weight(stack, r"(?P<prefix>(?:.*?\.)?)")
    matches = (pattern.fullmatch(name[:_MAX_NAME_LENGTH]) for name in tensors.shapes)
    prefixes = sorted({match["prefix"] for match in matches if match})
    prefixes = [prefix for prefix in prefixes if not _is_other_modality(prefix)]
    if len(prefixes) > 1:
        raise Unreadable(
            "this file holds several models, whose names begin with "
            f"{listing(prefixes)}; save one of them alone"
        )
    return prefixes[0] if prefixes else None


def _first_weight(stack: Stack, model_prefix: str) -> re.Pattern[str]:
    """Return a pattern of the name of a layer's first weight; `model_prefix` is a pattern, too."""
    layer = re.escape(stack.prefix).replace(r"\{\}", r"(?P<layer>\d{1,5})")
    return re.compile(f"{model_prefix}{layer}{re.escape(stack.modules[0][0])}\\.weight")


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
    stack: Stack, model_prefix: str, config: Configuration, tensors: TensorFile, n_layers: int
) -> tuple[list[AttentionLayer], list[str]]:
    """Return all layers of a stack, whose tensors have been checked, and notes on them."""
    for field, value in stack.required:
        if config.count(field, default=value) != value:
            raise Unreadable(f"config.json: {field} must be {value}; other values are not read")
    sizes = layer_sizes(stack, config, n_layers)
    rope_of_layer: list[Rope | None] = [None] * len(sizes)
    notes: list[str] = []
    if stack.rotary and not config.flag("alibi", default=False):
        rope_of_layer, notes = ropes(stack.rotary, config, [size.d_head for size in sizes])
    kind = _kind(stack, config)
    layers = []
    for i, (size, rope) in enumerate(zip(sizes, rope_of_layer, strict=True)):
        spec = _layer_spec(stack, model_prefix, config, tensors, i, size, rope)
        _check(spec, tensors)
        layers.append(
            AttentionLayer(
                kind,
                i,
                size.n_heads,
                size.n_kv_heads,
                partial(_read, tensors, spec),
                kv_index=None if size.kv_layer == i else size.kv_layer,
            )
        )
    first = model_prefix + stack.prefix.format(0)
    parents = {first + module.rpartition(".")[0] + "." for module, _ in stack.modules}
    if any(_QK_NORM.match(name.removeprefix(p)) for name in tensors.shapes for p in parents):
        notes.append(NORMED)
    notes += [K_IS_V] if any(size.k_is_v for size in sizes) else []
    notes += [KV_REUSED] if any(layer.kv_index is not None for layer in layers) else []
    return layers, notes


def _layer_spec(
    stack: Stack,
    model_prefix: str,
    config: Configuration,
    tensors: TensorFile,
    layer: int,
    size: LayerSize,
    rope: Rope | None,
) -> _LayerSpec:
    """Return the names and shapes that the tensors of one layer must have."""
    normed = bool(stack.norm) and all(config.flag(name, default=True) for name in stack.norm_flags)
    prefix, kv_prefix = (model_prefix + stack.prefix.format(i) for i in (layer, size.kv_layer))
    other = f"{prefix}{stack.other_norm}.weight"
    norm = stack.other_norm if stack.other_norm and other in tensors.shapes else stack.norm
    q_norm, kv_norm = (
        f"{start}{norm}.weight" if normed and i >= stack.first_norm else ""
        for start, i in ((prefix, layer), (kv_prefix, size.kv_layer))
    )
    if stack.kind is Kind.CROSS:
        source_norm = f"{model_prefix}{stack.source_norm}.weight" if stack.source_norm else ""
        kv_norm = source_norm if source_norm in tensors.shapes else ""
    d_model = config.count(*WIDTH_FIELDS)
    modules = [
        ((prefix if "q" in roles else kv_prefix) + module, roles)
        for module, roles in stack.modules
        if not (size.k_is_v and roles == "v")
    ]
    return _LayerSpec(stack, tuple(modules), size, d_model, q_norm, kv_norm, rope)


def _n_layers(stack: Stack, model_prefix: str, config: Configuration, tensors: TensorFile) -> int:
    """Return the configured number of layers if the file has exactly these layers.

    It may also have layers after them that only predict later tokens in training.
    """
    n_layers = config.count(*stack.n_layers)
    pattern = _first_weight(stack, re.escape(model_prefix))
    matches = (pattern.fullmatch(name[:_MAX_NAME_LENGTH]) for name in tensors.shapes)
    indices = {match["layer"] for match in matches if match}
    n_predicting = config.count(*_PREDICTING) if config.find(*_PREDICTING)[1] else 0
    in_order = all(str(i) in indices for i in range(len(indices)))
    if len(indices) not in (n_layers, n_layers + n_predicting) or not in_order:
        raise Unreadable(
            f"config.json: {config.find(*stack.n_layers)[0]} is {n_layers}, "
            f"but the file holds {len(indices)} layers {quote(model_prefix + stack.prefix)}"
        )
    return n_layers


def _check(spec: _LayerSpec, tensors: TensorFile) -> None:
    """Raise Unreadable unless the layer's tensors are present and have the specified shapes."""
    m, size = spec.d_model, spec.size
    reason = (
        f"{size.n_heads} heads, {size.n_kv_heads} key and value heads, "
        f"{size.d_head} wide, of {m} inputs"
    )
    for module, roles in spec.modules:
        n_outputs = spec.n_outputs(roles)
        shape = (m, n_outputs) if spec.stack.transposed else (n_outputs, m)
        check_shape(tensors, f"{module}.weight", shape, reason)
        if f"{module}.bias" in tensors.shapes:
            check_shape(tensors, f"{module}.bias", (n_outputs,), reason)
    for norm in (spec.norm, spec.kv_norm):
        if norm:
            check_shape(tensors, norm, (m,), f"a width of {m}")


def _read(tensors: TensorFile, spec: _LayerSpec) -> Projections:
    """Read the weights of one layer."""
    weights: dict[str, np.ndarray] = {}
    biases: dict[str, np.ndarray] = {}
    for module, roles in spec.modules:
        weight = tensors.read(f"{module}.weight")
        for role, rows in _split(spec, roles, weight.T if spec.stack.transposed else weight):
            weights[role] = per_head(rows, spec.n_heads_of(role))
        del weight  # it takes as much memory as its copies by head
        if f"{module}.bias" in tensors.shapes:
            for role, rows in _split(spec, roles, tensors.read(f"{module}.bias")):
                biases[role] = bias_per_head(rows, spec.n_heads_of(role))
    value = "k" if spec.size.k_is_v else "v"
    return Projections(
        weights["q"],
        weights["k"],
        weights[value],
        biases.get("q"),
        biases.get("k"),
        biases.get(value),
        _gain(tensors, spec, spec.norm),
        _gain(tensors, spec, spec.kv_norm),
        spec.rope,
    )


def _split(spec: _LayerSpec, roles: str, rows: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Split the rows of a linear layer among its roles; within a role they are ordered by head."""
    n_kv_heads, d_head = spec.size.n_kv_heads, spec.size.d_head
    if spec.stack.grouped:
        of_groups = rows.reshape(n_kv_heads, -1, d_head, *rows.shape[1:])
        parts = (of_groups[:, :-2], of_groups[:, -2], of_groups[:, -1])
        return [
            (role, part.reshape(-1, *rows.shape[1:]))
            for role, part in zip("qkv", parts, strict=True)
        ]
    ends = np.cumsum([spec.n_heads_of(role) * d_head for role in roles])
    return list(zip(roles, np.split(rows, ends[:-1]), strict=True))


def _gain(tensors: TensorFile, spec: _LayerSpec, norm: str) -> np.ndarray | None:
    return tensors.read(norm) + np.float32(spec.stack.gain_offset) if norm else None


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
