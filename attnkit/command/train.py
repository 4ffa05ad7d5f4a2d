"""The command `train`: train variants side by side on a task."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any

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
)
from attnkit.command.process import INTERRUPTED, interrupts
from attnkit.experiment.experiment import DEFAULT_TASK, Experiment, from_params
from attnkit.foundation.documents import BadDocument
from attnkit.foundation.settings import shown
from attnkit.foundation.words import listed
from attnkit.tasks import OWN_TASKS, TASKS, data_in_link
from attnkit.tasks.own_data import own_notes
from attnkit.tasks.own_files import ENCODINGS, SEPARATORS, Choices, ColumnsUnclear, read_file
from attnkit.variants.module import variant as variant_of
from attnkit.variants.module_layers import ModuleFailure
from attnkit.variants.sharing import Sharing

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.service.store import ResultStore
    from attnkit.training import Training
    from attnkit.training.progress import Display
    from attnkit.training.results import Result


_READ_BY = ("columns", "heading", "leave_out_empty", "separator", "encoding")
"""Arguments that say how the file of --data is read."""


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(commands, "train", "train variants side by side on a task", _run)
    parser.epilog = (
        "Settings that are not given are those of the task; `tasks NAME` lists them. `--set "
        "equal=parameters` makes heads wider where variants share, so that all have as many "
        "parameters."
    )
    names = ", ".join(TASKS)
    parser.add_argument("--task", help=f"one of {names}; without it {DEFAULT_TASK}, or your data")
    parser.add_argument(
        "--data",
        metavar="FILE",
        help="train on a table of your own, pairs (key, value) or relations (who, relation, whom), "
        "in CSV, TSV, JSON (.json, .jsonl), Parquet or Excel (.xlsx), or on a text (.txt); how it "
        "is read is printed",
    )
    parser.add_argument(
        "--columns",
        default="",
        metavar="NAME,NAME",
        help="columns of the table to take, by their names",
    )
    parser.add_argument(
        "--heading", choices=("yes", "no"), help="whether the first row names the columns"
    )
    parser.add_argument(
        "--leave-out-empty", action="store_true", help="leave out rows that have empty cells"
    )
    parser.add_argument("--separator", default="", help="what separates cells; \\t is a tab")
    encodings = "encoding of the text: " + ", ".join(ENCODINGS)
    parser.add_argument("--encoding", default="", help=encodings)
    parser.add_argument(
        "--sharing",
        help="comma-separated variants, as text forms or names: "
        + ",".join(s.value for s in Sharing)
        + ",Reformer,'K=V kv_heads=1' …; `variants` lists them",
    )
    parser.add_argument(
        "--attention",
        action="append",
        default=[],
        metavar="FILE.py:CLASS",
        help="a PyTorch module of your own, as the class Layer in the files that `code` writes, "
        "beside the other variants; repeatable; the file is executed",
    )
    parser.add_argument("--seeds", dest="n_seeds", help="runs per variant")
    parser.add_argument("--first-seed", help="seeds count up from this number")
    parser.add_argument("--steps", help="optimiser steps per run")
    parser.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other setting, repeatable; `tasks NAME` lists them",
    )
    parser.add_argument(
        "--full-size", action="store_true", help="train the task at its published size"
    )
    parser.add_argument("--link", help="settings as in an address of the dashboard, after the ?")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here; - for the screen")
    parser.add_argument("--out", metavar="FOLDER", help="save numbers and weights into this folder")
    parser.add_argument(
        "--store",
        nargs="?",
        const="",
        metavar="STORE",
        help="use a stored result, or train and store it: a folder or the URL of a database; "
        "without STORE, the value of ATTNKIT_STORE or this user's folder",
    )


def _run(arguments: argparse.Namespace) -> int:
    from attnkit.analysis.direction import expectation
    from attnkit.training.results import SAVED

    failed: ModuleFailure | None = None
    with redirect_stdout(sys.stderr):  # where code of one's own may print, but no result stands
        experiment = _experiment(arguments)
        outputs = Outputs(arguments, "json", out=SAVED)
        for sentence in (*own_notes(experiment.task), *expectation(experiment)):
            say(sentence)
        stored: Result | None = None
        if arguments.store is not None:
            stored = _find_stored(experiment, arguments.store, arguments.device)
        try:
            result = stored or train_with_progress(experiment, arguments.device)
        except ModuleFailure as error:  # only at a later step, so that the first trial has passed
            failed = error
            if error.trained is None:
                raise BadInput(
                    f"--attention: {error}, during the training; nothing is saved"
                ) from None
            result = error.trained
    interrupts.hold()
    with outputs:
        document = json.dumps(result.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        outputs.save("json", document + "\n")
        outputs.save("out", result.save)
        is_finished = result.snapshot.status == "finished"
        if stored is None and is_finished:
            outputs.save("store", partial(_put, result))
        if arguments.json == SCREEN:
            print(document)
        else:
            _print_report(result)
    if failed is not None:
        step = result.snapshot.step
        raise BadInput(
            f"--attention: {failed}, during the training; the numbers are those of step {step:,}"
        )
    return 0 if is_finished else INTERRUPTED


def _put(result: Result, address: str) -> None:
    with _open_store(address) as store:
        store.put(*result.to_blobs())


@contextmanager
def _open_store(address: str) -> Iterator[ResultStore]:
    """Open the store of `--store`: a folder, the URL of a database, or "" for that of the server.

    Errors of the store are raised as `BadInput`, and its notes are printed.
    """
    from attnkit.service.server import server_settings
    from attnkit.service.store import ResultStore, Unavailable

    server = server_settings()
    try:
        store = ResultStore(address or server.store, megabytes=server.store_megabytes)
        with closing(store):
            try:
                yield store
            finally:
                for note in store.notes:
                    say(note)
    except Unavailable as error:
        raise BadInput(f"--store: {error}") from None


def _find_stored(experiment: Experiment, address: str, device: str) -> Result | None:
    """Return the stored result of an experiment if training would give the same bits.

    A line on standard error says that it is stored, or that another engine, another kind of
    processor or other versions trained it; then None is returned.
    """
    from attnkit.training.maker import Maker
    from attnkit.training.training import pick_device

    with _open_store(address) as store:
        result = store.result(experiment.hash)
    if result is None:
        return None
    maker, here = result.snapshot.maker, Maker.here(pick_device(device))
    if maker != here:
        again = f"{maker} trained it: it is trained again by {here}"
        say(f"experiment {experiment.hash} is stored, but {again}")
        return None
    say(f"experiment {experiment.hash} is stored: nothing is trained")
    return result


def train_with_progress(experiment: Experiment, device: str) -> Result:
    """Train an experiment and show the progress; Ctrl-C ends the training early."""
    from attnkit.foundation.process import prepare_for_training
    from attnkit.training.loops import train
    from attnkit.training.training import pick_device

    pick_device(device)
    prepare_for_training()
    with enough_memory(), warnings.catch_warnings(), interrupts:
        warnings.showwarning = lambda message, *_: say(str(message))
        return train(experiment, device, _progress())


def _progress() -> Display:
    """Return the display of the command; after its last step a signal does not lose the result."""
    from attnkit.training.progress import TextProgress

    class CommandProgress(TextProgress):
        def __call__(self, training: Training) -> None:
            super().__call__(training)
            if training.finished:
                interrupts.hold()

    return CommandProgress()


@contextmanager
def enough_memory() -> Iterator[None]:
    """Raise `BadInput` if an experiment needs more memory than the machine or GPU has."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        advice = "choose fewer seeds or variants, or smaller sizes"
        raise BadInput(f"memory: too little for this experiment; {advice}") from None


