"""Properties of the machine: its processor, and the memory that is used and available."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch

CGROUPS = Path("/sys/fs/cgroup")
"""Folder in which Linux reports the memory limits of a container."""


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


def free_and_total_memory(cgroups: Path = CGROUPS) -> tuple[float, float]:
    """Return the free and the total memory, in MiB: the machine's, or a smaller container's."""
    machine = psutil.virtual_memory()
    free, total = machine.available / 2**20, machine.total / 2**20
    container = _container_memory(cgroups)
    if container is None or container[1] >= total:
        return free, total
    used, limit = container
    return max(0.0, min(free, limit - used)), limit


def _container_memory(cgroups: Path) -> tuple[float, float] | None:
    """Return the container's used memory and its limit, in MiB, from version 2 or 1 of cgroups."""
    versions = [
        (cgroups, "memory.current", "memory.max", "inactive_file"),
        (
            cgroups / "memory",
            "memory.usage_in_bytes",
            "memory.limit_in_bytes",
            "total_inactive_file",
        ),
    ]
    for folder, used, limit, cached in versions:
        try:
            n_bytes = int((folder / used).read_text()) - _number(folder / "memory.stat", cached)
            return n_bytes / 2**20, int((folder / limit).read_text()) / 2**20
        except (OSError, ValueError):  # another version, or no limit: the file contains `max`
            continue
    return None


def _number(file: Path, name: str) -> int:
    """Return the number after `name` in a file of lines "name number"; 0 if the name is missing."""
    pairs = (line.split() for line in file.read_text().splitlines())
    return next((int(pair[1]) for pair in pairs if pair[:1] == [name]), 0)
