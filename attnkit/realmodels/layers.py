"""Attention layers from a file's tensors: the same checks and the same reading for all formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import Array, AttentionLayer, Kind, Projections, Rope, per_head
from attnkit.realmodels.errors import Unreadable, damaged
from attnkit.realmodels.latent import StoredLatentLayer
from attnkit.realmodels.tensors import TensorFile

MAX_LAYERS = 2**12


@dataclass(frozen=True)
class Linear:
    """Linear layer in a file.

    Attributes:
        roles: Roles of its outputs: "q", "k", "v", or several of them, whose rows follow one
            another; "q=k" and "k=v" name roles that share all rows.
        weight: Name of the weight.
        bias: Name of the bias, which the file need not have.
    """

    roles: str
    weight: str
    bias: str


@dataclass(frozen=True)
class Norm:
    """Norm in a file: name of its weight, and the number to add to the weight for the gain."""

    weight: str
    offset: float = 0.0


@dataclass(frozen=True)
class StoredLayer:
    """Attention layer in a file: names and shapes that its tensors must have.

    Attributes:
        kind: Positions that its queries attend to.
        linears: Its linear layers, queries first and values last.
        n_heads: Number of query heads.
        n_kv_heads: Number of key and value heads.
        d_head: Width of a query head and of a key head.
        d_value: Width of a value head.
        d_model: Width of the residual stream that queries read.
        d_source: Width of the residual stream that keys and values read.
        norm: Norm right before the queries, or None.
        kv_norm: Norm right before keys and values, or None.
        rope: Rotary positions, or None.
        kv_index: Index of the layer whose keys and values it reuses; None if it has its own.
        transposed: Whether weights are stored as (inputs, outputs).
        grouped: Whether the outputs of a linear layer with all roles are ordered by key and value
            head: first the queries that share key and value head 0, then its key and its value.
        number: Index among the layers of its stack in the file.
        gated: Whether the rows of each head's queries are followed by as many rows of a gate.
        shuffled: Whether the two dimensions of a rotary pair are stored as neighbours although
            `rope` has them half a head apart.
    """

    kind: Kind
    linears: tuple[Linear, ...]
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_value: int
    d_model: int
    d_source: int
    norm: Norm | None = None
    kv_norm: Norm | None = None
    rope: Rope | None = None
    kv_index: int | None = None
    transposed: bool = False
    grouped: bool = False
    number: int = 0
    gated: bool = False
    shuffled: bool = False

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the weights of its linear layers."""
        return tuple(linear.weight for linear in self.linears)

    def n_heads_of(self, role: str) -> int:
        """Return the number of heads of a role."""
        return self.n_heads if role == "q" else self.n_kv_heads

    def n_outputs(self, role: str) -> int:
        """Return the number of outputs of all heads of a role, with those of a gate."""
        width = self.d_value if role == "v" else self.d_head
        return self.n_heads_of(role) * width * (2 if self.gated and role == "q" else 1)

    def by_role(self, roles: str, rows: Float[Array, " o *m"]) -> Iterator[tuple[str, Array]]:
        """Yield the rows of a linear layer for each of its roles, ordered by head."""
        if "=" in roles:
            yield from ((role, rows) for role in roles.split("="))
            return
        if self.grouped:
            groups = rows.reshape(self.n_kv_heads, -1, self.d_head, *rows.shape[1:])
            parts = [groups[:, :-2], groups[:, -2], groups[:, -1]]
            yield from zip(roles, (p.reshape(-1, *rows.shape[1:]) for p in parts), strict=True)
            return
        ends = np.cumsum([self.n_outputs(role) for role in roles])
        yield from zip(roles, np.split(rows, ends[:-1]), strict=True)

    def check(self, file: TensorFile) -> None:
        """Raise Unreadable unless the layer's tensors are present and have these shapes."""
        if self.n_heads % self.n_kv_heads:
            raise Unreadable(
                f"{file.name}: {self.n_heads} heads cannot share {self.n_kv_heads} key and value "
                "heads equally; the first number must be a multiple of the second"
            )
        width = " and ".join(map(str, dict.fromkeys((self.d_head, self.d_value))))
        heads = f"{self.n_heads} heads, {self.n_kv_heads} key and value heads, {width} wide"
        for linear in self.linears:
            n_inputs = self.d_model if "q" in linear.roles else self.d_source
            n_outputs = sum(map(self.n_outputs, linear.roles.partition("=")[0]))
            shape = (n_inputs, n_outputs) if self.transposed else (n_outputs, n_inputs)
            file.check_shape(linear.weight, shape, f"{heads}, of {n_inputs} inputs")
            if linear.bias in file.entries:
                file.check_shape(linear.bias, (n_outputs,), heads)
        for norm, width_read in ((self.norm, self.d_model), (self.kv_norm, self.d_source)):
            if norm is not None:
                file.check_shape(norm.weight, (width_read,), f"a width of {width_read}")

    def read(self, file: TensorFile) -> Projections:
        """Read the weights of the layer, whose shapes have been checked."""
        weights: dict[str, Array] = {}
        biases: dict[str, Array] = {}
        for linear in self.linears:
            weight = file.read(linear.weight)
            for role, rows in self.by_role(linear.roles, weight.T if self.transposed else weight):
                weights[role] = per_head(rows, self.n_heads_of(role))
                if self.gated and role == "q":
                    weights[role] = np.ascontiguousarray(weights[role][..., : self.d_head])
            del weight  # it takes as much memory as its copies by head
            if linear.bias in file.entries:
                for role, rows in self.by_role(linear.roles, file.read(linear.bias)):
                    width = self.d_head if self.gated and role == "q" else None
                    biases[role] = rows.reshape(self.n_heads_of(role), -1)[:, :width]
        if self.shuffled:
            order = np.r_[0 : self.d_head : 2, 1 : self.d_head : 2]
            for arrays in (weights, biases):
                arrays |= {role: arrays[role][..., order] for role in "qk" if role in arrays}
        gain_q, gain_kv = (
            None if norm is None else file.read(norm.weight) + np.float32(norm.offset)
            for norm in (self.norm, self.kv_norm)
        )
        q, k, v = (weights[role] for role in "qkv")
        b_q, b_k, b_v = (biases.get(role) for role in "qkv")
        return Projections(q, k, v, b_q, b_k, b_v, gain_q, gain_kv, self.rope)


