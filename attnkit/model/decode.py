"""Decoding of one token at a time with a cache, whose size `kv_cache` or `ready_cache` counts.

Training does not use it and it is not fast: it lets tests compare the counted size with a real
cache, and lets you see what a variant's cache contains.

A decoder can cache two things. The vectors from which keys and values are computed are often fewer
numbers, but all rules, such as norms and rotations, are then applied to every cached token at every
step. Keys and values that are ready for use need no further computation.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.model.heads import KeysAndValues
from attnkit.model.model import SELF_MASK, Model


class Decoder:
    """Decoder that runs one causal model token by token.

    Args:
        model: Model with the run.
        run: Index of the run in the model.
        ready: Whether it caches keys and values as they enter the scores and the output. If both
            are the same tensor, it is cached once.

    Attributes:
        cache: For every layer, the cached vectors: name → (1, 1, heads, tokens so far, width). If
            they are ready, the names are K and V, or only K. Layers that use another layer's keys
            and values have an empty cache.

    Raises:
        ValueError: If the model is not causal, because its earlier tokens would see later ones; or
            if its task has a source sequence.
    """

    def __init__(self, model: Model, run: int, *, ready: bool = False) -> None:
        self._ready = ready
        variant = model.variants[run // len(model.seeds)]
        self._wiring = model.wirings[variant]
        if not self._wiring.sizes.causal:
            raise ValueError("causal: got False, allowed True: a decoder cannot see later tokens")
        if model.task.n_source:
            raise ValueError("task: a decoder reads one sequence, but this task has two sides")
        weights = {name: weight.unsqueeze(0) for name, weight in model.run_parameters(run).items()}
        self._transformer = model.transformer(variant, weights)
        self._heads = [self._transformer.heads(layer) for layer in range(model.size.n_layers)]
        self.cache: list[dict[str, Tensor]] = [{} for _ in self._heads]

    @property
    def n_tokens(self) -> int:
        """Number of tokens that have been read."""
        return max((rows.shape[3] for cache in self.cache for rows in cache.values()), default=0)

    @torch.no_grad()
    def read(self, token: Int64[Tensor, " fields"]) -> Float[Tensor, " c"]:
        """Read the next token and return its logits."""
        position, transformer = self.n_tokens, self._transformer
        x = transformer.embed(token.view(1, 1, 1, -1), position)  # (1, 1, 1, m)
        below = list[KeysAndValues]()
        for layer in range(len(self._heads)):
            x = x + self._attend(layer, transformer.norm(x, f"{layer}.ln1"), position, below)
            if f"{layer}.W_in" in transformer.weights:
                x = x + transformer.mlp(layer, x)
        return transformer.read_out(x).view(-1)

    def _attend(
        self, layer: int, token: Tensor, position: int, below: list[KeysAndValues]
    ) -> Tensor:
        """Return the vector that a layer's attention adds to the newest token's residual stream.

        The keys and values of the layer are appended to those of all lower layers, `below`.
        """
        heads, cache = self._heads[layer], self.cache[layer]
        key_positions = torch.arange(position + 1, device=token.device)
        query_positions = key_positions[-1:]
        projected = kept = heads.project(token)
        if projected and self._ready:
            new_k, new_v = heads.keys_and_values(projected, query_positions)
            kept = {"K": new_k} if new_v is new_k else {"K": new_k, "V": new_v}
        for name, rows in kept.items():
            cache[name] = torch.cat([cache[name], rows], 3) if name in cache else rows
        if projected and self._ready:
            ready = cache["K"], cache.get("V", cache["K"])
        else:
            ready = heads.keys_and_values(cache, key_positions, below)
        k, v = map(heads.for_all_heads, ready)
        below.append((k, v))
        q = heads.queries(token, projected, query_positions)
        scores = heads.scores(q, k, query_positions, key_positions)
        if self._wiring.sizes.self_mask:
            scores[..., -1] += SELF_MASK
        z = heads.mix(heads.pattern(scores), v, v[:, :, :, -1:], query_positions)
        return heads.output(z)
