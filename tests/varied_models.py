"""Thirty small models of each newer family, whose settings are drawn at random.

The numbers are drawn once per family and index, so that a model that fails can be built again.
"""

import random
from functools import partial

from library_models import D_VOCAB, Case

N_MODELS = 30


def _draw(family, index):
    return random.Random(f"{family} {index}")


def _grouped(draw):
    """Return numbers of query heads and of key and value heads."""
    n_kv_heads = draw.choice([1, 2, 3])
    return n_kv_heads * draw.choice([1, 2, 3]), n_kv_heads


def _sizes(draw):
    n_heads, n_kv_heads = _grouped(draw)
    return {
        "vocab_size": D_VOCAB,
        "hidden_size": draw.choice([12, 20, 28]),
        "num_hidden_layers": draw.choice([1, 2, 3]),
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv_heads,
        "head_dim": draw.choice([2, 4, 6, 10]),
        "intermediate_size": 8,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }


def _equal_heads(draw):
    """Return the number of heads, their width, and the product of the two."""
    n_heads, d_head = draw.choice([1, 2, 3, 5]), draw.choice([2, 4, 6])
    return n_heads, d_head, n_heads * d_head


def _yarn(draw):
    return {
        "rope_type": "yarn",
        "rope_theta": draw.choice([100.0, 1e4, 150_000.0]),
        "factor": draw.choice([2.0, 32.0]),
        "beta_fast": draw.choice([4.0, 32.0]),
        "original_max_position_embeddings": draw.choice([16, 64, 4096]),
        "truncate": draw.choice([True, False]),
    }


def gemma4(family, index):
    """Return a Gemma 4: wide heads in global layers, with or without W_V, and reused keys."""
    draw = _draw(family, index)
    kinds = ["sliding_attention", "full_attention"]
    layer_types = [*kinds, *draw.choices(kinds, k=draw.choice([0, 1, 2])), "full_attention"]
    n_heads, n_kv_heads = _grouped(draw)
    settings = _sizes(draw) | {
        "num_hidden_layers": len(layer_types), "layer_types": layer_types,
        "num_attention_heads": n_heads, "num_key_value_heads": n_kv_heads,
        "global_head_dim": draw.choice([8, 16, 24]),
        "num_global_key_value_heads": draw.choice([None, 1, n_heads]),
        "attention_k_eq_v": draw.choice([True, True, False]),
        "num_kv_shared_layers": draw.choice([0, 0, 1, len(layer_types) - 2]),
        "attention_bias": draw.choice([True, False]), "vocab_size_per_layer_input": D_VOCAB,
        "hidden_size_per_layer_input": 4, "sliding_window": 4,
    }  # fmt: skip
    unified = "Unified" if family == "gemma4_unified_text" else ""
    name = draw.choice([f"Gemma4{unified}{end}" for end in ("ForCausalLM", "TextModel")])
    return Case(name, settings, {"causal": "self_attn"}, family, pre_norm=True)


def gpt_oss(index):
    """Return a gpt-oss: learned sinks, with or without biases and YaRN."""
    draw = _draw("gpt_oss", index)
    settings = _sizes(draw) | {
        "num_local_experts": 2, "num_experts_per_tok": 1,
        "attention_bias": draw.choice([True, False]), "sliding_window": 4,
        "rope_parameters": draw.choice([{"rope_type": "default", "rope_theta": 77.0}, _yarn(draw)]),
    }  # fmt: skip
    name = draw.choice(["GptOssForCausalLM", "GptOssModel"])
    return Case(name, settings, {"causal": "self_attn"}, "gpt_oss", pre_norm=True)


_LATENT = {
    "deepseek_v2": "DeepseekV2", "deepseek_v3": "DeepseekV3", "glm4_moe_lite": "Glm4MoeLite",
    "minicpm3": "MiniCPM3", "youtu": "Youtu",
}  # fmt: skip
"""Start of the names of the library's classes, by family."""


