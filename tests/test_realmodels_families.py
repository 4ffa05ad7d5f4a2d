"""Every family's layers, read from a file that its library wrote, against what the library does.

Queries, keys and values are taken from the library's own products of matrices: as they enter the
scores, split into heads, turned by position.
"""

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from family_models import CASES, D_VOCAB, built, library, opened, settings
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly
from torch.overrides import TorchFunctionMode

from attnkit.realmodels.base import Kind
from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.families import hugging_face_layers
from attnkit.realmodels.gguf_file import ARCHITECTURES
from attnkit.realmodels.layouts import FAMILIES, SPARSE
from attnkit.realmodels.safetensors_file import open_safetensors
from attnkit.realmodels.sources import find_files
from attnkit.realmodels.tensors import TensorEntry, TensorFile

# what the library computes


class Products(TorchFunctionMode):
    """The last two operands of every product of matrices by head."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ in ("matmul", "__matmul__", "bmm", "baddbmm"):
            tensors = [x for x in (*args, *(kwargs or {}).values()) if torch.is_tensor(x)]
            if tensors[-1].ndim > 2:  # otherwise, it is a linear layer's weight
                self.kept.append(tensors[-2:])
        return func(*args, **(kwargs or {}))


def computed(model, case):
    """Return what each attention module of the library computed for random text or sound, by kind.

    `q`, `k` and `v` are those of every head, as they enter the scores; `x_q` and `x_kv` what was
    projected; `norm_q` and `norm_kv` the norm whose output that is, and what it was given, or None;
    `inner` what each norm inside of the module was given, by the norm.
    """
    calls, attention, starts, own_products, products = [], [], {}, {}, Products()

    def begin(module, _):
        starts[module] = len(products.kept)

    def end(module, *_):
        own_products[module] = products.kept[starts[module] :]

    for name, module in model.named_modules():
        if re.search("Linear$|Conv1D|Norm", type(module).__name__):
            module.register_forward_hook(lambda module, x, y: calls.append((module, x, y)))
        kind = next((k for k, end in case.kinds.items() if re.search(f"{end}$", name)), None)
        if kind:
            attention.append((kind, module))
            module.register_forward_pre_hook(begin)
            module.register_forward_hook(end)
    torch.manual_seed(11)
    config = model.config.get_text_config()
    inputs = {"input_ids": torch.randint(3, D_VOCAB, (2, 11))}
    if config.model_type == "whisper":
        n = 2 * config.max_source_positions
        inputs = {"input_features": torch.randn(2, config.num_mel_bins, n)}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(3, D_VOCAB, (2, 9))
    elif getattr(config, "add_cross_attention", False):
        inputs["encoder_hidden_states"] = torch.randn(2, 11, config.hidden_size)
    with torch.no_grad(), products:
        model(**inputs)
    calls = [(module, x[0], y) for module, x, y in calls if x and torch.is_tensor(y)]
    norms = [call for call in calls if "Norm" in type(call[0]).__name__]

    def norm_before(x):
        return next(((m, given) for m, given, y in norms if torch.equal(y, x)), None)

    out = {kind: [] for kind in case.kinds}
    for kind, module in attention:
        own = {child: (x, y) for child, x, y in calls if child in set(module.children())}
        parts = [xy for child, xy in own.items() if "Norm" not in type(child).__name__]
        x_q, x_kv = parts[0][0], parts[1 if kind == "cross" else 0][0]
        (q, keys), *_, (_, v) = own_products[module]
        split = [x.reshape(len(x_q), -1, *x.shape[-2:]) for x in (q, keys.mT, v)]
        if model.config.model_type == "deberta-v2":  # its products have other operands
            n = case.settings["num_attention_heads"]
            split = [y.unflatten(-1, (n, -1)).transpose(1, 2) for _, y in parts[:3]]
        seen = SimpleNamespace(**dict(zip("qkv", split, strict=True)), x_q=x_q, x_kv=x_kv)
        seen.norm_q, seen.norm_kv, seen.module = norm_before(x_q), norm_before(x_kv), module
        seen.inner = {child: x for child, (x, _) in own.items()}
        out[kind].append(seen)
    return out


# what it would compute from the weights that are read


def projected(x, w, b, per_token):
    """Queries, keys or values: (sequence, head, token, d_head)."""
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
    places = range(heads.shape[2])
    return np.stack([rope.rotate(heads[:, :, i], i) for i in places], 2) if rope else heads


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
    module = source.module
    norms = (getattr(one.module, f"{part}_a_layernorm", None) for part in ("q", "kv"))
    of_q, of_kv = (scale_of(norm, one.inner.get(norm))[:, None] for norm in norms)
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


@pytest.mark.parametrize("name", CASES)
def test_heads_are_the_librarys_own(name, tmp_path):
    """Queries, keys and values of every layer, head and token, positions included; gains too."""
    case = CASES[name]
    model = built(case, tmp_path)
    seen = computed(model, case)
    scaling = getattr(getattr(model.base_model, "rotary_emb", None), "attention_scaling", 1.0)
    family, layers, _ = opened(tmp_path)
    assert family == model.config.get_text_config().model_type
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


def test_every_family_is_compared_and_documented():
    """A new family has a model here and a word in the documentation; sizes are the library's."""
    rare = {"deepseek_v4", "qwen2_vl", "qwen2_5_vl", "reformer"}
    assert set(FAMILIES) - rare <= {
        case.config.get_text_config().model_type for case in CASES.values()
    }
    text = (Path(__file__).parents[1] / "docs" / "real_models.md").read_text()
    assert {*FAMILIES, *ARCHITECTURES} - set(re.findall(r"`([^` ]+)`", text)) == set()
    for family, sizes in SPARSE.items():
        config = library().AutoConfig.for_model(family)
        assert {name: getattr(config, name) for name in sizes} == sizes, family


