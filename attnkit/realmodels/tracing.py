"""Which outputs of which linear layers become each head's queries, keys and values.

A model of transformers is built without weights and its own code runs once on two tokens. Linear
layers are replaced by ones that put out their own number and the number of each output, embeddings
by constants, and norms by nothing. What enters the product of queries and keys, and that of the
attention and the values, then names the rows of the weights, whatever the family calls them and
however it fuses, groups, splits or repeats them. At the first token rotary positions turn nothing;
what they do to the second one gives their frequencies.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnkit.realmodels.base import Kind, Rope

N_TOKENS = 2

_N_BITS, _N_WHOLE = 9, 5
_N_COPIES = _N_WHOLE + 2 * _N_BITS
"""Size of the batch: copies of the input that differ in what the linear layers put out. They are
ones, the number of the layer, the number of the output, two checksums of both, by which sums of
outputs are told from outputs, and the lowest bits of the output's number with their complements,
which show how two outputs are mixed. It is a prime, so that its axis is found.
"""

_FIRST = 1000
"""Number of the first module; a ratio of ordinary numbers is rarely so large and whole."""

_MOST_OUTPUTS = 2**16
"""Outputs of a linear layer above which it is one of a vocabulary."""

_SUMS = frozenset(
    f"{before}{name}{after}"
    for name in ("add", "sub", "mul", "div", "truediv", "true_divide", "multiply")
    for before, after in (("", ""), ("", "_"), ("__", "__"), ("__r", "__"), ("__i", "__"))
)
_PRODUCTS = frozenset(("matmul", "__matmul__", "bmm", "baddbmm", "einsum"))
_EINSUM = re.compile(r"\s*(\w+)\s*,\s*(\w+)\s*->\s*(\w+)\s*")
_UNREAD = re.compile("(Experts|Mixer|DeltaNet|MambaLayer)$")
"""Ends of the names of modules that are not run: what they put out has the shape of what they read.
"""

_PLAIN = re.compile(r"\.(mlp|feed_forward|ffn)\.")
"""Part of the names of linear layers that attention does not read."""

_LARGE, _SMALL = 2**22, 2**14

Rows = Int[np.ndarray, "h d 2"]
"""For each number of each head, the number of a linear layer and the index of its output."""


@dataclass(eq=False)
class TracedModule:
    """Linear layer or norm of a model.

    Attributes:
        name: Its name in the model.
        module: The module.
        transposed: Whether the weight is stored as (inputs, outputs).
        inputs: Layer and row of each input, if all are outputs of linear layers; None otherwise.
        before: Number of the norm of which all inputs are outputs; 0 if there is none.
        seen: Checksum of the inputs, to tell one stream from another; "" if it has not run.
        norms: Outputs that a norm reads before they are used, by the number of the norm.
    """

    name: str
    module: nn.Module
    transposed: bool = False
    inputs: Rows | None = None
    before: int = 0
    seen: str = ""
    norms: dict[int, set[int]] = field(default_factory=dict)

    def norm_of(self, output: int) -> int:
        """Return the number of the norm that reads an output; 0 if there is none."""
        return next((norm for norm, outputs in self.norms.items() if output in outputs), 0)

    @property
    def parent(self) -> str:
        """Name of the module that holds it."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, eq=False)
class TracedLayer:
    """Attention layer of a model, in the order in which layers run.

    Attributes:
        kind: Encoder or causal; cross-attention is told by the streams that are read.
        q: Rows of the queries of every head.
        k: Rows of the keys of every key and value head.
        v: Rows of its values.
        rope: Rotary positions, or None.
        turned: Whether positions change queries in another way.
        product: Indices of its two products among all products of the run, for tests.
    """

    kind: Kind
    q: Rows
    k: Rows
    v: Rows
    rope: Rope | None
    turned: bool
    product: tuple[int, int]


@dataclass(eq=False)
class Trace:
    """Attention layers of a model, and its linear layers and norms by number."""

    layers: list[TracedLayer] = field(default_factory=list)
    modules: dict[int, TracedModule] = field(default_factory=dict)


class Hollow(TorchFunctionMode):
    """Context in which large tensors are made without memory, on the device `meta`."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Make a tensor, or do any other operation as it is."""
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") in ("empty", "zeros", "ones", "rand", "randn", "full"):
            size = args[0] if args and isinstance(args[0], (list, tuple)) else args
            size = kwargs.get("size", size)
            if all(isinstance(side, int) for side in size) and math.prod(size) > _LARGE:
                kwargs["device"] = "meta"
        return func(*args, **kwargs)


