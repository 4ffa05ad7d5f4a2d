"""Wirings: the vectors and weights of a variant's attention at given sizes.

A `Wiring` is a small graph without numbers. Its vectors are computed from the token or from other
vectors, each through a weight, and each of the roles Q, K, V uses one vector. Costs are counted on
it, the engine computes along it, and the diagram draws it. The rules of a variant change it in one
pass; it is constant afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from attnkit.foundation.language import mark
from attnkit.foundation.words import Sentence, listed
from attnkit.variants.sharing import Role, Sharing

if TYPE_CHECKING:
    from torch import Tensor

    from attnkit.variants.sharing import Role


TOKEN = "x"
"""Name of the normalised residual stream, from which the first vectors are computed."""


@dataclass
class Sizes:
    """Sizes of the runs of one variant: those of the experiment, unless the variant sets its own.

    `kv_heads`, `d_k` and `d_v` are 0 until a variant sets them. `build_wiring` then replaces 0 by
    `n_heads` or `d_head`.

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
    """A parameter of one run and layer, with its initial values.

    Attributes:
        shape: Shape without the axis of runs.
        std: Standard deviation of normal initial values, drawn for every seed and name.
        bound: Bound of uniform initial values; 0 if they are not uniform.
        fill: Initial values, repeated along the last axis; empty if they are random.
        like: Name of the parameter whose initial values it copies; empty if it copies none.
        role: Role on which it acts, if it belongs to a rule and not to a vector. Layers that reuse
            keys and values have no weights of the roles K and V.
        fixed: Whether it keeps its initial values in training.
    """

    shape: tuple[int, ...]
    std: float = 0.0
    bound: float = 0.0
    fill: tuple[float, ...] = ()
    like: str = ""
    role: Role | None = None
    fixed: bool = False

    @property
    def n_numbers(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)


