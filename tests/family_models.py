"""Small random models of the families of transformers, and what they themselves compute."""

import inspect
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from attnkit.realmodels import Kind

D_VOCAB, N_TOKENS, N_TEXTS = 97, 4, 2

_TINY = {
    "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
    "num_decoder_layers num_encoder_layers": 2,
    "hidden_size d_model n_embd embedding_size dim": 64,
    "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
    "decoder_attention_heads": 4,
    "num_key_value_heads index_n_heads linear_num_key_heads num_experts_per_tok": 2,
    "head_dim d_kv index_head_dim linear_key_head_dim linear_value_head_dim": 16,
    "intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff ffn_dim ffn_hidden_size": 48,
    "num_experts n_routed_experts num_local_experts moe_num_experts linear_num_value_heads": 4,
    "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size": 32,
    "max_position_embeddings n_positions max_target_positions": 64,
    "num_mel_bins max_source_positions": 16,
    "q_lora_rank": 24, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
    "v_head_dim": 14, "rotary_dim": 8, "vocab_size": D_VOCAB, "n_group topk_group": 1,
    "pad_token_id": 0, "bos_token_id decoder_start_token_id": 1, "eos_token_id": 2,
    "rope_parameters layer_types": None, "num_kv_shared_layers": 0,
}  # fmt: skip
TINY = {name: value for names, value in _TINY.items() for name in names.split()}
"""Fields of configurations, those that a family has."""

_PER_LAYER = {"layer_types", "layers_block_type", "attn_layer_period", "full_attention_interval"}
"""Fields of families whose layers differ."""


def library():
    """Return the module that reads families, and whose packages CI must have."""
    try:
        from attnkit.realmodels import library as found
    except ImportError:
        assert not os.environ.get("CI"), "CI needs transformers (pip install 'attnkit[dev]')"
        pytest.skip("transformers is not installed (extra `models`)")
    found.transformers.utils.logging.disable_progress_bar()
    found.transformers.utils.logging.set_verbosity_error()
    return found


def small(family, **fields):
    """Return a configuration of small sizes, of the part that reads text."""
    cls = library().CONFIG_MAPPING[family]
    default = cls().get_text_config()
    cls, known = type(default), default.to_dict()
    names = known.keys() | (getattr(cls, "attribute_map", None) or {})
    tiny = {name: TINY[name] for name in TINY if name in names}
    for name in ("num_key_value_heads", "head_dim", "layer_types", "pad_token_id", "bos_token_id"):
        if known.get(name) is None and name not in fields:
            tiny.pop(name, None)
    if _PER_LAYER & known.keys():
        tiny = {name: 6 if name.endswith("num_hidden_layers") else tiny[name] for name in tiny}
    if "kv_lora_rank" in known:
        tiny = {**tiny, "num_key_value_heads": 4}
        tiny.pop("head_dim", None)
    try:
        return cls(**{**tiny, **fields})
    except Exception:  # fields that may not be null
        rest = {k: v for k, v in tiny.items() if k not in ("layer_types", "rope_parameters")}
        return cls(**{**rest, **fields})


def built(family, folder, **fields):
    """Return a model with random weights and gains and without biases, also saved in a folder."""
    config = small(family, **fields)
    cls = library().class_of(config) or library().transformers.AutoModel
    make = getattr(cls, "_from_config", None) or cls.from_config
    torch.manual_seed(7)
    with torch.device("meta"):
        n = sum(p.numel() for p in make(config).parameters())
    assert n < 2e8, f"too large to be built here: {n:,} numbers"
    options = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = make(config, **options).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            gain = 1.0 if p.ndim == 1 and name.endswith("weight") else 0.0
            p.copy_(gain + torch.randn(p.shape) * (0.0 if "bias" in name else 0.1))
    model.save_pretrained(folder)
    return model


