"""`python -m attnkit bench`: speed against bounds, baselines and peers."""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path

from attnkit.command.arguments import BadInput, Commands, known_name, whole_number
from attnkit.command.interrupts import INTERRUPTED, interrupts
from attnkit.command.outputs import SCREEN, Saving, check_files, check_table
from attnkit.variants.sharing import Sharing

_MOST = 1000
"""Largest number of runs and of rounds."""


def add(commands: Commands) -> None:
    """Add the parser of the command."""
    parser = commands.add_parser("bench", help="speed against bounds, baselines and peers")
    parser.set_defaults(run=_run, parser=parser)
    parser.add_argument("--peers", action="store_true", help="x-transformers, too (extra `dev`)")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here; - for the screen")
    parser.add_argument("--case", action="append", metavar="NAME", help="only this one, repeatable")
    parser.add_argument("--runs", action="append", metavar="N", help="only so many, repeatable")
    parser.add_argument("--rounds", default="5", help="turns of every contender")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--only-cases", action="store_true", help="no growth, generators, visitors")
    only.add_argument("--only-supply", action="store_true", help="nothing but the generators")
    parser.add_argument(
        "--table", metavar="FILE", help="replace the table between the marks of this file"
    )


def _run(given: argparse.Namespace) -> int:
    from attnkit.bench.cases import CASES, N_RUNS
    from attnkit.bench.report import run
    from attnkit.command.marks import write_between_marks

    check_files(given, "json", "table")
    check_table(given.table, "bench")
    cases = [known_name("--case", name, CASES) for name in given.case or CASES]
    n_runs = [whole_number("--runs", text, 1, _MOST) for text in given.runs or map(str, N_RUNS)]
    for n in n_runs:
        if n > 1 and n % len(Sharing):
            raise BadInput(f"--runs: got {n}, allowed 1 or a multiple of {len(Sharing)}")
    rounds = whole_number("--rounds", given.rounds, 1, _MOST)
    if given.peers and find_spec("x_transformers") is None:
        raise BadInput("--peers: x-transformers is not installed, it comes with the extra `dev`")
    with interrupts:
        report = run(
            names=[] if given.only_supply else cases,
            n_runs=n_runs,
            peers=given.peers,
            growth=not (given.only_cases or given.only_supply),
            supply=not given.only_cases,
            live=not (given.only_cases or given.only_supply),
            rounds=rounds,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
    document = json.dumps(report.to_dict(), indent=1, ensure_ascii=False)
    tables = report.to_markdown()
    with Saving() as saving:
        saving.file("--json", given.json, document + "\n")
        if given.table is not None and not report.interrupted:
            target = Path(given.table)
            saving.attempt(
                "--table", given.table, lambda: write_between_marks(target, "bench", tables)
            )
        print(document if given.json == SCREEN else tables)
    return INTERRUPTED if report.interrupted else 0
