"""Entry point of `attnkit` and `python -m attnkit`, which handles Ctrl-C before slow imports."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from attnkit.command.process import interrupts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    from attnkit.command.main import run

    return run(arguments)


def run_process() -> int:
    """Run the command of this process and return its exit code; the process ends next."""
    interrupts.install()
    from attnkit.command.process import prepare_streams
    from attnkit.foundation.process import threads_of_libraries

    prepare_streams()
    os.environ.update(threads_of_libraries())  # before torch and numpy are imported
    code = main()
    interrupts.finish()
    return code


if __name__ == "__main__":
    sys.exit(run_process())
