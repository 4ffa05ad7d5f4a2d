"""Rotary frequencies of every layer, from the configuration of a Hugging Face model.

The formulas are those of transformers (modeling_rope_utils). The rules "linear", "llama3", "yarn"
and "proportional" are computed, because they are one formula for texts of all lengths; a model with
another rule gets a note.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnkit.realmodels.base import Rope
from attnkit.realmodels.configuration import (
    GLOBAL_EVERY,
    LOCAL_THETA,
    ROPE,
    ROTARY_FRACTION,
    THETA,
    Configuration,
)
from attnkit.realmodels.errors import Unreadable, quote
from attnkit.realmodels.notes import STRETCHED, UNTURNED, scaled

SLIDING = "sliding_attention"
FULL = "full_attention"


@dataclass(frozen=True)
class Rotary:
    """Rotary positions of a model family, for what a model's configuration leaves out.

    Attributes:
        interleaved: Whether the two dimensions of a pair are neighbours; see `Rope`.
        fraction: Fraction of a head's dimensions that rotate.
        n_dims: Number of a head's dimensions that rotate, where the configuration has a field
            rotary_dim for it; 0 in other families.
        theta: Base of the frequencies.
        local_theta: Base in layers with a sliding window; None if it is the same.
        global_every: One of every so many layers attends globally, the others within a sliding
            window, if the configuration has no layer types; 0 if all layers attend globally.
        global_offset: Index of the first layer that attends globally; negative from the end of
            a group of `global_every` layers.
        local_scaling: Whether a scaling holds in layers with a sliding window, too.
        unturned_every: The last of every so many layers has no rotary positions, if the
            configuration has no list of them; 0 if all layers have them.
        unturned_type: Type of the layers that have no rotary positions, or "".
    """

    interleaved: bool = False
    fraction: float = 1.0
    n_dims: int = 0
    theta: float = 10_000.0
    local_theta: float | None = None
    global_every: int = 0
    global_offset: int = 0
    local_scaling: bool = True
    unturned_every: int = 0
    unturned_type: str = ""


def ropes(
    rotary: Rotary, config: Configuration, d_heads: Mapping[int, int], n_layers: int
) -> tuple[dict[int, Rope | None], list[str]]:
    """Return the rotary positions of layers by index, and notes on them.

    A layer has None if it has no rotary positions or their scaling is not computed.

    Args:
        rotary: Rotary positions of the family.
        config: The model's configuration.
        d_heads: Width of a head, by the index of the layer.
        n_layers: Number of all layers, with and without attention.
    """
    layer_types = layer_types_of(rotary, config, n_layers)
    has_rope = config.find("no_rope_layers")[1] or None  # true for layers with rope, in spite of it
    if has_rope is not None and (not isinstance(has_rope, list) or len(has_rope) != n_layers):
        raise Unreadable(
            f"{config.file}: no_rope_layers is {quote(has_rope)}; "
            f"it must be a list of {n_layers} numbers"
        )
    if has_rope is None and rotary.unturned_every:
        every = config.count("no_rope_layer_interval", default=rotary.unturned_every)
        has_rope = [(layer + 1) % every != 0 for layer in range(n_layers)]
    shapes = {layer: (layer_types[layer], d_head) for layer, d_head in d_heads.items()}
    unturned = {
        layer
        for layer, (layer_type, _) in shapes.items()
        if layer_type == rotary.unturned_type or (has_rope is not None and not has_rope[layer])
    }
    turned = dict.fromkeys(shape for layer, shape in shapes.items() if layer not in unturned)
    ropes_by_shape = {shape: _rope(rotary, config, *shape) for shape in turned}
    layers = {
        layer: None if layer in unturned else ropes_by_shape[shape][0]
        for layer, shape in shapes.items()
    }
    notes = [note for _, note in ropes_by_shape.values() if note]
    if unturned:
        notes.append(UNTURNED)
    return layers, notes


def layer_types_of(rotary: Rotary, config: Configuration, n_layers: int) -> tuple[str, ...]:
    """Return the word of every layer on how far it attends, `SLIDING`, `FULL` or another one."""
    layer_types = config.words("layer_types", n_layers=n_layers)
    if layer_types is not None:
        return layer_types
    if not rotary.global_every:
        return (FULL,) * n_layers
    every = config.count(*GLOBAL_EVERY, default=rotary.global_every)
    first = rotary.global_offset % every
    return tuple(FULL if layer % every == first else SLIDING for layer in range(n_layers))


def _rope(
    rotary: Rotary, config: Configuration, layer_type: str, d_head: int
) -> tuple[Rope | None, str]:
    """Return the rotary positions of one layer type, and a note or ""."""
    local = layer_type == SLIDING and rotary.local_theta is not None
    fields = config.section(*ROPE) or Configuration({})
    if nested := fields.section(layer_type):
        fields = nested
    elif local and not rotary.local_scaling:
        fields = Configuration({})
    theta = fields.number("rope_theta", default=0.0) or (
        config.number(*LOCAL_THETA, default=rotary.local_theta)
        if local
        else config.number(*THETA, default=rotary.theta)
    )
    fraction = fields.number("partial_rotary_factor", default=0.0) or config.number(
        *ROTARY_FRACTION, default=rotary.fraction
    )
    n_dims = int(d_head * fraction)
    if rotary.n_dims:
        if config.values.get("rotary_dim", rotary.n_dims) is None:  # the library refuses it, too
            raise Unreadable(f"{config.file}: rotary_dim is null; it must be a whole number")
        n_dims = config.count("rotary_dim", default=rotary.n_dims)
    if not 0 < n_dims <= d_head - n_dims % 2:
        raise Unreadable(
            f"{config.file}: {quote(n_dims)} of a head's {d_head} dimensions would rotate, in "
            f"pairs; allowed are 1 to {d_head - d_head % 2}"
        )
    frequencies, note = _frequencies(theta, n_dims, d_head, fields, config)
    return (None if frequencies is None else Rope(frequencies, rotary.interleaved)), note


def _frequencies(
    theta: float, n_dims: int, d_head: int, fields: Configuration, config: Configuration
) -> tuple[np.ndarray | None, str]:
    """Return the frequencies by their rule, and a note; None if the rule is not computed here."""
    frequencies = theta ** (-np.arange(0, n_dims, 2) / n_dims) / fields.values.get("factors", 1.0)
    _, rope_type = fields.find("rope_type", "type")
    if rope_type in (None, "default"):
        return frequencies, ""
    if rope_type == "linear":
        return frequencies / fields.number("factor"), ""
    if rope_type == "llama3":
        return _scale_as_llama3(frequencies, fields, config), ""
    if rope_type == "proportional":
        return _proportional(theta, n_dims, d_head) / fields.number("factor", default=1.0), ""
    if rope_type == "dynamic":
        return frequencies, STRETCHED
    if rope_type == "yarn" and (n_dims == d_head or _yarn_gain(fields, config) == 1):
        return _scale_as_yarn(frequencies, theta, fields, config), ""
    return None, scaled(quote(rope_type))


def _proportional(theta: float, n_dims: int, d_head: int) -> np.ndarray:
    """Return a frequency for every pair of a head; those of pairs that do not rotate are 0."""
    rotating = theta ** (-np.arange(0, n_dims - 1, 2) / d_head)
    return np.concatenate([rotating, np.zeros(d_head // 2 - len(rotating))])


def _yarn_factor(fields: Configuration, config: Configuration) -> tuple[float, float]:
    """Return the factor by which YaRN extends the length of texts, and the length before it."""
    trained = fields.number("original_max_position_embeddings", default=0.0) or config.number(
        "original_max_position_embeddings", "max_position_embeddings"
    )
    factor = fields.number("factor", default=0.0)
    return factor or config.number("max_position_embeddings") / trained, trained


def _yarn_gain(fields: Configuration, config: Configuration) -> float:
    """Return the number by which YaRN multiplies the rotating dimensions.

    If all dimensions rotate, it changes the size of scores only and is left out.
    """
    factor, _ = _yarn_factor(fields, config)
    log = math.log(max(factor, 1.0)) / 10
    gains = [log * fields.number(name, default=0.0) + 1 for name in ("mscale", "mscale_all_dim")]
    default = gains[0] / gains[1] if min(gains) > 1 else log + 1
    return fields.number("attention_factor", default=default)


def _scale_as_yarn(
    frequencies: np.ndarray, theta: float, fields: Configuration, config: Configuration
) -> np.ndarray:
    """Divide low frequencies by a factor, keep high ones, and interpolate by the index of the pair.

    Source:
        Peng et al. 2023, "YaRN: efficient context window extension", arXiv 2309.00071.
    """
    if theta <= 1:
        raise Unreadable(f"{config.file}: rope_theta is {theta}; with YaRN it must be above 1")
    factor, trained = _yarn_factor(fields, config)
    n_dims = 2 * len(frequencies)
    rotations = (fields.number("beta_fast", default=32.0), fields.number("beta_slow", default=1.0))
    low, high = (
        n_dims * math.log(trained / (2 * math.pi * n)) / (2 * math.log(theta)) for n in rotations
    )
    if fields.flag("truncate", default=True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, n_dims - 1)
    high += 0.001 * (high == low)
    divided = np.clip((np.arange(len(frequencies)) - low) / (high - low), 0, 1)
    slowed: np.ndarray = frequencies * (1 - divided + divided / factor)
    return slowed


def _scale_as_llama3(
    frequencies: np.ndarray, fields: Configuration, config: Configuration
) -> np.ndarray:
    """Divide low frequencies by a factor, keep high ones, and interpolate between them."""
    factor = fields.number("factor")
    low, high = fields.number("low_freq_factor"), fields.number("high_freq_factor")
    if high <= low:
        raise Unreadable(
            f"{config.file}: high_freq_factor is {high}; it must be above low_freq_factor, {low}"
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
