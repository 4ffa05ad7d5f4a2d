"""Models of the library as GGUF and as model.bin: read as the library's own file of them is.

GGUF is written as llama.cpp's converter does, with its package; a model.bin by CTranslate2's own.
"""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch
from ctranslate2.converters import TransformersConverter
from ctranslate2.specs import TransformerDecoderModelSpec
from family_models import CASES, D_VOCAB, DAY, Case, built, opened, settings

from attnkit.realmodels.base import per_head
from attnkit.realmodels.ctranslate2_file import ctranslate2_model, open_ctranslate2
from attnkit.realmodels.errors import CONVERT, Unreadable
from attnkit.realmodels.gguf_file import gguf_model, open_gguf

N_TOKENS = 11

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
    if arch == "gpt2" and "h." in name:
        rows = rows.T
    if arch in SHIFTED and "norm" in name:
        rows = rows + 1
    return np.ascontiguousarray(rows)


def header_of(config):
    """Return the keys that the converter derives from a configuration."""
    fields = config.to_dict()
    n_heads = config.num_attention_heads
    width = fields.get("d_kv") or fields.get("head_dim") or config.hidden_size // n_heads
    keys = settings(
        f"block_count={config.num_hidden_layers} context_length=97 feed_forward_length=37 "
        f"embedding_length={config.hidden_size} vocab_size={D_VOCAB} attention.head_count={n_heads}"
        f" attention.key_length={width} attention.value_length={width} "
        "attention.layer_norm_rms_epsilon=1e-6 attention.layer_norm_epsilon=1e-5"
    )
    keys["attention.head_count_kv"] = fields.get("num_key_value_heads") or n_heads
    positions = fields.get("rope_parameters") or {}
    full = positions.get("full_attention", positions)
    if "rope_theta" in full:
        share = full.get("partial_rotary_factor") or 1
        keys |= {"rope.freq_base": full["rope_theta"], "rope.dimension_count": int(width * share)}
    if "sliding_attention" in positions:
        keys["rope.freq_base_swa"] = positions["sliding_attention"]["rope_theta"]
    if (rule := full.get("rope_type")) in ("linear", "yarn"):
        keys |= {"rope.scaling.type": rule, "rope.scaling.factor": full["factor"]}
    if rule == "yarn":
        length = full["original_max_position_embeddings"]
        keys["rope.scaling.original_context_length"] = length
        for name in {"beta_fast", "beta_slow"} & set(full):
            keys[f"rope.scaling.yarn_{name}"] = float(full[name])
    if "num_decoder_layers" in fields:
        keys["decoder_block_count"] = fields["num_decoder_layers"]
    return keys


