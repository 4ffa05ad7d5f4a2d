"""The atlas: every head of some models as a row of a table, and a portrait of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from attnkit.foundation.files import replace_file
from attnkit.realmodels.base import AttentionLayer, Projections, RealModel, Unreadable
from attnkit.realmodels.chance import Levels, chance_levels
from attnkit.realmodels.measures import (
    MEASURES,
    PAIRS,
    measure_layer,
    prepared,
)
from attnkit.realmodels.portraits import Portrait, portraits_of

if TYPE_CHECKING:
    import pandas as pd

PLACE = ("model", "kind", "layer", "head")
"""What names a row; whole layers have no head."""

Told = Callable[[int, int], None]
"""Called with the number of layers that are measured, and of all."""


@dataclass(frozen=True)
class Setting:
    """How a layer is prepared before it is measured.

    Attributes:
        fold: the gains of the norm before are multiplied in.
        offset: tokens from the key forward to the query.
    """

    fold: bool = False
    offset: int = 0


@dataclass(frozen=True, eq=False)
class Atlas:
    """Some models' heads.

    Attributes:
        table: a row per head and per whole layer, for every setting; see `measure_model`.
        arrays: what portraits are made of, by "model/kind/layer/folded/name".
    """

    table: pd.DataFrame
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def portrait(
        self, model: str, kind: str, layer: int, head: int, folded: bool = False
    ) -> Portrait | None:
        """One head from close by; None if it was not drawn."""
        names = ("singular", "symmetric", "skew", *PAIRS, "matrix", "shown")
        place = f"{model}/{kind}/{layer}/{int(folded)}"
        if f"{place}/matrix" not in self.arrays:
            return None
        of = {name: self.arrays[f"{place}/{name}"][head].astype(np.float64) for name in names}
        angles = {pair: of[pair] for pair in PAIRS}
        return Portrait(
            of["singular"], of["symmetric"], of["skew"], angles, of["matrix"], float(of["shown"])
        )

    def joined(self, other: Atlas) -> Atlas:
        """Both; a model that both have is the other's."""
        import pandas as pd

        new = set(other.table["model"])
        kept = self.table[~self.table["model"].isin(new)]
        table = pd.concat([kept, other.table], ignore_index=True)
        arrays = {n: a for n, a in self.arrays.items() if n.rsplit("/", 4)[0] not in new}
        return Atlas(table, {**arrays, **other.arrays})

    @staticmethod
    def together(several: Sequence[Atlas]) -> Atlas:
        """All of them; of models of one name the last."""
        first, *others = several
        for other in others:
            first = first.joined(other)
        return first

    def save(self, table: Path | None = None, portraits: Path | None = None) -> None:
        """Write what is named; folders must be there.

        Raises:
            OSError: if that cannot be done.
        """
        if table is not None:
            replace_file(table, lambda path: self.table.to_parquet(path, index=False))
        if portraits is not None:
            replace_file(portraits, lambda path: path.write_bytes(save(self.arrays)))

    @staticmethod
    def load(table: Path, portraits: Path | None = None) -> Atlas:
        """What `save` wrote.

        Raises:
            OSError, Unreadable: if it is not there, or not that.
        """
        import pandas as pd

        try:
            found = pd.read_parquet(table)
            arrays = {}
            if portraits is not None:
                with safe_open(portraits, framework="numpy") as file:
                    arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (ValueError, SafetensorError) as error:
            raise Unreadable(f"{table.name}: not an atlas ({error})") from error
        return Atlas(found, arrays)


