"""Table of how the model families of Hugging Face transformers name and store their attention.

To add a family, add a row here and one in tests/test_realmodels_families.py, which compares the
weights that are read with what the library computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from attnkit.realmodels.base import Kind
from attnkit.realmodels.configuration import Configuration
from attnkit.realmodels.notes import (
    BIASED,
    CAPPED,
    CLIPPED,
    LATENT,
    NORMED,
    NORMED_VALUES,
    Q_IS_K,
    REPEATED,
    SINK,
    SLOPED,
    UNDIVIDED,
    WINDOWED,
)
from attnkit.realmodels.rotary import FULL, SLIDING, Rotary
from attnkit.realmodels.stack import LatentNames, Stack


def _separate(parent: str, q: str, k: str, v: str) -> tuple[tuple[str, str], ...]:
    """Return the modules of a layer with separate linear layers for queries, keys and values."""
    return ((parent + q, "q"), (parent + k, "k"), (parent + v, "v"))


_PROJ = ("q_proj", "k_proj", "v_proj")

_DECODER_IF = (("is_decoder", True, Kind.CAUSAL),)

_BERT = (
    Stack(
        Kind.ENCODER,
        "encoder.layer.{}.",
        _separate("attention.self.", "query", "key", "value"),
        switches=_DECODER_IF,
    ),
    Stack(
        Kind.CROSS,
        "encoder.layer.{}.",
        _separate("crossattention.self.", "query", "key", "value"),
    ),
)


def _with_norms(stacks: tuple[Stack, ...], *norms: str) -> tuple[Stack, ...]:
    """Return copies of the stacks with these norms before their projections."""
    return tuple(replace(stack, norm=norm) for stack, norm in zip(stacks, norms, strict=True))


_DEBERTA = Stack(
    Kind.ENCODER,
    "encoder.layer.{}.",
    _separate("attention.self.", "query_proj", "key_proj", "value_proj"),
    notes=(SLOPED,),
)

_MPNET = Stack(
    Kind.ENCODER,
    "encoder.layer.{}.",
    _separate("attention.attn.", "q", "k", "v"),
    notes=(BIASED,),
)

_DISTILBERT = Stack(
    Kind.ENCODER, "transformer.layer.{}.", _separate("attention.", "q_lin", "k_lin", "v_lin")
)

_ALBERT = Stack(
    Kind.ENCODER,
    "encoder.albert_layer_groups.{}.albert_layers.0.",
    _separate("attention.", "query", "key", "value"),
    n_layers=("num_hidden_groups",),
    notes=(REPEATED,),
    defaults=(("num_hidden_groups", 1),),
    required=(("inner_group_num", 1),),
)

_MODERNBERT = Stack(
    Kind.ENCODER,
    "layers.{}.",
    (("attn.Wqkv", "qkv"),),
    norm="attn_norm",
    first_norm=1,
    rotary=Rotary(theta=160_000.0, local_theta=10_000.0, global_every=3),
)

_NOMIC = Stack(
    Kind.ENCODER,
    "encoder.layers.{}.",
    (("attn.Wqkv", "qkv"),),
    rotary=Rotary(),
)

_GPT2 = (
    Stack(Kind.CAUSAL, "h.{}.", (("attn.c_attn", "qkv"),), norm="ln_1", transposed=True),
    Stack(
        Kind.CROSS,
        "h.{}.",
        (("crossattention.q_attn", "q"), ("crossattention.c_attn", "kv")),
        norm="ln_cross_attn",
        transposed=True,
    ),
)

_GPT_NEOX = Stack(
    Kind.CAUSAL,
    "layers.{}.",
    (("attention.query_key_value", "qkv"),),
    norm="input_layernorm",
    grouped=True,
    rotary=Rotary(fraction=0.25),
)

_GPT_J = Stack(
    Kind.CAUSAL,
    "h.{}.",
    _separate("attn.", *_PROJ),
    norm="ln_1",
    rotary=Rotary(interleaved=True, n_dims=64),
)

_BLOOM = Stack(
    Kind.CAUSAL,
    "h.{}.",
    (("self_attention.query_key_value", "qkv"),),
    norm="input_layernorm",
    grouped=True,
    notes=(SLOPED,),
)


def _count_falcon_kv_heads(config: Configuration, n_heads: int) -> int:
    """Return the number of key and value heads of a Falcon, which two flags decide."""
    if config.flag("new_decoder_architecture", default=False):
        return config.count("num_kv_heads", "n_head_kv", default=n_heads)
    return 1 if config.flag("multi_query", default=True) else n_heads


_FALCON = replace(
    _BLOOM,
    other_norm="ln_attn",
    count_kv_heads=_count_falcon_kv_heads,
    rotary=Rotary(),
    notes=(),
)


def _count_bigcode_kv_heads(config: Configuration, n_heads: int) -> int:
    """Return the number of key and value heads of a GPT-BigCode: one or all."""
    return 1 if config.flag("multi_query", default=True) else n_heads


_GPT_BIGCODE = replace(
    _GPT2[0], grouped=True, transposed=False, count_kv_heads=_count_bigcode_kv_heads
)

_MPT = Stack(Kind.CAUSAL, "blocks.{}.", (("attn.Wqkv", "qkv"),), norm="norm_1", notes=(SLOPED,))

_LLAMA = Stack(
    Kind.CAUSAL,
    "layers.{}.",
    _separate("self_attn.", *_PROJ),
    norm="input_layernorm",
    switches=(("is_causal", False, Kind.ENCODER),),
    rotary=Rotary(),
)

_GEMMA = replace(
    _LLAMA,
    switches=(*_LLAMA.switches, ("use_bidirectional_attention", True, Kind.ENCODER)),
    gain_offset=1.0,
)

_GEMMA_3_ROTARY = Rotary(
    theta=1e6, local_theta=10_000.0, global_every=6, global_offset=-1, local_scaling=False
)

_GEMMA_3 = replace(
    _GEMMA,
    rotary=_GEMMA_3_ROTARY,
    defaults=(("num_attention_heads", 8), ("num_key_value_heads", 4), ("head_dim", 256)),
)

_GEMMA_4 = replace(
    _LLAMA,
    layer_sizes=True,
    switches=(("use_bidirectional_attention", "all", Kind.ENCODER),),
    rotary=_GEMMA_3_ROTARY,
    notes=(UNDIVIDED, NORMED_VALUES),
    defaults=(
        ("global_head_dim", 512),
        (
            "rope_parameters",
            {
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
                "sliding_attention": {"rope_type": "default"},
            },
        ),
    ),
)

_GEMMA_3N = replace(
    _LLAMA,
    layer_sizes=True,
    rotary=replace(_GEMMA_3_ROTARY, global_every=5),
    notes=(UNDIVIDED, NORMED_VALUES),
    defaults=(("num_kv_shared_layers", 15),),
)

_HYBRID = (FULL, SLIDING, "attention")
"""Words for attention in the list of layer types of a model that also has other layers."""

_QWEN_NEXT = replace(
    _LLAMA, gated=True, hybrid=_HYBRID, gain_offset=1.0, rotary=Rotary(fraction=0.25)
)

_REFORMER = Stack(
    Kind.ENCODER,
    "encoder.layers.{}.",
    _separate("attention.self_attention.", "query", "key", "value"),
    norm="attention.layer_norm",
    hybrid=("local",),
    switches=_DECODER_IF,
)

_OLMO_3 = replace(
    _LLAMA,
    norm="",
    rotary=Rotary(
        theta=5e5, local_theta=5e5, global_every=4, global_offset=-1, local_scaling=False
    ),
)

_LATENT = replace(
    _LLAMA,
    modules=(("self_attn.kv_a_proj_with_mqa", "kv"),),
    latent=LatentNames(),
    switches=(),
    notes=(LATENT,),
)


def _encoder_decoder(pre_norm: bool) -> tuple[Stack, ...]:
    """Return the stacks of BART and its relatives."""
    norms = ("self_attn_layer_norm", "encoder_attn_layer_norm", "encoder.layer_norm")
    self_norm, cross_norm, source_norm = norms if pre_norm else ("", "", "")
    encoder = Stack(
        Kind.ENCODER,
        "encoder.layers.{}.",
        _separate("self_attn.", *_PROJ),
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
        modules=_separate("encoder_attn.", *_PROJ),
        norm=cross_norm,
        source_norm=source_norm,
    )
    return encoder, decoder, cross


_OPT = Stack(
    Kind.CAUSAL,
    "decoder.layers.{}.",
    _separate("self_attn.", *_PROJ),
    norm="self_attn_layer_norm",
    norm_flags=("do_layer_norm_before", "layer_norm_elementwise_affine"),
)

_T5_ENCODER = Stack(
    Kind.ENCODER,
    "encoder.block.{}.",
    _separate("layer.0.SelfAttention.", "q", "k", "v"),
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
_T5 = (
    _T5_ENCODER,
    _T5_DECODER,
    replace(
        _T5_DECODER,
        kind=Kind.CROSS,
        modules=_separate("layer.1.EncDecAttention.", "q", "k", "v"),
        norm="layer.1.layer_norm",
        source_norm="encoder.final_layer_norm",
    ),
)

_POST_NORM, _PRE_NORM = _encoder_decoder(pre_norm=False), _encoder_decoder(pre_norm=True)

_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)

_TABLE: tuple[tuple[str, tuple[Stack, ...]], ...] = (
    ("bert bert-generation camembert electra ernie roberta xlm-roberta", _BERT),
    ("megatron-bert", _with_norms(_BERT, "attention.ln", "crossattention.ln")),
    ("roberta-prelayernorm", _with_norms(_BERT, "attention.LayerNorm", "crossattention.LayerNorm")),
    (
        "xlm-roberta-xl",
        _with_norms(_BERT, "attention.self_attn_layer_norm", "crossattention.self_attn_layer_norm"),
    ),
    ("albert", (_ALBERT,)),
    ("deberta-v2", (_DEBERTA,)),
    ("distilbert", (_DISTILBERT,)),
    ("modernbert", (_MODERNBERT,)),
    (
        "modernbert-decoder",
        (replace(_MODERNBERT, kind=Kind.CAUSAL, modules=_separate("attn.", *_PROJ)),),
    ),
    ("mpnet", (_MPNET,)),
    ("nomic_bert", (_NOMIC,)),
    ("bart blenderbot-small marian", _POST_NORM),
    ("blenderbot m2m_100 mbart pegasus whisper", _PRE_NORM),
    ("mt5 t5 umt5", _T5),
    ("bloom", (_BLOOM,)),
    ("falcon", (_FALCON,)),
    ("gpt2", _GPT2),
    ("gpt_bigcode", (_GPT_BIGCODE,)),
    ("gpt_neox", (_GPT_NEOX,)),
    ("gptj", (_GPT_J,)),
    ("mpt", (_MPT,)),
    ("opt", (_OPT,)),
    ("granite llama ministral mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe", (_LLAMA,)),
    ("qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text starcoder2", (_LLAMA,)),
    ("smollm3", (replace(_LLAMA, rotary=Rotary(unturned_every=4)),)),
    ("lfm2", (replace(_LLAMA, norm="operator_norm", hybrid=_HYBRID),)),
    (
        "llama4_text",
        (
            replace(
                _LLAMA,
                notes=(NORMED,),
                rotary=Rotary(interleaved=True, theta=5e5, unturned_every=4),
            ),
        ),
    ),
    ("qwen3_next qwen3_5_text qwen3_5_moe_text", (_QWEN_NEXT,)),
    (
        "cohere2",
        (
            replace(
                _LLAMA,
                rotary=Rotary(
                    interleaved=True, global_every=4, global_offset=-1, unturned_type=FULL
                ),
            ),
        ),
    ),
    ("gemma3n_text", (_GEMMA_3N,)),
    (
        "reformer",
        (
            _REFORMER,
            replace(
                _REFORMER,
                modules=tuple(
                    (f"attention.self_attention.{module}", roles)
                    for module, roles in (("query_key", "q=k"), ("value", "v"))
                ),
                hybrid=("lsh",),
                notes=(Q_IS_K,),
            ),
        ),
    ),
    ("eurobert", (replace(_LLAMA, kind=Kind.ENCODER, switches=()),)),
    ("cohere helium", (replace(_LLAMA, rotary=Rotary(interleaved=True)),)),
    ("glm glm4", (replace(_LLAMA, rotary=Rotary(interleaved=True, fraction=0.5)),)),
    ("gemma gemma2", (_GEMMA,)),
    ("gemma3_text", (_GEMMA_3,)),
    ("gemma4_text gemma4_unified_text", (_GEMMA_4,)),
    ("gpt_oss", (replace(_LLAMA, rotary=Rotary(theta=150_000.0), notes=(SINK,)),)),
    ("olmo olmo2", (replace(_LLAMA, norm=""),)),
    ("olmo3", (_OLMO_3,)),
    ("phi", (replace(_LLAMA, rotary=Rotary(fraction=0.5)),)),
    ("phi3", (replace(_LLAMA, modules=(("self_attn.qkv_proj", "qkv"),)),)),
    ("stablelm", (replace(_LLAMA, rotary=Rotary(fraction=0.25)),)),
    ("deepseek_v2 deepseek_v3 glm4_moe_lite minicpm3 youtu", (_LATENT,)),
)
"""Values of model_type, and the attention layers of these families."""

FAMILIES = dict(
    sorted(
        ((name, stacks) for names, stacks in _TABLE for name in names.split()),
        key=lambda row: row[0],
    )
)
"""Attention layers by the model_type of a configuration: encoder, then causal, then cross."""

FIELD_NOTES: Mapping[str, str] = {
    "alibi": SLOPED,
    "attn_logit_softcapping": CAPPED,
    "clip_qkv": CLIPPED,
    "sliding_window": WINDOWED,
    "local_attention": WINDOWED,
}
"""Notes on a model by the configuration field that calls for the note, unless it is false."""

SPARSE: Mapping[str, Mapping[str, int]] = {
    family: {name: size for name, size in zip(_SIZES, sizes, strict=True) if size}
    for families, sizes in (
        ("gemma", (3072, 28, 16, 16, 256)),
        ("gemma2 gemma3_text", (2304, 26, 8, 4, 256)),
        ("gemma3n_text", (2048, 35, 8, 2, 256)),
        ("llama", (4096, 32, 32, 0, 0)),
        ("mistral mixtral", (4096, 32, 32, 8, 0)),
        ("qwen2", (4096, 32, 32, 32, 0)),
        ("qwen3", (4096, 32, 32, 32, 128)),
    )
    for family in families.split()
}
"""Sizes for what the configuration of the text's part in a model of images and text leaves out.

Such a part may name only what differs from the library's own sizes for its family.
"""
