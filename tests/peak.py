"""The most memory this process has had, of its own.

Not `ru_maxrss`: that begins with what the process had that started this one.
"""

import re
from pathlib import Path


def peak_megabytes():
    """The greatest resident memory so far, as Linux counts it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "this kernel does not tell a process's greatest memory"
    return int(found[1]) / 1024