@dataclass
class Vector:
    """A vector per token and head.

    Attributes:
        reads: Name of the vector from which it is computed, or `TOKEN`.
        weight: Name of the matrix; None if it is a copy.
        n_heads: Number of heads.
        width: Width per head.
        per_head: Whether each head reads the same head of the other vector, with its own matrix.
        bias: Name of the bias that is added; None if there is none.
        shared_offset: Name of a vector of one head that is added to every head; None if there is
            none.
        shared_prefix: Name of a vector of one head that stands first in every head, before as many
            numbers of the vector that is read as there is space for; None if there is none.
        gain: Name of the gains, if the vector is the mean of the token and of an MLP's output: the
            LayerNorm, with these gains, of gelu(the vector that is read) times the matrix. None if
            it is not.
    """

    reads: str
    weight: str | None
    n_heads: int
    width: int
    per_head: bool = False
    bias: str | None = None
    shared_offset: str | None = None
    shared_prefix: str | None = None
    gain: str | None = None

    @property
    def n_numbers(self) -> int:
        """Number of its elements over all heads."""
        return self.n_heads * self.width

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of all vectors from which it is computed."""
        sources = (self.reads, self.shared_offset, self.shared_prefix)
        return tuple([name for name in sources if name is not None])


@dataclass(frozen=True)
class Rotation:
    """Choice of the vectors, and of their components, that rotary positions rotate.

    Attributes:
        width: Number of rotated numbers of each vector, which are the first ones; 0 if all are.
        values: Whether values are rotated as keys are.
        back: Whether outputs of heads are rotated back by the position of the query.
    """

    width: int = 0
    values: bool = False
    back: bool = False


@dataclass
class Wiring:
    """Vectors, weights and roles of one variant's attention layer at its sizes.

    Attributes:
        sizes: Sizes of the variant.
        vectors: Vectors by name.
        roles: Name of the vector of each role.
        weights: Parameters of one layer by name.
        scale: Factor of the scores.
        symmetric: Whether scores are symmetric by construction.
        has_output: Whether there is an output matrix W_O; otherwise the heads' outputs are
            concatenated.
        n_maps: Number of score maps per head.
        adds_maps: Whether the maps are added before the softmax, and so are one bilinear form.
        reuse: Number of layers that share the keys and values of the first of them.
        bottom_middle: Whether the upper half of the layers uses the values of the bottom layer and
            the keys of the middle layer.
        shared_layers: Whether all layers use the parameters of the first.
        rotation: Vectors and components that rotary positions rotate, if the variant has them.
        rules: Rules of the variant in the order of application.
        module: Layers of a PyTorch module that computes attention and MLP, if there is one.
            `vectors` and `roles` are then those of QKV and mean nothing.
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
    bottom_middle: bool = False
    shared_layers: bool = False
    rotation: Rotation = Rotation()
    rules: list[Rule] = field(default_factory=list)
    module: ModuleFacts | None = None

    @property
    def plain(self) -> bool:
        """Whether attention is that of a sharing without options except sizes, in one stack."""
        return not (self.sizes.two_sided or self.module) and (
            all(rule.plain for rule in self.rules)
            and all(v.weight is not None for v in self.vectors.values())
            and self.sizes.kv_heads == self.sizes.n_heads
            and self.sizes.d_k == self.sizes.d_v == self.sizes.d_head
        )

    @property
    def value_is_key(self) -> bool:
        """Whether values are the keys as they enter the scores, after all rules of keys."""
        return self.rotation.values and self.roles["V"] == self.roles["K"]

    @property
    def n_inner(self) -> int:
        """Width of the concatenated outputs of the heads."""
        return self.sizes.n_heads * self.sizes.d_v

    @property
    def stored(self) -> list[str]:
        """Names of the vectors that a decoder must cache for each token to compute K and V."""
        names = [name for role in ("K", "V") for name in self.chain(self.roles[role])]
        return [name for name in dict.fromkeys(names) if self.vectors[name].reads == TOKEN]

    @property
    def n_ready(self) -> int:
        """Number of floats per token of keys and values as they enter the scores and the output.

        They count once if no rule makes keys and values of one vector different.
        """
        n_keys, n_values = (self.vectors[self.roles[role]].n_numbers for role in ("K", "V"))
        if self.roles["K"] != self.roles["V"]:
            return n_keys + n_values
        adjusted = {role for rule in self.rules for role in rule.code(self).adjust}
        return n_keys if self.value_is_key or not adjusted & {"K", "V"} else n_keys + n_values

    def chain(self, name: str) -> list[str]:
        """Return the names of a vector and of all vectors from which it is computed."""
        sources = [source for source in self.vectors[name].sources if source != TOKEN]
        return [name, *(before for source in sources for before in self.chain(source))]

    def order(self, name: str) -> list[str]:
        """Return the names of `chain` in the order in which their vectors can be computed."""
        return list(dict.fromkeys(reversed(self.chain(name))))

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

    @property
    def n_leading(self) -> int:
        """Number of layers below those that use the values of the bottom layer."""
        n_layers = self.sizes.n_layers
        return (n_layers + 1) // 2 if self.bottom_middle else n_layers

    @property
    def layers_share(self) -> bool:
        """Whether some layers use the keys and values of others."""
        return any(self.leader(layer) != layer for layer in range(self.sizes.n_layers))

    def leader(self, layer: int, role: Role = "K") -> int:
        """Return the layer whose keys, or whose values, this layer uses."""
        if layer >= self.n_leading:
            return 0 if role == "V" else self.n_leading - 1
        return layer - layer % self.reuse

    def names(self, layer: int) -> dict[str, str]:
        """Return the full parameter name of every weight that a layer uses."""
        if self.module is not None:
            return {name: f"{layer}.{name}" for name in self.module.shapes[layer]}
        unused: set[str | None] = set()
        if self.leader(layer) != layer:
            of_queries = self.chain(self.roles["Q"])
            of_leader = [v for name, v in self.vectors.items() if name not in of_queries]
            unused = {name for vector in of_leader for name in (vector.weight, vector.bias)}
            unused |= {name for name, weight in self.weights.items() if weight.role in ("K", "V")}
        owner = 0 if self.shared_layers else layer
        return {name: f"{owner}.{name}" for name in self.weights if name not in unused}

    def parameters(self) -> dict[str, Weight]:
        """Return all parameters of the attention layers by full name."""
        parameters: dict[str, Weight] = {}
        for layer in range(self.sizes.n_layers):
            parameters |= {full: self.weights[name] for name, full in self.names(layer).items()}
        return parameters


