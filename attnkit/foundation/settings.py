"""Descriptions of settings for widgets, help texts and errors, and the errors of wrong settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from attnkit.foundation.language import Message, mark, tr
from attnkit.foundation.spelling import nearest_name

PREFIX = "ATTNKIT_"
"""Prefix of the environment variables that hold settings."""


Value = bool | int | float | str
"""A value of a setting."""


@dataclass(frozen=True)
class Problem:
    """One wrong setting of an experiment.

    `str` returns the problem in English, as Python and the command line show it.

    Attributes:
        field: Name of the setting.
        value: Value that was given; a text of `mark` is translated.
        allowed: Allowed values, in words; or, beginning with "but", why the value is not allowed.
            It is translated where a page shows it, if it is a text of `mark` or `but`.
        others: Names of the settings with which the value disagrees.
    """

    field: str
    value: Any
    allowed: str
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return str(self.message)

    @property
    def message(self) -> str:
        """The problem without a full stop, still to be translated."""
        field, value = shown(self.field), self.value
        value = value if isinstance(value, Message) else shown(value, quoted=True)
        if self.has_reason:
            return mark(
                "{label}: got {value}, {but_reason}",
                label=field,
                value=value,
                but_reason=_part(self.allowed),
            )
        return mark(
            "{label}: got {value}, allowed {allowed}",
            label=field,
            value=value,
            allowed=_part(self.allowed),
        )

    @property
    def has_reason(self) -> bool:
        """Whether `allowed` says why the value is not allowed, not which values are."""
        return self.allowed.startswith("but ")

    @property
    def sentence(self) -> str:
        """Error message with a full stop, for a page."""
        return as_sentence(tr(self.message))

    @property
    def reason(self) -> str:
        """Why the value is not allowed, without "but"; or which values are allowed."""
        if isinstance(self.allowed, Message) and self.allowed.template == _BUT:
            return tr(self.allowed.values["reason"])
        return tr(self.allowed) if not self.has_reason else self.allowed.removeprefix("but ")

    def on_screen(self, labels: Mapping[str, str]) -> str:
        """Return the problem as a sentence that calls settings by their labels.

        Args:
            labels: Label of each setting, by its name; other names stay as they are.
        """
        label = tr(labels.get(self.field, self.field[:1].upper() + self.field[1:]))
        value = shown(tr(self.value) if isinstance(self.value, Message) else self.value)
        allowed = tr(self.allowed)
        if self.has_reason:
            return as_sentence(f"{label}: {value}, {allowed}")
        allowed = re.sub(
            r"\w+_\w+", lambda match: f"“{tr(labels.get(match[0], match[0]))}”", allowed
        )
        if self.value in (None, ""):
            text = tr("{label}: empty. Allowed: {allowed}", label=label, allowed=allowed)
        else:
            text = tr(
                "{label}: {value} is not allowed. Allowed: {allowed}",
                label=label,
                value=value,
                allowed=allowed,
            )
        return as_sentence(text)


_BUT = "but {reason}"
"""Template of what `but` returns."""


def but(reason: str | Exception) -> str:
    """Return the reason why a value is not allowed, as `Problem.allowed` has it.

    Args:
        reason: The reason: a sentence without a full stop, or an error with such a message.
    """
    text = _part(reason if isinstance(reason, str) else message_of(reason))
    # Translators: The reason follows the value that is not allowed.
    return mark("but {reason}", reason=text)


def message_of(error: BaseException) -> str:
    """Return the message of an error, which can still be translated if it is a text of `mark`."""
    message = error.args[0] if len(error.args) == 1 else None
    return message if isinstance(message, Message) else str(error)


def _part(text: str) -> str:
    """Return a text in a form in which it is translated within another one."""
    return text if isinstance(text, Message) else Message(text, {})


def shown(value: Any, *, quoted: bool = False, most: int = 60) -> str:
    """Return a value for an error message: printable and on one line.

    Args:
        value: Value of any type.
        quoted: Whether a text gets quotation marks.
        most: Largest number of characters; a longer text is cut.
    """
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except ValueError:  # Python refuses to print an integer of thousands of digits
        text = tr("a huge number")
    if isinstance(value, float):
        text = text.removesuffix(".0")
    if isinstance(value, str) and not quoted:
        text = text[1:-1]
    return text if len(text) <= most else text[: most - 3] + "..."


def allowed_names(allowed: Iterable[str], typed: str) -> str:
    """Return the allowed names for an error message, with a suggestion if `typed` is similar."""
    names = list(allowed)
    nearest = nearest_name(str(typed).lower(), names)
    if not nearest:
        return ", ".join(names)
    return mark("{names} (did you mean {nearest}?)", names=", ".join(names), nearest=nearest)


def as_sentence(text: str) -> str:
    """Return a text with a full stop, or unchanged if it is a question."""
    return text if text.endswith("?") else f"{text}."


class InvalidExperiment(ValueError):
    """Error for settings that are not allowed; `problems` lists every wrong setting."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        text = problems[0].message if problems else ""
        for problem in problems[1:]:
            text = mark("{problems}; {another}", problems=text, another=problem.message)
        super().__init__(text)

    def __reduce__(self) -> tuple[type[InvalidExperiment], tuple[list[Problem]]]:
        return type(self), (self.problems,)


