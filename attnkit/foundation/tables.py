"""Tables in HTML, in Markdown and as comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Cell:
    """A cell of an HTML table.

    Attributes:
        html: Its content.
        css_class: Its class.
        style: Its style.
        title: Plain text shown on hover.
        n_rows: Number of rows that it spans.
        n_columns: Number of columns that it spans.
        is_name: Whether it names its row.
    """

    html: str
    css_class: str = ""
    style: str = ""
    title: str = ""
    n_rows: int = 1
    n_columns: int = 1
    is_name: bool = False

    def written(self, scope: str) -> str:
        """Return the element: a heading of a column or row, or without a scope plain data."""
        values = {
            "scope": scope,
            "class": self.css_class,
            "style": self.style,
            "title": escape(self.title),
            "rowspan": self.n_rows if self.n_rows > 1 else "",
            "colspan": self.n_columns if self.n_columns > 1 else "",
        }
        attributes = "".join(f' {name}="{value}"' for name, value in values.items() if value)
        tag = "th" if scope else "td"
        return f"<{tag}{attributes}>{self.html}</{tag}>"


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
        cells = "".join(_cell(cell).written("col") for cell in head)
        parts.append(f"<thead><tr>{cells}</tr></thead>")
    for body in bodies:
        rows = [f"<tr>{_cells(row)}</tr>" for row in body]
        if current is not None:
            rows[current] = rows[current].replace("<tr>", '<tr aria-current="true">', 1)
        parts.append(f"<tbody>{''.join(rows)}</tbody>")
    attribute = f' class="{css_class}"' if css_class else ""
    return f"<table{attribute}>{''.join(parts)}</table>"


def _cell(cell: str | Cell) -> Cell:
    return Cell(cell) if isinstance(cell, str) else cell


def _cells(row: Row) -> str:
    cells = map(_cell, row)
    return "".join(cell.written("row" if cell.is_name else "") for cell in cells)


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


def csv_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as comma-separated values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([head, *rows])
    return text.getvalue()
