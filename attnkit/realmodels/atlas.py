"""Table of the measures of every head of some models, with drawing data of each head."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from attnkit.foundation.display import Plotted
from attnkit.foundation.documents import read_file
from attnkit.foundation.files import write_file
from attnkit.foundation.settings import shown
from attnkit.realmodels import notes
from attnkit.realmodels.base import (
    TRAINED_HERE,
    AttentionLayer,
    Projections,
    RealModel,
)
from attnkit.realmodels.chance import Levels, chance_levels
from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.kept_layers import KeptLayers
from attnkit.realmodels.measures import MEASURES, PAIRS, WITH_VALUES, measure_layer, prepared
from attnkit.realmodels.portraits import Portrait, portraits_of

if TYPE_CHECKING:
    import pandas as pd

PLACE = ("model", "kind", "layer", "head")
"""Columns that identify a head; rows of whole layers have no head."""

KV_PLACE = ["model", "kind", "kv_layer", "kv_head"]
"""Columns that identify a key and value head, which several heads, and layers, may share."""

K_IS_V, Q_IS_K = "K=V", "Q=K"
"""Values of the column `tied` in layers in which one matrix serves as W_K and as W_V, or as W_Q and
as W_K."""

Progress = Callable[[int, int], None]
"""Function called with the number of measured layers and the number of all layers."""


@dataclass(frozen=True)
class Setting:
    """Preparation of a layer before it is measured; see `attnkit.realmodels.measures.prepared`.

    Attributes:
        fold: Whether the gains of the norm before attention are multiplied into the matrices.
        offset: Number of tokens from the key position forward to the query position.
    """

    fold: bool = False
    offset: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredHead(Plotted):
    """Measures of one head beside random levels, and its portrait.

    Attributes:
        row: Row of the head in the table of its atlas.
        same_kind: Rows of all heads of the same kind in the same model, with the same setting.
        portrait: Drawing data; None if the atlas has none of this head.
    """

    row: pd.Series
    same_kind: pd.DataFrame
    portrait: Portrait | None

    def __repr__(self) -> str:
        """Return the place of the head; the numbers would fill a screen."""
        return f"<Head of {self.in_words}>"

    @property
    def in_words(self) -> str:
        """Place of the head; layers and heads count from 0."""
        model, kind, layer, head = (self.row[name] for name in PLACE)
        return f"{model}, {kind}, layer {layer}, head {head}"


@dataclass(frozen=True, eq=False, repr=False)
class Atlas(Plotted):
    """Measures and portraits of the heads of some models.

    Attributes:
        table: A row per head and per whole layer, for every setting; see `measure_model`.
        arrays: Values of the portraits of a layer's heads, by "model/kind/layer/folded/name".
    """

    table: pd.DataFrame
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a short description; the arrays would fill many screens."""
        return f"<Atlas of {', '.join(map(str, self.table['model'].unique()))}>"

    def head(
        self,
        model: str,
        kind: str,
        layer: int,
        head: int,
        *,
        folded: bool = False,
        offset: int = 0,
    ) -> MeasuredHead:
        """Return one head, which shows itself in a notebook.

        Args:
            model: Name of the model in the table.
            kind: Kind of the layer: "encoder", "causal" or "cross".
            layer: Index of the layer.
            head: Index of the head.
            folded: Whether the gains of the norm were folded in; see `Setting`.
            offset: Distance in tokens; see `Setting`.

        Raises:
            ValueError: If the table has no such head; the message names the wrong field.
        """
        rows = self.table[self.table["head"].notna()]
        wanted = {"model": model, "kind": kind, "folded": folded, "offset": offset}
        same_kind = rows
        for name, value in wanted.items():
            same_kind = _rows_with(same_kind, name, value)
        row = _rows_with(_rows_with(same_kind, "layer", layer), "head", head).iloc[0]
        return MeasuredHead(row, same_kind, self.portrait(model, kind, layer, head, folded))

    def portrait(
        self, model: str, kind: str, layer: int, head: int, folded: bool = False
    ) -> Portrait | None:
        """Return the portrait of one head; None if the atlas has no portraits of its layer."""
        names = ("singular", "symmetric", "skew", *PAIRS, "matrix", "shown")
        prefix = f"{model}/{kind}/{layer}/{int(folded)}"
        if f"{prefix}/matrix" not in self.arrays:
            return None
        values = {name: self.arrays[f"{prefix}/{name}"][head].astype(np.float64) for name in names}
        return Portrait(
            values["singular"],
            values["symmetric"],
            values["skew"],
            {pair: values[pair] for pair in PAIRS},
            values["matrix"],
            float(values["shown"]),
        )

    def joined(self, other: Atlas) -> Atlas:
        """Return the models of both; if both have a model of one name, take the other's."""
        import pandas as pd

        replaced = set(other.table["model"])
        rows = self.table[~self.table["model"].isin(replaced)]
        table = pd.concat([rows, other.table], ignore_index=True)
        arrays = {
            name: array
            for name, array in self.arrays.items()
            if name.rsplit("/", 4)[0] not in replaced
        }
        return Atlas(table, {**arrays, **other.arrays})

    @staticmethod
    def together(atlases: Sequence[Atlas]) -> Atlas:
        """Return the models of one or more atlases; of models of one name, take the last."""
        return reduce(Atlas.joined, atlases)

    def save(self, table: Path | None = None, portraits: Path | None = None) -> None:
        """Write the table as Parquet and the portraits as safetensors, each where it has a path.

        Raises:
            OSError: If a file cannot be written, for example because its folder does not exist.
        """
        if table is not None:
            write_file(table, self.table.to_parquet(index=False))
        if portraits is not None:
            write_file(portraits, save(self.arrays))

    @staticmethod
    def load(table: Path, portraits: Path | None = None) -> Atlas:
        """Read what `save` has written.

        Raises:
            OSError: If a file does not exist or cannot be read.
            Unreadable: If a file is damaged or has another format.
        """
        import pandas as pd

        try:
            rows = pd.read_parquet(io.BytesIO(read_file(table)))
            arrays = {}
            if portraits is not None:
                with safe_open(portraits, framework="numpy") as file:
                    arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (ValueError, SafetensorError) as error:
            raise Unreadable(f"{table.name}: not an atlas ({error})") from error
        return Atlas(rows, arrays)


