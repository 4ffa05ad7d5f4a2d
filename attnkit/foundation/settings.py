"""What is known of a setting for widgets, help texts and errors, and what a wrong one is called."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

PREFIX = "ATTNKIT_"
"""Beginning of the name of every environment variable that is a setting."""


@dataclass(frozen=True)
class Problem:
    """One wrong setting: which, what was given, what is allowed, what it disagrees with.

    Attributes:
        allowed: in words; or, beginning with "but", why the value is none.
    """

    field: str
    value: Any
    allowed: str
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        allowed = self.allowed if self.allowed.startswith("but ") else f"allowed {self.allowed}"
        return f"{shown(self.field)}: got {shown(self.value, quoted=True)}, {allowed}"

    @property
    def sentence(self) -> str:
        """The same with its full stop, for a page."""
        return ended(str(self))

    def on_screen(self, labels: Mapping[str, str]) -> str:
        """Return the problem as a sentence that calls settings by their labels.

        Args:
            labels: label by name of setting; a name that is none of them is left as it is.
        """
        label = labels.get(self.field, self.field[:1].upper() + self.field[1:])
        if self.allowed.startswith("but "):
            return ended(f"{label}: {shown(self.value)}, {self.allowed}")
        allowed = re.sub(
            r"\w+_\w+", lambda found: f"“{labels.get(found[0], found[0])}”", self.allowed
        )
        wrong = "empty" if self.value in (None, "") else f"{shown(self.value)} is not allowed"
        return ended(f"{label}: {wrong}. Allowed: {allowed}")


def shown(value: Any, *, quoted: bool = False, most: int = 60) -> str:
    """Return a value for an error message: printable, on one line, with at most `most` characters.

    Args:
        quoted: whether a text stands in quotation marks.
    """
    text = repr(value) if isinstance(value, str) else str(value)
    if isinstance(value, float):
        text = text.removesuffix(".0")
    if isinstance(value, str) and not quoted:
        text = text[1:-1]
    return text if len(text) <= most else text[: most - 3] + "..."


def names(known: Iterable[str], given: str) -> str:
    """Return the known names for an error message, and which one of them may have been meant."""
    known = list(known)
    close = difflib.get_close_matches(given.lower(), known, n=1)
    return ", ".join(known) + (f" (did you mean {close[0]}?)" if close else "")


def ended(text: str) -> str:
    """A text with a full stop, unless it is a question."""
    return text if text.endswith("?") else f"{text}."


class InvalidExperiment(ValueError):
    """Settings that make no experiment; `problems` lists every wrong field."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))

    def __reduce__(self) -> tuple[type[InvalidExperiment], tuple[list[Problem]]]:
        return type(self), (self.problems,)


class InvalidSettings(ValueError):
    """An environment variable that cannot be read; the message names it."""


def dial(
    default: Any, label: str, help: str, *, choice_labels: tuple[str, ...] = (), **bounds: Any
) -> Any:
    """Return a field whose label, help and bounds stand here and nowhere else.

    Command line, link and widgets read them from the model's fields.

    Args:
        choice_labels: what the choices are called on screen, in their order; without it they are
            called as in links.
    """
    extra: dict[str, Any] | None = {"choice_labels": [*choice_labels]} if choice_labels else None
    return Field(default, title=label, description=help, json_schema_extra=extra, **bounds)


def disagreement(field: str, value: Any, allowed: str, *others: str) -> PydanticCustomError:
    """The error of settings that are each allowed, but not together.

    Args:
        field: the one to name. others: those it disagrees with.
    """
    context = {"field": field, "value": value, "allowed": allowed, "others": others}
    return PydanticCustomError("disagreement", "{field}: got {value}, allowed {allowed}", context)


@dataclass(frozen=True)
class Setting:
    """What a widget, a help text or an error needs to know of one setting."""

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

    def label_of(self, choice: str) -> str:
        """Return what a choice is called on screen."""
        labels = dict(zip(self.choices, self.choice_labels, strict=False))
        return labels.get(choice, choice.replace("_", " "))

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        if self.kind is bool:
            return "true or false"
        if self.choices:
            return " or ".join(self.choices)
        noun = {int: "a whole number", float: "a number"}.get(self.kind, "a text")
        if self.multiple_of:
            noun = (
                "an even number" if self.multiple_of == 2 else f"a multiple of {self.multiple_of}"
            )
        return noun if self.low is None else f"{noun} from {self.low:g} to {self.high:g}"


def setting_of(name: str, info: FieldInfo, default: Any) -> Setting:
    """Read a field: its label, help, bounds and choices stand on it and nowhere else."""
    extra = info.json_schema_extra
    labels = extra.get("choice_labels", ()) if isinstance(extra, dict) else ()
    assert isinstance(labels, list | tuple)
    bounds = {
        key: getattr(meta, key)
        for meta in info.metadata
        for key in ("ge", "le", "multiple_of")
        if hasattr(meta, key)
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
    )
