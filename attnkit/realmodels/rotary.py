"""Rotary frequencies of every layer, from the configuration of a Hugging Face model.

The formulas are those of transformers (modeling_rope_utils). The scalings "linear" and "llama3" are
computed, because they depend on the frequency alone; a model with another one gets a note.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attnkit.realmodels.base import Rope, Unreadable, quote
from attnkit.realmodels.configuration import Configuration
from attnkit.realmodels.notes import STRETCHED, UNTURNED, scaled

_SLIDING = "sliding_attention"
_FULL = "full_attention"


@dataclass(frozen=True)
class Rotary:
    """Rotary positions of a model family, for what a model's configuration leaves out.

    Attributes:
        interleaved: Whether the two dimensions of a pair are neighbours; see `Rope`.
        fraction: Fraction of a head's dimensions that rotate.
        theta: Base of the frequencies.
        local_theta: Base in layers with a sliding window; None if it is the same.
        global_every: One of every so many layers attends globally, the others within a sliding
            window, if the configuration has no layer types; 0 if all layers attend globally.
        global_offset: Index of the first layer that attends globally; negative from the end of
            a group of `global_every` layers.
        local_scaling: Whether a scaling holds in layers with a sliding window, too.
    """

    interleaved: bool = False
    fraction: float = 1.0
    theta: float = 10_000.0
    local_theta: float | None = None
    global_every: int = 0
    global_offset: int = 0
    local_scaling: bool = True


def ropes(
    rotary: Rotary, config: Configuration, n_layers: int, d_head: int
) -> tuple[list[Rope | None], list[str]]:
    """Return the rotary positions of every layer, and notes on them.

    A layer has None if it has no rotary positions or their scaling is not computed.
    """
    layer_types = _layer_types(rotary, config, n_layers)
    _, has_rope = config.find("no_rope_layers")  # in spite of its name, true for layers with rope
    if has_rope is not None and (not isinstance(has_rope, list) or len(has_rope) != n_layers):
        raise Unreadable(
            f"config.json: no_rope_layers is {quote(has_rope)}; "
            f"it must be a list of {n_layers} numbers"
        )
    ropes_by_type = {
        layer_type: _rope(rotary, config, layer_type, d_head)
        for layer_type in dict.fromkeys(layer_types)
    }
    layers = [
        ropes_by_type[layer_type][0] if has_rope is None or has_rope[layer] else None
        for layer, layer_type in enumerate(layer_types)
    ]
    notes = [note for _, note in ropes_by_type.values() if note]
    if has_rope is not None and not all(has_rope):
        notes.append(UNTURNED)
    return layers, notes


def _layer_types(rotary: Rotary, config: Configuration, n_layers: int) -> tuple[str, ...]:
    layer_types = config.words("layer_types", n_layers)
    if layer_types is not None:
        return layer_types
    if not rotary.global_every:
        return (_FULL,) * n_layers
    every = config.count(
        "sliding_window_pattern", "global_attn_every_n_layers", default=rotary.global_every
    )
    first = rotary.global_offset % every
    return tuple(_FULL if layer % every == first else _SLIDING for layer in range(n_layers))


def _rope(
    rotary: Rotary, config: Configuration, layer_type: str, d_head: int
) -> tuple[Rope | None, str]:
    """Return the rotary positions of one layer type, and a note or ""."""
    local = layer_type == _SLIDING and rotary.local_theta is not None
    fields = config.section("rope_parameters", "rope_scaling") or Configuration({})
    if nested := fields.section(layer_type):
        fields = nested
    elif local and not rotary.local_scaling:
        fields = Configuration({})
    theta = fields.number("rope_theta", default=0.0) or (
        config.number("rope_local_base_freq", "local_rope_theta", default=rotary.local_theta)
        if local
        else config.number(
            "rope_theta", "global_rope_theta", "rotary_emb_base", default=rotary.theta
        )
    )
    fraction = fields.number("partial_rotary_factor", default=0.0) or config.number(
        "partial_rotary_factor", "rotary_pct", default=rotary.fraction
    )
    n_dims = int(d_head * fraction)
    if not 0 < n_dims <= d_head - n_dims % 2:
        raise Unreadable(
            f"config.json: {quote(n_dims)} of a head's {d_head} dimensions would rotate, in pairs; "
            f"allowed are 1 to {d_head - d_head % 2}"
        )
    frequencies = theta ** (-np.arange(0, n_dims, 2) / n_dims)
    scaled_frequencies, note = _scale(frequencies, fields, config)
    rope = None if scaled_frequencies is None else Rope(scaled_frequencies, rotary.interleaved)
    return rope, note


def _scale(
    frequencies: np.ndarray, fields: Configuration, config: Configuration
) -> tuple[np.ndarray | None, str]:
    """Return the frequencies scaled for longer texts, and a note; None if not computed here."""
    _, rope_type = fields.find("rope_type", "type")
    if rope_type in (None, "default"):
        return frequencies, ""
    if rope_type == "linear":
        return frequencies / fields.number("factor"), ""
    if rope_type == "llama3":
        return _scale_as_llama3(frequencies, fields, config), ""
    if rope_type == "dynamic":
        return frequencies, STRETCHED
    return None, scaled(quote(rope_type))


def _scale_as_llama3(
    frequencies: np.ndarray, fields: Configuration, config: Configuration
) -> np.ndarray:
    """Divide low frequencies by a factor, keep high ones, and interpolate between them."""
    factor = fields.number("factor")
    low, high = fields.number("low_freq_factor"), fields.number("high_freq_factor")
    if high <= low:
        raise Unreadable(
            f"config.json: high_freq_factor is {high}; it must be above low_freq_factor, {low}"
        )
    name = "original_max_position_embeddings"
    trained_length = (
        config.number(name, default=0.0)
        or fields.number(name, default=0.0)
        or config.number("max_position_embeddings")
    )
    n_rotations = trained_length * frequencies / (2 * math.pi)
    kept = np.clip((n_rotations - low) / (high - low), 0, 1)
    return frequencies * (kept + (1 - kept) / factor)
