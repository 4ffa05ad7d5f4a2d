"""The toy transformer in plain PyTorch: start reading here.

A `Transformer` computes the logits of all runs of one variant, one run per seed, as one batch, and
PyTorch differentiates them. Its methods stand in the order of the computation: `embed`, then
`attention` and `mlp` in every layer, then `read_out`.

Nothing in this module depends on the sharing: tied roles read the same vector. What few layers need
stands apart:

- `attnkit.model.heads` applies the rules of a variant, such as unit keys or rotary positions, and
  gives a layer the keys and values of a lower one, if the variant shares them.
- `attnkit.model.products` multiplies matrices so that the bits of a run do not depend on the other
  runs of the batch.
- `attnkit.model.places` lists the positions with queries and keys: all of them, except with an
  encoder and a decoder, and where only the answers are read.

Lean blocks are pre-norm, have no biases, and use RMSNorm without gain (the linear map that follows
absorbs a gain). Standard blocks are those of PyTorch, with LayerNorm before attention and MLP. With
a final norm there is one more LayerNorm before the unembedding, as in the authors' re-run of
arXiv 2606.04032.

Parameters have names such as `W_E` and, in layer 0, `0.W_Q`; `attnkit.model.model` lists them.
Tied roles have one matrix, which is called by the first of them.

Index letters: `s` seed (here one run, because all runs are of one variant), `b` batch, `n`
position, `fields` numbers of a token, `i` query position, `j` key position, `a` answering position,
`h` head, `p` score map of a head (one, except in a few variants), `m` d_model, `d` d_head, `f`
d_mlp, `k` any width, `c` class.
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
from attnkit.model.heads import Heads, KeysAndValues
from attnkit.model.places import Places
from attnkit.model.products import look_up, project
from attnkit.tasks.base import NOTHING
from attnkit.variants import Wiring
from attnkit.variants.sharing import Role


class Transformer:
    """All runs of one variant as a function from tokens to logits.

    Args:
        wiring: Vectors, roles and rules of the variant's attention.
        weights: Parameters by name, with a leading axis of seeds; see `Model`.
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

    def double(self) -> Transformer:
        """Return this transformer in double precision."""
        weights = {name: weight.double() for name, weight in self.weights.items()}
        masks = [None if mask is None else mask.double() for mask in self.masks]
        return Transformer(self.wiring, weights, self.layer_specs, masks, self.n_answers)

    def logits(
        self, tokens: Int64[Tensor, "s b n fields"], layers: list[Layer] | None = None
    ) -> Float[Tensor, "s b a c"]:
        """Return the logits of one batch for each seed.

        Args:
            tokens: One batch for each seed.
            layers: List to which the scores and the pattern of every layer are appended, for all
                positions. None: nothing is recorded, and the last layer computes the answering
                positions only, because only the logits read it.
        """
        x = self.embed(tokens)  # (s, b, n, m)
        below: list[KeysAndValues] = []
        for layer in range(len(self.layer_specs)):
            only_answers = layer == len(self.layer_specs) - 1 and layers is None
            stages = self.attention(layer, x, below, only_answers=only_answers)
            x = self.stream_after(layer, stages)
            below.append((stages.k, stages.v))
            if layers is not None:
                layers.append(Layer(stages.scores.flatten(2, 3), stages.pattern))
            del stages  # its memory is free for the next layer
        return self.read_out(x)

    def embed(
        self, tokens: Int64[Tensor, "s b n fields"], position: int = 0
    ) -> Float[Tensor, "s b n m"]:
        """Return the sum of the embeddings of a token's fields and of its position.

        Args:
            tokens: Tokens at consecutive positions.
            position: Position of the first token.
        """
        return reduce(torch.add, self.embeddings(tokens, position))

    def embeddings(self, tokens: Int64[Tensor, "s b n fields"], position: int = 0) -> list[Tensor]:
        """Return what `embed` adds up, (s, b or 1, n or 1, m) each.

        There is one vector for each field, then that of the position and the bias, if they exist.
        """
        parts = look_up(self.weights["W_E"], tokens)
        if "W_pos" in self.weights:  # (s, n, m)
            parts.append(self.weights["W_pos"][:, None, position : position + tokens.shape[2]])
        if "b_E" in self.weights:  # (s, m)
            parts.append(self.weights["b_E"][:, None, None])
        return parts

    def attention(
        self,
        layer: int,
        x: Float[Tensor, "s b n m"],
        below: Sequence[KeysAndValues] = (),
        *,
        only_answers: bool = False,
    ) -> Stages:
        """Compute one attention layer: softmax(q kᵀ / √d + mask) v W_O.

        The heads divide by √d, and their rules may change every step.

        Args:
            layer: Index of the layer, from 0.
            x: Residual stream before the layer.
            below: Keys and values of all lower layers, which some variants use again.
            only_answers: Whether the answering positions are the only query positions.
        """
        heads, places = self.heads(layer), self.places(layer, x, only_answers=only_answers)
        i, j, mask = places.query_numbers, places.key_numbers, places.mask
        rows = self.norm(x, f"{layer}.ln1")  # (s, b, n, m)
        projected = heads.project(rows[:, :, places.keys])  # x W, of which keys and values are made
        k, v = heads.keys_and_values(projected, j, below)
        # Keys and values of a lower layer have all heads already and stay as they are.
        k, v = heads.for_all_heads(k), heads.for_all_heads(v)  # (s, b, h, j, d)
        tied = places.tied(projected)  # queries that are tied to keys or values are taken from here
        q = heads.queries(rows[:, :, places.queries], tied, i)  # (s, b, h, i, d)
        scores = heads.scores(q, k, i, j)  # (s, b, h, p, i, j)
        masked = scores if mask is None else scores + mask
        pattern = heads.pattern(masked)  # (s, b, h, i, j)
        z = heads.mix(pattern, v, places.own(v), i)  # (s, b, h, i, d)
        added = heads.output(z)  # (s, b, i, m)
        return Stages(places, heads, x, rows, q, k, v, scores, masked, pattern, z, added)

    def stream_after(self, layer: int, stages: Stages) -> Float[Tensor, "s b n m"]:
        """Return the residual stream after a layer, to which attention and then the MLP add.

        If the layer skipped query positions, n is the number of answering positions.
        """
        x = stages.x[:, :, stages.places.queries] + stages.added
        if f"{layer}.W_in" in self.weights:
            x = x + self.mlp(layer, x)
        return stages.places.put_back(stages.x, x)

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
            # The norm, squared, takes less time and memory than the mean of squares.
            mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / x.shape[-1]
            normed: Tensor = x * (mean_square + 1e-6).rsqrt()
            return normed
        gain, shift = (self.weights[f"{name}.{part}"][:, None, None] for part in "wb")
        return F.layer_norm(x, x.shape[-1:], eps=1e-5) * gain + shift

    def norm_parts(
        self, parts: Float[Tensor, "s b n m"], whole: Float[Tensor, "s b n m"], name: str
    ) -> Float[Tensor, "s b n m"]:
        """Return the parts of rows after the norm, which divides them by the size of whole rows.

        They add up to `norm` of the whole rows, except for the shift of a LayerNorm.
        """
        if not self.wiring.sizes.standard:
            return parts * (whole.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        inverse = (whole.var(-1, keepdim=True, correction=0) + 1e-5).rsqrt()
        centred = parts - parts.mean(-1, keepdim=True)
        return centred * inverse * self.weights[f"{name}.w"][:, None, None]

    def linear(self, x: Float[Tensor, "s b n m"], name: str) -> Float[Tensor, "s b n k"]:
        """Return x W, plus the bias if there is one."""
        out = project(x.flatten(1, 2), self.weights[name]).view(*x.shape[:-1], -1)
        bias = self.weights.get(name.replace("W_", "b_"))
        return out if bias is None else out + bias[:, None, None]

    def heads(self, layer: int) -> Heads:
        """Return the attention heads of a layer."""
        weights = {name: self.weights[full] for name, full in self.wiring.names(layer).items()}
        roles: tuple[Role, ...] = ("K", "V")
        numbers = {role: self.wiring.leader(layer, role) for role in roles}
        leaders = {role: self.heads(number) for role, number in numbers.items() if number != layer}
        return Heads(self.wiring, layer, weights, leaders)

    def matrix(self, layer: int, role: Role) -> Float[Tensor, "s h m d"]:
        """Return the matrix that the heads of a layer use for a role; see `Heads.matrix`."""
        return self.heads(layer).matrix(role)

    def places(self, layer: int, x: Float[Tensor, "s b n m"], *, only_answers: bool) -> Places:
        """Return the positions of a layer's queries and keys."""
        spec = self.layer_specs[layer]
        n_skipped = spec.n_queries - self.n_answers if only_answers else 0
        return Places(spec, self.masks[layer], n_skipped, x.device)


def cross_entropy(
    logits: Float[Tensor, "s b a c"], labels: Int64[Tensor, "s b a"]
) -> Float[Tensor, " s"]:
    """Return the mean cross-entropy of each run over the labelled positions."""
    losses = F.cross_entropy(
        logits.flatten(0, 2), labels.flatten(), ignore_index=NOTHING, reduction="none"
    )
    n_labels = (labels != NOTHING).flatten(1).sum(1)
    return losses.view(len(labels), -1).sum(1) / n_labels


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
        places: Query positions (i) and key positions (j).
        heads: Attention heads with their weights.
        x: Residual stream before the layer, at all positions.
        rows: Normalised `x`, which the layer projects.
        q: Queries after all rules.
        k: Keys after all rules, repeated for the query heads that share them.
        v: Values after all rules, repeated for the query heads that share them.
        scores: Scaled scores with biases, before masks.
        masked: Scores plus mask, the input of the softmax.
        pattern: Attention pattern.
        z: Sum of the values of every head, weighted by its pattern, after all rules.
        added: Output of the layer, which is added to the residual stream at the query positions.
    """

    places: Places
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

    @property
    def spec(self) -> LayerSpec:
        """Specification of the layer."""
        return self.places.spec
