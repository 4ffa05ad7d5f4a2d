"""Small random models of every family of the library `transformers`, and where attention is.

Families whose shapes have many settings have thirty models each, drawn once per family and index,
so that a model that fails can be built again.
"""

import ast
import json
import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from attnkit.realmodels.families import hugging_face_layers
from attnkit.realmodels.safetensors_file import open_safetensors
from attnkit.realmodels.sources import find_files

D_VOCAB, N_DRAWN = 23, 30


@dataclass(frozen=True)
class Case:
    """A model of a family: class, configuration, and where its attention is.

    Attributes:
        kinds: End of the names of modules that are attention of each kind; the first one wins.
        pre_norm: Whether a norm with a gain stands right before every projection.
    """

    name: str
    settings: dict
    kinds: dict
    family: str
    pre_norm: bool = False


def settings(text):
    """Return settings that are written as `name=value name=value`; a pair is `name=1,2`."""
    pairs = (pair.split("=") for pair in text.split())
    return {name: ast.literal_eval(value) for name, value in pairs}


def library():
    """The library, which CI must have."""
    try:
        import transformers
    except ImportError:
        assert not os.environ.get("CI"), "CI needs transformers (pip install 'attnkit[dev]')"
        pytest.skip("transformers is not installed (extra `models`)")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return transformers


def built(case, folder):
    """A model with every number random, its norms' gains and biases too, also saved in a folder."""
    kind = getattr(library(), case.name)
    config = kind.config_class(**case.settings)
    config._attn_implementation = "eager"
    torch.manual_seed(7)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3 + 0.1)
    model.save_pretrained(folder)
    return model


def save_tokenizer(folder, n_words=D_VOCAB):
    """Save a tokenizer of n words in a model's folder: "the", "word1" …, most of them never met."""
    import tokenizers

    words = {"[UNK]": 0} | {f"word{i}": i for i in range(1, n_words - 1)} | {"the": n_words - 1}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library().PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def opened(folder):
    """Return family, layers and notes of the model that the library saved in a folder."""
    config = json.loads(Path(folder, "config.json").read_text())
    return hugging_face_layers(open_safetensors(find_files(str(folder))), config)


# families whose settings are written down

_STYLES = {
    "bert": settings(
        "hidden_size=21 num_hidden_layers=3 num_attention_heads=3 intermediate_size=5 "
        "max_position_embeddings=31 pad_token_id=0"
    ),
    "llama": settings(
        "hidden_size=24 num_hidden_layers=3 num_attention_heads=4 num_key_value_heads=2 head_dim=8 "
        "intermediate_size=8 max_position_embeddings=64 pad_token_id=0"
    ),
    "pair": settings(
        "d_model=24 encoder_layers=3 decoder_layers=2 encoder_attention_heads=3 "
        "decoder_attention_heads=4 encoder_ffn_dim=5 decoder_ffn_dim=7 max_position_embeddings=31 "
        "pad_token_id=0 decoder_start_token_id=0"
    ),
    "t5": settings(
        "d_model=13 d_kv=5 num_layers=3 num_decoder_layers=2 num_heads=3 d_ff=5 pad_token_id=0 "
        "decoder_start_token_id=0"
    ),
    "gpt2": settings("n_embd=21 n_layer=3 n_head=3 n_positions=31"),
    "opt": settings(
        "hidden_size=21 num_hidden_layers=3 num_attention_heads=3 ffn_dim=5 word_embed_proj_dim=7 "
        "max_position_embeddings=31 pad_token_id=0"
    ),
    "distilbert": settings("dim=21 n_layers=3 n_heads=3 hidden_dim=5"),
}
"""Settings of the configurations of each style."""

