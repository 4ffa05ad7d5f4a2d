"""Files with a table or a text: CSV, TSV, JSON lines, Parquet and TXT, read within limits."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from attnkit.foundation.documents import BadDocument, parse_json, read_file, text_of
from attnkit.foundation.settings import allowed_names, shown
from attnkit.foundation.words import listed

MOST_BYTES = 2_000_000
"""Largest size of a file with data, and of the texts in it."""

MOST_ROWS = 20_000
"""Largest number of rows of a table."""

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
"""Endings of files that hold a table."""

TEXT = ".txt"
"""Ending of files that hold a text."""

HEADINGS = (("key", "value"), ("who", "relation", "whom"))
"""Names of the columns of a table of pairs, and of a table of relations."""

Row = tuple[Any, ...]

_FEWEST, _MOST = len(HEADINGS[0]), len(HEADINGS[1])
_LONGEST_LINE = 20_000

MOST_NAMED = 100
"""Largest number of columns that are offered for a choice."""

_LOOKED_AT = 100
"""Number of lines, the first ones, that decide how a table is separated."""

_MOSTLY = 0.8
"""Smallest share of these lines that have as many separators as most if a text is a table."""

_QUOTED = re.compile(r'(?<![^\r\n,;\t])"(?:[^"]|"")*"(?=[\r\n,;\t]|$)')
"""A cell in quotation marks, in which separators and line breaks are part of the cell."""


def ending_of(path: str | Path) -> str:
    """Return the ending of a file's name, which says what the file holds.

    Raises:
        BadDocument: If it is neither one of `TABLES` nor `TEXT`.
    """
    ending = Path(path).suffix.lower()
    if ending not in (*TABLES, TEXT):
        allowed = listed([*TABLES, TEXT], "or")
        raise BadDocument(f"its name ends with {shown(ending, quoted=True)}, allowed {allowed}")
    return ending


def ending_for(text: str) -> str:
    """Return the ending of a file that would hold a pasted text: a table if it looks like one."""
    lines = _first_lines(text)
    if lines and all(line.lstrip()[0] in "[{" and line.rstrip()[-1] in "]}" for line in lines):
        return ".jsonl"
    return ".csv" if _regularity(lines, separator_of(text)) >= _MOSTLY else TEXT


def content_within_limits(path: str | Path) -> bytes:
    """Return the content of a file with data.

    Raises:
        OSError: If the file does not exist or cannot be read.
        BadDocument: If it is too large.
    """
    return read_file(path, MOST_BYTES)


def read_text(path: str | Path) -> str:
    """Return the text of a file.

    Raises:
        OSError: If the file does not exist or cannot be read.
        BadDocument: If it is too large or is not a text in UTF-8.
    """
    return text_of(content_within_limits(path))


def read_rows(path: str | Path, columns: Sequence[str] = ()) -> list[Row]:
    """Return the rows of a file with a table of two or three columns.

    Args:
        path: The file; the ending of its name says what it holds.
        columns: Names of the columns to take, which stand in the first line. None: all columns.
            The first line is then a row too, unless it is one of `HEADINGS`.

    Raises:
        OSError: If the file does not exist or cannot be read.
        BadDocument: If it cannot be read as a table; the message says what is wrong and allowed.
    """
    ending = ending_of(path)
    if ending == TEXT:
        raise BadDocument(f"it is a text, allowed a table: {listed(TABLES, 'or')}")
    return table_rows(content_within_limits(path), ending, columns)


def table_rows(content: bytes, ending: str, columns: Sequence[str] = ()) -> list[Row]:
    """Return the rows of the content of a file with a table, as `read_rows` does.

    Args:
        content: Content of the file.
        ending: One of `TABLES`.
        columns: See `read_rows`.

    Raises:
        BadDocument: If it cannot be read as a table.
    """
    if ending == ".parquet":
        table = _parquet(content, columns)
    elif ending == ".jsonl":
        table = _json_lines(text_of(content), columns)
    else:
        table = _separated(text_of(content), "\t" if ending == ".tsv" else "", columns)
    rows = list(islice(table, MOST_ROWS + 1))
    if len(rows) > MOST_ROWS:
        raise BadDocument(f"it has too many rows, allowed at most {MOST_ROWS:,}")
    return rows


def column_names(content: bytes, ending: str) -> list[str]:
    """Return the names of the columns of a table, for a choice: the cells of its first line.

    Those of a Parquet file are in its header. JSON lines have names if they hold objects.

    Raises:
        BadDocument: If it is not a table.
    """
    if ending == ".parquet":
        names: list[str] = _parquet_file(content).schema_arrow.names
        return names[:MOST_NAMED]
    if ending == ".jsonl":
        first = parse_json(text_of(content).lstrip().partition("\n")[0], _LONGEST_LINE)
        return list(first)[:MOST_NAMED] if isinstance(first, dict) else []
    table = _lines(text_of(content), "\t" if ending == ".tsv" else "")
    _, cells = next(table, (0, list[str]()))
    return [cell.strip() for cell in cells[:MOST_NAMED]]


def seems_heading(content: bytes, ending: str) -> bool:
    """Return whether the first line of a table with separators seems to name the columns.

    It does if it is one of `HEADINGS`; if one of its cells is no number and all others of its
    column are; or if none of its three names stands in another row, while every other relation
    stands in several.

    Raises:
        BadDocument: If it is not a table.
    """
    table = _lines(text_of(content), "\t" if ending == ".tsv" else "")
    first, *rest = [tuple(cell.strip() for cell in cells) for _, cells in table] or [()]
    if tuple(cell.lower() for cell in first) in HEADINGS:
        return True
    if not rest or any(len(row) != len(first) for row in rest):
        return False
    for name, *column in zip(first, *rest, strict=True):
        if not _is_number(name) and all(map(_is_number, column)):
            return True
    if len(first) != _MOST:
        return False
    n_rows = Counter(relation for _, relation, _ in rest)
    people = {name for who, _, whom in rest for name in (who, whom)}
    is_apart = first[1] not in n_rows and people.isdisjoint((first[0], first[2]))
    return is_apart and min(n_rows.values()) > 1


def _is_number(cell: str) -> bool:
    try:
        return isfinite(float(cell))
    except ValueError:
        return False


def _first_lines(text: str) -> list[str]:
    """Return the first lines of a text that are not empty, without cells in quotation marks."""
    beginning = _QUOTED.sub("q", text[: _LOOKED_AT * _LONGEST_LINE // 10])
    lines = (line for line in re.split("[\r\n]+", beginning) if line.strip())
    return list(islice(lines, _LOOKED_AT))


def _regularity(lines: Sequence[str], separator: str) -> float:
    """Return the share of lines, 0 … 1, that have as many separators as the first one with any."""
    counts = [line.count(separator) for line in lines]
    usual = next(filter(None, counts), 0)
    return counts.count(usual) / len(counts) if usual else 0.0


def separator_of(text: str) -> str:
    """Return what separates the cells: a tab, semicolon or comma, the most regular one."""
    lines = _first_lines(text)
    return max("\t;,", key=lambda separator: _regularity(lines, separator))


def _lines(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Return the number and the cells of the lines of values with separators.

    Args:
        text: The text.
        separator: The separator; empty to find it in the text.
    """
    if "\x00" in text:
        raise BadDocument("it has a null character, so it is no text")
    separator = separator or separator_of(text)
    return _checked(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))


