"""The commands of `python -m attnkit`, and what becomes of their errors.

Exit codes: 0 done, 2 bad input (one line on standard error), 130 interrupted with what is
finished saved.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from attnkit.command import bench, claims, code, examples, models, tasks, train, variants
from attnkit.command.arguments import BAD_INPUT, BadInput, Parser, error_line, known_name
from attnkit.command.interrupts import INTERRUPTED, LINE, interrupts
from attnkit.command.streams import discard_output
from attnkit.foundation.plugins import import_plugins
from attnkit.foundation.settings import InvalidExperiment, InvalidSettings
from attnkit.realmodels.base import Unreadable

COMMANDS = (train, tasks, variants, claims, models, code, bench, examples)
"""Modules of the commands; each adds its own parser."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: without the program's name; those of this process if None.
    """
    try:
        if sys.stdout is None:
            raise BadInput("standard output: is closed, allowed a terminal, a file or a pipe")
        exit_code = _answer(arguments)
        sys.stdout.flush()
    except (InvalidExperiment, InvalidSettings, Unreadable, BadInput) as error:
        exit_code = _refuse(str(error))
    except KeyboardInterrupt:  # nothing is finished yet
        exit_code = INTERRUPTED
    except BrokenPipeError:  # a program such as `head` has read all it wants
        discard_output()
        exit_code = 0
    except OSError as error:  # errors of all other files name their option
        discard_output()
        exit_code = _refuse(f"standard output: cannot be written ({error.strerror})")
    if interrupts.n_signals and exit_code == 0:
        exit_code = INTERRUPTED
    if exit_code == INTERRUPTED:
        print(LINE, file=sys.stderr)
    return exit_code


def _answer(arguments: Sequence[str] | None) -> int:
    parser = Parser(prog="python -m attnkit", description=sys.modules["attnkit"].__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for module in COMMANDS:
        module.add(commands)
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments and not arguments[0].startswith("-"):
        known_name("command", arguments[0], commands.choices)
    try:
        given, unknown = parser.parse_known_args(arguments)
        if unknown:
            given.parser.unknown(unknown)
    except SystemExit as end:  # after the help or an error
        return int(end.code or 0)
    for problem in import_plugins():
        raise BadInput(problem)
    exit_code: int = given.run(given)
    return exit_code


def _refuse(message: str) -> int:
    print(error_line(message), end="", file=sys.stderr)
    return BAD_INPUT