_KINDS = {
    "bert": {"encoder": r"attention\.self"},
    "llama": {"causal": "self_attn"},
    "pair": {
        "cross": r"\.encoder_attn",
        "causal": r"decoder.*\.self_attn",
        "encoder": r"encoder.*\.self_attn",
    },
    "t5": {
        "cross": "EncDecAttention",
        "causal": r"decoder.*\.SelfAttention",
        "encoder": r"encoder.*\.SelfAttention",
    },
    "gpt2": {"causal": r"\.attn"},
    "opt": {"causal": "self_attn"},
    "distilbert": {"encoder": r"\.attention"},
}
_BOTH = {"cross": r"\.crossattention\.self", "causal": r"\.attention\.self"}
_ENCODER = {"encoder": "self_attn"}


def _model(style, name, family, kinds=None, pre_norm=None, **given):
    pre_norm = style in ("llama", "t5", "gpt2", "opt") if pre_norm is None else pre_norm
    own = {"vocab_size": D_VOCAB} | _STYLES[style] | given
    return Case(name, own, kinds or _KINDS[style], family, pre_norm)


def rope(kind, **more):
    """Return the setting of rotary positions."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **more}}


LLAMA_3 = settings(
    "factor=4.0 low_freq_factor=1.0 high_freq_factor=4.0 original_max_position_embeddings=32"
)
_YARN = settings("factor=8.0 attention_factor=1.0 original_max_position_embeddings=32")
_OLMO_3 = {
    "sliding_attention": rope("default")["rope_parameters"],
    "full_attention": rope("yarn", **_YARN)["rope_parameters"],
}
_SECTIONS = rope("default", mrope_section=[1, 1, 1])
_BERT_DECODER = {"is_decoder": True, "add_cross_attention": True, "kinds": _BOTH, "pre_norm": True}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
_MODERN = {"hidden_size": 24, "num_hidden_layers": 5, "pre_norm": True, **_TOKENS}
_NEO = {"kinds": {"causal": r"\.attention"}, "pre_norm": True}
_MOE = settings(
    "num_experts=2 num_experts_per_tok=1 num_local_experts=2 n_routed_experts=2 n_shared_experts=1 "
    "n_group=1 topk_group=1 moe_num_experts=2 moe_k=1 moe_intermediate_size=8 "
    "shared_expert_intermediate_size=8"
)
_LINEAR = settings(
    "linear_num_value_heads=2 linear_num_key_heads=2 linear_key_head_dim=4 linear_value_head_dim=4"
)
_FIVE = {"num_hidden_layers": 5}
_GEMMA_3 = {
    "text_config": _STYLES["llama"] | _FIVE | {"vocab_size": D_VOCAB, "sliding_window_pattern": 2},
    "vision_config": settings(
        "hidden_size=8 num_hidden_layers=1 num_attention_heads=2 intermediate_size=5 image_size=28"
    ),
}
_GEMMA_3N = settings(
    "num_kv_shared_layers=2 vocab_size_per_layer_input=23 hidden_size_per_layer_input=4 "
    "laurel_rank=3 altup_num_inputs=2 intermediate_size=[8,8,8,8,8]"
) | {
    "layer_types": ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"],
    "activation_sparsity_pattern": [0.0] * 5,
}
_SOME = {"layer_types": ["conv", "full_attention", "conv", "full_attention", "full_attention"]}
_SOUND = settings(
    "num_mel_bins=5 max_source_positions=13 max_target_positions=31 bos_token_id=1 eos_token_id=2 "
    "suppress_tokens=None begin_suppress_tokens=None"
)
_DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}

_PLAIN = {
    "bert": "BertModel:bert RobertaForMaskedLM:roberta CamembertModel:camembert "
    "XLMRobertaModel:xlm-roberta ErnieModel:ernie",
    "llama": "LlamaForCausalLM:llama MistralModel:mistral MinistralModel:ministral "
    "Qwen2Model:qwen2 Qwen3ForCausalLM:qwen3 GemmaForCausalLM:gemma Gemma2Model:gemma2 "
    "GraniteModel:granite Starcoder2Model:starcoder2 CohereModel:cohere GlmModel:glm "
    "Phi3Model:phi3 ApertusForCausalLM:apertus Ernie4_5Model:ernie4_5 Glm4Model:glm4 "
    "NemotronModel:nemotron",
    "pair": "BartForConditionalGeneration:bart BlenderbotSmallModel:blenderbot-small "
    "MarianMTModel:marian",
    "t5": "T5ForConditionalGeneration:t5 MT5ForConditionalGeneration:mt5 "
    "UMT5ForConditionalGeneration:umt5",
    "gpt2": "GPT2Model:gpt2 GPTBigCodeModel:gpt_bigcode",
    "distilbert": "DistilBertModel:distilbert",
}
"""Classes of the library and families without settings of their own."""

_ALIKE = (
    "Afmoe:afmoe Arcee:arcee AriaText:aria_text Cwm:cwm Doge:doge Dots1:dots1 "
    "Ernie4_5_Moe:ernie4_5_moe FlexOlmo:flex_olmo Glm4Moe:glm4_moe GraniteMoe:granitemoe "
    "Jais2:jais2 Mellum:mellum Ministral3:ministral3 Olmoe:olmoe Phimoe:phimoe "
    "SeedOss:seed_oss SolarOpen:solar_open VaultGemma:vaultgemma"
)
"""Families whose layout and rules are those of another one."""

_WRITTEN = [
    *(
        _model(style, *pair.split(":"))
        for style, names in _PLAIN.items()
        for pair in names.split()
    ),
    _model("bert", "BertLMHeadModel", "bert", **_BERT_DECODER | {"pre_norm": False}),
    _model("bert", "BertGenerationDecoder", "bert-generation",
           **_BERT_DECODER | {"pre_norm": False}),
    _model("bert", "ElectraForPreTraining", "electra", embedding_size=7),
    _model("bert", "MegatronBertModel", "megatron-bert", **_BERT_DECODER),
    _model("bert", "RobertaPreLayerNormModel", "roberta-prelayernorm", **_BERT_DECODER),
    _model("bert", "XLMRobertaXLModel", "xlm-roberta-xl", **_BERT_DECODER),
    _model("bert", "MPNetModel", "mpnet", {"encoder": r"attention\.attn"}),
    _model("bert", "DebertaV2Model", "deberta-v2", **_DEBERTA),
    _model("bert", "AlbertForMaskedLM", "albert", _KINDS["distilbert"], embedding_size=7,
           num_hidden_layers=4, num_hidden_groups=2),
    _model("bert", "ModernBertForMaskedLM", "modernbert", {"encoder": r"\.attn"}, **_MODERN),
    _model("bert", "ModernBertModel", "modernbert", {"encoder": r"\.attn"}, attention_bias=True,
           **_MODERN),
    _model("bert", "ModernBertDecoderForCausalLM", "modernbert-decoder", _KINDS["gpt2"], **_MODERN),
    _model("bert", "NomicBertModel", "nomic_bert", _ENCODER, head_dim=8),
    _model("llama", "EuroBertModel", "eurobert", _ENCODER, **_TOKENS),
    _model("gpt2", "GPT2LMHeadModel", "gpt2", {"cross": r"\.crossattention", **_KINDS["gpt2"]},
           add_cross_attention=True),
    _model("gpt2", "GPTBigCodeModel", "gpt_bigcode", multi_query=False),
    _model("bert", "GPTNeoXModel", "gpt_neox", hidden_size=24, **_NEO),
    _model("bert", "GPTNeoXForCausalLM", "gpt_neox", hidden_size=60, attention_bias=False,
           **rope("default", partial_rotary_factor=0.4), **_NEO),
    _model("llama", "LlamaModel", "llama", attention_bias=True, **rope("linear", factor=3.0)),
    _model("llama", "LlamaModel", "llama", **rope("llama3", **LLAMA_3)),
    _model("llama", "LlamaModel", "llama", **rope("dynamic", factor=2.0)),
    _model("llama", "MixtralModel", "mixtral", **_MOE),
    _model("llama", "Qwen2MoeModel", "qwen2_moe", hidden_size=32, **_MOE),
    _model("llama", "Qwen3MoeModel", "qwen3_moe", **_MOE),
    _model("llama", "Gemma3ForCausalLM", "gemma3_text", num_hidden_layers=7),
    _model("llama", "Gemma3TextModel", "gemma3_text", _ENCODER, use_bidirectional_attention=True),
    Case("Gemma3ForConditionalGeneration", _GEMMA_3, {"causal": r"language_model.*self_attn"},
         "gemma3_text", pre_norm=True),
    _model("llama", "Gemma3nForCausalLM", "gemma3n_text", **_FIVE, **_GEMMA_3N),
    _model("llama", "SmolLM3Model", "smollm3", **_FIVE),
    _model("llama", "OlmoModel", "olmo", pre_norm=False),
    _model("llama", "Olmo2Model", "olmo2", pre_norm=False),
    _model("llama", "Olmo3Model", "olmo3", pre_norm=False, **_FIVE),
    _model("llama", "Olmo3Model", "olmo3", pre_norm=False, rope_parameters=_OLMO_3, **_FIVE),
    _model("llama", "StableLmModel", "stablelm", head_dim=None, hidden_size=96, use_qkv_bias=True),
    _model("llama", "HeliumModel", "helium", head_dim=6, hidden_size=36, num_attention_heads=6),
    _model("llama", "PhiModel", "phi", head_dim=8, hidden_size=48, num_attention_heads=6),
    _model("llama", "Cohere2Model", "cohere2", head_dim=6, **_FIVE),
    _model("llama", "Exaone4Model", "exaone4", pre_norm=False, **_FIVE),
    _model("llama", "Lfm2Model", "lfm2", head_dim=6, **_FIVE, **_SOME),
    _model("llama", "Llama4ForCausalLM", "llama4_text", intermediate_size_mlp=8, moe_layers=[],
           num_local_experts=2, **_FIVE),
    _model("llama", "Qwen2VLTextModel", "qwen2_vl_text", head_dim=6, **_SECTIONS),
    _model("llama", "Qwen3NextModel", "qwen3_next", num_hidden_layers=8, **_LINEAR, **_MOE),
    _model("pair", "BlenderbotModel", "blenderbot", pre_norm=True),
    _model("pair", "M2M100Model", "m2m_100", pre_norm=True),
    _model("pair", "MBartModel", "mbart", pre_norm=True),
    _model("pair", "PegasusModel", "pegasus", pre_norm=True),
    _model("pair", "WhisperForConditionalGeneration", "whisper", pre_norm=True, **_SOUND),
    _model("opt", "OPTForCausalLM", "opt"),
    _model("opt", "OPTForCausalLM", "opt", pre_norm=False, do_layer_norm_before=False),
    _model("opt", "OPTForCausalLM", "opt", pre_norm=False, layer_norm_elementwise_affine=False),
    _model("t5", "T5EncoderModel", "t5", {"encoder": "SelfAttention"}),
    *(
        _model("llama", f"{start}ForCausalLM", family, None, family != "flex_olmo",
               **_FIVE, **_MOE, head_dim=6)
        for start, family in (pair.split(":") for pair in _ALIKE.split())
    ),
    _model("llama", "Qwen2_5_VLTextModel", "qwen2_5_vl_text", head_dim=6, **_FIVE, **_SECTIONS),
    _model("llama", "Qwen3VLTextModel", "qwen3_vl_text", **_FIVE),
    _model("llama", "Qwen3VLMoeTextModel", "qwen3_vl_moe_text", **_FIVE, **_MOE),
    _model("llama", "Qwen3_5TextModel", "qwen3_5_text", **_FIVE, **_LINEAR),
    _model("llama", "Qwen3_5MoeTextModel", "qwen3_5_moe_text", **_FIVE, **_LINEAR, **_MOE),
]  # fmt: skip

# families whose settings are drawn


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


def _gemma4(pick, index):
    """Wide heads in global layers, with or without W_V, and reused keys."""
    kinds = ["sliding_attention", "full_attention"]
    layer_types = [*kinds, *(pick(kinds) for _ in range(pick([0, 1, 2]))), "full_attention"]
    sizes = _sizes(pick)
    return sizes | {
        "num_hidden_layers": len(layer_types), "layer_types": layer_types,
        "global_head_dim": pick([8, 16, 24]), "attention_k_eq_v": pick([True, True, False]),
        "num_global_key_value_heads": pick([None, 1, sizes["num_attention_heads"]]),
        "num_kv_shared_layers": pick([0, 0, 1, len(layer_types) - 2]),
        "attention_bias": pick([True, False]), "vocab_size_per_layer_input": D_VOCAB,
        "hidden_size_per_layer_input": 4, "sliding_window": 4,
        **({"use_bidirectional_attention": "all"} if index == 2 else {}),
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
        "attention_bias": pick([True, False]), "moe_intermediate_size": 6, "pad_token_id": 0,
        "mlp_layer_types": ["dense"] * n_layers, "rope_parameters": _positions(pick),
        "intermediate_size": 6, "max_position_embeddings": 64,
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

    def drawn(pick, _):
        n_heads, d_head = pick([1, 2, 3, 5]), pick([2, 4, 6])
        own = {width: n_heads * d_head, layers: pick([1, 2, 3]), heads: n_heads}
        return own | {name: draw(pick, d_head) for name, draw in further.items()}

    return drawn


_gptj = _equal_heads(
    "n_embd", "n_layer", "n_head", n_inner=lambda *_: 6, n_positions=lambda *_: 64,
    rotary_dim=lambda pick, d_head: pick([2, d_head]),
)  # fmt: skip
_mpt = _equal_heads(
    "d_model", "n_layers", "n_heads", max_seq_len=lambda *_: 64,
    attn_config=lambda pick, _: {"clip_qkv": pick([None, 0.5, 6.0])},
)  # fmt: skip

DRAWN = {
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


def _drawn(family, index):
    pick = random.Random(f"{family} {index}").choice
    start, draw, attention = DRAWN[family]
    name = start + pick(["ForCausalLM", "TextModel" if start.startswith("Gemma4") else "Model"])
    given = {"vocab_size": D_VOCAB, **draw(pick, index)}
    kind = "encoder" if "use_bidirectional_attention" in given else "causal"
    return Case(name, given, {kind: attention}, family, pre_norm=True)


CASES = {}
for _one in _WRITTEN:
    _n = sum(case.name == _one.name for case in CASES.values())
    CASES[f"{_one.name} {_n + 1}" if _n else _one.name] = _one
CASES |= {f"{family}-{i}": _drawn(family, i) for family in DRAWN for i in range(N_DRAWN)}
"""Models by the name of their class and a number, or by family and index."""

DAY = {
    "BertModel", "BertLMHeadModel", "MegatronBertModel", "DebertaV2Model", "AlbertForMaskedLM",
    "ModernBertModel", "DistilBertModel", "MPNetModel", "NomicBertModel", "LlamaForCausalLM",
    "LlamaModel", "LlamaModel 2", "Qwen2Model", "GemmaForCausalLM", "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration", "Gemma3nForCausalLM", "GPT2LMHeadModel", "GPTBigCodeModel",
    "GPTBigCodeModel 2", "GPTNeoXForCausalLM", "Phi3Model", "PhiModel", "CohereModel",
    "Cohere2Model", "Exaone4Model", "Glm4Model", "Lfm2Model", "Llama4ForCausalLM", "NemotronModel",
    "Olmo2Model", "Olmo3Model 2", "SmolLM3Model", "StableLmModel", "Qwen3NextModel",
    "OPTForCausalLM", "OPTForCausalLM 2", "OPTForCausalLM 3", "T5ForConditionalGeneration",
    "MBartModel", "MarianMTModel", "WhisperForConditionalGeneration",
    *(f"{name}-{i}" for name in DRAWN for i in (0, 1)), "gemma4_text-2", "gemma4_text-10",
}  # fmt: skip
"""Those that are compared by day: every shape and rule once."""

OWN_TESTS = {"deepseek_v4", "qwen2_vl", "qwen2_5_vl", "reformer"}
"""Families with tests of their own."""
