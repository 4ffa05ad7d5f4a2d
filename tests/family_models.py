"""Small models of every family of the library, and where attention is in them."""

import torch
import varied_models
from library_models import D_VOCAB, Case, settings

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
_GPT_BOTH = {"cross": r"\.crossattention", "causal": r"\.attn"}
_ENCODER, _NEO = {"encoder": "self_attn"}, {"causal": r"\.attention"}

_FLAGS = {"linear", "divided", "first_bare", "dtype", "saving"}


def _model(style, name, family, kinds=None, pre_norm=None, **given):
    """Return a model of a family; options of `Case` are taken out of the settings."""
    flags = {word: given.pop(word) for word in _FLAGS & set(given)}
    if pre_norm is None:
        pre_norm = style in ("llama", "t5", "gpt2", "opt")
    own = {"vocab_size": D_VOCAB} | _STYLES[style] | given
    return Case(name, own, kinds or _KINDS[style], family, pre_norm, **flags)


def _rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **more}}


_DECODER = {"is_decoder": True, "add_cross_attention": True}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
_LLAMA_3 = settings(
    "factor=4.0 low_freq_factor=1.0 high_freq_factor=4.0 original_max_position_embeddings=32"
)
_YARN = settings("factor=8.0 attention_factor=1.0 original_max_position_embeddings=32")
_OLMO_3 = {
    "sliding_attention": _rope("default")["rope_parameters"],
    "full_attention": _rope("yarn", **_YARN)["rope_parameters"],
}
_EXPERTS = {"hidden_size": 32, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}
_GEMMA = {
    "text_config": _model("llama", "", "").settings
    | {"sliding_window_pattern": 2, "num_hidden_layers": 5},
    "vision_config": settings(
        "hidden_size=8 num_hidden_layers=1 num_attention_heads=2 intermediate_size=5 image_size=28"
    ),
}
_GEMMA_4 = varied_models.CASES["gemma4_text-0"].settings | {"use_bidirectional_attention": "all"}
_MODERN = {"hidden_size": 24, "num_hidden_layers": 5, "first_bare": True, **_TOKENS}
_NEO_X = {"attention_bias": False, **_rope("default", partial_rotary_factor=0.4)}
_DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "linear": True}
_SOUND = {"num_mel_bins": 5, "max_source_positions": 13, "bos_token_id": 1, "eos_token_id": 2}
_ALBERT = {"embedding_size": 7, "num_hidden_layers": 4, "num_hidden_groups": 2}

_PLAIN = {
    "bert": "BertModel:bert RobertaForMaskedLM:roberta CamembertModel:camembert "
    "XLMRobertaModel:xlm-roberta ErnieModel:ernie",
    "llama": "LlamaForCausalLM:llama MistralModel:mistral MinistralModel:ministral "
    "Qwen2Model:qwen2 Qwen3ForCausalLM:qwen3 GemmaForCausalLM:gemma Gemma2Model:gemma2 "
    "GraniteModel:granite Starcoder2Model:starcoder2 CohereModel:cohere GlmModel:glm "
    "Phi3Model:phi3",
    "pair": "BartForConditionalGeneration:bart BlenderbotSmallModel:blenderbot-small "
    "MarianMTModel:marian",
    "t5": "T5ForConditionalGeneration:t5 MT5ForConditionalGeneration:mt5 "
    "UMT5ForConditionalGeneration:umt5",
    "gpt2": "GPT2Model:gpt2",
    "distilbert": "DistilBertModel:distilbert",
}
"""Classes of the library and families without settings of their own."""

