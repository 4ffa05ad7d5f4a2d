"""Every family's layers, read from a file that its library wrote, against what the library does."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import varied_models
from family_models import ALIKE, CASES, FLAT, NEWER
from library_models import D_VOCAB, Case, built, computed, library, opened, settings
from safetensors.torch import load_file, save_file

from attnkit.figures.groups import describe_tied
from attnkit.realmodels import RealModel, measure_model
from attnkit.realmodels.answer import summary
from attnkit.realmodels.atlas import Q_IS_K, Atlas
from attnkit.realmodels.gguf_file import ARCHITECTURES
from attnkit.realmodels.layouts import FAMILIES, SPARSE
from attnkit.ui.atlas.head_portrait import TIED

N_QUICK = 3
"""Models of each newer family that are compared by default; `--long` compares all."""


def _marked():
    """Yield all models; of each newer family, all but a few are marked as long."""
    yield from (pytest.param(case, id=case.name) for case in [*CASES, *NEWER])
    yield from (pytest.param(case, id=case.name, marks=pytest.mark.long) for case in ALIKE)
    for i, (name, case) in enumerate(varied_models.CASES.items()):
        marks = [pytest.mark.long] if i % varied_models.N_MODELS >= N_QUICK else []
        yield pytest.param(case, marks=marks, id=name)


def _projected(x, w, b, per_token):
    """As the library: (sequence, head, token, d_head)."""
    out = np.einsum("bim,hmd->bhid", x.numpy().astype(float), w.astype(float))
    return (out if b is None else out + b[:, None, :].astype(float)) * per_token


def _norm_of(module, role):
    """The norm of the library after the projection; one for both turns nothing, only scales."""
    names = (f"{role}_norm", f"{role}_layernorm", "qk_norm")
    return next((own for name in names if (own := getattr(module, name, None))), None)


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
    q, k = (
        _normalised(x, _norm_of(of, role))
        for x, of, role in ((q, one.module, "q"), (k, module, "k"))
    )
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


def test_reformer_has_one_matrix_for_queries_and_keys(tmp_path):
    """The one published family with Q=K: in its layers with hashes, W_Q W_Kᵀ is symmetric.

    Its layers with windows have two matrices. Keys are divided by their length, which a note says.
    """
    lengths = settings("lsh_attn_chunk_length=4 local_attn_chunk_length=4 num_buckets=2")
    sizes = settings("hidden_size=24 num_attention_heads=3 attention_head_size=6 vocab_size=23")
    more = {"attn_layers": ["local", "lsh", "lsh"], "is_decoder": True, "feed_forward_size": 5}
    axes = {"axial_pos_embds_dim": [8, 16], "axial_pos_shape": [4, 4], "pad_token_id": 0}
    case = Case("ReformerModelWithLMHead", lengths | sizes | more | axes, {}, "reformer")
    model = built(case, tmp_path)
    family, layers, notes = opened(tmp_path)
    assert (family, [layer.kind for layer in layers]) == ("reformer", ["causal"] * 3)
    assert any("one matrix serves as W_Q and as W_K" in note for note in notes)
    for layer, own in zip(layers, model.reformer.encoder.layers, strict=True):
        read, attention = layer.read(), own.attention.self_attention
        names = {"Q": "query", "K": "key", "V": "value"}
        if hasattr(attention, "query_key"):
            names |= {"Q": "query_key", "K": "query_key"}
        for role, name in names.items():
            rows = getattr(attention, name).weight.detach().numpy()
            np.testing.assert_array_equal(
                getattr(read, f"W_{role}"), rows.reshape(3, 6, 24).swapaxes(1, 2)
            )
        np.testing.assert_array_equal(read.gain_q, own.attention.layer_norm.weight.detach())
    table = measure_model(RealModel("r", family, "safetensors", layers)).table
    tied = table[table["tied"] == Q_IS_K]
    assert sorted(tied["layer"].unique()) == [1, 2]
    assert (tied["symmetry"] == 1).all()
    assert np.allclose(tied["cos_qk"].dropna(), 1)
    assert (table[table["layer"] == 0]["symmetry"] < 0.9).all()
    assert "r causal (9), Q and K tied in 2 of 3 layers |" in summary(table)
    assert "Q and K tied" in Atlas(table)._repr_html_()
    (control,) = {TIED[row["tied"]] for row in tied.to_dict("records")}
    assert control.startswith("Q and K are tied here")
    assert describe_tied(table).startswith("Q and K are tied in 2 of 3 layers of r: ")


def test_deepseek_v4_has_one_head_of_keys_that_serve_as_values(tmp_path):
    """Queries come from a latent vector, and keys from the input; both before their norms."""
    sizes = settings(
        "num_hidden_layers=2 q_lora_rank=5 o_groups=2 o_lora_rank=3 num_key_value_heads=1 "
        "index_n_heads=2 index_head_dim=4 n_routed_experts=2 num_experts_per_tok=1 hc_mult=2 "
        "n_shared_experts=1 moe_intermediate_size=8 hidden_size=24 num_attention_heads=4 head_dim=8"
    )
    types = {"layer_types": ["sliding_attention"] * 2, "mlp_layer_types": ["moe"] * 2}
    case = Case("DeepseekV4ForCausalLM", sizes | types | {"vocab_size": D_VOCAB}, {}, "deepseek_v4")
    model = built(case, tmp_path)
    family, layers, notes = opened(tmp_path)
    assert (family, len(layers)) == ("deepseek_v4", 2)
    assert any("Queries come from latent vectors" in note for note in notes)
    x = torch.randn(1, 5, 24)
    for layer, own in zip(layers, model.model.layers, strict=True):
        read, attention = layer.read(), own.self_attn
        with torch.no_grad():
            latent = attention.q_a_proj(x)
            queries = attention.q_b_proj(attention.q_a_norm(latent)).view(1, 5, 4, 8)
            keys = attention.kv_proj(x)
        scale = _scale(attention.q_a_norm, latent)[:, None]
        _same(_projected(x, read.W_Q, None, scale), queries.transpose(1, 2))
        _same(_projected(x, read.W_K, None, 1.0), keys[:, None])
        assert read.tied == "K=V"
        np.testing.assert_array_equal(read.gain_q, own.input_layernorm.weight.detach())


def test_a_sparse_configuration_has_the_librarys_sizes():
    """Sizes that a part of a configuration leaves out are those of a new one of the library."""
    for family, sizes in SPARSE.items():
        config = library().AutoConfig.for_model(family)
        for name, size in sizes.items():
            assert getattr(config, name) == size, (family, name)


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
    cases = [*CASES, *NEWER, *ALIKE, *varied_models.CASES.values()]
    assert set(FAMILIES) <= {case.family for case in cases} | FLAT


def test_the_documentation_names_every_family_and_architecture():
    """Messages send people there for the whole list."""
    text = (Path(__file__).parents[1] / "docs" / "real_models.md").read_text()
    named = set(re.findall(r"`([^` ]+)`", text))
    assert {*FAMILIES, *ARCHITECTURES} - named == set()
