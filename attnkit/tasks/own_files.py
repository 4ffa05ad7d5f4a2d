"""Data of one's own from a file: which task they are for, and their text form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attnkit.foundation.data_files import TEXT, content_within_limits, ending_of, table_rows
from attnkit.foundation.documents import BadDocument, text_of
from attnkit.foundation.language import tr
from attnkit.tasks.own_text import Text
from attnkit.tasks.table import kind_of
from attnkit.tasks.table_rows import table_text


def data_of_file(path: str | Path, columns: Sequence[str] = ()) -> tuple[str, str]:
    """Return the name of the task on the data of a file, and the data in their text form.

    Args:
        path: The file; see `Table.read` and `Text.read`.
        columns: Names of the columns to take of a table.

    Raises:
        OSError: If the file does not exist or cannot be read.
        BadDocument: If it is neither a table nor a text.
        InvalidExperiment: If its data cannot be used.
    """
    return data_of(content_within_limits(path), ending_of(path), columns)


def data_of(content: bytes, ending: str, columns: Sequence[str] = ()) -> tuple[str, str]:
    """Return the name of the task on the content of a file, and the data in their text form.

    Args:
        content: Content of the file.
        ending: Ending of its name, as `ending_of` returns it.
        columns: Names of the columns to take of a table.

    Raises:
        BadDocument: If it is neither a table nor a text.
        InvalidExperiment: If its data cannot be used.
    """
    if ending == TEXT:
        if columns:
            raise BadDocument(tr("it is a text, which has no columns"))
        return Text.name, Text.text_form(text_of(content))
    rows = table_rows(content, ending, columns)
    kind = kind_of(len(rows[0]) if rows else 0)
    return kind.name, table_text(rows, kind.n_columns)