CASES = [
    *(
        _model(style, *pair.split(":"))
        for style, names in _PLAIN.items()
        for pair in names.split()
    ),
    _model("bert", "BertLMHeadModel", "bert", _BOTH, **_DECODER),
    _model("bert", "ElectraForPreTraining", "electra", embedding_size=7),
    _model("bert", "BertGenerationDecoder", "bert-generation", _BOTH, **_DECODER),
    _model("bert", "MegatronBertModel", "megatron-bert", _BOTH, True, **_DECODER),
    _model("bert", "RobertaPreLayerNormModel", "roberta-prelayernorm", _BOTH, True, **_DECODER),
    _model("bert", "XLMRobertaXLModel", "xlm-roberta-xl", _BOTH, True, **_DECODER),
    _model("bert", "MPNetModel", "mpnet", {"encoder": r"attention\.attn"}),
    _model("bert", "DebertaV2Model", "deberta-v2", **_DEBERTA),
    _model("bert", "AlbertForMaskedLM", "albert", _KINDS["distilbert"], **_ALBERT),
    _model("bert", "ModernBertForMaskedLM", "modernbert", {"encoder": r"\.attn"}, True, **_MODERN),
    _model("bert", "ModernBertModel", "modernbert", {"encoder": r"\.attn"}, True,
           attention_bias=True, **_MODERN),
    _model("bert", "ModernBertDecoderForCausalLM", "modernbert-decoder", _KINDS["gpt2"], True,
           **_MODERN),
    _model("bert", "NomicBertModel", "nomic_bert", _ENCODER, head_dim=8),
    _model("llama", "EuroBertModel", "eurobert", _ENCODER, **_TOKENS),
    _model("gpt2", "GPT2LMHeadModel", "gpt2", _GPT_BOTH, add_cross_attention=True),
    _model("bert", "GPTNeoXModel", "gpt_neox", _NEO, True, hidden_size=24),
    _model("bert", "GPTNeoXForCausalLM", "gpt_neox", _NEO, True, hidden_size=60, **_NEO_X),
    _model("llama", "LlamaModel", "llama", attention_bias=True, **_rope("linear", factor=3.0)),
    _model("llama", "LlamaModel", "llama", **_rope("llama3", **_LLAMA_3)),
    _model("llama", "LlamaModel", "llama", **_rope("dynamic", factor=2.0)),
    _model("llama", "MixtralModel", "mixtral", **_EXPERTS),
    _model("llama", "Qwen2MoeModel", "qwen2_moe", **_EXPERTS),
    _model("llama", "Qwen3MoeModel", "qwen3_moe", **_EXPERTS),
    _model("llama", "Gemma3ForCausalLM", "gemma3_text", num_hidden_layers=7),
    _model("llama", "Gemma3TextModel", "gemma3_text", _ENCODER, use_bidirectional_attention=True),
    Case("Gemma3ForConditionalGeneration", _GEMMA, {"causal": r"language_model.*self_attn"},
         "gemma3_text", pre_norm=True),
    Case("Gemma4TextModel", _GEMMA_4, _ENCODER, "gemma4_text", pre_norm=True),
    _model("llama", "SmolLM3Model", "smollm3", num_hidden_layers=5),
    _model("llama", "OlmoModel", "olmo", pre_norm=False),
    _model("llama", "Olmo2Model", "olmo2", pre_norm=False),
    _model("llama", "Olmo3Model", "olmo3", pre_norm=False, num_hidden_layers=5),
    _model("llama", "Olmo3Model", "olmo3", None, False, num_hidden_layers=5,
           rope_parameters=_OLMO_3),
    _model("llama", "StableLmModel", "stablelm", head_dim=None, hidden_size=96, use_qkv_bias=True),
    _model("llama", "HeliumModel", "helium", head_dim=6, hidden_size=36, num_attention_heads=6),
    _model("llama", "PhiModel", "phi", head_dim=8, hidden_size=48, num_attention_heads=6),
    _model("pair", "BlenderbotModel", "blenderbot", None, True),
    _model("pair", "M2M100Model", "m2m_100", None, True),
    _model("pair", "MBartModel", "mbart", None, True),
    _model("pair", "PegasusModel", "pegasus", None, True),
    _model("pair", "WhisperForConditionalGeneration", "whisper", None, True, divided=True,
           **_SOUND),
    _model("opt", "OPTForCausalLM", "opt", divided=True),
    _model("opt", "OPTForCausalLM", "opt", None, False, divided=True, do_layer_norm_before=False),
    _model("opt", "OPTForCausalLM", "opt", None, False, divided=True,
           layer_norm_elementwise_affine=False),
    _model("t5", "T5EncoderModel", "t5", {"encoder": "SelfAttention"}),
    _model("bert", "BertModel", "bert", dtype=torch.bfloat16),
    _model("gpt2", "GPT2Model", "gpt2", dtype=torch.float16),
    _model("llama", "Qwen2Model", "qwen2", saving={"max_shard_size": "5KB"}),
]  # fmt: skip


