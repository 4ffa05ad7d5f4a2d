"""Files with a table or a text: pandas and pyarrow read them, within limits.

How bytes become characters and lines become cells is guessed where a file does not say it. The
guesses are part of what is returned, so that they can be shown and changed.
"""

from __future__ import annotations

import codecs
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnkit.foundation.documents import BadDocument, parse_json
from attnkit.foundation.extras import install_hint
from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import shown
from attnkit.foundation.words import listed

if TYPE_CHECKING:
    import pandas as pd

MOST_BYTES = 2_000_000
"""Largest size of a file with data, and of the texts in it."""

MOST_ROWS = 20_000
"""Largest number of rows of a table."""

MOST_COLUMNS = 100
"""Largest number of columns of a table, from which two or three are taken."""

_MOST_UNPACKED = 20 * MOST_BYTES
"""Largest size of what a workbook or a Parquet file unpacks."""

TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx")
"""Endings of files that hold a table."""

TEXT = ".txt"
"""Ending of files that hold a text."""

DECODED = (".csv", ".tsv", TEXT)
"""Endings of files whose characters have to be found out, and what separates cells in them."""

SEPARATORS = {
    "\t": mark("tab"),
    ";": mark("semicolon"),
    ",": mark("comma"),
    "|": mark("vertical bar"),
}
"""Characters between cells, with names; of two that fit as well the first one counts."""

ENCODINGS = {
    "utf_8": "UTF-8",
    "utf_16": "UTF-16",
    "cp1252": "Windows-1252",
    "cp1250": "Windows-1250",
    "cp1251": "Windows-1251",
    "cp1253": "Windows-1253",
    "cp1254": "Windows-1254",
    "cp1255": "Windows-1255",
    "cp1256": "Windows-1256",
    "cp932": "Shift JIS",
    "gb18030": "GB 18030",
    "cp949": "Korean",
    "utf_16_le": "UTF-16 LE",
    "utf_16_be": "UTF-16 BE",
}
"""Encodings of texts by Python's names, with those that are shown."""

_MARKS = {
    codecs.BOM_UTF8: "utf_8_sig",
    codecs.BOM_UTF32_LE: "utf_32",
    codecs.BOM_UTF16_LE: "utf_16",
    codecs.BOM_UTF16_BE: "utf_16",
}
"""Byte order marks at the beginning of a text, and the encodings that they name."""

_NO_TEXT = mark("it is no text in an encoding that is known here: save it in UTF-8")

_LOOKED_AT = 100
"""Number of lines, the first ones, that decide which character separates cells."""

MOSTLY = 0.8
"""Smallest share of these lines with as many separators as most if a pasted text is a table."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table as it stands in a file.

    Attributes:
        cells: Cells of all rows; an empty one is "" or missing.
        is_named: Whether the columns have the names that the file gives them. Otherwise they are
            numbered, and the first row may name them.
        encoding: Encoding of its text, one of `ENCODINGS`; empty if it is no text.
        separator: What separates its cells, one of `SEPARATORS`; empty if nothing does.
    """

    cells: pd.DataFrame
    is_named: bool = False
    encoding: str = ""
    separator: str = ""


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


def decoded(content: bytes, encoding: str = "") -> tuple[str, str]:
    """Return the text of a file, and the name of its encoding.

    Args:
        content: Content of the file.
        encoding: One of `ENCODINGS`. Empty: that of the byte order mark, UTF-8 if it fits, or the
            likeliest other one.

    Raises:
        BadDocument: If no encoding fits, or if the text has a null character.
    """
    found = next((name for sign, name in _MARKS.items() if content.startswith(sign)), "")
    if not (encoding := encoding or found):
        is_utf_8 = b"\x00" not in content and content == content.decode(errors="ignore").encode()
        encoding = "utf_8" if is_utf_8 else _likeliest(content)
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
    except LookupError:  # no encoding of this name
        raise BadDocument(tr(_NO_TEXT)) from None
    except UnicodeDecodeError as error:
        wrong = tr(
            "its byte {place:,} is not of a text in {encoding}",
            place=error.start,
            encoding=ENCODINGS.get(encoding, encoding),
        )
        raise BadDocument(wrong) from None
    if "\x00" in text:
        raise BadDocument(tr("it has a null character, so it is no text"))
    return text, encoding.removesuffix("_sig")


_LENIENT = 0.4
"""Threshold of the search for an encoding where that of charset-normalizer, 0.2, finds none: a few
words among numbers look less like a language than a text does."""