def _experiment(arguments: argparse.Namespace) -> Experiment:
    params: dict[str, Any] = {}
    if arguments.link:
        from urllib.parse import parse_qsl

        params |= dict(parse_qsl(arguments.link.lstrip("?"), keep_blank_values=True))
    for text in arguments.sets:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise BadInput(f"--set: got {shown(text, quoted=True)}, allowed NAME=VALUE")
        params[name.strip()] = value.strip()
    for name in ("task", "sharing", "n_seeds", "first_seed", "steps"):
        if getattr(arguments, name) is not None:
            params[name] = getattr(arguments, name)
    if arguments.data is not None:
        params |= _own_data(arguments, params)
    else:
        for name in _READ_BY:
            if getattr(arguments, name):
                raise BadInput(f"--{name.replace('_', '-')}: allowed only beside --data")
    task = params.get("task")
    if arguments.full_size and task in TASKS:
        params = {**TASKS[task].full_size, **params}
    if arguments.attention and arguments.store is not None:
        raise BadInput(
            "--store: got a store, allowed none beside --attention: others could not open what "
            "your own code has trained; use --out"
        )
    try:  # before settings are read, which may name these variants
        modules = [variant_of(text) for text in arguments.attention]
    except ValueError as error:
        raise BadInput(f"--attention: {error}") from None
    experiment = from_params(params)
    return experiment.replace(sharing=[*experiment.sharing, *modules]) if modules else experiment