def trace(model: nn.Module, inputs: dict[str, Any]) -> Trace:
    """Run a model without weights on inputs of (copies, tokens), and return where attention is.

    Raises:
        ValueError: If an attention layer's heads share keys and values in an unknown way.
        Exception: Whatever the code of the model raises.
    """
    run = _Run(model)
    try:
        with torch.no_grad(), run:
            model(**{k: v.expand(_N_COPIES, *v.shape[1:]) if isinstance(v, Tensor) else v
                     for k, v in inputs.items()})  # fmt: skip
    finally:
        for module in run.replaced:
            del module.forward
    return run.trace


class _Run(TorchFunctionMode):
    """Context in which a model with replaced modules runs, and its products are watched."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.trace = Trace()
        self.replaced: list[nn.Module] = []
        self._scores: tuple[Tensor, Tensor, int] | None = None
        self._softmaxed = False
        self._n_products = 0
        self._norms: set[int] = set()
        for number, (name, module) in enumerate(model.named_modules(), _FIRST):
            forward = self._forward(number, name, module)
            if forward is not None:
                module.forward = forward
                self.replaced.append(module)

    def _forward(self, number: int, name: str, module: nn.Module) -> Callable[..., Any] | None:
        """Return what replaces a module's computation; None if it stays."""
        kind = type(module).__name__
        weight: Any = getattr(module, "weight", None)
        n_axes = weight.ndim if isinstance(weight, Tensor) else 0
        if _UNREAD.search(kind):
            return lambda hidden_states, *_, **__: hidden_states
        if isinstance(module, nn.Embedding):
            return _constant(module)
        if n_axes == 2 and ("Linear" in kind or kind == "Conv1D"):
            self.trace.modules[number] = TracedModule(name, module, kind == "Conv1D")
            return self._linear(number, weight.shape[kind == "Conv1D"])
        is_norm = "norm" in kind.lower() and not re.search("batch|group", kind.lower())
        if is_norm and n_axes < 2 and not list(module.children()):
            self.trace.modules[number] = TracedModule(name, module)
            self._norms.add(number)
            return self._norm(number)
        return None

    def _linear(self, number: int, n_outputs: int) -> Callable[..., Tensor]:
        def forward(x: Tensor, *_: Any, **__: Any) -> Tensor:
            source = self.trace.modules[number]
            copies = _by_copy(x)
            if not source.seen and copies is not None and not _PLAIN.search(source.name):
                first = copies.reshape(_N_COPIES, -1, x.shape[-1])[:, 0].contiguous()
                source.seen = hashlib.sha256(first[:_N_WHOLE].numpy().tobytes()).hexdigest()
                found = _decoded(first)
                before = set() if found is None else set(found[:, 0].unique().tolist())
                if before and not before & self._norms:
                    source.inputs = found.int().numpy() if found is not None else None
                elif len(before) == 1:
                    source.before = before.pop()
            if n_outputs > _MOST_OUTPUTS or copies is None or _PLAIN.search(source.name):
                return _filled((*x.shape[:-1], n_outputs))
            return _spread(_codes(number, n_outputs), x)

        return forward

    def _norm(self, number: int) -> Callable[..., Tensor]:
        """Return what replaces a norm: nothing between two linear layers, else its own numbers."""

        def forward(x: Tensor, *_: Any, **__: Any) -> Tensor:
            copies = _by_copy(x)
            if copies is None:
                return x
            found = _decoded(copies.reshape(_N_COPIES, -1, x.shape[-1])[:, 0])
            before = set() if found is None else set(found[..., 0].unique().tolist())
            if found is None or before & self._norms:
                return _spread(_codes(number, x.shape[-1]), x)
            for one in before:
                rows = found[found[..., 0] == one][:, 1].tolist()
                self.trace.modules[one].norms.setdefault(number, set(rows))
            return x

        return forward

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Do an operation; one with weights, which have no values, gives constants."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in _PRODUCTS and self._multiply(name, args, kwargs):
            like = func(*_on_meta(args), **_on_meta(kwargs))
            return torch.zeros(like.shape)
        if name == "scaled_dot_product_attention":
            self._attend(*args, **kwargs)
        given = list(_tensors((args, kwargs)))
        if any(x.is_meta for x in given) and not all(x.is_meta for x in given):
            return _without_weights(func, name, args, kwargs)
        self._softmaxed |= name == "softmax"
        try:
            return func(*args, **kwargs)
        except RuntimeError:  # in place on numbers that share memory, or with other numbers
            copies = _mapped(lambda x: x.float() if x.is_floating_point() else x, args)
            return func(*_mapped(torch.clone, copies), **kwargs)

    def _multiply(self, name: str, args: Any, kwargs: dict[str, Any]) -> bool:
        """Look at a product; return whether it is that of queries and keys."""
        pair = _factors(name, args, kwargs)
        if pair is None:
            return False
        self._n_products += 1
        if self._are_scores(*pair):
            return True
        if self._scores is not None and self._softmaxed:
            self._take_values(*pair)
        return False

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, **_: Any,
    ) -> None:  # fmt: skip
        """Look at attention that is one operation."""
        self._n_products += 2
        if not self._are_scores(query, key.mT):
            return
        scores = torch.zeros(*query.shape[:-1], key.shape[-2])
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = torch.where(attn_mask, scores, -1e9)
        elif attn_mask is not None:
            scores = scores + attn_mask
        elif is_causal:
            scores = torch.where(torch.ones(scores.shape[-2:]).tril() > 0, scores, -1e9)
        self._take_values(scores.softmax(-1), value)

    def _are_scores(self, a: Tensor, b: Tensor) -> bool:
        """Return whether two factors are queries and keys, and keep the first of several."""
        q, k = _by_copy(a), _by_copy(b)
        if q is None or k is None or _decoded(q[..., :1, :]) is None:
            return False
        if _decoded(k[..., :1]) is None:
            return False
        if self._scores is None or self._softmaxed:
            self._scores, self._softmaxed = (q, k.mT, self._n_products), False
        return True

    def _take_values(self, attention: Tensor, b: Tensor) -> None:
        """Finish the layer if the factors are the attention and the values."""
        copies = _by_copy(b)
        v = None if copies is None else _decoded(copies[..., 0, :])
        if v is None or self._scores is None:
            return
        q, k, product = self._scores
        self._scores = None
        of_q, of_k = (_decoded(x[..., 0, :]) for x in (q, k))
        assert of_q is not None
        assert of_k is not None
        heads, keys, values = (_by_head(x) for x in (of_q, of_k, v))
        keys, values = _grouped(keys, values, len(heads))
        rope, turned = _rope(q)
        shown = _by_copy(attention)
        row = (attention if shown is None else shown)[..., 0, :]
        causal = bool(row.shape[-1] > 1 and float(row.reshape(-1, row.shape[-1])[0, 1]) < 1e-4)
        kind = Kind.CAUSAL if causal else Kind.ENCODER
        products = product, self._n_products
        self.trace.layers.append(TracedLayer(kind, heads, keys, values, rope, turned, products))


