"""Every family's layers, read from a file that its library wrote, against what the library does."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import varied_models
from library_models import D_VOCAB, Case, built, computed
from safetensors.torch import load_file, save_file

from attnkit.realmodels.families import hugging_face_layers
from attnkit.realmodels.layouts import FAMILIES
from attnkit.realmodels.safetensors_file import open_safetensors

_SELF = {"encoder": r"attention\.self"}
_BOTH = {"cross": r"\.crossattention\.self", "causal": r"\.attention\.self"}
_SEQUENCES = {
    "cross": r"\.encoder_attn",
    "causal": r"decoder.*\.self_attn",
    "encoder": r"encoder.*\.self_attn",
}
_T5 = {
    "cross": "EncDecAttention",
    "causal": r"decoder.*\.SelfAttention",
    "encoder": r"encoder.*\.SelfAttention",
}
_DECODER = {"is_decoder": True, "add_cross_attention": True}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
_SIZES = (0, 1)
N_QUICK = 5
"""Models of each newer family that are compared by default; `--long` compares all."""


def _bert(name, family, kinds=_SELF, pre_norm=False, linear=False, **settings):
    return [
        Case(
            name,
            {
                "vocab_size": D_VOCAB,
                "hidden_size": (21, 26)[size],
                "num_hidden_layers": (3, 2)[size],
                "num_attention_heads": (3, 2)[size],
                "intermediate_size": 5,
                "max_position_embeddings": 31,
                "pad_token_id": 0,
                **settings,
            },
            kinds,
            family,
            pre_norm,
            linear=linear,
        )
        for size in _SIZES
    ]


def _llama(name, family, kinds=None, pre_norm=True, sizes=_SIZES, **settings):
    return [
        Case(
            name,
            {
                "vocab_size": D_VOCAB,
                "hidden_size": (24, 30)[size],
                "num_hidden_layers": (3, 2)[size],
                "num_attention_heads": (4, 6)[size],
                "num_key_value_heads": (2, 3)[size],
                "head_dim": (8, 12)[size],
                "intermediate_size": 8,
                "max_position_embeddings": 64,
                "pad_token_id": 0,
                **settings,
            },
            kinds or {"causal": "self_attn"},
            family,
            pre_norm,
        )
        for size in sizes
    ]


def _pairs(name, family, pre_norm, divided=False, **settings):
    """An encoder and a decoder with as many heads and layers as the other has not."""
    return [
        Case(
            name,
            {
                "vocab_size": D_VOCAB,
                "d_model": (24, 30)[size],
                "encoder_layers": (3, 2)[size],
                "decoder_layers": (2, 3)[size],
                "encoder_attention_heads": (3, 5)[size],
                "decoder_attention_heads": (4, 2)[size],
                "encoder_ffn_dim": 5,
                "decoder_ffn_dim": 7,
                "max_position_embeddings": 31,
                "pad_token_id": 0,
                "decoder_start_token_id": 0,
                **settings,
            },
            _SEQUENCES,
            family,
            pre_norm,
            divided,
        )
        for size in _SIZES
    ]


def _t5(name, family, kinds=_T5):
    return [
        Case(
            name,
            {
                "vocab_size": D_VOCAB,
                "d_model": (13, 17)[size],
                "d_kv": (5, 3)[size],
                "num_layers": (3, 2)[size],
                "num_decoder_layers": (2, 3)[size],
                "num_heads": (3, 7)[size],
                "d_ff": 5,
                "pad_token_id": 0,
                "decoder_start_token_id": 0,
            },
            kinds,
            family,
            pre_norm=True,
        )
        for size in _SIZES
    ]


def _gpt2(name, kinds, **settings):
    return [
        Case(
            name,
            {
                "vocab_size": D_VOCAB,
                "n_embd": (21, 26)[size],
                "n_layer": (3, 2)[size],
                "n_head": (3, 2)[size],
                "n_positions": 31,
                **settings,
            },
            kinds,
            "gpt2",
            pre_norm=True,
        )
        for size in _SIZES
    ]


def _opt(**settings):
    sizes = {"vocab_size": D_VOCAB, "num_hidden_layers": 3, "pad_token_id": 0}
    before = settings.get("do_layer_norm_before", True)
    return [
        Case(
            "OPTForCausalLM",
            {
                **sizes,
                "hidden_size": (21, 26)[size],
                "num_attention_heads": (3, 2)[size],
                "ffn_dim": 5,
                "word_embed_proj_dim": 7,
                "max_position_embeddings": 31,
                **settings,
            },
            {"causal": "self_attn"},
            "opt",
            pre_norm=before and settings.get("layer_norm_elementwise_affine", True),
            divided=True,
        )
        for size in _SIZES
    ]


def _distilbert():
    return [
        Case(
            "DistilBertModel",
            {
                "vocab_size": D_VOCAB,
                "dim": (21, 26)[size],
                "n_layers": (3, 2)[size],
                "n_heads": (3, 2)[size],
                "hidden_dim": 5,
            },
            {"encoder": r"\.attention"},
            "distilbert",
        )
        for size in _SIZES
    ]


def _modern(name, family, kind):
    sizes = {"num_hidden_layers": 5, **_TOKENS}
    plain = [
        *_bert(name, family, {kind: r"\.attn"}, True, hidden_size=24, **sizes),
        *_bert(name, family, {kind: r"\.attn"}, True, hidden_size=12, attention_bias=True, **sizes),
    ]
    return [replace(case, first_bare=True) for case in plain]


def _rope(kind, **settings):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **settings}}


_LLAMA_3 = {
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_OLMO_3_ROPE = {
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        "full_attention": {
            "rope_type": "yarn",
            "rope_theta": 500.0,
            "factor": 8.0,
            "attention_factor": 1.0,
            "original_max_position_embeddings": 32,
        },
    }
}
_EXPERTS = {"hidden_size": 32, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}
_VISION = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
_GEMMA_TEXT = _llama("", "")[0].settings | {"sliding_window_pattern": 2, "num_hidden_layers": 5}

CASES = [
    *_bert("BertModel", "bert"),
    *_bert("BertLMHeadModel", "bert", _BOTH, **_DECODER),
    *_bert("RobertaForMaskedLM", "roberta"),
    *_bert("ElectraForPreTraining", "electra", embedding_size=7),
    *_bert("CamembertModel", "camembert"),
    *_bert("XLMRobertaModel", "xlm-roberta"),
    *_bert("ErnieModel", "ernie"),
    *_bert("BertGenerationDecoder", "bert-generation", _BOTH, **_DECODER),
    *_bert("MegatronBertModel", "megatron-bert", _BOTH, True, True, **_DECODER),
    *_bert("RobertaPreLayerNormModel", "roberta-prelayernorm", _BOTH, True, **_DECODER),
    *_bert("XLMRobertaXLModel", "xlm-roberta-xl", _BOTH, True, **_DECODER),
    *_bert("MPNetModel", "mpnet", {"encoder": r"attention\.attn"}, linear=True),
    *_bert(
        "DebertaV2Model",
        "deberta-v2",
        linear=True,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
    ),
    *_distilbert(),
    *_bert(
        "AlbertForMaskedLM",
        "albert",
        {"encoder": r"\.attention"},
        embedding_size=7,
        num_hidden_layers=4,
        num_hidden_groups=2,
    ),
    *_modern("ModernBertForMaskedLM", "modernbert", "encoder"),
    *_modern("ModernBertDecoderForCausalLM", "modernbert-decoder", "causal"),
    *_bert("NomicBertModel", "nomic_bert", {"encoder": "self_attn"}, head_dim=8),
    *_llama("EuroBertModel", "eurobert", {"encoder": "self_attn"}, **_TOKENS),
    *_gpt2("GPT2Model", {"causal": r"\.attn"}),
    *_gpt2(
        "GPT2LMHeadModel",
        {"cross": r"\.crossattention", "causal": r"\.attn"},
        add_cross_attention=True,
    ),
    *_bert("GPTNeoXModel", "gpt_neox", {"causal": r"\.attention"}, True, hidden_size=24),
    *_bert(
        "GPTNeoXForCausalLM",
        "gpt_neox",
        {"causal": r"\.attention"},
        True,
        hidden_size=60,
        attention_bias=False,
        **_rope("default", partial_rotary_factor=0.4),
    ),
    *_llama("LlamaForCausalLM", "llama"),
    *_llama("LlamaModel", "llama", attention_bias=True, **_rope("linear", factor=3.0)),
    *_llama("LlamaModel", "llama", sizes=(1,), **_rope("llama3", **_LLAMA_3)),
    *_llama("LlamaModel", "llama", sizes=(1,), **_rope("dynamic", factor=2.0)),
    *_llama("MistralModel", "mistral"),
    *_llama("MinistralModel", "ministral"),
    *_llama("MixtralModel", "mixtral", **_EXPERTS),
    *_llama("Qwen2Model", "qwen2"),
    *_llama("Qwen2MoeModel", "qwen2_moe", **_EXPERTS),
    *_llama("Qwen3ForCausalLM", "qwen3"),
    *_llama("Qwen3MoeModel", "qwen3_moe", **_EXPERTS),
    *_llama("GemmaForCausalLM", "gemma"),
    *_llama("Gemma2Model", "gemma2"),
    *_llama("Gemma3ForCausalLM", "gemma3_text", num_hidden_layers=7),
    *_llama(
        "Gemma3TextModel",
        "gemma3_text",
        {"encoder": "self_attn"},
        use_bidirectional_attention=True,
    ),
    Case(
        "Gemma4TextModel",
        varied_models.CASES["gemma4_text-0"].settings | {"use_bidirectional_attention": "all"},
        {"encoder": "self_attn"},
        "gemma4_text",
        pre_norm=True,
    ),
    Case(
        "Gemma3ForConditionalGeneration",
        {
            "text_config": _GEMMA_TEXT,
            "vision_config": {**_VISION, "intermediate_size": 5, "image_size": 28},
        },
        {"causal": r"language_model.*self_attn"},
        "gemma3_text",
        pre_norm=True,
    ),
    *_llama("SmolLM3Model", "smollm3", num_hidden_layers=5),
    *_llama("OlmoModel", "olmo", pre_norm=False),
    *_llama("Olmo2Model", "olmo2", pre_norm=False),
    *_llama("Olmo3Model", "olmo3", pre_norm=False, num_hidden_layers=5),
    *_llama("Olmo3Model", "olmo3", pre_norm=False, num_hidden_layers=5, **_OLMO_3_ROPE),
    *_llama("GraniteModel", "granite"),
    *_llama("Starcoder2Model", "starcoder2"),
    *_llama("StableLmModel", "stablelm", head_dim=None, hidden_size=96, use_qkv_bias=True),
    *_llama("CohereModel", "cohere"),
    *_llama("GlmModel", "glm"),
    *_llama("HeliumModel", "helium", head_dim=6, hidden_size=36, num_attention_heads=6),
    *_llama("PhiModel", "phi", head_dim=8, hidden_size=48, num_attention_heads=6),
    *_llama("Phi3Model", "phi3"),
    *_pairs("BartForConditionalGeneration", "bart", False),
    *_pairs("BlenderbotSmallModel", "blenderbot-small", False),
    *_pairs("MarianMTModel", "marian", False),
    *_pairs("BlenderbotModel", "blenderbot", True),
    *_pairs("M2M100Model", "m2m_100", True),
    *_pairs("MBartModel", "mbart", True),
    *_pairs("PegasusModel", "pegasus", True),
    *_pairs(
        "WhisperForConditionalGeneration",
        "whisper",
        True,
        divided=True,
        num_mel_bins=5,
        max_source_positions=13,
        **dict(list(_TOKENS.items())[:2]),
    ),
    *_opt(),
    *_opt(do_layer_norm_before=False),
    *_opt(layer_norm_elementwise_affine=False),
    *_t5("T5ForConditionalGeneration", "t5"),
    *_t5("T5EncoderModel", "t5", {"encoder": "SelfAttention"}),
    *_t5("MT5ForConditionalGeneration", "mt5"),
    *_t5("UMT5ForConditionalGeneration", "umt5"),
    replace(_bert("BertModel", "bert")[0], dtype=torch.bfloat16),
    replace(_gpt2("GPT2Model", {"causal": r"\.attn"})[0], dtype=torch.float16),
    replace(_llama("Qwen2Model", "qwen2")[0], saving={"max_shard_size": "5KB"}),
]


def _opened(folder):
    return hugging_face_layers(
        open_safetensors(Path(folder)), json.loads(Path(folder, "config.json").read_text())
    )


def _projected(x, w, b, per_token=1.0):
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


def _without_gain(norm, x):
    """Return x after a norm of the library, before its gain."""
    x = x.numpy().astype(float)
    if "RMS" not in type(norm).__name__ and "T5" not in type(norm).__name__:
        x = x - x.mean(-1, keepdims=True)
    eps = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)


def _same(ours, theirs):
    """Equal but for single precision."""
    theirs = theirs.detach().numpy()
    assert np.isfinite(theirs).all()
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4 * np.abs(theirs).max())


def _per_token(module, given):
    """Return the factor of every token in a norm of the library, without its gain; 1 if None."""
    if module is None:
        return 1.0
    x = given.numpy().astype(float)
    return 1 / np.sqrt((x**2).mean(-1) + module.variance_epsilon)[:, None, :, None]


def _expected(layer, one, source, case):
    """Queries, keys and values of the library's layer from our weights, positions included."""
    read, module = layer.read(), source.module
    latent = [getattr(one.module, f"{part}_a_layernorm", None) for part in ("q", "kv")]
    per_token = [
        _per_token(norm, one.inner.get(f"{part}_a_layernorm"))
        for part, norm in zip(("q", "kv"), latent, strict=True)
    ]
    q = _projected(one.x_q, read.W_Q, read.b_Q, per_token[0])
    k = _projected(source.x_kv, read.W_K, read.b_K, per_token[1])
    v = _projected(source.x_kv, read.W_V, read.b_V, per_token[1])
    if bound := getattr(module, "clip_qkv", None):
        q, k, v = (np.clip(x, -bound, bound) for x in (q, k, v))
    q = _normalised(q, getattr(one.module, "q_norm", None))
    k = _normalised(k, getattr(module, "k_norm", None))
    v = _normalised(v, getattr(module, "v_norm", None))
    scale = math.sqrt(read.W_Q.shape[-1]) if case.divided else 1.0
    return _turned(q, read.rope) / scale, _turned(k, read.rope), v


