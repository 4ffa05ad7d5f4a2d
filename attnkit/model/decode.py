"""Answering token by token with a cache, as a decoder would: what `kv_cache` counts.

Not fast, and not used in training: it exists so that the accounting can be held against a real
cache, and so that a variant's cache can be looked at.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.model.heads import Heads
from attnkit.model.model import SELF_MASK, Model


class Decoder:
    """One run of a causal model, one token after another.

    Args:
        model: the model. run: which of its runs.

    Attributes:
        cache: for every layer what is kept: name → (1, 1, heads, tokens so far, width); empty
            for layers that use another's.

    Raises:
        ValueError: if the model is not causal: its earlier tokens would see later ones.
    """

    def __init__(self, model: Model, run: int) -> None:
        variant = model.variants[run // len(model.seeds)]
        self._wiring = model.wirings[variant]
        if not self._wiring.sizes.causal:
            raise ValueError("causal: got False, allowed True: a decoder cannot see later tokens")
        if model.task.n_source:
            raise ValueError("task: a decoder reads one sequence, but this task has two sides")
        weights = {name: own.unsqueeze(0) for name, own in model.run_parameters(run).items()}
        self._transformer = model.transformer(variant, weights)
        self._heads = [self._transformer.heads(layer) for layer in range(model.size.n_layers)]
        self.cache: list[dict[str, Tensor]] = [{} for _ in self._heads]

    @property
    def n_tokens(self) -> int:
        """Return how many have been read."""
        return max((rows.shape[3] for kept in self.cache for rows in kept.values()), default=0)

    @property
    def floats_per_token(self) -> int:
        """Return how many numbers are kept of every token, over all layers."""
        n_numbers = sum(rows.numel() for kept in self.cache for rows in kept.values())
        return n_numbers // max(self.n_tokens, 1)

    @torch.no_grad()
    def read(self, token: Int64[Tensor, " fields"]) -> Float[Tensor, " c"]:
        """Return the logits after one more token."""
        position, transformer = self.n_tokens, self._transformer
        x = transformer.embed(token.view(1, 1, 1, -1), position)  # (1, 1, 1, m)
        for layer, heads in enumerate(self._heads):
            x = x + self._attend(layer, heads, transformer.norm(x, f"{layer}.ln1"), position)
            if f"{layer}.W_in" in transformer.weights:
                x = x + transformer.mlp(layer, x)
        return transformer.read_out(x).view(-1)

    def _attend(self, layer: int, heads: Heads, token: Tensor, position: int) -> Tensor:
        """Return what a layer adds to the newest token's residual stream."""
        wiring, store = self._wiring, dict[str, Tensor]()
        looked_at = torch.arange(position + 1, device=token.device)
        at = looked_at[-1:]
        leader = wiring.leader(layer)
        if leader == layer:
            store = heads.store(token)
            kept = self.cache[layer]
            for name, rows in store.items():
                kept[name] = torch.cat([kept[name], rows], 3) if name in kept else rows
        k, v = heads.keys_and_values(self.cache[leader], looked_at)
        scores = heads.scores(heads.queries(token, store, at), k, at, looked_at)
        if wiring.sizes.self_mask:
            scores[..., -1] += SELF_MASK
        return heads.leave(heads.mix(heads.pattern(scores), v))
