"""Small random models of every family of the library `transformers`, and where attention is."""

import ast
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from ctranslate2.converters import TransformersConverter

from attnkit.realmodels.families import hugging_face_layers
from attnkit.realmodels.safetensors_file import open_safetensors
from attnkit.realmodels.sources import find_files

D_VOCAB = 23


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


def converted(folder, quantization=None, n_words=D_VOCAB):
    """Return the model.bin that CTranslate2 makes of a model that the library has saved."""
    path = folder / "config.json"
    older = {"position_embedding_type": "absolute", "normalize_before": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | older))
    converter = TransformersConverter(str(folder))
    tokenizer = SimpleNamespace(
        get_vocab=lambda: {f"word{i}": i for i in range(n_words)},
        convert_ids_to_tokens=lambda _: "word0",
        additional_special_tokens=(),
        **{f"{kind}_token": "word0" for kind in ("bos", "eos", "unk", "pad")},
    )
    converter.load_tokenizer = lambda *_, **__: tokenizer
    converter.convert(str(folder / "tiny"), quantization=quantization)
    return folder / "tiny" / "model.bin"


def opened(folder):
    """Return family, layers and notes of the model that the library saved in a folder."""
    config = json.loads(Path(folder, "config.json").read_text())
    return hugging_face_layers(open_safetensors(find_files(str(folder))), config)


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
    "latent": settings(
        "hidden_size=20 num_hidden_layers=2 num_attention_heads=2 num_key_value_heads=2 "
        "q_lora_rank=5 kv_lora_rank=4 qk_nope_head_dim=6 qk_rope_head_dim=4 v_head_dim=7 "
        "first_k_dense_replace=2 mlp_layer_types=['dense','dense'] moe_intermediate_size=6 "
        "intermediate_size=6 max_position_embeddings=64 pad_token_id=0 attention_bias=True"
    ),
    "falcon": settings(
        "hidden_size=24 num_hidden_layers=2 num_attention_heads=6 num_kv_heads=None "
        "ffn_hidden_size=6 max_position_embeddings=64 new_decoder_architecture=False"
    ),
}

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
    "latent": {"causal": "self_attn"},
    "falcon": {"causal": "self_attention"},
}
_BOTH = {"cross": r"\.crossattention\.self", "causal": r"\.attention\.self"}
_ENCODER = {"encoder": "self_attn"}


def _model(style, name, family, kinds=None, pre_norm=None, **given):
    pre_norm = style not in ("bert", "pair", "distilbert") if pre_norm is None else pre_norm
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
_GEMMA_4 = {"layer_types": ["sliding_attention", "full_attention"] * 2} | settings(
    "num_hidden_layers=4 global_head_dim=16 attention_k_eq_v=True num_global_key_value_heads=1 "
    "num_kv_shared_layers=2 vocab_size_per_layer_input=23 hidden_size_per_layer_input=4 "
    "sliding_window=4"
)
_TURNED = rope(
    "yarn", factor=32.0, beta_fast=4.0, original_max_position_embeddings=16, truncate=False
)
_OSS = {"sliding_window": 4, "attention_bias": True, **_TURNED}
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

_MODELS = [
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
    _model("llama", "Gemma4ForCausalLM", "gemma4_text", **_GEMMA_4),
    _model("llama", "Gemma4TextModel", "gemma4_text", _ENCODER, **_GEMMA_4 | {
        "attention_k_eq_v": False, "num_kv_shared_layers": 0, "attention_bias": True,
        "use_bidirectional_attention": "all"}),
    _model("llama", "Gemma4UnifiedForCausalLM", "gemma4_unified_text", **_GEMMA_4),
    _model("llama", "GptOssModel", "gpt_oss", **_MOE | _OSS),
    _model("llama", "GptOssForCausalLM", "gpt_oss", **_MOE | _OSS | {"attention_bias": False}),
    _model("latent", "DeepseekV2Model", "deepseek_v2", q_lora_rank=None, **rope("default")),
    _model("latent", "DeepseekV2ForCausalLM", "deepseek_v2", attention_bias=False, **_TURNED),
    _model("latent", "DeepseekV3ForCausalLM", "deepseek_v3", **_TURNED),
    _model("latent", "Glm4MoeLiteModel", "glm4_moe_lite", **rope("default")),
    _model("latent", "MiniCPM3Model", "minicpm3", **_TURNED),
    _model("latent", "YoutuForCausalLM", "youtu", **rope("default")),
    _model("falcon", "FalconModel", "falcon", multi_query=False, alibi=True, bias=True),
    _model("falcon", "FalconModel", "falcon", multi_query=True, parallel_attn=False),
    _model("falcon", "FalconForCausalLM", "falcon", num_kv_heads=2, new_decoder_architecture=True),
    Case("GPTJModel", settings("vocab_size=23 n_embd=24 n_layer=2 n_head=3 n_inner=6 rotary_dim=4"),
         _KINDS["gpt2"], "gptj", pre_norm=True),
    Case("BloomModel", settings("vocab_size=23 hidden_size=24 n_layer=2 n_head=3"),
         _KINDS["falcon"], "bloom", pre_norm=True),
    Case("MptModel", settings("vocab_size=23 d_model=24 n_layers=2 n_heads=3 max_seq_len=64")
         | {"attn_config": {"clip_qkv": 0.5}}, _KINDS["gpt2"], "mpt", pre_norm=True),
]  # fmt: skip

CASES = {}
for _one in _MODELS:
    _n = sum(case.name == _one.name for case in CASES.values())
    CASES[f"{_one.name} {_n + 1}" if _n else _one.name] = _one
"""Models by the name of their class, and a number where it is not the first one."""