def base_wiring(sizes: Sizes, sharing: Sharing) -> Wiring:
    """Return the wiring of a sharing without options.

    Raises:
        ValueError: If roles of one class have different shapes.
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
                shape, other_shape = (
                    "{} × {}".format(*shapes[role]) for role in (members[0], other)
                )
                raise ValueError(
                    mark(
                        "tied roles need one shape, but {role} has {shape} and {other} has "
                        "{other_shape} (heads × width)",
                        role=members[0],
                        shape=shape,
                        other=other,
                        other_shape=other_shape,
                    )
                )
        wiring.project(members[0], TOKEN, *shapes[members[0]])
        roles |= dict.fromkeys(members, members[0])
    wiring.weights["W_O"] = Weight((wiring.n_inner, sizes.d_model), wiring.n_inner**-0.5)
    return wiring


def make_identity(wiring: Wiring, members: tuple[Role, ...]) -> None:
    """Replace the matrix of a class of tied roles by the token itself.

    Raises:
        ValueError: If its heads together are not as wide as the token.
    """
    name = members[0]
    vector, d_model = wiring.vectors[name], wiring.sizes.d_model
    if vector.n_numbers != d_model:
        given = {
            "roles": "=".join(members),
            "n_heads": vector.n_heads,
            "width": vector.width,
            "d_model": d_model,
        }
        if vector.n_heads == wiring.sizes.n_heads:
            raise ValueError(
                mark(
                    "{roles}=I needs n_heads · d_head = d_model, but {n_heads} · {width} is not "
                    "{d_model}; try d_head=m/h",
                    **given,
                )
            )
        raise ValueError(
            mark(
                "{roles}=I needs kv_heads · d_head = d_model, but {n_heads} · {width} is not "
                "{d_model}",
                **given,
            )
        )
    del wiring.weights[f"W_{name}"]
    wiring.vectors[name] = Vector(TOKEN, None, vector.n_heads, vector.width)


def build_wiring(
    sizes: Sizes, sharing: Sharing, identity: tuple[Role, ...], rules: list[Rule]
) -> Wiring:
    """Apply the rules of a variant to the sizes, then to the wiring of its sharing.

    Raises:
        ValueError: If the variant does not go with the sizes; the message says why.
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
    if sizes.two_sided and (wiring.reuse > 1 or wiring.bottom_middle or wiring.shared_layers):
        raise ValueError("layers that share with others do not go with an encoder and a decoder")
    if sizes.standard and wiring.module is None:
        _make_standard(wiring)
    return wiring


def _make_standard(wiring: Wiring) -> None:
    """Give every matrix a bias, and both the initial values of `torch.nn.Linear`."""
    matrices = {name: weight for name, weight in wiring.weights.items() if name.startswith("W_")}
    for name, weight in matrices.items():
        wiring.weights[name] = replace(weight, std=0.0, bound=weight.std)
    for vector in wiring.vectors.values():
        if vector.weight is not None and not vector.per_head:
            vector.bias = _add_bias(wiring, vector.weight)
    if wiring.has_output:
        _add_bias(wiring, "W_O")


def _add_bias(wiring: Wiring, matrix: str) -> str:
    """Add the bias of a matrix and return its name."""
    name, weight = f"b_{matrix[2:]}", wiring.weights[matrix]
    like = f"b_{weight.like[2:]}" if weight.like else ""
    shape = (weight.shape[-1],)
    wiring.weights[name] = Weight(shape, bound=weight.bound, like=like, role=weight.role)
    return name


HOOKS = ("adjust", "bias", "merge", "combine", "finish")
"""Names of the methods of a rule that act on tensors; `Code` has a field for each."""


