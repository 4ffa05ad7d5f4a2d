"""Layers of a PyTorch module of one's own at given sizes: facts, parameters and computation.

Costs, pages and estimates read the facts. They travel as JSON from the process that has executed
the module's code to a server, which never executes it and imports no torch: torch is imported
inside functions only. Index letters as in `attnkit.model.reference`.
"""

from __future__ import annotations

import copy
import inspect
import math
import random
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnkit.foundation.language import Message, mark, tr
from attnkit.foundation.words import listed
from attnkit.variants.wiring import Weight, Wiring

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

RAISED = (Exception, SystemExit)
"""What code of somebody else may raise; an interruption is not its own."""

_DRAWING = threading.Lock()
"""Held while code of somebody else may draw from global random generators."""

N_EXAMPLES = 2
"""Number of examples, and of sets of parameters, of a trial."""

_DRAWS = 3
"""Number of seeds whose buffers are compared."""

_EXACT = 2**24
"""Largest whole number of a drawn buffer, which travels as a single-precision number."""


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


@dataclass(frozen=True)
class Output:
    """Result of a layer of a module for a batch.

    Attributes:
        x: Residual stream after the layer, (s, b, i, m).
        scores: Scores, (s, b, h, i, j); None if the module returns none.
        pattern: Attention pattern, (s, b, h, i, j); None if the module returns none.
    """

    x: Tensor
    scores: Tensor | None
    pattern: Tensor | None


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
        unused: Names of the parameters on which what it returns does not depend in any layer.
        returned: For every layer, whether it returns scores, and whether it returns a pattern.
        masked: Whether the scores that it returns have a mask in them, so that they are not used.
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
        """Sentences on what its layers do not use or return, and what is therefore empty."""
        unused = tr(
            "{name} does not use {parameters}, which count as parameters all the same.",
            name=self.name,
            parameters=listed(self.unused),
        )
        return f"{unused} {self._not_returned}".strip() if self.unused else self._not_returned

    @property
    def _not_returned(self) -> str:
        """Sentence on what its layers do not return, and what is therefore empty; "" if nothing."""
        has_scores = all(scores for scores, _ in self.returned)
        has_pattern = all(pattern for _, pattern in self.returned)
        if self.masked and has_pattern:
            return tr(
                "{name} returns scores with a mask in them, so that the asymmetry is empty: let "
                "forward return the scores from before the mask.",
                name=self.name,
            )
        if self.masked:
            return tr(
                "{name} returns scores with a mask in them, so that the asymmetry is empty: let "
                "forward return the scores from before the mask and return its pattern.",
                name=self.name,
            )
        if has_scores and has_pattern:
            return ""
        if has_pattern:
            return tr(
                "{name} does not return its scores, so that the asymmetry is empty: let forward "
                "return (x, scores, pattern).",
                name=self.name,
            )
        if has_scores:
            return tr(
                "{name} does not return its pattern, so that attention maps and attention masses "
                "are empty: let forward return (x, scores, pattern).",
                name=self.name,
            )
        return tr(
            "{name} does not return its scores and pattern, so that the asymmetry and attention "
            "maps and attention masses are empty: let forward return (x, scores, pattern).",
            name=self.name,
        )


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
        self._is_lazy = False

    def make(self) -> None:
        """Make the modules of all layers, and note their parameters and drawn buffers.

        Raises:
            ModuleFailure: If they cannot be made or cannot be trained.
        """
        self._is_lazy = self._makes_parameters_later()
        self.modules = [self._make(layer, seed=0) for layer in range(self.sizes.n_layers)]
        self.drawn = self._find_drawn()
        for layer, module in enumerate(self.modules):
            of_layer = {name: tuple(value.shape) for name, value in self._numbers(module).items()}
            for earlier in self.shapes:
                for name in earlier.keys() & of_layer.keys():
                    if earlier[name] != of_layer[name]:
                        raise self.error(
                            mark(
                                "{name} has shape {first} and, in layer {layer}, {other}, allowed "
                                "one for all layers",
                                name=name,
                                first=str(earlier[name]),
                                layer=layer + 1,
                                other=str(of_layer[name]),
                            )
                        )
            self.shapes.append(of_layer)
        parameters = [item for module in self.modules for item in module.named_parameters()]
        if not parameters:
            raise self.error(mark("it has no parameters, allowed a module that can be trained"))
        self.fixed = sorted({name for name, value in parameters if not value.requires_grad})

    def initial(self, seed: int, layer: int) -> dict[str, Tensor]:
        """Return the numbers with which a layer's parameters start, as its constructor draws them.

        Args:
            seed: Seed of the run.
            layer: Index of the layer.
        """
        module = self._make(layer, seed=seed * self.sizes.n_layers + layer + 1)
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
            if x.device.type == "cpu":
                raise self.error(mark("its forward fails ({reason})", reason=reason)) from error
            raise self.error(
                mark(
                    "its forward fails on {device} ({reason})", device=str(x.device), reason=reason
                )
            ) from error
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
        in_file = code is not None and Path(code.co_filename).name == self.origin
        values: dict[str, Any] = {
            "name": self.name,
            "file": self.origin,
            "reason": what if isinstance(what, Message) else Message(what, {}),
        }
        if code is None or not in_file:
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

    def _makes_parameters_later(self) -> bool:
        """Return whether a module has its parameters only after a first call of its forward."""
        module = self._make(0, seed=0)
        before = {name for name, _ in module.named_parameters()}
        is_lazy = any(hasattr(one, "materialize") for one in module.parameters())
        with suppress(*RAISED), drawing():  # the trial says what is wrong with it
            self._call(module, 0)
        return is_lazy or before != {name for name, _ in module.named_parameters()}

    def _call(self, module: nn.Module, layer: int) -> None:
        """Compute a layer once, so that it makes what it makes at its first call."""
        import torch

        with torch.no_grad():
            module(*self.arguments(layer))

    def _numbers(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the parameters and the drawn buffers of a module by name."""
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
        import torch

        drawn: dict[str, Tensor] = {}
        for layer, module in enumerate(self.modules):
            first = dict(module.named_buffers())
            for seed in range(1, _DRAWS) if first else ():
                for name, other in self._make(layer, seed=seed).named_buffers():
                    if name not in first or other.shape != first[name].shape:
                        raise self.error(
                            mark("its buffer {name} has another shape for every seed", name=name)
                        )
                    if not torch.equal(other, first[name]):
                        drawn[name] = other
        for name, value in drawn.items():
            if not value.is_floating_point() and value.double().abs().max() > _EXACT:
                raise self.error(
                    mark(
                        "its buffer {name} has numbers above {most:,}, the most allowed",
                        name=name,
                        most=_EXACT,
                    )
                )
        return list(drawn)

    def _make(self, layer: int, *, seed: int) -> nn.Module:
        """Return a new module of a layer, whose constructor draws from a seed."""
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
        except (TypeError, ValueError) as error:
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
                if self._is_lazy:
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
    """Return the type and the first line of an error, and the last line of a file that led to it.

    Args:
        error: The error.
        file: Name of the file, without its folder.
    """
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    numbers = [frame.lineno for frame in frames if Path(frame.filename).name == file]
    return mark("{error}, in line {line}", error=text, line=numbers[-1]) if numbers else text
