"""Which vectors a variant's attention makes out of a token, by which matrices, at given sizes.

A `Wiring` is a small graph without numbers: vectors that read the token (or other vectors) through
a weight, and the roles Q, K, V that take one each. Costs are counted on it, the engine computes
along it, the diagram draws it. Rules of a variant change it in one pass; afterwards nobody does.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from attnkit.variants.sharing import Role, Sharing

if TYPE_CHECKING:
    from attnkit.variants.rules import Rule

TOKEN = "x"
"""What vectors read that read no other vector: the normalised residual stream."""

WIDEST = 256
"""Largest width of a head."""


@dataclass(frozen=True)
class Width:
    """A width as typed: a number, or a multiple or part of `m` (d_model) or `d` (d_head).

    `m/h` is d_model over the number of heads, the usual width of a head.
    """

    count: int
    letter: str = ""
    divisor: int | str = 1

    @classmethod
    def read(cls, text: str) -> Self:
        """Read `12`, `m`, `m/4`, `2d`, `m/h`.

        Raises:
            ValueError: if it is none of them.
        """
        found = re.fullmatch(r"([1-9]\d{0,2})?([md])?(?:/([1-9]\d{0,2}|h))?", text.strip().lower())
        if found is None or not (found[1] or found[2]) or (found[3] and not found[2]):
            raise ValueError("a width: a number, or m (model width), d (head width), m/4, 2d, m/h")
        count, letter, divisor = int(found[1] or 1), found[2] or "", found[3] or "1"
        if divisor == "h":
            return cls(count, letter, "h")
        common = math.gcd(count, int(divisor))
        return cls(count // common, letter, int(divisor) // common)

    def __str__(self) -> str:
        if not self.letter:
            return str(self.count)
        divisor = "" if self.divisor == 1 else f"/{self.divisor}"
        return f"{self.count if self.count > 1 else ''}{self.letter}{divisor}"

    def resolve(self, name: str, sizes: Sizes) -> int:
        """The number at these sizes.

        Raises:
            ValueError: if it is not whole, or not from 1 to `WIDEST`.
        """
        whole = self.count * {"": 1, "m": sizes.d_model, "d": sizes.d_head}[self.letter]
        divisor = sizes.n_heads if isinstance(self.divisor, str) else self.divisor
        if whole % divisor:
            raise ValueError(f"{name}={self} is {whole}/{divisor} here, which is no whole number")
        if not 1 <= whole // divisor <= WIDEST:
            raise ValueError(f"{name}={self} is {whole // divisor} here, allowed 1 to {WIDEST}")
        return whole // divisor


@dataclass
class Sizes:
    """The sizes of one variant's runs: the experiment's, where the variant has none of its own.

    `kv_heads`, `d_k` and `d_v` are 0 until they are set; what is not set takes `n_heads`, `d_head`.

    Attributes:
        standard: Whether blocks have LayerNorm and biases; otherwise they are lean.
        final_norm: Whether the residual stream is normalised before the read-out.
        two_sided: Whether there are an encoder and a decoder.
    """

    d_model: int
    n_ctx: int
    n_heads: int
    kv_heads: int
    d_head: int
    d_k: int
    d_v: int
    d_mlp: int
    n_layers: int
    positions: str
    self_mask: bool
    causal: bool
    standard: bool
    final_norm: bool
    two_sided: bool


@dataclass(frozen=True)
class Weight:
    """A parameter of one run and layer.

    Attributes:
        shape: without the axis of runs.
        std: spread of its initial numbers, drawn anew for every seed and name.
        bound: they are uniform up to this instead; 0: they are normal.
        fill: its initial numbers instead: repeated along the last axis.
        like: the parameter of which it takes the initial numbers instead.
        role: the role that it acts on, if it is no vector's: layers that use the keys and values
            of others have none for K and V.
    """

    shape: tuple[int, ...]
    std: float = 0.0
    bound: float = 0.0
    fill: tuple[float, ...] = ()
    like: str = ""
    role: Role | None = None

    @property
    def n_numbers(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


@dataclass
class Vector:
    """A vector per token and head.

    Attributes:
        reads: the vector it is made of, or `TOKEN`.
        weight: the name of the matrix between them; None: it is a copy.
        per_head: each head reads its own part through its own matrix.
        bias: the name of what is added to it; None: nothing.
    """

    reads: str
    weight: str | None
    n_heads: int
    width: int
    per_head: bool = False
    bias: str | None = None

    @property
    def n_numbers(self) -> int:
        """Its numbers over all heads."""
        return self.n_heads * self.width


@dataclass
class Wiring:
    """What one variant's attention layer computes, at its sizes.

    Attributes:
        vectors: name → how it is made.
        roles: role → name of the vector it takes.
        weights: name → parameter of one layer.
        has_output: whether heads leave through W_O; otherwise side by side, as they are.
        scale: what scores are multiplied with.
        n_maps: score matrices per head.
        adds_maps: whether they are added before the softmax, and so are one bilinear form.
        reuse: every so many layers make keys and values of their own; the others use those.
        one_for_all: whether all layers read the parameters of the first.
        symmetric: whether scores are symmetric by construction.
        rules: those of the variant, in order.
    """

    sizes: Sizes
    vectors: dict[str, Vector]
    roles: dict[Role, str]
    weights: dict[str, Weight]
    scale: float
    symmetric: bool
    has_output: bool = True
    n_maps: int = 1
    adds_maps: bool = False
    reuse: int = 1
    one_for_all: bool = False
    rules: list[Rule] = field(default_factory=list)

    @property
    def plain(self) -> bool:
        """Whether attention is that of a partition, at whatever sizes, of everyone to everyone."""
        return not self.sizes.two_sided and (
            all(rule.plain for rule in self.rules)
            and all(v.weight is not None for v in self.vectors.values())
            and self.sizes.kv_heads == self.sizes.n_heads
            and self.sizes.d_k == self.sizes.d_v == self.sizes.d_head
        )

    @property
    def n_inner(self) -> int:
        """Numbers per token that the heads read out together."""
        return self.sizes.n_heads * self.sizes.d_v

    @property
    def stored(self) -> list[str]:
        """The vectors that keys and values are made of: what a decoder must keep of a token."""
        kept: list[str] = []
        for role in ("K", "V"):
            name = self.roles[role]
            while self.vectors[name].reads != TOKEN:
                name = self.vectors[name].reads
            if name not in kept:
                kept.append(name)
        return kept

    def project(self, name: str, reads: str, n_heads: int, width: int) -> None:
        """Add a vector and its matrix W_name."""
        n_read = self.sizes.d_model if reads == TOKEN else self.vectors[reads].n_numbers
        self.vectors[name] = Vector(reads, f"W_{name}", n_heads, width)
        self.weights[f"W_{name}"] = Weight((n_read, n_heads * width), n_read**-0.5)

    def drop(self, name: str) -> None:
        """Remove a vector and its matrix."""
        weight = self.vectors.pop(name).weight
        if weight is not None:
            del self.weights[weight]

    def leader(self, layer: int) -> int:
        """The layer whose keys and values this one uses."""
        return layer - layer % self.reuse

    def names(self, layer: int) -> dict[str, str]:
        """The weights a layer reads → the full names of the parameters."""
        unused: set[str | None] = set()
        if self.leader(layer) != layer:
            others = [v for name, v in self.vectors.items() if name != self.roles["Q"]]
            unused = {name for vector in others for name in (vector.weight, vector.bias)}
            unused |= {name for name, weight in self.weights.items() if weight.role in ("K", "V")}
        home = 0 if self.one_for_all else layer
        return {name: f"{home}.{name}" for name in self.weights if name not in unused}

    def parameters(self) -> dict[str, Weight]:
        """All parameters of the attention layers by full name."""
        found: dict[str, Weight] = {}
        for layer in range(self.sizes.n_layers):
            found |= {full: self.weights[name] for name, full in self.names(layer).items()}
        return found


def base_wiring(sizes: Sizes, sharing: Sharing) -> Wiring:
    """The plain attention of a partition.

    Raises:
        ValueError: if roles of one class have different shapes.
    """
    shapes = {
        "Q": (sizes.n_heads, sizes.d_k),
        "K": (sizes.kv_heads, sizes.d_k),
        "V": (sizes.kv_heads, sizes.d_v),
    }
    roles: dict[Role, str] = {}
    wiring = Wiring(sizes, {}, roles, {}, sizes.d_k**-0.5, sharing.symmetric)
    for members in sharing.classes:
        for other in members[1:]:
            if shapes[other] != shapes[members[0]]:
                of, to = (_shape(role, shapes[role]) for role in (members[0], other))
                raise ValueError(f"tied roles need one shape, but there are {of} and {to}")
        wiring.project(members[0], TOKEN, *shapes[members[0]])
        roles |= dict.fromkeys(members, members[0])
    wiring.weights["W_O"] = Weight((wiring.n_inner, sizes.d_model), wiring.n_inner**-0.5)
    return wiring


def _shape(role: Role, shape: tuple[int, int]) -> str:
    noun = {"Q": "queries", "K": "keys", "V": "values"}[role]
    return f"{shape[0]} heads of {shape[1]}-wide {noun}"


def make_identity(wiring: Wiring, members: tuple[Role, ...]) -> None:
    """Let a class of tied roles be the token itself.

    Raises:
        ValueError: unless all its heads together are as wide as the token.
    """
    name = members[0]
    vector, d_model = wiring.vectors[name], wiring.sizes.d_model
    if vector.n_numbers != d_model:
        heads = "n_heads" if vector.n_heads == wiring.sizes.n_heads else "kv_heads"
        hint = "; try d_head=m/h" if heads == "n_heads" else ""
        raise ValueError(
            f"{'='.join(members)}=I needs {heads} · d_head = d_model, but {vector.n_heads} · "
            f"{vector.width} is not {d_model}{hint}"
        )
    del wiring.weights[f"W_{name}"]
    wiring.vectors[name] = Vector(TOKEN, None, vector.n_heads, vector.width)


def lay_out(
    sizes: Sizes, sharing: Sharing, identity: tuple[Role, ...], rules: list[Rule]
) -> Wiring:
    """Apply a variant's rules to sizes, then to the plain wiring of its partition.

    Raises:
        ValueError: if the variant does not go with the sizes; says why.
    """
    for rule in rules:
        rule.resize(sizes)
    sizes.kv_heads = sizes.kv_heads or sizes.n_heads
    sizes.d_k, sizes.d_v = sizes.d_k or sizes.d_head, sizes.d_v or sizes.d_head
    wiring = base_wiring(sizes, sharing)
    if identity:
        make_identity(wiring, identity)
    wiring.rules = rules
    for rule in rules:
        rule.rewire(wiring)
    if sizes.two_sided and (wiring.reuse > 1 or wiring.one_for_all):
        raise ValueError("layers that share with others do not go with an encoder and a decoder")
    if sizes.standard:
        _make_standard(wiring)
    return wiring


def _make_standard(wiring: Wiring) -> None:
    """Give every matrix a bias, and both the initial numbers of `torch.nn.Linear`."""
    matrices = {name: weight for name, weight in wiring.weights.items() if name.startswith("W_")}
    for name, weight in matrices.items():
        wiring.weights[name] = replace(weight, std=0.0, bound=weight.std)
    for vector in wiring.vectors.values():
        if vector.weight is not None and not vector.per_head:
            vector.bias = _add_bias(wiring, vector.weight)
    if wiring.has_output:
        _add_bias(wiring, "W_O")


def _add_bias(wiring: Wiring, matrix: str) -> str:
    name, weight = f"b_{matrix[2:]}", wiring.weights[matrix]
    like = f"b_{weight.like[2:]}" if weight.like else ""
    shape = (weight.shape[-1],)
    wiring.weights[name] = Weight(shape, bound=weight.bound, like=like, role=weight.role)
    return name
