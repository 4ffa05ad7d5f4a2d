"""One function in place of the kernel, compiled in a moment: `python tests/small_kernel.py [load]`.

It fills the cache folder as `python -m attnkit.model.kernel` does. With `load` it loads the
function and prints how many were found in the folder; with `fail` it fails as numba does.
"""

import runpy
import sys

from numba import njit

from attnkit.model.kernel.cache import load  # its package names the cache folder


@njit(cache=True)
def double(x):
    """Return twice a number."""
    return 2 * x


def compile_all():
    """Compile the function, or load it from the cache."""
    if "fail" in sys.argv:
        raise RuntimeError("Failed in nopython mode\n\nDuring: Pass nopython_type_inference")
    double(1.0)


if __name__ == "__main__":
    sys.modules["attnkit.model.kernel.compiling"] = sys.modules["__main__"]
    if "load" in sys.argv:
        load()
        sys.stdout.write(f"{sum(double.stats.cache_hits.values())}")
    else:
        runpy.run_module("attnkit.model.kernel", run_name="__main__", alter_sys=True)