def _separated(text: str, separator: str, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of values with separators."""
    table = _lines(text, separator)
    heading = next(table, None)
    if heading is None:
        return
    if columns:
        places = _places(columns, heading[1])
    else:
        places = list(range(len(heading[1])))
        _check_width(len(heading[1]), heading[1])
        if tuple(cell.strip().lower() for cell in heading[1]) not in HEADINGS:
            yield tuple(heading[1])
    for line, cells in table:
        if len(cells) != len(heading[1]):
            allowed = f"{len(heading[1])} as in the first line"
            raise BadDocument(f"its line {line:,} has {len(cells)} columns, allowed {allowed}")
        yield tuple(cells[place] for place in places)


def _checked(lines: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of every line that is not empty."""
    while True:
        try:
            cells = next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            line = lines.line_num
            raise BadDocument(f"its line {line:,} is not a row of a table ({error})") from None
        if cells and any(cell.strip() for cell in cells):
            yield lines.line_num, cells


def _json_lines(text: str, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a text with a JSON object or list in each line."""
    names: Sequence[str] = columns
    for line, part in enumerate(text.split("\n"), 1):
        if not part.strip():
            continue
        try:
            value = parse_json(part, _LONGEST_LINE)
        except BadDocument as error:
            raise BadDocument(f"its line {line:,}: {error}") from None
        if isinstance(value, dict):
            names = names or list(value)
            _check_width(len(names), names)
            missing = [name for name in names if name not in value]
            if missing:
                got = f"has no {shown(missing[0], quoted=True)}"
                known = allowed_names(map(shown, islice(value, 20)), missing[0])
                raise BadDocument(f"its line {line:,} {got}, only {known or 'nothing'}")
            row = tuple(value[name] for name in names)
        elif isinstance(value, list) and not columns:
            _check_width(len(value), value)
            row = tuple(value)
        else:
            raise BadDocument(f"its line {line:,} is {shown(value)}, allowed an object or a list")
        yield row


def _parquet(content: bytes, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a Parquet file; its header is read before any value."""
    import pyarrow
    from pyarrow import parquet, types

    file = _parquet_file(content)
    try:
        names = file.schema_arrow.names
        n_rows = file.metadata.num_rows
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        n_bytes = sum(group.total_byte_size for group in groups)
        if n_rows > MOST_ROWS:
            raise BadDocument(f"it has {n_rows:,} rows, allowed at most {MOST_ROWS:,}")
        if n_bytes > 4 * MOST_BYTES:
            raise BadDocument(f"its values have {n_bytes:,} bytes, allowed {4 * MOST_BYTES:,}")
        places = _places(columns, names) if columns else range(len(names))
        _check_width(len(places), names)
        taken = [names[place] for place in places]
        if len(set(taken)) < len(taken):
            raise BadDocument("two of its columns have one name, allowed different names")
        fields = [file.schema_arrow.field(place) for place in places]
        texts = [f.name for f in fields if types.is_string(f.type) or types.is_large_string(f.type)]
        for field in fields:
            simple = (types.is_integer, types.is_floating, types.is_boolean)
            if field.name not in texts and not any(test(field.type) for test in simple):
                held = f"holds {shown(str(field.type))}, allowed texts or numbers"
                raise BadDocument(f"its column {shown(field.name, quoted=True)} {held}")
        # As a dictionary: a small file can hold a long text in every row.
        file = parquet.ParquetFile(io.BytesIO(content), read_dictionary=texts)
        read = file.read(columns=taken, use_threads=False)
        lists = [_values(read.column(i)) for i in range(read.num_columns)]
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, BadDocument):
            raise
        reason = shown(str(error).split("\n")[0], most=80)
        raise BadDocument(f"it is no Parquet file that can be read ({reason})") from None
    yield from zip(*lists, strict=True)


def _parquet_file(content: bytes) -> Any:
    """Return a Parquet file of which only the header is read."""
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = shown(str(error).split("\n")[0], most=80)
        raise BadDocument(f"it is no Parquet file that can be read ({reason})") from None


def _values(column: Any) -> list[Any]:
    """Return the values of a column of Parquet; equal texts are one object."""
    values: list[Any] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            different = chunk.dictionary.to_pylist()
            values += [None if i is None else different[i] for i in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values


def _places(columns: Sequence[str], present: Sequence[str]) -> list[int]:
    """Return the places of columns by their names."""
    _check_width(len(columns), columns)
    present = [name.strip() for name in present]
    for name in columns:
        if present.count(name) != 1:
            many = "several columns" if name in present else "no column"
            known = allowed_names(map(shown, present[:20]), name)
            raise BadDocument(f"it has {many} {shown(name, quoted=True)}, allowed {known}")
    return [present.index(name) for name in columns]


def _check_width(n_columns: int, names: Iterable[Any]) -> None:
    if not _FEWEST <= n_columns <= _MOST:
        names = ", ".join(shown(name, most=20) for name in islice(names, 8))
        allowed = f"{_FEWEST} (key, value) or {_MOST} (who, relation, whom): choose columns"
        raise BadDocument(f"it has {n_columns} columns ({names}), allowed {allowed}")
