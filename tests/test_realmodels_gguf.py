"""GGUF files of the library's models, as llama.cpp's converter writes them, against its own."""

import gguf
import numpy as np
import pytest
import torch
from library_models import Case, assert_same_layers, built, library, opened, settings

from attnkit.realmodels.base import Unreadable, per_head
from attnkit.realmodels.gguf_file import gguf_model, open_gguf

BASE = 5003.0


def shuffled(rows, n_heads):
    """As llama.cpp's converter does to Q and K of Llama's kind."""
    return rows.reshape(n_heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def as_converted(arch, name, rows, n_heads, n_kv_heads):
    """One tensor as llama.cpp's converter writes it."""
    if arch == "llama" and ("q_proj" in name or "k_proj" in name):
        rows = shuffled(rows, n_heads if "q_proj" in name else n_kv_heads)
    if arch == "gpt2" and ".h." in name:
        rows = rows.T
    if arch.startswith("gemma") and "norm" in name:
        rows = rows + 1
    return np.ascontiguousarray(rows)


def write_gguf(path, model, arch, keys, quantised=None, extra=None):
    """A transformers model as llama.cpp's converter writes it."""
    config = model.config
    n_heads = config.num_attention_heads
    n_kv_heads = getattr(config, "num_key_value_heads", None) or n_heads
    n_layers = config.num_hidden_layers
    words = [f"word{i}" for i in range(config.vocab_size)]
    keys = settings(
        f"block_count={n_layers} context_length=97 embedding_length={config.hidden_size} "
        f"feed_forward_length=37 vocab_size={config.vocab_size}"
    ) | {
        "attention.head_count": n_heads,
        "attention.head_count_kv": n_kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.layer_norm_epsilon": 1e-5,
        **keys,
    }
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("a name")
    writer.add_token_list(words)
    for name, value in keys.items():
        write = {int: "uint32", float: "float32", str: "string", list: "array"}[type(value)]
        getattr(writer, f"add_{write}")(f"{arch}.{name}", value)
    enum = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[arch]
    names = gguf.get_tensor_name_map(enum, n_layers)
    for name, tensor in model.state_dict().items():
        mapped = names.get_name(name, (".weight", ".bias"))
        if mapped is None or (mapped == "output.weight" and config.tie_word_embeddings):
            continue
        rows = as_converted(arch, name, tensor.numpy(), n_heads, n_kv_heads)
        if quantised is not None and rows.ndim == 2 and "attn" in mapped:
            writer.add_tensor(mapped, gguf.quants.quantize(rows, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(mapped, rows)
    for name, rows in (extra or {}).items():
        writer.add_tensor(name, rows)
    for i in range(n_layers if arch == "nomic-bert" else 0):
        own = model.layers[i].self_attn
        three = [getattr(own, f"{part}_proj").weight.detach().numpy() for part in "qkv"]
        writer.add_tensor(f"blk.{i}.attn_qkv.weight", np.concatenate(three))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def llama_like(d_head, n_heads=6, n_kv_heads=2, d_model=66, **more):
    """Return settings of a causal decoder; every size its own."""
    sizes = settings(
        "vocab_size=61 intermediate_size=37 num_hidden_layers=2 pad_token_id=0 "
        f"hidden_size={d_model} num_attention_heads={n_heads} num_key_value_heads={n_kv_heads}"
    )
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": BASE}}
    return sizes | rope | ({} if d_head is None else {"head_dim": d_head}) | more


LINEAR = {"rope_type": "linear", "factor": 3.0, "rope_theta": BASE}
PARTLY = {"rope_type": "default", "rope_theta": BASE, "partial_rotary_factor": 0.75}
LLAMA_3 = {"rope_type": "llama3", "rope_theta": BASE} | settings(
    "factor=7.0 low_freq_factor=1.0 high_freq_factor=4.0 original_max_position_embeddings=53"
)
GEMMA_3 = {k: v for k, v in llama_like(10, 4, 2, 52).items() if k != "rope_parameters"}
BERT = settings(
    "vocab_size=61 hidden_size=42 intermediate_size=37 num_hidden_layers=2 "
    "num_attention_heads=3 max_position_embeddings=97"
)
GPT_2 = {"vocab_size": 61, "n_positions": 97, "n_embd": 55, "n_layer": 2, "n_head": 5}
T5 = {"vocab_size": 61, "d_model": 47, "d_kv": 14, "d_ff": 37, "num_layers": 2, "num_heads": 3}
MODELS = {
    "llama": ("LlamaForCausalLM", llama_like(14), {}),
    "llama, stretched": (
        "LlamaForCausalLM",
        llama_like(10, 4, 4, 40, rope_parameters=LINEAR),
        {"rope.scaling.type": "linear", "rope.scaling.factor": 3.0},
    ),
    "qwen2": ("Qwen2ForCausalLM", llama_like(None, 5, 1, 70), {"attention.key_length": 14}),
    "qwen3": ("Qwen3ForCausalLM", llama_like(14), {}),
    "gemma": ("GemmaForCausalLM", llama_like(22, 5, 1, 55), {}),
    "gemma2": (
        "Gemma2ForCausalLM",
        llama_like(10, 4, 2, 52),
        {"attn_logit_softcapping": 2.0, "attention.sliding_window": 53},
    ),
    "gemma3": ("Gemma3ForCausalLM", GEMMA_3 | {"num_hidden_layers": 7}, {"rope.freq_base": 1e6}),
    "phi3": (
        "Phi3ForCausalLM",
        llama_like(None, 5, 5, 70, rope_parameters=PARTLY),
        {"attention.key_length": 14, "rope.dimension_count": 10},
    ),
    "gpt2": ("GPT2LMHeadModel", GPT_2, None),
    "bert": ("BertModel", BERT, None),
    "nomic-bert": ("NomicBertModel", {**BERT, "head_dim": 14}, {"rope.freq_base": 1e3}),
    "t5": ("T5ForConditionalGeneration", T5, None),
}
"""Class and settings of models, and keys of the header beside those of rotary positions, if any."""


def written(name, folder, quantised=None, extra=None, **keys):
    """Return a random model of the library, and its GGUF file."""
    kind, own, more = MODELS[name]
    arch = name.partition(",")[0]
    if more is not None:
        d_head = more.get("attention.key_length", own.get("head_dim"))
        turns = {"rope.freq_base": BASE, "rope.dimension_count": d_head}
        widths = {"attention.key_length": d_head, "attention.value_length": d_head}
        keys = {**turns, **widths, **more, **keys}
    elif name == "t5":
        keys |= {"attention.key_length": 14, "attention.value_length": 14}
    model = built(Case(kind, own, {}, arch), folder)
    return model, write_gguf(folder / "tiny-F16.gguf", model, arch, keys, quantised, extra)


@pytest.mark.parametrize("name", MODELS)
def test_a_gguf_file_is_read_as_the_librarys_own_file(tmp_path, name):
    """Heads, positions, biases and gains are those that the other reader finds."""
    _, path = written(name, tmp_path)
    model = gguf_model(path)
    _, theirs, notes = opened(tmp_path)
    assert (model.name, model.family, model.format) == ("tiny", name.partition(",")[0], "GGUF")
    assert_same_layers(model.layers, theirs)
    for words in ("normalised after the projection", "learned bias per distance"):
        assert any(words in note for note in model.notes) == any(words in note for note in notes)


@pytest.mark.parametrize("name", ["llama", pytest.param("gpt2", marks=pytest.mark.long)])
def test_the_library_reads_these_gguf_files(tmp_path, name):
    """Transformers' own reader of GGUF makes the same model of the file, so it is a true one."""
    model, path = written(name, tmp_path)
    kind = getattr(library(), MODELS[name][0])
    again = kind.from_pretrained(tmp_path, gguf_file=path.name, config=model.config)
    for name, weight in again.state_dict().items():
        torch.testing.assert_close(weight, model.state_dict()[name], msg=name)


def test_factors_in_the_file_slow_turns_down(tmp_path):
    """Llama 3's rotary positions: a tensor of factors beside the matrices."""
    case = Case("LlamaForCausalLM", llama_like(14, rope_parameters=LLAMA_3), {}, "llama")
    model = built(case, tmp_path)
    factors = BASE ** (-np.arange(0, 14, 2) / 14) / model.model.rotary_emb.inv_freq.numpy()
    keys = {"rope.freq_base": BASE, "rope.dimension_count": 14, "attention.key_length": 14}
    extra = {"rope_freqs.weight": factors.astype(np.float32)}
    path = write_gguf(tmp_path / "t.gguf", model, "llama", keys, extra=extra)
    assert_same_layers(gguf_model(path).layers, opened(tmp_path)[1])


def test_the_header_is_read(tmp_path):
    """Heads may differ between layers, unread scaling has a note, and vocabularies are skipped."""
    lists = {"attention.head_count": [6, 6], "attention.head_count_kv": [2, 2]}
    _, path = written("llama", tmp_path, **lists, **{"rope.scaling.type": "yarn"})
    model, file = gguf_model(path), open_gguf(path)
    assert [(layer.n_heads, layer.n_kv_heads) for layer in model.layers] == [(6, 2)] * 2
    assert model.layers[0].read().rope is None
    assert any("distance 0" in note for note in model.notes)
    assert file.metadata["general.name"] == "a name"
    assert file.metadata["llama.embedding_length"] == 66
    assert "tokenizer.ggml.tokens" not in file.metadata
    assert file.shapes["blk.1.attn_k.weight"] == (28, 66)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_1", "Q5_0", "BF16"])
def test_quantised_weights_are_those_the_library_makes_of_them(tmp_path, name):
    """Value for value; a note says so, but for the halves of single precision."""
    quantised = gguf.GGMLQuantizationType[name]
    case = Case("LlamaForCausalLM", llama_like(16, 6, 2, 96), {}, "llama")
    model = built(case, tmp_path)
    keys = {"attention.key_length": 16, "rope.dimension_count": 16}
    path = write_gguf(tmp_path / "t.gguf", model, "llama", keys, quantised)
    read, file = gguf_model(path), open_gguf(path)
    for layer, own in zip(read.layers, model.model.layers, strict=True):
        for role, n in (("Q", 6), ("K", 2), ("V", 2)):
            rows = getattr(own.self_attn, f"{role.lower()}_proj").weight.detach().numpy()
            # Blocks lie within rows, so the order of rows does not matter.
            rounded = gguf.quants.dequantize(gguf.quants.quantize(rows, quantised), quantised)
            found = getattr(layer.read(), f"W_{role}")
            np.testing.assert_array_equal(found, per_head(rounded, n))
    assert file.type_of("blk.0.attn_q.weight") == name
    assert any(name in note for note in read.notes) == (name != "BF16")


def test_a_model_is_called_as_its_file(tmp_path):
    """Without the type of its numbers; a file that is just called model says it in its header."""
    _, path = written("gpt2", tmp_path)
    for file, name in (
        ("model.gguf", "a name"),
        ("Some-Thing.Q4_K_M.gguf", "Some-Thing"),
        ("x-f16.gguf", "x"),
    ):
        path = path.rename(tmp_path / file)
        assert gguf_model(path).name == name


def test_an_architecture_that_is_not_read_is_named_with_those_that_are(tmp_path):
    """Nothing is guessed."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_tensor("blk.0.attn_q.weight", np.ones((3, 5), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(Unreadable, match=r"'mamba' is not read; those read are llama, qwen2"):
        gguf_model(path)
