"""Reader of GGUF files, the format of llama.cpp.

Every architecture of llama.cpp is a family of transformers with other names: names of tensors and
keys are translated here, and the rules are those of `layouts`. The package `gguf` dequantises the
blocks of bytes. llama.cpp's converter changes some weights. For some architectures it shuffles the
rows of Q and K within each head, so that the two dimensions of a rotary pair are neighbours; this
is undone here. It stores gains with their 1 added, and queries, keys and values one after another.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import gguf.quants
import numpy as np

from attnkit.realmodels.base import Array, Kind, RealModel
from attnkit.realmodels.configuration import (
    D_HEAD,
    D_MODEL,
    GLOBAL_EVERY,
    LOCAL_THETA,
    N_HEADS,
    N_KV_HEADS,
    N_LAYERS,
    THETA,
    Configuration,
)
from attnkit.realmodels.errors import Unreadable, quote
from attnkit.realmodels.families import family_layers
from attnkit.realmodels.gguf_header import read_header
from attnkit.realmodels.hub import HubFile
from attnkit.realmodels.layouts import FAMILIES
from attnkit.realmodels.rotary import FULL, SLIDING, Rotary
from attnkit.realmodels.stack import LatentNames, Stack
from attnkit.realmodels.tensors import TensorEntry, TensorFile

ARCHITECTURES = {
    **dict.fromkeys(("llama", "llama-embed"), "llama"),
    "gemma-embedding": "gemma3_text",
    **{
        name: name.replace("-", "_")
        for name in (
            "bert nomic-bert eurobert gpt2 gpt-oss bloom mpt falcon stablelm starcoder2 t5 "
            "qwen2 qwen3 gemma gemma2 phi3 olmo olmo2 smollm3 granite lfm2 glm4 cohere2 arcee "
            "dots1 exaone4 nemotron apertus"
        ).split()
    },
    "modern-bert": "modernbert",
    "seed_oss": "seed_oss",
    "glm4moe": "glm4_moe",
    "granitemoe": "granitemoe",
    "qwen3vl": "qwen3_vl_text",
    "olmoe": "olmoe",
    "gptneox": "gpt_neox",
    "starcoder": "gpt_bigcode",
    "t5encoder": "t5",
    "command-r": "cohere",
    "qwen2moe": "qwen2_moe",
    "qwen2vl": "qwen2_vl",
    "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "qwen35": "qwen3_5_text",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "mistral3": "ministral3",
    "llama4": "llama4_text",
    "phi2": "phi",
    "deepseek2": "deepseek_v2",
}
"""Family of each architecture that is read, by the value of the key general.architecture."""

SHUFFLED = (
    "llama",
    "deci",
    "llama-embed",
    "smollm3",
    "granite",
    "granitemoe",
    "mistral3",
    "olmo",
    "arcee",
)
"""Architectures in which the converter shuffles the rows of Q and K."""

ENCODERS = ("gemma-embedding", "llama-embed")
"""Architectures that attend to all tokens although others of their family do not."""

KEYS = {
    "embedding_length": D_MODEL,
    "block_count": N_LAYERS,
    "decoder_block_count": ("num_decoder_layers",),
    "attention.head_count": N_HEADS,
    "attention.head_count_kv": N_KV_HEADS,
    "attention.key_length": D_HEAD,
    "attention.causal": ("is_causal",),
    "attention.q_lora_rank": ("q_lora_rank",),
    "attention.kv_lora_rank": ("kv_lora_rank",),
    "attention.shared_kv_layers": ("num_kv_shared_layers",),
    "attention.sliding_window": ("sliding_window", "local_attention"),
    "attention.clamp_kqv": ("clip_qkv",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "nextn_predict_layers": ("num_nextn_predict_layers",),
    "rope.dimension_count": ("qk_rope_head_dim",),
    "rope.freq_base": THETA,
    "rope.freq_base_swa": LOCAL_THETA,
}
"""Names of a key in the configurations of transformers, by its name after the architecture's."""

