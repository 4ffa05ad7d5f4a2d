"""The command `site`: write the shipped results as a static site, which needs no server."""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import urlsplit

from attnkit.command.arguments import BadInput, reason_of
from attnkit.command.interrupts import interrupts
from attnkit.command.outputs import check_folder, got_path, say
from attnkit.foundation.settings import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, and the function that runs it."""
    parser.set_defaults(run=_run)
    parser.add_argument("--out", metavar="FOLDER", required=True, help="write the pages here")
    parser.add_argument(
        "--lab",
        metavar="ADDRESS",
        help="address of the Lab that the buttons open; default: one on the reader's own machine",
    )


def _run(arguments: argparse.Namespace) -> int:
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
