"""A first trial of a PyTorch module of one's own: what it returns, and how it can be computed.

Every layer computes a small batch before anything is trained, so that a module that is wrong is
refused with a message. Index letters as in `attnkit.model.reference`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attnkit.foundation.language import mark
from attnkit.variants.module_layers import (
    N_EXAMPLES,
    RAISED,
    ModuleFailure,
    ModuleLayers,
    drawing,
    in_short,
    parts_of,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

CACHE = "kv_cache_floats_per_token"
"""Attribute of a module that says how many numbers a decoder keeps per token and layer."""

_ROUNDING = 1e-4
"""Largest relative difference between numbers that should be equal."""


_MASK = 1e4
"""Size from which a score counts as masked; the input is of ordinary size."""


_CHANGES_X = mark("its forward changes x in place, allowed a new tensor: x = x + z, not x += z")

_IN_PLACE = mark("it is changed in place afterwards, allowed a new tensor: a = a * b, not a *= b")


def try_layers(layers: ModuleLayers) -> None:
    """Compute every layer once, check what it returns, and note the facts about it.

    Raises:
        ModuleFailure: If a layer does not compute what it should.
    """
    for layer in range(layers.sizes.n_layers):
        _try(layers, layer)
    layers.multiply_adds = _count_multiply_adds(layers)
    layers.kv_cache = _count_cache(layers)


def _try(layers: ModuleLayers, layer: int) -> None:
    """Compute a layer once, check what it returns, and see whether seeds can be a batch."""
    import torch

    module, arguments = layers.modules[layer], layers.arguments(layer)
    inputs = arguments[: 2 if layers.sizes.two_sided else 1]
    given = [one.clone() for one in inputs]
    try:
        with drawing(), torch.enable_grad():
            parts = parts_of(module(*arguments))
            for one, before in zip(inputs, given, strict=True):
                if not torch.equal(one, before):
                    raise layers.error(_CHANGES_X, "forward")
            repeated = parts_of(module(*arguments))
    except ModuleFailure:
        raise
    except RAISED as error:
        failed = mark(
            "its forward fails for x of shape {shape} ({reason})",
            shape=str(tuple(inputs[0].shape)),
            reason=in_short(error, layers.origin),
        )
        raise layers.error(failed) from None
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
        _check_gradients(layers, layer, arguments, parts[0])
    has_scores, has_pattern = parts[1] is not None, parts[2] is not None
    if has_scores and not has_pattern and _is_pattern(parts[1]):  # others return (x, pattern)
        has_scores, has_pattern = False, True
    layers.returned.append((has_scores, has_pattern))
    layers.masked |= parts[1] is not None and bool((parts[1].abs() >= _MASK).any())
    layers.batched = layers.batched and _can_be_batched(layers, layer)


def _is_pattern(scores: Tensor) -> bool:
    """Return whether what stands in the place of scores is shares of attention."""
    sums_to_one = ((scores.sum(-1) - 1).abs() < _ROUNDING).all()
    return scores.shape[-1] > 1 and bool((scores >= 0).all() and sums_to_one)


def _check_gradients(
    layers: ModuleLayers, layer: int, inputs: tuple[Tensor, ...], output: Tensor
) -> None:
    """Raise the error of a module whose parameters have no finite gradient."""
    import torch

    module = layers.modules[layer]
    learning = {name: p for name, p in module.named_parameters() if p.requires_grad}
    _check_registered(layers, module, output)
    grads: tuple[Tensor | None, ...] = (None,)
    try:
        if output.requires_grad:
            of = list(learning.values())
            grads = torch.autograd.grad(output.square().sum(), of, allow_unused=True)
    except RuntimeError as error:
        reason = _IN_PLACE if "inplace" in str(error) else in_short(error, layers.origin)
        raise layers.error(_backward(reason, _blamed_line(layers, module, inputs))) from None
    if all(gradient is None for gradient in grads):
        raise layers.error(mark("what it returns does not depend on its parameters"), "forward")
    unused = {name for name, gradient in zip(learning, grads, strict=True) if gradient is None}
    layers.unused = sorted(unused & {*layers.unused} if layer else unused)
    for name, gradient in zip(learning, grads, strict=True):
        if gradient is not None and not gradient.isfinite().all():
            first = gradient[~gradient.isfinite()][0]
            reason = mark(
                "the gradient of {name} has {number}, allowed finite numbers",
                name=name,
                number=str(first.item()),
            )
            raise layers.error(_backward(reason, _blamed_line(layers, module, inputs)))


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
    layers: ModuleLayers,
    layer: int,
    arguments: tuple[Tensor, ...],
    output: Tensor,
) -> None:
    """Raise the error of a module whose output for an example changes with another example."""
    others = [one.clone() for one in arguments]
    for one in others[: 2 if layers.sizes.two_sided else 1]:  # but not the mask
        one[1:] = one[1:].flip(1) + 1
    if _difference(layers, layer, others, output)[0].max() > _ROUNDING:
        wrong = mark(
            "its output for one example changes with the other examples of the batch, allowed "
            "x of shape (examples, positions, width): nn.MultiheadAttention needs batch_first=True"
        )
        raise layers.error(wrong, "forward")


def _difference(
    layers: ModuleLayers, layer: int, arguments: Sequence[Tensor], output: Tensor
) -> Tensor:
    """Return the difference of an output for other arguments, as a share of its largest number."""
    import torch

    with torch.no_grad():
        other = parts_of(layers.modules[layer](*arguments))[0]
    differences: Tensor = (output - other).abs() / output.abs().max().clamp_min(1.0)
    return differences


def _backward(reason: str, line: int | None) -> str:
    """Return the text about a backward pass that fails, with the line that leads to it if known."""
    if line is None:
        return mark("its backward pass fails ({reason})", reason=reason)
    return mark(
        "its backward pass fails at what line {line} computes ({reason})", line=line, reason=reason
    )


def _blamed_line(layers: ModuleLayers, module: nn.Module, inputs: tuple[Tensor, ...]) -> int | None:
    """Return the line of a module's file of which torch's search for an anomaly complains."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with (
            suppress(*RAISED),
            drawing(),
            torch.enable_grad(),
            torch.autograd.detect_anomaly(),
        ):
            parts_of(module(*inputs))[0].square().sum().backward()
    module.zero_grad()
    path = rf'File "[^"]*{re.escape(layers.origin)}", line (\d+)'
    found = [line for one in caught for line in re.findall(path, str(one.message))]
    return int(found[-1]) if found else None


