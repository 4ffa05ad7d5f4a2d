"""Memory: of processes, of the machine, of a container."""

import math
import os
import random
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from attnkit.foundation import machine, process
from attnkit.foundation.control_groups import cpu_quota
from attnkit.foundation.machine import free_and_total_memory, megabytes_of, processor_kind

TOTAL = psutil.virtual_memory().total / 2**20


def test_the_kind_of_a_processor_is_its_maker_and_its_vectors(monkeypatch):
    """The architecture is named where the maker is not known."""
    monkeypatch.setattr(machine.platform, "machine", lambda: "arm64")
    for name, vectors, kind in (
        ("Intel(R) Xeon(R) Processor", "AVX512", "Intel AVX-512"),
        ("AMD EPYC 7763 64-Core Processor", "AVX2", "AMD AVX2"),
        ("arm", "DEFAULT", "arm64"),
    ):
        monkeypatch.setattr(machine, "processor_name", lambda name=name: name)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda found=vectors: found)
        assert processor_kind(torch.device("cpu")) == kind


ONE_HEAP = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from attnkit.foundation.process import prepare_for_training

prepare_for_training()
with ThreadPoolExecutor(1) as pool:
    array = pool.submit(np.ones, 2**17).result()
for line in open("/proc/self/maps"):
    first, last = (int(end, 16) for end in line.split()[0].split("-"))
    if first <= array.ctypes.data < last:
        print(line.split()[-1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc gives threads heaps of their own")
def test_a_process_holds_memory_and_its_threads_share_one_heap():
    """A process that has ended holds none. Heaps of threads grew to four times of what was used."""
    assert megabytes_of() > 10
    assert megabytes_of(os.getpid()) == pytest.approx(megabytes_of(), rel=0.1)
    with subprocess.Popen(
        [sys.executable, "-c", ONE_HEAP], stdout=subprocess.PIPE, text=True
    ) as ended:
        assert ended.communicate()[0] == "[heap]\n"
    assert megabytes_of(ended.pid) is None


def made_groups(root, draw):
    """Write a system's description of nested groups with limits; return what they leave.

    Returns:
        Cores, free memory and limit of the memory; None where nothing limits them.
    """
    version, mib = draw.choice((1, 2)), 2**20
    names = draw.choices(("job_7", "step 0", "user.slice"), k=draw.randint(0, 4))
    outside = draw.choice(("", "/docker/a1", "/.."))  # of which a container may know, or not
    point = draw.choice(("/sys/fs/cgroup", "/run/two words"))
    points = {name: f"{point}/{name}" if version == 1 else point for name in ("cpu", "memory")}
    controllers = {"cpu": "cpu,cpuacct", "memory": "memory"} if version == 1 else {"cpu": ""}
    (root / "proc/self").mkdir(parents=True)
    groups, mounts = ["9:name=systemd:/else"], ["31 23 0:28 / / rw shared:1 - ext4 /dev/root rw"]
    for number, (name, found) in enumerate(controllers.items()):
        kind, mounted = "cgroup2" if version == 2 else "cgroup", points[name].replace(" ", "\\040")
        groups.append(f"{number}:{found}:{outside}/{'/'.join(names)}")
        mounts.append(f"32 31 0:29 {outside or '/'} {mounted} rw - {kind} {kind} rw,{found}")
    (root / "proc/self/cgroup").write_text("\n".join([*groups, ""]))
    (root / "proc/self/mountinfo").write_text("\n".join(mounts))
    cores, left, limits = [], [], []
    seen = names if outside != "/.." else []  # its group lies outside of what the container sees
    for level in range(len(seen) + 1):
        quota, limit = draw.choice((None, 50_000, 100_000, 10**9)), draw.choice((None, 100, 200))
        used, cached = draw.randint(50, 90), draw.randint(0, 40)
        cores += [quota / 100_000] if quota else []
        limits += [limit] if limit else []
        left += [limit - used + cached] if limit else []
        files = {
            "cpu.cfs_quota_us": quota or -1,
            "cpu.cfs_period_us": 100_000,
            "memory.limit_in_bytes": limit * mib if limit else 2**63 - 4096,
            "memory.usage_in_bytes": used * mib,
            "memory.stat": f"inactive_file 7\ntotal_inactive_file {cached * mib}",
        }
        if version == 2:
            files = {
                "cpu.max": f"{quota or 'max'} 100000",
                "memory.max": limit * mib if limit else "max",
                "memory.current": used * mib,
                "memory.stat": f"anon 1\ninactive_file {cached * mib}",
            }
        for name, text in files.items():
            folder = Path(f"{root}{points[name.partition('.')[0]]}", *seen[:level])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{text}\n")
    return min(cores, default=None), min(left, default=None), min(limits, default=None)


def test_a_container_has_what_the_limits_of_its_groups_leave(tmp_path, seed, monkeypatch):
    """The smallest limit counts, of the group itself and of all its parents, in both versions.

    Files that the system has read and can drop at once count as free memory. Without a container or
    a limit, which is `max` or a huge number, the machine is all.
    """
    draw = random.Random(seed)
    free, total = free_and_total_memory(tmp_path)
    assert 0 < free <= total == pytest.approx(TOTAL)
    assert cpu_quota(tmp_path) == math.inf
    for variable in ("ATTNKIT_CORES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 4, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for number in range(40):
        root = tmp_path / f"{number}"
        cores, left, limit = made_groups(root, draw)
        found = free_and_total_memory(root)
        assert found[1] == pytest.approx(limit or TOTAL)
        assert limit is None or found[0] == left
        monkeypatch.setattr(process, "cpu_quota", lambda root=root: cpu_quota(root))
        assert process.n_cores() == (4 if cores is None else min(4, math.ceil(cores)))
        limited = None if cores is None or cores >= 4 else f"{math.ceil(cores)}"
        assert process.environment_with_package().get("OMP_NUM_THREADS") == limited
