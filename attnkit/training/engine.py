"""Choice of the training engine: the compiled kernel or torch.

The kernel trains most variants on a CPU; torch trains the others, even if the engine is the
kernel. Each engine gives its own bits, and the two agree within rounding; see
`attnkit.training.maker`. This module imports neither torch nor numba before an
engine is chosen.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, cast, get_args

from attnkit.foundation.display import jupyter_shell
from attnkit.foundation.settings import PREFIX, InvalidExperiment, InvalidSettings, Problem
from attnkit.variants.position_rules import RotaryPositions
from attnkit.variants.scaling import ScaledOption, SignedOption
from attnkit.variants.scores import NormalisedOption, SkewOption, UnitKeyOption
from attnkit.variants.wiring import HOOKS, TOKEN, Rule

if TYPE_CHECKING:
    import torch

    from attnkit.experiment import Experiment
    from attnkit.variants import Variant, Wiring

Engine = Literal["kernel", "torch"]

ENGINE = f"{PREFIX}ENGINE"
"""Name of the environment variable that chooses the engine on a CPU."""


def choose_engine(device: torch.device) -> Engine:
    """Return the engine for a device, whether or not it is compiled already.

    Raises:
        InvalidSettings: If `ATTNKIT_ENGINE` is not the name of an engine.
    """
    requested = os.environ.get(ENGINE, "")
    if requested not in ("", *get_args(Engine)):
        allowed = " or ".join(get_args(Engine))
        raise InvalidSettings(f"{ENGINE}: got {requested!r}, allowed {allowed}")
    if device.type != "cpu":
        return "torch"
    return cast("Engine", requested) or ("kernel" if _has_numba() else "torch")


def expected_engine() -> Engine:
    """Return the engine that a copy on a CPU is expected to train with, without importing any."""
    requested = os.environ.get(ENGINE, "")
    if requested in get_args(Engine):
        return cast("Engine", requested)
    return "kernel" if find_spec("numba") else "torch"


def is_ready(engine: Engine) -> bool:
    """Return whether an engine can start at once; the kernel is compiled at its first use."""
    if engine == "torch":
        return True
    with contextlib.suppress(Exception):  # `ready_engine` reports the error
        from attnkit.model.kernel.cache import is_compiled

        return is_compiled()
    return False


def ready_engine(device: torch.device, engine: Engine | None = None) -> Engine:
    """Return the engine that trains on a device, ready to start.

    The kernel is compiled if necessary. If that fails, a line on standard error says why, and
    torch trains.

    Args:
        device: The device that trains.
        engine: The requested engine. None: the one that `choose_engine` returns.

    Raises:
        InvalidExperiment: If there is no such engine.
        InvalidSettings: If `ATTNKIT_ENGINE` is not the name of an engine.
    """
    if engine not in (None, *get_args(Engine)):
        raise InvalidExperiment([Problem("engine", engine, ", ".join(get_args(Engine)))])
    engine = engine or choose_engine(device)
    return "kernel" if engine == "kernel" and device.type == "cpu" and _compiles() else "torch"


def kernel_knows(experiment: Experiment, variant: Variant) -> bool:
    """Return whether the kernel can train all stages of a variant; otherwise torch trains it."""
    return all(_knows(experiment.wiring(variant, stage)) for stage in variant.stages)


def _knows(wiring: Wiring) -> bool:
    """Return whether the kernel can compute this wiring."""
    latents = {v.reads for v in wiring.vectors.values() if v.reads != TOKEN}
    return wiring.module is None and (
        all(_has_no_hooks(rule) or type(rule) in KERNEL_RULES for rule in wiring.rules)
        and not wiring.layers_share
        and not wiring.rotation.values
        and len(latents) <= 1
        and all(wiring.vectors[name].reads == TOKEN for name in latents)
        and not latents & set(wiring.roles.values())
        and not any(vector.per_head or vector.gain for vector in wiring.vectors.values())
    )


KERNEL_RULES = (
    NormalisedOption,
    RotaryPositions,
    ScaledOption,
    SignedOption,
    SkewOption,
    UnitKeyOption,
)
"""Rules that the kernel implements, besides those that change only sizes and weights."""


def _has_no_hooks(rule: Rule) -> bool:
    """Return whether a rule leaves vectors, scores and patterns as they are."""
    return all(getattr(type(rule), hook) is getattr(Rule, hook) for hook in HOOKS)


@cache
def _compiles() -> bool:
    """Compile the kernel if necessary and load it; return whether it can be used."""
    try:
        from attnkit.model.kernel.cache import ensure_compiled, load

        ensure_compiled(_report)
        load()  # before training, so that no run waits for it
    except Exception as error:  # numba, its libraries and file systems raise many types
        reason = str(error).strip() or type(error).__name__
        _report(f"The training kernel cannot be compiled ({reason}): torch trains instead, slower.")
        return False
    return True


@cache
def _has_numba() -> bool:
    """Return whether numba can be imported; on some platforms the import fails."""
    try:
        import numba  # noqa: F401
    except Exception:
        return False
    return True


def _report(text: str) -> None:
    """Write a line to standard error, which may be closed, or below a cell of a notebook.

    Notebooks show standard error in red, as if something had failed.
    """
    stream = sys.stderr if jupyter_shell() is None else sys.stdout
    with contextlib.suppress(AttributeError, OSError, ValueError):
        stream.write(f"{text}\n")
        stream.flush()
