"""The command `sweep`: train variants at every point of a grid of settings."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.command.arguments import (
    BadInput,
    Commands,
    add_command,
    got_path,
    known_name,
    reason_of,
    say,
    whole_number,
)
from attnkit.command.process import interrupts
from attnkit.foundation.settings import shown
from attnkit.foundation.words import counted

if TYPE_CHECKING:
    from attnkit.sweeps import Sweep, SweepResult
    from attnkit.sweeps.result import SweepFolder
    from attnkit.sweeps.run import Outlook, Progress

_MOST_REPEATED = 10_000

_MOST_ROWS = 200
"""Largest number of rows of the table at the end; rows in its middle are left out."""

_OPTIONS = {"out": "--out", "place": "--engine"}
"""Options of the command by the names that the library's messages begin with."""


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands, "sweep", "train variants at every point of a grid of settings", _run
    )
    parser.add_argument("specification", metavar="SPEC.toml", help="base, axes, variants, seeds")
    parser.add_argument(
        "--engine",
        default="local",
        help="where to train: local for processes on this machine, ray for a Ray cluster "
        "(extra `cluster`; RAY_ADDRESS names it, else one starts here)",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="folder for the runs, also on other storage that fsspec knows, such as "
        "s3://bucket/folder; default: the name of the specification without .toml",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="the folder may hold runs already: train those that are missing",
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="with --resume, try failed runs again"
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--estimate", action="store_true", help="say what the sweep needs, and train nothing"
    )
    instead.add_argument(
        "--check",
        metavar="N",
        help="train N random cells of the folder again on this machine, and report differences",
    )


def _run(arguments: argparse.Namespace) -> int:
    from attnkit.sweeps.result import SweepFolder
    from attnkit.sweeps.specification import InvalidSweep, read_sweep
    from attnkit.sweeps.workers import PLACES

    known_name("--engine", arguments.engine, PLACES)
    if arguments.retry_failed and not arguments.resume:
        raise BadInput("--retry-failed: allowed only with --resume")
    if arguments.out == "":
        raise BadInput("--out: got '', allowed a folder")
    file = Path(arguments.specification)
    try:
        sweep = read_sweep(file)
        folder = SweepFolder(arguments.out or str(file.with_suffix("")))
        if arguments.check is not None:
            return _check(sweep, folder, arguments.check)
        return _train(sweep, folder, arguments)
    except InvalidSweep as error:
        key, colon, rest = str(error).partition(":")
        name = shown(file.name, quoted=True)
        places = {"engine": f"engine in {name}", "specification": f"specification {name}"}
        place = (places | _OPTIONS).get(key, key)
        raise BadInput(f"{place}{colon}{rest.replace('`resume`', '--resume')}") from None
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        name = getattr(error, "filename", None) or arguments.specification
        raise BadInput(f"{got_path('sweep', str(name))}: {reason_of(error)}") from None


def _train(sweep: Sweep, folder: SweepFolder, arguments: argparse.Namespace) -> int:
    from attnkit.foundation.process import prepare_for_training
    from attnkit.sweeps.run import run_sweep
    from attnkit.training.pace import duration_in_words
    from attnkit.training.progress import Bar

    def begin(outlook: Outlook) -> bool:
        say(_outlook(sweep, outlook))
        return not arguments.estimate

    def report(progress: Progress) -> None:
        n_runs, n_finished = progress.n_runs, progress.n_done + progress.n_failed
        left = duration_in_words(progress.seconds_left)
        line = f"{n_finished} of {n_runs} runs, {progress.n_workers} workers, {left} left"
        bar.show(n_finished, n_runs, line)

    prepare_for_training()
    with interrupts, closing(Bar("run")) as bar:
        result = run_sweep(
            sweep,
            folder.address,
            arguments.engine,
            resume=arguments.resume,
            retry_failed=arguments.retry_failed,
            begin=begin,
            report=report,
        )
    if arguments.estimate:
        return 0
    folder.write_result(result)
    print(_summary(result))
    print(f"{len(result.runs)} runs in {folder.address}; all of them in runs.parquet")
    return 0


def _outlook(sweep: Sweep, outlook: Outlook) -> str:
    """Return time and price of the missing runs."""
    from attnkit.training.pace import duration_in_words

    n_missing, _, megabytes, n_workers, start = outlook
    seconds, price = outlook.core_hours * 3600, sweep.budget.price_per_core_hour
    n_finished = sweep.n_runs - n_missing
    text = f"{n_missing} runs to train" + (f", {n_finished} finished before" * bool(n_finished))
    if not n_missing:
        return text
    text += (
        f": about {duration_in_words(seconds)} of one core, "
        f"{duration_in_words(start + seconds / n_workers)} on {counted(n_workers, 'worker')}, "
        f"{duration_in_words(start)} of it to start them; {megabytes:.0f} MB for each worker"
    )
    return text + (f"; cost {outlook.core_hours * price:.2f}" if price else "")


def _summary(result: SweepResult) -> str:
    """Return a table with one row per point and variant, and why runs have failed."""
    from attnkit.sweeps.cells import cells

    table = cells(result)
    means, counts = table["accuracy"], zip(table["n_solved"], table["n_seeds"], strict=True)
    rows = table[[*result.sweep.axes, "sharing"]].assign(
        runs=table["n_seeds"],
        accuracy=["–" if mean != mean else f"{mean:.3f}" for mean in means],
        solved=[f"{n_solved}/{n_seeds}" for n_solved, n_seeds in counts],
        failed=result.sweep.n_seeds - table["n_seeds"],
    )
    failures = result.runs["error"].value_counts()
    lines = [f"{count} runs failed: {reason}" for reason, count in failures.head(3).items()]
    return "\n".join([rows.to_string(index=False, max_rows=_MOST_ROWS), *lines])


def _check(sweep: Sweep, folder: SweepFolder, text: str) -> int:
    from attnkit.foundation.process import prepare_for_training
    from attnkit.sweeps.result import SweepResult
    from attnkit.sweeps.run import repeat_sample

    prepare_for_training()
    n_cells = whole_number("--check", text, 1, _MOST_REPEATED)
    with interrupts:
        where, table = repeat_sample(SweepResult.read(folder, sweep), n_cells)
    n_cells, equal = table["cell"].nunique(), int(table["equal"].sum())
    print(
        f"{len(table)} runs of {n_cells} cells were trained again on {where}: "
        f"{equal} equal to the bit"
    )
    if equal < len(table):
        accuracy, loss = table["accuracy_difference"].max(), table["loss_difference"].max()
        print(f"largest difference: accuracy {accuracy:.4f}, loss {loss:.2e}")
        print(table.loc[~table["equal"]].to_string(index=False))
    return 0