def _likeliest(content: bytes) -> str:
    """Return the likeliest encoding: of those as clean, one whose letters are all letters."""
    from charset_normalizer import from_bytes

    names = list(ENCODINGS)
    found = from_bytes(content, cp_isolation=names) or from_bytes(
        content, cp_isolation=names, threshold=_LENIENT
    )

    def unlikeliness(match: Any) -> tuple[int, int, float, int]:
        n_symbols = sum(ord(sign) > 127 and not sign.isalpha() for sign in str(match))
        name = min(map(names.index, {*match.could_be_from_charset} & {*names}), default=len(names))
        return int(10 * match.chaos), n_symbols, -round(match.coherence, 1), name

    if best := min(found, key=unlikeliness, default=None):
        return names[unlikeliness(best)[-1]]
    raise BadDocument(tr(_NO_TEXT))


def separator_in(text: str) -> tuple[str, float]:
    """Return what separates cells, and the share of lines, 0 … 1, with equally many of it."""
    named, text = _named_separator(text)
    if named:
        return named, 1.0
    lines = [line for line in _without_quoted(text).splitlines() if line.strip()][:_LOOKED_AT]

    def regularity(separator: str) -> float:
        counts = [line.count(separator) for line in lines]
        usual = next(filter(None, counts), 0)
        return counts.count(usual) / len(counts) if usual else 0.0

    best = max(SEPARATORS, key=regularity)
    return best, regularity(best)


def _named_separator(text: str) -> tuple[str, str]:
    """Return the separator that Excel writes into a line before a table, and the text below it."""
    first, _, rest = text.partition("\n")
    if first[:4].lower() != "sep=":
        return "", text
    named = first[4:].removesuffix("\r")
    return named if len(named) == 1 and not named.isalnum() and named != '"' else "", rest


def _without_quoted(text: str) -> str:
    """Return the beginning of a text without what stands in quotation marks."""
    return "".join(text[: 2 * _LOOKED_AT * _LOOKED_AT].split('"')[::2])


def ending_for(text: str) -> str:
    """Return the ending of a file that would hold a pasted text: a table if it looks like one."""
    first, last = text.strip()[:1], text.strip()[-1:]
    if first and first + last in ("[]", "{}"):
        return ".jsonl"
    return ".csv" if separator_in(text)[1] >= MOSTLY else TEXT


def read_sheet(content: bytes, ending: str, *, encoding: str = "", separator: str = "") -> Sheet:
    """Return the table in the content of a file.

    Args:
        content: Content of the file.
        ending: One of `TABLES`.
        encoding: See `decoded`.
        separator: One of `SEPARATORS`. Empty: a tab in a TSV file, otherwise the likeliest one.

    Raises:
        BadDocument: If it cannot be read as a table; the message says what is wrong and allowed.
    """
    if ending == ".parquet":
        sheet = Sheet(_parquet(content), is_named=True)
    elif ending == ".xlsx":
        sheet = Sheet(_workbook(content))
    else:
        text, encoding = decoded(content, encoding)
        if ending not in (".json", ".jsonl"):
            separator = separator or ("\t" if ending == ".tsv" else separator_in(text)[0])
            sheet = Sheet(_separated(text, separator), False, encoding, separator)
        else:
            values = _json_values(text)
            sheet = Sheet(_frame(values), isinstance(values[0], Mapping), encoding)
    _check_size(*sheet.cells.shape)
    return sheet


def _check_size(n_rows: int, n_columns: int) -> None:
    if n_rows > MOST_ROWS:
        raise BadDocument(tr("it has too many rows, allowed at most {most:,}", most=MOST_ROWS))
    if n_columns > MOST_COLUMNS:
        wrong = tr("it has too many columns, allowed at most {most:,}", most=MOST_COLUMNS)
        raise BadDocument(wrong)


def _separated(text: str, separator: str) -> pd.DataFrame:
    """Return the cells of lines; a line that is shorter than the first one has empty cells."""
    import pandas as pd

    _, text = _named_separator(text)
    _check_size(0, _without_quoted(text.lstrip().partition("\n")[0]).count(separator) + 1)
    try:
        cells = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            header=None,
            dtype=str,
            keep_default_na=False,
            nrows=MOST_ROWS + 1,
        )
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except (pd.errors.ParserError, ValueError) as error:
        reason = shown(str(error).split("error: ")[-1].strip(), most=80)
        wrong = tr("its lines are no rows of a table ({reason})", reason=reason)
        raise BadDocument(wrong) from None
    texts = cells.fillna("").map(str.strip)
    is_empty = (texts == "").all(axis=1)
    # Markdown has a line of dashes below the heading.
    is_rule = texts.map(lambda text: not text.strip(":-")).all(axis=1)
    return cells[~(is_rule if separator == "|" else is_empty)]


