"""The toy transformer in plain PyTorch: start reading here.

A `Transformer` computes the logits of one variant's runs, one for each seed, as one batch; PyTorch
differentiates them. Sharing is not visible here: roles that are tied read the same vector, which
`attnkit.model.heads` takes from the variant's wiring.

Lean blocks are pre-norm with RMSNorm without gain (a gain before a linear map is absorbed in it)
and have no biases. Standard blocks are those of PyTorch, with LayerNorm before attention and MLP;
with a final norm there is one more LayerNorm before the read-out, as in the authors' re-run of
arXiv 2606.04032.

Index letters: `r` run, `s` seed, `b` batch, `i` query position, `j` key position, `a` answering
position, `h` head, `p` map of scores of a head, `m` d_model, `d` d_head, `f` d_mlp, `v` vocabulary,
`c` class, `t` = b·i flattened.
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


@dataclass(frozen=True)
class Layer:
    """Scores and attention pattern of one layer, recorded for metrics.

    Attributes:
        scores: scaled, before masks and softmax; the maps of a head are next to each other.
        pattern: after softmax.
    """

    scores: Float[Tensor, "s b hp i j"]
    pattern: Float[Tensor, "s b h i j"]


@dataclass(frozen=True, eq=False)
class Stages:
    """Everything that one attention layer computes, in order.

    Attributes:
        spec: its query positions (i) and key positions (j).
        query_positions: those of this computation; the last layer may skip some.
        heads: the weights and what they compute.
        x: the residual stream before the layer, all positions.
        rows: the same, normalised: what is projected.
        q: queries as the scores see them. k, v: repeated for the query heads that share them.
        scores: scaled, with biases, before masks. masked: the input of the softmax.
        pattern: after the softmax.
        z: the values of every head, weighted and summed.
        added: what all heads together add to the residual stream of the positions that ask.
    """

    spec: LayerSpec
    query_positions: slice
    heads: Heads
    x: Float[Tensor, "s b n m"]
    rows: Float[Tensor, "s b n m"]
    q: Float[Tensor, "s b hp i d"]
    k: Float[Tensor, "s b hp j d"]
    v: Float[Tensor, "s b h j d"]
    scores: Float[Tensor, "s b h p i j"]
    masked: Float[Tensor, "s b h p i j"]
    pattern: Float[Tensor, "s b h i j"]
    z: Float[Tensor, "s b h i d"]
    added: Float[Tensor, "s b i m"]


class Transformer:
    """The runs of one variant as a function from tokens to logits.

    Args:
        wiring: what the variant's attention computes.
        weights: the parameters by name, with a leading axis of seeds.
        places: the attention layers.
        masks: for every layer what is added to its scores, (i, j); None adds nothing.
        n_answers: how many of the last positions answer.
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
        """Answer one batch for each seed.

        Args:
            layers: if given, the scores and the pattern of every layer are appended.
        """
        x = self.embed(tokens)  # (s, b, n, m)
        stages = None
        for layer in range(len(self.layer_specs)):
            # What later layers and metrics do not read is not computed.
            last = layer == len(self.layer_specs) - 1 and layers is None
            stages = self.attend(layer, x, stages, only_answers=last)
            x = self.after(layer, stages)
            if layers is not None:
                layers.append(Layer(stages.scores.flatten(2, 3), stages.pattern))
        return self.read_out(x)

    def embed(
        self, tokens: Int64[Tensor, "s b n fields"], position: int = 0
    ) -> Float[Tensor, "s b n m"]:
        """Return the sum of the vectors of a token's fields and of its position.

        Args:
            position: that of the first token.
        """
        W_E = self.weights["W_E"]  # (s, v, m)
        first = torch.arange(len(W_E), device=W_E.device) * W_E.shape[1]
        fields = (tokens + first[:, None, None, None]).flatten(0, 2).unbind(1)
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
        before: Stages | None,
        *,
        only_answers: bool = False,
    ) -> Stages:
        """Compute one attention layer: softmax(q kᵀ / √d + mask) v W_O.

        Args:
            before: the layer below; None: there is none.
            only_answers: whether only the positions that answer ask.
        """
        spec, heads = self.layer_specs[layer], self.heads(layer)
        mask, skipped = self.masks[layer], 0
        if only_answers:
            skipped = spec.n_queries - self.n_answers
        first_query, end = spec.query_positions
        query_positions = slice(first_query + skipped, end)
        at = torch.arange(x.shape[2], device=x.device)  # counted on each side by itself
        of_queries, of_keys = at[skipped : spec.n_queries], at[: spec.n_keys]
        rows = self.norm(x, f"{layer}.ln1")  # (s, b, n, m)
        own: dict[str, Tensor] = {}
        if heads.source is heads:
            store = heads.store(rows[:, :, slice(*spec.key_positions)])
            k, v = map(heads.for_all_heads, heads.keys_and_values(store, of_keys))
            if spec.square:  # tied queries are taken from the keys or values of those who ask
                own = {name: made[:, :, :, skipped:] for name, made in store.items()}
        else:  # the layer below has them, from its leader or its own
            assert before is not None
            k, v = before.k, before.v
        q = heads.queries(rows[:, :, query_positions], own, of_queries)  # (s, b, h, i, d)
        scores = heads.scores(q, k, of_queries, of_keys)  # (s, b, h, p, i, j)
        masked = scores if mask is None else scores + mask[skipped:]
        pattern = heads.pattern(masked)  # (s, b, h, i, j)
        z = heads.mix(pattern, v)  # (s, b, h, i, d)
        added = heads.leave(z)  # (s, b, i, m)
        return Stages(
            spec, query_positions, heads, x, rows, q, k, v, scores, masked, pattern, z, added
        )

    def after(self, layer: int, stages: Stages) -> Float[Tensor, "s b n m"]:
        """Return the residual stream after a layer's attention and MLP.

        If only the answering positions asked, it has no others.
        """
        spec, x = stages.spec, stages.x
        asking = x[:, :, stages.query_positions] + stages.added
        if f"{layer}.W_in" in self.weights:
            asking = asking + self.mlp(layer, asking)
        if stages.query_positions.start > spec.query_positions[0] or asking.shape == x.shape:
            return asking
        first, end = spec.query_positions
        return torch.cat([x[:, :, :first], asking, x[:, :, end:]], 2)

    def mlp(self, layer: int, x: Float[Tensor, "s b i m"]) -> Float[Tensor, "s b i m"]:
        """Return what an MLP adds: gelu(x W_in) W_out."""
        hidden = F.gelu(self.linear(self.norm(x, f"{layer}.ln2"), f"{layer}.W_in"))  # (s, b, i, f)
        return self.linear(hidden, f"{layer}.W_out")

    def read_out(self, x: Float[Tensor, "s b n m"]) -> Float[Tensor, "s b a c"]:
        """Return the logits of the positions that answer."""
        x = x[:, :, -self.n_answers :]
        return self.linear(self.norm(x, "ln_final") if self.wiring.sizes.final_norm else x, "W_U")

    def norm(self, x: Float[Tensor, "s b n m"], name: str) -> Float[Tensor, "s b n m"]:
        """Return the rows after RMSNorm, or after LayerNorm in standard blocks."""
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
        own = {name: self.weights[full] for name, full in self.wiring.names(layer).items()}
        leader = self.wiring.leader(layer)
        return Heads(self.wiring, layer, own, None if leader == layer else self.heads(leader))


def cross_entropy(
    logits: Float[Tensor, "s b a c"], labels: Int64[Tensor, "s b a"]
) -> Float[Tensor, " s"]:
    """Return the mean cross-entropy of each run over the positions that are asked something."""
    each = F.cross_entropy(
        logits.flatten(0, 2), labels.flatten(), ignore_index=NOTHING, reduction="none"
    )
    n_asked = (labels != NOTHING).flatten(1).sum(1)
    return each.view(len(labels), -1).sum(1) / n_asked