LATENT = LatentNames(
    "attn_q",
    "attn_q_a",
    "attn_q_a_norm",
    "attn_q_b",
    "attn_kv_a_mqa",
    "attn_kv_a_norm",
    "attn_kv_b",
)

_FACTORS = "rope_freqs.weight"
"""Name of a tensor of numbers by which the frequencies are divided."""

TYPE_SUFFIX = re.compile(r"[-._](i?q\d\w*|b?f\d+|mxfp4)$", re.IGNORECASE)
"""End of a file's name that states its number type."""

SPLIT_SUFFIX = re.compile(r"-(\d{5})-of-(\d{5})$")
"""End of the name, without .gguf, of one file of a model in several files."""


def open_gguf(path: Path | HubFile) -> tuple[TensorFile, Configuration]:
    """Read the tensors' entries and the keys of a GGUF file, without the tokenizer's.

    Raises:
        Unreadable: If it is not a GGUF file, has another version, or is damaged.
    """
    metadata, entries = read_header(path)
    for other in _other_parts(path):
        entries |= read_header(other)[1]
    return TensorFile(path.name, entries, partial(_load, entries)), Configuration(
        metadata, path.name
    )


def _other_parts(path: Path | HubFile) -> list[Path | HubFile]:
    """Return the other files of a model in several files, of which this is the first."""
    match = SPLIT_SUFFIX.search(path.stem)
    if match is None or int(match[1]) != 1:
        return []
    stem, n = path.stem[: match.start()], int(match[2])
    return [path.with_name(f"{stem}-{i:05}-of-{n:05}.gguf") for i in range(2, n + 1)]


def _load(entries: Mapping[str, TensorEntry], name: str) -> Array:
    """Read one tensor in single precision."""
    entry = entries[name]
    if not entry.n_bytes:
        raise Unreadable(
            f"{entry.path.name} has {quote(name)} in {entry.type}, which the package gguf does not "
            "know; take a file of another type, such as Q8_0 or F16"
        )
    raw = entry.read_bytes().reshape(*entry.shape[:-1], -1)
    with np.errstate(all="ignore"):  # the caller finds damaged scales
        try:
            values = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[entry.type])
        except NotImplementedError as error:
            raise Unreadable(
                f"{entry.path.name} has {quote(name)} in {entry.type}, which is not read; convert "
                "the model to F16 or Q8_0"
            ) from error
        return np.asarray(values, np.float32).reshape(entry.shape)


def gguf_model(path: Path | HubFile) -> RealModel:
    """Find the attention layers of the model in a GGUF file; only the header is read.

    Raises:
        Unreadable: As by `open_gguf`, or if the architecture is not in `ARCHITECTURES` or the
            header contradicts it.
    """
    file, keys = open_gguf(path)
    architecture = keys.word("general.architecture", ARCHITECTURES)
    if keys.number("split.count", default=1) > 1 and not _other_parts(path):
        raise Unreadable(
            f"{path.name} is one file of a model in several files; name the first one, which ends "
            "in -00001-of-… and has the others beside it"
        )
    own = FAMILIES[ARCHITECTURES[architecture]]
    in_pair = len({stack.kind for stack in own}) == len(Kind)
    stacks = tuple(
        _stack(stack, file, architecture, in_pair=in_pair)
        for stack in own
        if in_pair or stack.kind is not Kind.CROSS
    )
    config = _configuration(file, keys, architecture, stacks)
    layers, notes = family_layers(file, architecture, stacks, config)
    return RealModel(_model_name(path, keys), architecture, "GGUF", layers, notes)


def _model_name(path: Path | HubFile, keys: Configuration) -> str:
    """Return the file's name without its type, or general.name if the file has a generic name."""
    stem = TYPE_SUFFIX.sub("", SPLIT_SUFFIX.sub("", path.stem))
    _, name = keys.find("general.name")
    generic = stem.lower() in ("model", "ggml-model", "ggml", "gguf")
    return name if generic and isinstance(name, str) and name else stem


