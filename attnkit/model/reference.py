"""The toy transformer in plain PyTorch: start reading here.

A `Transformer` computes the logits of all runs of one variant, one run per seed, as one batch, and
PyTorch differentiates them. This module does not depend on the sharing: tied roles read the same
vector, which `attnkit.model.heads` takes from the variant's wiring.

Lean blocks are pre-norm, have no biases, and use RMSNorm without gain (the linear map that follows
absorbs a gain). Standard blocks are those of PyTorch, with LayerNorm before attention and MLP. With
a final norm there is one more LayerNorm before the unembedding, as in the authors' re-run of
arXiv 2606.04032.

Index letters: `r` run, `s` seed, `b` batch, `n` position, `i` query position, `j` key position,
`a` answering position, `h` head, `p` score map of a head, `m` d_model, `d` d_head, `f` d_mlp,
`v` vocabulary, `c` class, `t` = b·i flattened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.experiment.layer_specs import LayerSpec
from attnkit.model.heads import Heads
from attnkit.model.products import project
from attnkit.tasks.base import NOTHING
from attnkit.variants import Wiring
from attnkit.variants.sharing import Role


@dataclass(frozen=True)
class Layer:
    """Scores and attention pattern of one layer, recorded for metrics.

    Attributes:
        scores: Scaled scores before masks and softmax; the maps of a head are adjacent.
        pattern: Attention pattern, the softmax of the masked scores.
    """

    scores: Float[Tensor, "s b hp i j"]
    pattern: Float[Tensor, "s b h i j"]


@dataclass(frozen=True, eq=False)
class Stages:
    """All intermediate results of one attention layer, in the order of the computation.

    Attributes:
        spec: Query positions (i) and key positions (j) of the layer.
        query_positions: Query positions that were computed; the last layer may skip some.
        heads: Attention heads with their weights.
        x: Residual stream before the layer, at all positions.
        rows: Normalised `x`, which the layer projects.
        q: Queries after all rules.
        k: Keys after all rules, repeated for the query heads that share them.
        v: Values after all rules, repeated for the query heads that share them.
        bottom_v: Values of the first layer, which upper layers may use.
        scores: Scaled scores with biases, before masks.
        masked: Scores plus mask, the input of the softmax.
        pattern: Attention pattern.
        z: Sum of the values of every head, weighted by its pattern, after all rules.
        added: Output of the layer, which is added to the residual stream at the query positions.
    """

    spec: LayerSpec
    query_positions: slice
    heads: Heads
    x: Float[Tensor, "s b n m"]
    rows: Float[Tensor, "s b n m"]
    q: Float[Tensor, "s b hp i d"]
    k: Float[Tensor, "s b hp j d"]
    v: Float[Tensor, "s b h j d"]
    bottom_v: Float[Tensor, "s b h j d"]
    scores: Float[Tensor, "s b h p i j"]
    masked: Float[Tensor, "s b h p i j"]
    pattern: Float[Tensor, "s b h i j"]
    z: Float[Tensor, "s b h i d"]
    added: Float[Tensor, "s b i m"]


class Transformer:
    """All runs of one variant as a function from tokens to logits.

    Args:
        wiring: Vectors, roles and rules of the variant's attention.
        weights: Parameters by name, with a leading axis of seeds.
        layer_specs: Specifications of the attention layers.
        masks: For every layer, the mask that is added to its scores, (i, j), or None.
        n_answers: Number of answering positions, which are the last ones.
    """

    def __init__(
        self,
        wiring: Wiring,
        weights: dict[str, Tensor],
        layer_specs: Sequence[LayerSpec],
        masks: Sequence[Tensor | None],
        n_answers: int,
    ) -> None:
        self.wiring, self.weights = wiring, weights
        self.layer_specs, self.masks = layer_specs, masks
        self.n_answers = n_answers

    def logits(
        self, tokens: Int64[Tensor, "s b n fields"], layers: list[Layer] | None = None
    ) -> Float[Tensor, "s b a c"]:
        """Return the logits of one batch for each seed.

        Args:
            tokens: One batch for each seed.
            layers: List to which the scores and the pattern of every layer are appended, if given.
        """
        x = self.embed(tokens)  # (s, b, n, m)
        stages = None
        for layer in range(len(self.layer_specs)):
            # Only the logits read the last layer, so it computes the answering positions only.
            last = layer == len(self.layer_specs) - 1 and layers is None
            stages = self.attend(layer, x, stages, only_answers=last)
            x = self.stream_after(layer, stages)
            if layers is not None:
                layers.append(Layer(stages.scores.flatten(2, 3), stages.pattern))
        return self.read_out(x)

    def embed(
        self, tokens: Int64[Tensor, "s b n fields"], position: int = 0
    ) -> Float[Tensor, "s b n m"]:
        """Return the sum of the embeddings of a token's fields and of its position.

        Args:
            tokens: Tokens at consecutive positions.
            position: Position of the first token.
        """
        W_E = self.weights["W_E"]  # (s, v, m)
        offsets = torch.arange(len(W_E), device=W_E.device) * W_E.shape[1]
        fields = (tokens + offsets[:, None, None, None]).flatten(0, 2).unbind(1)
        table = W_E.flatten(0, 1)
        x = reduce(torch.add, (table.index_select(0, rows) for rows in fields))
        x = x.view(*tokens.shape[:3], -1)
        if "W_pos" in self.weights:  # (s, n, m)
            x = x + self.weights["W_pos"][:, None, position : position + x.shape[2]]
        if "b_E" in self.weights:  # (s, m)
            x = x + self.weights["b_E"][:, None, None]
        return x

    def attend(
        self,
        layer: int,
        x: Float[Tensor, "s b n m"],
        previous: Stages | None,
        *,
        only_answers: bool = False,
    ) -> Stages:
        """Compute one attention layer: softmax(q kᵀ / √d + mask) v W_O.

        Args:
            layer: Index of the layer, from 0.
            x: Residual stream before the layer.
            previous: Results of the previous layer; None for the first layer.
            only_answers: Whether the answering positions are the only query positions.
        """
        spec, heads = self.layer_specs[layer], self.heads(layer)
        mask, skipped = self.masks[layer], 0
        if only_answers:
            skipped = spec.n_queries - self.n_answers
        first_query, end = spec.query_positions
        query_positions = slice(first_query + skipped, end)
        numbers = torch.arange(x.shape[2], device=x.device)  # both sides count from 0
        q_numbers, k_numbers = numbers[skipped : spec.n_queries], numbers[: spec.n_keys]
        rows = self.norm(x, f"{layer}.ln1")  # (s, b, n, m)
        query_store: dict[str, Tensor] = {}
        if self.wiring.leader(layer) == layer:
            store = heads.store(rows[:, :, slice(*spec.key_positions)])
            k, v = map(heads.for_all_heads, heads.keys_and_values(store, k_numbers))
            if spec.square:  # tied queries are the stored keys or values of the same positions
                query_store = {name: vectors[:, :, :, skipped:] for name, vectors in store.items()}
        else:  # the previous layer has the leader's keys, and the values unless these change
            assert previous is not None
            same = self.wiring.leader(layer, "V") == self.wiring.leader(layer - 1, "V")
            k, v = previous.k, previous.v if same else previous.bottom_v
        bottom_v = v if previous is None else previous.bottom_v
        q = heads.queries(rows[:, :, query_positions], query_store, q_numbers)  # (s, b, h, i, d)
        scores = heads.scores(q, k, q_numbers, k_numbers)  # (s, b, h, p, i, j)
        masked = scores if mask is None else scores + mask[skipped:]
        pattern = heads.pattern(masked)  # (s, b, h, i, j)
        own = v[:, :, :, skipped:] if spec.square else None
        z = heads.mix(pattern, v, own, q_numbers)  # (s, b, h, i, d)
        added = heads.output(z)  # (s, b, i, m)
        attended = q, k, v, bottom_v, scores, masked, pattern, z, added
        return Stages(spec, query_positions, heads, x, rows, *attended)

    def stream_after(self, layer: int, stages: Stages) -> Float[Tensor, "s b n m"]:
        """Return the residual stream after a layer's attention and MLP.

        If the layer skipped query positions, the answering positions are the only ones returned.
        """
        spec, x = stages.spec, stages.x
        updated = x[:, :, stages.query_positions] + stages.added
        if f"{layer}.W_in" in self.weights:
            updated = updated + self.mlp(layer, updated)
        if stages.query_positions.start > spec.query_positions[0] or updated.shape == x.shape:
            return updated
        first, end = spec.query_positions
        return torch.cat([x[:, :, :first], updated, x[:, :, end:]], 2)

    def mlp(self, layer: int, x: Float[Tensor, "s b i m"]) -> Float[Tensor, "s b i m"]:
        """Return the output of an MLP: gelu(norm(x) W_in) W_out."""
        hidden = F.gelu(self.linear(self.norm(x, f"{layer}.ln2"), f"{layer}.W_in"))  # (s, b, i, f)
        return self.linear(hidden, f"{layer}.W_out")

    def read_out(self, x: Float[Tensor, "s b n m"]) -> Float[Tensor, "s b a c"]:
        """Return the logits of the answering positions."""
        x = x[:, :, -self.n_answers :]
        return self.linear(self.norm(x, "ln_final") if self.wiring.sizes.final_norm else x, "W_U")

    def norm(self, x: Float[Tensor, "s b n m"], name: str) -> Float[Tensor, "s b n m"]:
        """Return the rows after LayerNorm in standard blocks, and after RMSNorm in lean blocks."""
        if not self.wiring.sizes.standard:
            mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / x.shape[-1]
            normed: Tensor = x * (mean_square + 1e-6).rsqrt()
            return normed
        gain, shift = (self.weights[f"{name}.{part}"][:, None, None] for part in "wb")
        return F.layer_norm(x, x.shape[-1:], eps=1e-5) * gain + shift

    def linear(self, x: Float[Tensor, "s b n m"], name: str) -> Float[Tensor, "s b n k"]:
        """Return x W, plus the bias if there is one."""
        out = project(x.flatten(1, 2), self.weights[name]).view(*x.shape[:-1], -1)
        bias = self.weights.get(name.replace("W_", "b_"))
        return out if bias is None else out + bias[:, None, None]

    def heads(self, layer: int) -> Heads:
        """Return the attention heads of a layer."""
        weights = {name: self.weights[full] for name, full in self.wiring.names(layer).items()}
        roles: tuple[Role, ...] = ("K", "V")
        leaders = {role: self.wiring.leader(layer, role) for role in roles}
        lend = {role: self.heads(leader) for role, leader in leaders.items() if leader != layer}
        return Heads(self.wiring, layer, weights, lend)


def cross_entropy(
    logits: Float[Tensor, "s b a c"], labels: Int64[Tensor, "s b a"]
) -> Float[Tensor, " s"]:
    """Return the mean cross-entropy of each run over the labelled positions."""
    losses = F.cross_entropy(
        logits.flatten(0, 2), labels.flatten(), ignore_index=NOTHING, reduction="none"
    )
    n_labels = (labels != NOTHING).flatten(1).sum(1)
    return losses.view(len(labels), -1).sum(1) / n_labels
