"""The attention layers of a model that Hugging Face transformers wrote: names and shapes checked.

The names stand in `layouts.py`; this finds them in a file, compares every shape with what the
configuration says, and makes of each layer one that can be read.
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

_WIDTH = ("hidden_size", "d_model", "n_embd", "dim")
_OTHER_SENSES = ("vision", "visual", "image", "audio", "speech")
_ATTENTION = ("attn", "attention", "q_proj", "query", "qkv")
_QUANTISED = ("qweight", "weight_packed", "scb", "weight_scale", "weight_format", "absmax")
_QK_NORM = re.compile(r"(q|k|query|key)_?(layer)?norm")
_LONGEST_NAME = 300


@dataclass(frozen=True)
class _Place:
    """Where one layer's matrices lie and of what shape they must be."""

    stack: Stack
    prefix: str
    layer: str
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    norm: str
    source_norm: str
    rope: Rope | None

    def weight(self, module: str) -> str:
        return f"{self.layer}{module}.weight"

    def bias(self, module: str) -> str:
        return f"{self.layer}{module}.bias"

    def heads(self, letter: str) -> int:
        return self.n_heads if letter == "q" else self.n_kv_heads

    def n_outputs(self, letters: str) -> int:
        return sum(self.heads(letter) for letter in letters) * self.d_head


def hugging_face_layers(
    tensors: TensorFile, config: Mapping[str, Any]
) -> tuple[str, tuple[AttentionLayer, ...], tuple[str, ...]]:
    """Find a model's attention layers.

    Args:
        tensors: the model's file.
        config: its config.json.

    Returns:
        The family, by its name in the configuration; the layers, encoder, causal, cross; and what
        to know of them, in whole sentences.

    Raises:
        Unreadable: for a family that is not known, or when file and configuration do not agree.
    """
    family, fields = _family(tensors, config)
    layers: list[AttentionLayer] = []
    notes: list[str] = []
    for stack in FAMILIES[family]:
        if (prefix := _prefix(stack, tensors)) is None:
            continue
        filled = Configuration({**dict(stack.defaults), **_given(fields)})
        places, told = _places(stack, prefix, filled, tensors)
        kind = _kind(stack, filled)
        layers += [
            AttentionLayer(kind, i, p.n_heads, p.n_kv_heads, partial(_read, tensors, p))
            for i, p in enumerate(places)
        ]
        notes += (*stack.notes, *told)
    if not layers:
        expected = FAMILIES[family][0]
        name = f"{expected.layer.format(0)}{expected.parts[0][0]}.weight"
        raise Unreadable(
            f"no attention found where a model of type {family} has it, say {name}; "
            + _what_is_there(tensors.shapes, fields)
        )
    kinds = {layer.kind for layer in layers}
    if Kind.CROSS in kinds and len(FAMILIES[family]) == len(Kind) > len(kinds):
        notes.append(NO_ENCODER)
    notes += _field_notes(Configuration(fields))
    notes += _other_senses(tensors.shapes)
    return family, tuple(layers), tuple(dict.fromkeys(notes))


