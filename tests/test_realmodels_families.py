"""Every family's layers, read from a file that its library wrote, against what the library does.

Queries, keys and values are taken from the library's own products of matrices: as they enter the
scores, split into heads, turned by position. Nothing of ours has a say in them.
"""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from family_models import CASES, D_VOCAB, DAY, OWN_TESTS, Case, built, library, opened, settings
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

from attnkit.figures.groups import describe_tied
from attnkit.realmodels import RealModel, measure_model
from attnkit.realmodels.answer import summary
from attnkit.realmodels.atlas import Q_IS_K
from attnkit.realmodels.gguf_file import ARCHITECTURES
from attnkit.realmodels.layouts import FAMILIES, SPARSE

# what the library computes


class Products(TorchFunctionMode):
    """The last two operands of every product of matrices by head, when a module ran last."""

    def __init__(self, module):
        super().__init__()
        self.kept = []
        module.register_forward_pre_hook(self._begin)
        module.register_forward_hook(lambda *_: self.__exit__(None, None, None))

    def _begin(self, *_):
        self.kept.clear()
        self.__enter__()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ in ("matmul", "__matmul__", "bmm", "baddbmm"):
            tensors = [x for x in (*args, *(kwargs or {}).values()) if torch.is_tensor(x)]
            if tensors[-1].ndim > 2:  # otherwise, it is a linear layer's weight
                self.kept.append(tensors[-2:])
        return func(*args, **(kwargs or {}))


def keep(module, where, name=None):
    """Keep what a module is given and returns: the last time, under a name, or every time."""

    def hook(module, x, y):
        if name is not None:
            where[name] = (x[0], y)
        elif x and torch.is_tensor(y):
            where.append((module, x[0], y))

    module.register_forward_hook(hook)


def inputs_of(config):
    """Random text, or sound."""
    torch.manual_seed(11)
    inputs = {"input_ids": torch.randint(3, D_VOCAB, (2, 11))}
    if config.model_type == "whisper":
        n = 2 * config.max_source_positions
        inputs = {"input_features": torch.randn(2, config.num_mel_bins, n)}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(3, D_VOCAB, (2, 9))
    elif getattr(config, "add_cross_attention", False):
        inputs["encoder_hidden_states"] = torch.randn(2, 11, config.hidden_size)
    return inputs


def computed(model, case):
    """Return what each attention module of the library computed for random text, by kind.

    `q`, `k` and `v` are those of every head, as they enter the scores; `x_q` and `x_kv` what was
    projected; `norm_q` and `norm_kv` the norm whose output that is, and what it was given, or None;
    `inner` what each norm inside of the module was given, by the norm's name.
    """

    def kind_of(name):
        return next((k for k, end in case.kinds.items() if re.search(f"{end}$", name)), None)

    modules = {name: m for name, m in model.named_modules() if kind_of(name)}
    given, inner = ({name: {} for name in modules} for _ in range(2))
    products, norms = {name: Products(module) for name, module in modules.items()}, []
    for name, module in modules.items():
        for part, child in module.named_children():
            if type(child).__name__ in ("Linear", "Conv1D", "FalconLinear"):
                keep(child, given[name], part)
            elif "Norm" in type(child).__name__:
                keep(child, inner[name], part)
    for module in model.modules():
        if "Norm" in type(module).__name__:
            keep(module, norms)
    with torch.no_grad():
        model(**inputs_of(model.config.get_text_config()))

    def norm_before(x):
        return next(((m, given) for m, given, y in norms if torch.equal(y, x)), None)

    out = {kind: [] for kind in case.kinds}
    for name, module in modules.items():
        parts = list(given[name].values())
        x_q, x_kv = parts[0][0], parts[1 if kind_of(name) == "cross" else 0][0]
        (q, keys), *_, (_, v) = products[name].kept
        split = [x.reshape(len(x_q), -1, *x.shape[-2:]) for x in (q, keys.mT, v)]
        if case.family == "deberta-v2":  # its products have other operands
            n = case.settings["num_attention_heads"]
            split = [y.unflatten(-1, (n, -1)).transpose(1, 2) for _, y in parts[:3]]
        seen = SimpleNamespace(**dict(zip("qkv", split, strict=True)), x_q=x_q, x_kv=x_kv)
        seen.norm_q, seen.norm_kv, seen.module = norm_before(x_q), norm_before(x_kv), module
        seen.inner = {part: x for part, (x, _) in inner[name].items()}
        out[kind_of(name)].append(seen)
    return out


