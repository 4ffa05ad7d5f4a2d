"""The command `bench`: measure training speed against bounds, baselines and peers.

The benchmark is in `tests/benchmark` of the repository and not in the wheel.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path

from attnkit.command.arguments import BadInput, known_name, whole_number
from attnkit.command.interrupts import INTERRUPTED, interrupts
from attnkit.command.outputs import SCREEN, Saving, check_files, say
from attnkit.variants.sharing import Sharing

_MOST = 1000
"""Largest number of runs and of rounds."""

_TESTS = Path(__file__).parents[2] / "tests"
"""Folder of the package `benchmark`, in a checkout of the repository."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, and the function that runs it."""
    parser.set_defaults(run=_run)
    parser.add_argument("--peers", action="store_true", help="also x-transformers (extra `dev`)")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here; - for the screen")
    parser.add_argument("--case", action="append", metavar="NAME", help="only this one, repeatable")
    parser.add_argument("--runs", action="append", metavar="N", help="number of runs, repeatable")
    parser.add_argument("--rounds", default="5", help="measurements of every contender")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--only-cases", action="store_true", help="no growth, generators, visitors")
    only.add_argument("--only-supply", action="store_true", help="only the generators of examples")
    parser.add_argument(
        "--table", metavar="FILE", help="replace the table between the marks in this file"
    )


def _run(arguments: argparse.Namespace) -> int:
    if not (_TESTS / "benchmark").is_dir():
        raise BadInput(
            "bench: the benchmark comes with the repository of attnkit, not with the installed "
            "package; in a copy of the repository, run pip install -e '.[dev]' and then "
            "python -m attnkit bench"
        )
    sys.path.insert(0, str(_TESTS))
    from benchmark.cases import CASES, N_RUNS
    from benchmark.report import run

    check_files(arguments, "json", "table")
    cases = [known_name("--case", name, CASES) for name in arguments.case or CASES]
    n_runs = [whole_number("--runs", text, 1, _MOST) for text in arguments.runs or map(str, N_RUNS)]
    for n in n_runs:
        if n > 1 and n % len(Sharing):
            raise BadInput(f"--runs: got {n}, allowed 1 or a multiple of {len(Sharing)}")
    rounds = whole_number("--rounds", arguments.rounds, 1, _MOST)
    if arguments.peers and find_spec("x_transformers") is None:
        raise BadInput("--peers: x-transformers is not installed, it comes with the extra `dev`")
    with interrupts:
        report = run(
            names=[] if arguments.only_supply else cases,
            n_runs=n_runs,
            peers=arguments.peers,
            growth=not (arguments.only_cases or arguments.only_supply),
            supply=not arguments.only_cases,
            live=not (arguments.only_cases or arguments.only_supply),
            rounds=rounds,
            say=say,
        )
    document = json.dumps(report.to_dict(), indent=1, ensure_ascii=False)
    tables = report.to_markdown()
    with Saving() as saving:
        saving.file("--json", arguments.json, document + "\n")
        if not report.interrupted:
            saving.table(arguments, tables)
        print(document if arguments.json == SCREEN else tables)
    return INTERRUPTED if report.interrupted else 0
