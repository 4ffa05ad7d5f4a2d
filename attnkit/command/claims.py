"""The command `claims`: test statements of people and papers about attention."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attnkit.command.arguments import (
    SCREEN,
    BadInput,
    Commands,
    Outputs,
    add_command,
    known_name,
    say,
    whole_number,
)
from attnkit.command.process import INTERRUPTED, interrupts
from attnkit.command.train import enough_memory
from attnkit.foundation.plugins import PLUGINS

if TYPE_CHECKING:
    from attnkit.claims import Claim
    from attnkit.evidence.gathering import Bench
    from attnkit.evidence.record import Records

QUICK_MINUTES = 10
"""Time for the quick form of all claims."""

MOST_MINUTES = 10_000
"""Longest time for the quick form that can be set."""

LAST_FIRST_SEED = 800_000
"""Largest first seed; learning rates of claims are tuned on larger seeds."""


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands, "claims", "test statements of people and papers about attention", _run
    )
    parser.add_argument(
        "claims",
        nargs="*",
        metavar="ID",
        help="only these claims, or files of your own in TOML; default: all",
    )
    parser.add_argument("--list", action="store_true", help="show shipped evidence, run nothing")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="test with few new seeds and the shipped learning rates and, of a claim that did not "
        "hold in the shipped evidence, only one of the statements that failed",
    )
    parser.add_argument(
        "--elsewhere",
        action="store_true",
        help="train in other structures (MLP, width, layers, heads, entries, steps) with three new "
        "seeds, and show where the claims hold; default: those that end in about six minutes each",
    )
    parser.add_argument(
        "--minutes",
        help="time for --quick: the cheapest claims come first, and further ones begin if they are "
        "expected to end in time; default: 10, and no limit if claims are named",
    )
    parser.add_argument(
        "--first-seed",
        help="seeds count up from this number; default: that of the shipped evidence, and new "
        "seeds with --quick",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--json", metavar="FILE", help="write the evidence here; - for the screen")
    parser.add_argument(
        "--table",
        metavar="FILE",
        help="replace the table or answers between marks in this file",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="ignore what earlier commands have finished"
    )
    parser.add_argument(
        "--ship",
        action="store_true",
        help="replace these claims in the evidence that ships with the package",
    )


def _run(arguments: argparse.Namespace) -> int:
    from attnkit.claims import CLAIMS
    from attnkit.evidence.presentation import readable, to_markdown
    from attnkit.evidence.questions import answers_in_markdown
    from attnkit.evidence.record import SHIPPED, Records, load_shipped
    from attnkit.evidence.trials import FIRST_SEED, NEW_SEED

    named = [_of_file(name) if name.endswith(".toml") else name for name in arguments.claims]
    for name in named:
        known_name("claim", name, CLAIMS)
    is_own = bool(os.environ.get(PLUGINS)) or named != arguments.claims
    if arguments.ship and (arguments.quick or arguments.list or is_own):
        raise BadInput(f"--ship: allowed without --quick, --list, files of your own and {PLUGINS}")
    if arguments.elsewhere:
        for name in ("quick", "list", "table", "first_seed", "minutes"):
            if getattr(arguments, name):
                raise BadInput(f"--{name.replace('_', '-')}: allowed without --elsewhere")
    first_seed = NEW_SEED if arguments.quick else FIRST_SEED
    if arguments.first_seed is not None:
        first_seed = whole_number("--first-seed", arguments.first_seed, 0, LAST_FIRST_SEED)
    minutes = _minutes(arguments)
    outputs = Outputs(arguments, "json", "table")
    chosen = [CLAIMS[name] for name in dict.fromkeys(named or CLAIMS)]
    if arguments.elsewhere:
        return _elsewhere(arguments, outputs, chosen)
    known = shipped = load_shipped()
    interrupted = False
    if not arguments.list:
        known, interrupted = _gather(arguments, chosen, first_seed, minutes)
    records = Records.of(known[claim.id] for claim in chosen if claim.id in known)
    missing = ", ".join(claim.id for claim in chosen if claim.id not in known)
    late = "" if arguments.list or interrupted else missing
    if arguments.list and missing:
        say(f"nothing is shipped for {missing}")
    if late:
        again = "" if arguments.fresh else " The same command goes on from here."
        say(
            f"{len(records)} of {len(chosen)} claims were tested; the others would end after more "
            f"than {minutes:.0f} min: {late}. Name some of them, or set --minutes.{again}"
        )
        if arguments.table is not None:
            say("--table: not written, because it needs all of these claims")
    in_table = records
    with outputs:
        outputs.save("json", records.to_json())
        if arguments.ship and not interrupted:
            both = shipped | records
            in_table = Records({name: both[name] for name in CLAIMS if name in both})
            outputs.save("ship", in_table.to_json(summarised=False), str(SHIPPED))
        if not interrupted and not late:
            outputs.save_table(to_markdown(in_table), answers_in_markdown(in_table))
        if arguments.json == SCREEN:
            sys.stdout.write(records.to_json())
        elif records:
            print(readable(records))
    return INTERRUPTED if interrupted else 0


def _of_file(path: str) -> str:
    """Register the claim of a file, and return its id."""
    from attnkit.claims import read_claim, register_claim

    try:
        return register_claim(read_claim(path)).id
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(str(error)) from None


def _minutes(arguments: argparse.Namespace) -> float:
    """Return the time for the quick form; infinite if there is no limit."""
    if arguments.minutes is None:
        return QUICK_MINUTES if arguments.quick and not arguments.claims else math.inf
    if not arguments.quick or arguments.list:
        raise BadInput("--minutes: allowed with --quick, and without --list")
    return whole_number("--minutes", arguments.minutes, 1, MOST_MINUTES)


def _gather(
    arguments: argparse.Namespace, chosen: list[Claim], first_seed: int, minutes: float
) -> tuple[Records, bool]:
    """Return the records that were gathered, and whether gathering was interrupted."""
    from attnkit.evidence.gathering import gather
    from attnkit.evidence.record import Records, load_shipped

    finished = Records()
    with _training(arguments) as bench:
        for evidence in gather(
            chosen,
            bench,
            quick=arguments.quick,
            first_seed=first_seed,
            records=load_shipped(),
            minutes=minutes,
        ):
            finished[evidence.claim.id] = evidence
            verdict, seconds = evidence.judgement.verdict, evidence.seconds
            say(f"    read alone: {verdict}, {seconds:.0f} s of training")
        return finished, False
    return finished, True


def _elsewhere(arguments: argparse.Namespace, outputs: Outputs, chosen: list[Claim]) -> int:
    from attnkit.claims import CLAIMS
    from attnkit.evidence import elsewhere
    from attnkit.evidence.record import load_shipped

    if not arguments.claims:
        in_time = (c for c in chosen if elsewhere.work_elsewhere(c) <= elsewhere.SIX_MINUTES)
        chosen = [claim for claim in in_time if elsewhere.is_clear(load_shipped().get(claim.id))]
    found, ended = {}, False
    with _training(arguments) as bench:
        for number, claim in enumerate(chosen, 1):
            bench.say(f"{number}/{len(chosen)} {claim.id}")
            record = load_shipped().get(claim.id)
            found[claim.id] = elsewhere.search_elsewhere(claim, record, bench)
        ended = True
    with outputs:
        outputs.save("json", elsewhere.to_json(found))
        if arguments.ship:
            known = elsewhere.load_elsewhere() | found
            outputs.save("ship", elsewhere.to_json(known), str(elsewhere.ELSEWHERE))
        if arguments.json == SCREEN:
            sys.stdout.write(elsewhere.to_json(found))
        else:
            for name, result in found.items():
                print(elsewhere.readable(CLAIMS[name], result))
    return 0 if ended else INTERRUPTED


@contextmanager
def _training(arguments: argparse.Namespace) -> Iterator[Bench]:
    """Yield what trains claims; leave the block if training is interrupted."""
    from platformdirs import user_cache_path

    from attnkit import __version__
    from attnkit.evidence.gathering import Bench, Interrupted
    from attnkit.foundation.process import prepare_for_training
    from attnkit.training.training import pick_device

    pick_device(arguments.device)
    prepare_for_training()
    folder = user_cache_path("attnkit") / "claims" / __version__
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with enough_memory(), interrupts:
            yield Bench(folder, arguments.device, say, fresh=arguments.fresh)
    except (Interrupted, KeyboardInterrupt):  # KeyboardInterrupt: between two experiments
        return
    except ValueError as error:
        raise BadInput(str(error)) from None
    except OSError as error:
        raise BadInput(f"{error.filename}: {error.strerror}") from None
