"""Reader of Marian's models: *.bin, also as Bergamot and Firefox Translations ship them, and *.npz.

A weight is a matrix of inputs × outputs. Quantised ones, intgemm8 and intgemm16, are stored
transposed, except for embeddings (`Wemb`), and hold round(weight × multiplier); the multiplier is
behind the numbers. A tensor of bytes, special:model.yml, is the configuration in YAML.

Source: src/models/transformer.h for names and norms, and
src/tensors/cpu/expression_graph_packable.h for quantised weights, of browsermt/marian-dev and
marian-nmt/marian-dev.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import yaml
from jaxtyping import Float

from attnkit.realmodels.base import (
    Array,
    AttentionLayer,
    Kind,
    Projections,
    RealModel,
    Unreadable,
    listing,
    quote,
)
from attnkit.realmodels.binary_file import check_finite, check_has, damaged, reading
from attnkit.realmodels.configuration import Configuration
from attnkit.realmodels.marian_tensors import CONFIGURATION, Load, read_bin, read_npz
from attnkit.realmodels.notes import REPEATED, quantised
from attnkit.realmodels.rows import build_projections, check_n_layers

QUERY_WEIGHT = re.compile(r"((encoder|decoder)_l(\d{1,6})_(self|context))_Wq")
"""Name of the weight that computes an attention layer's queries."""

TRANSLATOR = "transformer"
MODEL_TYPES = (TRANSLATOR, "lm-transformer")
"""Values of the option `type` that are read: a translator, and a decoder alone."""

SELF_ATTENTION = "self-attention"

RECURRENT = "The decoder has a recurrent unit in place of self-attention, so no layer is causal."
AVERAGING = "The decoder averages earlier positions in place of self-attention; no layer is causal."
QUERIES_ONLY = (
    "Self-attention normalises what its queries read, but not what its keys and values read, as "
    "Marian did before version 1.11."
)
DECODER_NOTES = {"rnn": RECURRENT, "average-attention": AVERAGING}
"""Notes by the decoder's replacement of self-attention, `transformer-decoder-autoreg`."""

FIRST_NORMALISED_KEYS = (1, 11)
"""First version in which the norm before self-attention also precedes its keys and values."""

VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})")
"""Beginning of the version of Marian that wrote a model."""

NORM_NAMES = {"n": "ln", "r": "rms"}
"""Part of a norm's name, by the letter of the norm in an option such as `transformer-preprocess`:
layer norm and RMS norm."""

MAX_CONFIGURATION_BYTES = 2**18


@dataclass(frozen=True, eq=False)
class MarianFile:
    """Marian file whose header and configuration have been read.

    Attributes:
        path: The file.
        types: Number type of every tensor, by name; empty in a *.npz.
        load: Function that reads a tensor by name.
        settings: The configuration.
    """

    path: Path
    types: Mapping[str, str]
    load: Load
    settings: Configuration

    def read(self, name: str) -> Float[np.ndarray, "..."]:
        """Read one tensor in single precision; the file is open only during this call.

        Returns:
            The tensor; the weight of a linear layer has the shape (inputs, outputs).

        Raises:
            Unreadable: If the tensor is missing, holds bytes or indices, is not finite, or is
                quantised and has a shape that Marian stores wrongly.
        """
        check_has(self.path, name, self.types)
        values = self.load(name)
        if values.dtype.kind != "f":
            raise Unreadable(
                f"{self.path.name} has {quote(name)} in {values.dtype}, which no weights have"
            )
        with np.errstate(all="ignore"):  # `check_finite` finds values that are too large
            return check_finite(values.astype(np.float32), self.path.name, name)

    def word(self, option: str, default: str, allowed: Iterable[str] = ()) -> str:
        """Return an option that is a text, and one of the allowed ones if any are given.

        Raises:
            Unreadable: If the value is another one.
        """
        _, value = self.settings.find(option)
        value = default if value is None else value
        if not isinstance(value, str) or (allowed and value not in allowed):
            raise Unreadable(
                f"{self.settings.file}: {option} is {quote(value)}; it must be "
                + (f"one of {', '.join(allowed)}" if allowed else "a word")
            )
        return value


def open_marian(path: Path) -> MarianFile:
    """Read the header and the configuration of a Marian file.

    Raises:
        Unreadable: As by `read_bin` and `read_npz`, or if there is no configuration or it cannot
            be read.
    """
    types, load = read_npz(path) if path.suffix == ".npz" else read_bin(path)
    if CONFIGURATION not in types:
        raise Unreadable(
            f"{path.name} has no {CONFIGURATION}, which says how many heads the model has; take "
            "the file that Marian's training or marian-conv wrote"
        )
    with reading(path):
        text = load(CONFIGURATION).tobytes().rstrip(b"\0")
        options = yaml.safe_load(text) if len(text) <= MAX_CONFIGURATION_BYTES else None
    if not isinstance(options, dict):
        raise damaged(path.name, f"its {CONFIGURATION} has {len(text):,} bytes and no options")
    settings = Configuration(options, f"{path.name}: {CONFIGURATION}")
    return MarianFile(path, types, load, settings)


