"""The command `sentence`: what each head of a trained model does with a sentence of yours."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.command.arguments import (
    BAD_INPUT,
    BadInput,
    Commands,
    Saving,
    add_command,
    check_files,
    check_folder,
    error_line,
    got_path,
    say,
    whole_number,
)
from attnkit.foundation.files import write_file

if TYPE_CHECKING:
    from attnkit.realmodels.sentence import SentenceReading

_MOST_HEADS = 10**6
_ENDINGS = ("html", "csv", "parquet", "safetensors")


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "sentence",
        "what each head of a trained model does with a sentence of yours",
        _run,
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
            f"--{name}", help=f"{name} of the figures, from 0 (default: the head that tells most)"
        )


def _run(arguments: argparse.Namespace) -> int:
    from attnkit.realmodels.sentence import SentenceReader, checked_sentence

    place = _place(arguments)
    if arguments.sentence is None:
        return _read_lines(arguments)
    if arguments.out is not None and not arguments.out.endswith(tuple(f".{e}" for e in _ENDINGS)):
        allowed = ", ".join(f".{ending}" for ending in _ENDINGS)
        got = got_path("--out", arguments.out)
        raise BadInput(f"{got}, allowed a name that ends in {allowed}")
    check_files(arguments, "out")
    checked_sentence(arguments.sentence)
    reading = SentenceReader(arguments.source).read(arguments.sentence)
    if place is not None:
        try:
            reading = reading.head(*place)
        except ValueError as error:
            raise BadInput(f"--{error}") from None
    with Saving() as saving:
        if arguments.out is not None:
            target = Path(arguments.out)
            saving.attempt("--out", arguments.out, lambda: _write(reading, target))
        _print(reading)
    return 0


def _read_lines(arguments: argparse.Namespace) -> int:
    """Read the lines of standard input, and write FOLDER/1.safetensors and so on.

    A line that cannot be read is reported with its number, and the next one is read.
    """
    from attnkit.realmodels.errors import Unreadable
    from attnkit.realmodels.sentence import SentenceReader

    if arguments.layer is not None:
        raise BadInput("--layer: allowed with one SENTENCE only")
    if sys.stdin is None:
        raise BadInput("SENTENCE: missing, and standard input is closed")
    if arguments.out is not None:
        check_folder("--out", arguments.out, ())
        Path(arguments.out).mkdir(exist_ok=True)
    reader = SentenceReader(arguments.source)
    if sys.stdin.isatty():
        say("Type a sentence and press Enter; Ctrl-D ends.")
    code = 0
    for number, line in enumerate(_lines(), 1):
        try:
            reading = reader.read(line)
        except Unreadable as error:
            say(error_line(f"line {number}: {error}").rstrip())
            code = BAD_INPUT
            continue
        if arguments.out is None:
            _print(reading)
            continue
        with Saving() as saving:
            file = str(Path(arguments.out) / f"{number}.safetensors")
            saving.file("--out", file, reading.to_bytes())
    return code


def _lines() -> Iterator[str]:
    """Yield the lines of standard input as they come, without waiting for more."""
    for line in iter(sys.stdin.buffer.readline, b""):
        yield line.decode("utf-8", "replace").rstrip("\r\n")


def _place(arguments: argparse.Namespace) -> tuple[int, int] | None:
    """Return the layer and the head of the figures; None if they were not given."""
    if arguments.layer is None and arguments.head is None:
        return None
    if arguments.layer is None or arguments.head is None:
        missing = "layer" if arguments.layer is None else "head"
        raise BadInput(f"--{missing}: missing, allowed --layer and --head together")
    layer, head = (
        whole_number(f"--{name}", getattr(arguments, name), 0, _MOST_HEADS)
        for name in ("layer", "head")
    )
    return layer, head


def _write(reading: SentenceReading, target: Path) -> None:
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


def _print(reading: SentenceReading) -> None:
    """Print where heads look as a table, and what the shown head does in sentences."""
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
