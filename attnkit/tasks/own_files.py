"""Data of one's own from a file, a text or rows: how they are read, which is told before use.

A file does not say in which encoding its characters are, which of its lines names the columns,
which column is a key, or whether three columns are relations. `read_data` guesses it, tells each
guess with the option that changes it, and refuses what no guess can be right about.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnkit.foundation import documents
from attnkit.foundation.documents import BadDocument, parse_json
from attnkit.foundation.extras import install_hint
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.settings import allowed_names, shown
from attnkit.foundation.words import listed
from attnkit.tasks.own_data import (
    MOST_BYTES,
    MOST_ROWS,
    OWN_TASKS,
    cell_text,
    kinds,
    table_text,
    with_key,
)

if TYPE_CHECKING:
    import pandas as pd

MOST_COLUMNS = 100
"""Largest number of columns of a table, from which two or three are taken."""

TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx")
"""Endings of files that hold a table."""

TEXT = ".txt"
"""Ending of files that hold a text."""

DECODED = (".csv", ".tsv", TEXT)
"""Endings of files whose characters have to be found out, and what separates cells in them."""

SEPARATORS = {
    "\t": mark("tab"),
    ";": mark("semicolon"),
    "|": mark("vertical bar"),
    ",": mark("comma"),
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

_NAMES_SEPARATOR = "sep="
"""Beginning of a line in which Excel names the separator of the table below it."""

_TEXT_TASK = "text"
"""Name of the task on a text."""

_NO_TEXT = mark("it is no text in an encoding that is known here: save it in UTF-8")

_MOST_TITLES = 5
"""Largest number of rows above a table that are taken as its title."""

_LOOKED_AT = 100
"""Number of lines, the first ones, that decide which character separates cells."""

MOSTLY = 0.8
"""Smallest share of these lines with as many separators as most if a pasted text is a table."""


# Translators: headings of the columns of a table; a key is what is asked for, a value the answer.
ROLES = {2: (mark("key"), mark("value")), 3: (mark("who"), mark("relation"), mark("whom"))}
"""What the columns of a table of pairs and of a table of relations are."""

HEADING_WORDS = frozenset(
    "alumno answer antwort begriff boss capital capitale category chef city clave country date "
    "datum day definition english espanol español fecha francais français from german deutsch "
    "spanish french englisch grade inglés hauptstadt head id index key label land language manager "
    "mot name nombre note nota país pays object palabra person predicate price preis prix precio "
    "question frage pregunta relation respuesta schlüssel schüler ciudad source spanisch stadt "
    "student subject synonym tag tail target term to traducción traduction translation "
    "übersetzung value valor wert who whom word wort".split()
)
"""Words that name columns, in English, German and Spanish."""


@dataclass(frozen=True)
class Choices:
    """How data are to be read; whatever is empty is guessed.

    Attributes:
        kind: Name of the task on them: "pairs", "relations" or "text".
        columns: Names of two or three columns.
        heading: Whether the first row names the columns.
        leave_out_empty: Whether rows that have empty cells are left out instead of refused.
        separator: What separates cells, one of `SEPARATORS`.
        encoding: Encoding of the text, one of `ENCODINGS`.
    """

    kind: str = ""
    columns: tuple[str, ...] = ()
    heading: bool | None = None
    leave_out_empty: bool = False
    separator: str = ""
    encoding: str = ""


@dataclass(frozen=True, eq=False)
class Reading:
    """Data as they have been read.

    Attributes:
        task: Name of the task on them.
        data: The data in their text form.
        guesses: Field of `Choices` → a sentence on what was guessed, for each guess that was made.
        columns: Names of the columns that were taken.
    """

    task: str
    data: str
    guesses: dict[str, str]
    columns: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, str]:
        """Name of a column that was taken → what it is, in the visitor's language."""
        roles = ROLES.get(len(self.columns), ())
        return {name: tr(role) for name, role in zip(self.columns, roles, strict=True)}

    def in_words(self) -> str:
        """Return a sentence on what the data were read as, with their first rows."""
        if not self.columns:
            return tr("Read as a text of {n:,} characters.", n=len(self.data))
        rows = self.data.split("\n")
        return tr(
            "Read as a table of {n:,} rows ({columns}), such as {examples}.",
            n=len(rows),
            columns=", ".join(f"{role}: {name}" for name, role in self.roles.items()),
            examples="; ".join(row.replace("\t", " → ") for row in rows[:3]),
        )


class ColumnsUnclear(BadDocument):
    """A table can be read, but which of its columns are meant must be said."""


