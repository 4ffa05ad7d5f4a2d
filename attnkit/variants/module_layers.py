"""Layers of a PyTorch module of one's own at given sizes: their computation and a first trial.

Every layer computes a small batch before anything is trained, so that a module that is wrong is
refused with a message, and its facts are noted. Torch is imported inside functions only. Index
letters as in `attnkit.model.reference`.
"""

from __future__ import annotations

import copy
import inspect
import random
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnkit.foundation.language import Message, mark
from attnkit.variants.wiring import ModuleFacts, Wiring

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

RAISED = (Exception, SystemExit)
"""What code of somebody else may raise; an interruption is not its own."""

_DRAWING = threading.Lock()
"""Held while code of somebody else may draw from global random generators."""

N_EXAMPLES = 2
"""Number of examples, and of sets of parameters, of a trial."""

_EXACT = 2**24
"""Largest whole number of a drawn buffer, which travels as a single-precision number."""

CACHE = "kv_cache_floats_per_token"
"""Attribute of a module that says how many numbers a decoder keeps per token and layer."""

_ROUNDING = 1e-4
"""Largest relative difference between numbers that should be equal."""

_MASK = 1e4
"""Size from which a score counts as masked; the input is of ordinary size."""

CONSTRUCTOR_SIZES = (
    "d_model",
    "d_head",
    "n_heads",
    "n_layers",
    "n_ctx",
    "d_mlp",
    "causal",
    "self_mask",
)
"""Sizes that a constructor may ask for by name."""


class ModuleFailure(ValueError):
    """A module cannot be made or does not compute what it should.

    The message names its class, its file and, where it is known, the line.

    Attributes:
        trained: The `attnkit.Result` of what `attnkit.train` had trained before the module failed;
            None if nothing.
    """

    trained: Any = None


class Output(NamedTuple):
    """Residual stream after a layer, (s, b, i, m); scores and pattern, (s, b, h, i, j), or None."""

    x: Tensor
    scores: Tensor | None
    pattern: Tensor | None


@contextmanager
def drawing(seed: int | None = None) -> Iterator[None]:
    """Let code of somebody else draw from global random generators, which are then as before.

    Args:
        seed: Seed of the generators of torch, numpy and Python; None: as they are.
    """
    import torch

    legacy = np.random.mtrand  # which is `np.random` of old, where much code still draws
    with _DRAWING, torch.random.fork_rng(devices=[]):
        states = random.getstate(), legacy.get_state()
        if seed is not None:
            torch.manual_seed(seed)
            legacy.seed(seed % 2**32)
            random.seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            legacy.set_state(states[1])


