"""Compile the kernel into its cache folder: `python -m attnkit.model.kernel`."""

import gc
import sys
import traceback

from attnkit.foundation.process import WITH_PARENT, end_with_parent, limit_memory
from attnkit.model.kernel.cache import mark_compiled

if __name__ == "__main__":
    if WITH_PARENT in sys.argv:
        end_with_parent()
    limit_memory(float("inf"))  # the training process may have had a limit when it started this one
    gc.disable()  # it takes an eighth of the time and frees nothing before the process ends
    try:
        from attnkit.model.kernel.compiling import compile_all

        compile_all()
        mark_compiled()
    except Exception as error:  # the first line of numba's long messages is the most useful
        traceback.print_exc()
        sys.exit(f"{type(error).__name__}: {error}".partition("\n")[0])
