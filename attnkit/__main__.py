"""The command line: `python -m attnkit train | tasks | variants | claims | models | …`.

Exit codes: 0 done, 2 bad input (one line on standard error), 130 interrupted with what is
finished saved.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from attnkit.experiment import Experiment, from_params, settings
from attnkit.own import OWN_MODULES, import_own
from attnkit.realmodels.base import Unreadable
from attnkit.realmodels.command import add_models
from attnkit.settings import InvalidExperiment
from attnkit.sharing import Sharing
from attnkit.tasks import TASKS
from attnkit.variants import CATALOGUE, OPTIONS

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.claims import Claim
    from attnkit.evidence.record import Evidence
    from attnkit.examples import Measured
    from attnkit.results import Result
    from attnkit.store import ResultStore
    from attnkit.training import Training

BAD_INPUT = 2
INTERRUPTED = 130

LAST_FIRST_SEED = 800_000
"""Learning rates of claims are tuned on the seeds beyond it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        for problem in import_own():
            raise _BadInput(problem)
        code: int = given.run(given)
    except (InvalidExperiment, Unreadable, _BadInput) as error:
        print(f"attnkit: error: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:  # before the first step: nothing to save
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` say, has what it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


class _BadInput(ValueError):
    """An argument that cannot be used; the message is one line."""


class _Parser(argparse.ArgumentParser):
    """Errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"attnkit: error: {' '.join(message.split())}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m attnkit", description=sys.modules["attnkit"].__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    train = commands.add_parser("train", help="train variants side by side on a task")
    train.set_defaults(run=_train)
    train.add_argument("--task", help="one of " + ", ".join(TASKS))
    train.add_argument(
        "--sharing",
        help="comma-separated variants, as text forms or names: "
        + ",".join(s.value for s in Sharing)
        + ",Reformer,'K=V kv_heads=1' …; `variants` lists them",
    )
    train.add_argument("--seeds", dest="n_seeds", help="runs per variant")
    train.add_argument("--first-seed", help="seeds count up from here")
    train.add_argument("--steps", help="optimiser steps per run")
    train.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other setting, as often as needed; `tasks NAME` lists them",
    )
    train.add_argument(
        "--preset", action="store_true", help="the task's quick preset, if it has one"
    )
    train.add_argument("--link", help="settings as in the dashboard's address, after the ?")
    train.add_argument("--device", default="auto", help="auto, cpu or cuda")
    train.add_argument("--json", metavar="FILE", help="write the numbers here; - for the screen")
    train.add_argument("--out", metavar="FOLDER", help="save the whole result here")
    train.add_argument(
        "--store",
        nargs="?",
        const="",
        metavar="WHERE",
        help="train only what is not stored here, and store it: a folder or a database's URL; "
        "alone, what ATTNKIT_STORE says, or this user's folder",
    )

    tasks = commands.add_parser("tasks", help="table of the tasks, or of one's settings")
    tasks.set_defaults(run=_tasks)
    tasks.add_argument("task", nargs="?", metavar="NAME", help="only this one, with all settings")
    tasks.add_argument("--json", action="store_true", help="as JSON")

    variants = commands.add_parser("variants", help="table of the variants and of their words")
    variants.set_defaults(run=_variants)
    variants.add_argument("--json", action="store_true", help="as JSON")

    claims = commands.add_parser("claims", help="put what people and papers say to the test")
    claims.set_defaults(run=_claims)
    claims.add_argument("claims", nargs="*", metavar="ID", help="only these; without, all")
    claims.add_argument("--list", action="store_true", help="run nothing: table of what is shipped")
    claims.add_argument(
        "--quick", action="store_true", help="eight seeds, at the learning rates of what is shipped"
    )
    claims.add_argument("--first-seed", default="100", help="seeds count up from here")
    claims.add_argument("--device", default="auto", help="auto, cpu or cuda")
    claims.add_argument("--json", metavar="FILE", help="write the evidence here; - for the screen")
    claims.add_argument("--html", metavar="FILE", help="write one standalone page")
    claims.add_argument("--readme", metavar="FILE", help="write the table into this file, too")
    claims.add_argument(
        "--fresh", action="store_true", help="do not go on from what an earlier run has finished"
    )
    claims.add_argument(
        "--ship", action="store_true", help="replace the evidence that ships with the package"
    )

    models = commands.add_parser("models", help="measure trained models, head by head")
    add_models(models)

    code = commands.add_parser("code", help="a saved result as code, PyTorch modules and weights")
    code.set_defaults(run=_code)
    code.add_argument("saved", metavar="SAVED", help="the folder that `train --out` wrote")
    code.add_argument("--out", metavar="FOLDER", required=True, help="write the files here")

    bench = commands.add_parser("bench", help="speed against bounds, baselines and peers")
    bench.set_defaults(run=_bench)
    bench.add_argument("--peers", action="store_true", help="x-transformers, too (extra `dev`)")
    bench.add_argument("--json", metavar="FILE", help="write the numbers here; - for the screen")
    bench.add_argument("--case", action="append", metavar="NAME", help="only this one, repeatable")
    bench.add_argument("--runs", action="append", metavar="N", help="only so many, repeatable")
    bench.add_argument("--rounds", default="5", help="turns of every contender")
    only = bench.add_mutually_exclusive_group()
    only.add_argument("--only-cases", action="store_true", help="no growth, generators, visitors")
    only.add_argument("--only-supply", action="store_true", help="nothing but the generators")
    bench.add_argument("--readme", metavar="FILE", help="write the tables into this file, too")

    examples = commands.add_parser("examples", help="make the examples that pages open with")
    examples.set_defaults(run=_examples)
    return parser


def _train(given: argparse.Namespace) -> int:
    experiment = _experiment(given)
    _check_targets(given)
    store = _Store(given.store)
    stored = store.recall(experiment)
    result = _trained(experiment, given.device) if stored is None else stored
    if given.json != "-":
        _report(result)
    if given.json:
        text = json.dumps(result.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        _write(lambda: _put(given.json, text))
    if given.out:
        _write(lambda: result.save(given.out))
    if stored is None:
        store.keep(result)
    return 0 if result.snapshot.status == "finished" else INTERRUPTED


def _trained(experiment: Experiment, device: str) -> Result:
    from attnkit.process import prepare_for_training
    from attnkit.training import train

    prepare_for_training()
    with _Progress(experiment) as progress, _usable(device):
        return train(experiment, device, progress)


@contextmanager
def _usable(device: str) -> Iterator[None]:
    """One line for a device that there is not."""
    try:
        yield
    except RuntimeError as error:
        if device in ("auto", "cpu"):
            raise
        raise _BadInput(f"device: {device!r} cannot be used ({error})") from None


class _Store:
    """Where `--store` keeps results; without it, nowhere."""

    def __init__(self, where: str | None) -> None:
        self._opened: ResultStore | None = None
        if where is not None:
            from attnkit.server import server_settings
            from attnkit.store import ResultStore

            with self._told():
                own = server_settings()
                self._opened = ResultStore(where or own.store, megabytes=own.store_megabytes)

    def recall(self, experiment: Experiment) -> Result | None:
        """The stored result, which is told, or None."""
        if self._opened is None:
            return None
        with self._told():
            result = self._opened.result(experiment.hash)
        if result is not None:
            print(f"experiment {experiment.hash} is stored: nothing is trained", file=sys.stderr)
        return result

    def keep(self, result: Result) -> None:
        """Store what was trained to its end."""
        if self._opened is not None and result.snapshot.status == "finished":
            with self._told():
                self._opened.put(*result.to_blobs())

    @contextmanager
    def _told(self) -> Iterator[None]:
        """One line each for a store that cannot be used and for a file that was moved aside."""
        from attnkit.server import InvalidSettings
        from attnkit.store import Unavailable

        try:
            yield
        except InvalidSettings as error:
            raise _BadInput(str(error)) from None
        except Unavailable as error:
            raise _BadInput(f"--store: {error}") from None
        finally:
            while self._opened is not None and self._opened.notes:
                print(self._opened.notes.pop(0), file=sys.stderr)


def _check_targets(given: argparse.Namespace) -> None:
    """Find out before training what could not be written after it."""
    out, html = getattr(given, "out", None), getattr(given, "html", None)
    for target in (given.json if given.json != "-" else None, out, html):
        if target is not None and not Path(target).absolute().parent.is_dir():
            raise _BadInput(f"{target}: its folder does not exist")
    if given.json and given.json != "-" and Path(given.json).is_dir():
        raise _BadInput(f"--json: {given.json} is a folder, allowed a file")
    if html and Path(html).is_dir():
        raise _BadInput(f"--html: {html} is a folder, allowed a file")
    if out and Path(out).exists() and not Path(out).is_dir():
        raise _BadInput(f"--out: {out} is a file, allowed a folder")


def _put(target: str, text: str) -> None:
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        Path(target).write_text(text, encoding="utf-8")


def _write(action: Callable[[], object]) -> None:
    try:
        action()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _BadInput(f"{error.filename}: {error.strerror}") from None


def _experiment(given: argparse.Namespace) -> Experiment:
    chosen: dict[str, Any] = {}
    if given.link:
        from urllib.parse import parse_qsl

        chosen |= dict(parse_qsl(given.link.lstrip("?"), keep_blank_values=True))
    for text in given.sets:
        name, separator, value = text.partition("=")
        if not separator:
            raise _BadInput(f"--set: got {text!r}, allowed NAME=VALUE")
        chosen[name.strip()] = value.strip()
    for name in ("task", "sharing", "n_seeds", "first_seed", "steps"):
        if getattr(given, name) is not None:
            chosen[name] = getattr(given, name)
    task = chosen.get("task")
    if given.preset and task in TASKS:
        chosen = {**TASKS[task].preset, **chosen}
    return from_params(chosen)


def _report(result: Result) -> None:
    from attnkit.summary import sharing_table, slice_table

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
    """A bar on a terminal, a plain line every tenth otherwise; on standard error."""

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

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _tasks(given: argparse.Namespace) -> int:
    if given.task not in (None, *TASKS):
        raise _BadInput(f"task: got {given.task!r}, allowed {', '.join(TASKS)}")
    names = list(TASKS) if given.task is None else [given.task]
    if given.json:
        print(json.dumps({name: _told(name) for name in names}, indent=1, ensure_ascii=False))
        return 0
    family = ""
    for name in names:
        task = TASKS[name]()
        beaten = task.loss_to_beat
        levels = f"chance {task.chance:.3f}" + (f", loss to beat {beaten:.3f}" if beaten else "")
        levels += f", hash of the text {task.fingerprint}" if task.fingerprint else ""
        if given.task is None and task.family != family:
            family = task.family
            print(f"{family}\n")
        print(f"{name:16} {task.title}. {task.question}\n    From: {task.source}. {levels}.")
        for setting in settings(name).values():
            if given.task or setting.name in type(task).model_fields:
                default = _plain(setting.default)
                print(f"    {setting.name:15} {default:>8}   {setting.help} ({setting.allowed})")
        if given.task is None:
            print(f"    with {_as_typed(task.overrides)}")
        if task.preset:
            print(f"    quick preset: {_as_typed(task.preset)}")
        if given.task is None:
            print()
    return 0


def _told(name: str) -> dict[str, Any]:
    """What JSON says of a task."""
    task = TASKS[name]()
    defaults = {setting.name: setting.default for setting in settings(name).values()}
    return {
        "title": task.title,
        "question": task.question,
        "family": task.family,
        "source": task.source,
        "chance": task.chance,
        "loss_to_beat": task.loss_to_beat,
        "fingerprint": task.fingerprint,
        "dials": {own: defaults.pop(own) for own in type(task).model_fields},
        "settings": defaults,
        "preset": task.preset,
    }


def _as_typed(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={_plain(value)}" for name, value in settings.items())


def _plain(value: Any) -> str:
    """A setting as it is typed."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _variants(given: argparse.Namespace) -> int:
    from attnkit.examples import default_of, load_variants

    recorded = load_variants()
    rows = []
    for named in CATALOGUE.values():
        try:
            costs = default_of(named.variant).costs(named.variant)
        except InvalidExperiment as error:
            print(f"attnkit: {named.name}: {error}", file=sys.stderr)
            continue
        rows.append((named, costs, recorded.accuracy.get(named.variant)))
    if given.json:
        listing = [
            {
                "name": named.name,
                "variant": named.variant.value,
                "family": named.family,
                "explanation": named.explanation,
                "source": named.source,
                "parameters": costs.parameters,
                "attention_parameters": costs.attention,
                "kv_cache_floats_per_token": costs.kv_cache,
                "multiply_adds_per_token": costs.multiply_adds,
                "accuracy": None if found is None else found.mean,
            }
            for named, costs, found in rows
        ]
        print(json.dumps(listing, indent=1, ensure_ascii=False))
        return 0
    head = f"{'name':22} {'text form':33} {'param.':>6} {'KV':>4} {'MACs':>6} {'accuracy':>20}"
    print(f"{head}  source")
    for named, costs, found in rows:
        print(
            f"{named.name:22} {named.variant.value:33} {costs.parameters:6} {costs.kv_cache:4} "
            f"{costs.multiply_adds:6} {_accuracy(found):>20}  {named.source}"
        )
    n_reached = sum(found is not None and found.reached for _, _, found in rows)
    print(
        f"\n{len(rows)} variants; {n_reached} of {len(recorded.accuracy)} measured reach "
        f"{recorded.threshold} (*) on {recorded.task} at its defaults: mean of "
        f"{recorded.n_seeds} seeds after {recorded.steps} steps with its 95% interval. KV: floats "
        "a decoder keeps per token. MACs: multiply-adds per token. What shares across layers has "
        "two of them, all else one.\n\n"
        "A text form is a sharing (QKV, Q=K, K=V, Q=V, Q=K=V), then roles without a matrix "
        "(V=I), then words:"
    )
    for name, option in OPTIONS.items():
        values = f" ({option.allowed})" if option.allowed else ""
        print(f"    {name:15} {option.help}{values}")
    return 0


def _accuracy(found: Measured | None) -> str:
    if found is None:
        return "not measured"
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]{'*' if found.reached else ' '}"


def _claims(given: argparse.Namespace) -> int:
    from attnkit.claims import CLAIMS
    from attnkit.evidence.record import SHIPPED, load_shipped, readable, to_json, to_markdown
    from attnkit.readme import write_part

    for name in given.claims:
        if name not in CLAIMS:
            raise _BadInput(f"claim: got {name!r}, allowed {', '.join(CLAIMS)}")
    if given.ship and (given.claims or given.quick or given.list or os.environ.get(OWN_MODULES)):
        raise _BadInput(f"--ship: allowed for all claims, in full, without {OWN_MODULES}")
    _check_targets(given)
    if given.readme:
        _check_readme(given.readme, "claims")
    chosen = [CLAIMS[name] for name in dict.fromkeys(given.claims or CLAIMS)]
    interrupted = False
    if given.list:
        shipped = load_shipped()
        found = [shipped[claim.id] for claim in chosen if claim.id in shipped]
        missing = [claim.id for claim in chosen if claim.id not in shipped]
        if missing:
            print(f"nothing is shipped for {', '.join(missing)}", file=sys.stderr)
    else:
        found, interrupted = _gather(given, chosen)
    if given.json:
        _write(partial(_put, given.json, to_json(found)))
    if given.html and found:
        from attnkit.evidence.report import to_html

        _write(partial(_put, given.html, to_html(found)))
    if given.json != "-" and found:
        print(readable(found))
    if interrupted:
        return INTERRUPTED
    if given.ship:
        _write(partial(_put, str(SHIPPED), to_json(found)))
    if given.readme:
        _write(lambda: write_part(Path(given.readme), "claims", to_markdown(found)))
    return 0


def _gather(given: argparse.Namespace, chosen: list[Claim]) -> tuple[list[Evidence], bool]:
    """The evidence as far as it was gathered, and whether that was interrupted."""
    from platformdirs import user_cache_path

    from attnkit import __version__
    from attnkit.evidence.gathering import Bench, Interrupted, gather
    from attnkit.evidence.record import load_shipped
    from attnkit.process import prepare_for_training

    first_seed = given.first_seed
    if not first_seed.isdecimal() or int(first_seed) > LAST_FIRST_SEED:
        allowed = f"a whole number from 0 to {LAST_FIRST_SEED:,}"
        raise _BadInput(f"--first-seed: got {first_seed!r}, allowed {allowed}")
    prepare_for_training()
    folder = user_cache_path("attnkit") / "claims" / __version__
    _write(partial(folder.mkdir, parents=True, exist_ok=True))
    bench = Bench(
        folder,
        given.device,
        lambda text: print(text, file=sys.stderr, flush=True),
        fresh=given.fresh,
    )
    found: list[Evidence] = []
    gathered = gather(
        chosen, bench, quick=given.quick, first_seed=int(first_seed), known=load_shipped()
    )
    try:
        with _usable(given.device):
            for evidence in gathered:
                found.append(evidence)
                told = f"{evidence.judgement.verdict}, {evidence.seconds:.0f} s of training"
                print(f"    {told}", file=sys.stderr, flush=True)
    except (Interrupted, KeyboardInterrupt):  # the latter between two experiments
        return found, True
    except ValueError as error:
        raise _BadInput(str(error)) from None
    return found, False


def _code(given: argparse.Namespace) -> int:
    from attnkit.export import take_away
    from attnkit.results import Result

    try:
        files = take_away(Result.load(given.saved))
    except OSError as error:
        raise _BadInput(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise _BadInput(f"{given.saved}: {error}") from None
    for name, content in files.items():
        path = Path(given.out) / name
        _write(partial(path.parent.mkdir, parents=True, exist_ok=True))
        _write(partial(path.write_bytes, content))
        print(path)
    return 0


def _bench(given: argparse.Namespace) -> int:
    from attnkit.bench.cases import CASES, N_RUNS
    from attnkit.bench.report import run
    from attnkit.readme import write_part

    _check_targets(given)
    names = given.case or list(CASES)
    for name in names:
        if name not in CASES:
            raise _BadInput(f"--case: got {name!r}, allowed {', '.join(CASES)}")
    n_runs = [_count("--runs", text) for text in given.runs or map(str, N_RUNS)]
    for n in n_runs:
        if n > 1 and n % len(Sharing):
            raise _BadInput(f"--runs: got {n}, allowed 1 or a multiple of {len(Sharing)}")
    if given.peers and find_spec("x_transformers") is None:
        raise _BadInput("--peers: x-transformers is not installed, it comes with the extra `dev`")
    if given.readme:
        _check_readme(given.readme, "bench")
    report = run(
        names=[] if given.only_supply else names,
        n_runs=n_runs,
        peers=given.peers,
        growth=not (given.only_cases or given.only_supply),
        supply=not given.only_cases,
        live=not (given.only_cases or given.only_supply),
        rounds=_count("--rounds", given.rounds),
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    if given.json:
        text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False) + "\n"
        _write(lambda: _put(given.json, text))
    if given.json != "-":
        print(report.to_markdown())
    if report.interrupted:
        return INTERRUPTED
    if given.readme:
        _write(lambda: write_part(Path(given.readme), "bench", report.to_markdown()))
    return 0


def _check_readme(path: str, name: str) -> None:
    """Find out before a long run whether its table has a place."""
    from attnkit.readme import split_readme

    try:
        split_readme(Path(path), name)
    except ValueError as error:
        raise _BadInput(f"--readme: {error}") from None
    except OSError as error:
        raise _BadInput(f"--readme: {error.filename}: {error.strerror}") from None


def _count(option: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise _BadInput(f"{option}: got {text!r}, allowed a whole number from 1 to 1000")
    return int(text)


def _examples(_: argparse.Namespace) -> int:
    from attnkit.examples import FOLDER, VARIANTS, measure_variants
    from attnkit.process import prepare_for_training
    from attnkit.training import train

    if os.environ.get(OWN_MODULES):
        raise _BadInput(f"examples: {OWN_MODULES} is set, and what is one's own is not shipped")
    prepare_for_training()
    for name in TASKS:
        result = train(Experiment(task=name))
        if result.snapshot.status != "finished":
            return INTERRUPTED
        path = FOLDER / f"{name}.safetensors"
        _write(partial(path.write_bytes, result.snapshot.to_bytes()))
        print(f"{path.name}: {result.seconds:.1f} s")
    measured = measure_variants()
    if measured is None:
        return INTERRUPTED
    text = json.dumps(measured, indent=1, ensure_ascii=False) + "\n"
    _write(lambda: (FOLDER / VARIANTS).write_text(text, encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
