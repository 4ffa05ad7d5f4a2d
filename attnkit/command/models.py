"""The commands `models` and `sentence`: heads of trained models of others."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnkit.command.arguments import (
    BAD_INPUT,
    BadInput,
    Commands,
    Outputs,
    add_command,
    error_line,
    got_path,
    say,
)
from attnkit.command.process import INTERRUPTED, interrupts
from attnkit.foundation.files import write_file
from attnkit.realmodels.base import RealModel
from attnkit.realmodels.errors import Unreadable

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.realmodels.atlas import Atlas, Setting
    from attnkit.realmodels.sentence import SentenceReading


def add_to(commands: Commands) -> None:
    """Add the commands to the command line."""
    parser = add_command(
        commands, "models", "measure trained models of others, head by head", _run_models
    )
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="MODEL",
        help="a folder, a file (*.safetensors beside its config.json, *.gguf, CTranslate2's "
        "model.bin, Marian's *.bin or *.npz), an installed package, or a model on the hub: "
        "owner/name, owner/name:Q8_0, owner/name@revision or several as "
        "owner/name@step1000,step4000, or an address from the browser; a folder of checkpoints "
        "stands for all of them, FOLDER@checkpoint-500,checkpoint-1000 for some",
    )
    parser.add_argument("--out", metavar="FILE.parquet", help="write a row per head and per layer")
    parser.add_argument(
        "--portraits", metavar="FILE.safetensors", help="write the data of all head portraits, too"
    )
    parser.add_argument(
        "--training",
        metavar="FILE",
        help="write how alike W_Q and W_K are in every layer over a model's revisions, as figures "
        "(*.html) or as a table (*.csv)",
    )
    parser.add_argument(
        "--fold", action="store_true", help="multiply the norm's gains into the weight matrices"
    )
    parser.add_argument(
        "--offset",
        type=int,
        default=0,
        help="tokens from key to query, for models with rotary positions",
    )
    parser.add_argument(
        "--every-setting",
        action="store_true",
        help="measure with and without --fold, at all offsets that the dashboard offers",
    )
    parser.add_argument(
        "--activations",
        action="store_true",
        help="run the models on text, too, for the CKA of activations (needs transformers)",
    )
    parser.add_argument(
        "--table", metavar="FILE", help="replace the table between the marks in this file"
    )
    parser.add_argument(
        "--ship", action="store_true", help="replace the atlas that ships with the package"
    )
    parser = add_command(
        commands,
        "sentence",
        "what each head of a trained model does with a sentence of yours",
        _run_sentence,
    )
    parser.add_argument(
        "source",
        metavar="MODEL",
        help="a folder or file with a tokenizer beside it, an installed package, or owner/name on "
        "the hub; running a model needs the extra `models`",
    )
    parser.add_argument(
        "sentence",
        nargs="?",
        metavar="SENTENCE",
        help="the sentence; without one, a line of standard input is a sentence",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write the figures of one head (*.html), the table of all heads (*.csv, *.parquet), "
        "or all scores and patterns (*.safetensors); of several sentences, a folder",
    )
    for name in ("layer", "head"):
        parser.add_argument(
            f"--{name}",
            type=int,
            help=f"{name} of the figures, from 0 (default: the head that tells most)",
        )


def _run_models(arguments: argparse.Namespace) -> int:
    import pandas  # noqa: F401  # before Ctrl-C raises: an import must not be interrupted

    from attnkit.realmodels.atlas import Atlas
    from attnkit.realmodels.shipped import PACKAGES

    outputs = _checked_outputs(arguments)
    if arguments.ship and arguments.sources:
        raise BadInput("--ship: measures the shipped models only; leave out MODEL")
    sources = arguments.sources or (list(PACKAGES) if arguments.ship else [])
    if not sources:
        raise BadInput("MODEL: none given, allowed one or more; see --help")
    atlases: list[Atlas] = []
    interrupted, problem = False, None
    try:
        with interrupts:
            _measure(sources, arguments, atlases)
    except KeyboardInterrupt:
        interrupted = True
    except Unreadable as error:
        problem = error
    if atlases:
        complete = not (interrupted or problem)
        _save(Atlas.together(atlases), arguments, outputs, complete=complete)
    if problem is not None:
        raise problem
    return INTERRUPTED if interrupted else 0


def _measure(sources: list[str], arguments: argparse.Namespace, atlases: list[Atlas]) -> None:
    """Measure models; each finished atlas is appended, so that an interrupt does not lose it."""
    from tqdm import tqdm

    from attnkit.realmodels.activations import with_activations
    from attnkit.realmodels.atlas import Atlas, measure_model, notes_on
    from attnkit.realmodels.hub import revisions_of
    from attnkit.realmodels.revisions import trainings
    from attnkit.realmodels.sources import open_model

    settings = _settings(arguments)
    sources = [one for source in sources for one in revisions_of(source)]
    models = _with_unique_names([open_model(source) for source in sources])
    if arguments.training:
        _check_training(arguments.training, len(trainings(model.name for model in models)))
    for source, model in zip(sources, models, strict=True):
        with tqdm(desc=model.name, unit="layer", file=sys.stderr, leave=False) as bar:
            stem = re.sub(r"\W+", "-", model.name)
            atlas = measure_model(
                model,
                settings,
                portraits=bool(arguments.portraits or arguments.ship),
                progress=partial(_show_progress, bar),
                kept=Path(f"{arguments.out}.{stem}.layers") if arguments.out else None,
            )
        for note in dict.fromkeys([*model.notes, *notes_on(atlas.table)]):
            say(f"{model.name}: {note}")
        if arguments.activations or arguments.ship:
            try:
                atlas = Atlas(with_activations(atlas.table, source), atlas.arrays)
            except Unreadable as error:
                say(f"not run on text: {error}")
        atlases.append(atlas)


def _with_unique_names(models: list[RealModel]) -> list[RealModel]:
    """Return the models, with a number after each name that has occurred before."""
    counts: Counter[str] = Counter()
    renamed = []
    for model in models:
        counts[model.name] += 1
        n = counts[model.name]
        name, at, revision = model.name.partition("@")  # so that two runs stay two trainings
        renamed.append(model if n == 1 else replace(model, name=f"{name} ({n}){at}{revision}"))
    return renamed


def _save(atlas: Atlas, arguments: argparse.Namespace, outputs: Outputs, *, complete: bool) -> None:
    from attnkit.realmodels.answer import as_they_stand, summary
    from attnkit.realmodels.revisions import describe_training, over_training, training_table
    from attnkit.realmodels.tie_costs import cost_table

    setting = _settings(arguments)[0]
    rows = over_training(atlas.table, folded=setting.fold, offset=setting.offset)
    plain = as_they_stand(atlas.table)
    with outputs:
        outputs.save("out", lambda path: atlas.save(table=Path(path)))
        outputs.save("portraits", lambda path: atlas.save(portraits=Path(path)))
        if len(rows):
            outputs.save("training", partial(_write_training, rows))
        if complete:
            outputs.save_table(summary(plain))
        if complete and arguments.ship:
            outputs.save("ship", lambda _: _ship(atlas), "the shipped atlas")
        shown = atlas.table if plain.empty else plain
        print(summary(shown))
        print("\nWhat tied matrices would lose, median over heads (random matrices):\n")
        print(cost_table(shown[shown["head"].notna()]))
        if len(rows):
            print(f"\n{training_table(rows)}\n")
        for sentence in describe_training(rows):
            print(sentence)


def _write_training(rows: pd.DataFrame, target: str) -> None:
    from attnkit.foundation.tables import csv_of_frame
    from attnkit.notebook.plots import training_figure

    is_table = target.endswith(".csv")
    write_file(Path(target), csv_of_frame(rows) if is_table else training_figure(rows).to_html())


def _settings(arguments: argparse.Namespace) -> tuple[Setting, ...]:
    from attnkit.realmodels.atlas import Setting
    from attnkit.realmodels.shipped import SETTINGS

    if arguments.every_setting or arguments.ship:
        return SETTINGS
    if abs(arguments.offset) > 999_999:
        allowed = "allowed a whole number of at most six digits"
        raise BadInput(f"--offset: got {arguments.offset:.6g}, {allowed}")
    return (Setting(arguments.fold, arguments.offset),)


def _checked_outputs(arguments: argparse.Namespace) -> Outputs:
    for option, *endings in (
        ("out", ".parquet"),
        ("portraits", ".safetensors"),
        ("training", ".html", ".csv"),
    ):
        _check_ending(f"--{option}", getattr(arguments, option), tuple(endings))
    if arguments.table and (arguments.fold or arguments.offset):
        raise BadInput("--table: allowed for models as they stand; leave out --fold and --offset")
    return Outputs(arguments, "out", "portraits", "training", "table")


def _check_ending(option: str, target: str | None, endings: tuple[str, ...]) -> None:
    if target is not None and not target.endswith(endings):
        got = got_path(option, target)
        raise BadInput(f"{got}, allowed a name that ends in {' or '.join(endings)}")


def _check_training(target: str, n_models: int) -> None:
    if not n_models:
        raise BadInput(
            f"{got_path('--training', target)}, allowed with several revisions of one model, such "
            "as owner/name@step1000,step4000, or a folder of checkpoints"
        )
    if n_models > 1 and target.endswith(".html"):
        raise BadInput(
            f"{got_path('--training', target)}, allowed *.csv: there are revisions of "
            f"{n_models} models, and a figure shows one"
        )


def _ship(atlas: Atlas) -> None:
    from attnkit.foundation.process import prepare_for_training
    from attnkit.realmodels import toys
    from attnkit.realmodels.shipped import PORTRAITS, TABLE

    atlas.save(TABLE, PORTRAITS)
    prepare_for_training()
    toys.measure_toys().to_parquet(toys.FILE, index=False)


def _show_progress(bar: Any, done: int, total: int) -> None:
    bar.total = total
    bar.update(done - bar.n)


def _run_sentence(arguments: argparse.Namespace) -> int:
    from attnkit.realmodels.sentence import SentenceReader, checked_sentence

    for given, missing in (("layer", "head"), ("head", "layer")):
        if getattr(arguments, given) is not None and getattr(arguments, missing) is None:
            raise BadInput(f"--{missing}: missing, allowed --layer and --head together")
    if arguments.sentence is None:
        return _read_lines(arguments)
    _check_ending("--out", arguments.out, (".html", ".csv", ".parquet", ".safetensors"))
    outputs = Outputs(arguments, "out")
    checked_sentence(arguments.sentence)
    reading = SentenceReader(arguments.source).read(arguments.sentence)
    if arguments.layer is not None:
        try:
            reading = reading.head(arguments.layer, arguments.head)
        except ValueError as error:
            raise BadInput(f"--{error}") from None
    with outputs:
        outputs.save("out", lambda path: _write_reading(reading, Path(path)))
        _print_reading(reading)
    return 0


def _read_lines(arguments: argparse.Namespace) -> int:
    """Read the lines of standard input, and write FOLDER/1.safetensors and so on.

    A line that cannot be read is reported with its number, and the next one is read.
    """
    from attnkit.realmodels.sentence import SentenceReader

    if arguments.layer is not None:
        raise BadInput("--layer: allowed with one SENTENCE only")
    if sys.stdin is None:
        raise BadInput("SENTENCE: missing, and standard input is closed")
    Outputs(arguments, out=())
    if arguments.out is not None:
        Path(arguments.out).mkdir(exist_ok=True)
    reader = SentenceReader(arguments.source)
    if sys.stdin.isatty():
        say("Type a sentence and press Enter; Ctrl-D ends.")
    code = 0
    for number, line in enumerate(iter(sys.stdin.buffer.readline, b""), 1):
        try:
            reading = reader.read(line.decode("utf-8", "replace").rstrip("\r\n"))
        except Unreadable as error:
            say(error_line(f"line {number}: {error}").rstrip())
            code = BAD_INPUT
            continue
        if arguments.out is None:
            _print_reading(reading)
            continue
        with Outputs(arguments) as of_line:
            file = str(Path(arguments.out) / f"{number}.safetensors")
            of_line.save("out", reading.to_bytes(), file)
    return code


def _write_reading(reading: SentenceReading, target: Path) -> None:
    from attnkit.figures.sentence import explain, sentence_film
    from attnkit.foundation.tables import csv_of_frame
    from attnkit.ui.standalone import standalone_html

    if target.suffix == ".parquet":
        reading.table.to_parquet(target, index=False)
    elif target.suffix == ".csv":
        write_file(target, csv_of_frame(reading.table))
    elif target.suffix == ".safetensors":
        write_file(target, reading.to_bytes())
    else:
        title, note = f"{reading.model}: {reading.sentence}", " ".join(explain(reading))
        blob = sentence_film(reading).to_bytes()
        write_file(target, standalone_html(title, "sentence", blob, note))


def _print_reading(reading: SentenceReading) -> None:
    from attnkit.figures.sentence import (
        describe_head,
        describe_heads,
        explain,
        strongest_heads,
    )
    from attnkit.foundation.tables import markdown_table

    for sentence in explain(reading):
        say(sentence)
    table = strongest_heads(reading)
    if len(table):
        print(markdown_table(list(table.columns), table.astype(str).to_numpy().tolist(), "lrlrr"))
    print(describe_heads(reading))
    print(describe_head(reading), flush=True)
