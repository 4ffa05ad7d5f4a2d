"""`python -m attnkit code`: a saved result as code, PyTorch modules and weights."""

from __future__ import annotations

import argparse
from pathlib import Path

from attnkit.command.arguments import BadInput, Commands, reason_of
from attnkit.command.outputs import given_as
from attnkit.foundation.files import write_file


def add(commands: Commands) -> None:
    """Add the parser of the command."""
    help_text = "a saved result as code, PyTorch modules and weights"
    parser = commands.add_parser("code", help=help_text)
    parser.set_defaults(run=_run, parser=parser)
    parser.add_argument("saved", metavar="SAVED", help="the folder that `train --out` wrote")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="write the files here")


def _run(given: argparse.Namespace) -> int:
    from attnkit.analysis.export import export_files
    from attnkit.training.results import Result

    for option, folder in (("SAVED", given.saved), ("--out", given.out)):
        if not folder:
            raise BadInput(f"{option}: got '', allowed a folder")
    try:
        files = export_files(Result.load(given.saved))
    except (OSError, ValueError) as error:
        reason = f"it holds no saved result ({reason_of(error)})"
        raise BadInput(f"{given_as('SAVED', given.saved)}, but {reason}") from None
    for name, content in files.items():
        path = Path(given.out) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
        except (OSError, ValueError) as error:
            reason = f"{path.name} cannot be written ({reason_of(error)})"
            raise BadInput(f"{given_as('--out', given.out)}, but {reason}") from None
        print(path)
    return 0
