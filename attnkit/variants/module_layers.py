"""Layers of a PyTorch module of one's own at given sizes: its parameters, and a first trial.

Index letters as in `attnkit.model.reference`. Torch is imported inside functions only, as in all
modules of this package.
"""

from __future__ import annotations

import copy
import inspect
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnkit.variants.wiring import Weight, Wiring

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from attnkit.variants.module import Given

CACHE = "kv_cache_floats_per_token"
"""Attribute of a module that says how many numbers a decoder keeps per token and layer."""

_LOCK = threading.Lock()
"""Held while a constructor draws from torch's global random generator."""

_EXAMPLES = 2
"""Number of examples, and of sets of parameters, of a trial."""

_ROUNDING = 1e-4
"""Largest relative difference between a batch over seeds and one seed after the other."""


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


class ModuleLayers:
    """All layers of a module at the sizes of a variant.

    Args:
        given: The class, with its origin.
        of_qkv: Wiring of QKV at these sizes.

    Attributes:
        given: The class, with its origin.
        of_qkv: Wiring of QKV at these sizes; parameters of its names start from its numbers.
        shapes: For every layer, the shapes of the parameters by name.
        weights: Parameters of all layers by name.
        multiply_adds: Multiply-adds of all layers for one token, as torch counts them.
        kv_cache: Numbers that a decoder keeps per token, over all layers; None if unknown.
        batched: Whether all seeds are computed as one batch; otherwise one after the other.

    Raises:
        ValueError: If the module cannot be made or does not compute what it should; the message
            names its class and its file.
    """

    def __init__(self, given: Given, of_qkv: Wiring) -> None:
        self.given, self.of_qkv, self._sizes = given, of_qkv, of_qkv.sizes
        self._of_thread = threading.local()  # a call exchanges the parameters of its module
        self._modules = [self._make(layer, seed=0) for layer in range(self._sizes.n_layers)]
        self.shapes = [
            {name: tuple(p.shape) for name, p in module.named_parameters()}
            for module in self._modules
        ]
        if not any(self.shapes):
            raise self._error("it has no parameters, allowed a module that can be trained")
        self.weights: dict[str, Weight] = {}
        for layer, module in enumerate(self._modules):
            for name, parameter in module.named_parameters():
                weight = Weight(tuple(parameter.shape), fixed=not parameter.requires_grad)
                if self.weights.setdefault(name, weight) != weight:
                    shapes = f"{self.weights[name].shape} and, in layer {layer + 1}, {weight.shape}"
                    raise self._error(f"{name} has shape {shapes}, allowed one for all layers")
        self._returns: list[tuple[bool, bool]] = []  # whether it returns scores, and a pattern
        self.batched = True
        for layer in range(self._sizes.n_layers):
            self._try(layer)
        self.multiply_adds = self._count_multiply_adds()
        self.kv_cache = self._count_cache()

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all layers."""
        return sum(self.weights[name].n_numbers for shapes in self.shapes for name in shapes)

    @property
    def missing(self) -> str:
        """Sentence on what its layers do not return, and what is therefore empty; "" if nothing."""
        names = ("scores", "pattern")
        absent = [name for name, *has in zip(names, *self._returns, strict=True) if not all(has)]
        if not absent:
            return ""
        empty = {"scores": "the asymmetry", "pattern": "attention maps and attention masses"}
        name = self.given.attention.__name__
        return (
            f"{name} does not return its {' and '.join(absent)}, so that "
            f"{' and '.join(empty[one] for one in absent)} are empty: let forward return "
            "(x, scores, pattern)."
        )

    def initial(self, seed: int, layer: int) -> dict[str, Tensor]:
        """Return the numbers with which a layer's parameters start, as its constructor draws them.

        Args:
            seed: Seed of the run.
            layer: Index of the layer.
        """
        module = self._make(layer, seed=seed * self._sizes.n_layers + layer + 1)
        return {name: value.detach() for name, value in module.named_parameters()}

    def of_role(self, name: str) -> tuple[str, bool]:
        """Return the name that a parameter has in QKV, and whether it is its transpose there.

        `W_Q.weight` of an `nn.Linear` is the transpose of `W_Q`, and `W_Q.bias` is `b_Q`. The name
        is empty if QKV has no such parameter.
        """
        owner, _, kind = name.rpartition(".")
        if not owner.startswith("W_") or kind not in ("weight", "bias"):
            return "", False
        return (owner, True) if kind == "weight" else (f"b_{owner[2:]}", False)

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
            weights: Parameters of the layer by name, (s, …).
            x: Residual stream at the query positions, (s, b, i, m).
            y: Residual stream at the key positions; used in an encoder and a decoder only.
            mask: Mask of the scores; used in an encoder and a decoder only.
            batched: Whether to compute all seeds as one batch. None: as `batched` says.
        """
        import torch
        from torch.func import functional_call, vmap

        module = self._of(layer, x.device)
        streams = (x, y) if self._sizes.two_sided else (x,)
        extra = () if mask is None or not self._sizes.two_sided else (mask,)

        def one(params: dict[str, Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
            returned = functional_call(module, params, (*inputs, *extra))
            return tuple(part for part in self._parts(returned) if part is not None)

        if self.batched if batched is None else batched:
            parts = vmap(one)(weights, *streams)
        else:
            of_seeds = [
                one({name: value[s] for name, value in weights.items()}, *(t[s] for t in streams))
                for s in range(len(x))
            ]
            parts = tuple(torch.stack(part) for part in zip(*of_seeds, strict=True))
        has_scores, has_pattern = self._returns[layer]
        rest = list(parts[1:])
        scores = rest.pop(0) if has_scores else None
        pattern = rest.pop(0) if has_pattern else None
        return Output(parts[0], _with_heads(scores), _with_heads(pattern))

    def _parts(self, returned: Any) -> tuple[Any, Any, Any]:
        """Return x, scores and pattern of what the module returned."""
        if not isinstance(returned, tuple | list):
            return returned, None, None
        x, scores, pattern = (*returned, None, None)[:3] if returned else (None,) * 3
        return x, scores, pattern

    def _of(self, layer: int, device: torch.device) -> nn.Module:
        """Return this thread's copy of the module of a layer, on a device."""
        copies: dict[str, nn.Module] = self._of_thread.__dict__
        key = f"{layer} on {device}"
        if key not in copies:
            copies[key] = copy.deepcopy(self._modules[layer]).to(device)
        return copies[key]

    def _make(self, layer: int, *, seed: int) -> nn.Module:
        """Return a new module of a layer, whose constructor draws from a seed."""
        import torch

        sizes = self._sizes
        n_encoders = sizes.n_layers // 3
        offered = {
            "layer": layer,
            "has_mlp": not sizes.two_sided
            or layer < n_encoders
            or layer % 2 == (n_encoders + 1) % 2,
            **{name: getattr(sizes, name) for name in _OFFERED},
        }
        attention = self.given.attention
        try:
            parameters = inspect.signature(attention).parameters.values()
        except (TypeError, ValueError) as error:
            raise self._error(f"its constructor cannot be read ({error})") from None
        named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        for parameter in named:
            if parameter.name not in offered and parameter.default is parameter.empty:
                allowed = ", ".join(offered)
                raise self._error(
                    f"its constructor asks for {parameter.name!r}, allowed {allowed}, or a default"
                )
        arguments = {p.name: offered[p.name] for p in named if p.name in offered}
        try:
            with _LOCK, torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return attention(**arguments).eval()
        except Exception as error:  # code of somebody else may raise anything
            raise self._error(f"its constructor fails ({_in_short(error)})") from None

    def _try(self, layer: int) -> None:
        """Compute a layer once, check what it returns, and see whether seeds can be a batch."""
        import torch

        sizes, module = self._sizes, self._modules[layer]
        x, y, mask = self._trial(layer)
        inputs = (x[0], y[0]) if sizes.two_sided else (x[0],)
        extra = () if mask is None else (mask,)
        try:
            with _LOCK, torch.random.fork_rng(devices=[]), torch.enable_grad():
                returned = module(*inputs, *extra)
                again = module(*inputs, *extra)
        except Exception as error:
            got = tuple(inputs[0].shape)
            raise self._error(
                f"its forward fails for x of shape {got} ({_in_short(error)})"
            ) from None
        parts, repeated = self._parts(returned), self._parts(again)
        self._check(parts, inputs)
        if not torch.equal(parts[0], repeated[0]):
            raise self._error(
                "its forward gives other numbers for the same input, allowed one without chance"
            )
        learning = [p for p in module.parameters() if p.requires_grad]
        if learning:
            grads: tuple[Tensor | None, ...] = (None,)
            if parts[0].requires_grad:
                grads = torch.autograd.grad(parts[0].square().sum(), learning, allow_unused=True)
            if all(gradient is None for gradient in grads):
                raise self._error("what it returns does not depend on its parameters")
        self._returns.append((parts[1] is not None, parts[2] is not None))
        if self.batched:
            self.batched = self._can_be_batched(layer, x, y, mask)

    def _can_be_batched(self, layer: int, x: Tensor, y: Tensor, mask: Tensor | None) -> bool:
        """Return whether `torch.func.vmap` gives what one seed after the other gives."""
        import torch

        drawn = [self.initial(seed, layer) for seed in range(_EXAMPLES)]
        weights = {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}
        outputs = []
        for batched in (False, True):
            leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
            try:
                with torch.enable_grad():
                    out = self.run(layer, leaves, x, y, mask, batched=batched).x
                    if leaves and out.requires_grad:
                        torch.autograd.grad(
                            out.square().sum(), list(leaves.values()), allow_unused=True
                        )
            except Exception as error:
                if batched:
                    return False
                raise self._error(f"its forward fails ({_in_short(error)})") from None
            outputs.append(out.detach())
        largest = outputs[0].abs().max().clamp_min(1.0)
        return bool((outputs[0] - outputs[1]).abs().max() <= _ROUNDING * largest)

    def _trial(self, layer: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return two seeds' inputs of a layer: x, y and its mask."""
        import torch

        sizes = self._sizes
        generator = torch.Generator().manual_seed(layer)

        def rows(n: int) -> Tensor:
            return torch.randn(_EXAMPLES, _EXAMPLES, n, sizes.d_model, generator=generator)

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

    def _check(self, parts: tuple[Any, Any, Any], inputs: tuple[Tensor, ...]) -> None:
        """Raise the error of what a module returned for these inputs."""
        import torch

        (n_examples, n_queries, _), n_keys = inputs[0].shape, inputs[-1].shape[1]
        x, allowed = parts[0], f"the shape of x, {tuple(inputs[0].shape)}"
        if not isinstance(x, torch.Tensor) or x.shape != inputs[0].shape:
            raise self._error(f"its forward returns {_shape(x)}, allowed {allowed}")
        if not x.is_floating_point() or not x.isfinite().all():
            raise self._error(
                "its forward returns numbers that are NaN, infinite or whole for x of ordinary "
                "size, allowed finite ones"
            )
        most = self._sizes.n_heads
        for name, part in zip(("scores", "pattern"), parts[1:], strict=True):
            if part is None:
                continue
            heads = f"heads from 1 to {most}" if most > 1 else "1 head"
            allowed = f"(b, h, i, j) = ({n_examples}, {heads}, {n_queries}, {n_keys})"
            shape = tuple(part.shape) if isinstance(part, torch.Tensor) else ()
            shape = (shape[0], 1, *shape[1:]) if len(shape) == 3 else shape
            fits = len(shape) == 4 and 1 <= shape[1] <= most
            if not fits or (shape[0], *shape[2:]) != (n_examples, n_queries, n_keys):
                raise self._error(f"its {name} are {_shape(part)}, allowed {allowed} or None")

    def _count_multiply_adds(self) -> int:
        """Return the multiply-adds of all layers for one token, the mean over all positions."""
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        total = 0
        for layer, module in enumerate(self._modules):
            x, y, _ = self._trial(layer)
            inputs = (x[0], y[0]) if self._sizes.two_sided else (x[0],)
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                module(*inputs)
            total += counter.get_total_flops() // 2
        return total // (_EXAMPLES * self._sizes.n_ctx)

    def _count_cache(self) -> int | None:
        """Return what the modules say about their cache, without an encoder's; None if nothing."""
        first = self._sizes.n_layers // 3 if self._sizes.two_sided else 0
        total = 0
        for module in self._modules[first:]:
            number = getattr(module, CACHE, None)
            if number is None:
                return None
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise self._error(f"{CACHE}: got {number!r}, allowed a whole number from 0")
            total += number
        return total

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{self.given.place}: {what}")


_OFFERED = (
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


def _with_heads(map_of_heads: Tensor | None) -> Tensor | None:
    """Return scores or a pattern with the axis of heads, which a single head may leave out."""
    if map_of_heads is None or map_of_heads.dim() == 5:
        return map_of_heads
    return map_of_heads.unsqueeze(2)


def _shape(value: Any) -> str:
    """Return the shape of a tensor, or the type of another value, in words."""
    shape = getattr(value, "shape", None)
    return f"an object of type {type(value).__name__}" if shape is None else f"shape {tuple(shape)}"


def _in_short(error: Exception) -> str:
    """Return the type and the first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
