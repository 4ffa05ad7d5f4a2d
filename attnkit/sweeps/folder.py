"""The folder of a sweep: its specification and one Parquet part per finished chunk.

The address is a path or a URL that fsspec knows. Workers write their parts themselves, so a
folder on another machine must be reachable from all of them. A part is written under a temporary
name and then renamed: a part that is there is complete.
"""

from __future__ import annotations

import hashlib
import io
import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import fsspec

from attnkit.foundation.documents import MOST_BYTES, BadDocument, parse_json
from attnkit.sweeps.specification import Sweep
from attnkit.sweeps.values import InvalidSweep

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.sweeps.result import SweepResult

_SPECIFICATION, _PARTS = "sweep.json", "parts"


@dataclass(frozen=True)
class SweepFolder:
    """Folder of a sweep.

    Args:
        address: Path, or URL that fsspec knows, such as "s3://bucket/folder".
    """

    address: str

    @cached_property
    def _place(self) -> tuple[Any, str]:
        try:
            files, path = fsspec.core.url_to_fs(self.address)
        except (ImportError, ValueError) as error:
            reason = f"which cannot be used: {error}"
            raise InvalidSweep(f"out: got {self.address!r}, {reason}") from None
        return files, str(path)

    def _path(self, *names: str) -> str:
        return "/".join((self._place[1].rstrip("/"), *names))

    def __getstate__(self) -> dict[str, str]:
        files, path = self._place  # absolute, as workers have working folders of their own
        return {"address": files.unstrip_protocol(path)}

    def read_specification(self) -> Sweep | None:
        """Return the sweep whose parts the folder holds; None if it holds none.

        Raises:
            InvalidSweep: If the file of the specification is damaged.
        """
        files = self._place[0]
        path = self._path(_SPECIFICATION)
        if not files.exists(path):
            return None
        try:
            return Sweep(**parse_json(self._content(path)))
        except (OSError, ValueError, TypeError) as error:
            raise InvalidSweep(f"out: {path} is not the file of a sweep ({error})") from None

    def _content(self, path: str) -> bytes:
        """Return the content of a small file."""
        files = self._place[0]
        if not files.isfile(path):  # opening a pipe would wait for ever
            raise BadDocument("it is a folder, a pipe or a device, allowed a file")
        content: bytes = files.cat_file(path, 0, MOST_BYTES + 1)
        return content

    def write_specification(self, sweep: Sweep) -> None:
        """Write the specification, and make the folder of the parts."""
        self._place[0].makedirs(self._path(_PARTS), exist_ok=True)
        self._write(self._path(_SPECIFICATION), (sweep.to_json() + "\n").encode())

    def write_part(self, rows: pd.DataFrame) -> None:
        """Write the rows of a chunk as one Parquet file, and replace one of the same runs.

        The name is a hash of the runs' cells and seeds: a place in the grid would name other cells
        after an axis has changed.

        Args:
            rows: One row per run.
        """
        runs = rows[["cell", "seed"]].to_numpy().tolist()
        name = hashlib.blake2b(repr(runs).encode(), digest_size=12).hexdigest()
        buffer = io.BytesIO()
        rows.to_parquet(buffer, index=False, compression="zstd")
        self._write(self._path(_PARTS, f"{name}.parquet"), buffer.getvalue())

    def write_result(self, result: SweepResult) -> None:
        """Write all runs as one Parquet file, `runs.parquet`, which `SweepResult.load` reads."""
        self._write(self._path("runs.parquet"), result.to_bytes())

    def _write(self, path: str, content: bytes) -> None:
        files = self._place[0]
        parent, _, name = path.rpartition("/")
        temporary = f"{parent}/.{name}.{uuid.uuid4().hex}"
        files.pipe_file(temporary, content)
        files.mv(temporary, path)

    def part_paths(self) -> list[str]:
        """Return the paths of all complete parts, sorted."""
        files, parts = self._place[0], self._path(_PARTS)
        if not files.exists(parts):
            return []
        files.invalidate_cache()
        names = (str(path) for path in files.ls(parts, detail=False))
        return sorted(
            p for p in names if p.endswith(".parquet") and not p.rpartition("/")[2].startswith(".")
        )

    def n_bytes(self) -> int:
        """Return the size of all complete parts."""
        return sum(int(self._place[0].size(path)) for path in self.part_paths())

    def read_parts(self, columns: list[str] | None = None) -> pd.DataFrame | None:
        """Return the rows of all parts, with some or all columns; None if there are no parts.

        Raises:
            InvalidSweep: If a part is damaged. The message names it.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables = []
        for path in self.part_paths():
            try:
                if not self._place[0].isfile(path):
                    raise BadDocument("it is a folder, a pipe or a device")
                with self._place[0].open(path, "rb") as file:
                    _check_columns(pq.read_schema(file))
                    tables.append(pq.read_table(file, columns=columns))
            except (pa.ArrowException, OSError, BadDocument) as error:
                reason = str(error).splitlines()[0]
                raise InvalidSweep(
                    f"out: {path} is damaged ({reason}); delete it, and `resume` repeats its runs"
                ) from None
        return (
            pa.concat_tables(tables, promote_options="permissive").to_pandas() if tables else None
        )


def _check_columns(schema: Any) -> None:
    """Raise BadDocument unless a table has the columns by which its runs are found."""
    import pyarrow.types as types

    texts = (types.is_string, types.is_large_string, types.is_null)
    kinds = {"cell": texts, "sharing": texts, "seed": (types.is_integer,), "error": texts}
    for name, allowed in kinds.items():
        column = schema.field(name).type if name in schema.names else None
        if column is None or not any(is_kind(column) for is_kind in allowed):
            kind = "texts" if allowed is texts else "whole numbers"
            raise BadDocument(f"its column {name!r} is {column or 'missing'}, allowed {kind}")