# what it would compute from the weights that are read


def projected(x, w, b, per_token):
    """As the library: (sequence, head, token, d_head)."""
    out = np.einsum("bim,hmd->bhid", x.numpy().astype(float), w.astype(float))
    return (out if b is None else out + b[:, None, :].astype(float)) * per_token


def normalised(heads, module, role):
    """Queries or keys after a norm of the library, if any: of each head, or of all at once."""
    names = (f"{role}_norm", f"{role}_layernorm", "qk_norm")
    norm = next((own for name in names if (own := getattr(module, name, None))), None)
    if norm is None:
        return heads
    with torch.no_grad():
        heads = torch.from_numpy(heads).float()
        if getattr(norm, "weight", None) is None or norm.weight.numel() == heads.shape[-1]:
            return norm(heads).numpy()
        flat = heads.transpose(1, 2)
        return norm(flat.flatten(2)).view(flat.shape).transpose(1, 2).numpy()


def turned(heads, rope):
    """Queries or keys with their positions."""
    if rope is None:
        return heads
    return np.stack([rope.rotate(heads[:, :, i], i) for i in range(heads.shape[2])], 2)


def scale_of(norm, x):
    """Return the factor of every token in a norm of the library, apart from its gain; 1 if None."""
    if norm is None:
        return np.ones(1)
    eps = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
    return 1 / np.sqrt((x.numpy().astype(float) ** 2).mean(-1, keepdims=True) + eps)


def assert_same(ours, theirs):
    """Equal but for single precision."""
    theirs = theirs.detach().numpy()
    assert np.isfinite(theirs).all()
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4 * np.abs(theirs).max())


def expected_of(read, one, source, family):
    """Queries, keys and values of the library's layer from our weights, positions included."""
    module, names = source.module, ("q_a_layernorm", "kv_a_layernorm")
    of_q, of_kv = (scale_of(getattr(one.module, n, None), one.inner.get(n))[:, None] for n in names)
    q = projected(one.x_q, read.W_Q, read.b_Q, of_q)
    k = projected(source.x_kv, read.W_K, read.b_K, of_kv)
    v = projected(source.x_kv, read.W_V, read.b_V, of_kv)
    if bound := getattr(module, "clip_qkv", None):
        q, k, v = (np.clip(x, -bound, bound) for x in (q, k, v))
    q, k = normalised(q, one.module, "q"), normalised(k, module, "k")
    v = v if getattr(module, "v_norm", None) is None else module.v_norm(torch.tensor(v)).numpy()
    divided = read.W_Q.shape[-1] ** 0.5 if family in ("opt", "whisper") else 1.0
    return turned(q, read.rope) / divided, turned(k, read.rope), v


def check_gains(wanted, read, one, source):
    """Compare the gains with what the library's norms do to their input."""
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
            ours = given.numpy() * scale_of(module, given) * gain
            assert_same(ours, x if bias is None else x - bias)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in DAY else pytest.mark.long) for n in CASES]
)
def test_heads_are_the_librarys_own(name, tmp_path):
    """Queries, keys and values of every layer, head and token, positions included; gains too."""
    case = CASES[name]
    model = built(case, tmp_path)
    seen = computed(model, case)
    scaling = getattr(getattr(model.base_model, "rotary_emb", None), "attention_scaling", 1.0)
    family, layers, _ = opened(tmp_path)
    assert family == case.family
    assert [(layer.kind, layer.index) for layer in layers] == [
        (kind, i) for kind in ("encoder", "causal", "cross") for i in range(len(seen.get(kind, ())))
    ]
    for layer in layers:
        one, read = seen[layer.kind][layer.index], layer.read()
        source = one if layer.kv_index is None else seen[layer.kind][layer.kv_index]
        assert read.W_Q.shape[0] == layer.n_heads == one.q.shape[1]
        assert read.W_K.shape[0] == read.W_V.shape[0] == layer.n_kv_heads
        scales = (scaling, scaling, 1.0) if read.rope else (1.0, 1.0, 1.0)
        expected = expected_of(read, one, source, family)
        for ours, theirs, scale in zip(expected, (one.q, one.k, one.v), scales, strict=True):
            n_repeats, d = theirs.shape[1] // ours.shape[1], ours.shape[-1]
            # The library adds the part with rotary positions after it.
            assert_same(scale * ours.repeat(n_repeats, 1), theirs[..., :d])
        bare = family.startswith("modernbert") and layer.index == 0
        check_gains(case.pre_norm and not bare, read, one, source)
        # Matrices of one latent vector are alike by construction, which their chance must know.
        ranks = [case.settings.get(f"{part}_lora_rank") or 0 for part in ("q", "kv")]
        assert [read.latent_q, read.latent_kv] == ranks