@dataclass(frozen=True, eq=False)
class OpenTable:
    """A table with the names of its columns, before some of them are taken.

    Attributes:
        cells: All rows, as texts, by their numbers from 1 as the file counts them; rows and columns
            without any content are left out.
        heading: Whether its first row names the columns; None if the file names them itself.
        separator: What separates its cells; empty if nothing does.
        guesses: See `Reading`.
    """

    cells: pd.DataFrame
    heading: bool | None
    separator: str
    guesses: dict[str, str]

    def n_empty(self, columns: Sequence[str] = ()) -> int:
        """Return the number of rows with empty cells in some columns, or in any."""
        some = self.cells[[name for name in columns if name in self.cells] or [*self.cells]]
        return int((some == "").any(axis=1).sum())


def read_file(path: str | Path, choices: Choices = Choices()) -> Reading:
    """Return the data of a file.

    Raises:
        OSError: If the file does not exist or cannot be read.
        BadDocument: If it is neither a table nor a text, or if its columns must be chosen.
        InvalidExperiment: If its data cannot be used.
    """
    return read_data(documents.read_file(path, MOST_BYTES), ending_of(path), choices)


def read_data(
    content: bytes, ending: str, choices: Choices = Choices(), opened: OpenTable | None = None
) -> Reading:
    """Return the data in the content of a file.

    Args:
        content: Content of the file.
        ending: Ending of its name, as `ending_of` returns it.
        choices: How it is read.
        opened: The table that `open_table` has opened with these choices, if it has.

    Raises:
        BadDocument: If it is neither a table nor a text, or if its columns must be chosen.
        InvalidExperiment: If its data cannot be used.
    """
    if (ending == TEXT and not choices.kind) or choices.kind == _TEXT_TASK:
        if choices.columns or choices.separator or choices.heading is not None:
            raise BadDocument(tr("it is a text, which has no columns"))
        text, guesses = _decoded_as(content, choices.encoding)
        return Reading(_TEXT_TASK, OWN_TASKS[_TEXT_TASK].text_form(text), guesses)
    opened = opened or open_table(content, ending, choices)
    guesses = {**opened.guesses}
    taken = _chosen_columns(opened.cells, opened.separator, choices, guesses)
    rows = opened.cells[list(taken)]
    leave_out = choices.leave_out_empty
    text = table_text(rows, len(taken), rows.index, leave_out_empty=leave_out)
    return Reading(kinds()[len(taken)].name, text, guesses, taken)


def open_table(content: bytes, ending: str, choices: Choices = Choices()) -> OpenTable:
    """Return a table with the names of its columns, of which none is taken yet.

    Raises:
        BadDocument: If it is no table.
    """
    is_binary, separator, guesses = ending in (".parquet", ".xlsx"), "", dict[str, str]()
    if is_binary:
        cells, is_named = (_parquet if ending == ".parquet" else _workbook)(content)
    else:
        text, guesses = _decoded_as(content, choices.encoding)
        if choices.separator not in ("", *SEPARATORS):
            got, known = shown(choices.separator, quoted=True), ", ".join(map(repr, SEPARATORS))
            told = {"label": "separator", "value": got, "allowed": known}
            raise BadDocument(tr("{label}: got {value}, allowed {allowed}", **told))
        if ending in (".json", ".jsonl"):
            cells, is_named = _json(text)
        else:
            tab = "\t" if ending == ".tsv" else ""
            separator = choices.separator or tab or separator_in(text)[0]
            cells, is_named = _separated(text, separator), False
    _check_size(*cells.shape)
    cells.index += 1
    unused = {"separator": not separator, "encoding": is_binary, "heading": is_named}
    given = [name for name in unused if unused[name] and getattr(choices, name) not in ("", None)]
    if given:
        settings = listed(given, "or")
        wrong = tr(
            "a {ending} file takes no {settings}: leave it out", ending=ending, settings=settings
        )
        raise BadDocument(wrong)
    rows = cells.map(cell_text)
    filled = rows != ""
    rows = rows.loc[filled.any(axis=1), filled.any(axis=0)]
    if not rows.size:
        raise BadDocument(tr("it has no rows"))
    if is_named:
        return OpenTable(_under(rows, [*rows.columns]), None, "", guesses)
    heading, title = choices.heading, ""
    if heading is not False and (n_titles := _n_titles(rows)):
        above = _several([str(cell) for cell in rows.iloc[:n_titles, 0]])
        title = tr("What stands above the table ({names}) is left out.", names=above)
        rows = rows.iloc[n_titles:]
        rows = rows.loc[:, (rows != "").any(axis=0)]
    first = [str(cell) for cell in rows.iloc[0]]
    if heading is None:
        rest = rows.iloc[1:].map(str).to_numpy().tolist()
        heading = (
            bool({*choices.columns} & {*first}) if choices.columns else _seems_heading(first, rest)
        )
        quoted = _several(first)
        if not choices.columns and tuple(filter(None, map(str.lower, first))) not in ROLES.values():
            guesses["heading"] = (
                tr("The first row ({names}) names the columns and is no data.", names=quoted)
                if heading
                else tr("The first row ({names}) is data and names no columns.", names=quoted)
            )
        if title:
            guesses["heading"] = f"{title} {guesses.get('heading', '')}".strip()
    numbered = [tr("column {number}", number=i + 1) for i in range(len(first))]
    names = [name or numbered[i] for i, name in enumerate(first)] if heading else numbered
    return OpenTable(_under(rows.iloc[int(heading) :], names), heading, separator, guesses)