def latent(family, index):
    """Return a model with latent attention: five widths, queries in one step or two, biases."""
    draw = _draw(family, index)
    n_heads = draw.choice([1, 2, 3, 5])
    n_layers = draw.choice([1, 2, 3])
    settings = {
        "vocab_size": D_VOCAB, "hidden_size": n_heads * draw.choice([6, 10]),
        "num_hidden_layers": n_layers, "first_k_dense_replace": n_layers,
        "num_attention_heads": n_heads, "num_key_value_heads": n_heads,
        "q_lora_rank": draw.choice([None, 5, 7]), "kv_lora_rank": draw.choice([4, 12]),
        "qk_nope_head_dim": draw.choice([2, 6, 10]), "qk_rope_head_dim": draw.choice([2, 4, 8]),
        "v_head_dim": draw.choice([2, 6, 7]), "attention_bias": draw.choice([True, False]),
        "intermediate_size": 6, "moe_intermediate_size": 6,
        "mlp_layer_types": ["dense"] * n_layers, "max_position_embeddings": 64, "pad_token_id": 0,
        "rope_parameters": draw.choice([{"rope_type": "default", "rope_theta": 77.0}, _yarn(draw)]),
    }  # fmt: skip
    name = draw.choice([f"{_LATENT[family]}{end}" for end in ("ForCausalLM", "Model")])
    return Case(name, settings, {"causal": "self_attn"}, family, pre_norm=True)


def falcon(index):
    """Return a Falcon of one of its architectures, with rotary positions or ALiBi."""
    draw = _draw("falcon", index)
    n_heads, n_kv_heads = _grouped(draw)
    new = index % 2 == 1
    settings = {
        "vocab_size": D_VOCAB, "hidden_size": n_heads * draw.choice([2, 4, 6]),
        "num_hidden_layers": draw.choice([1, 2, 3]), "num_attention_heads": n_heads,
        "new_decoder_architecture": new, "num_kv_heads": n_kv_heads if new else None,
        "num_ln_in_parallel_attn": (None, 1, 2)[index // 2 % 3] if new else None,
        "multi_query": draw.choice([True, False]),
        "parallel_attn": new or draw.choice([True, False]), "bias": draw.choice([True, False]),
        "alibi": draw.choice([True, False, False]), "ffn_hidden_size": 6,
        "max_position_embeddings": 64,
    }  # fmt: skip
    name = draw.choice(["FalconForCausalLM", "FalconModel"])
    kinds = {"causal": "self_attention"}
    return Case(name, settings, kinds, "falcon", pre_norm=True, products=True)


def gptj(index):
    """Return a GPT-J, in which some or all dimensions rotate, in pairs of neighbours."""
    draw = _draw("gptj", index)
    n_heads, d_head, d_model = _equal_heads(draw)
    settings = {
        "vocab_size": D_VOCAB, "n_embd": d_model, "n_layer": draw.choice([1, 2, 3]),
        "n_head": n_heads, "rotary_dim": draw.choice([2, d_head]), "n_inner": 6,
        "n_positions": 64,
    }  # fmt: skip
    name = draw.choice(["GPTJForCausalLM", "GPTJModel"])
    return Case(name, settings, {"causal": r"\.attn"}, "gptj", pre_norm=True, products=True)


def bloom(index):
    """Return a Bloom, whose rows of queries, keys and values are ordered by head."""
    draw = _draw("bloom", index)
    n_heads, _, d_model = _equal_heads(draw)
    settings = {
        "vocab_size": D_VOCAB, "hidden_size": d_model, "n_layer": draw.choice([1, 2, 3]),
        "n_head": n_heads,
    }  # fmt: skip
    name = draw.choice(["BloomForCausalLM", "BloomModel"])
    kinds = {"causal": "self_attention"}
    return Case(name, settings, kinds, "bloom", pre_norm=True, products=True)


def mpt(index):
    """Return an MPT, which may clip queries, keys and values."""
    draw = _draw("mpt", index)
    n_heads, _, d_model = _equal_heads(draw)
    settings = {
        "vocab_size": D_VOCAB, "d_model": d_model, "n_layers": draw.choice([1, 2, 3]),
        "n_heads": n_heads, "max_seq_len": 64,
        "attn_config": {"clip_qkv": draw.choice([None, 0.5, 6.0])},
    }  # fmt: skip
    name = draw.choice(["MptForCausalLM", "MptModel"])
    return Case(name, settings, {"causal": r"\.attn"}, "mpt", pre_norm=True, products=True)


FAMILIES = {
    **{name: partial(gemma4, name) for name in ("gemma4_text", "gemma4_unified_text")},
    "gpt_oss": gpt_oss, **{family: partial(latent, family) for family in _LATENT},
    "falcon": falcon, "gptj": gptj, "bloom": bloom, "mpt": mpt,
}  # fmt: skip
"""Function that makes a family's model of an index."""

CASES = {f"{name}-{i}": make(i) for name, make in FAMILIES.items() for i in range(N_MODELS)}
"""Models by family and index."""