# configurations


def layers_of(shapes, config):
    """Return the layers of a model of tensors of these shapes, and its notes."""
    entries = {name: TensorEntry(shape, "F32", Path("made")) for name, shape in shapes.items()}
    file = TensorFile("made", entries, lambda name: np.full(shapes[name], 0.5, np.float32))
    return hugging_face_layers(file, config)[1:]


def refusal(shapes, config):
    """Return the one line that refuses a model."""
    with pytest.raises(Unreadable) as error:
        layers_of(shapes, config)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 2_000
    return str(error.value)


def llama_file(n_layers=3, prefix="model."):
    """Names and shapes of a Llama: 5 heads of width 4, one for keys and values, 7 inputs."""
    shapes = {}
    for layer in (f"{prefix}layers.{i}." for i in range(n_layers)):
        shapes |= {f"{layer}self_attn.{p}_proj.weight": (4, 7) for p in "kv"}
        shapes |= {f"{layer}self_attn.q_proj.weight": (20, 7)}
        shapes |= {f"{layer}input_layernorm.weight": (7,)}
    return shapes


LLAMA = {"model_type": "llama"} | settings(
    "hidden_size=7 num_hidden_layers=3 num_attention_heads=5 num_key_value_heads=1 head_dim=4 "
    "max_position_embeddings=64"
)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def frequencies(n_layers=3, shapes=None, **config):
    """Return the frequencies of a Llama's layers; None where no position is rotated."""
    config = LLAMA | {"num_hidden_layers": n_layers} | config
    ropes = [one.read().rope for one in layers_of(shapes or llama_file(n_layers), config)[0]]
    return [None if rope is None else rope.frequencies.tolist() for rope in ropes]