def layer_from_shapes(
    file: TensorFile,
    kind: Kind,
    linears: tuple[Linear, ...],
    n_heads: int,
    n_kv_heads: int,
    *,
    d_head: int = 0,
    d_value: int = 0,
    transposed: bool = False,
) -> StoredLayer:
    """Return the layer whose widths are those of its weights, unless they are given.

    Raises:
        Unreadable: If a weight is missing or not a matrix.
    """
    shapes = []
    for linear in linears:
        if linear.weight not in file.entries:
            raise file.without(linear.weight)
        shape = file.entries[linear.weight].shape
        if len(shape) != 2 or 0 in shape:
            raise damaged(file.name, f"{linear.weight} is of shape {shape} and not a matrix")
        shapes.append(shape[::-1] if transposed else shape)
    (n_first, d_model), (n_last, d_source) = shapes[0], shapes[-1]
    n_of_first = sum(n_heads if role == "q" else n_kv_heads for role in linears[0].roles)
    d_head = d_head or max(1, n_first // n_of_first)
    d_value = d_value or (max(1, n_last // n_kv_heads) if linears[-1].roles == "v" else d_head)
    sizes = d_head, d_value, d_model, d_source
    return StoredLayer(kind, linears, n_heads, n_kv_heads, *sizes, transposed=transposed)


def find_layers(file: TensorFile, query_weight: re.Pattern[str]) -> list[re.Match[str]]:
    """Return the matches of a pattern for the first weights of layers, in the order of `block`.

    Raises:
        Unreadable: If there are more than any model has.
    """
    matches = [match for name in file.entries if (match := query_weight.fullmatch(name))]
    check_n_layers(file.name, len(matches))
    return sorted(matches, key=lambda match: int(match["block"]))


def check_n_layers(file: str, n_layers: int) -> None:
    """Raise Unreadable for a file with more attention layers than any model has."""
    if n_layers > MAX_LAYERS:
        raise damaged(file, f"it names {n_layers:,} attention layers; allowed are {MAX_LAYERS:,}")


def attention_layers(
    file: TensorFile, stored: Iterable[StoredLayer | StoredLatentLayer]
) -> tuple[AttentionLayer, ...]:
    """Check the tensors of all layers, and return the layers: encoder, causal, cross-attention.

    Raises:
        Unreadable: If there is no layer, or a tensor is missing or has another shape.
    """
    indices = {kind: count() for kind in Kind}
    layers = []
    kinds = list(Kind)
    for layer in sorted(stored, key=lambda layer: (kinds.index(layer.kind), layer.number)):
        layer.check(file)
        read = partial(layer.read, file)
        index = next(indices[layer.kind])
        layers.append(
            AttentionLayer(layer.kind, index, layer.n_heads, layer.n_kv_heads, read, layer.kv_index)
        )
    if not layers:
        raise Unreadable(f"{file.name} has no attention by name; {file.contents}")
    return tuple(layers)
