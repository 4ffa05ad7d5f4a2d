"""Properties of the machine, or of the container that limits it: processor, cores and memory."""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch

ROOT = Path("/")
"""Root of the file system in which Linux describes control groups; tests have one of their own."""


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

    Files that the system has read and can drop at once count as free.

    Args:
        root: Root of the file system in which Linux describes control groups.
    """
    machine = psutil.virtual_memory()
    free, total = [float(machine.available)], [float(machine.total)]
    for group in _groups(root):
        limit, used = (_text(group / f"memory.{name}") for name in ("max", "current"))
        if limit.isdecimal() and used.isdecimal():  # else there is no limit: `max`
            files = re.search(r"^inactive_file (\d+)$", _text(group / "memory.stat"), re.MULTILINE)
            total.append(int(limit))
            free.append(max(0, int(limit) - int(used) + int(files[1] if files else 0)))
    return min(free) / 2**20, min(total) / 2**20


@cache
def cpu_quota(root: Path = ROOT) -> float:
    """Return the number of cores that a container's quota allows; infinity without a quota.

    It is read once.

    Args:
        root: Root of the file system in which Linux describes control groups.
    """
    quotas = [_text(group / "cpu.max").split() for group in _groups(root)]
    cores = [int(q[0]) / int(q[1]) for q in quotas if len(q) == 2 and q[0].isdecimal()]
    return min(cores, default=math.inf)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the control groups of version 2 that limit this process: its own and their parents.

    In a container, the root of the tree is the container's group, and the path may not be in it.
    """
    tree = root / "sys/fs/cgroup"
    own = re.search(r"^0::/(?!\.\.)(.*)$", _text(root / "proc/self/cgroup"), re.MULTILINE)
    parts = Path(own[1]).parts if own else ()
    yield from (tree.joinpath(*parts[:n]) for n in range(len(parts) + 1))


def _text(file: Path) -> str:
    """Return the text of a file; empty if there is none, as on other systems than Linux."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
