"""Runs of a sweep: a folder with one Parquet part per finished chunk, and all of them together.

The address of a folder is a path or a URL that fsspec knows. Workers write their parts themselves,
so a folder on another machine must be reachable from all of them. A part is written under a
temporary name and then renamed: a part that is there is complete. The result of a sweep is one
Parquet file, which holds the specification in its metadata; some come with the package.
"""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec

from attnkit import __version__
from attnkit.foundation.documents import MOST_BYTES, parse_json, read_file
from attnkit.foundation.files import write_file
from attnkit.foundation.settings import Value
from attnkit.sweeps.specification import InvalidSweep, Sweep
from attnkit.training.maker import versions_of
from attnkit.variants import Variant

if TYPE_CHECKING:
    import pandas as pd

_METADATA = b"attnkit sweep"

FOLDER = Path(__file__).parent / "shipped"

SHIPPED = {
    "width_tuned": "Phone book: head width and entries, tuned",
    "width": "Phone book: head width and entries, as in the Lab",
    "direction": "Directed relation (who reports to whom): heads, head width, layers",
    "relations": "Directed relations held in the weights: head width, heads, names",
    "catalogue": "Phone book of 16 entries: 41 variants by head width",
    "sort_steps": "Sort: steps, at twice the learning rate",
}
"""Title of every shipped sweep, by the name of its file and of its specification."""


class SweepFolder:
    """Folder of a sweep.

    Args:
        address: Path, or URL that fsspec knows, such as "s3://bucket/folder".

    Raises:
        InvalidSweep: If the address cannot be used.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            # An absolute path, as workers have working folders of their own.
            self._files, self._path = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError) as error:
            reason = f"which cannot be used: {error}"
            raise InvalidSweep(f"out: got {address!r}, {reason}") from None
        self._path = self._path.rstrip("/")

    def read_specification(self) -> Sweep | None:
        """Return the sweep whose parts the folder holds; None if it holds none.

        Raises:
            InvalidSweep: If the file of the specification is damaged.
        """
        path = f"{self._path}/sweep.json"
        if not self._files.exists(path):
            return None
        try:
            return Sweep(**parse_json(self._files.cat_file(path, 0, MOST_BYTES + 1)))
        except (OSError, ValueError, TypeError) as error:
            raise InvalidSweep(f"out: {path} is not the file of a sweep ({error})") from None

    def write_specification(self, sweep: Sweep) -> None:
        """Write the specification, and make the folder of the parts."""
        self._files.makedirs(f"{self._path}/parts", exist_ok=True)
        self._write("sweep.json", (sweep.to_json() + "\n").encode())

    def write_part(self, rows: pd.DataFrame) -> None:
        """Write the rows of a chunk as one Parquet file, and replace one of the same runs.

        The name is a hash of the runs' cells and seeds: a place in the grid would name other cells
        after an axis has changed.
        """
        runs = rows[["cell", "seed"]].to_numpy().tolist()
        name = hashlib.blake2b(repr(runs).encode(), digest_size=12).hexdigest()
        content = rows.to_parquet(index=False, compression="zstd")
        self._write(f"parts/{name}.parquet", content)

    def write_result(self, result: SweepResult) -> None:
        """Write all runs as one Parquet file, `runs.parquet`, which `SweepResult.load` reads."""
        self._write("runs.parquet", result.to_bytes())

    def _write(self, name: str, content: bytes) -> None:
        parent, _, last = f"{self._path}/{name}".rpartition("/")
        temporary = f"{parent}/.{last}.{uuid.uuid4().hex}"
        self._files.pipe_file(temporary, content)
        self._files.mv(temporary, f"{parent}/{last}")

    def read_parts(self, columns: list[str] | None = None) -> pd.DataFrame | None:
        """Return the rows of all parts, with some or all columns; None if there are no parts.

        Raises:
            InvalidSweep: If a part is damaged. The message names it.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder, tables = f"{self._path}/parts", []
        self._files.invalidate_cache()
        names = self._files.ls(folder, detail=False) if self._files.exists(folder) else []
        for path in sorted(name for name in names if name.endswith(".parquet")):
            try:
                with self._files.open(path, "rb") as file:
                    tables.append(pq.read_table(file, columns=columns))
            except (pa.ArrowException, OSError) as error:
                reason = str(error).splitlines()[0]
                raise InvalidSweep(
                    f"out: {path} is damaged ({reason}); delete it, and `resume` repeats its runs"
                ) from None
        whole = pa.concat_tables(tables, promote_options="permissive") if tables else None
        return None if whole is None else whole.to_pandas()


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

        names = [name for name in sweep.axes if name != "learning_rate"]  # the rows have that
        values = [*sweep.axes.values(), [variant.value for variant in sweep.sharing]]
        cells = pd.MultiIndex.from_product(values, names=[*sweep.axes, "sharing"])
        hashes = sweep.cell_hashes().astype("U16").ravel()
        places = cells.to_frame(index=False)[names].assign(cell=hashes, place=range(len(hashes)))
        if rows is None:
            rows = pd.DataFrame({"cell": [], "sharing": [], "seed": [], "error": []}, dtype=object)
        rows = rows[rows["seed"].isin(list(sweep.seeds))]
        rows = rows.sort_values("error", na_position="first", kind="stable").drop_duplicates(
            ["cell", "seed"]
        )
        runs = places.merge(rows, on="cell").sort_values(["place", "seed"])
        first = [*names, "sharing", "seed"]
        others = [name for name in rows.columns if name not in (*first, "cell")]
        return SweepResult(sweep, runs[[*first, *others, "cell"]].reset_index(drop=True))

    @staticmethod
    def read(folder: SweepFolder, sweep: Sweep) -> SweepResult:
        """Read the finished runs of a sweep from its folder.

        Raises:
            InvalidSweep: If a part is damaged.
        """
        try:
            return SweepResult.of(sweep, folder.read_parts())
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidSweep):
                raise
            reason = f"a part in {folder.address}/parts has other columns than those of a sweep"
            raise InvalidSweep(f"out: {reason} ({error}); delete it") from None

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


def labelled(sweep: Sweep, point: Mapping[str, Value], rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of runs at a point with the hashes of their cells and what trained them."""
    names = rows["sharing"].unique()
    hashes = dict(zip(names, sweep.hashes_at(point, names), strict=True))
    versions = f"attnkit {__version__}, {versions_of(sweep.engine)}"
    return rows.assign(cell=rows["sharing"].map(hashes), versions=versions)


def failed_rows(
    sweep: Sweep, point: Mapping[str, Value], variant: Variant, seeds: Iterable[int], reason: str
) -> pd.DataFrame:
    """Return the rows of a cell that cannot be trained, with the reason."""
    import pandas as pd

    rows = pd.DataFrame({"sharing": variant.value, "seed": list(seeds)})
    rate = sweep.settings_at(point)["learning_rate"]
    rows = rows.assign(learning_rate=rate, seconds=0.0, error=" ".join(reason.split()))
    return labelled(sweep, point, rows)


@cache
def load_shipped(name: str) -> SweepResult:
    """Return a shipped sweep by its name in `SHIPPED`; errors are those of `SweepResult.load`."""
    return SweepResult.load(FOLDER / f"{name}.parquet")