def _decoded_as(content: bytes, chosen: str) -> tuple[str, dict[str, str]]:
    """Return the text of a file, and the guess at its encoding if there is something to tell."""
    text, encoding = decoded(content, chosen)
    if encoding in ("utf_8", chosen):
        return text, {}
    name = ENCODINGS.get(encoding, encoding)
    return text, {"encoding": tr("Its characters are read as {encoding}.", encoding=name)}


def _under(cells: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    different = list[str]()
    for name in names:
        of_name = chain([name], (f"{name} ({i})" for i in itertools.count(2)))
        different.append(next(one for one in of_name if one not in different))
    return cells.set_axis(different, axis=1)


def _n_titles(rows: pd.DataFrame) -> int:
    """Return the number of rows above a table, of which only the first cell is filled."""
    is_title = (rows.iloc[:, 0] != "") & (rows.iloc[:, 1:] == "").all(axis=1)
    n_titles = int(is_title.cumprod().sum()) if rows.shape[1] > 1 else 0
    return n_titles if n_titles <= _MOST_TITLES else 0


def _seems_heading(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row of a table seems to name the columns.

    It does if all of its cells are words that name columns; if a cell does not begin as a number
    and all others of its column do; if it is written in small letters, and nearly all others of a
    column begin with a capital; or if none of its three names stands in another row, while every
    other relation stands in several.
    """
    if not all(first):
        return not first[0]  # an index has no name
    if all(name.lower().split("_")[-1] in HEADING_WORDS for name in first):
        return True
    if not rest:
        return False
    columns = [[row[i] for row in rest] for i in range(len(first))]
    for name, column in zip(first, columns, strict=True):
        filled = [cell for cell in column if cell]
        if filled and not _begins_as_number(name) and all(map(_begins_as_number, filled)):
            return True
    if all(map(str.islower, first)):
        capitals = [sum(cell[:1].isupper() for cell in column) for column in columns]
        if max(capitals) > 0.9 * len(rest):
            return True
    if len(first) != 3:
        return False
    n_rows = Counter(columns[1])
    people = {*columns[0], *columns[2]}
    is_apart = first[1] not in n_rows and people.isdisjoint((first[0], first[2]))
    return is_apart and min(n_rows.values()) > 1


def _begins_as_number(cell: str) -> bool:
    return cell.lstrip("+-(€$£ ")[:1].isdigit()


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell.replace(",", ".", 1)))
    except ValueError:
        return False


def _chosen_columns(
    cells: pd.DataFrame, separator: str, choices: Choices, guesses: dict[str, str]
) -> tuple[str, ...]:
    names = list(cells.columns)
    if len(names) == 1:
        raise BadDocument(
            tr(
                "its rows have one cell ({name}), allowed two (key, value) or three (who, "
                "relation, whom): put a tab, a comma or a semicolon between them",
                name=_several(names),
            )
        )
    wanted = next((n for n, task in kinds().items() if task.name == choices.kind), 0)
    if choices.columns:
        for name in choices.columns:
            if name not in names:
                known = allowed_names(map(shown, names[:20]), name)
                got = shown(name, quoted=True)
                wrong = tr("it has no column {name}, allowed {allowed}", name=got, allowed=known)
                raise BadDocument(wrong)
        taken = choices.columns
    else:
        taken = tuple(names)
        if len(taken) > 2 and _is_index(cells[names[0]]):
            taken = taken[1:]
            guesses["columns"] = tr(
                "The column {name} only numbers the rows and is left out.",
                name=shown(names[0], quoted=True),
            )
        if len(taken) == 3 and not wanted and not _is_relation(cells[taken[1]].map(str)):
            if separator == "," and cells[[*taken[1:]]].map(str.isdigit).all(axis=None):
                raise BadDocument(
                    tr(
                        "its numbers seem to have decimal commas: put them in quotation marks, or "
                        "separate its cells by semicolons"
                    )
                )
            raise ColumnsUnclear(
                tr(
                    "its column {name} names no relation, which several rows would have: choose "
                    "two of the columns {names}, or say that they are relations",
                    name=shown(taken[1], quoted=True),
                    names=_several(taken),
                )
            )
    allowed = [wanted] if wanted else list(ROLES)
    if len(taken) not in allowed or len({*taken}) < len(taken):
        ways = [f"{n} ({', '.join(map(tr, ROLES[n]))})" for n in allowed]
        raise ColumnsUnclear(
            tr_n(
                "it has {n} column ({names}), allowed {allowed}: choose columns",
                "it has {n} columns ({names}), allowed {allowed}: choose columns",
                len(taken),
                names=_several(taken),
                allowed=listed(ways, "or"),
            )
        )
    return tuple(taken)


def _several(names: Sequence[str]) -> str:
    return ", ".join(shown(name, most=20) for name in islice(filter(None, names), 8))


def _is_index(column: pd.Series) -> bool:
    n, numbers = len(column), column.tolist()
    return n > 1 and numbers in ([*map(str, range(n))], [*map(str, range(1, n + 1))])


def _is_relation(column: pd.Series) -> bool:
    filled = [cell for cell in column if cell]
    is_repeated = len({*filled}) <= max(1, len(filled) // 2)
    return is_repeated and not all(map(_is_number, filled))


# From bytes to cells


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


def _likeliest(content: bytes) -> str:
    """Return the likeliest encoding: of those as clean, one whose letters are all letters."""
    from charset_normalizer import from_bytes

    names = list(ENCODINGS)
    found = from_bytes(content, cp_isolation=names) or from_bytes(
        content,
        cp_isolation=names,
        threshold=0.4,  # words among numbers look less like a language
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
    first, _, rest = text.partition("\n")
    if first[:4].lower() == _NAMES_SEPARATOR:
        text, named = rest, first[4:].removesuffix("\r")
        if len(named) == 1 and not named.isalnum() and named != '"':
            return named, 1.0
    lines = [line for line in _without_quoted(text).splitlines() if line.strip()][:_LOOKED_AT]

    def regularity(separator: str) -> float:
        counts = [line.count(separator) for line in lines]
        usual = next(filter(None, counts), 0)
        return counts.count(usual) / len(counts) if usual else 0.0

    best = max(SEPARATORS, key=regularity)
    return best, regularity(best)


def _without_quoted(text: str) -> str:
    """Return the beginning of a text without what stands in quotation marks."""
    return "".join(text[: 2 * _LOOKED_AT * _LOOKED_AT].split(_quotation_mark(text))[::2])


def _quotation_mark(text: str) -> str:
    """Return what stands around cells: a single quotation mark if all lines begin and end so."""
    lines = [*filter(None, map(str.strip, text.splitlines()[:_LOOKED_AT]))]
    return "'" if lines and all(line[0] == line[-1] == "'" for line in lines) else '"'


def ending_for(text: str) -> str:
    """Return the ending of a file that would hold a pasted text: a table if it looks like one."""
    first, last = text.strip()[:1], text.strip()[-1:]
    if first and first + last in ("[]", "{}"):
        return ".jsonl"
    separator, share = separator_in(text)
    # In a list of a program, a comma ends each line and separates nothing.
    lines = [*filter(str.strip, text[: _LOOKED_AT**2].splitlines())]
    n_rows = sum(len([*filter(str.strip, line.split(separator))]) > 1 for line in lines)
    return ".csv" if share >= MOSTLY and 4 * n_rows >= len(lines) else TEXT


def _check_size(n_rows: int, n_columns: int) -> None:
    if n_rows > MOST_ROWS:
        raise BadDocument(tr("it has too many rows, allowed at most {most:,}", most=MOST_ROWS))
    if n_columns > MOST_COLUMNS:
        wrong = tr("it has too many columns, allowed at most {most:,}", most=MOST_COLUMNS)
        raise BadDocument(wrong)


def _separated(text: str, separator: str) -> pd.DataFrame:
    """Return the cells of lines; a row that is shorter than others has empty cells.

    Lines of one cell may stand above a table.
    """
    import pandas as pd

    # The last line is no row of its own if a quotation mark is open.
    ended = chain(io.StringIO(text, newline=""), "\n\0")
    lines = csv.reader(ended, delimiter=separator, quotechar=_quotation_mark(text))
    rows, n_columns, n_read = dict[int, list[str]](), 0, 0
    try:
        for row in lines:
            if row == ["\0"]:
                break
            if "\0" in "".join(row):
                raise csv.Error
            n_read = lines.line_num
            if lines.line_num == 1 and text[:4].lower() == _NAMES_SEPARATOR:
                continue
            # Markdown has a line of dashes below the heading.
            if not "".join("".join(row).split()).strip(":-" if separator == "|" else None):
                continue
            if n_columns < 2:
                n_columns = len(row)
            if "".join(row[n_columns:]).strip():
                reason = tr("{n} cells, allowed {most}", n=len(row), most=n_columns)
                raise _wrong_line(lines.line_num, reason)
            rows[lines.line_num - 1] = row[:n_columns]
            _check_size(len(rows), n_columns)
    except csv.Error:
        reason = tr("a quotation mark is never closed, or a cell is too long")
        raise _wrong_line(n_read + 1, reason) from None
    filled = [[*row, *[""] * (n_columns - len(row))] for row in rows.values()]
    return pd.DataFrame(filled, [*rows], dtype=object)


def _wrong_line(number: int, reason: str) -> BadDocument:
    return BadDocument(tr("its line {line:,}: {reason}", line=number, reason=reason))


def _json(text: str) -> tuple[pd.DataFrame, bool]:
    """Return the rows of a JSON list or object, or of lines with one value each; are they named?"""
    import pandas as pd

    try:
        whole = parse_json(text)
    except BadDocument:
        if "\n" not in text.strip():
            raise
        whole = [_json_line(*line) for line in enumerate(text.split("\n"), 1) if line[1].strip()]
    if isinstance(whole, dict):
        values = [*whole.values()]
        if len(values) > 1 and all(
            isinstance(one, dict) and one.keys() == values[0].keys() for one in values
        ):  # columns, each an object row → cell, as pandas writes them
            rows = zip(*map(dict.values, values), strict=True)
            whole = [dict(zip(whole, row, strict=True)) for row in rows]
        elif len(values) > 3 and all(isinstance(one, str | int | float | None) for one in values):
            whole = [[*item] for item in whole.items()]
        else:
            whole = [whole]
    kinds = {type(row) for row in whole} if isinstance(whole, list) else {type(whole)}
    if kinds not in ({dict}, {list}):
        names = ", ".join(sorted(kind.__name__ for kind in kinds)) or tr("nothing")
        wrong = tr("it holds {names}, allowed an object or a list in every row", names=names)
        raise BadDocument(wrong)
    is_named = kinds == {dict}
    n_columns = len({*chain.from_iterable(whole)}) if is_named else max(map(len, whole))
    _check_size(len(whole), n_columns)
    if not is_named:
        whole = [[*row, *[None] * (n_columns - len(row))] for row in whole]
    return pd.DataFrame(whole, dtype=object), is_named


def _json_line(number: int, line: str) -> Any:
    try:
        return parse_json(line)
    except BadDocument as error:
        raise _wrong_line(number, str(error)) from None


def _workbook(content: bytes) -> tuple[pd.DataFrame, bool]:
    import pandas as pd

    try:
        cells = pd.read_excel(
            io.BytesIO(content), header=None, dtype=object, nrows=MOST_ROWS + 1, na_filter=False
        )
    except ImportError:
        need = tr("workbooks need {hint}; or save the sheet as CSV", hint=install_hint("excel"))
        raise BadDocument(need) from None
    except Exception as error:  # openpyxl raises errors of any kind for damaged files
        raise _unreadable(tr("workbook"), error) from None
    return cells, False


def _unreadable(format: str, error: Exception) -> BadDocument:
    reason = shown(str(error).split("\n")[0] or type(error).__name__, most=80)
    return BadDocument(
        tr("it is no {format} that can be read ({reason})", format=format, reason=reason)
    )


def _parquet(content: bytes) -> tuple[pd.DataFrame, bool]:
    import pandas as pd
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(io.BytesIO(content))
        _check_size(file.metadata.num_rows, file.metadata.num_columns)
        cells = with_key(file.read(use_threads=False).to_pandas(integer_object_nulls=True))
        # One by one, so that 0.1 in single precision stays 0.1.
        columns = {i: [*cells.iloc[:, i].array] for i in range(cells.shape[1])}
        named = pd.DataFrame(columns, dtype=object).set_axis(cells.columns.astype(str), axis=1)
    except BadDocument:
        raise
    except Exception as error:  # texts and notes of pandas can be damaged, too
        raise _unreadable(tr("Parquet file"), error) from None
    return named, True
