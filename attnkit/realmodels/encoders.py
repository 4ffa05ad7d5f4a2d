"""Layouts of encoders, and of models with an encoder and a decoder; the table is in `layouts`."""

from __future__ import annotations

from dataclasses import replace

from attnkit.realmodels.base import Kind
from attnkit.realmodels.notes import BIASED, Q_IS_K, REPEATED, SLOPED, UNDIVIDED
from attnkit.realmodels.rotary import Rotary
from attnkit.realmodels.stack import Stack


def separate(parent: str, q: str, k: str, v: str) -> tuple[tuple[str, str], ...]:
    """Return the modules of a layer with separate linear layers for queries, keys and values."""
    return ((parent + q, "q"), (parent + k, "k"), (parent + v, "v"))


PROJ = ("q_proj", "k_proj", "v_proj")

DECODER_IF = (("is_decoder", True, Kind.CAUSAL),)

BERT = (
    Stack(
        Kind.ENCODER,
        "encoder.layer.{}.",
        separate("attention.self.", "query", "key", "value"),
        switches=DECODER_IF,
    ),
    Stack(
        Kind.CROSS,
        "encoder.layer.{}.",
        separate("crossattention.self.", "query", "key", "value"),
    ),
)


def with_norms(stacks: tuple[Stack, ...], *norms: str) -> tuple[Stack, ...]:
    """Return copies of the stacks with these norms before their projections."""
    return tuple(replace(stack, norm=norm) for stack, norm in zip(stacks, norms, strict=True))


DEBERTA = Stack(
    Kind.ENCODER,
    "encoder.layer.{}.",
    separate("attention.self.", "query_proj", "key_proj", "value_proj"),
    notes=(SLOPED,),
)

MPNET = Stack(
    Kind.ENCODER,
    "encoder.layer.{}.",
    separate("attention.attn.", "q", "k", "v"),
    notes=(BIASED,),
)

DISTILBERT = Stack(
    Kind.ENCODER, "transformer.layer.{}.", separate("attention.", "q_lin", "k_lin", "v_lin")
)

ALBERT = Stack(
    Kind.ENCODER,
    "encoder.albert_layer_groups.{}.albert_layers.0.",
    separate("attention.", "query", "key", "value"),
    n_layers=("num_hidden_groups",),
    notes=(REPEATED,),
    defaults=(("num_hidden_groups", 1),),
    required=(("inner_group_num", 1),),
)

MODERNBERT = Stack(
    Kind.ENCODER,
    "layers.{}.",
    (("attn.Wqkv", "qkv"),),
    norm="attn_norm",
    first_norm=1,
    rotary=Rotary(theta=160_000.0, local_theta=10_000.0, global_every=3),
)

NOMIC = Stack(
    Kind.ENCODER,
    "encoder.layers.{}.",
    (("attn.Wqkv", "qkv"),),
    rotary=Rotary(),
)


_LOCAL = Stack(
    Kind.ENCODER,
    "encoder.layers.{}.",
    separate("attention.self_attention.", "query", "key", "value"),
    norm="attention.layer_norm",
    hybrid=("local",),
    switches=DECODER_IF,
)
_LSH = replace(
    _LOCAL,
    modules=(
        ("attention.self_attention.query_key", "q=k"),
        ("attention.self_attention.value", "v"),
    ),
    hybrid=("lsh",),
    notes=(Q_IS_K,),
)
REFORMER = (_LOCAL, _LSH)


def _encoder_decoder(pre_norm: bool) -> tuple[Stack, ...]:
    """Return the stacks of BART and its relatives."""
    norms = ("self_attn_layer_norm", "encoder_attn_layer_norm", "encoder.layer_norm")
    self_norm, cross_norm, source_norm = norms if pre_norm else ("", "", "")
    encoder = Stack(
        Kind.ENCODER,
        "encoder.layers.{}.",
        separate("self_attn.", *PROJ),
        norm=self_norm,
        n_layers=("encoder_layers",),
        n_heads=("encoder_attention_heads",),
    )
    decoder = replace(
        encoder,
        kind=Kind.CAUSAL,
        prefix="decoder.layers.{}.",
        n_layers=("decoder_layers",),
        n_heads=("decoder_attention_heads",),
    )
    cross = replace(
        decoder,
        kind=Kind.CROSS,
        modules=separate("encoder_attn.", *PROJ),
        norm=cross_norm,
        source_norm=source_norm,
    )
    return encoder, decoder, cross


_T5_ENCODER = Stack(
    Kind.ENCODER,
    "encoder.block.{}.",
    separate("layer.0.SelfAttention.", "q", "k", "v"),
    norm="layer.0.layer_norm",
    n_layers=("num_layers",),
    notes=(BIASED, UNDIVIDED),
)
_T5_DECODER = replace(
    _T5_ENCODER,
    kind=Kind.CAUSAL,
    prefix="decoder.block.{}.",
    n_layers=("num_decoder_layers", "num_layers"),
)
T5 = (
    _T5_ENCODER,
    _T5_DECODER,
    replace(
        _T5_DECODER,
        kind=Kind.CROSS,
        modules=separate("layer.1.EncDecAttention.", "q", "k", "v"),
        norm="layer.1.layer_norm",
        source_norm="encoder.final_layer_norm",
    ),
)

POST_NORM, PRE_NORM = _encoder_decoder(pre_norm=False), _encoder_decoder(pre_norm=True)
