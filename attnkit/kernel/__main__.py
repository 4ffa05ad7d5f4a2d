"""Compile the kernel into its cache folder: `python -m attnkit.kernel`."""

from attnkit.kernel.cache import mark_compiled
from attnkit.kernel.compiling import compile_all

if __name__ == "__main__":
    compile_all()
    mark_compiled()