def _codes(number: int, n: int) -> Float[Tensor, "copies n"]:
    """Return what a module with n outputs puts out."""
    rows = torch.arange(n, dtype=torch.int32)
    bits = torch.stack([(rows >> bit) & 1 for bit in range(_N_BITS)])
    layers = torch.full_like(rows, number)
    whole = torch.stack([torch.ones_like(rows), layers, rows, *_checksums(layers, rows)])
    return torch.cat([whole, bits, 1 - bits]).float()


def _checksums(layers: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    return (layers * 7919 + rows * 4513) % 9973, (layers * layers + rows * 31) % 4999


def _constant(module: nn.Embedding) -> Callable[..., Tensor]:
    """Return an embedding of numbers that no linear layer puts out."""
    width = module.weight.shape[1]

    def forward(ids: Any, *rest: Any, **named: Any) -> Any:
        if not isinstance(ids, Tensor):  # positions by the shape of the input
            return type(module).forward(module, ids, *rest, **named)
        return _filled((*ids.shape, width)) * torch.linspace(1, 1.7, width)

    return forward


def _filled(shape: Iterable[int], dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.full((), 0.37, dtype=dtype).expand(*shape)


def _spread(codes: Tensor, like: Tensor) -> Tensor:
    """Return what a module puts out for inputs of a shape: the same for every token."""
    axis = _copy_axis(like)
    assert axis is not None
    shape = [1] * like.ndim
    shape[axis], shape[-1] = like.shape[axis], codes.shape[-1]
    codes = codes.repeat_interleave(like.shape[axis] // _N_COPIES, 0)
    return codes.reshape(shape).expand(*like.shape[:-1], codes.shape[-1])


def _copy_axis(x: Tensor) -> int | None:
    axes = [axis for axis, size in enumerate(x.shape) if size and size % _N_COPIES == 0]
    exact = [axis for axis in axes if x.shape[axis] == _N_COPIES]
    return next(iter(exact or axes), None)


def _by_copy(x: Tensor) -> Tensor | None:
    """Return a tensor with the axis of the copies first; None if it has none."""
    axis = _copy_axis(x)
    if axis is None or x.is_meta:
        return None
    if x.shape[axis] != _N_COPIES:
        x = x.unflatten(axis, (_N_COPIES, -1))
    return x.movedim(axis, 0)


def _decoded(x: Float[Tensor, "copies *n d"]) -> Int[Tensor, "*n d 2"] | None:
    """Return module and output of every number; None if one of them is something else."""
    if not x.numel() or not x.is_floating_point():
        return None
    ratios = x[1:_N_WHOLE].double() / x[:1].double()
    whole = ratios.round()
    if not torch.isfinite(ratios).all() or (ratios - whole).abs().max() > 0.05:
        return None
    layers, rows, *sums = whole.long()
    good = all(map(torch.equal, sums, _checksums(layers, rows)))
    return torch.stack([layers, rows], -1) if good else None


def _by_head(rows: Int[Tensor, "*h d 2"]) -> Rows:
    found: Rows = rows.reshape(-1, *rows.shape[-2:]).numpy()
    return found


def _grouped(k: Rows, v: Rows, n_heads: int) -> tuple[Rows, Rows]:
    """Return the rows of key and value heads, each once, if query heads share them."""
    n = max(len(k), len(v))
    k, v = (np.repeat(x, n, 0) if len(x) == 1 else x for x in (k, v))
    both = np.concatenate([k, v], 1)
    starts = [0, *(i for i in range(1, n) if not np.array_equal(both[i], both[i - 1]))]
    shared = n // len(starts)
    if starts != list(range(0, n, shared)) or n_heads % len(starts):
        raise ValueError(f"{n_heads} heads share {len(starts)} key and value heads unequally")
    return k[starts], v[starts]


def _rope(q: Float[Tensor, "copies *h n d"]) -> tuple[Rope | None, bool]:
    """Return what a step of one position does to a head's queries, and whether it is no rotation.

    A rotation by the angle θ makes of the pair (a, b) the pair (a cos θ − b sin θ, b cos θ +
    a sin θ). Some copy has a = 0 and b = 1, so that it shows the sine itself.
    """
    if q.shape[-2] < N_TOKENS:
        return None, False
    head = q.reshape(_N_COPIES, -1, *q.shape[-2:])[:, 0].double().numpy()  # (copies, n, d)
    before, after = head[:, 0] / head[0, 0], head[:, 1] / head[0, 0]
    if not np.isfinite(after).all():
        raise ValueError("its positions turn queries by angles that are not finite")
    places = np.flatnonzero((before != after).any(0))
    if not len(places):
        return None, False
    n = len(places) // 2
    for first, second in ((places[:n], places[n:]), (places[::2], places[1::2])):
        if len(places) % 2:
            break
        a, b = before[:, first], before[:, second]
        shows_sine = (a == 0) & (b == 1)
        if not shows_sine[_N_WHOLE:].any(0).all():
            continue
        copies = _N_WHOLE + shows_sine[_N_WHOLE:].argmax(0)
        pairs = np.arange(n)
        sine, cosine = -after[copies, first], after[copies, second]
        turned = np.concatenate([cosine * a - sine * b, cosine * b + sine * a], 1)
        seen = after[:, np.r_[first, second]]
        if np.allclose(turned[_N_WHOLE:], seen[_N_WHOLE:], atol=1e-5) and pairs.size:
            return Rope(np.arctan2(sine, cosine), first, second), False
    return None, True


def _factors(name: str, args: Any, kwargs: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    """Return the two factors of a product, contracted over the last axis and the last but one."""
    if name == "einsum":
        equation, *operands = args
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])
        match = _EINSUM.fullmatch(equation) if isinstance(equation, str) else None
        if match is None or len(operands) != 2:
            return None
        of_a, of_b, out = match.groups()
        return _einsum_factors(of_a, of_b, out, *operands)
    a: Any
    b: Any
    if name == "baddbmm":
        a, b = (args[i] if len(args) > i else kwargs.get(f"batch{i}") for i in (1, 2))
    else:
        a, b = (*args, *kwargs.values(), None)[:2]
    good = all(isinstance(x, Tensor) and not x.is_meta and x.ndim > 2 for x in (a, b))
    return (a, b) if good else None


def _einsum_factors(
    of_a: str, of_b: str, out: str, a: Tensor, b: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Return the factors of an einsum as those of a matrix product; None if it is another one."""
    summed = [x for x in of_a if x in of_b and x not in out]
    batch = [x for x in of_a if x in of_b and x in out]
    own_a, own_b = ([x for x in names if x not in batch + summed] for names in (of_a, of_b))
    if len(summed) != 1 or len(own_a) != 1 or len(own_b) != 1 or a.is_meta or b.is_meta:
        return None
    order_a, order_b = [*batch, *own_a, *summed], [*batch, *summed, *own_b]
    return a.permute([*map(of_a.index, order_a)]), b.permute([*map(of_b.index, order_b)])


def _without_weights(func: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    """Do an operation on weights and other numbers: sums and scales change nothing."""
    if name == "__setitem__":
        return None
    if name == "__getitem__" and isinstance(args[1], Tensor) and not args[1].ndim:
        return args[0][args[1].item()]
    if name in _SUMS:
        real = next(x for x in args if isinstance(x, Tensor) and not x.is_meta)
        return real.expand(torch.broadcast_shapes(*(x.shape for x in _tensors(args))))
    # A convolution would mix tokens, which all have the same numbers here.
    mixes = name.startswith("conv")
    if not mixes and all(x.numel() <= _SMALL for x in _tensors((args, kwargs)) if x.is_meta):
        return func(*_made_real(args), **_made_real(kwargs))
    return _made_real(func(*_on_meta(args), **_on_meta(kwargs)))


def _tensors(values: Any) -> Iterable[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (list, tuple, dict)):
        for value in values.values() if isinstance(values, dict) else values:
            yield from _tensors(value)


def _mapped(change: Callable[[Tensor], Tensor], values: Any) -> Any:
    if isinstance(values, Tensor):
        return change(values)
    if type(values) is dict:
        return {name: _mapped(change, value) for name, value in values.items()}
    if type(values) in (list, tuple):
        return type(values)(_mapped(change, value) for value in values)
    return values


def _on_meta(values: Any) -> Any:
    return _mapped(lambda x: x.to("meta"), values)


def _made_real(values: Any) -> Any:
    def real(x: Tensor) -> Tensor:
        if not x.is_meta:
            return x
        if x.is_floating_point():
            return _filled(x.shape, x.dtype)
        return torch.zeros(x.shape, dtype=x.dtype)

    return _mapped(real, values)


def is_cross(trace: Trace, layer: TracedLayer) -> bool:
    """Return whether a layer's keys read another stream than its queries."""
    q, k = (root_of(trace, int(rows[0, 0, 0])) for rows in (layer.q, layer.k))
    return q.parent == k.parent and q.seen != k.seen


def latent_inputs(trace: Trace, number: int) -> Rows | None:
    """Return what a linear layer reads if that is the output of another one beside it."""
    module = trace.modules[number]
    if module.inputs is None:
        return None
    before = trace.modules.get(int(module.inputs[0, 0]))
    beside = before is not None and before.parent == module.parent
    return module.inputs if beside else None


def root_of(trace: Trace, number: int) -> TracedModule:
    """Return the first of the linear layers that follow one another, which reads the stream."""
    inputs = latent_inputs(trace, number)
    return trace.modules[number] if inputs is None else root_of(trace, int(inputs[0, 0]))


def without_rotary_part(trace: Trace, layer: TracedLayer) -> TracedLayer:
    """Return a layer of latent attention without the part of queries and keys that rotates.

    This part's keys are projected in one step, the others' in two.
    """
    deep = [latent_inputs(trace, int(n)) is not None for n in layer.k[0, :, 0]]
    if all(deep) or not any(deep):
        return layer
    kept = np.flatnonzero(deep)
    return replace(layer, q=layer.q[:, kept], k=layer.k[:, kept], rope=None, turned=False)
