"""Makers of runs: the engine, the kind of processor and the versions that decide their bits.

Runs of one experiment have equal bits if they have the same maker; otherwise their numbers agree
within rounding. This module imports torch only to describe this machine.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from attnkit.foundation.language import tr
from attnkit.training.engine import Engine, ready_engine

if TYPE_CHECKING:
    import torch


class Maker(NamedTuple):
    """Engine, kind of processor and versions that trained runs.

    Attributes:
        engine: Engine that trained.
        processor: Kind of processor; empty if unknown.
        versions: Versions of the libraries that computed, such as "torch 2.13.0, numba 0.68.1";
            empty if unknown.
    """

    engine: Engine = "torch"
    processor: str = ""
    versions: str = ""

    @staticmethod
    def here(device: torch.device, engine: Engine | None = None) -> Maker:
        """Return the maker of what is trained here; see `ready_engine`, which it calls."""
        from attnkit.foundation.machine import processor_kind

        engine = ready_engine(device, engine)
        return Maker(engine, processor_kind(device), versions_of(engine))

    @property
    def in_short(self) -> str:
        """Engine and kind of processor in words: "the compiled kernel on Intel AVX-512"."""
        if self.engine != "kernel":
            known = tr("torch on {processor}", processor=self.processor)
            return known if self.processor else "torch"
        if not self.processor:
            # Translators: after "Trained in 2.0 s by".
            return tr("the compiled kernel")
        # Translators: after "Trained in 2.0 s by".
        return tr("the compiled kernel on {processor}", processor=self.processor)

    def __str__(self) -> str:
        """Return all in words: "the compiled kernel on Intel AVX-512 (torch 2.13.0)"."""
        return f"{self.in_short} ({self.versions})" if self.versions else self.in_short


@cache
def versions_of(engine: Engine) -> str:
    """Return the versions here of the libraries that an engine computes with, without builds.

    The kernel draws the data and the initial numbers with torch, and torch trains what the kernel
    does not know.
    """
    packages = ("torch", "numba") if engine == "kernel" else ("torch",)
    return ", ".join(f"{name} {version(name).partition('+')[0]}" for name in packages)
