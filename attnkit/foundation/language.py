"""Texts in the reader's language. The code has them in English, as whole sentences.

A text that a page shows goes through `tr`, or `tr_n` if it depends on a number. A text that is
written before it is known who reads it goes through `mark`, and through `tr` where it is shown:

>>> HELP = mark("At most {most} rows.", most=20)
>>> tr(HELP), tr("It takes {time}.", time="5 s"), tr_n("{n} seed", "{n} seeds", 3)
('At most 20 rows.', 'It takes 5 s.', '3 seeds')

Translations stand in `catalogues`, one file of GNU gettext per language. Which messages there are
is read from these calls, so a message is a literal: no f-string, and no name.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from gettext import GNUTranslations, NullTranslations
from importlib.resources import files
from io import BytesIO
from numbers import Real
from typing import Any

ENGLISH = "en"
"""Language of the code."""

LANGUAGES = {ENGLISH: "English", "de": "Deutsch", "es": "Español"}
"""Languages by code, each called by its own name."""

_reading: ContextVar[str | None] = ContextVar("reading", default=None)
_source: list[Callable[[], str]] = [lambda: ENGLISH]


class Message(str):
    """An English text, with values in it or not, which can still be translated.

    Attributes:
        template: The text with the names of values in braces.
        values: The values by name.
    """

    __slots__ = ("template", "values")

    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, values: dict[str, Any]) -> Message:
        """Return the English text; without values, the template is this text."""
        message = super().__new__(cls, template.format(**values) if values else template)
        message.template, message.values = template, values
        return message

    def __reduce__(self) -> tuple[type[Message], tuple[str, dict[str, Any]]]:
        return Message, (self.template, self.values)


def mark(message: str, /, **values: Any) -> str:
    """Return an English text that `tr` translates where it is shown.

    Args:
        message: The text, with names of values in braces if there are values.
        values: The values, which may be marked texts themselves.
    """
    return Message(message, values)


def packed(text: Any) -> Any:
    """Return a marked text as a dictionary for JSON, and any other value unchanged."""
    if not isinstance(text, Message):
        return text
    values = {
        name: packed(value) if isinstance(value, str | int | float) else str(value)
        for name, value in text.values.items()
    }
    return {"text": text.template, "values": values}


def unpacked(value: Any) -> Any:
    """Return what `packed` was given."""
    if not isinstance(value, dict) or value.keys() != {"text", "values"}:
        return value
    values = {name: unpacked(part) for name, part in value["values"].items()}
    return Message(value["text"], values)


def tr(message: str, /, **values: Any) -> str:
    """Return a text in the reader's language; in English if it has no translation.

    Args:
        message: The English text, with names of values in braces if there are values; or a text
            from `mark`.
        values: The values; marked texts among them are translated, too.
    """
    if isinstance(message, Message):
        return tr(message.template, **{**message.values, **values})
    text = _catalogue(language()).gettext(message) if message else ""
    return _filled(text, values) if values else text


def tr_n(one: str, several: str, n: float, /, **values: Any) -> str:
    """Return a text about a number of things in the reader's language, such as "3 seeds".

    Args:
        one: The English text for one thing, with names of values in braces.
        several: The English text for any other number.
        n: The number; `{n}` in the texts.
        values: Further values.
    """
    text = _catalogue(language()).ngettext(one, several, int(n) if n == int(n) else 2)
    return _filled(text, {"n": n, **values})


def language() -> str:
    """Return the code of the language of whoever reads what is written now."""
    return _reading.get() or _source[0]()


def set_language_source(source: Callable[[], str]) -> None:
    """Set the function that returns the code of the reader's language for each text."""
    _source[0] = source


@contextmanager
def reading(code: str) -> Iterator[None]:
    """Write all texts within a `with` block in one language."""
    token = _reading.set(code)
    try:
        yield
    finally:
        _reading.reset(token)


@cache
def script_messages(code: str) -> dict[str, dict[str, str | list[str]]]:
    """Return the translations of messages in JavaScript, by file of the script and English text.

    What depends on a number has a text for one thing and a text for any other number.
    """
    found: dict[str, dict[str, str | list[str]]] = {}
    for message in [] if code == ENGLISH else _read(code):
        one, *_ = message.id if isinstance(message.id, tuple) else (message.id,)
        texts = message.string if isinstance(message.string, tuple) else (message.string,)
        for file, _line in message.locations:
            if file.endswith(".js") and all(texts) and not message.fuzzy:
                here = found.setdefault(file.rpartition("/")[2], {})
                here[one] = list(texts) if len(texts) > 1 else texts[0]
    return found


@cache
def _catalogue(code: str) -> NullTranslations:
    """Return the translations into a language."""
    if code == ENGLISH:
        return NullTranslations()
    from babel.messages.mofile import write_mo

    compiled = BytesIO()
    write_mo(compiled, _read(code))
    compiled.seek(0)
    return GNUTranslations(compiled)


@cache
def _read(code: str) -> Any:
    """Return the file with the translations into a language, as Babel reads it."""
    from babel.messages.pofile import read_po

    path = files("attnkit").joinpath("foundation", "catalogues", f"{code}.po")
    with path.open("rb") as file:
        return read_po(file, locale=code)


_SPACE = "\N{NARROW NO-BREAK SPACE}"
"""What other languages than English write between groups of digits, and before a percent sign."""


_GROUPED_FROM = {"es": 10_000}
"""Smallest number whose digits are grouped, where it is not 1,000."""


def in_language(text: str, number: Any) -> str:
    """Return the English text of a number as the reader's language groups it and writes percent.

    The decimal point stays in every language, as in figures and files.
    """
    code = language()
    if code == ENGLISH:
        return text
    space = _SPACE if abs(number) >= _GROUPED_FROM.get(code, 1000) else ""
    return text.replace(",", space).replace("%", f"{_SPACE}%")


class _Formatter(string.Formatter):
    """Fills texts like `str.format`, with numbers as the language writes them."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        """Return a value as text; a marked text is translated."""
        if isinstance(value, Message):
            value = tr(value)
        text = super().format_field(value, format_spec)
        return in_language(text, value) if isinstance(value, Real) else text


def _filled(text: str, values: dict[str, Any]) -> str:
    return _Formatter().vformat(text, (), values)
