"""Entry point of `python -m attnkit`, which handles Ctrl-C before slow imports."""

from __future__ import annotations

import sys

from attnkit.command.interrupts import interrupts

if __name__ == "__main__":
    interrupts.install()

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    from attnkit.command.main import run

    return run(arguments)


if __name__ == "__main__":
    from attnkit.command.streams import prepare_streams

    prepare_streams()
    code = main()
    interrupts.finish()
    sys.exit(code)