class Products(TorchFunctionMode):
    """Context that keeps the factors of some of a run's products, by their index."""

    def __init__(self, wanted):
        super().__init__()
        self.n, self.wanted, self.factors = 0, wanted, {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Do an operation, and keep its factors."""
        from attnkit.realmodels import tracing

        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        pair = tracing._factors(name, args, kwargs) if name in tracing._PRODUCTS else None
        if name == "scaled_dot_product_attention":
            q, k, v = (*args, *(kwargs[n] for n in ("query", "key", "value") if n in kwargs))[:3]
            pair, self.n = (q, k.mT, v), self.n + 1
        if pair is not None:
            self.n += 1
            self.factors |= {self.n: pair} if self.n in self.wanted else {}
        return func(*args, **kwargs)


def texts_for(model):
    """Return random inputs of a model."""
    rng = torch.Generator().manual_seed(1)
    ids = torch.randint(3, D_VOCAB - 7, (N_TEXTS, N_TOKENS), generator=rng)
    known = inspect.signature(model.forward).parameters
    inputs = {name: ids for name in ("input_ids", "decoder_input_ids") if name in known}
    if "input_features" in known:
        shape = N_TEXTS, model.config.num_mel_bins, 2 * model.config.max_source_positions
        inputs["input_features"] = torch.randn(shape, generator=rng)
    return inputs | ({"use_cache": False} if "use_cache" in known else {})


def own_heads(model):
    """Run a model, and yield kind, inputs and heads of its layers, by role, and what is compared.

    Its norms of queries and keys are left out, and those of latent vectors only multiply by their
    gain, as `read` does it.
    """
    from attnkit.realmodels import tracing

    trace = library().traced(library().build(model.config, type(model)))
    named, latent = dict(model.named_modules()), set()
    parts = (rows for one in trace.layers for rows in (one.q, one.k, one.v))
    for number in {int(n) for rows in parts for n in np.unique(rows[..., 0])}:
        inputs = tracing.latent_inputs(trace, number)
        latent |= set() if inputs is None else set(trace.modules[int(inputs[0, 0])].norms)
    for norm in {norm for one in trace.modules.values() for norm in one.norms}:
        module, gain = named[trace.modules[norm].name], 1.0
        if norm in latent and getattr(module, "weight", None) is not None:
            gain = module.weight.detach() + library()._added(module, len(module.weight))
        module.forward = lambda x, *_, gain=gain, **__: x * gain
    for module in named.values():
        if tracing._UNREAD.search(type(module).__name__):
            module.forward = lambda hidden_states, *_, **__: hidden_states
    seen = {}
    for one in trace.modules.values():

        def keep(_, args, name=one.name):  # what a hook returns would replace the inputs
            seen.setdefault(name, args[0].detach())

        named[one.name].register_forward_pre_hook(keep)
    products = Products({n for layer in trace.layers for n in layer.product})
    with torch.no_grad(), products:
        model(**texts_for(model))
    done, found = set(), []
    for layer in trace.layers:
        place = int(layer.q[0, 0, 0]), int(layer.k[0, 0, 0])
        if place in done:
            continue
        done.add(place)
        kept = tracing.without_rotary_part(trace, layer)
        both = (kept.q[0][None] == layer.q[0][:, None]).all(-1).any(1)
        scores, values = (products.factors[n] for n in layer.product)
        parts = {"Q": scores[0], "K": scores[1].mT, "V": values[-1]}
        roots = (tracing.root_of(trace, int(rows[0, 0, 0])) for rows in (kept.q, kept.k, kept.v))
        inputs = {role: seen[root.name] for role, root in zip(parts, roots, strict=True)}
        kind = Kind.CROSS if tracing.is_cross(trace, layer) else layer.kind
        found.append((kind, inputs, parts, np.flatnonzero(both)))
    yield from sorted(found, key=lambda one: list(Kind).index(one[0]))


def assert_own_heads(model, layers):
    """Check that all heads of some layers are a model's own queries, keys and values, turned too.

    They are up to one factor, the scale of scores, and within the rounding of single precision.
    """
    every = list(own_heads(model))
    assert [one.kind for one in layers] == [kind for kind, *_ in every]
    for layer, (_, inputs, parts, kept) in zip(layers, every, strict=True):
        read = layer.read()
        for role, part in parts.items():
            x = inputs[role].numpy().astype(float)
            x = x.reshape(N_TEXTS, -1, x.shape[-1])[0]
            part = part.reshape(N_TEXTS, -1, *part.shape[-2:])[0].numpy().astype(float)
            part = part if role == "V" else part[..., kept]
            w = getattr(read, f"W_{role}").astype(float)
            w = np.repeat(w, len(part) // len(w), 0)
            scale = None
            every = read.rope is not None if role != "V" else not read.k_is_v
            n = min(part.shape[1], len(x)) if every else 1
            for p in range(n):
                turned = w if role == "V" or read.rope is None else read.rope.rotate(w, p)
                ours, theirs = x[p] @ turned, part[:, p]
                if scale is None:
                    scale = (ours * theirs).sum() / (ours**2).sum()
                np.testing.assert_allclose(
                    scale * ours, theirs, atol=(3e-4 if p else 2e-5) * np.abs(theirs).max(), rtol=0
                )


def save_tokenizer(folder, n_words=D_VOCAB):
    """Save a tokenizer of n words in a model's folder: "the", "word1" …, most of them never met."""
    import tokenizers

    words = {"[UNK]": 0} | {f"word{i}": i for i in range(1, n_words - 1)} | {"the": n_words - 1}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = library().transformers.PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer).save_pretrained(folder)


def converted(folder, quantization=None, n_words=D_VOCAB):
    """Return the model.bin that CTranslate2 makes of a model that the library has saved."""
    from ctranslate2.converters import TransformersConverter

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


def assert_heads(model, rows, d_head=2, atol=0.0):
    """Check every head against the rows that were written for its layer, (h·d, m), by letters."""
    for layer, own in zip(model.layers, rows, strict=True):
        read = layer.read()
        for role in "qkv":
            heads = own[role].reshape(-1, d_head, own[role].shape[-1]).swapaxes(1, 2)
            found = getattr(read, f"W_{role.upper()}")
            np.testing.assert_allclose(found, heads, rtol=0, atol=atol)
