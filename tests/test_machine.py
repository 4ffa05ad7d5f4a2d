"""Memory: of processes, of the machine, of a container."""

import os
import subprocess
import sys

import psutil
import pytest
import torch

from attnkit.foundation import machine
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


def test_a_process_holds_memory():
    """This one, by number or without; one that has ended holds none."""
    assert megabytes_of() > 10
    assert megabytes_of(os.getpid()) == pytest.approx(megabytes_of(), rel=0.1)
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert megabytes_of(ended.pid) is None


def test_a_container_has_what_its_limit_leaves(tmp_path):
    """Files that the kernel has read and can drop at once count as free memory.

    Without a container or a limit, which is `max` or a huge number, the machine is all.
    """
    free, total = free_and_total_memory(tmp_path)
    assert 0 < free <= total == pytest.approx(TOTAL)
    for version, limit, expected in (
        (1, 100 * 2**20, (60, 100)),
        (2, 100 * 2**20, (60, 100)),
        (2, "max", None),
        (1, 2**63, None),
    ):
        names = ("usage_in_bytes", "limit_in_bytes") if version == 1 else ("current", "max")
        cached = f"inactive_file {20 * 2**20}\n"
        stat = f"inactive_file 7\ntotal_{cached}" if version == 1 else f"anon 1\n{cached}"
        folder = tmp_path / f"{version} {limit}"
        place = folder / "memory" if version == 1 else folder
        place.mkdir(parents=True)
        values = (f"{60 * 2**20}\n", f"{limit}\n", stat)
        for name, text in zip((*names, "stat"), values, strict=True):
            (place / f"memory.{name}").write_text(text)
        found = free_and_total_memory(folder)
        if expected is None:
            assert found[1] == pytest.approx(TOTAL)
        else:
            assert found == expected


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
def test_threads_that_train_share_one_heap():
    """Heaps of their own grew to four times of what thirty experiments used, up to the limit."""
    found = subprocess.run([sys.executable, "-c", ONE_HEAP], capture_output=True, text=True)
    assert found.stdout == "[heap]\n", found.stderr
