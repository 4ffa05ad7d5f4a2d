"""`python -m attnkit models`: measure trained models, head by head."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.command.arguments import BadInput, Commands
from attnkit.command.interrupts import INTERRUPTED, interrupts
from attnkit.command.marks import write_between_marks
from attnkit.command.outputs import Saving, check_files, check_table, given_as
from attnkit.foundation.settings import shown
from attnkit.realmodels.base import RealModel, Unreadable

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.realmodels.atlas import Atlas, Setting

ENDING = ".parquet"


def add(commands: Commands) -> None:
    """Add the parser of the command."""
    parser = commands.add_parser("models", help="measure trained models, head by head")
    parser.set_defaults(run=_run, parser=parser)
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="MODEL",
        help="a folder, a file (*.safetensors beside its config.json, *.gguf, CTranslate2's "
        "model.bin), an installed package, or owner/name on the hub",
    )
    parser.add_argument("--out", metavar=f"FILE{ENDING}", help="write a row per head and per layer")
    parser.add_argument(
        "--portraits", metavar="FILE.safetensors", help="write what draws each head, too"
    )
    parser.add_argument(
        "--fold", action="store_true", help="multiply in the gains of the norm before attention"
    )
    parser.add_argument(
        "--offset", default="0", help="tokens from key to query, where positions are rotary"
    )
    parser.add_argument(
        "--every-setting",
        action="store_true",
        help="with and without --fold, and at the offsets that the dashboard offers",
    )
    parser.add_argument(
        "--activations",
        action="store_true",
        help="run the models on text, too, for the CKA of activations (needs transformers)",
    )
    parser.add_argument(
        "--table", metavar="FILE", help="replace the table between the marks of this file"
    )
    parser.add_argument(
        "--ship", action="store_true", help="replace the atlas that ships with the package"
    )


def _run(given: argparse.Namespace) -> int:
    import pandas  # noqa: F401  # imported here, as Ctrl-C must not hit it half imported

    from attnkit.realmodels.atlas import Atlas
    from attnkit.realmodels.shipped import PACKAGES

    _check(given)
    if given.ship and given.sources:
        raise BadInput("--ship: measures what ships and nothing else; leave MODEL out")
    sources = given.sources or (list(PACKAGES) if given.ship else [])
    if not sources:
        raise BadInput("MODEL: none given, allowed one or more; see --help")
    found: list[Atlas] = []
    try:
        with interrupts:
            _measure(sources, given, found)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    if found:
        _save(Atlas.together(found), given, complete=not interrupted)
    return INTERRUPTED if interrupted else 0


def _measure(sources: list[str], given: argparse.Namespace, found: list[Atlas]) -> None:
    """Add each model's atlas when it is finished."""
    from attnkit.realmodels.atlas import Atlas, measure_model
    from attnkit.realmodels.sources import open_model

    settings = _settings(given)
    models = _under_names_of_their_own([open_model(source) for source in sources])
    for source, model in zip(sources, models, strict=True):
        with _Progress(model.name) as progress:
            atlas = measure_model(
                model, settings, portraits=bool(given.portraits or given.ship), progress=progress
            )
        for note in model.notes:
            print(f"{model.name}: {note}", file=sys.stderr)
        if given.activations or given.ship:
            atlas = Atlas(_with_activations(atlas.table, source), atlas.arrays)
        found.append(atlas)


def _under_names_of_their_own(models: list[RealModel]) -> list[RealModel]:
    """Return the models with numbers after names that occur more than once."""
    seen: Counter[str] = Counter()
    out = []
    for model in models:
        seen[model.name] += 1
        n = seen[model.name]
        out.append(model if n == 1 else replace(model, name=f"{model.name} ({n})"))
    return out


def _save(atlas: Atlas, given: argparse.Namespace, *, complete: bool) -> None:
    """Write and print what was asked for; published tables only if no model is missing."""
    from attnkit.realmodels.answer import as_they_stand, summary

    plain = as_they_stand(atlas.table)
    with Saving() as saving:
        if given.out:
            saving.attempt("--out", given.out, lambda: atlas.save(table=Path(given.out)))
        if given.portraits:
            path = Path(given.portraits)
            saving.attempt("--portraits", given.portraits, lambda: atlas.save(portraits=path))
        if complete and given.table:
            table = summary(plain)
            target = Path(given.table)
            saving.attempt(
                "--table", given.table, lambda: write_between_marks(target, "models", table)
            )
        if complete and given.ship:
            saving.attempt("--ship", "the shipped atlas", lambda: _ship(atlas))
        print(summary(atlas.table if plain.empty else plain))


def _with_activations(table: pd.DataFrame, source: str) -> pd.DataFrame:
    from attnkit.realmodels.activations import with_activations

    try:
        return with_activations(table, source)
    except Unreadable as error:
        print(f"not run: {error}", file=sys.stderr)
        return table


def _settings(given: argparse.Namespace) -> tuple[Setting, ...]:
    from attnkit.realmodels.atlas import Setting
    from attnkit.realmodels.shipped import SETTINGS

    if given.every_setting or given.ship:
        return SETTINGS
    if not re.fullmatch(r"-?\d{1,6}", given.offset, re.ASCII):
        got = shown(given.offset, quoted=True)
        raise BadInput(f"--offset: got {got}, allowed a whole number of at most six digits")
    return (Setting(given.fold, int(given.offset)),)


def _check(given: argparse.Namespace) -> None:
    """Check before measuring what will be written after it."""
    for option, ending in (("out", ENDING), ("portraits", ".safetensors")):
        target = getattr(given, option)
        if target is not None and not target.endswith(ending):
            got = given_as(f"--{option}", target)
            raise BadInput(f"{got}, allowed a name that ends in {ending}")
    check_files(given, "out", "portraits", "table")
    if given.table and (given.fold or given.offset != "0"):
        raise BadInput("--table: allowed for models as they stand; leave out --fold and --offset")
    check_table(given.table, "models")


def _ship(atlas: Atlas) -> None:
    from attnkit.foundation.process import prepare_for_training
    from attnkit.realmodels import toys
    from attnkit.realmodels.shipped import PORTRAITS, TABLE

    atlas.save(TABLE, PORTRAITS)
    prepare_for_training()
    toys.measure_toys().to_parquet(toys.FILE, index=False)


class _Progress:
    """Progress bar on standard error that counts layers."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> _Progress:
        from tqdm import tqdm

        self._bar = tqdm(desc=self._name, unit="layer", file=sys.stderr, leave=False)
        return self

    def __call__(self, done: int, of: int) -> None:
        self._bar.total = of
        self._bar.update(done - self._bar.n)

    def __exit__(self, *_: object) -> None:
        self._bar.close()