def _check_gains(case, layer, one, source):
    """Compare the gains with what the library's norms do to their input."""
    read = layer.read()
    wanted = case.pre_norm and not (case.first_bare and layer.index == 0)
    for gain, x, norm, present in (
        (read.gain_q, one.x_q, one.norm_q, wanted),
        (read.gain_kv, source.x_kv, source.norm_kv, wanted and bool(source.norm_kv)),
    ):
        assert (gain is not None) == present
        if gain is not None:
            module, given = norm
            bias = getattr(module, "bias", None)
            _same(_without_gain(module, given) * gain, x if bias is None else x - bias)


def _compare_with_library(case, folder):
    """Compare queries, keys and values of every layer, head and token, and the gains."""
    model = built(case, folder)
    seen = computed(model, case)
    scaling = getattr(getattr(model.base_model, "rotary_emb", None), "attention_scaling", 1.0)
    family, layers, _ = _opened(folder)
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
        expected = _expected(layer, one, source, case)
        for ours, theirs, scale in zip(expected, (one.q, one.k, one.v), scales, strict=True):
            n_repeats = theirs.shape[1] // ours.shape[1]
            d = ours.shape[-1]  # the library adds the part with rotary positions after it
            _same(scale * ours.repeat(n_repeats, 1), theirs[..., :d])
        _check_gains(case, layer, one, source)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_heads_are_the_librarys_own(case, tmp_path):
    """Queries, keys and values of every layer, head and token, positions included; gains too."""
    _compare_with_library(case, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if i % varied_models.N_MODELS < N_QUICK else pytest.mark.long)
        for i, name in enumerate(varied_models.CASES)
    ],
)
def test_heads_of_varied_models_are_the_librarys_own(name, tmp_path):
    """Models of newer families with random settings are read head by head, too."""
    _compare_with_library(varied_models.CASES[name], tmp_path)