@dataclass(frozen=True)
class Code:
    """Effect of a rule as source text for the exported module of one variant.

    In this text, `q`, `k` and `v` are (b, h, i, d), without the axis of heads if there is only one
    head. `scores` is (b, h, i, j), and has an axis of maps after b until `merge` or `combine`. `x`
    is the residual stream, and `self` is the layer, whose weights have their names in the wiring.

    Attributes:
        functions: Functions that are defined once, before the classes.
        setup: Lines of the layer's `__init__`; `layer` is its index, from 0.
        adjust: Expression of the adjusted rows of each role.
        merge: Lines that replace the `scores` of several maps by one.
        bias: Lines that add a bias to `scores`.
        combine: Lines that change `pattern` or replace several maps by one; `masked` are the
            scores after masks.
        finish: Lines that change `z`, the output of the heads; `v` holds the values of all tokens.
    """

    functions: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    adjust: Mapping[Role, str] = field(default_factory=dict)
    merge: tuple[str, ...] = ()
    bias: tuple[str, ...] = ()
    combine: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layer:
    """An attention layer, as rules see it.

    Attributes:
        wiring: Wiring of the variant.
        index: Index of the layer, from 0.
        weights: Weights of the layer by their names in the wiring, with a leading axis of seeds.
    """

    wiring: Wiring
    index: int
    weights: dict[str, Tensor]


class Rule:
    """Effect of one word of a variant, or of its position scheme, as hooks of the engine.

    Rows are (s, b, h, i, d): seeds, examples, heads, positions, width. Weights have a leading axis
    of seeds. Methods that are not overridden change nothing. They import torch inside only, so
    that pages can read the catalogue without it. A rule that overrides a method of `HOOKS` returns
    its equivalent in plain PyTorch from `code`.

    Class attributes:
        plain: Whether attention is computed as without this rule.
        linear: Whether `adjust` multiplies vectors by a fixed matrix, which can then be applied
            to weights.
    """

    plain: bool = False
    linear: bool = False

    def resize(self, sizes: Sizes) -> None:
        """Change the sizes before the wiring is built. Raises ValueError if they disagree."""

    def rewire(self, wiring: Wiring) -> None:
        """Change vectors, roles and weights. Raises ValueError if the sizes do not allow it."""

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Return the rows of a role as the scores or the output use them; `positions` is (i,)."""
        return rows

    def norm(self, of: Role | Literal["Z"], rows: Tensor) -> Tensor | None:
        """Return the factor by which a norm multiplies each row, (s, b, h, i, 1); None without one.

        Apart from this factor, `adjust` is linear in the rows of a role, and so is `finish` in the
        outputs of the heads, Z, except for what it adds. An attribution splits rows into parts and
        keeps the factor of the whole row.
        """
        return None

    def bias(self, query_positions: Tensor, key_positions: Tensor, layer: Layer) -> Tensor | None:
        """Return the bias of the scores, (s or 1, 1, h or 1, i, j); None if there is none."""
        return None

    def merge(self, scores: Tensor, layer: Layer) -> Tensor:
        """Return the changed scores before mask and softmax, (s, b, h, maps, i, j)."""
        return scores

    def combine(self, pattern: Tensor, masked: Tensor, layer: Layer) -> Tensor:
        """Return the changed pattern, with one map for several, (s, b, h, maps, i, j).

        Args:
            pattern: Softmax of the masked scores.
            masked: Masked scores.
        """
        return pattern

    def finish(
        self, z: Tensor, own_values: Tensor | None, positions: Tensor, layer: Layer
    ) -> Tensor:
        """Return the changed output of the heads before W_O, (s, b, h, i, d).

        Args:
            z: Output of the heads.
            own_values: Values at the query positions, after all rules, shaped as `z`; None if
                queries and keys are different sequences, as in cross-attention.
            positions: Query positions, (i,).
        """
        return z

    def code(self, wiring: Wiring) -> Code:
        """Return the equivalent of the hooks in plain PyTorch."""
        return Code()


@dataclass(eq=False)
class ModuleFacts:
    """Facts about all layers of a module at the sizes of a variant.

    Attributes:
        name: Name of the class.
        origin: File of the class, or "a notebook".
        shapes: For every layer, the shapes of the parameters and drawn buffers by name.
        fixed: Names of the parameters that training never changes.
        drawn: Names of the buffers that the constructor draws anew for every seed, and which
            therefore travel with the parameters; training never changes them.
        unused: Names of the parameters for which what it returns has no gradient in any layer.
        returned: For every layer, whether it returns scores, and whether it returns a pattern.
        masked: Whether the scores that it returns have a mask in them, so that they are not used.
        attends_to_itself: Whether a token of it may attend to itself although the self-mask is on.
        is_other_in_training: Whether it computes other numbers in training than in evaluation.
        batched: Whether all seeds are computed as one batch; otherwise one after the other.
        multiply_adds: Multiply-adds of all layers for one token, as torch counts them.
        kv_cache: Numbers that a decoder keeps per token, over all layers; None if unknown.
    """

    name: str
    origin: str
    shapes: list[dict[str, tuple[int, ...]]] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    returned: list[tuple[bool, bool]] = field(default_factory=list)
    masked: bool = False
    attends_to_itself: bool = False
    is_other_in_training: bool = False
    batched: bool = True
    multiply_adds: int = 0
    kv_cache: int | None = None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModuleFacts:
        """Read facts that `asdict` has written."""
        shapes = [{name: tuple(shape) for name, shape in one.items()} for one in values["shapes"]]
        return cls(**{**values, "shapes": shapes})

    @property
    def weights(self) -> dict[str, Weight]:
        """Parameters of all layers, and drawn buffers, by name."""
        of_all = {name: shape for shapes in self.shapes for name, shape in shapes.items()}
        fixed = {*self.fixed, *self.drawn}
        return {name: Weight(shape, fixed=name in fixed) for name, shape in of_all.items()}

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all layers; buffers do not count."""
        of_all = [item for shapes in self.shapes for item in shapes.items()]
        return sum(math.prod(shape) for name, shape in of_all if name not in self.drawn)

    @property
    def has_scores(self) -> bool:
        """Whether all layers return scores without a mask, so that they have an asymmetry."""
        return all(scores for scores, _ in self.returned) and not self.masked

    @property
    def missing(self) -> str:
        """Sentences on what of its layers has no effect, and on what is empty without maps."""
        numbers = SimpleNamespace(
            name=self.name,
            parameters=listed(self.unused),
            evaluates=self.is_other_in_training,
            masked=self.masked,
            attends_to_itself=self.attends_to_itself,
            scores=self.masked or all(scores for scores, _ in self.returned),
            pattern=all(pattern for _, pattern in self.returned),
        )
        return " ".join(row.fill(numbers) for row in _MISSING if row.holds(numbers))


