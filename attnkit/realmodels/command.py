"""`python -m attnkit models`: measure trained models, head by head."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.readme import split_readme, write_part
from attnkit.realmodels.base import Unreadable

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.realmodels.atlas import Atlas, Setting

ENDING = ".parquet"

_FARTHEST = 1_000_000


def add_models(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.set_defaults(run=_models)
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
    parser.add_argument("--readme", metavar="FILE", help="write the table into this file, too")
    parser.add_argument(
        "--ship", action="store_true", help="replace the atlas that ships with the package"
    )


def _models(given: argparse.Namespace) -> int:
    from attnkit.realmodels.shipped import PACKAGES

    _check_targets(given)
    sources = given.sources or (list(PACKAGES) if given.ship else [])
    if not sources:
        raise Unreadable("MODEL: none given, allowed one or more; see --help")
    atlas = _measured(sources, given)
    as_they_stand = atlas.table[~atlas.table["folded"] & (atlas.table["offset"] == 0)]
    print(summary(atlas.table if as_they_stand.empty else as_they_stand))
    try:
        if given.readme:
            write_part(Path(given.readme), "models", summary(as_they_stand))
        atlas.save(
            Path(given.out) if given.out else None,
            Path(given.portraits) if given.portraits else None,
        )
        if given.ship:
            _ship(atlas)
    except OSError as error:
        raise Unreadable(f"{error.filename}: {error.strerror}") from None
    return 0


def _measured(sources: list[str], given: argparse.Namespace) -> Atlas:
    from attnkit.realmodels.atlas import Atlas, measure_model
    from attnkit.realmodels.sources import open_model

    found: Atlas | None = None
    models = [open_model(source) for source in sources]
    for source, model in zip(sources, models, strict=True):
        with _Progress(model.name) as progress:
            atlas = measure_model(
                model,
                _settings(given),
                portraits=bool(given.portraits or given.ship),
                progress=progress,
            )
        for note in model.notes:
            print(f"{model.name}: {note}", file=sys.stderr)
        if given.activations or given.ship:
            atlas = Atlas(_with_activations(atlas.table, source), atlas.arrays)
        found = atlas if found is None else found.joined(atlas)
    assert found is not None
    return found


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
    offset = given.offset.removeprefix("-")
    if not (offset.isdecimal() and offset.isascii() and int(offset) <= _FARTHEST):
        raise Unreadable(
            f"--offset: got {given.offset!r}, allowed a whole number up to {_FARTHEST}"
        )
    return (Setting(given.fold, int(given.offset)),)


def _check_targets(given: argparse.Namespace) -> None:
    """Find out before measuring what could not be written after it."""
    for option, ending in (("out", ENDING), ("portraits", ".safetensors")):
        target = getattr(given, option)
        if target is None:
            continue
        if not target.endswith(ending):
            raise Unreadable(f"--{option}: got {target!r}, allowed a name that ends in {ending}")
        if not Path(target).absolute().parent.is_dir():
            raise Unreadable(f"--{option}: the folder of {target} does not exist")
        if Path(target).is_dir():
            raise Unreadable(f"--{option}: {target} is a folder, allowed a file")
    if given.readme:
        try:
            split_readme(Path(given.readme), "models")
        except ValueError as error:
            raise Unreadable(f"--readme: {error}") from None
        except OSError as error:
            raise Unreadable(f"--readme: {error.filename}: {error.strerror}") from None


def _ship(atlas: Atlas) -> None:
    from attnkit.process import prepare_for_training
    from attnkit.realmodels import toys
    from attnkit.realmodels.shipped import PORTRAITS, TABLE

    atlas.save(TABLE, PORTRAITS)
    prepare_for_training()
    toys.measure_toys().to_parquet(toys.FILE, index=False)


def summary(table: pd.DataFrame) -> str:
    """A table per model and kind, as in the project's notes: means, ranges, and chance."""
    lines = [
        "| model, kind (heads) | cosine Q,K mean [range] | mean size of cosine Q,V; K,V "
        "| overlap QK/QV/KV (chance) | symmetry of heads mean [range] "
        "| symmetry of layers median [range] |",
        "|---|---|---|---|---|---|",
    ]
    for (model, kind, folded, offset), rows in table.groupby(
        ["model", "kind", "folded", "offset"], sort=False
    ):
        heads, layers = rows[rows["head"].notna()], rows[rows["head"].isna()]
        named = f"{model} {kind}" + (" folded" if folded else "")
        named += f" offset {offset}" if offset else ""
        overlaps = "/".join(f"{heads[f'overlap_{pair}'].mean():.3f}" for pair in ("qk", "qv", "kv"))
        lines.append(
            f"| {named} ({len(heads)}) | {_mean(heads['cos_qk'])} "
            f"| {heads['cos_qv'].abs().mean():.3f}; {heads['cos_kv'].abs().mean():.3f} "
            f"| {overlaps} ({heads['overlap_qk_random'].mean():.3f}) "
            f"| {_mean(heads['symmetry'])} "
            f"| {layers['symmetry'].median():.2f} {_range(layers['symmetry'])} |"
        )
    return "\n".join(lines)


def _mean(values: pd.Series[float]) -> str:
    return f"{values.mean():+.3f} {_range(values)}"


def _range(values: pd.Series[float]) -> str:
    return f"[{values.min():.2f}, {values.max():.2f}]"


class _Progress:
    """A bar of layers on standard error."""

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
