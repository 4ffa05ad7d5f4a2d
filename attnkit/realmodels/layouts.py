"""Table of how the model families of Hugging Face transformers name and store their attention.

To add a family, add a row here and one in tests/family_models.py, which compares the weights
that are read with what the library computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from attnkit.realmodels.base import Kind
from attnkit.realmodels.configuration import Configuration
from attnkit.realmodels.encoders import (
    ALBERT,
    BERT,
    DEBERTA,
    DISTILBERT,
    MODERNBERT,
    MPNET,
    NOMIC,
    POST_NORM,
    PRE_NORM,
    PROJ,
    REFORMER,
    T5,
    separate,
    with_norms,
)
from attnkit.realmodels.notes import (
    CAPPED,
    CLIPPED,
    K_IS_V,
    LATENT,
    LATENT_QUERIES,
    NORMED,
    NORMED_VALUES,
    SINK,
    SLOPED,
    UNDIVIDED,
    WINDOWED,
)
from attnkit.realmodels.rotary import FULL, SLIDING, Rotary
from attnkit.realmodels.stack import LatentNames, Stack

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
    separate("attn.", *PROJ),
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
    separate("self_attn.", *PROJ),
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

_LLAMA_4 = replace(
    _LLAMA, notes=(NORMED,), rotary=Rotary(interleaved=True, theta=5e5, unturned_every=4)
)

_ONLY_LOCAL = Rotary(global_every=4, global_offset=-1, unturned_type=FULL)
"""Rotary positions in layers with a window, and none in the others."""

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


_OPT = Stack(
    Kind.CAUSAL,
    "decoder.layers.{}.",
    separate("self_attn.", *PROJ),
    norm="self_attn_layer_norm",
    norm_flags=("do_layer_norm_before", "layer_norm_elementwise_affine"),
)

_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)

_DEEPSEEK_V4 = replace(
    _LATENT,
    modules=(("attn.wkv", "k=v"),),
    norm="attn_norm",
    latent=LatentNames(q_a="wq_a", q_norm="q_norm", q_b="wq_b", kv="wkv"),
    notes=(LATENT_QUERIES, K_IS_V, NORMED, SINK),
)

_TABLE: tuple[tuple[str, tuple[Stack, ...]], ...] = (
    ("bert bert-generation camembert electra ernie roberta xlm-roberta", BERT),
    ("megatron-bert", with_norms(BERT, "attention.ln", "crossattention.ln")),
    ("roberta-prelayernorm", with_norms(BERT, "attention.LayerNorm", "crossattention.LayerNorm")),
    (
        "xlm-roberta-xl",
        with_norms(BERT, "attention.self_attn_layer_norm", "crossattention.self_attn_layer_norm"),
    ),
    ("albert", (ALBERT,)),
    ("deberta-v2", (DEBERTA,)),
    ("distilbert", (DISTILBERT,)),
    ("modernbert", (MODERNBERT,)),
    (
        "modernbert-decoder",
        (replace(MODERNBERT, kind=Kind.CAUSAL, modules=separate("attn.", *PROJ)),),
    ),
    ("mpnet", (MPNET,)),
    ("nomic_bert", (NOMIC,)),
    ("bart blenderbot-small marian", POST_NORM),
    ("blenderbot m2m_100 mbart pegasus whisper", PRE_NORM),
    ("mt5 t5 umt5", T5),
    ("bloom", (_BLOOM,)),
    ("falcon", (_FALCON,)),
    ("gpt2", _GPT2),
    ("gpt_bigcode", (_GPT_BIGCODE,)),
    ("gpt_neox", (_GPT_NEOX,)),
    ("gptj", (_GPT_J,)),
    ("mpt", (_MPT,)),
    ("opt", (_OPT,)),
    (
        "arcee aria_text cwm doge dots1 granite granitemoe jais2 llama mellum ministral "
        "ministral3 mistral mixtral olmoe phimoe qwen2 qwen2_5_vl qwen2_5_vl_text qwen2_moe "
        "qwen2_vl qwen2_vl_text qwen3 qwen3_moe qwen3_vl_moe_text qwen3_vl_text seed_oss "
        "solar_open starcoder2",
        (_LLAMA,),
    ),
    ("apertus", (replace(_LLAMA, norm="attention_layernorm"),)),
    ("afmoe", (replace(_LLAMA, rotary=_ONLY_LOCAL),)),
    ("cohere2", (replace(_LLAMA, rotary=replace(_ONLY_LOCAL, interleaved=True)),)),
    ("exaone4", (replace(_LLAMA, norm="", rotary=_ONLY_LOCAL),)),
    ("gemma3n_text", (_GEMMA_3N,)),
    ("lfm2", (replace(_LLAMA, norm="operator_norm", hybrid=_HYBRID),)),
    ("llama4_text", (_LLAMA_4,)),
    ("nemotron", (replace(_LLAMA, gain_offset=1.0, rotary=Rotary(fraction=0.5)),)),
    ("qwen3_next qwen3_5_moe_text qwen3_5_text", (_QWEN_NEXT,)),
    ("reformer", REFORMER),
    ("smollm3", (replace(_LLAMA, rotary=Rotary(unturned_every=4)),)),
    ("eurobert", (replace(_LLAMA, kind=Kind.ENCODER, switches=()),)),
    ("cohere ernie4_5 ernie4_5_moe helium", (replace(_LLAMA, rotary=Rotary(interleaved=True)),)),
    ("glm glm4", (replace(_LLAMA, rotary=Rotary(interleaved=True, fraction=0.5)),)),
    ("gemma gemma2 vaultgemma", (_GEMMA,)),
    ("gemma3_text", (_GEMMA_3,)),
    ("gemma4_text gemma4_unified_text", (_GEMMA_4,)),
    ("gpt_oss", (replace(_LLAMA, rotary=Rotary(theta=150_000.0), notes=(SINK,)),)),
    ("flex_olmo olmo olmo2", (replace(_LLAMA, norm=""),)),
    ("olmo3", (_OLMO_3,)),
    ("glm4_moe phi", (replace(_LLAMA, rotary=Rotary(fraction=0.5)),)),
    ("phi3", (replace(_LLAMA, modules=(("self_attn.qkv_proj", "qkv"),)),)),
    ("stablelm", (replace(_LLAMA, rotary=Rotary(fraction=0.25)),)),
    ("deepseek_v4", (_DEEPSEEK_V4,)),
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