class InvalidSettings(ValueError):
    """Error for an environment variable that cannot be read; the message names it."""


def dial(
    default: Any, label: str, help: str, *, choice_labels: tuple[str, ...] = (), **bounds: Any
) -> Any:
    """Return a pydantic field for a setting, with its label, help text and bounds.

    The command line, links and widgets read them from here, their only source.

    Args:
        default: Default value.
        label: Name of the setting on screen.
        help: Help text on screen and on the command line.
        choice_labels: Names of the choices on screen, in their order; by default those in links.
        bounds: Further arguments of `pydantic.Field`: `ge`, `le`, `multiple_of`.
    """
    extra: dict[str, Any] | None = {"choice_labels": [*choice_labels]} if choice_labels else None
    return Field(default, title=label, description=help, json_schema_extra=extra, **bounds)


def disagreement(field: str, value: Any, allowed: str, *others: str) -> PydanticCustomError:
    """Return the error for a setting whose value is allowed, but not with other settings' values.

    Args:
        field: Name of the wrong setting.
        value: Value of the wrong setting.
        allowed: Allowed values, in words.
        others: Names of the settings with which it disagrees.
    """
    context = {"field": field, "value": value, "allowed": allowed, "others": others}
    return PydanticCustomError("disagreement", "{field}: got {value}, allowed {allowed}", context)


@dataclass(frozen=True)
class Setting:
    """Description of one setting, for widgets, help texts and errors.

    Attributes:
        name: Name in code.
        label: Name on screen.
        help: Help text.
        default: Default value.
        kind: Type of the values.
        low: Smallest value; None for a setting without bounds.
        high: Largest value; None for a setting without bounds.
        multiple_of: Number that divides every value; None for any value.
        choices: Allowed texts; empty if there are no fixed choices.
        choice_labels: Names of the choices on screen; empty if they are those in `choices`.
        info: The pydantic field, by which values are read.
    """

    name: str
    label: str
    help: str
    default: Any
    kind: type
    low: float | None = None
    high: float | None = None
    multiple_of: int | None = None
    choices: tuple[str, ...] = ()
    choice_labels: tuple[str, ...] = ()
    info: FieldInfo = field(default_factory=FieldInfo, compare=False, repr=False)

    def read(self, value: Any) -> Value:
        """Convert a value of a link, a file or a program to the type of the field.

        Raises:
            ValueError: If the value is not allowed; `allowed` says which values are.
        """
        if isinstance(value, bool) and self.kind is not bool:
            raise ValueError("a number or a text is neither true nor false")
        if self.kind is int and has_separator(value):
            raise ValueError("a whole number has no separators")
        try:
            read: Value = _reader(self).validate_python(value)
        except OverflowError as error:
            raise ValueError("too large a number") from error
        return read

    def label_of(self, choice: str) -> str:
        """Return the name of a choice on screen."""
        labels = dict(zip(self.choices, self.choice_labels, strict=False))
        return labels.get(choice, choice.replace("_", " "))

    @property
    def allowed(self) -> str:
        """Allowed values, in words."""
        low, high = self.low, self.high
        if self.kind is bool:
            return mark("true or false")
        if self.choices:
            allowed, *others = self.choices
            for choice in others:
                allowed = mark("{others} or {last}", others=allowed, last=choice)
            return allowed
        if self.multiple_of == 2:
            if low is None:
                return mark("an even number")
            return mark("an even number from {low:g} to {high:g}", low=low, high=high)
        if self.multiple_of:
            number = self.multiple_of
            if low is None:
                return mark("a multiple of {number}", number=number)
            return mark(
                "a multiple of {number} from {low:g} to {high:g}", number=number, low=low, high=high
            )
        if self.kind is int:
            if low is None:
                return mark("a whole number")
            return mark("a whole number from {low:g} to {high:g}", low=low, high=high)
        if self.kind is float:
            if low is None:
                return mark("a number")
            return mark("a number from {low:g} to {high:g}", low=low, high=high)
        return mark("a text")


def has_separator(value: Any) -> bool:
    """Return whether a text has a point: "1.000" is a thousand in some countries, and 1 in others.

    Neither is guessed where a whole number is read.
    """
    return isinstance(value, str) and "." in value


def setting_of(name: str, info: FieldInfo, default: Any) -> Setting:
    """Return the description of a setting, read from its pydantic field."""
    extra = info.json_schema_extra
    labels = extra.get("choice_labels", ()) if isinstance(extra, dict) else ()
    assert isinstance(labels, list | tuple)
    bounds = {
        key: getattr(bound, key)
        for bound in info.metadata
        for key in ("ge", "le", "multiple_of")
        if hasattr(bound, key)
    }
    choices = get_args(info.annotation)
    kind = str if choices else info.annotation
    assert isinstance(kind, type)
    return Setting(
        name,
        info.title or name,
        info.description or "",
        default,
        kind,
        bounds.get("ge"),
        bounds.get("le"),
        bounds.get("multiple_of"),
        choices,
        tuple(map(str, labels)),
        info,
    )


@lru_cache(256)
def _reader(setting: Setting) -> TypeAdapter[Any]:
    form: Any = Annotated[setting.info.annotation, setting.info]
    return TypeAdapter(form)
