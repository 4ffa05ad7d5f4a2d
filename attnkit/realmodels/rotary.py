"""Rotary positions as a configuration describes them: the frequencies of every layer.

The formulas are those of Hugging Face transformers (modeling_rope_utils). Scaled forms are computed
where they are a formula of the frequency alone (linear, llama3); the others get a note.
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
    """How one family turns queries and keys; its configuration may say otherwise.

    Attributes:
        interleaved: whether neighbouring dimensions are a pair.
        share: of a head's dimensions that turn.
        theta: the base of the frequencies.
        local_theta: of layers with a sliding window, where it differs.
        every: every how many layers one looks at all tokens, if the configuration has no list of
            layer types; 0 for all of them.
        offset: the place of such a layer among these.
        local_scaling: whether a scaling holds for layers with a sliding window too.
    """

    interleaved: bool = False
    share: float = 1.0
    theta: float = 10_000.0
    local_theta: float | None = None
    every: int = 0
    offset: int = 0
    local_scaling: bool = True


def ropes(
    rotary: Rotary, config: Configuration, n_layers: int, d_head: int
) -> tuple[list[Rope | None], list[str]]:
    """The rotary positions of every layer, and what to know of them."""
    types = _layer_types(rotary, config, n_layers)
    _, turns = config.found("no_rope_layers")
    if turns is not None and (not isinstance(turns, list) or len(turns) != n_layers):
        raise Unreadable(
            f"config.json: no_rope_layers is {quote(turns)}; "
            f"it must be a list of {n_layers} numbers"
        )
    made: dict[str, tuple[Rope | None, str]] = {}
    out: list[Rope | None] = []
    for layer, kind in enumerate(types):
        if kind not in made:
            made[kind] = _rope(rotary, config, kind, d_head)
        out.append(made[kind][0] if turns is None or turns[layer] else None)
    notes = [note for _, note in made.values() if note]
    if turns is not None and not all(turns):
        notes.append(UNTURNED)
    return out, notes


def _layer_types(rotary: Rotary, config: Configuration, n_layers: int) -> tuple[str, ...]:
    types = config.texts("layer_types", n_layers)
    if types is not None:
        return types
    if not rotary.every:
        return (_FULL,) * n_layers
    every = config.count(
        "sliding_window_pattern", "global_attn_every_n_layers", default=rotary.every
    )
    return tuple(
        _FULL if layer % every == rotary.offset % every else _SLIDING for layer in range(n_layers)
    )


def _rope(
    rotary: Rotary, config: Configuration, layer_type: str, d_head: int
) -> tuple[Rope | None, str]:
    """Of one layer type, and a note or ""."""
    sliding = layer_type == _SLIDING
    local = sliding and rotary.local_theta is not None
    fields = config.part("rope_parameters", "rope_scaling") or Configuration({})
    if nested := fields.part(layer_type):
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
    share = fields.number("partial_rotary_factor", default=0.0) or config.number(
        "partial_rotary_factor", "rotary_pct", default=rotary.share
    )
    dims = int(d_head * share)
    if not 0 < dims <= d_head - dims % 2:
        raise Unreadable(
            f"config.json: {quote(dims)} of a head's {d_head} dimensions would turn by position, "
            f"in pairs; allowed are 1 to {d_head - d_head % 2}"
        )
    frequencies = theta ** (-np.arange(0, dims, 2) / dims)
    scaled, note = _scaled(frequencies, fields, config)
    return None if scaled is None else Rope(scaled, rotary.interleaved), note


def _scaled(
    frequencies: np.ndarray, fields: Configuration, config: Configuration
) -> tuple[np.ndarray | None, str]:
    """Frequencies stretched for longer texts; None where that is no formula of the frequency."""
    _, kind = fields.found("rope_type", "type")
    if kind in (None, "default"):
        return frequencies, ""
    if kind == "linear":
        return frequencies / fields.number("factor"), ""
    if kind == "llama3":
        return _llama3(frequencies, fields, config), ""
    if kind == "dynamic":
        return frequencies, STRETCHED
    return None, scaled(quote(kind))


def _llama3(frequencies: np.ndarray, fields: Configuration, config: Configuration) -> np.ndarray:
    """Slow turns are slowed down, fast ones stay, those between are blended."""
    factor = fields.number("factor")
    low, high = fields.number("low_freq_factor"), fields.number("high_freq_factor")
    if high <= low:
        raise Unreadable(
            f"config.json: high_freq_factor is {high}; it must be above low_freq_factor, {low}"
        )
    name = "original_max_position_embeddings"
    length = (
        config.number(name, default=0.0)
        or fields.number(name, default=0.0)
        or config.number("max_position_embeddings")
    )
    turns = length * frequencies / (2 * math.pi)  # within the trained length
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return frequencies * (blend + (1 - blend) / factor)