def test_angles_of_older_configurations():
    """Base, share and scaling stood elsewhere; what another rule scales is left out, and said."""
    linear = {"type": "linear", "factor": 2.0}
    for config, expected in (
        ({}, [1.0, 0.01]),
        ({"rope_theta": 100.0}, [1.0, 0.1]),
        ({"rope_theta": 100, "rope_scaling": linear}, [0.5, 0.05]),
        ({"partial_rotary_factor": 0.5}, [1.0]),
        ({"rope_parameters": {"rope_theta": 100.0, "rope_type": "default"}}, [1.0, 0.1]),
        ({"rope_scaling": YARN}, [1.0, pytest.approx(0.01 / 4)]),  # often turned: kept
        ({"rope_scaling": YARN | {"factor": None}}, [1.0, pytest.approx(0.01 / 2)]),
    ):
        assert frequencies(**config) == [expected] * 3, config
    gemma = {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    slow, usual = [0.125, 0.000125], [1.0, 0.01]
    assert frequencies(7, **gemma) == [usual] * 5 + [slow, usual]
    local = gemma | {"sliding_window_pattern": 2, "rope_local_base_freq": 100.0}
    assert frequencies(3, **local) == [[1.0, 0.1], slow, [1.0, 0.1]]
    assert frequencies(no_rope_layers=[1, 0, 1]) == [usual, None, usual]
    shapes = {"gpt_neox.layers.0.attention.query_key_value.weight": (48, 16)}
    shapes |= {"gpt_neox.layers.0.input_layernorm.weight": (16,)}
    neox = settings(
        "model_type='gpt_neox' hidden_size=16 num_attention_heads=1 rotary_pct=0.25 "
        "rotary_emb_base=100 head_dim=16"
    )
    assert frequencies(1, shapes, **neox) == [[1.0, 0.1]]
    # The rule "longrope" has other frequencies for long texts; YaRN may scale a part of a head.
    part = {"partial_rotary_factor": 0.5}
    longrope = {"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}
    for config, name in ((longrope, "'longrope'"), ({**part, "rope_scaling": YARN}, "'yarn'")):
        assert frequencies(**config) == [None] * 3
        assert any(name in note for note in layers_of(llama_file(), LLAMA | config)[1])
    assert None not in frequencies(**part, rope_scaling=YARN | {"attention_factor": 1.0})


def test_notes_say_what_is_not_shown():
    """Norms after the projection, caps, windows, what else the model is, and what is missing."""
    shapes = llama_file() | {f"model.layers.{i}.self_attn.q_norm.weight": (4,) for i in range(3)}
    shapes["vision_tower.layers.0.self_attn.q_proj.weight"] = (3, 3)
    config = LLAMA | {"attn_logit_softcapping": 50.0, "sliding_window": 128}
    _, notes = layers_of(shapes, config | {"no_rope_layers": [1, 0, 1]})
    assert {note.split()[0] for note in notes} == {"Queries", "Scores", "Some", "Only"}
    assert "Some layers have no rotary positions." in notes
    config |= {"use_sliding_window": False, "attn_logit_softcapping": None}
    assert layers_of(llama_file(), config)[1] == ()
    fields = {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}  # as in DeepSeek V3
    assert [layer.index for layer in layers_of(llama_file(3), LLAMA | fields)[0]] == [0, 1]
    shapes = {
        f"model.decoder.layers.0.{module}.{part}_proj.weight": (6, 6)
        for module in ("self_attn", "encoder_attn")
        for part in "qkv"
    }
    config = settings("model_type='bart' d_model=6 decoder_layers=1 decoder_attention_heads=2")
    layers, notes = layers_of(shapes, config)
    assert [layer.kind for layer in layers] == [Kind.CAUSAL, Kind.CROSS]
    assert notes == ("There is no encoder in the file, so cross-attention may be untrained.",)


def test_a_configuration_or_file_that_does_not_fit_is_refused():
    """The message names the field or tensor, what was found, and what is allowed."""
    for config, *words in (
        ({"model_type": None}, "model_type is None", "afmoe, albert"),
        ({"model_type": "mamba"}, "model_type is 'mamba'", "k_proj.weight"),
        ({"model_type": "bert"}, "encoder.layer.0.attention.self.query.weight"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0", "from 1"),
        ({"num_attention_heads": 10**5000}, "num_attention_heads is a huge number"),
        ({"num_attention_heads": 6}, "(20, 7)", "(24, 7)"),
        ({"num_key_value_heads": 2}, "5 heads cannot share 2"),
        ({"head_dim": None}, "width 7 cannot be divided among 5"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000", "3 layers"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0", "1e-30"),
        ({"rope_theta": 1.0, "rope_scaling": YARN}, "rope_theta", "above 1"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'", "object"),
        ({"rope_scaling": {"type": "llama3", "factor": 2.0}}, "low_freq_factor is missing"),
        ({"partial_rotary_factor": 1e9}, "of a head's 4 dimensions"),
        ({"layer_types": ["full_attention"]}, "layer_types", "a list of 3 words"),
        ({"is_causal": "no"}, "is_causal is 'no'", "true or false"),
    ):
        said = refusal(llama_file(), LLAMA | config)
        assert [word for word in words if word not in said] == []
    for config in (None, [], "llama"):
        assert "must be an object" in refusal(llama_file(), config)
    value = "model.layers.1.self_attn.v_proj.weight"
    for shapes, says in (
        ({n: s for n, s in llama_file().items() if n != value}, f"no tensor .{re.escape(value)}"),
        (llama_file() | llama_file(prefix="teacher."), r"several models.*'model\.', 'teacher\.'"),
        ({"model.layers.0.self_attn.q_proj.qweight": (3, 5)}, "take the unquantised model"),
        ({}, "the file holds nothing"),
        ({f"attn{i}": (1,) for i in range(17)}, r"'attn5' and 11 more$"),
        ({"attn\n\x1b[31m" + "x" * 10_000 + str(i): (1,) for i in range(100)}, "94 more"),
    ):
        assert re.search(says, refusal(shapes, LLAMA))


ANY = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
ANY = ANY | st.lists(ANY, max_size=3) | st.dictionaries(st.text(max_size=3), ANY, max_size=2)
ROPE = ("factor", "rope_theta", "beta_fast", "beta_slow", "mscale", "attention_factor", "truncate")


@pytest.fixture(
    scope="module", params=["Gemma4ForCausalLM", "DeepseekV3ForCausalLM", "FalconModel"]
)
def saved(request, tmp_path_factory):
    """A file and a configuration of each newer family; it knows the tensors that it needs."""
    folder = tmp_path_factory.mktemp("saved")
    built(CASES[request.param], folder)
    config, names = json.loads((folder / "config.json").read_text()), set()
    file = open_safetensors(find_files(str(folder)))
    kept = replace(file, load=lambda name: (names.add(name), file.load(name))[1])
    for layer in hugging_face_layers(kept, config)[1]:
        layer.read()
    return file, names, config


def test_a_missing_tensor_or_another_shape_is_named(saved):
    """Every tensor that is read is looked for first; only biases may be missing."""
    file, names, config = saved
    whole = {name: entry.shape for name, entry in file.entries.items()}
    for name in names:
        shapes = {**whole, name: (*whole[name], 3)}
        assert repr(name)[:60] in refusal(shapes, config)
        if name.endswith(".weight"):
            del shapes[name]
            said, missing = refusal(shapes, config), name.replace("ln_attn", "input_layernorm")
            expected = (f"no tensor {missing!r}", "layers", "no attention found")
            assert any(words in said for words in expected)


@briefly(25)
@given(data=st.data())
def test_any_configuration_is_read_or_refused(saved, data):
    """A configuration with any fields is read or raises Unreadable, and nothing else."""
    file, _, config = saved
    fields = data.draw(st.dictionaries(st.sampled_from(sorted(config)), ANY, max_size=3))
    rope = {"rope_type": data.draw(st.sampled_from(("yarn", "proportional", "llama3")))}
    rope |= data.draw(st.dictionaries(st.sampled_from(ROPE), ANY, max_size=4))
    with contextlib.suppress(Unreadable):
        for layer in hugging_face_layers(file, config | {"rope_parameters": rope} | fields)[1]:
            layer.read()
