"""Small models of the library `transformers`, random and saved; and what it computes in each head.

Queries, keys and values are taken from the library's own products of matrices: as they enter the
scores, split into heads, turned by position. Nothing of ours has a say in them.
"""

from __future__ import annotations

import ast
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from attnkit.realmodels.families import hugging_face_layers
from attnkit.realmodels.safetensors_file import open_safetensors
from attnkit.realmodels.sources import find_files

N_TOKENS = 11
N_TOKENS_OUT = 9
D_VOCAB = 23


@dataclass(frozen=True)
class Case:
    """A model of a family: class, configuration, and how its attention can be recorded.

    Attributes:
        kinds: End of the names of modules that are attention of each kind; the first one wins.
        pre_norm: Whether a norm with a gain stands right before every projection.
        divided: Whether queries are divided by √d_head before they enter the scores.
        linear: Whether its products have other operands, so that its projections are taken.
        first_bare: Whether the first layer has no norm of its own.
        saving: What the library is told when it saves, beside the folder.
    """

    name: str
    settings: dict
    kinds: dict
    family: str
    pre_norm: bool = False
    divided: bool = False
    linear: bool = False
    first_bare: bool = False
    saving: dict = field(default_factory=dict)
    dtype: torch.dtype = torch.float32


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
    kind = getattr(library(), case.name)
    config = kind.config_class(**case.settings)
    config._attn_implementation = "eager"
    torch.manual_seed(7)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape) * 0.3 + 0.1
            parameter.copy_(drawn.to(case.dtype))
    angles = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.to(case.dtype).save_pretrained(folder, **case.saving)
    model.float()
    for name, buffer in model.named_buffers():
        buffer.copy_(angles[name])  # they are not in the file
    return model


def save_tokenizer(folder, n_words):
    """Save a tokenizer of n words in a model's folder: "the", "word1" …, most of them never met."""
    import tokenizers

    words = {"[UNK]": 0} | {f"word{i}": i for i in range(1, n_words - 1)} | {"the": n_words - 1}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library().PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def opened(folder):
    """Return family, layers and notes of the model that the library saved in a folder."""
    config = json.loads(Path(folder, "config.json").read_text())
    return hugging_face_layers(open_safetensors(find_files(str(folder))), config)


def computed(model, case):
    """Return what each attention module of the library computed for random text, by kind.

    `q`, `k` and `v` are those of every head, as they enter the scores; `x_q` and `x_kv` what was
    projected; `norm_q` and `norm_kv` the norm whose output that is, and what it was given, or None;
    `inner` what each norm inside of the module was given, by the norm's name.
    """
    modules = {name: m for name, m in model.named_modules() if _kind(case, name)}
    given, inner = ({name: {} for name in modules} for _ in range(2))
    products, norms = {name: _Products(module) for name, module in modules.items()}, []
    for name, module in modules.items():
        for part, child in module.named_children():
            if type(child).__name__ in ("Linear", "Conv1D", "FalconLinear"):
                _keep(child, given[name], part)
            elif "Norm" in type(child).__name__:
                _keep(child, inner[name], part)
    for module in model.modules():
        if "Norm" in type(module).__name__:
            _keep(module, norms)
    with torch.no_grad():
        model(**_inputs(model.config.get_text_config()))
    out = {kind: [] for kind in case.kinds}
    for name, module in modules.items():
        parts = list(given[name].values())
        x_q, x_kv = parts[0][0], parts[1 if _kind(case, name) == "cross" else 0][0]
        (q, keys), *_, (_, v) = products[name].kept
        split = [x.reshape(len(x_q), -1, *x.shape[-2:]) for x in (q, keys.mT, v)]
        if case.linear:
            n = case.settings["num_attention_heads"]
            split = [y.unflatten(-1, (n, -1)).transpose(1, 2) for _, y in parts[:3]]
        seen = SimpleNamespace(**dict(zip("qkv", split, strict=True)), x_q=x_q, x_kv=x_kv)
        seen.norm_q, seen.norm_kv, seen.module = _norm(norms, x_q), _norm(norms, x_kv), module
        seen.inner = {part: x for part, (x, _) in inner[name].items()}
        out[_kind(case, name)].append(seen)
    return out


def _kind(case, name):
    return next((kind for kind, end in case.kinds.items() if re.search(f"{end}$", name)), None)


def _keep(module, where, name=None):
    """Keep what a module is given and returns: the last time, under a name, or every time."""

    def keep(module, x, y):
        if name is not None:
            where[name] = (x[0], y)
        elif x and torch.is_tensor(y):
            where.append((module, x[0], y))

    module.register_forward_hook(keep)


class _Products(TorchFunctionMode):
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


def _norm(norms, x):
    """The norm whose output this is, and what it was given."""
    return next(((m, given) for m, given, y in norms if torch.equal(y, x)), None)


def _inputs(config):
    """Random text, or sound."""
    torch.manual_seed(11)
    inputs = {"input_ids": torch.randint(3, D_VOCAB, (2, N_TOKENS))}
    if config.model_type == "whisper":
        n = 2 * config.max_source_positions
        inputs = {"input_features": torch.randn(2, config.num_mel_bins, n)}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(3, D_VOCAB, (2, N_TOKENS_OUT))
    elif getattr(config, "add_cross_attention", False):
        inputs["encoder_hidden_states"] = torch.randn(2, N_TOKENS, config.hidden_size)
    return inputs


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
        for a, b in zip(_products(read, x, y), _products(expected, x, y), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())
        for gain in ("gain_q", "gain_kv"):
            a, b = getattr(read, gain), getattr(expected, gain)
            assert (a is None) == (b is None)
            np.testing.assert_allclose([] if a is None else a, [] if b is None else b, rtol=1e-5)


def _products(read, x, y):
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