_MOE = {"num_experts": 2, "num_experts_per_tok": 1, "num_local_experts": 2, "n_routed_experts": 2,
        "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "moe_num_experts": 2, "moe_k": 1,
        "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}  # fmt: skip
_LINEAR = settings(
    "linear_num_value_heads=2 linear_num_key_heads=2 linear_key_head_dim=4 linear_value_head_dim=4"
)
_FIVE = {"num_hidden_layers": 5}
_GEMMA_3N = settings(
    "num_kv_shared_layers=2 vocab_size_per_layer_input=23 hidden_size_per_layer_input=4 "
    "laurel_rank=3 altup_num_inputs=2"
) | {
    "layer_types": ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"],
    "activation_sparsity_pattern": [0.0] * 5, "intermediate_size": [8] * 5,
}  # fmt: skip
_SOME = {"layer_types": ["conv", "full_attention", "conv", "full_attention", "full_attention"]}

_SECTIONS = _rope("default", mrope_section=[1, 1, 1])

NEWER = [
    _model("llama", "ApertusForCausalLM", "apertus"),
    _model("llama", "Cohere2Model", "cohere2", head_dim=6, **_FIVE),
    _model("llama", "Ernie4_5Model", "ernie4_5"),
    _model("llama", "Exaone4Model", "exaone4", None, False, **_FIVE),
    _model("llama", "Gemma3nForCausalLM", "gemma3n_text", **_FIVE, **_GEMMA_3N),
    _model("llama", "Glm4Model", "glm4"),
    _model("gpt2", "GPTBigCodeModel", "gpt_bigcode"),
    _model("gpt2", "GPTBigCodeModel", "gpt_bigcode", multi_query=False),
    _model("llama", "Lfm2Model", "lfm2", head_dim=6, **_FIVE, **_SOME),
    _model("llama", "Llama4ForCausalLM", "llama4_text", intermediate_size_mlp=8, moe_layers=[],
           num_local_experts=2, **_FIVE),
    _model("llama", "NemotronModel", "nemotron"),
    _model("llama", "Qwen2VLTextModel", "qwen2_vl_text", head_dim=6, **_SECTIONS),
    _model("llama", "Qwen3NextModel", "qwen3_next", num_hidden_layers=8, **_LINEAR, **_MOE),
]  # fmt: skip
"""Families with a layout or a rule of their own."""

ALIKE = [
    _model("llama", name, family, None, family != "flex_olmo", **_FIVE, **_MOE)
    for pair in (
        "Afmoe:afmoe Arcee:arcee AriaText:aria_text Cwm:cwm Doge:doge Dots1:dots1 "
        "Ernie4_5_Moe:ernie4_5_moe FlexOlmo:flex_olmo Glm4Moe:glm4_moe GraniteMoe:granitemoe "
        "Jais2:jais2 Mellum:mellum Ministral3:ministral3 Olmoe:olmoe Phimoe:phimoe "
        "SeedOss:seed_oss SolarOpen:solar_open VaultGemma:vaultgemma"
    ).split()
    for start, family in [pair.split(":")]
    for name in [f"{start}ForCausalLM"]
] + [
    _model("llama", name, family, None, True, **_FIVE, **more)
    for name, family, more in (
        ("Qwen2_5_VLTextModel", "qwen2_5_vl_text", {"head_dim": 6} | _SECTIONS),
        ("Qwen3VLTextModel", "qwen3_vl_text", {}),
        ("Qwen3VLMoeTextModel", "qwen3_vl_moe_text", _MOE),
        ("Qwen3_5TextModel", "qwen3_5_text", _LINEAR),
        ("Qwen3_5MoeTextModel", "qwen3_5_moe_text", _LINEAR | _MOE),
    )
]
"""Families whose layout and rules are those of another one; all are compared with `--long`."""

FLAT = {"deepseek_v4", "qwen2_vl", "qwen2_5_vl", "reformer"}
"""Families with tests of their own."""