def marian_model(path: Path) -> RealModel:
    """Find the attention layers of the model in a Marian file; only header and options are read.

    Raises:
        Unreadable: As by `open_marian`, or if the model is not a transformer or the file does not
            hold the layers that its configuration states.
    """
    file = open_marian(path)
    stacks = _stacks(file)
    _check_layers(file, stacks)
    n_heads = file.settings.count("transformer-heads")
    layers = tuple(
        AttentionLayer(kind, i, n_heads, n_heads, partial(_read, file, scope, n_heads))
        for kind, scopes in stacks.items()
        for i, scope in enumerate(scopes)
    )
    if not layers:
        raise Unreadable(f"{path.name} has no attention; it has {listing(file.types)}")
    scopes = [scope for scopes in stacks.values() for scope in scopes]
    name = path.resolve().parent.name
    return RealModel(name, "marian", "Marian", layers, _notes(file, scopes))


def _stacks(file: MarianFile) -> dict[Kind, list[str]]:
    """Return the start of the tensors' names of every layer that the configuration states."""
    has_encoder = file.word("type", "", MODEL_TYPES) == TRANSLATOR
    is_causal = _decoder_type(file) == SELF_ATTENTION
    has_cross = has_encoder and not file.settings.flag("transformer-pool", default=False)
    n_encoder = file.settings.count("enc-depth") if has_encoder else 0
    n_decoder = file.settings.count("dec-depth")
    check_n_layers(file.path.name, n_encoder + 2 * n_decoder)
    tied = _tied_layers(file, n_decoder)
    blocks = sorted(set(tied)) if tied else range(1, n_decoder + 1)
    return {
        Kind.ENCODER: [f"encoder_l{i}_self" for i in range(1, n_encoder + 1)],
        Kind.CAUSAL: [f"decoder_l{i}_self" for i in blocks if is_causal],
        Kind.CROSS: [f"decoder_l{i}_context" for i in blocks if has_cross],
    }


def _decoder_type(file: MarianFile) -> str:
    """Return what lets the decoder's positions read earlier ones."""
    allowed = (SELF_ATTENTION, *DECODER_NOTES)
    return file.word("transformer-decoder-autoreg", SELF_ATTENTION, allowed)


def _tied_layers(file: MarianFile, n_layers: int) -> list[int]:
    """Return the number of the weights that each layer of the decoder uses; empty for its own."""
    _, tied = file.settings.find("transformer-tied-layers")
    if tied is None or tied == []:
        return []
    is_list = isinstance(tied, list) and len(tied) == n_layers
    if not is_list or not all(type(i) is int and 1 <= i <= n_layers for i in tied):
        raise Unreadable(
            f"{file.settings.file}: transformer-tied-layers is {quote(tied)}; it must list a layer "
            f"from 1 to {n_layers:,} for each of the decoder's {n_layers:,} layers"
        )
    return list(tied)


def _check_layers(file: MarianFile, stacks: Mapping[Kind, list[str]]) -> None:
    """Raise Unreadable unless the file holds exactly the layers of the configuration."""
    matches = (QUERY_WEIGHT.fullmatch(name) for name in file.types)
    present = {match[1] for match in matches if match}
    stated = {scope for scopes in stacks.values() for scope in scopes}
    if missing := stated - present:
        raise damaged(file.path.name, f"it has no weights of the layers {listing(sorted(missing))}")
    if others := present - stated:
        raise damaged(
            file.path.name,
            f"its {CONFIGURATION} does not state the layers {listing(sorted(others))}",
        )


def _notes(file: MarianFile, scopes: list[str]) -> tuple[str, ...]:
    types = {file.types[f"{scope}_Wq"] for scope in scopes}
    types = {name for name in types if name.startswith("intgemm")}
    tied = _tied_layers(file, file.settings.count("dec-depth"))
    has_norm = bool(_norm(file, "transformer-preprocess"))
    applies = {
        DECODER_NOTES.get(_decoder_type(file), ""): _decoder_type(file) in DECODER_NOTES,
        REPEATED: len(set(tied)) < len(tied),
        QUERIES_ONLY: has_norm and not _normalises_keys(file),
    }
    notes = [note for note, does_apply in applies.items() if does_apply]
    return (*([quantised(types)] if types else []), *notes)


def _norm(file: MarianFile, option: str) -> str:
    """Return the part of a norm's name if an option's last operation is a norm; otherwise "".

    An option is a row of letters, such as "dan" for dropout, addition and layer norm; dropout
    happens in training only.
    """
    operations = file.word(option, "").replace("d", "")
    return NORM_NAMES.get(operations[-1:], "")


def _normalises_keys(file: MarianFile) -> bool:
    """Return whether the norm before self-attention also precedes keys and values."""
    version = VERSION.match(file.word("version", ""))
    return version is None or (int(version[1]), int(version[2])) >= FIRST_NORMALISED_KEYS


def _read(file: MarianFile, scope: str, n_heads: int) -> Projections:
    """Read the layer whose tensors have names that begin with `scope`."""
    q, k, v = (file.read(f"{scope}_W{role}").T for role in "qkv")
    b_q, b_k, b_v = (_row(file, f"{scope}_b{role}") for role in "qkv")
    gain_q = gain_kv = None
    if norm := _norm(file, "transformer-preprocess"):
        gain_q = _row(file, f"{scope}_Wo_{norm}_scale_pre")
        if scope.endswith("self"):
            gain_kv = gain_q if _normalises_keys(file) else None
        elif top := _norm(file, "transformer-postprocess-top"):
            gain_kv = _row(file, f"encoder_top_{top}_scale")
    return build_projections(
        file.path.name,
        quote(scope),
        (q, k, v),
        (b_q, b_k, b_v),
        n_heads,
        n_heads,
        (gain_q, gain_kv),
    )


def _row(file: MarianFile, name: str) -> Array:
    """Read a vector, which Marian stores as a matrix of one row."""
    return file.read(name).reshape(-1)
