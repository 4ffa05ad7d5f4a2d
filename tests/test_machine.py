"""Processor, cores and memory: of processes, of the machine, of a container."""

import os
import random
import subprocess
import sys

import psutil
import pytest
import torch

from attnkit.foundation import machine, process
from attnkit.foundation.machine import (
    cpu_quota,
    free_and_total_memory,
    megabytes_of,
    processor_kind,
)

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
    command = [sys.executable, "-c", ONE_HEAP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ended:
        assert ended.communicate()[0] == "[heap]\n"
    assert megabytes_of(ended.pid) is None


def test_a_container_has_what_the_limits_of_its_groups_leave(tmp_path, seed, monkeypatch):
    """The smallest limit counts, of the group itself and of its parents, as of a batch job.

    Files that the system has read and can drop at once count as free. Without a group or a limit,
    which is `max`, the machine is all.
    """
    draw = random.Random(seed)
    free, total = free_and_total_memory(tmp_path)
    assert 0 < free <= total == pytest.approx(TOTAL)
    for variable in ("ATTNKIT_CORES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for number in range(20):
        root, names = (
            tmp_path / f"{number}",
            draw.choices(("job_7", "step 0"), k=draw.randint(0, 3)),
        )
        path = draw.choice(("/".join(names), "../other" if not names else "/".join(names)))
        folder = root / "sys/fs/cgroup"
        folder.joinpath(*names).mkdir(parents=True)
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(f"9:name=systemd:/else\n0::/{path}\n")
        cores, left, limits = [4], [], [TOTAL]
        for n in range(len(names) + 1):
            quota, limit = draw.choice(("max", 50_000, 300_000)), draw.choice(("max", 100, 200))
            used, cached = draw.randint(50, 90), draw.randint(0, 40)
            cores += [quota / 100_000] if quota != "max" else []
            left += [limit - used + cached] if limit != "max" else []
            limits += [limit] if limit != "max" else []
            group = folder.joinpath(*names[:n])
            (group / "cpu.max").write_text(f"{quota} 100000\n")
            (group / "memory.max").write_text(f"{limit if limit == 'max' else limit * 2**20}\n")
            (group / "memory.current").write_text(f"{used * 2**20}\n")
            (group / "memory.stat").write_text(f"anon 1\ninactive_file {cached * 2**20}\n")
        free, total = free_and_total_memory(root)
        assert total == pytest.approx(min(limits))
        assert not left or free == min(left)
        monkeypatch.setattr(process, "cpu_quota", lambda root=root: cpu_quota(root))
        n_cores = -int(-min(cores) // 1)  # rounded up
        assert process.n_cores() == n_cores
        limited = f"{n_cores}" if min(cores) < 4 else None
        assert process.environment_with_package().get("OMP_NUM_THREADS") == limited
