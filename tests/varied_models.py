"""Thirty small models of each newer family, whose settings are drawn at random.

The numbers are drawn once per family and index, so that a model that fails can be built again.
"""

import random

from library_models import D_VOCAB, Case

N_MODELS = 30


def _grouped(pick):
    """Return numbers of query heads and of key and value heads."""
    n_kv_heads = pick([1, 2, 3])
    return n_kv_heads * pick([1, 2, 3]), n_kv_heads


def _sizes(pick):
    n_heads, n_kv_heads = _grouped(pick)
    return {
        "hidden_size": pick([12, 20, 28]), "num_hidden_layers": pick([1, 2, 3]),
        "num_attention_heads": n_heads, "num_key_value_heads": n_kv_heads,
        "head_dim": pick([2, 4, 6, 10]), "intermediate_size": 8, "max_position_embeddings": 64,
        "pad_token_id": 0,
    }  # fmt: skip


def _positions(pick):
    """Return the settings of RoPE, half of them with YaRN."""
    yarn = {
        "rope_type": "yarn", "rope_theta": pick([100.0, 1e4, 150_000.0]),
        "factor": pick([2.0, 32.0]), "beta_fast": pick([4.0, 32.0]),
        "original_max_position_embeddings": pick([16, 64, 4096]), "truncate": pick([True, False]),
    }  # fmt: skip
    return pick([{"rope_type": "default", "rope_theta": 77.0}, yarn])


def _gemma4(pick, _):
    """Wide heads in global layers, with or without W_V, and reused keys."""
    kinds = ["sliding_attention", "full_attention"]
    more = [pick(kinds) for _ in range(pick([0, 1, 2]))]
    layer_types = [*kinds, *more, "full_attention"]
    n_heads, n_kv_heads = _grouped(pick)
    return _sizes(pick) | {
        "num_hidden_layers": len(layer_types), "layer_types": layer_types,
        "num_attention_heads": n_heads, "num_key_value_heads": n_kv_heads,
        "global_head_dim": pick([8, 16, 24]),
        "num_global_key_value_heads": pick([None, 1, n_heads]),
        "attention_k_eq_v": pick([True, True, False]),
        "num_kv_shared_layers": pick([0, 0, 1, len(layer_types) - 2]),
        "attention_bias": pick([True, False]), "vocab_size_per_layer_input": D_VOCAB,
        "hidden_size_per_layer_input": 4, "sliding_window": 4,
    }  # fmt: skip


def _gpt_oss(pick, _):
    """Learned sinks, with or without biases and YaRN."""
    return _sizes(pick) | {
        "num_local_experts": 2, "num_experts_per_tok": 1, "attention_bias": pick([True, False]),
        "sliding_window": 4, "rope_parameters": _positions(pick),
    }  # fmt: skip


def _latent(pick, _):
    """Latent attention: five widths, queries in one step or two, biases."""
    n_heads, n_layers = pick([1, 2, 3, 5]), pick([1, 2, 3])
    return {
        "hidden_size": n_heads * pick([6, 10]), "num_hidden_layers": n_layers,
        "first_k_dense_replace": n_layers, "num_attention_heads": n_heads,
        "num_key_value_heads": n_heads, "q_lora_rank": pick([None, 5, 7]),
        "kv_lora_rank": pick([4, 12]), "qk_nope_head_dim": pick([2, 6, 10]),
        "qk_rope_head_dim": pick([2, 4, 8]), "v_head_dim": pick([2, 6, 7]),
        "attention_bias": pick([True, False]), "intermediate_size": 6,
        "moe_intermediate_size": 6, "mlp_layer_types": ["dense"] * n_layers,
        "max_position_embeddings": 64, "pad_token_id": 0, "rope_parameters": _positions(pick),
    }  # fmt: skip


def _falcon(pick, index):
    """One of its architectures, with rotary positions or ALiBi."""
    n_heads, n_kv_heads = _grouped(pick)
    new = index % 2 == 1
    return {
        "hidden_size": n_heads * pick([2, 4, 6]), "num_hidden_layers": pick([1, 2, 3]),
        "num_attention_heads": n_heads, "new_decoder_architecture": new,
        "num_kv_heads": n_kv_heads if new else None,
        "num_ln_in_parallel_attn": (None, 1, 2)[index // 2 % 3] if new else None,
        "multi_query": pick([True, False]), "parallel_attn": new or pick([True, False]),
        "bias": pick([True, False]), "alibi": pick([True, False, False]), "ffn_hidden_size": 6,
        "max_position_embeddings": 64,
    }  # fmt: skip


def _equal_heads(width, layers, heads, **further):
    """Return a drawer of models whose heads fill the width; `further` are draws, too."""

    def settings(pick, _):
        n_heads, d_head = pick([1, 2, 3, 5]), pick([2, 4, 6])
        own = {width: n_heads * d_head, layers: pick([1, 2, 3]), heads: n_heads}
        return own | {name: drawn(pick, d_head) for name, drawn in further.items()}

    return settings


_gptj = _equal_heads(
    "n_embd", "n_layer", "n_head", n_inner=lambda *_: 6, n_positions=lambda *_: 64,
    rotary_dim=lambda pick, d_head: pick([2, d_head]),
)  # fmt: skip
_mpt = _equal_heads(
    "d_model", "n_layers", "n_heads", max_seq_len=lambda *_: 64,
    attn_config=lambda pick, _: {"clip_qkv": pick([None, 0.5, 6.0])},
)  # fmt: skip

FAMILIES = {
    "gemma4_text": ("Gemma4", _gemma4, "self_attn"),
    "gemma4_unified_text": ("Gemma4Unified", _gemma4, "self_attn"),
    "gpt_oss": ("GptOss", _gpt_oss, "self_attn"),
    "deepseek_v2": ("DeepseekV2", _latent, "self_attn"),
    "deepseek_v3": ("DeepseekV3", _latent, "self_attn"),
    "glm4_moe_lite": ("Glm4MoeLite", _latent, "self_attn"),
    "minicpm3": ("MiniCPM3", _latent, "self_attn"),
    "youtu": ("Youtu", _latent, "self_attn"),
    "falcon": ("Falcon", _falcon, "self_attention"),
    "gptj": ("GPTJ", _gptj, r"\.attn"),
    "bloom": ("Bloom", _equal_heads("hidden_size", "n_layer", "n_head"), "self_attention"),
    "mpt": ("Mpt", _mpt, r"\.attn"),
}
"""Start of the names of a family's classes, what draws settings, and where attention is."""


def _case(family, index):
    pick = random.Random(f"{family} {index}").choice
    start, settings, attention = FAMILIES[family]
    name = start + pick(["ForCausalLM", "TextModel" if start.startswith("Gemma4") else "Model"])
    given = {"vocab_size": D_VOCAB, **settings(pick, index)}
    return Case(name, given, {"causal": attention}, family, pre_norm=True)


CASES = {f"{name}-{i}": _case(name, i) for name in FAMILIES for i in range(N_MODELS)}
"""Models by family and index."""
