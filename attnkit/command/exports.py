"""The commands `code` and `site`: results as files for other programs and for browsers."""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import urlsplit

from attnkit.command.arguments import (
    BadInput,
    Commands,
    add_command,
    check_folder,
    got_path,
    reason_of,
    say,
)
from attnkit.command.process import interrupts
from attnkit.foundation.files import write_file
from attnkit.foundation.settings import shown


def add_to(commands: Commands) -> None:
    """Add the commands to the command line."""
    code = add_command(
        commands, "code", "write a saved result as PyTorch modules and weights", _run_code
    )
    code.add_argument("saved", metavar="SAVED", help="the folder that `train --out` wrote")
    code.add_argument("--out", metavar="FOLDER", required=True, help="write the files here")
    site = add_command(
        commands,
        "site",
        "write the shipped results as a static site, which needs no server",
        _run_site,
    )
    site.add_argument("--out", metavar="FOLDER", required=True, help="write the pages here")
    site.add_argument(
        "--lab",
        metavar="ADDRESS",
        help="address of the Lab that the buttons open; default: one on the reader's own machine",
    )


def _run_code(arguments: argparse.Namespace) -> int:
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


def _run_site(arguments: argparse.Namespace) -> int:
    from attnkit.foundation.process import prepare_for_training
    from attnkit.site.frame import LOCAL_LAB
    from attnkit.site.write import write_site

    lab = LOCAL_LAB if arguments.lab is None else arguments.lab
    if urlsplit(lab).scheme not in ("http", "https") or not urlsplit(lab).netloc:
        got = shown(lab, quoted=True)
        raise BadInput(f"--lab: got {got}, allowed an address such as https://example.org")
    check_folder("--out", arguments.out, ["index.html"])
    prepare_for_training()
    try:
        with interrupts:
            files = write_site(Path(arguments.out), lab, say)
    except OSError as error:
        reason = f"it cannot be written ({reason_of(error)})"
        raise BadInput(f"{got_path('--out', arguments.out)}, but {reason}") from None
    print(f"{len(files)} files in {arguments.out}; index.html is the first page")
    return 0
