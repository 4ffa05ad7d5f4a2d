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


@pytest.mark.parametrize(
    ("name", "vectors", "kind"),
    [
        ("Intel(R) Xeon(R) Processor", "AVX512", "Intel AVX-512"),
        ("AMD EPYC 7763 64-Core Processor", "AVX2", "AMD AVX2"),
        ("arm", "DEFAULT", "arm64"),
    ],
)
def test_the_kind_of_a_processor_is_its_maker_and_its_vectors(monkeypatch, name, vectors, kind):
    """Where the maker is not known, the architecture."""
    monkeypatch.setattr(machine, "processor_name", lambda: name)
    monkeypatch.setattr(machine.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: vectors)
    assert processor_kind(torch.device("cpu")) == kind


def write(folder, **files):
    """Files as a kernel shows them; an underscore in a name stands for a point."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_a_process_holds_memory():
    """This one, by number or without; one that has ended holds none."""
    assert megabytes_of() > 10
    assert megabytes_of(os.getpid()) == pytest.approx(megabytes_of(), rel=0.1)
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert megabytes_of(ended.pid) is None


def test_without_a_container_the_machine_is_all(tmp_path):
    """No limit is told."""
    free, total = free_and_total_memory(tmp_path)
    assert 0 < free <= total == pytest.approx(TOTAL)


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_has_what_its_limit_leaves(tmp_path, version):
    """What the kernel can take back at once, files it has read, counts as free."""
    if version == 2:
        held = {"memory__current": f"{60 * 2**20}\n", "memory__max": f"{100 * 2**20}\n"}
        write(tmp_path, **held, memory__stat=f"anon 1\ninactive_file {20 * 2**20}\n")
    else:
        held = {
            "memory__usage_in_bytes": f"{60 * 2**20}\n",
            "memory__limit_in_bytes": f"{100 * 2**20}\n",
        }
        cached = f"inactive_file 7\ntotal_inactive_file {20 * 2**20}\n"
        write(tmp_path / "memory", **held, memory__stat=cached)
    assert free_and_total_memory(tmp_path) == (60, 100)


@pytest.mark.parametrize("limit", ["max\n", f"{2**63}\n"])
def test_a_container_without_a_limit_has_the_machine(tmp_path, limit):
    """Version 2 says `max`, version 1 a huge number."""
    write(tmp_path, memory__current="1000\n", memory__max=limit, memory__stat="")
    assert free_and_total_memory(tmp_path)[1] == pytest.approx(TOTAL)


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