def test_reformer_has_one_matrix_for_queries_and_keys(tmp_path):
    """The one published family with Q=K, in its layers with hashes, is said to be tied there."""
    case = Case(
        "ReformerModelWithLMHead",
        settings(
            "lsh_attn_chunk_length=4 local_attn_chunk_length=4 num_buckets=2 hidden_size=24 "
            "num_attention_heads=3 attention_head_size=6 vocab_size=23 is_decoder=True "
            "feed_forward_size=5 axial_pos_embds_dim=[8,16] axial_pos_shape=[4,4] pad_token_id=0"
        )
        | {"attn_layers": ["local", "lsh", "lsh"]},
        {},
        "reformer",
    )
    model = built(case, tmp_path)
    family, layers, notes = opened(tmp_path)
    assert (family, [layer.kind for layer in layers]) == ("reformer", ["causal"] * 3)
    assert any("W_Q and as W_K" in note for note in notes)
    for layer, own in zip(layers, model.reformer.encoder.layers, strict=True):
        read, attention = layer.read(), own.attention.self_attention
        for role, name in {"Q": "query", "K": "key", "V": "value"}.items():
            held = getattr(attention, name, None) or attention.query_key
            heads = held.weight.detach().numpy().reshape(3, 6, 24).swapaxes(1, 2)
            np.testing.assert_array_equal(getattr(read, f"W_{role}"), heads)
        np.testing.assert_array_equal(read.gain_q, own.attention.layer_norm.weight.detach())
    table = measure_model(RealModel("r", family, "safetensors", layers)).table
    tied = table[table["tied"] == Q_IS_K]
    assert sorted(tied["layer"].unique()) == [1, 2]
    assert (tied["symmetry"] == 1).all()
    assert np.allclose(tied["cos_qk"].dropna(), 1)
    assert (table[table["layer"] == 0]["symmetry"] < 0.9).all()
    assert "tied in 2 of 3 layers" in summary(table)
    assert "tied in 2 of 3 layers of r" in describe_tied(table)


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
        scale = scale_of(attention.q_a_norm, latent)[:, None]
        assert_same(projected(x, read.W_Q, None, scale), queries.transpose(1, 2))
        assert_same(projected(x, read.W_K, None, 1.0), keys[:, None])
        assert read.tied == "K=V"
        np.testing.assert_array_equal(read.gain_q, own.input_layernorm.weight.detach())


def test_experts_in_another_number_format_do_not_matter(tmp_path):
    """The published gpt-oss has experts of four bits, and attention in bfloat16."""
    built(CASES["gpt_oss-0"], tmp_path)
    wanted = opened(tmp_path)[1][0].read().W_Q
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.0.mlp.experts.gate_up_proj_blocks"] = torch.zeros(2, 3).to(torch.uint8)
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    _, (layer, *_), notes = opened(tmp_path)
    np.testing.assert_array_equal(layer.read().W_Q, wanted)
    assert any("learned sink" in note for note in notes)


def test_every_family_is_compared_and_documented():
    """A new family has a model here and a word in the documentation; sizes are the library's."""
    assert set(FAMILIES) <= {case.family for case in CASES.values()} | OWN_TESTS
    text = (Path(__file__).parents[1] / "docs" / "real_models.md").read_text()
    assert {*FAMILIES, *ARCHITECTURES} - set(re.findall(r"`([^` ]+)`", text)) == set()
    for family, sizes in SPARSE.items():
        config = library().AutoConfig.for_model(family)
        assert {name: getattr(config, name) for name in sizes} == sizes, family
