"""The commands `code`, `site`, `bench` and `examples`, which write files for others.

The benchmark is in `tests/benchmark` of the repository and not in the wheel. Examples are the
experiments that pages show first.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from attnkit.analysis.custom_phone_book import is_phone_book
from attnkit.command.arguments import (
    SCREEN,
    BadInput,
    Commands,
    Outputs,
    add_command,
    got_path,
    known_name,
    reason_of,
    say,
    whole_number,
)
from attnkit.command.process import INTERRUPTED, interrupts
from attnkit.experiment import Experiment
from attnkit.foundation.files import write_file
from attnkit.foundation.plugins import PLUGINS
from attnkit.foundation.settings import shown
from attnkit.tasks import TASKS
from attnkit.variants.sharing import Sharing

_MOST = 1000
"""Largest number of runs and of rounds of the benchmark."""

_TESTS = Path(__file__).parents[2] / "tests"
"""Folder of the package `benchmark`, in a checkout of the repository."""


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
    bench = add_command(
        commands, "bench", "measure training speed against baselines and peers", _run_bench
    )
    bench.add_argument("--peers", action="store_true", help="also x-transformers (extra `dev`)")
    bench.add_argument("--json", metavar="FILE", help="write the numbers here; - for the screen")
    bench.add_argument("--case", action="append", metavar="NAME", help="only this one, repeatable")
    bench.add_argument("--runs", action="append", metavar="N", help="number of runs, repeatable")
    bench.add_argument("--rounds", default="5", help="measurements of every contender")
    bench.add_argument("--only-cases", action="store_true", help="without visitors of a server")
    bench.add_argument(
        "--table", metavar="FILE", help="replace the table between the marks in this file"
    )
    examples = add_command(
        commands, "examples", "train the example experiments that pages show first", _run_examples
    )
    examples.add_argument(
        "tasks",
        nargs="*",
        metavar="TASK",
        help="only these tasks; without TASK, all tasks and variants",
    )


def _run_code(arguments: argparse.Namespace) -> int:
    from attnkit.analysis.export import export_files
    from attnkit.training.results import Result

    if not arguments.out:
        raise BadInput("--out: got '', allowed a folder")
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
    Outputs(arguments, out=["index.html"])
    prepare_for_training()
    try:
        with interrupts:
            files = write_site(Path(arguments.out), lab, say)
    except OSError as error:
        reason = f"it cannot be written ({reason_of(error)})"
        raise BadInput(f"{got_path('--out', arguments.out)}, but {reason}") from None
    print(f"{len(files)} files in {arguments.out}; index.html is the first page")
    return 0


def _run_bench(arguments: argparse.Namespace) -> int:
    if not (_TESTS / "benchmark").is_dir():
        raise BadInput(
            "bench: the benchmark comes with the repository of attnkit, not with the installed "
            "package; in a copy of the repository, run pip install -e '.[dev]' and then "
            "python -m attnkit bench"
        )
    sys.path.insert(0, str(_TESTS))
    from benchmark.cases import CASES, N_RUNS
    from benchmark.report import run

    outputs = Outputs(arguments, "json", "table")
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
            names=cases,
            n_runs=n_runs,
            peers=arguments.peers,
            live=not arguments.only_cases,
            rounds=rounds,
            say=say,
        )
    document = json.dumps(report.to_dict(), indent=1, ensure_ascii=False)
    tables = report.to_markdown()
    with outputs:
        outputs.save("json", document + "\n")
        if not report.interrupted:
            outputs.save_table(tables)
        print(document if arguments.json == SCREEN else tables)
    return INTERRUPTED if report.interrupted else 0


def _run_examples(arguments: argparse.Namespace) -> int:
    from attnkit.examples import FOLDER, VARIANTS, WEIGHTS, measure_variants, save_weights
    from attnkit.foundation.process import prepare_for_training
    from attnkit.training import train

    if os.environ.get(PLUGINS):
        raise BadInput(f"examples: {PLUGINS} is set, but plugins are not shipped; unset it")
    names = [known_name("task", name, TASKS) for name in arguments.tasks]
    prepare_for_training()
    for name in names or TASKS:
        with interrupts:
            result = train(Experiment(task=name), progress=False)
        if result.snapshot.status != "finished":
            return INTERRUPTED
        write_file(FOLDER / f"{name}.safetensors", result.snapshot.to_bytes())
        if is_phone_book(result.experiment.task):
            write_file(FOLDER / f"{name}{WEIGHTS}", save_weights(result))
        print(f"{name}.safetensors: {result.seconds:.1f} s")
    if names:
        return 0
    with interrupts:
        measured = measure_variants()
    if measured is None:
        return INTERRUPTED
    write_file(FOLDER / VARIANTS, json.dumps(measured, indent=1, ensure_ascii=False) + "\n")
    return 0
