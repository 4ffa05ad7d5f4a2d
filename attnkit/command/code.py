"""The command `code`: write a saved result as PyTorch modules and weights."""

from __future__ import annotations

import argparse
from pathlib import Path

from attnkit.command.arguments import BadInput, reason_of
from attnkit.command.outputs import got_path
from attnkit.foundation.files import write_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, and the function that runs it."""
    parser.set_defaults(run=_run)
    parser.add_argument("saved", metavar="SAVED", help="the folder that `train --out` wrote")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="write the files here")


def _run(arguments: argparse.Namespace) -> int:
    from attnkit.analysis.export import export_files
    from attnkit.training.results import Result

    for option, folder in (("SAVED", arguments.saved), ("--out", arguments.out)):
        if not folder:
            raise BadInput(f"{option}: got '', allowed a folder")
    try:
        files = export_files(Result.load(arguments.saved))
    except (OSError, ValueError) as error:
        reason = f"it holds no saved result ({reason_of(error)})"
        raise BadInput(f"{got_path('SAVED', arguments.saved)}, but {reason}") from None
    for name, content in files.items():
        path = Path(arguments.out) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
        except (OSError, ValueError) as error:
            reason = f"{path.name} cannot be written ({reason_of(error)})"
            raise BadInput(f"{got_path('--out', arguments.out)}, but {reason}") from None
        print(path)
    return 0
