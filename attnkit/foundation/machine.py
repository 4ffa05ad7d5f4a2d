"""Properties of the machine: its processor, and the memory that is used and available."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from attnkit.foundation.control_groups import ROOT, memory_left_and_limit

if TYPE_CHECKING:
    import torch


def processor_name() -> str:
    """Return the processor's model name, or its architecture where the system has no name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def processor_kind(device: torch.device) -> str:
    """Return the kind of processor, on which the exact bits of a training run depend.

    For a CPU that is its maker and its widest vector instructions, such as "Intel AVX-512"; for a
    GPU it is the GPU's name.
    """
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return device.type
    name = processor_name()
    maker = next((maker for maker in ("Intel", "AMD") if maker in name), platform.machine())
    vectors = torch.backends.cpu.get_cpu_capability()
    return f"{maker} {_VECTORS.get(vectors, vectors)}".strip()


_VECTORS = {"AVX512": "AVX-512", "DEFAULT": ""}
"""Usual names of instruction sets that torch calls by another name."""


def megabytes_of(process_id: int | None = None) -> float | None:
    """Return the memory that a process uses, in MiB; None if the process has ended.

    Args:
        process_id: Process to measure; None measures this one.
    """
    try:
        return float(psutil.Process(process_id).memory_info().rss) / 2**20
    except psutil.Error:
        return None


def free_and_total_memory(root: Path = ROOT) -> tuple[float, float]:
    """Return the free and the total memory, in MiB: the machine's, or a smaller container's.

    Args:
        root: Root of the file system in which Linux describes the container.
    """
    machine = psutil.virtual_memory()
    left, limit = memory_left_and_limit(root)
    return min(machine.available / 2**20, left), min(machine.total / 2**20, limit)
