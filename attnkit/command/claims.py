"""`python -m attnkit claims`: put what people and papers say to the test."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.command.arguments import BadInput, Commands, known_name, whole_number
from attnkit.command.interrupts import INTERRUPTED, interrupts
from attnkit.command.outputs import SCREEN, Saving, check_files, check_table
from attnkit.command.train import enough_memory
from attnkit.foundation.plugins import OWN_MODULES

if TYPE_CHECKING:
    from attnkit.claims import Claim
    from attnkit.evidence.record import Evidence

LAST_FIRST_SEED = 800_000
"""Largest first seed: learning rates of claims are tuned on the seeds beyond it."""


def add(commands: Commands) -> None:
    """Add the parser of the command."""
    parser = commands.add_parser("claims", help="put what people and papers say to the test")
    parser.set_defaults(run=_run, parser=parser)
    parser.add_argument("claims", nargs="*", metavar="ID", help="only these; without, all")
    parser.add_argument("--list", action="store_true", help="run nothing: table of what is shipped")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="half of the seeds (six or more), at shipped learning rates",
    )
    parser.add_argument("--first-seed", help="seeds count up from here")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--json", metavar="FILE", help="write the evidence here; - for the screen")
    parser.add_argument("--html", metavar="FILE", help="write one standalone page")
    parser.add_argument(
        "--table", metavar="FILE", help="replace the table between the marks of this file"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="do not go on from what an earlier run has finished"
    )
    parser.add_argument(
        "--ship", action="store_true", help="replace the evidence that ships with the package"
    )


def _run(given: argparse.Namespace) -> int:
    from attnkit.claims import CLAIMS
    from attnkit.command.marks import write_between_marks
    from attnkit.evidence.record import SHIPPED, load_shipped, to_json
    from attnkit.evidence.trials import FIRST_SEED
    from attnkit.evidence.words import readable, to_markdown
    from attnkit.figures.evidence_report import to_html

    for name in given.claims:
        known_name("claim", name, CLAIMS)
    if given.ship and (given.claims or given.quick or given.list or os.environ.get(OWN_MODULES)):
        raise BadInput(f"--ship: allowed for all claims, in full, without {OWN_MODULES}")
    first_seed = whole_number(
        "--first-seed",
        str(FIRST_SEED) if given.first_seed is None else given.first_seed,
        0,
        LAST_FIRST_SEED,
    )
    check_files(given, "json", "html", "table")
    check_table(given.table, "claims")
    chosen = [CLAIMS[name] for name in dict.fromkeys(given.claims or CLAIMS)]
    interrupted = False
    if given.list:
        shipped = load_shipped()
        found = [shipped[claim.id] for claim in chosen if claim.id in shipped]
        missing = [claim.id for claim in chosen if claim.id not in shipped]
        if missing:
            print(f"nothing is shipped for {', '.join(missing)}", file=sys.stderr)
    else:
        found, interrupted = _gather(given, chosen, first_seed)
    with Saving() as saving:
        saving.file("--json", given.json, to_json(found))
        if found:
            saving.file("--html", given.html, to_html(found) if given.html else "")
        if given.ship and not interrupted:
            saving.file("--ship", str(SHIPPED), to_json(found))
        if given.table is not None and not interrupted:
            table = to_markdown(found)
            target = Path(given.table)
            saving.attempt(
                "--table", given.table, lambda: write_between_marks(target, "claims", table)
            )
        if given.json == SCREEN:
            sys.stdout.write(to_json(found))
        elif found:
            print(readable(found))
    return INTERRUPTED if interrupted else 0


def _gather(
    given: argparse.Namespace, chosen: list[Claim], first_seed: int
) -> tuple[list[Evidence], bool]:
    """Return the evidence as far as it was gathered, and whether that was interrupted."""
    from platformdirs import user_cache_path

    from attnkit import __version__
    from attnkit.evidence.gathering import Bench, Interrupted, gather
    from attnkit.evidence.record import load_shipped
    from attnkit.foundation.process import prepare_for_training
    from attnkit.training.training import pick_device

    pick_device(given.device)
    prepare_for_training()
    folder = user_cache_path("attnkit") / "claims" / __version__
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{error.filename}: {error.strerror}") from None
    bench = Bench(
        folder,
        given.device,
        lambda text: print(text, file=sys.stderr, flush=True),
        fresh=given.fresh,
    )
    found: list[Evidence] = []
    gathered = gather(
        chosen, bench, quick=given.quick, first_seed=first_seed, records=load_shipped()
    )
    try:
        with enough_memory(), interrupts:
            for evidence in gathered:
                found.append(evidence)
                alone, seconds = evidence.judgement.verdict, evidence.seconds
                done = f"read alone: {alone}, {seconds:.0f} s of training"
                print(f"    {done}", file=sys.stderr, flush=True)
    except (Interrupted, KeyboardInterrupt):  # the latter between two experiments
        return found, True
    except ValueError as error:
        raise BadInput(str(error)) from None
    except OSError as error:
        raise BadInput(f"{error.filename}: {error.strerror}") from None
    return found, False
