"""The machine: its processor, and the memory that a server takes and may take."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch

CGROUPS = Path("/sys/fs/cgroup")


def processor_name() -> str:
    """Return the processor's own name where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def processor_kind(device: torch.device) -> str:
    """Return the kind of processor on which the bits of a training depend.

    A CPU's maker and widest vector instructions, such as "Intel AVX-512"; a GPU's name.
    """
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return device.type
    name = processor_name()
    maker = next((one for one in ("Intel", "AMD") if one in name), platform.machine())
    vectors = torch.backends.cpu.get_cpu_capability()
    return f"{maker} {_VECTORS.get(vectors, vectors)}".strip()


_VECTORS = {"AVX512": "AVX-512", "DEFAULT": ""}
"""Instruction sets whose usual names differ from those that torch gives."""


def megabytes_of(process_id: int | None = None) -> float | None:
    """Memory that a process holds, this one if none is named; None if it is gone."""
    try:
        return float(psutil.Process(process_id).memory_info().rss) / 2**20
    except psutil.Error:
        return None


def room(groups: Path = CGROUPS) -> tuple[float, float]:
    """Megabytes that are free, and of how many: the container's if it allows less, else all."""
    machine = psutil.virtual_memory()
    free, total = machine.available / 2**20, machine.total / 2**20
    group = _group(groups)
    if group is None or group[1] >= total:
        return free, total
    used, limit = group
    return max(0.0, min(free, limit - used)), limit


def _group(groups: Path) -> tuple[float, float] | None:
    """Megabytes that the container holds and may hold, as version 2 or 1 of cgroups tells it."""
    places = [
        (groups, "memory.current", "memory.max", "inactive_file"),
        (
            groups / "memory",
            "memory.usage_in_bytes",
            "memory.limit_in_bytes",
            "total_inactive_file",
        ),
    ]
    for folder, used, limit, cached in places:
        try:
            held = int((folder / used).read_text()) - _line(folder / "memory.stat", cached)
            return held / 2**20, int((folder / limit).read_text()) / 2**20
        except (OSError, ValueError):  # not this version, or no limit: it reads `max`
            continue
    return None


def _line(file: Path, name: str) -> int:
    """One number of a file with a name and a number in each line; 0 if it has none."""
    pairs = (line.split() for line in file.read_text().splitlines())
    return next((int(pair[1]) for pair in pairs if pair[:1] == [name]), 0)