def _json_values(text: str) -> list[Any]:
    """Return the rows of a JSON list or object, or of lines with one value each."""
    try:
        whole = parse_json(text)
    except BadDocument:
        if "\n" not in text.strip():
            raise
        whole = [_json_line(*line) for line in enumerate(text.split("\n"), 1) if line[1].strip()]
    if isinstance(whole, Mapping):
        is_row = not all(isinstance(value, str | int | float | None) for value in whole.values())
        whole = [whole] if is_row or len(whole) < 4 else [[*item] for item in whole.items()]
    kinds = {type(row) for row in whole} if isinstance(whole, list) else {type(whole)}
    if kinds not in ({dict}, {list}):
        names = ", ".join(sorted(kind.__name__ for kind in kinds)) or tr("nothing")
        wrong = tr("it holds {names}, allowed an object or a list in every row", names=names)
        raise BadDocument(wrong)
    return list(whole)


def _json_line(number: int, line: str) -> Any:
    try:
        return parse_json(line)
    except BadDocument as error:
        wrong = tr("its line {line:,}: {reason}", line=number, reason=str(error))
        raise BadDocument(wrong) from None


def _frame(rows: Sequence[Any]) -> pd.DataFrame:
    import pandas as pd

    n_columns = max(map(len, rows))
    _check_size(len(rows), n_columns)
    if isinstance(rows[0], list):
        rows = [[*row, *[None] * (n_columns - len(row))] for row in rows]
    return pd.DataFrame(rows, dtype=object)


def _workbook(content: bytes) -> pd.DataFrame:
    """Return the cells of the first sheet of a workbook of Excel or LibreOffice."""
    import pandas as pd

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            _check_unpacked(sum(part.file_size for part in parts.infolist()))
        cells = pd.read_excel(
            io.BytesIO(content), header=None, dtype=object, nrows=MOST_ROWS + 1, na_filter=False
        )
    except BadDocument:
        raise
    except ImportError:
        need = tr("workbooks need {hint}; or save the sheet as CSV", hint=install_hint("excel"))
        raise BadDocument(need) from None
    except Exception as error:  # openpyxl raises errors of any kind for damaged files
        raise _unreadable(tr("workbook"), error) from None
    return cells[(cells.astype(str).map(str.strip) != "").any(axis=1)]


def _check_unpacked(n: int) -> None:
    if n > (most := _MOST_UNPACKED):
        raise BadDocument(tr("its values have {n:,} bytes, allowed {most:,}", n=n, most=most))


def _unreadable(format: str, error: Exception) -> BadDocument:
    reason = shown(str(error).split("\n")[0] or type(error).__name__, most=80)
    return BadDocument(
        tr("it is no {format} that can be read ({reason})", format=format, reason=reason)
    )


def _parquet(content: bytes) -> pd.DataFrame:
    """Return the columns of a Parquet file; the index that pandas has written comes first."""
    import pandas as pd
    import pyarrow
    from pyarrow import parquet, types

    try:
        file = parquet.ParquetFile(io.BytesIO(content))
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        _check_size(file.metadata.num_rows, file.metadata.num_columns)
        _check_unpacked(sum(group.total_byte_size for group in groups))
        fields = list(file.schema_arrow)
        texts = [f.name for f in fields if types.is_string(f.type) or types.is_large_string(f.type)]
        for field in fields:
            numbers = (types.is_integer, types.is_floating, types.is_boolean)
            simple = (*numbers, types.is_dictionary, types.is_null, types.is_string_view)
            if field.name not in texts and not any(test(field.type) for test in simple):
                name, kind = shown(field.name, quoted=True), shown(str(field.type))
                wrong = tr(
                    "its column {name} holds {kind}, allowed texts or numbers", name=name, kind=kind
                )
                raise BadDocument(wrong)
        # As a dictionary: a small file can hold a long text in every row.
        file = parquet.ParquetFile(io.BytesIO(content), read_dictionary=texts)
        cells = file.read(use_threads=False).to_pandas(integer_object_nulls=True)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, BadDocument):
            raise
        raise _unreadable(tr("Parquet file"), error) from None
    if is_key(cells.index):
        cells = cells.reset_index(
            names=[name or "" for name in cells.index.names], allow_duplicates=True
        )
    columns = {i: _objects(cells.iloc[:, i]) for i in range(cells.shape[1])}
    return pd.DataFrame(columns, dtype=object).set_axis(cells.columns.astype(str), axis=1)


def is_key(index: pd.Index) -> bool:
    """Return whether the index of a data frame is data, and does not only number its rows."""
    return index.name is not None or index.inferred_type != "integer"


def _objects(column: pd.Series) -> np.ndarray:
    """Return the values of a column; equal texts are one object."""
    if not hasattr(column, "cat"):  # one by one, so that 0.1 in single precision stays 0.1
        return np.array([*column.array], object)
    different = np.array([*column.cat.categories, None], object)
    sizes = np.array([len(str(value)) for value in different])
    _check_unpacked(int(sizes[column.cat.codes].sum()))
    values: np.ndarray = different[column.cat.codes]
    return values
