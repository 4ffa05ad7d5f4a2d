"""Answering token by token with a cache, as a decoder would: what `kv_cache` counts.

Not fast, and not used in training: it exists so that the accounting can be held against a real
cache, and so that a variant's cache can be looked at.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.blocks import rms_norm
from attnkit.model import SELF_MASK, Model
from attnkit.parameters import TABLE
from attnkit.variants.positions import POSITIONS
from attnkit.wired import Heads


class Decoder:
    """One run of a causal model, one token after another.

    Args:
        model: the model. run: which of its runs, in cohort order.

    Attributes:
        cache: for every layer what is kept: name → (1, 1, heads, tokens so far, width); empty
            for layers that use another's.

    Raises:
        ValueError: if the model is not causal: its earlier tokens would see later ones.
    """

    def __init__(self, model: Model, run: int) -> None:
        self._wiring = model.wirings[model.variants[run // len(model.seeds)]]
        if not self._wiring.sizes.causal:
            raise ValueError("causal: got False, allowed True: a decoder cannot see later tokens")
        if model.size.blocks != "lean" or model.task.n_source:
            raise ValueError("blocks: only lean ones of a single stack can be decoded")
        self._own = model.run_parameters(run)
        self._heads = [self._make_heads(layer) for layer in range(model.size.n_layers)]
        self.cache: list[dict[str, Tensor]] = [{} for _ in self._heads]

    @property
    def n_tokens(self) -> int:
        """How many have been read."""
        return max((rows.shape[3] for kept in self.cache for rows in kept.values()), default=0)

    @property
    def floats_per_token(self) -> int:
        """What is kept of every token, over all layers."""
        n_numbers = sum(rows.numel() for kept in self.cache for rows in kept.values())
        return n_numbers // max(self.n_tokens, 1)

    @torch.no_grad()
    def read(self, token: Int64[Tensor, " fields"]) -> Float[Tensor, " c"]:
        """The logits after one more token."""
        position = self.n_tokens
        at = torch.tensor([position], device=token.device)
        x = self._own[TABLE][token].sum(0)
        if POSITIONS[self._wiring.sizes.positions].embedded:
            x = x + self._own["W_pos"][position]
        for layer, heads in enumerate(self._heads):
            x = x + self._attend(layer, heads, _normed(x), at)
            if f"{layer}.W_in" in self._own:
                hidden = F.gelu(_normed(x) @ self._own[f"{layer}.W_in"])
                x = x + hidden @ self._own[f"{layer}.W_out"]
        logits: Tensor = _normed(x) @ self._own["W_U"]
        return logits

    def _attend(self, layer: int, heads: Heads, x: Tensor, at: Tensor) -> Tensor:
        """What a layer adds to the newest token's residual stream."""
        token = x.view(1, 1, 1, -1)
        wiring, store = self._wiring, dict[str, Tensor]()
        leader = wiring.leader(layer)
        if leader == layer:
            store = heads.store(token)
            kept = self.cache[layer]
            for name, rows in store.items():
                kept[name] = torch.cat([kept[name], rows], 3) if name in kept else rows
        looked_at = torch.arange(int(at) + 1, device=at.device)
        k, v = heads.keys_and_values(self.cache[leader], looked_at)
        scores = heads.scores(heads.queries(token, store, at), k, at, looked_at)
        mask = None
        if wiring.sizes.self_mask:
            mask = torch.zeros(1, int(at) + 1, device=at.device)
            mask[0, -1] = SELF_MASK
        return heads.read_out(heads.pattern(scores, mask), v).view(-1)

    def _make_heads(self, layer: int) -> Heads:
        wiring = self._wiring
        names = wiring.names(layer)
        leader = wiring.leader(layer)
        return Heads(
            wiring,
            layer,
            {name: self._own[full].unsqueeze(0) for name, full in names.items()},
            self._make_heads(leader) if leader != layer else None,
        )


def _normed(x: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    return rms_norm(x.view(1, 1, -1))[0].view(-1)
