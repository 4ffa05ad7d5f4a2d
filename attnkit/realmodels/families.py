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
from attnkit.realmodels.layouts import FAMILIES, FIELD_NOTES, Stack
from attnkit.realmodels.notes import NO_ENCODER, NORMED, SLOPED, TEXT_ONLY
from attnkit.realmodels.rotary import ropes

_WIDTH_FIELDS = ("hidden_size", "d_model", "n_embd", "dim")
_OTHER_MODALITIES = ("vision", "visual", "image", "audio", "speech")
_ATTENTION_WORDS = ("attn", "attention", "q_proj", "query", "qkv")
_QUANTISED_ENDINGS = ("qweight", "weight_packed", "scb", "weight_scale", "weight_format", "absmax")
_QK_NORM = re.compile(r"(q|k|query|key)_?(layer)?norm")
_MAX_NAME_LENGTH = 300


@dataclass(frozen=True)
class _LayerSpec:
    """Names and shapes that the tensors of one attention layer must have."""

    stack: Stack
    prefix: str
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    norm: str
    source_norm: str
    rope: Rope | None

    def weight(self, module: str) -> str:
        return f"{self.prefix}{module}.weight"

    def bias(self, module: str) -> str:
        return f"{self.prefix}{module}.bias"

    def n_heads_of(self, role: str) -> int:
        return self.n_heads if role == "q" else self.n_kv_heads

    def n_outputs(self, roles: str) -> int:
        return sum(self.n_heads_of(role) for role in roles) * self.d_head


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
        configuration = Configuration({**dict(stack.defaults), **present_fields})
        specs, stack_notes = _layer_specs(stack, model_prefix, configuration, tensors)
        kind = _kind(stack, configuration)
        layers += [
            AttentionLayer(kind, i, spec.n_heads, spec.n_kv_heads, partial(_read, tensors, spec))
            for i, spec in enumerate(specs)
        ]
        notes += (*stack.notes, *stack_notes)
    if not layers:
        stack = FAMILIES[family][0]
        name = f"{stack.prefix.format(0)}{stack.modules[0][0]}.weight"
        raise Unreadable(
            f"no attention found where a model of type {family} has it, for example {name}; "
            + _contents(tensors.shapes, fields)
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
        f"{', '.join(FAMILIES)}; {_contents(tensors.shapes, config)}"
    )


