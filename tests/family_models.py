"""Small random models of every family of the library `transformers`, and where attention is."""

import ast
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
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
    kinds: dict
    pre_norm: bool
    settings: dict

    @property
    def config(self):
        """The library's configuration, which has the name of the family."""
        return getattr(library(), self.name).config_class(**self.settings)


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
    config = case.config
    config._attn_implementation = "eager"
    torch.manual_seed(7)
    model = getattr(library(), case.name)(config).eval()
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


def assert_heads(model, rows, d_head=2, atol=0.0):
    """Check every head against the rows that were written for its layer, (h·d, m), by letters."""
    for layer, own in zip(model.layers, rows, strict=True):
        read = layer.read()
        for role in "qkv":
            heads = own[role].reshape(-1, d_head, own[role].shape[-1]).swapaxes(1, 2)
            found = getattr(read, f"W_{role.upper()}")
            np.testing.assert_allclose(found, heads, rtol=0, atol=atol)


_STYLES = {
    "bert": settings(
        "hidden_size=21 num_hidden_layers=3 num_attention_heads=3 intermediate_size=5 "
        "max_position_embeddings=31 pad_token_id=0 kinds='encoder:attention.self' pre_norm=False"
    ),
    "llama": settings(
        "hidden_size=24 num_hidden_layers=3 num_attention_heads=4 num_key_value_heads=2 head_dim=8 "
        "intermediate_size=8 max_position_embeddings=64 pad_token_id=0 kinds='causal:self_attn'"
    ),
    "pair": settings(
        "d_model=24 encoder_layers=3 decoder_layers=2 encoder_attention_heads=3 "
        "decoder_attention_heads=4 encoder_ffn_dim=5 decoder_ffn_dim=7 max_position_embeddings=31 "
        "pad_token_id=0 decoder_start_token_id=0 pre_norm=False "
        "kinds='cross:encoder_attn,causal:decoder.*self_attn,encoder:encoder.*self_attn'"
    ),
    "t5": settings(
        "d_model=13 d_kv=5 num_layers=3 num_decoder_layers=2 num_heads=3 d_ff=5 pad_token_id=0 "
        "decoder_start_token_id=0 "
        "kinds='cross:EncDecAttention,causal:decoder.*SelfAttention,encoder:encoder.*SelfAttention'"
    ),
    "gpt2": settings("n_embd=21 n_layer=3 n_head=3 n_positions=31 kinds='causal:[.]attn'"),
    "opt": settings(
        "hidden_size=21 num_hidden_layers=3 num_attention_heads=3 ffn_dim=5 word_embed_proj_dim=7 "
        "max_position_embeddings=31 pad_token_id=0 kinds='causal:self_attn'"
    ),
    "latent": settings(
        "hidden_size=20 num_hidden_layers=2 num_attention_heads=2 num_key_value_heads=2 "
        "q_lora_rank=5 kv_lora_rank=4 qk_nope_head_dim=6 qk_rope_head_dim=4 v_head_dim=7 "
        "first_k_dense_replace=2 mlp_layer_types=['dense','dense'] moe_intermediate_size=6 "
        "intermediate_size=6 max_position_embeddings=64 pad_token_id=0 attention_bias=True "
        "kinds='causal:self_attn'"
    ),
    "falcon": settings(
        "hidden_size=24 num_hidden_layers=2 num_attention_heads=6 num_kv_heads=None "
        "ffn_hidden_size=6 max_position_embeddings=64 new_decoder_architecture=False "
        "kinds='causal:self_attention'"
    ),
    "mpt": settings("d_model=24 n_layers=2 n_heads=3 max_seq_len=64 kinds='causal:attn'"),
}