@pytest.mark.parametrize("index", range(3))
def test_latent_vectors_are_named_for_the_random_level(index, tmp_path):
    """W_K and W_V of one latent vector are alike by construction, which their level must know."""
    case = varied_models.CASES[f"deepseek_v2-{index}"]
    built(case, tmp_path)
    _, (layer, *_), _ = _opened(tmp_path)
    read = layer.read()
    assert read.latent_q == (case.settings["q_lora_rank"] or 0)
    assert read.latent_kv == case.settings["kv_lora_rank"]


def test_experts_in_another_number_format_do_not_matter(tmp_path):
    """The published gpt-oss has experts of four bits, and attention in bfloat16."""
    built(varied_models.CASES["gpt_oss-0"], tmp_path)
    _, (layer, *_), _ = _opened(tmp_path)
    wanted = layer.read().W_Q
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.0.mlp.experts.gate_up_proj_blocks"] = torch.zeros(2, 3).to(torch.uint8)
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    _, (layer, *_), notes = _opened(tmp_path)
    np.testing.assert_array_equal(layer.read().W_Q, wanted)
    assert any("learned sink" in note for note in notes)


def test_every_family_has_two_models_here():
    """A family that is added is compared with its library."""
    cases = [*CASES, *varied_models.CASES.values()]
    models = {name: {str(c.settings) for c in cases if c.family == name} for name in FAMILIES}
    assert [name for name, found in models.items() if len(found) < 2] == []
