"""Entry point of the command line: choice of the command, errors and exit codes.

Exit codes: 0 done, 2 bad input (one line on standard error), 130 interrupted (finished results
are saved).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from attnkit import __version__
from attnkit.command import claims, lab, listings, models, outputs, sweep, train
from attnkit.command.arguments import (
    BAD_INPUT,
    BadInput,
    Parser,
    error_line,
    known_name,
)
from attnkit.command.process import INTERRUPTED, MESSAGE, discard_output, interrupts
from attnkit.foundation.plugins import import_plugins
from attnkit.foundation.settings import InvalidExperiment, InvalidSettings
from attnkit.realmodels.errors import Unreadable

COMMANDS = (lab, train, listings, claims, sweep, models, outputs)
"""Modules of the commands, in the order of the help."""

_OF_ALL_COMMANDS = ("-h", "--help", "--version")
"""Options that stand before a command; all others belong to one."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: Arguments without the program's name. None: those of this process.
    """
    try:
        if sys.stdout is None:
            raise BadInput("standard output: is closed, allowed a terminal, a file or a pipe")
        exit_code = _run_command(arguments)
        sys.stdout.flush()
    except (InvalidExperiment, InvalidSettings, Unreadable, BadInput) as error:
        exit_code = _print_error(str(error))
    except KeyboardInterrupt:  # before any result was finished
        exit_code = INTERRUPTED
    except BrokenPipeError:  # a program such as `head` has stopped reading
        discard_output()
        exit_code = 0
    except OSError as error:  # other files raise BadInput, which names the option
        discard_output()
        exit_code = _print_error(f"standard output: cannot be written ({error.strerror})")
    if interrupts.n_signals and exit_code == 0:
        exit_code = INTERRUPTED
    if exit_code == INTERRUPTED:
        print(MESSAGE, file=sys.stderr)
    return exit_code


def _run_command(arguments: Sequence[str] | None) -> int:
    description = (sys.modules["attnkit"].__doc__ or "").partition("\n")[0]
    installed = Path(sys.argv[0]).stem == "attnkit"
    program = "attnkit" if installed else "python -m attnkit"
    parser = Parser(
        prog=program,
        description=f"{description} Without a command, open the dashboard: `lab --help`.",
    )
    parser.add_argument("--version", action="version", version=f"attnkit {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for module in COMMANDS:
        module.add_to(commands)
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _OF_ALL_COMMANDS):
        arguments = ["lab", *arguments]
    if not arguments[0].startswith("-"):
        known_name("command", arguments[0], commands.choices)
    try:
        namespace, unknown = parser.parse_known_args(arguments)
        if unknown:
            namespace.parser.unknown(unknown)
    except SystemExit as end:  # argparse has printed the help or an error
        return int(end.code or 0)
    for problem in import_plugins():
        raise BadInput(problem)
    exit_code: int = namespace.run(namespace)
    return exit_code


def _print_error(message: str) -> int:
    print(error_line(message), end="", file=sys.stderr)
    return BAD_INPUT