def write_gguf(path, model, arch, quantised=None, extra=None, without="nothing", **keys):
    """Write a model; keys of the header and tensors are derived from it, or given."""
    keys = header_of(model.config) | keys
    told = keys["attention.head_count_kv"]
    heads = model.config.num_attention_heads, max(told) if isinstance(told, list) else told
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("a name")
    writer.add_token_list([f"word{i}" for i in range(D_VOCAB)])
    for name, value in keys.items():
        write = {int: "uint32", float: "float32", str: "string", list: "array"}[type(value)]
        getattr(writer, f"add_{write}")(f"{arch}.{name}", value)
    enum = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[arch]
    names = gguf.get_tensor_name_map(enum, model.config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        mapped = next(
            (
                found
                for start in ("", "model.", "transformer.", "bert.", "gpt_neox.")
                if (found := names.get_name(start + name, (".weight", ".bias")))
            ),
            without,
        )
        if mapped.endswith(without) or (
            mapped == "output.weight" and model.config.tie_word_embeddings
        ):
            continue
        rows = as_converted(arch, name, tensor.numpy(), *heads)
        if quantised is not None and rows.ndim == 2 and "attn" in mapped:
            writer.add_tensor(mapped, gguf.quants.quantize(rows, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(mapped, rows)
    for name, rows in (extra or {}).items():
        writer.add_tensor(name, np.ascontiguousarray(rows))
    return finished(writer, path)


def finished(writer, path):
    """Write what a writer has, and return the path."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_OF_GEMMA_4 = "num_key_value_heads", "global_head_dim", "head_dim"


def beside(arch, model, name):
    """Return tensors that the converter makes anew, the end of those that they replace, and keys.

    Newer files of DeepSeek have the second step of keys and of values apart; Gemma 4 rotates a
    quarter of the dimensions of wide heads, and Nomic's three matrices are one.
    """
    config, extra, without, keys = model.config, {}, "nothing", {}
    has_own = arch in ("deepseek2", "nomic-bert")
    layers = [one.self_attn for one in model.base_model.layers] if has_own else []
    if arch == "deepseek2":
        plain, turned, wide = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
        latent = config.kv_lora_rank
        keys = {
            "attention.key_length": latent + turned, "attention.value_length": latent,
            "attention.key_length_mla": plain + turned, "attention.value_length_mla": wide,
            "attention.kv_lora_rank": latent, "attention.q_lora_rank": config.q_lora_rank,
            "attention.head_count_kv": 1, "rope.dimension_count": turned,
        }  # fmt: skip
        keys = {key: value for key, value in keys.items() if value is not None}
        if name.endswith("1"):
            without = "attn_kv_b.weight"
            for i, own in enumerate(layers):
                rows = own.kv_b_proj.weight.detach().numpy().reshape(-1, plain + wide, latent)
                parts = ("k_b", rows[:, :plain].swapaxes(1, 2)), ("v_b", rows[:, plain:])
                extra |= {f"blk.{i}.attn_{part}.weight": w for part, w in parts}
    elif arch == "gemma4":
        given = CASES[name].settings  # the configuration does not keep all of it
        own, n_dims, width = (given[field] for field in _OF_GEMMA_4)
        full = given["num_global_key_value_heads"] if given["attention_k_eq_v"] else None
        n_turned = int(n_dims * 0.25) // 2
        factors = [1.0] * n_turned + [1e30] * (n_dims // 2 - n_turned)
        extra = {"rope_freqs.weight": np.float32(factors)}
        is_local = [kind == "sliding_attention" for kind in given["layer_types"]]
        keys = {
            "attention.key_length": n_dims, "attention.key_length_swa": width,
            "rope.dimension_count": n_dims, "rope.dimension_count_swa": width,
            "attention.head_count_kv": [own if local else full or own for local in is_local],
            "attention.shared_kv_layers": given["num_kv_shared_layers"],
            "attention.sliding_window_pattern": is_local,
        }  # fmt: skip
    elif arch == "nomic-bert":
        for i, own in enumerate(layers):
            three = [getattr(own, f"{part}_proj").weight.detach().numpy() for part in "qkv"]
            extra[f"blk.{i}.attn_qkv.weight"] = np.concatenate(three)
    elif arch == "lfm2":
        kinds = config.layer_types
        n = config.num_key_value_heads
        keys = {"attention.head_count_kv": [n * (kind == "full_attention") for kind in kinds]}
    elif arch == "falcon":
        keys = {"attention.head_count_kv": config.num_kv_heads}
    elif arch == "starcoder":
        keys = {"attention.head_count_kv": 1}
    elif arch == "modern-bert":
        keys = {"attention.sliding_window_pattern": 3}
    return extra, without, keys


GGUF = dict(
    pair.split(":")[::-1]
    for pair in (
        "llama:LlamaForCausalLM llama:LlamaModel qwen2:Qwen2Model qwen3:Qwen3ForCausalLM "
        "gemma:GemmaForCausalLM gemma2:Gemma2Model gemma3:Gemma3ForCausalLM phi3:Phi3Model "
        "gpt2:GPT2Model qwen3moe:Qwen3MoeModel qwen2moe:Qwen2MoeModel gpt-oss:gpt_oss-1 "
        "olmo2:Olmo2Model smollm3:SmolLM3Model granite:GraniteModel glm4:Glm4Model "
        "mistral3:Ministral3ForCausalLM starcoder2:Starcoder2Model falcon:falcon-1 "
        "deepseek2:deepseek_v2-0 deepseek2:deepseek_v2-1 gptneox:GPTNeoXModel "
        "modern-bert:ModernBertModel gemma-embedding:Gemma3TextModel phi2:PhiModel "
        "stablelm:StableLmModel gemma4:gemma4_text-10 qwen2vl:Qwen2VLTextModel "
        "qwen3next:Qwen3NextModel lfm2:Lfm2Model llama4:Llama4ForCausalLM cohere2:Cohere2Model "
        "command-r:CohereModel olmo:OlmoModel bloom:bloom-0 starcoder:GPTBigCodeModel mpt:mpt-0 "
        "bert:BertModel nomic-bert:NomicBertModel t5:T5ForConditionalGeneration"
    ).split()
)
CTRANSLATE2 = {
    "LlamaForCausalLM": "decoder", "LlamaModel": "decoder", "Qwen3ForCausalLM": "decoder",
    "GemmaForCausalLM": "decoder", "GPT2Model": "decoder", "gptj-0": "decoder",
    "BertModel": "encoder", "DistilBertModel": "encoder", "MarianMTModel": "encoder-decoder",
    "BartForConditionalGeneration": "encoder-decoder",
    "WhisperForConditionalGeneration": "whisper", "T5ForConditionalGeneration": "encoder-decoder",
}  # fmt: skip
"""Architecture of GGUF and family of CTranslate2, by models of the library."""

# CTranslate2


def converted(folder, quantization=None, n_words=D_VOCAB):
    """Return the model.bin of a model that the library has saved."""
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


# comparison


def products_of(read, x, y):
    """Return products of queries and keys with each other, positions included, and values."""
    made = [
        rows @ w + (0 if b is None else b[:, None])
        for rows, w, b in (
            (x, read.W_Q.astype(float), read.b_Q),
            (y, read.W_K.astype(float), read.b_K),
            (y, read.W_V.astype(float), read.b_V),
        )
    ]
    if read.rope is not None:
        made[:2] = (
            np.stack([read.rope.rotate(one[:, i], i) for i in range(N_TOKENS)], 1)
            for one in made[:2]
        )
    q, k, v = made
    repeated = k.repeat(len(q) // len(k), 0)
    return [a @ b.swapaxes(1, 2) for a, b in ((q, q), (q, repeated), (k, k))] + [v]


def assert_same_layers(ours, theirs):
    """Check that two readers found the same layers, in whatever order a head's dimensions are."""
    places = [
        [(layer.kind, layer.index, layer.n_heads, layer.n_kv_heads) for layer in layers]
        for layers in (ours, theirs)
    ]
    assert places[0] == places[1]
    rng = np.random.default_rng(3)
    for layer, other in zip(ours, theirs, strict=True):
        read, expected = layer.read(), other.read()
        x = rng.standard_normal((N_TOKENS, read.W_Q.shape[1]))
        y = rng.standard_normal((N_TOKENS, read.W_K.shape[1]))
        for a, b in zip(products_of(read, x, y), products_of(expected, x, y), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())
        for gain in ("gain_q", "gain_kv"):
            a, b = getattr(read, gain), getattr(expected, gain)
            assert (a is None) == (b is None)
            np.testing.assert_allclose([] if a is None else a, [] if b is None else b, rtol=1e-5)


NIGHT = set(GGUF) - DAY - {"GPT2Model"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in NIGHT else [])
        for name in dict.fromkeys([*GGUF, *CTRANSLATE2])
    ],
)
def test_other_formats_are_read_as_the_librarys_own_file(tmp_path, name):
    """Heads, positions, biases, gains and notes are those that the other reader finds."""
    case = CASES[name]
    if name in ("MarianMTModel", "BartForConditionalGeneration"):  # its sides are alike
        case = replace(case, settings=case.settings | {"decoder_attention_heads": 3})
    model = built(case, tmp_path)
    _, theirs, notes = opened(tmp_path)
    found = []
    if arch := GGUF.get(name):
        extra, without, keys = beside(arch, model, name)
        path = tmp_path / "tiny-F16.gguf"
        write_gguf(path, model, arch, extra=extra, without=without, **keys)
        found.append(gguf_model(path))
        assert (found[-1].name, found[-1].family, found[-1].format) == ("tiny", arch, "GGUF")
    if family := CTRANSLATE2.get(name):
        read = ctranslate2_model(converted(tmp_path, n_words=D_VOCAB - (name == "MarianMTModel")))
        assert (read.name, read.family, read.format) == ("tiny", family, "CTranslate2")
        found.append(read)
    for read in found:
        assert_same_layers(read.layers, theirs)
        for words in ("normalised after the projection", "learned bias per distance"):
            assert any(words in one for one in read.notes) == any(words in one for one in notes)


def test_the_header_of_gguf_is_read(tmp_path):
    """Heads may differ between layers; vocabularies are skipped; a file's name may name a model.

    The factors of Llama 3's positions are a tensor of the file; another rule gets a note and no
    frequencies, as in a model.bin, which has no factors.
    """
    case = CASES["LlamaModel 2"]
    model = built(replace(case, name="LlamaForCausalLM"), tmp_path)
    turns = 500.0 ** (-np.arange(0, 8, 2) / 8)
    factors = np.float32(turns / model.model.rotary_emb.inv_freq.numpy())
    extra = {"rope_freqs.weight": factors}
    lists = {"attention.head_count": [4] * 3, "attention.head_count_kv": [2] * 3}
    path = write_gguf(tmp_path / "tiny.gguf", model, "llama", extra=extra, **lists)
    file, keys = open_gguf(path)
    assert_same_layers(gguf_model(path).layers, opened(tmp_path)[1])
    assert keys.values["llama.embedding_length"] == 24
    assert "tokenizer.ggml.tokens" not in keys.values
    assert file.entries["blk.1.attn_k.weight"].shape == (16, 24)
    for name, expected in (
        ("model.gguf", "a name"),
        ("Some-Thing.Q4_K_M.gguf", "Some-Thing"),
        ("x-f16.gguf", "x"),
    ):
        path = path.rename(tmp_path / name)
        assert gguf_model(path).name == expected
    longrope = {"rope.scaling.type": "longrope"}
    for read in (
        ctranslate2_model(converted(tmp_path)),
        gguf_model(write_gguf(path, model, "llama", **longrope)),
    ):
        assert read.layers[0].read().rope is None
        assert any("distance 0" in note for note in read.notes)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_1", "BF16"])
def test_quantised_weights_of_gguf_are_those_its_package_makes(tmp_path, name):
    """Value for value; a note says so, but for the halves of single precision."""
    quantised = gguf.GGMLQuantizationType[name]
    sizes = CASES["LlamaForCausalLM"].settings | {"hidden_size": 32}
    model = built(Case("LlamaForCausalLM", sizes, {}, ""), tmp_path)
    path = write_gguf(tmp_path / "t.gguf", model, "llama", quantised)
    read = gguf_model(path)
    for layer, own in zip(read.layers, model.model.layers, strict=True):
        for role, n in (("Q", 4), ("K", 2), ("V", 2)):
            rows = getattr(own.self_attn, f"{role.lower()}_proj").weight.detach().numpy()
            # Blocks lie within rows, so the order of rows does not matter.
            rounded = gguf.quants.dequantize(gguf.quants.quantize(rows, quantised), quantised)
            np.testing.assert_array_equal(getattr(layer.read(), f"W_{role}"), per_head(rounded, n))
    assert open_gguf(path)[0].entries["blk.0.attn_q.weight"].type == name
    assert any(name in note for note in read.notes) == (name != "BF16")


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16"])
def test_rounded_weights_of_a_model_bin_are_near_the_librarys(tmp_path, quantization):
    """Whole numbers are divided by the scale of their row, and a note says that they are whole.

    Layers that are alike stand in the file once, and another name for the second.
    """
    model = built(CASES["GPT2Model"], tmp_path)
    with torch.no_grad():
        for name in ("weight", "bias"):
            first, second = (getattr(model.h[i].attn.c_attn, name) for i in (0, 1))
            second.copy_(first)
    model.save_pretrained(tmp_path)
    found = ctranslate2_model(converted(tmp_path, quantization))
    for own, layer in zip(model.h, found.layers, strict=True):
        rows = own.attn.c_attn.weight.detach().numpy().T
        scale = np.abs(rows).max(1, keepdims=True)
        step = {
            "int8": scale / 127,
            "int16": scale.max() / 2**10,
            "float16": np.abs(rows) * 2**-10 + 2**-24,
            "bfloat16": np.abs(rows) * 2**-7,
        }[quantization]
        read = layer.read()
        allowed = np.broadcast_to(step, rows.shape) * 0.51
        for w, part in zip((read.W_Q, read.W_K, read.W_V), range(3), strict=True):
            theirs, off = (per_head(np.split(a, 3)[part], 3) for a in (rows, allowed))
            assert (np.abs(w - theirs) <= off).all()
            assert np.abs(w - theirs).max() > 0
    assert any(quantization in note for note in found.notes) == quantization.startswith("int")


def test_what_is_not_read_is_refused_with_what_to_do(tmp_path):
    """Pickles, which are never opened, other versions and architectures, and no attention."""
    path = tmp_path / "model.bin"
    for start in (b"PK\x03\x04zip", b"\x80\x02}q\x00.", b"(lp0\n.", b"cposix\n"):
        path.write_bytes(start + bytes(97))
        with pytest.raises(Unreadable, match=re.escape(CONVERT)):
            open_ctranslate2(path)
    for version in (0, 3, 7):
        path.write_bytes(version.to_bytes(4, "little") + bytes(97))
        with pytest.raises(Unreadable, match=f"version {version}, .*convert"):
            open_ctranslate2(path)
    spec = TransformerDecoderModelSpec.from_config(0, 3)
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = np.ones((5, 7), np.float32)
    spec.decoder.layer_norm.gamma = spec.decoder.layer_norm.beta = np.ones(7, np.float32)
    spec.register_vocabulary([f"word{i}" for i in range(5)])
    spec.validate()
    spec.save(str(tmp_path))
    with pytest.raises(Unreadable, match=r"no attention by name.*'decoder/"):
        ctranslate2_model(path)
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "mamba")
    writer.add_tensor("blk.0.attn_q.weight", np.ones((3, 5), np.float32))
    with pytest.raises(Unreadable, match=r"'mamba'.* llama, "):
        gguf_model(finished(writer, tmp_path / "tiny.gguf"))
