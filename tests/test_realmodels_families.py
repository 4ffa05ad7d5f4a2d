"""Every family's layers, read from a file that its library wrote, against what the library does."""

import json
import math
import re

import numpy as np
import pytest
import torch
import varied_models
from library_models import D_VOCAB, Case, built, computed, opened, settings
from safetensors.torch import load_file, save_file

from attnkit.realmodels.layouts import FAMILIES

N_QUICK = 3
"""Models of each newer family that are compared by default; `--long` compares all."""

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


def _marked():
    """Yield all models; of each newer family, all but a few are marked as long."""
    yield from (pytest.param(case, id=case.name) for case in CASES)
    for i, (name, case) in enumerate(varied_models.CASES.items()):
        marks = [pytest.mark.long] if i % varied_models.N_MODELS >= N_QUICK else []
        yield pytest.param(case, marks=marks, id=name)


def _projected(x, w, b, per_token):
    """As the library: (sequence, head, token, d_head)."""
    out = np.einsum("bim,hmd->bhid", x.numpy().astype(float), w.astype(float))
    return (out if b is None else out + b[:, None, :].astype(float)) * per_token


def _normalised(heads, norm):
    """Queries or keys after a norm of the library: of each head, or of all of them at once."""
    if norm is None:
        return heads
    with torch.no_grad():
        heads = torch.from_numpy(heads).float()
        if getattr(norm, "weight", None) is None or norm.weight.numel() == heads.shape[-1]:
            return norm(heads).numpy()
        flat = heads.transpose(1, 2)
        return norm(flat.flatten(2)).view(flat.shape).transpose(1, 2).numpy()


def _turned(heads, rope):
    if rope is None:
        return heads
    return np.stack([rope.rotate(heads[:, :, i], i) for i in range(heads.shape[2])], 2)


def _scale(norm, x):
    """Return the factor of every token in a norm of the library, apart from its gain; 1 if None."""
    if norm is None:
        return np.ones(1)
    eps = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
    return 1 / np.sqrt((x.numpy().astype(float) ** 2).mean(-1, keepdims=True) + eps)


def _same(ours, theirs):
    """Equal but for single precision."""
    theirs = theirs.detach().numpy()
    assert np.isfinite(theirs).all()
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4 * np.abs(theirs).max())


def _expected(read, one, source, case):
    """Queries, keys and values of the library's layer from our weights, positions included."""
    module = source.module
    names = ("q_a_layernorm", "kv_a_layernorm")
    of_q, of_kv = (_scale(getattr(one.module, n, None), one.inner.get(n))[:, None] for n in names)
    q = _projected(one.x_q, read.W_Q, read.b_Q, of_q)
    k = _projected(source.x_kv, read.W_K, read.b_K, of_kv)
    v = _projected(source.x_kv, read.W_V, read.b_V, of_kv)
    if bound := getattr(module, "clip_qkv", None):
        q, k, v = (np.clip(x, -bound, bound) for x in (q, k, v))
    q = _normalised(q, getattr(one.module, "q_norm", None))
    k = _normalised(k, getattr(module, "k_norm", None))
    v = _normalised(v, getattr(module, "v_norm", None))
    scale = math.sqrt(read.W_Q.shape[-1]) if case.divided else 1.0
    return _turned(q, read.rope) / scale, _turned(k, read.rope), v


def _check_gains(case, layer, read, one, source):
    """Compare the gains with what the library's norms do to their input."""
    wanted = case.pre_norm and not (case.first_bare and layer.index == 0)
    for gain, x, norm, present in (
        (read.gain_q, one.x_q, one.norm_q, wanted),
        (read.gain_kv, source.x_kv, source.norm_kv, wanted and bool(source.norm_kv)),
    ):
        assert (gain is not None) == present
        if gain is not None:
            module, given = norm
            is_centred = not re.search("RMS|T5", type(module).__name__)
            given = given - is_centred * given.mean(-1, keepdims=True)
            bias = getattr(module, "bias", None)
            ours = given.numpy() * _scale(module, given) * gain
            _same(ours, x if bias is None else x - bias)


@pytest.mark.parametrize("case", list(_marked()))
def test_heads_are_the_librarys_own(case, tmp_path):
    """Queries, keys and values of every layer, head and token, positions included; gains too."""
    model = built(case, tmp_path)
    seen = computed(model, case)
    scaling = getattr(getattr(model.base_model, "rotary_emb", None), "attention_scaling", 1.0)
    family, layers, _ = opened(tmp_path)
    assert family == case.family
    order = [kind for kind in ("encoder", "causal", "cross") if kind in seen]
    assert [(layer.kind, layer.index) for layer in layers] == [
        (kind, i) for kind in order for i in range(len(seen[kind]))
    ]
    for layer in layers:
        one, read = seen[layer.kind][layer.index], layer.read()
        source = one if layer.kv_index is None else seen[layer.kind][layer.kv_index]
        assert read.W_Q.shape[0] == layer.n_heads == one.q.shape[1]
        assert read.W_K.shape[0] == read.W_V.shape[0] == layer.n_kv_heads
        scales = (scaling, scaling, 1.0) if read.rope else (1.0, 1.0, 1.0)
        expected = _expected(read, one, source, case)
        for ours, theirs, scale in zip(expected, (one.q, one.k, one.v), scales, strict=True):
            n_repeats = theirs.shape[1] // ours.shape[1]
            d = ours.shape[-1]  # the library adds the part with rotary positions after it
            _same(scale * ours.repeat(n_repeats, 1), theirs[..., :d])
        _check_gains(case, layer, read, one, source)
        # Matrices of one latent vector are alike by construction, which their chance must know.
        ranks = [case.settings.get(f"{part}_lora_rank") or 0 for part in ("q", "kv")]
        assert [read.latent_q, read.latent_kv] == ranks


def test_experts_in_another_number_format_do_not_matter(tmp_path):
    """The published gpt-oss has experts of four bits, and attention in bfloat16."""
    built(varied_models.CASES["gpt_oss-0"], tmp_path)
    _, (layer, *_), _ = opened(tmp_path)
    wanted = layer.read().W_Q
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.0.mlp.experts.gate_up_proj_blocks"] = torch.zeros(2, 3).to(torch.uint8)
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    _, (layer, *_), notes = opened(tmp_path)
    np.testing.assert_array_equal(layer.read().W_Q, wanted)
    assert any("learned sink" in note for note in notes)


def test_every_family_has_a_model_here():
    """A family that is added is compared with its library."""
    cases = [*CASES, *varied_models.CASES.values()]
    assert set(FAMILIES) <= {case.family for case in cases}