def _contents(names: Iterable[str], config: Mapping[str, Any]) -> str:
    """Return what the file holds instead of the expected tensors, for an error message."""
    names = list(names)
    similar = [name for name in names if any(word in name.lower() for word in _ATTENTION_WORDS)]
    quantised = "quantization_config" in config or any(
        name.lower().endswith(_QUANTISED_ENDINGS) for name in names
    )
    return f"the file holds {listing(similar or names)}" + (
        " and is quantised: take the unquantised model" if quantised else ""
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
        if config.flag(field, default=not value) == value:
            return kind
    return stack.kind


def _layer_specs(
    stack: Stack, model_prefix: str, config: Configuration, tensors: TensorFile
) -> tuple[list[_LayerSpec], list[str]]:
    """Return the checked specifications of all layers of a stack, and notes on them."""
    for field, value in stack.required:
        if config.count(field, default=value) != value:
            raise Unreadable(f"config.json: {field} must be {value}; other values are not read")
    n_layers = _n_layers(stack, model_prefix, config, tensors)
    d_model, n_heads = config.count(*_WIDTH_FIELDS), config.count(*stack.n_heads)
    n_kv_heads = config.count(*stack.n_kv_heads, default=n_heads) if stack.n_kv_heads else n_heads
    d_head = _d_head(stack, config, d_model, n_heads)
    if n_heads % n_kv_heads:
        raise Unreadable(
            f"config.json: {n_heads} heads cannot share {n_kv_heads} key and value heads equally"
        )
    rope_of_layer: list[Rope | None] = [None] * n_layers
    notes: list[str] = []
    if stack.rotary:
        rope_of_layer, notes = ropes(stack.rotary, config, n_layers, d_head)
    normed = bool(stack.norm) and all(config.flag(name, default=True) for name in stack.norm_flags)
    source_norm = f"{model_prefix}{stack.source_norm}.weight" if stack.source_norm else ""
    specs = []
    for i in range(n_layers):
        prefix = model_prefix + stack.prefix.format(i)
        spec = _LayerSpec(
            stack,
            prefix,
            n_heads,
            n_kv_heads,
            d_model,
            d_head,
            norm=f"{prefix}{stack.norm}.weight" if normed and i >= stack.first_norm else "",
            source_norm=source_norm if source_norm in tensors.shapes else "",
            rope=rope_of_layer[i],
        )
        _check(spec, tensors)
        specs.append(spec)
    parents = {specs[0].prefix + module.rpartition(".")[0] + "." for module, _ in stack.modules}
    if any(_QK_NORM.match(name.removeprefix(p)) for name in tensors.shapes for p in parents):
        notes.append(NORMED)
    return specs, notes


def _n_layers(stack: Stack, model_prefix: str, config: Configuration, tensors: TensorFile) -> int:
    """Return the configured number of layers if the file has exactly these layers."""
    n_layers = config.count(*stack.n_layers)
    pattern = _first_weight(stack, re.escape(model_prefix))
    matches = (pattern.fullmatch(name[:_MAX_NAME_LENGTH]) for name in tensors.shapes)
    indices = {match["layer"] for match in matches if match}
    if len(indices) != n_layers or not all(str(i) in indices for i in range(n_layers)):
        raise Unreadable(
            f"config.json: {config.find(*stack.n_layers)[0]} is {n_layers}, "
            f"but the file holds {len(indices)} layers {quote(model_prefix + stack.prefix)}"
        )
    return n_layers


def _d_head(stack: Stack, config: Configuration, d_model: int, n_heads: int) -> int:
    if stack.d_head and config.find(*stack.d_head)[0]:
        return config.count(*stack.d_head)
    if d_model % n_heads:
        raise Unreadable(
            f"config.json: the width {d_model} cannot be divided among {n_heads} heads"
        )
    return d_model // n_heads


def _check(spec: _LayerSpec, tensors: TensorFile) -> None:
    """Raise Unreadable unless the layer's tensors are present and have the specified shapes."""
    m = spec.d_model
    reason = (
        f"{spec.n_heads} heads, {spec.n_kv_heads} key and value heads, "
        f"{spec.d_head} wide, of {m} inputs"
    )
    for module, roles in spec.stack.modules:
        n_outputs = spec.n_outputs(roles)
        shape = (m, n_outputs) if spec.stack.transposed else (n_outputs, m)
        _check_shape(tensors, spec.weight(module), shape, reason)
        if spec.bias(module) in tensors.shapes:
            _check_shape(tensors, spec.bias(module), (n_outputs,), reason)
    for norm in (spec.norm, spec.source_norm):
        if norm:
            _check_shape(tensors, norm, (m,), f"a width of {m}")


def _check_shape(tensors: TensorFile, name: str, shape: tuple[int, ...], reason: str) -> None:
    actual = tensors.shapes.get(name)
    if actual is None:
        raise Unreadable(f"there is no tensor {quote(name)}; {_contents(tensors.shapes, {})}")
    if actual != shape:
        raise Unreadable(
            f"tensor {quote(name)} is of shape {quote(actual)}; "
            f"the configuration says {shape} ({reason})"
        )


def _read(tensors: TensorFile, spec: _LayerSpec) -> Projections:
    """Read the weights of one layer."""
    weights: dict[str, np.ndarray] = {}
    biases: dict[str, np.ndarray] = {}
    for module, roles in spec.stack.modules:
        weight = tensors.read(spec.weight(module))
        for role, rows in _split(spec, roles, weight.T if spec.stack.transposed else weight):
            weights[role] = per_head(rows, spec.n_heads_of(role))
        del weight  # it takes as much memory as its copies by head
        if spec.bias(module) in tensors.shapes:
            for role, rows in _split(spec, roles, tensors.read(spec.bias(module))):
                biases[role] = bias_per_head(rows, spec.n_heads_of(role))
    gain_q = _gain(tensors, spec, spec.norm)
    cross = spec.stack.kind is Kind.CROSS
    return Projections(
        weights["q"],
        weights["k"],
        weights["v"],
        biases.get("q"),
        biases.get("k"),
        biases.get("v"),
        gain_q,
        _gain(tensors, spec, spec.source_norm) if cross else gain_q,
        spec.rope,
    )


def _split(spec: _LayerSpec, roles: str, rows: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Split the rows of a linear layer among its roles; within a role they are ordered by head."""
    if spec.stack.per_head:
        by_head = rows.reshape(spec.n_heads, len(roles), spec.d_head, *rows.shape[1:])
        return [(role, by_head[:, i].reshape(-1, *rows.shape[1:])) for i, role in enumerate(roles)]
    ends = np.cumsum([spec.n_heads_of(role) * spec.d_head for role in roles])
    return list(zip(roles, np.split(rows, ends[:-1]), strict=True))


def _gain(tensors: TensorFile, spec: _LayerSpec, norm: str) -> np.ndarray | None:
    return tensors.read(norm) + np.float32(spec.stack.gain_offset) if norm else None


def _field_notes(config: Configuration) -> list[str]:
    notes = [
        note
        for field, note in FIELD_NOTES.items()
        if config.find(field)[0]
        and not (field == "sliding_window" and not config.flag("use_sliding_window", True))
    ]
    _, positions = config.find("position_embedding_type")
    if isinstance(positions, str) and positions.startswith("relative"):
        notes.append(SLOPED)
    return notes