def _stack(stack: Stack, file: TensorFile, architecture: str, *, in_pair: bool) -> Stack:
    """Return a stack of a family with the names and rules of llama.cpp.

    Args:
        stack: The stack.
        file: The model's file.
        architecture: Its architecture.
        in_pair: Whether the family has an encoder and a decoder.
    """
    side = {Kind.ENCODER: "enc.", Kind.CAUSAL: "dec.", Kind.CROSS: "dec."}[stack.kind]
    attention = "cross_attn" if stack.kind is Kind.CROSS else "attn"
    modules = tuple((f"{attention}_{role}", role) for role in "qkv")
    if stack.latent is not None:
        modules = ((LATENT.kv_a, "kv"),)
    elif not stack.hybrid and any(name.endswith("attn_qkv.weight") for name in file.entries):
        modules = (("attn_qkv", "qkv"),)
    has_kv_b = any(name.endswith(f"{LATENT.kv_b}.weight") for name in file.entries)
    latent = LATENT if has_kv_b else replace(LATENT, kv_b="", k_b="attn_k_b", v_b="attn_v_b")
    return replace(
        stack,
        kind=Kind.ENCODER if architecture in ENCODERS else stack.kind,
        prefix=(side if in_pair else "") + "blk.{}.",
        modules=modules,
        norm=f"{attention}_norm" if stack.norm else "",
        other_norm="attn_norm_2" if stack.other_norm else "",
        source_norm="enc.output_norm" if stack.source_norm else "",
        latent=stack.latent and latent,
        grouped=False,
        transposed=False,
        shuffled=architecture in SHUFFLED,
        count_kv_heads=None,
        norm_flags=(),
        gain_offset=0.0,
    )


def _configuration(
    file: TensorFile, keys: Configuration, architecture: str, stacks: tuple[Stack, ...]
) -> Configuration:
    """Return the keys with the field names of transformers."""
    values: dict[str, Any] = {}
    labels: dict[str, str] = {}
    for key, names in KEYS.items():
        labels |= dict.fromkeys(names, f"{architecture}.{key}")
        values |= dict.fromkeys(names, keys.values.get(f"{architecture}.{key}"))
    config = Configuration(values, keys.file, labels)
    given = {
        name.removeprefix(f"{architecture}."): value
        for name, value in keys.values.items()
        if name.startswith(f"{architecture}.")
    }
    full_names = {name: f"{architecture}.{name}" for name in given}
    rotary = next((stack.rotary for stack in stacks if stack.latent is None), None)
    derived = dict(_derived(file, config, Configuration(given, keys.file, full_names), rotary))
    return replace(config, values={**values, **derived})