_MISSING = (
    Sentence(
        "What {name} returns has no gradient for {parameters}: training changes nothing there, but "
        "all of it counts as parameters.",
        lambda n: n.parameters,
    ),
    Sentence(
        "{name} always computes as in evaluation: dropout does nothing, and running statistics do "
        "not change.",
        lambda n: n.evaluates,
    ),
    Sentence(
        "The setting “self-mask” is on, but tokens of {name} may attend to themselves: let its "
        "constructor ask for self_mask, and add -1e4 to the diagonal of its scores.",
        lambda n: n.attends_to_itself,
    ),
    Sentence(
        "{name} returns scores with a mask in them, so that the asymmetry is empty: let forward "
        "return the scores from before the mask.",
        lambda n: n.masked,
    ),
    Sentence(
        "{name} does not return its scores and pattern, so that the asymmetry and attention maps "
        "and attention masses are empty: let forward return (x, scores, pattern).",
        lambda n: not n.scores and not n.pattern,
    ),
    Sentence(
        "{name} does not return its scores, so that the asymmetry is empty: let forward return (x, "
        "scores, pattern).",
        lambda n: not n.scores and n.pattern,
    ),
    Sentence(
        "{name} does not return its pattern, so that attention maps and attention masses are "
        "empty: let forward return (x, scores, pattern).",
        lambda n: n.scores and not n.pattern,
    ),
)
"""What is said of a module, each sentence by itself."""
