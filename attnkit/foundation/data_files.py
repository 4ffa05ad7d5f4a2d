"""Files with a table or a text: CSV, TSV, JSON lines, Parquet and TXT, read within limits."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from attnkit.foundation.documents import BadDocument, parse_json, read_file, text_of
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.separators import (
    LONGEST_LINE,
    MOSTLY,
    first_lines,
    regularity,
    separator_of,
)
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

# Translators: headings of the columns of a table; a key is what is asked for, a value the answer.
HEADINGS = ((mark("key"), mark("value")), (mark("who"), mark("relation"), mark("whom")))
"""Names of the columns of a table of pairs, and of a table of relations."""

Row = tuple[Any, ...]

_FEWEST, _MOST = len(HEADINGS[0]), len(HEADINGS[1])

MOST_NAMED = 100
"""Largest number of columns that are offered for a choice."""


def ending_of(path: str | Path) -> str:
    """Return the ending of a file's name, which says what the file holds.

    Raises:
        BadDocument: If it is neither one of `TABLES` nor `TEXT`.
    """
    ending = Path(path).suffix.lower()
    if ending not in (*TABLES, TEXT):
        raise BadDocument(
            tr(
                "its name ends with {ending}, allowed {allowed}",
                ending=shown(ending, quoted=True),
                allowed=listed([*TABLES, TEXT], "or"),
            )
        )
    return ending


def ending_for(text: str) -> str:
    """Return the ending of a file that would hold a pasted text: a table if it looks like one."""
    lines = first_lines(text)
    if lines and all(line.lstrip()[0] in "[{" and line.rstrip()[-1] in "]}" for line in lines):
        return ".jsonl"
    return ".csv" if regularity(lines, separator_of(text)) >= MOSTLY else TEXT


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
        allowed = listed(TABLES, "or")
        raise BadDocument(tr("it is a text, allowed a table: {allowed}", allowed=allowed))
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
        raise BadDocument(tr("it has too many rows, allowed at most {most:,}", most=MOST_ROWS))
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
        first = parse_json(text_of(content).lstrip().partition("\n")[0], LONGEST_LINE)
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


def _lines(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Return the number and the cells of the lines of values with separators.

    Args:
        text: The text.
        separator: The separator; empty to find it in the text.
    """
    if "\x00" in text:
        raise BadDocument(tr("it has a null character, so it is no text"))
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
            raise BadDocument(
                tr_n(
                    "its line {line:,} has {n} column, allowed {allowed} as in the first line",
                    "its line {line:,} has {n} columns, allowed {allowed} as in the first line",
                    len(cells),
                    line=line,
                    allowed=len(heading[1]),
                )
            )
        yield tuple(cells[place] for place in places)


def _checked(lines: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of every line that is not empty."""
    while True:
        try:
            cells = next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            wrong = tr(
                "its line {line:,} is not a row of a table ({reason})",
                line=lines.line_num,
                reason=str(error),
            )
            raise BadDocument(wrong) from None
        if cells and any(cell.strip() for cell in cells):
            yield lines.line_num, cells


def _json_lines(text: str, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a text with a JSON object or list in each line."""
    names: Sequence[str] = columns
    for line, part in enumerate(text.split("\n"), 1):
        if not part.strip():
            continue
        try:
            value = parse_json(part, LONGEST_LINE)
        except BadDocument as error:
            wrong = tr("its line {line:,}: {reason}", line=line, reason=str(error))
            raise BadDocument(wrong) from None
        if isinstance(value, dict):
            names = names or list(value)
            _check_width(len(names), names)
            missing = [name for name in names if name not in value]
            if missing:
                name = shown(missing[0], quoted=True)
                # Translators: in place of a list of names, if there are none.
                known = allowed_names(map(shown, islice(value, 20)), missing[0]) or tr("nothing")
                raise BadDocument(
                    tr(
                        "its line {line:,} has no {name}, only {known}",
                        line=line,
                        name=name,
                        known=known,
                    )
                )
            row = tuple(value[name] for name in names)
        elif isinstance(value, list) and not columns:
            _check_width(len(value), value)
            row = tuple(value)
        else:
            raise BadDocument(
                tr(
                    "its line {line:,} is {value}, allowed an object or a list",
                    line=line,
                    value=shown(value),
                )
            )
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
            raise BadDocument(
                tr("it has {n:,} rows, allowed at most {most:,}", n=n_rows, most=MOST_ROWS)
            )
        if n_bytes > 4 * MOST_BYTES:
            most = 4 * MOST_BYTES
            raise BadDocument(
                tr("its values have {n:,} bytes, allowed {most:,}", n=n_bytes, most=most)
            )
        places = _places(columns, names) if columns else range(len(names))
        _check_width(len(places), names)
        taken = [names[place] for place in places]
        if len(set(taken)) < len(taken):
            raise BadDocument(tr("two of its columns have one name, allowed different names"))
        fields = [file.schema_arrow.field(place) for place in places]
        texts = [f.name for f in fields if types.is_string(f.type) or types.is_large_string(f.type)]
        for field in fields:
            simple = (types.is_integer, types.is_floating, types.is_boolean)
            if field.name not in texts and not any(test(field.type) for test in simple):
                raise BadDocument(
                    tr(
                        "its column {name} holds {kind}, allowed texts or numbers",
                        name=shown(field.name, quoted=True),
                        kind=shown(str(field.type)),
                    )
                )
        # As a dictionary: a small file can hold a long text in every row.
        file = parquet.ParquetFile(io.BytesIO(content), read_dictionary=texts)
        read = file.read(columns=taken, use_threads=False)
        lists = [_values(read.column(i)) for i in range(read.num_columns)]
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, BadDocument):
            raise
        raise _no_parquet(error) from None
    yield from zip(*lists, strict=True)


def _parquet_file(content: bytes) -> Any:
    """Return a Parquet file of which only the header is read."""
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _no_parquet(error) from None


def _no_parquet(error: Exception) -> BadDocument:
    reason = shown(str(error).split("\n")[0], most=80)
    return BadDocument(tr("it is no Parquet file that can be read ({reason})", reason=reason))


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
            known = {
                "name": shown(name, quoted=True),
                "allowed": allowed_names(map(shown, present[:20]), name),
            }
            if name in present:
                wrong = tr("it has several columns {name}, allowed {allowed}", **known)
            else:
                wrong = tr("it has no column {name}, allowed {allowed}", **known)
            raise BadDocument(wrong)
    return [present.index(name) for name in columns]


def _check_width(n_columns: int, names: Iterable[Any]) -> None:
    if not _FEWEST <= n_columns <= _MOST:
        raise BadDocument(
            tr_n(
                "it has {n} column ({names}), allowed {fewest} (key, value) or "
                "{most} (who, relation, whom): choose columns",
                "it has {n} columns ({names}), allowed {fewest} (key, value) or "
                "{most} (who, relation, whom): choose columns",
                n_columns,
                names=", ".join(shown(name, most=20) for name in islice(names, 8)),
                fewest=_FEWEST,
                most=_MOST,
            )
        )
