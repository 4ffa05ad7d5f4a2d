"""Models of the library that other formats can hold, and GGUF files as llama.cpp writes them."""

import gguf
import numpy as np
from library_models import Case, built, settings

N_WORDS, BASE = 61, 5003.0

# GGUF


SHUFFLED = ("llama", "smollm3", "granite", "mistral3", "olmo")
GROUPED_ROWS = ("bloom", "falcon", "gptneox")
SHIFTED = ("gemma", "gemma2", "gemma3", "gemma-embedding", "qwen3next")
"""Architectures whose rows the converter shuffles or sorts, and to whose norms it adds 1."""


def as_converted(arch, name, rows, n_heads, n_kv_heads):
    """One tensor as llama.cpp's converter writes it."""
    if arch in SHUFFLED and ("q_proj" in name or "k_proj" in name):
        n = n_heads if "q_proj" in name else n_kv_heads
        rows = rows.reshape(n, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
    if arch in GROUPED_ROWS and "query_key_value" in name:
        groups = rows.reshape(n_kv_heads, n_heads // n_kv_heads + 2, -1, *rows.shape[1:])
        parts = groups[:, :-2], groups[:, -2], groups[:, -1]
        rows = np.concatenate([part.reshape(-1, *rows.shape[1:]) for part in parts])
    if arch == "gpt2" and ".h." in name:
        rows = rows.T
    if arch in SHIFTED and "norm" in name:
        rows = rows + 1
    return np.ascontiguousarray(rows)


def beside(model, name):
    """Return tensors that the converter makes anew, and the ends of those that they replace.

    Newer files of DeepSeek have the second step of keys and of values apart; Gemma 4 rotates a
    quarter of the dimensions of wide heads.
    """
    if name.endswith(", split"):
        new = {}
        for i, own in enumerate(model.model.layers):
            rows = own.self_attn.kv_b_proj.weight.detach().numpy().reshape(3, 13, 4)
            k, v = rows[:, :6].swapaxes(1, 2), rows[:, 6:]
            parts = zip(("k_b", "v_b"), (k, v), strict=True)
            new |= {f"blk.{i}.attn_{p}.weight": np.ascontiguousarray(w) for p, w in parts}
        return new, "attn_kv_b.weight"
    factors = np.float32([1.0, 1e30, 1e30, 1e30])
    return ({"rope_freqs.weight": factors} if name.startswith("Gemma4") else {}), "nothing"


def write_gguf(path, model, arch, quantised=None, extra=None, without="nothing", **keys):
    """Write a model; keys in the header are those that all have, and what is given."""
    config = model.config
    n_heads, n_layers = config.num_attention_heads, config.num_hidden_layers
    n_kv_heads = config.to_dict().get("num_key_value_heads") or n_heads
    told = keys.get("attention.head_count_kv", n_kv_heads)
    n_kv_heads = told[0] if isinstance(told, list) else told  # a list has one number per layer
    d_head = getattr(config, "d_kv", None) or config.to_dict().get("head_dim")
    width = d_head or config.hidden_size // n_heads
    keys = settings(
        f"block_count={n_layers} context_length=97 embedding_length={config.hidden_size} "
        f"feed_forward_length=37 vocab_size={N_WORDS}"
    ) | {
        "attention.head_count": n_heads,
        "attention.head_count_kv": n_kv_heads,
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.layer_norm_epsilon": 1e-5,
        **({"rope.freq_base": BASE, "rope.dimension_count": width} if d_head else {}),
        **keys,
    }
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("a name")
    writer.add_token_list([f"word{i}" for i in range(N_WORDS)])
    for name, value in keys.items():
        write = {int: "uint32", float: "float32", str: "string", list: "array"}[type(value)]
        getattr(writer, f"add_{write}")(f"{arch}.{name}", value)
    enum = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[arch]
    names = gguf.get_tensor_name_map(enum, n_layers)
    for name, tensor in model.state_dict().items():
        mapped = names.get_name(name, (".weight", ".bias"))
        if (
            mapped is None
            or mapped.endswith(without)
            or (mapped == "output.weight" and config.tie_word_embeddings)
        ):
            continue
        rows = as_converted(arch, name, tensor.numpy(), n_heads, n_kv_heads)
        if quantised is not None and rows.ndim == 2 and "attn" in mapped:
            writer.add_tensor(mapped, gguf.quants.quantize(rows, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(mapped, rows)
    for name, rows in (extra or {}).items():
        writer.add_tensor(name, rows)
    for i in range(n_layers if arch == "nomic-bert" else 0):
        own = model.layers[i].self_attn
        three = [getattr(own, f"{part}_proj").weight.detach().numpy() for part in "qkv"]
        writer.add_tensor(f"blk.{i}.attn_qkv.weight", np.concatenate(three))
    return finished(writer, path)


def finished(writer, path):
    """Write what a writer has, and return the path."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# models


def llama_like(sizes, base=BASE, **rope):
    """Return settings of a causal decoder; every size its own."""
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": base, **rope}}
    return settings(f"{PLAIN} pad_token_id=0 {sizes}") | rope


PLAIN = "vocab_size=61 intermediate_size=37 num_hidden_layers=2"
GROUPED = "num_attention_heads=6 num_key_value_heads=2"
EQUAL = "num_attention_heads=3 num_key_value_heads=3"
ONE_KEY = "num_attention_heads=5 num_key_value_heads=1"
FIVE = "hidden_size=70 num_attention_heads=5 num_key_value_heads=5"
FOUR = "hidden_size=52 head_dim=10 num_attention_heads=4 num_key_value_heads=2"
LLAMA = llama_like("hidden_size=84 head_dim=14 " + GROUPED)
LINEAR = {"rope_type": "linear", "factor": 3.0}
YARN = {"rope_type": "yarn"} | settings(
    "factor=4.0 original_max_position_embeddings=32 beta_fast=8.0"
)
LLAMA_3 = {"rope_type": "llama3"} | settings(
    "factor=7.0 low_freq_factor=1.0 high_freq_factor=4.0 original_max_position_embeddings=53"
)
BERT = f"{PLAIN} hidden_size=42 num_attention_heads=3 max_position_embeddings=97"
GPT_2 = settings("vocab_size=61 n_positions=97 n_embd=51 n_layer=2 n_head=3")
PAIR = (
    "vocab_size=61 d_model=42 encoder_layers=2 decoder_layers=3 encoder_attention_heads=3 "
    "encoder_ffn_dim=37 decoder_ffn_dim=37 max_position_embeddings=97"
)
ENDS = "decoder_attention_heads=3 pad_token_id=60 eos_token_id=0 decoder_start_token_id=60"
WHISPER = (
    "decoder_attention_heads=7 num_mel_bins=7 max_source_positions=23 max_target_positions=29 "
    "pad_token_id=1 eos_token_id=2 bos_token_id=0 decoder_start_token_id=3 suppress_tokens=None "
    "begin_suppress_tokens=None"
)

MOE = (
    f"{GROUPED} num_experts=2 num_local_experts=2 num_experts_per_tok=1 moe_intermediate_size=8 "
    "shared_expert_intermediate_size=8"
)
EVEN = llama_like("hidden_size=84 " + GROUPED)
FALCON = settings(
    "vocab_size=61 hidden_size=48 num_hidden_layers=2 num_attention_heads=6 num_kv_heads=2 "
    "new_decoder_architecture=True ffn_hidden_size=6"
)
LATENT = settings(
    "vocab_size=61 hidden_size=24 num_hidden_layers=2 first_k_dense_replace=2 pad_token_id=0 "
    "num_attention_heads=3 num_key_value_heads=3 q_lora_rank=5 kv_lora_rank=4 qk_nope_head_dim=6 "
    "qk_rope_head_dim=4 v_head_dim=7 intermediate_size=6 moe_intermediate_size=6"
)
GEMMA_4 = settings(
    "vocab_size=61 hidden_size=28 num_hidden_layers=4 num_attention_heads=4 head_dim=6 "
    "num_key_value_heads=2 global_head_dim=8 num_global_key_value_heads=1 attention_k_eq_v=True "
    "num_kv_shared_layers=1 intermediate_size=8 vocab_size_per_layer_input=61 pad_token_id=0 "
    "hidden_size_per_layer_input=4 sliding_window=4"
) | {"layer_types": ["sliding_attention", "full_attention"] * 2}

MODELS = {
    "LlamaForCausalLM": ("llama", "decoder", LLAMA),
    "LlamaForCausalLM, stretched": (
        "llama", "decoder", llama_like("hidden_size=42 head_dim=14 " + EQUAL, **LINEAR)
    ),
    "LlamaForCausalLM, by YaRN": (
        "llama", None, llama_like("hidden_size=42 head_dim=14 " + EQUAL, **YARN)
    ),
    "Qwen2ForCausalLM": ("qwen2", None, llama_like("hidden_size=70 " + ONE_KEY)),
    "Qwen3ForCausalLM": ("qwen3", "decoder", llama_like("hidden_size=66 head_dim=14 " + GROUPED)),
    "GemmaForCausalLM": (
        "gemma", "decoder", llama_like("hidden_size=55 head_dim=22 " + ONE_KEY, 1e4)
    ),
    "Gemma2ForCausalLM": ("gemma2", None, llama_like(FOUR)),
    "Gemma3ForCausalLM": (
        "gemma3", None, settings(f"{PLAIN} pad_token_id=0 {FOUR}") | {"num_hidden_layers": 7}
    ),
    "Phi3ForCausalLM": ("phi3", None, llama_like(FIVE, partial_rotary_factor=0.75)),
    "GPT2LMHeadModel": ("gpt2", "decoder", GPT_2),
    "Qwen3MoeForCausalLM": ("qwen3moe", None, llama_like(f"hidden_size=84 head_dim=14 {MOE}")),
    "Qwen2MoeForCausalLM": ("qwen2moe", None, llama_like(f"hidden_size=84 {MOE}")),
    "GptOssForCausalLM": ("gpt-oss", None, llama_like(f"hidden_size=84 head_dim=14 {MOE}")),
    "Olmo2ForCausalLM": ("olmo2", None, EVEN),
    "SmolLM3ForCausalLM": ("smollm3", None, EVEN | {"num_hidden_layers": 5}),
    "GraniteForCausalLM": ("granite", None, EVEN),
    "Glm4ForCausalLM": (
        "glm4", None,
        llama_like("hidden_size=84 head_dim=16 " + GROUPED, partial_rotary_factor=0.5),
    ),
    "Ministral3ForCausalLM": ("mistral3", None, LLAMA),
    "Starcoder2ForCausalLM": ("starcoder2", None, EVEN),
    "FalconForCausalLM": ("falcon", None, FALCON),
    "DeepseekV2ForCausalLM": ("deepseek2", None, LATENT),
    "DeepseekV2ForCausalLM, split": ("deepseek2", None, LATENT),
    "GPTNeoXForCausalLM": (
        "gptneox", None,
        llama_like("hidden_size=48 num_attention_heads=3", partial_rotary_factor=0.25),
    ),
    "ModernBertModel": (
        "modern-bert", None,
        settings(f"{BERT} pad_token_id=0 bos_token_id=1 eos_token_id=2 cls_token_id=1 "
                 "sep_token_id=2") | {"num_hidden_layers": 5},
    ),
    "Gemma3TextModel": (
        "gemma-embedding", None,
        settings(f"{PLAIN} pad_token_id=0 {FOUR} use_bidirectional_attention=True"),
    ),
    "PhiForCausalLM": (
        "phi2", None,
        llama_like("hidden_size=48 num_attention_heads=3 num_key_value_heads=3",
                   partial_rotary_factor=0.5),
    ),
    "StableLmForCausalLM": (
        "stablelm", None, llama_like("hidden_size=96 " + GROUPED, partial_rotary_factor=0.25)
    ),
    "Gemma4ForCausalLM": ("gemma4", None, GEMMA_4),
    "Qwen2VLTextModel": (
        "qwen2vl", None, llama_like("hidden_size=84 " + GROUPED, mrope_section=[2, 2, 3])
    ),
    "Qwen3NextForCausalLM": (
        "qwen3next", None,
        llama_like(f"hidden_size=84 head_dim=16 {MOE} linear_num_value_heads=2 "
                   "linear_num_key_heads=2 linear_key_head_dim=4 linear_value_head_dim=4",
                   partial_rotary_factor=0.25) | {"num_hidden_layers": 4},
    ),
    "Lfm2ForCausalLM": (
        "lfm2", None,
        EVEN | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]},
    ),
    "Llama4ForCausalLM": (
        "llama4", None, llama_like(f"hidden_size=84 head_dim=14 {MOE}") | {"num_hidden_layers": 5}
    ),
    "Cohere2ForCausalLM": ("cohere2", None, LLAMA | {"num_hidden_layers": 5}),
    "CohereForCausalLM": ("command-r", None, EVEN),
    "OlmoForCausalLM": ("olmo", None, EVEN),
    "BloomForCausalLM": (
        "bloom", None, settings("vocab_size=61 hidden_size=48 n_layer=2 n_head=3")
    ),
    "GPTBigCodeForCausalLM": ("starcoder", None, GPT_2),
    "MptForCausalLM": (
        "mpt", None, settings("vocab_size=61 d_model=48 n_layers=2 n_heads=3")
    ),
    "GPTJForCausalLM": (None, "decoder", GPT_2 | {"n_embd": 66, "rotary_dim": 10}),
    "BertModel": ("bert", "encoder", settings(f"{BERT} position_embedding_type='absolute'")),
    "NomicBertModel": ("nomic-bert", None, settings(f"{BERT} head_dim=14")),
    "DistilBertModel": (
        None, "encoder", settings("vocab_size=61 dim=42 hidden_dim=37 n_layers=2 n_heads=3")
    ),
    "MarianMTModel": (
        None, "encoder-decoder", settings(f"{PAIR} {ENDS} forced_eos_token_id=0")
    ),
    "BartForConditionalGeneration": (
        None, "encoder-decoder", settings(f"{PAIR} {ENDS} bos_token_id=2 normalize_before=False")
    ),
    "WhisperForConditionalGeneration": (None, "whisper", settings(f"{PAIR} {WHISPER}")),
    "T5ForConditionalGeneration": (
        "t5", "encoder-decoder",
        settings("vocab_size=61 d_model=31 d_kv=6 d_ff=37 num_layers=2 num_heads=5"),
    ),
}  # fmt: skip
"""GGUF's architecture, CTranslate2's family, and settings, by the class of the library.

Gemma's base is always written as 10,000 by CTranslate2's converter.
"""

_EIGHT = {"rope.freq_base": BASE, "rope.dimension_count": 8}
_FOUR = {"rope.freq_base": BASE, "rope.dimension_count": 4}
_LATENT = {
    "attention.key_length": 8, "attention.value_length": 4, "rope.dimension_count": 4,
    "attention.key_length_mla": 10, "attention.value_length_mla": 7,
    "attention.kv_lora_rank": 4, "attention.q_lora_rank": 5, "attention.head_count_kv": 1,
}  # fmt: skip

KEYS = {
    "LlamaForCausalLM, stretched": {"rope.scaling.type": "linear", "rope.scaling.factor": 3.0},
    "LlamaForCausalLM, by YaRN": {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 32, "rope.scaling.yarn_beta_fast": 8.0,
    },
    "Qwen2ForCausalLM": {"rope.freq_base": BASE},
    "GemmaForCausalLM": {"rope.freq_base": 1e4},
    "Gemma2ForCausalLM": {"attn_logit_softcapping": 2.0, "attention.sliding_window": 53},
    "Gemma3ForCausalLM": {"rope.freq_base": 1e6},
    "Phi3ForCausalLM": {"rope.freq_base": BASE, "rope.dimension_count": 10},
    "NomicBertModel": {"rope.freq_base": 1e3},
    "Glm4ForCausalLM": _EIGHT,
    "PhiForCausalLM": _EIGHT,
    "GPTNeoXForCausalLM": _FOUR,
    "StableLmForCausalLM": _FOUR,
    "Qwen3NextForCausalLM": _FOUR,
    "FalconForCausalLM": {"attention.head_count_kv": 2, "rope.freq_base": 1e4},
    "GPTBigCodeForCausalLM": {"attention.head_count_kv": 1},
    "ModernBertModel": {
        "rope.freq_base": 160_000.0, "rope.freq_base_swa": 1e4,
        "attention.sliding_window_pattern": 3,
    },
    "Gemma3TextModel": {"rope.freq_base": 1e6},
    "Lfm2ForCausalLM": {"rope.freq_base": BASE, "attention.head_count_kv": [0, 2, 0]},
    "Gemma4ForCausalLM": {
        "attention.key_length": 8, "attention.key_length_swa": 6, "rope.dimension_count": 8,
        "rope.dimension_count_swa": 6, "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4,
        "attention.head_count_kv": [2, 1, 2, 1], "attention.shared_kv_layers": 1,
        "attention.sliding_window_pattern": [True, False, True, False],
    },
    "DeepseekV2ForCausalLM": _LATENT,
    "DeepseekV2ForCausalLM, split": _LATENT,
}  # fmt: skip
"""Keys in the header of GGUF files, beside those that all have."""


def made(name, folder):
    """A random model of the library, saved in a folder."""
    return built(Case(name.partition(",")[0], MODELS[name][2], {}, ""), folder)