def _family(tensors: TensorFile, config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The model_type, and the fields of the part that reads text."""
    if not isinstance(config, Mapping):
        raise Unreadable(f"config.json is {quote(config)}; it must be an object")
    text = config.get("text_config")
    for fields in (text, config) if isinstance(text, dict) else (config,):
        family = fields.get("model_type")
        if isinstance(family, str) and family in FAMILIES:
            return family, fields
    raise Unreadable(
        f"config.json: model_type is {quote(config.get('model_type'))}; it must be one of "
        f"{', '.join(FAMILIES)}; {_what_is_there(tensors.shapes, config)}"
    )


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _what_is_there(names: Iterable[str], config: Mapping[str, Any]) -> str:
    """What is there instead, for an error message."""
    names = list(names)
    look_alike = [name for name in names if any(word in name.lower() for word in _ATTENTION)]
    quantised = "quantization_config" in config or any(
        name.lower().endswith(_QUANTISED) for name in names
    )
    return f"the file holds {listing(look_alike or names)}" + (
        " and is quantised: take the unquantised model" if quantised else ""
    )


def _prefix(stack: Stack, tensors: TensorFile) -> str | None:
    """What all names of the model begin with, or None where it has no such layers."""
    pattern = _first_weight(stack, r"(?P<prefix>(?:.*?\.)?)")
    matches = (pattern.fullmatch(name[:_LONGEST_NAME]) for name in tensors.shapes)
    found = sorted({match["prefix"] for match in matches if match})
    read = [prefix for prefix in found if not _other_sense(prefix)]
    if len(read) > 1:
        raise Unreadable(
            "this file holds several models, whose names begin with "
            f"{listing(read)}; save one of them alone"
        )
    return read[0] if read else None


def _first_weight(stack: Stack, prefix: str) -> re.Pattern[str]:
    layer = re.escape(stack.layer).replace(r"\{\}", r"(?P<layer>\d{1,5})")
    return re.compile(f"{prefix}{layer}{re.escape(stack.parts[0][0])}\\.weight")


def _other_sense(name: str) -> bool:
    return any(word in name.lower() for word in _OTHER_SENSES)


def _other_senses(names: Iterable[str]) -> list[str]:
    """Of a model that also sees or hears."""
    tops = {name.split(".self_attn")[0] for name in names if ".self_attn" in name}
    if any(_other_sense(top) for top in tops):
        return [TEXT_ONLY]
    return []


def _kind(stack: Stack, config: Configuration) -> Kind:
    for field, value, kind in stack.switches:
        if config.flag(field, default=not value) == value:
            return kind
    return stack.kind


def _places(
    stack: Stack, prefix: str, config: Configuration, tensors: TensorFile
) -> tuple[list[_Place], list[str]]:
    """Where the layers of one kind lie; every shape is as the configuration says."""
    for field, value in stack.only:
        if config.count(field, default=value) != value:
            raise Unreadable(f"config.json: {field} must be {value}; others are not read")
    n_layers = config.count(*stack.n_layers)
    pattern = _first_weight(stack, re.escape(prefix))
    matches = (pattern.fullmatch(name[:_LONGEST_NAME]) for name in tensors.shapes)
    there = {match["layer"] for match in matches if match}
    if len(there) != n_layers or not all(str(i) in there for i in range(n_layers)):
        raise Unreadable(
            f"config.json: {config.found(*stack.n_layers)[0]} is {n_layers}, "
            f"but the file holds {len(there)} layers {quote(prefix + stack.layer)}"
        )
    d_model, n_heads = config.count(*_WIDTH), config.count(*stack.n_heads)
    n_kv_heads = config.count(*stack.n_kv_heads, default=n_heads) if stack.n_kv_heads else n_heads
    d_head = _d_head(stack, config, d_model, n_heads)
    if n_heads % n_kv_heads:
        raise Unreadable(
            f"config.json: {n_heads} heads cannot share {n_kv_heads} key and value heads equally"
        )
    turning, notes = (
        ropes(stack.rotary, config, n_layers, d_head) if stack.rotary else ([None] * n_layers, [])
    )
    normed = bool(stack.norm) and all(config.flag(name, default=True) for name in stack.norm_flags)
    source = prefix + stack.source_norm if stack.source_norm else ""
    places = []
    for i in range(n_layers):
        layer = prefix + stack.layer.format(i)
        place = _Place(
            stack,
            prefix,
            layer,
            n_heads,
            n_kv_heads,
            d_model,
            d_head,
            norm=f"{layer}{stack.norm}.weight" if normed and i >= stack.first_norm else "",
            source_norm=f"{source}.weight" if f"{source}.weight" in tensors.shapes else "",
            rope=turning[i],
        )
        _check(place, tensors)
        places.append(place)
    modules = {places[0].layer + module.rpartition(".")[0] + "." for module, _ in stack.parts}
    if any(_QK_NORM.match(name.removeprefix(m)) for name in tensors.shapes for m in modules):
        notes.append(NORMED)
    return places, notes


def _d_head(stack: Stack, config: Configuration, d_model: int, n_heads: int) -> int:
    if stack.d_head and config.found(*stack.d_head)[0]:
        return config.count(*stack.d_head)
    if d_model % n_heads:
        raise Unreadable(
            f"config.json: the width {d_model} cannot be divided among {n_heads} heads"
        )
    return d_model // n_heads


def _check(place: _Place, tensors: TensorFile) -> None:
    """Refuse a layer whose tensors are missing or of another shape than the configuration says."""
    stack, m = place.stack, place.d_model
    for module, letters in stack.parts:
        rows = place.n_outputs(letters)
        shape = (m, rows) if stack.transposed else (rows, m)
        said = (
            f"{place.n_heads} heads, {place.n_kv_heads} key and value heads, "
            f"{place.d_head} wide, of {m} inputs"
        )
        _expect(tensors, place.weight(module), shape, said)
        if place.bias(module) in tensors.shapes:
            _expect(tensors, place.bias(module), (rows,), said)
    for norm in (place.norm, place.source_norm):
        if norm:
            _expect(tensors, norm, (m,), f"a width of {m}")


def _expect(tensors: TensorFile, name: str, shape: tuple[int, ...], said: str) -> None:
    found = tensors.shapes.get(name)
    if found is None:
        raise Unreadable(f"there is no tensor {quote(name)}; {_what_is_there(tensors.shapes, {})}")
    if found != shape:
        raise Unreadable(
            f"tensor {quote(name)} is of shape {quote(found)}; "
            f"the configuration says {shape} ({said})"
        )


def _read(tensors: TensorFile, place: _Place) -> Projections:
    """One layer's matrices."""
    weights: dict[str, np.ndarray] = {}
    biases: dict[str, np.ndarray] = {}
    for module, letters in place.stack.parts:
        weight = tensors.read(place.weight(module))
        for letter, rows in _split(place, letters, weight.T if place.stack.transposed else weight):
            weights[letter] = per_head(rows, place.heads(letter))
        del weight  # it is as large as what was made of it
        if place.bias(module) in tensors.shapes:
            for letter, rows in _split(place, letters, tensors.read(place.bias(module))):
                biases[letter] = bias_per_head(rows, place.heads(letter))
    gain_q = _gain(tensors, place, place.norm)
    cross = place.stack.kind is Kind.CROSS
    return Projections(
        weights["q"],
        weights["k"],
        weights["v"],
        biases.get("q"),
        biases.get("k"),
        biases.get("v"),
        gain_q,
        _gain(tensors, place, place.source_norm) if cross else gain_q,
        place.rope,
    )


def _split(place: _Place, letters: str, rows: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """The outputs of a module of several projections, each one's heads one below the other."""
    if place.stack.per_head:
        by_head = rows.reshape(place.n_heads, len(letters), place.d_head, *rows.shape[1:])
        return [
            (letter, by_head[:, i].reshape(-1, *rows.shape[1:])) for i, letter in enumerate(letters)
        ]
    ends = np.cumsum([place.heads(letter) * place.d_head for letter in letters])
    return list(zip(letters, np.split(rows, ends[:-1]), strict=True))


def _gain(tensors: TensorFile, place: _Place, norm: str) -> np.ndarray | None:
    return tensors.read(norm) + np.float32(place.stack.gain_offset) if norm else None


def _field_notes(config: Configuration) -> list[str]:
    notes = [
        note
        for field, note in FIELD_NOTES.items()
        if config.found(field)[0]
        and not (field == "sliding_window" and not config.flag("use_sliding_window", True))
    ]
    _, positions = config.found("position_embedding_type")
    if isinstance(positions, str) and positions.startswith("relative"):
        notes.append(SLOPED)
    return notes