def measure_model(
    model: RealModel,
    settings: Sequence[Setting] = (Setting(),),
    *,
    portraits: bool = False,
    progress: Progress | None = None,
    kept: Path | None = None,
) -> Atlas:
    """Measure every head and every layer of a model, one layer in memory at a time.

    Args:
        model: The model.
        settings: Preparations of the layers; each gives rows of its own. An offset other than 0
            applies only to layers with rotary positions.
        portraits: Whether to return the drawing data of heads, too, at offset 0.
        progress: Function to call after each layer.
        kept: Folder in which finished layers are kept until all are, so that a measurement that
            was stopped goes on; None to keep nothing.

    Returns:
        Rows with the columns `model`, `family`, `format`, `kind`, `layer`, `head` (null on rows of
        whole layers), `kv_layer` (the layer whose keys and values are used), `kv_head`, `n_heads`,
        `n_kv_heads`, `d_model`, `d_head`, `tied`, `folded`, `offset`, and the names of `MEASURES`.
        Most measures have columns `…_random` and `…_random_sd`, too: mean and standard deviation
        for random matrices of the same shape. NaN where a measure is not defined. `tied` is "K=V"
        where one matrix serves as W_K and as W_V, "Q=K" where one serves as W_Q and as W_K, and ""
        elsewhere. Comparisons with W_V are NaN where it is "K=V", except in models that attnkit
        has trained, which show what tied matrices give.

    Raises:
        Unreadable: If a layer cannot be read, or if all offsets differ from 0 and no layer has
            rotary positions.
    """
    rows: list[dict[str, object]] = []
    arrays: dict[str, np.ndarray] = {}
    finished = None if kept is None else KeptLayers(kept, (*settings, portraits, *MEASURES))
    for n_measured, layer in enumerate(model.layers, 1):
        as_read, place = layer.read(), f"{model.name} {layer.kind} {layer.index}"
        found = None if finished is None else finished.find(place, as_read)
        if found is None:
            found = _measured(model, layer, as_read, settings, portraits=portraits)
            if finished is not None:
                finished.keep(place, as_read, *found)
        rows += found[0]
        arrays |= found[1]
        if progress is not None:
            progress(n_measured, len(model.layers))
    if not rows:
        raise Unreadable(
            f"{model.name}: no layer has rotary positions; the only allowed offset is 0"
        )
    atlas = Atlas(_table(rows), arrays)
    if finished is not None:
        finished.remove()
    return atlas


def _measured(
    model: RealModel,
    layer: AttentionLayer,
    as_read: Projections,
    settings: Sequence[Setting],
    *,
    portraits: bool,
) -> tuple[list[dict[str, object]], dict[str, np.ndarray]]:
    """Return the rows of one layer for all settings, and its drawing data."""
    rows: list[dict[str, object]] = []
    arrays: dict[str, np.ndarray] = {}
    tied = "" if model.format == TRAINED_HERE else as_read.tied
    levels = {fold: chance_levels(as_read, fold=fold) for fold in {s.fold for s in settings}}
    for setting in settings:
        if setting.offset and as_read.rope is None:
            continue
        weights = prepared(as_read, fold=setting.fold, offset=setting.offset)
        rows += _rows(model, layer, weights, setting, levels[setting.fold], tied)
        if portraits and not setting.offset:
            prefix = f"{model.name}/{layer.kind}/{layer.index}/{int(setting.fold)}"
            arrays |= {f"{prefix}/{name}": array for name, array in _arrays(weights).items()}
    return rows, arrays