def _derived(
    file: TensorFile, config: Configuration, keys: Configuration, rotary: Rotary | None
) -> Iterator[tuple[str, Any]]:
    """Yield the fields of transformers that are not the value of one key.

    Args:
        file: The model's file.
        config: The fields that are.
        keys: The keys of the architecture, without its name.
        rotary: Rotary positions of the family, if they concern all dimensions that are read.
    """
    if keys.find("nextn_predict_layers")[1]:
        n_layers = config.count(*N_LAYERS) - keys.count("nextn_predict_layers")
        yield from dict.fromkeys(N_LAYERS, n_layers).items()
    _, pattern = keys.find("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        yield "layer_types", [SLIDING if local else FULL for local in pattern]
    else:
        yield from dict.fromkeys(GLOBAL_EVERY, pattern).items()
    widths = {FULL: keys.count("attention.key_length", default=0) or _equal_width(config)}
    widths[SLIDING] = keys.count("attention.key_length_swa", default=widths[FULL])
    yield from dict.fromkeys(D_HEAD, widths[SLIDING]).items()
    yield "global_head_dim", widths[FULL]
    starts = [
        name.removesuffix("_k.weight") for name in file.entries if name.endswith("attn_k.weight")
    ]
    yield "attention_k_eq_v", any(f"{start}_v.weight" not in file.entries for start in starts)
    if keys.find("attention.kv_lora_rank")[1]:
        width = keys.count("attention.key_length_mla", "attention.key_length")
        yield "qk_nope_head_dim", width - config.count("qk_rope_head_dim")
        yield "v_head_dim", keys.count("attention.value_length_mla", "attention.value_length")
    if rotary is not None:
        yield (
            "rope_parameters",
            {
                layer_type: _positions(
                    file, keys, width, local=layer_type == SLIDING, rotary=rotary
                )
                for layer_type, width in widths.items()
            },
        )


def _yarn(keys: Configuration, factor: float) -> dict[str, Any]:
    """Return how YaRN scales the positions, in the fields of transformers.

    Source:
        llama.cpp: `rope_yarn` in ggml/src/ggml-cpu/ops.cpp, and the keys of LLM_KV_ROPE_SCALING.
    """
    scaling = "rope.scaling."
    length = keys.number(f"{scaling}original_context_length", "context_length")
    gain = keys.number(f"{scaling}attn_factor", f"{scaling}yarn_attn_factor", default=1.0)
    if keys.number(f"{scaling}yarn_ext_factor", default=1.0) != 1:
        return {"rope_type": "yarn with a yarn_ext_factor"}
    return {
        "rope_type": "yarn",
        "original_max_position_embeddings": length,
        "beta_fast": keys.number(f"{scaling}yarn_beta_fast", default=32.0),
        "beta_slow": keys.number(f"{scaling}yarn_beta_slow", default=1.0),
        "attention_factor": gain * (1 + math.log(max(factor, 1.0)) / 10),
    }


def _equal_width(config: Configuration) -> int:
    """Return the width of a head where all heads together are as wide as the model."""
    first = config.of_layer(0)
    return max(1, first.count(*D_MODEL) // first.count(*N_HEADS))


def _positions(
    file: TensorFile, keys: Configuration, width: int, *, local: bool, rotary: Rotary
) -> dict[str, Any]:
    """Return the rotary positions of layers with heads of a width, in the fields of transformers.

    Raises:
        Unreadable: If a key or the tensor of factors contradicts the width.
    """
    names = (*(("rope.dimension_count_swa",) if local else ()), "rope.dimension_count")
    n_dims = keys.count(*names, default=width)
    if n_dims > width or n_dims % 2 or width % 2:
        raise Unreadable(
            f"{file.name}: {keys.find(*names)[0] or 'rope.dimension_count'} is {n_dims:,}; of a "
            f"head's {width:,} dimensions, an even number must rotate"
        )
    fields: dict[str, Any] = {"partial_rotary_factor": (n_dims + 0.5) / width}
    if local and rotary.local_theta is not None and not rotary.local_scaling:
        return fields
    _, rule = keys.find("rope.scaling.type")
    factor = "rope.scaling.factor", "rope.scale_linear"
    if rule not in (None, "linear", "none", "yarn") or "rope_factors_long.weight" in file.entries:
        return fields | {"rope_type": f"{rule or 'longrope'} of GGUF"}
    if rule != "none" and keys.find(*factor)[1]:  # a factor of 0 means none
        fields |= {"rope_type": "linear", "factor": keys.number(*factor)}
        fields |= _yarn(keys, fields["factor"]) if rule == "yarn" else {}
    if _FACTORS in file.entries:
        file.check_shape(_FACTORS, (n_dims // 2,), f"{n_dims} dimensions rotate")
        factors = file.read(_FACTORS)
        if (factors <= 0).any():
            raise Unreadable(f"{file.name}: {_FACTORS} must hold {n_dims // 2} positive factors")
        fields["factors"] = factors
    return fields
