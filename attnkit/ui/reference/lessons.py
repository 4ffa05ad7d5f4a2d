"""The lessons of docs/lessons: the Guide shows the same text, with the address of this copy.

A translated lesson is a whole file, in the folder of its language: `docs/lessons/de`. Where there
is none, the lesson is in English.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from attnkit.foundation.language import ENGLISH, language
from attnkit.ui.address import LinkField
from attnkit.ui.server.launch import PORT, dashboard_script

_LINK_BEGINS, _LINK_ENDS = f"```text\nhttp://localhost:{PORT}/", "\n```\n"
"""Text before and after the query of the link for the class, in the file of a lesson."""


@dataclass(frozen=True)
class Lesson:
    """One lesson; its texts are Markdown.

    Attributes:
        title: The question that it asks.
        before: Text up to the link for the class.
        query: Query of that link, with its "?".
        after: Text after the link.
    """

    title: str
    before: str
    query: str
    after: str


def introduction() -> str:
    """Return for whom the lessons are, as Markdown; empty where docs/ is missing."""
    file = _folder() / "index.md"
    return file.read_text("utf-8").split("\n\n")[1] if file.is_file() else ""


def lessons() -> dict[str, Lesson]:
    """Return the lessons by name of their file, in the order in which they are taught."""
    return _lessons(language())


def lesson_field() -> LinkField[str]:
    """Return the field of a link that opens a lesson; empty for none."""
    return LinkField("lesson", "", {name: name for name in lessons()})


@cache
def _lessons(code: str) -> dict[str, Lesson]:
    """Return the lessons in a language."""
    files = {file.stem: file for file in sorted(_folder().glob("?_*.md"))}
    if code != ENGLISH:
        files |= {
            name: file for name in files if (file := _folder() / code / f"{name}.md").is_file()
        }
    return {name: _read(file.read_text("utf-8")) for name, file in files.items()}


def _folder() -> Path:
    return dashboard_script().parent / "docs" / "lessons"


def _read(text: str) -> Lesson:
    title, _, body = text.removeprefix("# ").partition("\n")
    before, _, rest = body.partition(_LINK_BEGINS)
    query, _, after = rest.partition(_LINK_ENDS)
    return Lesson(title, before.strip(), query, after.strip())
