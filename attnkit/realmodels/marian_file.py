"""Reader of Marian's models: *.bin, also as Bergamot and Firefox Translations ship them, and *.npz.

A weight is a matrix of inputs × outputs. A tensor of bytes, special:model.yml, is the configuration
in YAML.

Source: src/models/transformer.h for names and norms, of browsermt/marian-dev and
marian-nmt/marian-dev.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from attnkit.foundation.documents import check_depth
from attnkit.realmodels.base import Kind, RealModel
from attnkit.realmodels.configuration import Configuration
from attnkit.realmodels.errors import Unreadable, damaged, listing, quote, reading
from attnkit.realmodels.layers import (
    Linear,
    Norm,
    StoredLayer,
    attention_layers,
    check_n_layers,
    layer_from_shapes,
)
from attnkit.realmodels.marian_tensors import CONFIGURATION, read_bin, read_npz
from attnkit.realmodels.notes import REPEATED, quantised
from attnkit.realmodels.tensors import TensorFile

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


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Loader of YAML without aliases, which Marian never writes; a few could stand for billions."""

    def fetch_alias(self) -> None:
        """Refuse an alias."""
        raise ValueError("it has an alias, which Marian never writes")


def open_marian(path: Path) -> tuple[TensorFile, Configuration]:
    """Read the header and the configuration of a Marian file.

    Raises:
        Unreadable: As by `read_bin` and `read_npz`, or if there is no configuration or it cannot
            be read.
    """
    file = read_npz(path) if path.suffix == ".npz" else read_bin(path)
    if CONFIGURATION not in file.entries:
        raise Unreadable(
            f"{path.name} has no {CONFIGURATION}, which says how many heads the model has; take "
            "the file that Marian's training or marian-conv wrote"
        )
    with reading(path):
        text = file.load(CONFIGURATION).tobytes().rstrip(b"\0")
        is_short = len(text) <= MAX_CONFIGURATION_BYTES
        options = _Loader(text).get_single_data() if is_short else None
        check_depth(options)
    if not isinstance(options, dict):
        raise damaged(path.name, f"its {CONFIGURATION} has {len(text):,} bytes and no options")
    return file, Configuration(options, f"{path.name}: {CONFIGURATION}")


def marian_model(path: Path) -> RealModel:
    """Find the attention layers of the model in a Marian file; only header and options are read.

    Raises:
        Unreadable: As by `open_marian`, or if the model is not a transformer or the file does not
            hold the layers that its configuration states.
    """
    file, options = open_marian(path)
    scopes = _scopes(file, options)
    stored = (_stored_layer(file, options, kind, scope) for scope, kind in scopes.items())
    layers = attention_layers(file, stored)
    notes = tuple(_notes(file, options, list(scopes)))
    return RealModel(path.resolve().parent.name, "marian", "Marian", layers, notes)


def _scopes(file: TensorFile, options: Configuration) -> Mapping[str, Kind]:
    """Return the start of every layer's names as the configuration states them, and its kind.

    Raises:
        Unreadable: If the file does not hold exactly these layers.
    """
    has_encoder = options.word("type", MODEL_TYPES) == TRANSLATOR
    has_cross = has_encoder and not options.flag("transformer-pool", default=False)
    n_encoder = options.count("enc-depth") if has_encoder else 0
    n_decoder = options.count("dec-depth")
    check_n_layers(file.name, n_encoder + 2 * n_decoder)
    blocks = sorted(set(_tied_layers(options, n_decoder))) or range(1, n_decoder + 1)
    scopes = {f"encoder_l{i}_self": Kind.ENCODER for i in range(1, n_encoder + 1)}
    if _decoder_type(options) == SELF_ATTENTION:
        scopes |= {f"decoder_l{i}_self": Kind.CAUSAL for i in blocks}
    if has_cross:
        scopes |= {f"decoder_l{i}_context": Kind.CROSS for i in blocks}
    matches = (QUERY_WEIGHT.fullmatch(name) for name in file.entries)
    present = {match[1] for match in matches if match}
    if missing := scopes.keys() - present:
        raise damaged(file.name, f"it has no weights of the layers {listing(sorted(missing))}")
    if others := present - scopes.keys():
        raise damaged(
            file.name, f"its {CONFIGURATION} does not state the layers {listing(sorted(others))}"
        )
    return scopes


def _decoder_type(options: Configuration) -> str:
    """Return what lets the decoder's positions read earlier ones."""
    allowed = (SELF_ATTENTION, *DECODER_NOTES)
    return options.word("transformer-decoder-autoreg", allowed, SELF_ATTENTION)


def _tied_layers(options: Configuration, n_layers: int) -> list[int]:
    """Return the number of the weights that each layer of the decoder uses; empty for its own."""
    _, tied = options.find("transformer-tied-layers")
    if tied is None or tied == []:
        return []
    is_list = isinstance(tied, list) and len(tied) == n_layers
    if not is_list or not all(type(i) is int and 1 <= i <= n_layers for i in tied):
        raise Unreadable(
            f"{options.file}: transformer-tied-layers is {quote(tied)}; it must list a layer "
            f"from 1 to {n_layers:,} for each of the decoder's {n_layers:,} layers"
        )
    return list(tied)


def _notes(file: TensorFile, options: Configuration, scopes: list[str]) -> Iterator[str]:
    types = {file.entries[f"{scope}_Wq"].type for scope in scopes}
    if types := {name for name in types if name.startswith("intgemm")}:
        yield quantised(types)
    if (decoder := _decoder_type(options)) in DECODER_NOTES:
        yield DECODER_NOTES[decoder]
    tied = _tied_layers(options, options.count("dec-depth"))
    if len(set(tied)) < len(tied):
        yield REPEATED
    if _norm_name(options, "transformer-preprocess") and not _normalises_keys(options):
        yield QUERIES_ONLY


def _norm_name(options: Configuration, option: str) -> str:
    """Return the part of a norm's name if an option's last operation is a norm; otherwise "".

    An option is a row of letters, such as "dan" for dropout, addition and layer norm; dropout
    happens in training only.
    """
    operations = options.word(option, default="").replace("d", "")
    return NORM_NAMES.get(operations[-1:], "")


def _normalises_keys(options: Configuration) -> bool:
    """Return whether the norm before self-attention also precedes keys and values."""
    version = VERSION.match(options.word("version", default=""))
    return version is None or (int(version[1]), int(version[2])) >= FIRST_NORMALISED_KEYS


def _stored_layer(file: TensorFile, options: Configuration, kind: Kind, scope: str) -> StoredLayer:
    """Return names and shapes of the tensors of a layer; the names begin with `scope`."""
    n_heads = options.count("transformer-heads")
    linears = tuple(Linear(role, f"{scope}_W{role}", f"{scope}_b{role}") for role in "qkv")
    for linear in linears:
        if linear.bias not in file.entries:
            raise file.without(linear.bias)
    layer = layer_from_shapes(file, kind, linears, n_heads, n_heads, transposed=True)
    norm = kv_norm = None
    if name := _norm_name(options, "transformer-preprocess"):
        norm = Norm(f"{scope}_Wo_{name}_scale_pre")
        if kind != Kind.CROSS:
            kv_norm = norm if _normalises_keys(options) else None
        elif top := _norm_name(options, "transformer-postprocess-top"):
            kv_norm = Norm(f"encoder_top_{top}_scale")
    return replace(layer, norm=norm, kv_norm=kv_norm)