class ModuleLayers(ModuleFacts):
    """All layers of a module at the sizes of a variant, with the facts about them.

    Args:
        attention: The class.
        origin: File of the class, or "a notebook".
        of_qkv: Wiring of QKV at these sizes.

    Attributes:
        of_qkv: Wiring of QKV at these sizes; parameters of its names start from its numbers.
        modules: A module for each layer, as the constructor makes it for seed 0.
    """

    def __init__(self, attention: type[nn.Module], origin: str, of_qkv: Wiring) -> None:
        super().__init__(attention.__name__, origin)
        self.attention, self.of_qkv, self.sizes = attention, of_qkv, of_qkv.sizes
        self._of_thread = threading.local()  # a call exchanges the parameters of its module
        self._lazy = set[int]()  # layers whose first call makes parameters

    def make(self) -> None:
        """Make the modules of all layers, try them, and note the facts about them.

        Raises:
            ModuleFailure: If they cannot be made or do not compute what they should.
        """
        try:
            self._make_modules()
            for layer in range(self.sizes.n_layers):
                _try(self, layer)
            self.multiply_adds = _count_multiply_adds(self)
            self.kv_cache = _count_cache(self)
        except (ModuleFailure, MemoryError):
            raise
        except RAISED as error:
            reason = in_short(error, self.origin)
            raise self.error(mark("its forward fails ({reason})", reason=reason)) from None

    def _make_modules(self) -> None:
        layers = range(self.sizes.n_layers)
        self._lazy = {layer for layer in layers if self._makes_parameters_later(layer)}
        self.modules = [self.make_one(layer, seed=0) for layer in layers]
        self.drawn = self._find_drawn()
        known = dict[str, tuple[int, ...]]()
        for layer, module in enumerate(self.modules):
            numbers = self._numbers(module)
            self.shapes.append({name: tuple(value.shape) for name, value in numbers.items()})
            known = {**self.shapes[-1], **known}
            for name, shape in self.shapes[-1].items():
                if known[name] != shape:
                    raise self.error(
                        mark(
                            "{name} has shape {first} and, in layer {layer}, {other}, allowed one "
                            "for all layers",
                            name=name,
                            first=str(known[name]),
                            layer=layer + 1,
                            other=str(shape),
                        )
                    )
        parameters = [item for module in self.modules for item in module.named_parameters()]
        if not parameters:
            raise self.error(mark("it has no parameters, allowed a module that can be trained"))
        self.fixed = sorted({name for name, value in parameters if not value.requires_grad})

    def initial(self, seed: int, layer: int) -> dict[str, Tensor]:
        """Return the numbers that the constructor of a layer draws for the seed of a run."""
        module = self.make_one(layer, seed=seed * self.sizes.n_layers + layer + 1)
        return {name: value.detach().float() for name, value in self._numbers(module).items()}

    def run(
        self,
        layer: int,
        weights: dict[str, Tensor],
        x: Tensor,
        y: Tensor,
        mask: Tensor | None,
        *,
        batched: bool | None = None,
    ) -> Output:
        """Compute one layer of all seeds.

        Args:
            layer: Index of the layer.
            weights: Parameters of the layer, and drawn buffers, by name, (s, …).
            x: Residual stream at the query positions, (s, b, i, m).
            y: Residual stream at the key positions; used in an encoder and a decoder only.
            mask: Mask of the scores; used in an encoder and a decoder only.
            batched: Whether to compute all seeds as one batch. None: as `batched` says.

        Raises:
            ModuleFailure: If the module fails, or if seeds are computed in turn and its output has
                another shape than x.
        """
        import torch
        from torch.func import functional_call, vmap

        module = self._of(layer, x.device)
        streams = (x, y) if self.sizes.two_sided else (x,)
        extra = () if mask is None or not self.sizes.two_sided else (mask,)
        buffers = dict(module.named_buffers())

        def one(numbers: dict[str, Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
            typed = {
                name: value.to(buffers[name].dtype) if name in buffers else value
                for name, value in numbers.items()
            }
            returned = functional_call(module, typed, (*inputs, *extra))
            return tuple(part for part in parts_of(returned) if part is not None)

        try:
            if self.batched if batched is None else batched:
                parts = vmap(one)(weights, *streams)
            else:
                of_seeds = []
                for s in range(len(x)):
                    numbers = {name: value[s] for name, value in weights.items()}
                    of_seeds.append(one(numbers, *(stream[s] for stream in streams)))
                parts = tuple(torch.stack(part) for part in zip(*of_seeds, strict=True))
        except RAISED as error:
            if isinstance(error, MemoryError) or "memory" in str(error):
                raise
            reason = in_short(error, self.origin)
            device = str(x.device)
            failed = mark("its forward fails on {device} ({reason})", device=device, reason=reason)
            raise self.error(failed) from error
        has_scores, has_pattern = self.returned[layer]
        rest = list(parts[1:])
        scores = rest.pop(0) if has_scores else None
        scores = None if self.masked else scores  # its numbers would be those of the mask
        pattern = rest.pop(0) if has_pattern else None
        return Output(parts[0], _with_heads(scores), _with_heads(pattern))

    def inputs(self, layer: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return two seeds' inputs of a layer for a trial: x, y and its mask."""
        import torch

        sizes = self.sizes
        generator = torch.Generator().manual_seed(layer)

        def rows(n: int) -> Tensor:
            return torch.randn(N_EXAMPLES, N_EXAMPLES, n, sizes.d_model, generator=generator)

        if not sizes.two_sided:
            x = rows(sizes.n_ctx)
            return x, x, None
        n_encoders, n_source = sizes.n_layers // 3, sizes.n_ctx // 2
        source, target = rows(n_source), rows(sizes.n_ctx - n_source)
        if layer < n_encoders:
            return source, source, None
        if layer % 2 == n_encoders % 2:
            n = target.shape[2]
            return target, target, torch.full((n, n), -torch.inf).triu(1)
        return target, source, None

    def arguments(self, layer: int) -> tuple[Tensor, ...]:
        """Return one seed's arguments of a layer's forward for a trial."""
        x, y, mask = self.inputs(layer)
        streams = (x[0], y[0]) if self.sizes.two_sided else (x[0],)
        return streams if mask is None else (*streams, mask)

    def error(self, what: str, method: str = "") -> ModuleFailure:
        """Return the error of something that the module does.

        Args:
            what: The reason, a text from `mark`.
            method: Name of the method that does it, whose line the message names.
        """
        code = getattr(getattr(self.attention, method, None), "__code__", None)
        reason = what if isinstance(what, Message) else Message(what, {})
        values: dict[str, Any] = {"name": self.name, "file": self.origin, "reason": reason}
        if code is None or Path(code.co_filename).name != self.origin:
            return ModuleFailure(mark("{name} in {file}: {reason}", **values))
        line = code.co_firstlineno
        return ModuleFailure(mark("{name} in {file}, line {line}: {reason}", line=line, **values))

    def _of(self, layer: int, device: torch.device) -> nn.Module:
        """Return this thread's copy of the module of a layer, on a device."""
        copies: dict[str, nn.Module] = self._of_thread.__dict__
        key = f"{layer} on {device}"
        if key not in copies:
            copies[key] = copy.deepcopy(self.modules[layer]).to(device)
        return copies[key]

    def _makes_parameters_later(self, layer: int) -> bool:
        module = self.make_one(layer, seed=0)
        before = [name for name, _ in module.named_parameters()]
        is_lazy = any(hasattr(p, "materialize") for p in (*module.parameters(), *module.buffers()))
        with suppress(*RAISED), drawing():  # the trial says what is wrong
            self._call(module, layer)
        return is_lazy or before != [name for name, _ in module.named_parameters()]

    def _call(self, module: nn.Module, layer: int) -> None:
        import torch

        with torch.no_grad():
            module(*self.arguments(layer))

    def _numbers(self, module: nn.Module) -> dict[str, Tensor]:
        buffers = dict(module.named_buffers())
        drawn = {name: buffers[name] for name in self.drawn if name in buffers}
        numbers = {**dict(module.named_parameters()), **drawn}
        for name, value in numbers.items():
            if value.is_complex():
                reason = f"{name} holds complex numbers, allowed real ones"
                raise self.error(mark("its constructor fails ({reason})", reason=reason))
        return numbers

    def _find_drawn(self) -> list[str]:
        """Return the names of the buffers that differ between seeds."""
        drawn = set[str]()
        for layer, module in enumerate(self.modules):
            buffers = dict(module.named_buffers())
            shapes = {(name, one.shape) for name, one in buffers.items()}
            for seed in (1, 2) if buffers else ():
                others = dict(self.make_one(layer, seed=seed).named_buffers())
                for name, _ in sorted(shapes ^ {(key, one.shape) for key, one in others.items()}):
                    wrong = mark("its buffer {name} has another shape for every seed", name=name)
                    raise self.error(wrong)
                for name, one in others.items():
                    if one.equal(buffers[name]):
                        continue
                    drawn.add(name)
                    if not one.is_floating_point() and one.double().abs().max() > _EXACT:
                        raise self.error(
                            mark(
                                "its buffer {name} has numbers above {most:,}, the most allowed",
                                name=name,
                                most=_EXACT,
                            )
                        )
        return sorted(drawn)

    def make_one(self, layer: int, *, seed: int) -> nn.Module:
        """Return a module of a layer as its constructor makes it for a seed."""
        sizes = self.sizes
        n_encoders = sizes.n_layers // 3
        offered = {
            "layer": layer,
            "has_mlp": not sizes.two_sided
            or layer < n_encoders
            or layer % 2 == (n_encoders + 1) % 2,
            **{name: getattr(sizes, name) for name in CONSTRUCTOR_SIZES},
        }
        try:
            parameters = inspect.signature(self.attention).parameters.values()
        except RAISED as error:
            wrong = mark("its constructor cannot be read ({reason})", reason=str(error))
            raise self.error(wrong) from None
        named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        for parameter in named:
            if parameter.name not in offered and parameter.default is parameter.empty:
                raise self.error(
                    mark(
                        "its constructor asks for {name}, allowed {allowed}, or a default",
                        name=repr(parameter.name),
                        allowed=", ".join(offered),
                    ),
                    "__init__",
                )
        arguments = {p.name: offered[p.name] for p in named if p.name in offered}
        try:
            with drawing(seed):
                module = self.attention(**arguments).eval()
                if layer in self._lazy:
                    self._call(module, layer)
                return module
        except RAISED as error:
            reason = in_short(error, self.origin)
            raise self.error(mark("its constructor fails ({reason})", reason=reason)) from None


def parts_of(returned: Any) -> tuple[Any, Any, Any]:
    """Return x, scores and pattern of what a module returned."""
    if not isinstance(returned, tuple | list):
        return returned, None, None
    x, scores, pattern = (*returned, None, None)[:3] if returned else (None,) * 3
    return x, scores, pattern


def _with_heads(map_of_heads: Tensor | None) -> Tensor | None:
    """Return scores or a pattern with the axis of heads, which a single head may leave out."""
    if map_of_heads is None or map_of_heads.dim() == 5:
        return map_of_heads
    return map_of_heads.unsqueeze(2)


def in_short(error: BaseException, file: str) -> str:
    """Return the type and first line of an error, and the last line of a file that led to it."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    numbers = [frame.lineno for frame in frames if Path(frame.filename).name == file]
    return mark("{error}, in line {line}", error=text, line=numbers[-1]) if numbers else text


# The trial


def _try(layers: ModuleLayers, layer: int) -> None:
    """Compute a layer once, check what it returns, and see whether seeds can be a batch."""
    import torch

    module, arguments = layers.modules[layer], layers.arguments(layer)
    inputs = arguments[: 2 if layers.sizes.two_sided else 1]
    given = [one.clone() for one in inputs]
    with drawing(), torch.enable_grad():
        parts = parts_of(module(*arguments))
        if not all(map(torch.equal, inputs, given)):
            raise layers.error(
                mark("its forward changes x in place, allowed a new tensor: x = x + z, not x += z"),
                "forward",
            )
        repeated = parts_of(module(*arguments))
    _check(layers, parts, inputs)
    if not torch.equal(parts[0], repeated[0]):
        raise layers.error(
            mark("its forward gives other numbers for the same input, allowed one without chance"),
            "forward",
        )
    _check_examples(layers, layer, arguments, parts[0])
    if layers.sizes.causal and not layers.sizes.two_sided:
        _check_causality(layers, layer, inputs[0], parts[0])
    if any(p.requires_grad for p in module.parameters()):
        _check_gradients(layers, layer, parts[0])
    _check_seeds(layers, layer, parts[0])
    scores, pattern = parts[1:]
    if scores is not None and pattern is None and _is_pattern(scores):  # others return (x, pattern)
        scores, pattern = None, scores
    layers.returned.append((scores is not None, pattern is not None))
    layers.masked |= scores is not None and bool((scores.abs() >= _MASK).any())
    if layers.sizes.self_mask and not layers.sizes.two_sided:  # whose forward is given the mask
        layers.attends_to_itself |= _attends_to_itself(layers, layer, pattern)
    with suppress(*RAISED), drawing(), torch.no_grad():  # how it trains elsewhere is its own matter
        in_training = parts_of(copy.deepcopy(module).train()(*arguments))[0]
        layers.is_other_in_training |= not in_training.equal(parts[0])
    layers.batched = layers.batched and _can_be_batched(layers, layer)


def _is_pattern(scores: Tensor) -> bool:
    sums_to_one = ((scores.sum(-1) - 1).abs() < _ROUNDING).all()
    return scores.shape[-1] > 1 and bool((scores >= 0).all() and sums_to_one)


def _attends_to_itself(layers: ModuleLayers, layer: int, pattern: Tensor | None) -> bool:
    """Return whether a token may attend to itself although it sees others.

    Where no pattern is returned, all others are equal. If a token attends to them only, their
    number makes no difference to it.
    """
    if pattern is not None:
        return bool((pattern.diagonal(dim1=-2, dim2=-1)[..., 1:] > _ROUNDING).any())
    x = layers.arguments(layer)[0].clone()
    x[:, :-1] = x[:, :1]
    try:
        of_many, of_two = (_again(layers, layer, [one])[:, -1] for one in (x, x[:, -2:]))
    except RAISED:  # it computes sequences of one length only
        return True
    return bool(_apart(of_many, of_two).max() > _ROUNDING)


def _check_gradients(layers: ModuleLayers, layer: int, output: Tensor) -> None:
    """Raise the error of a module whose parameters have no finite gradient."""
    import torch

    module, reason = layers.modules[layer], ""
    learning = {name: p for name, p in module.named_parameters() if p.requires_grad}
    _check_registered(layers, module, output)
    grads: tuple[Tensor | None, ...] = (None,) * len(learning)
    try:
        if output.requires_grad:
            of = list(learning.values())
            grads = torch.autograd.grad(output.square().sum(), of, allow_unused=True)
    except RuntimeError as error:
        reason = in_short(error, layers.origin)
        if "inplace" in str(error):
            reason = mark(
                "it is changed in place afterwards, allowed a new tensor: a = a * b, not a *= b"
            )
    found = {name: one for name, one in zip(learning, grads, strict=True) if one is not None}
    for name, gradient in found.items():
        if not gradient.isfinite().all():
            reason = mark(
                "the gradient of {name} has {number}, allowed finite numbers",
                name=name,
                number=str(gradient[~gradient.isfinite()][0].item()),
            )
    if reason:
        raise layers.error(mark("its backward pass fails ({reason})", reason=reason), "forward")
    if not found:
        raise layers.error(mark("what it returns does not depend on its parameters"), "forward")
    unused = learning.keys() - found.keys()
    layers.unused = sorted(unused & {*layers.unused} if layer else unused)


def _check_registered(layers: ModuleLayers, module: nn.Module, output: Tensor) -> None:
    """Raise the error of a module that computes with a tensor that training would not change."""
    known = {id(parameter) for parameter in module.parameters()}
    nodes, seen = [output.grad_fn], set[Any]()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [earlier for earlier, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            wrong = mark(
                "a tensor of {shape} requires a gradient and is no parameter of it, so that it "
                "would not be trained: keep modules in nn.ModuleList and tensors in nn.Parameter",
                shape=_shape(leaf),
            )
            raise layers.error(wrong, "__init__")


def _check_examples(
    layers: ModuleLayers, layer: int, arguments: tuple[Tensor, ...], output: Tensor
) -> None:
    """Raise the error of a module whose output for an example changes with another example."""
    others = [one.clone() for one in arguments]
    for one in others[: 2 if layers.sizes.two_sided else 1]:  # but not the mask
        one[1:] = one[1:].flip(1) + 1
    if _apart(output, _again(layers, layer, others))[0].max() > _ROUNDING:
        wrong = mark(
            "its output for one example changes with the other examples of the batch, allowed "
            "x of shape (examples, positions, width): nn.MultiheadAttention needs batch_first=True"
        )
        raise layers.error(wrong, "forward")


def _check_seeds(layers: ModuleLayers, layer: int, output: Tensor) -> None:
    """Raise the error of a module that draws numbers which no seed of a run would draw anew."""
    import torch
    from torch.func import functional_call

    module, other = layers.modules[layer], layers.make_one(layer, seed=1)
    numbers = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    copies = {name: value.detach().clone() for name, value in numbers.items()}
    with drawing(), torch.no_grad():
        of_other = parts_of(functional_call(other, copies, layers.arguments(layer)))[0]
    if _apart(output, of_other).max() > _ROUNDING:
        wrong = mark(
            "its constructor draws numbers that are no parameters and no buffers, so that every "
            "seed would have the same: use nn.Parameter or register_buffer"
        )
        raise layers.error(wrong, "__init__")


def _again(layers: ModuleLayers, layer: int, arguments: Sequence[Tensor]) -> Tensor:
    import torch

    with torch.no_grad():
        x: Tensor = parts_of(layers.modules[layer](*arguments))[0]
    return x


def _apart(output: Tensor, other: Tensor) -> Tensor:
    """Return the difference of two outputs, as a share of the largest number of the first."""
    apart: Tensor = (output - other).abs() / output.abs().max().clamp_min(1.0)
    return apart


def _check(layers: ModuleLayers, parts: tuple[Any, Any, Any], inputs: tuple[Tensor, ...]) -> None:
    """Raise the error of what a module returned for these inputs."""
    import torch

    (n_examples, n_queries, _), n_keys = inputs[0].shape, inputs[-1].shape[1]
    x, wrong = parts[0], ""
    if not isinstance(x, torch.Tensor) or x.shape != inputs[0].shape:
        wrong = mark(
            "its forward returns {got}, allowed the shape of x, {shape}",
            got=_shape(x),
            shape=str(tuple(inputs[0].shape)),
        )
    elif x.dtype != inputs[0].dtype:
        kind = str(x.dtype).removeprefix("torch.")
        wrong = mark("its forward returns {kind} numbers, allowed those of x", kind=kind)
    elif not x.isfinite().all():
        first = (~x.isfinite()).nonzero()[0].tolist()
        wrong = mark(
            "its forward returns {number} at {place} for x of ordinary size, allowed finite "
            "numbers",
            number=str(x[tuple(first)].item()),
            place=str(first),
        )
    for name, part in {"scores": parts[1], "pattern": parts[2]}.items():
        shape = tuple(part.shape) if isinstance(part, torch.Tensor) else ()
        shape = (shape[0], 1, *shape[1:]) if len(shape) == 3 else shape
        most = layers.sizes.n_heads
        fits = len(shape) == 4 and 1 <= shape[1] <= most
        if wrong or part is None:
            continue
        if not fits or (shape[0], *shape[2:]) != (n_examples, n_queries, n_keys):
            values: dict[str, Any] = {"part": name, "got": _shape(part), "examples": n_examples}
            values |= {"most": most, "queries": n_queries, "keys": n_keys}
            wrong = mark(
                "its {part} are {got}, allowed (b, h, i, j) = ({examples}, heads from 1 to "
                "{most}, {queries}, {keys}) or None",
                **values,
            )
            if most == 1:
                wrong = mark(
                    "its {part} are {got}, allowed (b, h, i, j) = ({examples}, 1 head, {queries}, "
                    "{keys}) or None",
                    **values,
                )
        elif part.isnan().any():
            wrong = mark("nan in its {part} for x of ordinary size, allowed numbers", part=name)
        elif name == "pattern" and _is_pattern(part.mT) and not _is_pattern(part):
            wrong = mark(
                "the shares of its pattern sum to one over the queries i, allowed a pattern (b, h, "
                "i, j) whose shares sum to one over the keys j, or None"
            )
    if wrong:
        raise layers.error(wrong, "forward")


def _check_causality(layers: ModuleLayers, layer: int, x: Tensor, output: Tensor) -> None:
    """Raise the error of a module whose output at a position changes with a later token."""
    import torch

    n = x.shape[1] // 2
    changed = torch.cat([x[:, :n], x[:, n:].flip(0) + 1], 1)
    differences = _apart(output, _again(layers, layer, [changed]))[:, :n].amax((0, 2))
    if differences.numel() and differences.max() > _ROUNDING:
        raise layers.error(
            mark(
                "its output at position {position} of {length} changes with the tokens after it, "
                "allowed earlier tokens only, because the setting “causal” is on: add "
                "torch.full((n, n), -torch.inf).triu(1) to the scores",
                position=int(differences.argmax()) + 1,
                length=x.shape[1],
            ),
            "forward",
        )


def _can_be_batched(layers: ModuleLayers, layer: int) -> bool:
    """Return whether `torch.func.vmap` gives what one seed after the other gives."""
    import torch

    x, y, mask = layers.inputs(layer)
    drawn = [layers.initial(seed, layer) for seed in range(N_EXAMPLES)]
    weights = {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}
    outputs = []
    for batched in (False, True):
        leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
        try:
            with torch.enable_grad(), warnings.catch_warnings():
                # A part that vmap computes seed by seed says so, which is for its developers.
                warnings.filterwarnings("error", "There is a performance drop")
                out = layers.run(layer, leaves, x, y, mask, batched=batched).x
                if leaves and out.requires_grad:
                    of = list(leaves.values())
                    torch.autograd.grad(out.square().sum(), of, allow_unused=True)
        except Exception:
            if batched:
                return False
            raise
        outputs.append(out.detach())
    return bool(_apart(*outputs).max() <= _ROUNDING)


def _count_multiply_adds(layers: ModuleLayers) -> int:
    """Return the multiply-adds of all layers for one token, the mean over all positions."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    counter, is_fast = FlopCounterMode(display=False), torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # what is fused is not counted
    try:
        with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            for layer, module in enumerate(layers.modules):
                module(*layers.arguments(layer))
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)
    return int(counter.get_total_flops()) // (2 * N_EXAMPLES * layers.sizes.n_ctx)


def _count_cache(layers: ModuleLayers) -> int | None:
    first = layers.sizes.n_layers // 3 if layers.sizes.two_sided else 0
    total = 0
    for module in layers.modules[first:]:
        number = getattr(module, CACHE, None)
        if number is None:
            return None
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            wrong = mark(
                "{attribute}: got {number}, allowed a whole number from 0",
                attribute=CACHE,
                number=repr(number),
            )
            raise layers.error(wrong, "__init__")
        total += number
    return total


def _shape(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return mark("an object of type {type}", type=type(value).__name__)
    return mark("shape {shape}", shape=str(tuple(shape)))