def _check(layers: ModuleLayers, parts: tuple[Any, Any, Any], inputs: tuple[Tensor, ...]) -> None:
    """Raise the error of what a module returned for these inputs."""
    import torch

    (n_examples, n_queries, _), n_keys = inputs[0].shape, inputs[-1].shape[1]
    x = parts[0]
    if not isinstance(x, torch.Tensor) or x.shape != inputs[0].shape:
        wrong = mark(
            "its forward returns {got}, allowed the shape of x, {shape}",
            got=_shape(x),
            shape=str(tuple(inputs[0].shape)),
        )
        raise layers.error(wrong, "forward")
    if not x.is_floating_point():
        kind = str(x.dtype).removeprefix("torch.")
        wrong = mark("its forward returns {kind} numbers, allowed those of x", kind=kind)
        raise layers.error(wrong, "forward")
    if not x.isfinite().all():
        first = (~x.isfinite()).nonzero()[0].tolist()
        raise layers.error(
            mark(
                "its forward returns {number} at {place} for x of ordinary size, allowed finite "
                "numbers",
                number=str(x[tuple(first)].item()),
                place=str(first),
            ),
            "forward",
        )
    most = layers.sizes.n_heads
    for name, part in zip(("scores", "pattern"), parts[1:], strict=True):
        if part is None:
            continue
        shape = tuple(part.shape) if isinstance(part, torch.Tensor) else ()
        shape = (shape[0], 1, *shape[1:]) if len(shape) == 3 else shape
        fits = len(shape) == 4 and 1 <= shape[1] <= most
        if not fits or (shape[0], *shape[2:]) != (n_examples, n_queries, n_keys):
            values = {
                "part": name,
                "got": _shape(part),
                "examples": n_examples,
                "queries": n_queries,
                "keys": n_keys,
            }
            if most > 1:
                wrong = mark(
                    "its {part} are {got}, allowed (b, h, i, j) = ({examples}, heads from 1 to "
                    "{most}, {queries}, {keys}) or None",
                    most=most,
                    **values,
                )
            else:
                wrong = mark(
                    "its {part} are {got}, allowed (b, h, i, j) = ({examples}, 1 head, {queries}, "
                    "{keys}) or None",
                    **values,
                )
            raise layers.error(wrong, "forward")


def _check_causality(layers: ModuleLayers, layer: int, x: Tensor, output: Tensor) -> None:
    """Raise the error of a module whose output at a position changes with a later token."""
    import torch

    n = x.shape[1] // 2
    changed = torch.cat([x[:, :n], x[:, n:].flip(0) + 1], 1)
    differences = _difference(layers, layer, [changed], output)[:, :n].amax((0, 2))
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
            with torch.enable_grad():
                out = layers.run(layer, leaves, x, y, mask, batched=batched).x
                if leaves and out.requires_grad:
                    of = list(leaves.values())
                    torch.autograd.grad(out.square().sum(), of, allow_unused=True)
        except Exception:
            if batched:
                return False
            raise
        outputs.append(out.detach())
    largest = outputs[0].abs().max().clamp_min(1.0)
    return bool((outputs[0] - outputs[1]).abs().max() <= _ROUNDING * largest)


def _count_multiply_adds(layers: ModuleLayers) -> int:
    """Return the multiply-adds of all layers for one token, the mean over all positions."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    total, is_fast = 0, torch.backends.mha.get_fastpath_enabled()
    for layer, module in enumerate(layers.modules):
        torch.backends.mha.set_fastpath_enabled(False)  # what is fused is not counted
        try:
            with (
                FlopCounterMode(display=False) as counter,
                torch.no_grad(),
                sdpa_kernel(SDPBackend.MATH),
            ):
                module(*layers.arguments(layer))
        finally:
            torch.backends.mha.set_fastpath_enabled(is_fast)
        total += counter.get_total_flops() // 2
    return total // (N_EXAMPLES * layers.sizes.n_ctx)


def _count_cache(layers: ModuleLayers) -> int | None:
    """Return what the modules say about their cache, without an encoder's; None if nothing."""
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
    """Return the shape of a tensor, or the type of another value, in words."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return mark("an object of type {type}", type=type(value).__name__)
    return mark("shape {shape}", shape=str(tuple(shape)))