def measure_model(
    model: RealModel,
    settings: Sequence[Setting] = (Setting(),),
    *,
    portraits: bool = False,
    progress: Told | None = None,
) -> Atlas:
    """Measure every head and every layer of a model, one layer in memory at a time.

    Args:
        settings: each gives rows of its own; an offset other than 0 only to layers with rotary
            positions. Portraits are drawn at offset 0.

    Returns:
        Rows with the columns `model`, `family`, `format`, `kind`, `layer`, `head` (null on rows of
        whole layers), `kv_head`, `n_heads`, `n_kv_heads`, `d_model`, `d_head`, `folded`, `offset`;
        the names of `MEASURES`; and of each that has a chance level `…_random` and `…_random_sd`:
        mean and standard deviation of random matrices of the same shape. NaN where a measure is
        not defined.

    Raises:
        Unreadable: if a layer cannot be read, or there is nothing to measure at these settings.
    """
    rows: list[dict[str, object]] = []
    arrays: dict[str, np.ndarray] = {}
    for done, layer in enumerate(model.layers, 1):
        as_read = layer.read()
        chance = {fold: chance_levels(as_read, fold=fold) for fold in {s.fold for s in settings}}
        for setting in settings:
            if setting.offset and as_read.rope is None:
                continue
            one = prepared(as_read, fold=setting.fold, offset=setting.offset)
            rows += _rows(model, layer, one, setting, chance[setting.fold])
            if portraits and not setting.offset:
                place = f"{model.name}/{layer.kind}/{layer.index}/{int(setting.fold)}"
                arrays |= {f"{place}/{name}": array for name, array in _arrays(one).items()}
        if progress is not None:
            progress(done, len(model.layers))
    if not rows:
        raise Unreadable(
            f"{model.name}: no layer has rotary positions, so the only offset there is is 0"
        )
    return Atlas(_table(rows), arrays)


def _rows(
    model: RealModel,
    layer: AttentionLayer,
    one: Projections,
    setting: Setting,
    levels: tuple[Levels, Levels],
) -> Iterable[dict[str, object]]:
    measured = measure_layer(one)
    n_heads, d_model, d_head = one.W_Q.shape
    n_kv_heads = len(one.W_K)
    of_layer: dict[str, object] = {
        "model": model.name,
        "family": model.family,
        "format": model.format,
        "kind": str(layer.kind),
        "layer": layer.index,
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "d_model": d_model,
        "d_head": d_head,
        "folded": setting.fold,
        "offset": setting.offset,
    }
    chance = [_chance(level) for level in levels]
    for head in range(n_heads):
        values = {name: of[head] for name, of in measured.heads.items()}
        places = {"head": head, "kv_head": head // (n_heads // n_kv_heads)}
        yield {**of_layer, **places, **values, **chance[0]}
    yield {**of_layer, "head": None, "kv_head": None, **measured.whole, **chance[1]}


def _chance(level: dict[str, tuple[float, float]]) -> dict[str, object]:
    means = {f"{name}_random": mean for name, (mean, _) in level.items()}
    return {**means, **{f"{name}_random_sd": sd for name, (_, sd) in level.items()}}


def _arrays(layer: Projections) -> dict[str, np.ndarray]:
    """The portraits of a layer's heads, stacked."""
    drawn = portraits_of(layer)
    if drawn is None:
        return {}
    found = {
        name: np.stack([getattr(one, name) for one in drawn])
        for name in ("singular", "symmetric", "skew", "matrix")
    }
    found |= {pair: np.stack([one.angles[pair] for one in drawn]) for pair in PAIRS}
    found["shown"] = np.array([one.shown for one in drawn])
    return {name: array.astype(_PRECISIONS.get(name, np.float32)) for name, array in found.items()}


_PRECISIONS = dict.fromkeys((*PAIRS, "shown"), np.float16)
"""Half is enough for a drawing of what is at most 1."""


def _table(rows: list[dict[str, object]]) -> pd.DataFrame:
    import pandas as pd

    table = pd.DataFrame(rows)
    levels = [f"{name}_{what}" for name in MEASURES for what in ("random", "random_sd")]
    for name in MEASURES:
        if name not in table:
            table[name] = np.nan
    table = table.astype({"head": "Int64", "kv_head": "Int64"})
    first = [
        *("model", "family", "format", "kind", "layer", "head", "kv_head"),
        *("n_heads", "n_kv_heads", "d_model", "d_head", "folded", "offset"),
    ]
    numbers = [*MEASURES, *(name for name in levels if name in table)]
    return table[[*first, *numbers]].astype(dict.fromkeys(numbers, np.float32))