def _model(style, name, **given):
    own = {"vocab_size": D_VOCAB, "pre_norm": True} | _STYLES[style] | given
    kinds = dict(kind.split(":") for kind in own.pop("kinds").split(","))
    return Case(name, kinds, own.pop("pre_norm"), own)


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
_NORM, _POST = {"pre_norm": True}, {"pre_norm": False}
_DECODER = settings(
    "kinds='cross:crossattention.self,causal:attention.self' is_decoder=True "
    "add_cross_attention=True"
)
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
_MODERN = {"hidden_size": 24, "num_hidden_layers": 5, **_NORM, **_TOKENS}
_NEO = {"kinds": "causal:attention", **_NORM}
_MOE = settings(
    "num_experts=2 num_experts_per_tok=1 num_local_experts=2 n_routed_experts=2 n_shared_experts=1 "
    "n_group=1 topk_group=1 moe_num_experts=2 moe_k=1 moe_intermediate_size=8 "
    "shared_expert_intermediate_size=8"
)
_LINEAR = settings(
    "num_hidden_layers=8 linear_num_value_heads=2 linear_num_key_heads=2 linear_key_head_dim=4 "
    "linear_value_head_dim=4"
)
_FIVE = {"num_hidden_layers": 5}
_GEMMA_3 = {
    "text_config": _model("llama", "", **_FIVE, sliding_window_pattern=2).settings,
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

_GROUPS = (
    ("bert", {}, "BertModel RobertaForMaskedLM CamembertModel XLMRobertaModel ErnieModel"),
    ("bert", _DECODER, "BertLMHeadModel BertGenerationDecoder"),
    ("bert", _DECODER | _NORM, "MegatronBertModel RobertaPreLayerNormModel XLMRobertaXLModel"),
    ("pair", {}, "BartForConditionalGeneration BlenderbotSmallModel MarianMTModel"),
    ("pair", _NORM, "BlenderbotModel M2M100Model MBartModel PegasusModel"),
    ("t5", {}, "T5ForConditionalGeneration MT5Model UMT5Model"),
    ("gpt2", {}, "GPT2Model GPTBigCodeModel"),
    (
        "llama",
        {},
        "LlamaForCausalLM MistralModel MinistralModel Qwen2Model Qwen3ForCausalLM GemmaModel "
        "Gemma2Model GraniteModel Starcoder2Model CohereModel GlmModel Phi3Model ApertusModel "
        "Ernie4_5Model Glm4Model NemotronModel",
    ),
    (
        "llama",
        _FIVE | _MOE | {"head_dim": 6},
        "AfmoeModel ArceeModel AriaTextModel Cohere2Model CwmModel DogeModel Dots1Model "
        "Ernie4_5_MoeModel Glm4MoeModel GraniteMoeModel HeliumModel Jais2Model MellumModel "
        "Ministral3Model MixtralModel OlmoeForCausalLM PhimoeModel Qwen2MoeModel Qwen3MoeModel "
        "SeedOssModel SmolLM3Model SolarOpenModel VaultGemmaModel",
    ),
    ("llama", _FIVE | _MOE | _POST, "Exaone4Model FlexOlmoModel OlmoModel Olmo2Model Olmo3Model"),
    ("llama", _MOE, "Qwen3VLTextModel Qwen3VLMoeTextModel"),
    ("llama", _MOE | _LINEAR, "Qwen3NextModel Qwen3_5TextModel Qwen3_5MoeTextModel"),
    ("llama", {"head_dim": 6, **_SECTIONS}, "Qwen2VLTextModel Qwen2_5_VLTextModel"),
    ("llama", _GEMMA_4, "Gemma4ForCausalLM Gemma4UnifiedForCausalLM"),
    ("latent", rope("default"), "Glm4MoeLiteModel YoutuForCausalLM"),
    ("latent", _TURNED, "DeepseekV3ForCausalLM MiniCPM3Model"),
)
"""Classes of the library that have the same settings."""

_MODELS = [
    *(
        _model(style, name, **given)
        for style, given, names in _GROUPS
        for name in names.split()
    ),
    _model("bert", "DistilBertModel", kinds="encoder:attention"),
    _model("bert", "ElectraForPreTraining", embedding_size=7),
    _model("bert", "MPNetModel", kinds="encoder:attention.attn"),
    _model("bert", "DebertaV2Model", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    _model("bert", "AlbertForMaskedLM", kinds="encoder:attention", embedding_size=7,
           num_hidden_layers=4, num_hidden_groups=2),
    _model("bert", "ModernBertForMaskedLM", kinds="encoder:attn", attention_bias=True, **_MODERN),
    _model("bert", "ModernBertDecoderForCausalLM", kinds="causal:attn", **_MODERN),
    _model("bert", "NomicBertModel", kinds="encoder:self_attn", head_dim=8),
    _model("llama", "EuroBertModel", kinds="encoder:self_attn", **_TOKENS),
    _model("gpt2", "GPT2LMHeadModel", kinds="cross:crossattention,causal:[.]attn",
           add_cross_attention=True),
    _model("gpt2", "GPTBigCodeModel", multi_query=False),
    _model("gpt2", "GPTJModel", n_embd=24, rotary_dim=4),
    _model("bert", "GPTNeoXModel", hidden_size=24, **_NEO),
    _model("bert", "GPTNeoXForCausalLM", hidden_size=60, attention_bias=False,
           **rope("default", partial_rotary_factor=0.4), **_NEO),
    _model("llama", "LlamaModel", attention_bias=True, **rope("linear", factor=3.0)),
    _model("llama", "LlamaModel", **rope("llama3", **LLAMA_3)),
    _model("llama", "LlamaModel", **rope("dynamic", factor=2.0)),
    _model("llama", "Gemma3ForCausalLM", num_hidden_layers=7),
    _model("llama", "Gemma3TextModel", kinds="encoder:self_attn", use_bidirectional_attention=True),
    Case("Gemma3ForConditionalGeneration", {"causal": "language_model.*self_attn"}, True, _GEMMA_3),
    _model("llama", "Gemma3nForCausalLM", **_FIVE, **_GEMMA_3N),
    _model("llama", "Olmo3Model", pre_norm=False, rope_parameters=_OLMO_3, **_FIVE),
    _model("llama", "StableLmModel", head_dim=None, hidden_size=96, use_qkv_bias=True),
    _model("llama", "PhiModel", head_dim=8, hidden_size=48, num_attention_heads=6),
    _model("llama", "Lfm2Model", head_dim=6, **_FIVE, **_SOME),
    _model("llama", "Llama4ForCausalLM", intermediate_size_mlp=8, moe_layers=[],
           num_local_experts=2, **_FIVE),
    _model("pair", "WhisperForConditionalGeneration", pre_norm=True, **_SOUND),
    _model("opt", "OPTForCausalLM"),
    _model("opt", "OPTForCausalLM", pre_norm=False, do_layer_norm_before=False),
    _model("opt", "OPTForCausalLM", pre_norm=False, layer_norm_elementwise_affine=False),
    _model("t5", "T5EncoderModel", kinds="encoder:SelfAttention"),
    _model("llama", "Gemma4TextModel", kinds="encoder:self_attn", **_GEMMA_4 | {
        "attention_k_eq_v": False, "num_kv_shared_layers": 0, "attention_bias": True,
        "use_bidirectional_attention": "all"}),
    _model("llama", "GptOssModel", **_MOE | _TURNED, sliding_window=4, attention_bias=True),
    _model("latent", "DeepseekV2Model", q_lora_rank=None, **rope("default")),
    _model("latent", "DeepseekV2ForCausalLM", attention_bias=False, **_TURNED),
    _model("falcon", "FalconModel", multi_query=False, alibi=True, bias=True),
    _model("falcon", "FalconModel", multi_query=True, parallel_attn=False),
    _model("falcon", "FalconForCausalLM", num_kv_heads=2, new_decoder_architecture=True),
    _model("falcon", "BloomModel", num_attention_heads=3),
    _model("mpt", "MptModel", attn_config={"clip_qkv": 0.5}),
]  # fmt: skip

CASES = {}
for _one in _MODELS:
    _n = sum(case.name == _one.name for case in CASES.values())
    CASES[f"{_one.name} {_n + 1}" if _n else _one.name] = _one
"""Models by the name of their class, and a number where it is not the first one."""
