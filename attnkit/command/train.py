"""`python -m attnkit train`: train variants side by side on a task."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attnkit.command.arguments import BadInput, Commands
from attnkit.command.interrupts import INTERRUPTED, interrupts
from attnkit.command.outputs import SCREEN, Saving, check_files, check_folder
from attnkit.command.stored import Stored
from attnkit.experiment.experiment import Experiment, from_params
from attnkit.foundation.settings import shown
from attnkit.tasks import TASKS
from attnkit.variants.sharing import Sharing

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.training import Training
    from attnkit.training.results import Result


def add(commands: Commands) -> None:
    """Add the parser of the command."""
    parser = commands.add_parser("train", help="train variants side by side on a task")
    parser.set_defaults(run=_run, parser=parser)
    parser.add_argument("--task", help="one of " + ", ".join(TASKS))
    parser.add_argument(
        "--sharing",
        help="comma-separated variants, as text forms or names: "
        + ",".join(s.value for s in Sharing)
        + ",Reformer,'K=V kv_heads=1' …; `variants` lists them",
    )
    parser.add_argument("--seeds", dest="n_seeds", help="runs per variant")
    parser.add_argument("--first-seed", help="seeds count up from here")
    parser.add_argument("--steps", help="optimiser steps per run")
    parser.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other setting, as often as needed; `tasks NAME` lists them",
    )
    parser.add_argument(
        "--preset", action="store_true", help="the task's quick preset, if it has one"
    )
    parser.add_argument("--link", help="settings as in the dashboard's address, after the ?")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here; - for the screen")
    parser.add_argument("--out", metavar="FOLDER", help="save the whole result here")
    parser.add_argument(
        "--store",
        nargs="?",
        const="",
        metavar="WHERE",
        help="train only what is not stored here, and store it: a folder or a database's URL; "
        "alone, what ATTNKIT_STORE says, or this user's folder",
    )


def _run(given: argparse.Namespace) -> int:
    from attnkit.training.results import SAVED

    experiment = _experiment(given)
    check_files(given, "json")
    if given.out is not None:
        check_folder("--out", given.out, SAVED)
    store = Stored(given.store)
    stored = store.recall(experiment, given.device)
    result = trained(experiment, given.device) if stored is None else stored
    interrupts.hold()
    with Saving() as saving:
        document = json.dumps(result.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        saving.file("--json", given.json, document + "\n")
        if given.out is not None:
            saving.attempt("--out", given.out, lambda: result.save(given.out))
        if stored is None and given.store is not None:
            saving.attempt("--store", given.store, lambda: store.keep(result))
        if given.json == SCREEN:
            print(document)
        else:
            _report(result)
    return 0 if result.snapshot.status == "finished" else INTERRUPTED


def trained(experiment: Experiment, device: str) -> Result:
    """Train an experiment; Ctrl-C ends it early with what was reached."""
    from attnkit.foundation.process import prepare_for_training
    from attnkit.training.training import pick_device, train

    pick_device(device)
    prepare_for_training()
    with _Progress(experiment) as progress, enough_memory(), interrupts:
        return train(experiment, device, progress)


@contextmanager
def enough_memory() -> Iterator[None]:
    """Raise `BadInput` where an experiment needs more memory than the machine or GPU has."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        reduce = "choose fewer seeds or variants, or smaller sizes"
        raise BadInput(f"memory: too little for this experiment; {reduce}") from None


def _experiment(given: argparse.Namespace) -> Experiment:
    chosen: dict[str, Any] = {}
    if given.link:
        from urllib.parse import parse_qsl

        chosen |= dict(parse_qsl(given.link.lstrip("?"), keep_blank_values=True))
    for text in given.sets:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise BadInput(f"--set: got {shown(text, quoted=True)}, allowed NAME=VALUE")
        chosen[name.strip()] = value.strip()
    for name in ("task", "sharing", "n_seeds", "first_seed", "steps"):
        if getattr(given, name) is not None:
            chosen[name] = getattr(given, name)
    task = chosen.get("task")
    if given.preset and task in TASKS:
        chosen = {**TASKS[task].preset, **chosen}
    return from_params(chosen)


def _report(result: Result) -> None:
    from attnkit.training.summary import sharing_table, slice_table

    snapshot, experiment = result.snapshot, result.experiment
    table = sharing_table(snapshot)
    print(_readable(table, experiment.n_seeds).to_string(index=False))
    if experiment.task.slice_names:
        slices = slice_table(snapshot).to_string(index=False, float_format="%.3f", na_rep="–")
        print(f"Accuracy by {experiment.task.slice_title}:\n{slices}")
    stopped = "" if snapshot.status == "finished" else " (interrupted)"
    print(
        f"{experiment.task.name}: {experiment.n_runs} runs, step {snapshot.step} of "
        f"{experiment.training.steps}{stopped}, chance {experiment.task.chance:.3f}; "
        f"{result.seconds:.1f} s, {result.model_steps_per_second:.0f} model-steps/s; "
        f"experiment {experiment.hash}"
    )


def _readable(table: pd.DataFrame, n_seeds: int) -> pd.DataFrame:
    shown = table.copy()
    limits = zip(shown.pop("accuracy_low"), shown.pop("accuracy_high"), strict=True)
    interval = [
        f"{max(low, 0):.3f} to {min(high, 1):.3f}" if low == low else "–" for low, high in limits
    ]
    shown.insert(2, "95% interval", interval)
    shown["solved"] = [f"{count}/{n_seeds}" for count in shown["solved"]]
    shown["steps_to_threshold"] = [f"{v:.0f}" if v == v else "–" for v in table.steps_to_threshold]
    shown = shown[[name for name in shown.columns if not name.startswith("difference")]]
    shown = shown.dropna(axis="columns", how="all")
    decimals = shown.select_dtypes("float").columns
    shown[decimals] = shown[decimals].map(lambda v: f"{v:.3f}" if v == v else "–").astype(object)
    shown = shown.rename(
        columns={
            "kv_cache_floats_per_token": "KV floats/token",
            "steps_to_threshold": "steps to 0.99",
        }
    )
    return shown.rename(columns=lambda name: name.replace("_", " "))


class _Progress:
    """Progress on standard error: a bar on a terminal, else a line for every tenth of the steps."""

    def __init__(self, experiment: Experiment) -> None:
        self._steps = experiment.training.steps
        self._next_line = self._steps / 10
        self._bar: Any = None

    def __enter__(self) -> _Progress:
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=self._steps, unit="step", file=sys.stderr, leave=False)
        return self

    def __call__(self, training: Training) -> None:
        if self._bar is not None:
            self._bar.update(training.step - self._bar.n)
        elif training.step >= self._next_line:
            self._next_line += self._steps / 10
            print(f"step {training.step} of {self._steps}", file=sys.stderr, flush=True)
        if training.finished:
            interrupts.hold()  # a signal now must not cost the result

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