def _own_data(arguments: argparse.Namespace, params: dict[str, Any]) -> dict[str, str]:
    """Return the settings `task` and `data` of the file of `--data`.

    Raises:
        BadInput: If it cannot be read, or is other data than that of a link.
        InvalidExperiment: If its data cannot be used.
    """
    got = got_path("--data", arguments.data)
    named = str(params.get("task", ""))
    if named and named not in OWN_TASKS:
        allowed = listed(list(OWN_TASKS), "or")
        raise BadInput(f"--task: got {shown(named, quoted=True)}, allowed {allowed} beside --data")
    separator = arguments.separator.replace("\\t", "\t")
    if separator and separator not in SEPARATORS:
        allowed = ", ".join(map(repr, SEPARATORS))
        raise BadInput(f"--separator: got {shown(separator, quoted=True)}, allowed {allowed}")
    if arguments.encoding:
        known_name("--encoding", arguments.encoding, ENCODINGS)
    choices = Choices(
        kind=named,
        columns=tuple(n.strip() for n in arguments.columns.split(",") if n.strip()),
        heading=None if arguments.heading is None else arguments.heading == "yes",
        leave_out_empty=arguments.leave_out_empty,
        separator=separator,
        encoding=arguments.encoding,
    )
    try:
        reading = read_file(arguments.data, choices)
    except (OSError, BadDocument) as error:
        advice = " (--columns NAME,NAME)" if isinstance(error, ColumnsUnclear) else ""
        raise BadInput(f"{got}, but {reason_of(error)}{advice}") from None
    for name, guess in reading.guesses.items():
        say(f"{guess} (--{name} changes this.)")
    say(reading.in_words())
    task, data = reading.task, reading.data
    linked = str(params.get("data", ""))
    if linked not in ("", data, data_in_link(data)):
        raise BadInput(f"{got}, but its data are not those of the link: {shown(linked)}")
    return {"task": task, "data": data}


def _print_report(result: Result) -> None:
    from attnkit.analysis.direction import outcome
    from attnkit.figures.board import adjustment
    from attnkit.training.summary import sharing_table, slice_table, solved_in_words

    snapshot, experiment = result.snapshot, result.experiment
    table = sharing_table(snapshot)
    print(_readable(table, experiment.n_seeds).to_string(index=False))
    if note := solved_in_words(experiment.task):
        print(note)
    if experiment.task.slice_names:
        slices = slice_table(snapshot).to_string(index=False, float_format="%.3f", na_rep="–")
        print(f"Accuracy by {experiment.task.slice_title}:\n{slices}")
    for variant in experiment.sharing:
        if changes := adjustment(experiment, variant):
            print(f"{variant.value}: {changes}")
        module = experiment.wiring(variant).module
        if module is not None and module.missing:
            print(module.missing)
    stopped = "" if snapshot.status == "finished" else " (interrupted)"
    print(
        f"{experiment.task.name}: {experiment.n_runs} runs, step {snapshot.step} of "
        f"{experiment.training.steps}{stopped}, chance {experiment.task.chance:.3f}; "
        f"{result.seconds:.1f} s, {result.model_steps_per_second:.0f} model-steps/s; "
        f"experiment {experiment.hash}"
    )
    for sentence in outcome(snapshot):
        print(sentence)


def _readable(table: pd.DataFrame, n_seeds: int) -> pd.DataFrame:
    import pandas as pd

    rows = table.copy()
    limits = zip(rows.pop("accuracy_low"), rows.pop("accuracy_high"), strict=True)
    interval = [
        f"{max(low, 0):.3f} to {min(high, 1):.3f}" if low == low else "–" for low, high in limits
    ]
    rows.insert(2, "95% interval", interval)
    rows["solved"] = [f"{count}/{n_seeds}" for count in rows["solved"]]
    rows["steps_to_threshold"] = [f"{v:.0f}" if v == v else "–" for v in table.steps_to_threshold]
    rows = rows[[name for name in rows.columns if not name.startswith("difference")]]
    rows = rows.dropna(axis="columns", how="all")
    for name in rows.select_dtypes("Int64").columns:  # a module may not say its cache
        rows[name] = ["–" if pd.isna(value) else f"{value}" for value in rows[name]]
    decimals = rows.select_dtypes("float").columns
    rows[decimals] = rows[decimals].map(lambda v: f"{v:.3f}" if v == v else "–").astype(object)
    rows = rows.rename(
        columns={
            "kv_cache_floats_per_token": "KV floats/token",
            "steps_to_threshold": "steps to 0.99",
        }
    )
    return rows.rename(columns=lambda name: name.replace("_", " "))
