"""Tables and lists in HTML, in Markdown and as comma-separated values."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import pandas as pd

_NUMBER: Final = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf", re.ASCII | re.IGNORECASE
)
_FORMULA: Final = re.compile(
    r"^(?=[\t\r\n])|(^|(?<=[;\t\r\n]))(?= *[=+\-@\uff1d\uff0b\uff0d\uff20])"
)


@dataclass(frozen=True)
class Cell:
    """A cell of an HTML table.

    Attributes:
        html: Its content.
        attributes: Its attributes, as in HTML.
        is_name: Whether it names its row.
    """

    html: str
    attributes: str = ""
    is_name: bool = False


Row = Sequence[str | Cell]
"""Cells of a row as HTML, or with more than their content."""


def html_table(
    head: Row,
    *bodies: Iterable[Row],
    caption: str = "",
    css_class: str = "",
    current: int | None = None,
) -> str:
    """Return a table in HTML.

    Args:
        head: Headings of the columns; empty for none.
        *bodies: Groups of rows.
        caption: Caption as HTML; empty for none.
        css_class: Class of the table.
        current: Index of the row that is marked as the current one in every group.
    """
    parts = [f"<caption>{caption}</caption>"] if caption else []
    if head:
        parts.append(f"<thead><tr>{_cells(head, 'col')}</tr></thead>")
    for body in bodies:
        rows = [f"<tr>{_cells(row, 'row')}</tr>" for row in body]
        if current is not None:
            rows[current] = rows[current].replace("<tr>", '<tr aria-current="true">', 1)
        parts.append(f"<tbody>{''.join(rows)}</tbody>")
    attribute = f' class="{css_class}"' if css_class else ""
    return f"<table{attribute}>{''.join(parts)}</table>"


def _cells(row: Row, scope: Literal["row", "col"]) -> str:
    """Return the cells of a row; all of the head are headings, and the names of other rows."""
    parts = []
    for one in row:
        cell = Cell(one) if isinstance(one, str) else one
        is_heading = scope == "col" or cell.is_name
        tag, scoped = ("th", f' scope="{scope}"') if is_heading else ("td", "")
        attributes = f" {cell.attributes}" if cell.attributes else ""
        parts.append(f"<{tag}{scoped}{attributes}>{cell.html}</{tag}>")
    return "".join(parts)


def html_list(items: Iterable[str]) -> str:
    """Return a list of items, which are HTML."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def markdown_table(head: Sequence[str], rows: Iterable[Iterable[str]], align: str = "") -> str:
    """Return a table in Markdown; the texts may hold Markdown.

    Args:
        head: Headings of the columns.
        rows: Cells of the rows.
        align: One letter for each column, "l" or "r" for the right; empty if all are left.
    """
    rules = ("--:" if side == "r" else "---" for side in align or "l" * len(head))
    written = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([written[0], f"|{'|'.join(rules)}|", *written[1:]])


def without_formula(text: str) -> str:
    """Return a text that spreadsheets show instead of computing it.

    An apostrophe goes before what begins with =, +, -, @, a tab or a line break, also after
    a semicolon, a tab or a line break, at which spreadsheets may divide a cell. A number stays
    as it is.

    Source: https://owasp.org/www-community/attacks/CSV_Injection
    """
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub("'", text)


def _csv_cell(value: object) -> Any:
    """Return a cell as it is written; all line breaks are those that the writers quote."""
    if not isinstance(value, str):
        return value
    return without_formula(value).replace("\r\n", "\n").replace("\r", "\n")


def csv_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as comma-separated values; no text in it is a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_csv_cell(one) for one in row] for row in (head, *rows))
    return text.getvalue()


def csv_of_frame(table: pd.DataFrame) -> str:
    """Return a pandas table as comma-separated values, without its index; no text is a formula."""
    texts = table.select_dtypes(exclude=["number", "bool"]).columns
    safe = table.assign(**{name: table[name].map(_csv_cell) for name in texts})
    return str(safe.rename(columns=_csv_cell).to_csv(index=False))
