"""Result of a sweep: one row per run, in one Parquet file with the specification."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnkit import __version__
from attnkit.foundation.documents import parse_json, read_file
from attnkit.foundation.files import write_file
from attnkit.foundation.settings import Value
from attnkit.sweeps.specification import Sweep
from attnkit.sweeps.values import InvalidSweep
from attnkit.training.maker import versions_of
from attnkit.variants import Variant

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.sweeps.folder import SweepFolder

_METADATA = b"attnkit sweep"


@dataclass(frozen=True, eq=False)
class SweepResult:
    """Specification and finished runs of a sweep.

    Attributes:
        sweep: The sweep.
        runs: One row per run: the values of the axes, `sharing`, `seed`, `learning_rate`, `tried`
            (JSON: learning rate → mean on the tuning seeds), the columns of `Result.table`,
            `seconds` on one core, `engine`, `processor`, `versions`, `cell` (content hash), and
            `error`, the reason why a run could not be trained.
    """

    sweep: Sweep
    runs: pd.DataFrame

    @staticmethod
    def of(sweep: Sweep, rows: pd.DataFrame | None) -> SweepResult:
        """Return the result of the rows of all parts.

        Rows of cells that the sweep does not have are left out. Of several rows of one run, as
        after a retry, one remains, if possible without an error.
        """
        import pandas as pd

        hashes = sweep.cell_hashes()
        points, variants = np.indices(hashes.shape)
        cells = pd.DataFrame({"cell": hashes.astype("U16").ravel(), "point": points.ravel()})
        shape = tuple(len(values) for values in sweep.axes.values())
        positions = np.unravel_index(cells["point"], shape) if shape else ()
        for (name, values), position in zip(sweep.axes.items(), positions, strict=True):
            if name != "learning_rate":  # the rows have it
                cells[name] = pd.Series(values)[position].to_numpy()
        cells["variant"] = variants.ravel()
        if rows is None:
            rows = pd.DataFrame({"cell": [], "sharing": [], "seed": [], "error": []}, dtype=object)
        rows = rows[rows["seed"].isin(list(sweep.seeds))]
        rows = rows.sort_values("error", na_position="first", kind="stable").drop_duplicates(
            ["cell", "seed"]
        )
        runs = cells.merge(rows, on="cell").sort_values(["point", "variant", "seed"])
        columns = [*(n for n in sweep.axes if n != "learning_rate"), "sharing", "seed"]
        others = [n for n in runs.columns if n not in (*columns, "point", "variant", "cell")]
        return SweepResult(sweep, runs[[*columns, *others, "cell"]].reset_index(drop=True))

    @staticmethod
    def read(folder: SweepFolder, sweep: Sweep) -> SweepResult:
        """Read the finished runs of a sweep from its folder.

        Raises:
            InvalidSweep: If a part is damaged.
        """
        return SweepResult.of(sweep, folder.read_parts())

    @property
    def n_missing(self) -> int:
        """Number of runs that are not finished, or have failed."""
        return self.sweep.n_runs - int(self.runs["error"].isna().sum())

    def save(self, file: str | Path) -> None:
        """Write the result as one Parquet file.

        Raises:
            OSError: If the file cannot be written.
        """
        write_file(Path(file), self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the result as the content of a Parquet file, with the sweep in its metadata."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pandas(self.runs, preserve_index=False)
        metadata = {**(table.schema.metadata or {}), _METADATA: self.sweep.to_json().encode()}
        buffer = io.BytesIO()
        pq.write_table(table.replace_schema_metadata(metadata), buffer, compression="zstd")
        return buffer.getvalue()

    @staticmethod
    def load(file: str | Path) -> SweepResult:
        """Read the file that `save` wrote.

        Raises:
            OSError: If the file cannot be read.
            InvalidSweep: If it is not the result of a sweep.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(io.BytesIO(read_file(file)))
            sweep = Sweep(**parse_json(table.schema.metadata[_METADATA]))
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise InvalidSweep(f"{file}: is not the result of a sweep ({error})") from None
        return SweepResult(sweep, table.to_pandas())


def labelled(
    sweep: Sweep, point: Mapping[str, Value], variant: Variant, rows: pd.DataFrame
) -> pd.DataFrame:
    """Return the rows of a cell with its hash and the versions that trained it."""
    return rows.assign(
        cell=sweep.cell_hash(point, variant),
        versions=f"attnkit {__version__}, {versions_of(sweep.engine)}",
    )


def failed_rows(
    sweep: Sweep, point: Mapping[str, Value], variant: Variant, seeds: Iterable[int], reason: str
) -> pd.DataFrame:
    """Return the rows of a cell that cannot be trained, with the reason."""
    import pandas as pd

    rows = pd.DataFrame({"sharing": variant.value, "seed": list(seeds)})
    rate = sweep.settings_at(point)["learning_rate"]
    rows = rows.assign(learning_rate=rate, seconds=0.0, error=" ".join(reason.split()))
    return labelled(sweep, point, variant, rows)
