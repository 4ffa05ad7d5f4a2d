"""Limits of the control groups (cgroups) of this process, which containers and batch systems set.

A group is limited by all its parents, too: SLURM limits a job, and its processes run in subgroups
of the job's. Version 1 has a tree of groups for each controller, version 2 has one tree for all of
them, and a system may have both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path("/")
"""Root of the file system in which Linux describes the groups; tests have one of their own."""


@cache
def cpu_quota(root: Path = ROOT) -> float:
    """Return the number of cores that the quota allows, as read once; infinity without a quota."""
    quotas = [math.inf]
    for version, group in _groups("cpu", root):
        names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quota, period, *_ = [*" ".join(_text(group / name) for name in names).split(), "", ""]
        if quota.isdecimal() and period.isdecimal() and int(period):  # else `max`, or -1
            quotas.append(int(quota) / int(period))
    return min(quotas)


def memory_left_and_limit(root: Path = ROOT) -> tuple[float, float]:
    """Return the memory that this process may still use, and its limit, in MiB.

    Both are infinite if there is no limit.

    Files that the system has read, and can drop at once, do not count as used.
    """
    left, limit = [math.inf], [math.inf]
    for version, group in _groups("memory", root):
        limits, used, cached = _MEMORY[version]
        numbers = [int(text) for name in limits if (text := _text(group / name)).isdecimal()]
        in_use = _text(group / used)
        if numbers and in_use.isdecimal():
            found = re.search(rf"^{cached} (\d+)$", _text(group / "memory.stat"), re.MULTILINE)
            limit.append(min(numbers) / 2**20)
            left.append((min(numbers) - int(in_use) + int(found[1] if found else 0)) / 2**20)
    return max(0.0, min(left)), min(limit)


_MEMORY = {
    1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
    2: (("memory.max", "memory.high"), "memory.current", "inactive_file"),
}
"""By version: files with limits, file with the memory in use, and name of the cache in it."""


def _groups(controller: str, root: Path) -> Iterator[tuple[int, Path]]:
    """Yield the version and the folder of each group of this process, and of their parents."""
    own = [line.split(":", 2) for line in _text(root / "proc/self/cgroup").splitlines()]
    for mount in _text(root / "proc/self/mountinfo").splitlines():
        place, _, kind = mount.partition(" - ")
        _, _, _, top, point, *_ = [*place.split(" "), *[""] * 5]
        name, _, options, *_ = [*kind.split(" "), *[""] * 3]
        version = {"cgroup": 1, "cgroup2": 2}.get(name)
        if version is None or (version == 1 and controller not in options.split(",")):
            continue
        wanted = controller if version == 1 else ""
        for path in (path for _, names, path in own if wanted in names.split(",")):
            # In a container, the top of the mount may be a group, and the path may be outside.
            group, top_group = PurePosixPath(path), PurePosixPath(_plain(top))
            is_below = group.is_relative_to(top_group) and ".." not in group.parts
            parts = group.relative_to(top_group).parts if is_below else ()
            folder = root / _plain(point).lstrip("/")
            yield from ((version, folder.joinpath(*parts[:n])) for n in range(len(parts) + 1))


def _plain(path: str) -> str:
    """Return a path of `mountinfo`, which writes spaces as `\\040`."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


def _text(file: Path) -> str:
    """Return the text of a file; empty if there is none, as on other systems than Linux."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