def notes_on(table: pd.DataFrame) -> tuple[str, ...]:
    """Return notes on a model's numbers that only its weights show, not its configuration."""
    heads = table[table["head"].notna()]
    is_large = heads[[f"norm_{role}" for role in "qkv"]].isna().any(axis=1)
    is_zero = heads[[f"rank_{role}" for role in ("q", "k", "v", "qk")]].isna().any(axis=1)
    found = [notes.K_IS_V] if (table["tied"] == K_IS_V).any() else []
    for rows, note in ((is_large, notes.large), (is_zero & ~is_large, notes.zero)):
        if rows.any():
            places = heads.loc[rows, list(PLACE)].drop_duplicates()
            _, kind, layer, head = places.iloc[0]
            n_heads = len(heads[list(PLACE)].drop_duplicates())
            found.append(
                note(f"{len(places):,} of {n_heads:,}", f"{kind} layer {layer}, head {head}")
            )
    return tuple(found)


def _rows(
    model: RealModel,
    layer: AttentionLayer,
    weights: Projections,
    setting: Setting,
    levels: tuple[Levels, Levels],
    tied: str,
) -> Iterable[dict[str, object]]:
    measured = measure_layer(weights)
    n_heads, d_model, d_head = weights.W_Q.shape
    n_kv_heads = len(weights.W_K)
    shared_columns: dict[str, object] = {
        "model": model.name,
        "family": model.family,
        "format": model.format,
        "kind": str(layer.kind),
        "layer": layer.index,
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "d_model": d_model,
        "d_head": d_head,
        "kv_layer": layer.index if layer.kv_index is None else layer.kv_index,
        "tied": tied,
        "folded": setting.fold,
        "offset": setting.offset,
    }
    head_levels, layer_levels = (_random_columns(level) for level in levels)
    for head in range(n_heads):
        values = {name: of_heads[head] for name, of_heads in measured.heads.items()}
        indices = {"head": head, "kv_head": head // (n_heads // n_kv_heads)}
        yield {**shared_columns, **indices, **values, **head_levels}
    yield {**shared_columns, "head": None, "kv_head": None, **measured.whole, **layer_levels}


def _random_columns(levels: Levels) -> dict[str, object]:
    means = {f"{name}_random": mean for name, (mean, _) in levels.items()}
    return {**means, **{f"{name}_random_sd": sd for name, (_, sd) in levels.items()}}


def _arrays(layer: Projections) -> dict[str, np.ndarray]:
    """Return the portraits of a layer's heads, stacked by attribute; none if they overflow."""
    portraits = portraits_of(layer)
    if portraits is None:
        return {}
    arrays = {
        name: np.stack([getattr(portrait, name) for portrait in portraits])
        for name in ("singular", "symmetric", "skew", "matrix")
    }
    arrays |= {pair: np.stack([portrait.angles[pair] for portrait in portraits]) for pair in PAIRS}
    arrays["shown"] = np.array([portrait.shown for portrait in portraits])
    with np.errstate(over="ignore"):
        stored = {
            name: array.astype(_PRECISIONS.get(name, np.float32)) for name, array in arrays.items()
        }
    return {} if any(np.isinf(array).any() for array in stored.values()) else stored


_PRECISIONS = dict.fromkeys((*PAIRS, "shown"), np.float16)
"""Half precision is enough to draw values of at most 1."""


def _rows_with(rows: pd.DataFrame, name: str, value: object) -> pd.DataFrame:
    """Return the rows with a value in a column.

    Raises:
        ValueError: If there are none.
    """
    found = rows[rows[name] == value]
    if found.empty:
        values = sorted(rows[name].unique())
        numbers = len(values) > 3 and isinstance(values[0], int | np.integer)
        allowed = f"{values[0]} to {values[-1]}" if numbers else ", ".join(map(str, values))
        raise ValueError(f"{name}: got {shown(value, quoted=True)}, allowed {allowed or 'nothing'}")
    return found


def _table(rows: list[dict[str, object]]) -> pd.DataFrame:
    import pandas as pd

    table = pd.DataFrame(rows)
    levels = [f"{name}_{suffix}" for name in MEASURES for suffix in ("random", "random_sd")]
    for name in MEASURES:
        if name not in table:
            table[name] = np.nan
    table = table.astype({"head": "Int64", "kv_head": "Int64"})
    descriptions = [
        *("model", "family", "format", "kind", "layer", "head", "kv_layer", "kv_head"),
        *("n_heads", "n_kv_heads", "d_model", "d_head", "tied", "folded", "offset"),
    ]
    numbers = [*MEASURES, *(name for name in levels if name in table)]
    with np.errstate(over="ignore"):  # what single precision cannot hold is left out
        table = table[[*descriptions, *numbers]].astype(dict.fromkeys(numbers, np.float32))
    table[numbers] = table[numbers].replace([np.inf, -np.inf], np.nan)
    left_out = [n for n in numbers if n.removesuffix("_sd").removesuffix("_random") in WITH_VALUES]
    table.loc[table["tied"] == K_IS_V, left_out] = np.nan
    of_one_place = [name for name in numbers if name.startswith("tie_qk")]
    table.loc[table["offset"] != 0, of_one_place] = np.nan  # positions make W Wᵀ another matrix
    return table
