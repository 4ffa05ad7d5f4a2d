"""The lessons on the static site: the text of docs/lessons, as HTML."""

from __future__ import annotations

import re
from html import escape

from attnkit.foundation.tables import Cell, html_list, html_table
from attnkit.site.frame import LOCAL_LAB, Page, lab_address, lab_button, paragraphs
from attnkit.ui.lab.classroom import Lesson, introduction, lessons

_LOCAL = (
    "This link opens a Lab on the own computer of whoever follows it. For a class, start attnkit "
    "so that others can reach it, and take the link from its Guide."
)

_MARKS = {r"\*\*(.+?)\*\*": "strong", r"\*(.+?)\*": "em", r"`(.+?)`": "code"}
"""Tag of each mark within a paragraph, by its pattern."""


def lessons_page() -> Page:
    """Return the page that lists the lessons."""
    links = (
        f'<a href="{_file_of(name)}">{escape(lesson.title)}</a>'
        for name, lesson in lessons().items()
    )
    body = paragraphs([introduction()]) + html_list(links)
    return Page("lessons.html", "Five lessons for a class", body)


def lesson_page(name: str, lesson: Lesson, lab: str) -> Page:
    """Return the page of a lesson.

    Args:
        name: Name of the lesson.
        lesson: The lesson.
        lab: Address of the Lab that the class opens.
    """
    link = f"<pre>{escape(lab_address(lab, lesson.query))}</pre>"
    button = lab_button("See it as the class will", lesson.query, lab)
    note = paragraphs([_LOCAL]) if lab == LOCAL_LAB else ""
    body = f"{markdown_html(lesson.before)}{link}{note}{button}{markdown_html(lesson.after)}"
    return Page(_file_of(name), lesson.title, body)


def markdown_html(text: str) -> str:
    """Return headings, paragraphs and tables of Markdown as HTML, with what stands out in them."""
    return "".join(map(_block, re.split(r"\n\s*\n", text.strip())))


def _block(text: str) -> str:
    heading = re.match("#+ ", text)
    if heading:
        level = heading.end() - 1
        return f"<h{level}>{_marked(text[heading.end() :])}</h{level}>"
    if not text.startswith("|"):
        return f"<p>{_marked(text)}</p>"
    head, _, *rows = (
        [_marked(cell.strip()) for cell in line.strip("| ").split("|")]
        for line in text.splitlines()
    )
    table = html_table(head, [[Cell(row[0], is_name=True), *row[1:]] for row in rows])
    return f'<div class="ak-wide" role="group" tabindex="0" aria-label="Results">{table}</div>'


def _marked(text: str) -> str:
    """Return the text of one line or paragraph as HTML."""
    html = escape(text)
    for pattern, tag in _MARKS.items():
        html = re.sub(pattern, rf"<{tag}>\1</{tag}>", html, flags=re.DOTALL)
    return html


def _file_of(name: str) -> str:
    return f"lesson_{name}.html"
