"""The words of a variant's text form besides its sharing: one class each, in one registry.

A new way to share is a subclass of `Option` in a module of this package (or anywhere, registered
with `register_option`), plus its entry in the catalogue. Reading, writing, accounting, training,
the command line, the Lab and the law tests take it from there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from attnkit.variants.rules import Rule
from attnkit.variants.wiring import Width

if TYPE_CHECKING:
    from attnkit.variants.text import Variant


@dataclass(frozen=True)
class Option(Rule):
    """One word of the text form, with its value.

    Class attributes:
        name: as typed.
        help: what it does, in one plain sentence.
        allowed: the values, in words; empty if there is none to give.
        samples: values to try, as typed; None is the bare word.
        place: options stand, and act, in this order; then by name.
        implied: the value that is the same as leaving it out, and is left out of texts.
        asymmetric: whether scores are no longer symmetric with it, whatever is tied.
        least_layers: below so many it changes nothing.
        diagonal: whether keys and queries that are tied differ by factors with it: scores stay
            symmetric unless positions turn the vectors.
    """

    value: Any = True
    name: ClassVar[str]
    help: ClassVar[str]
    allowed: ClassVar[str] = ""
    samples: ClassVar[tuple[str | None, ...]] = (None,)
    place: ClassVar[int] = 50
    implied: ClassVar[Any] = None
    asymmetric: ClassVar[bool] = False
    diagonal: ClassVar[bool] = False
    least_layers: ClassVar[int] = 1

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read what stands after the `=`; None if nothing does.

        Raises:
            ValueError: if it is not allowed.
        """
        if text is not None:
            raise ValueError("no value: the bare word")
        return cls()

    def __str__(self) -> str:
        return self.name if self.value is True else f"{self.name}={self.written}"

    @property
    def written(self) -> str:
        """The value as typed."""
        return str(self.value)

    def check(self, variant: Variant) -> None:
        """Raise ValueError, with the reason, if it does not go with the rest of the variant."""


class CountOption(Option):
    """An option whose value is a whole number from `low` to `high`."""

    value: int
    low: ClassVar[int] = 1
    high: ClassVar[int]

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read a whole number."""
        digits = text is not None and text.isascii() and text.isdecimal()
        if text is None or not digits or not cls.low <= int(text) <= cls.high:
            raise ValueError(f"a whole number from {cls.low} to {cls.high}")
        return cls(int(text))


class WidthOption(Option):
    """An option whose value is a width, possibly in terms of the model's or the head's.

    Class attributes:
        adjustable: whether it may be changed to make costs equal where it is given in such terms.
    """

    value: Width
    adjustable: ClassVar[bool] = False
    allowed: ClassVar[str] = "a number, m (model width), d (head width), or as m/4, 2d, m/h"

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read a width."""
        return cls(Width.read(text or ""))


class NumberOption(Option):
    """An option whose value is a number from `low` to `high`."""

    value: float
    low: ClassVar[float]
    high: ClassVar[float]

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read a number."""
        try:
            number = float("" if text is None or "_" in text else text)
        except ValueError:
            number = float("nan")
        if not cls.low <= number <= cls.high:
            raise ValueError(f"a number from {cls.low:g} to {cls.high:g}")
        return cls(number)

    @property
    def written(self) -> str:
        """The shortest text that reads as this number."""
        return repr(self.value).removesuffix(".0")


class ChoiceOption(Option):
    """An option whose value is one of `choices`."""

    value: str
    choices: ClassVar[tuple[str, ...]]

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read one of the choices, in any case."""
        for choice in cls.choices:
            if text is not None and choice.lower() == text.lower():
                return cls(choice)
        raise ValueError("one of " + ", ".join(cls.choices))


TIE_OPTIONS = ("tie", "tie_by", "tie_at")
"""Names of the options that say that a variant is tied during training."""

OPTIONS: dict[str, type[Option]] = {}
"""Every option by name, in the order in which they stand in a text."""

_Kind = TypeVar("_Kind", bound=type[Option])


def register_option(kind: _Kind) -> _Kind:
    """Add an option, as a decorator of its class; the text forms then know its name.

    Raises:
        ValueError: if another option has the name, or it lacks a name that can be typed or a help.
    """
    name, words = getattr(kind, "name", ""), getattr(kind, "help", "")
    if name != "O" and re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", str(name)) is None:
        raise ValueError(f"name: got {name!r}, allowed small letters, digits and underscores")
    if not isinstance(words, str) or not words:
        raise ValueError(f"help: {name} has none, allowed a plain sentence")
    known = OPTIONS.get(kind.name)
    if known is not None and known.__qualname__ != kind.__qualname__:
        raise ValueError(f"an option named {kind.name!r} is there already")
    OPTIONS[kind.name] = kind
    in_order = sorted(OPTIONS.values(), key=lambda option: (option.place, option.name))
    OPTIONS.clear()
    OPTIONS.update({option.name: option for option in in_order})
    return kind


def refuse(variant: Variant, name: str, *others: str, because: str) -> None:
    """Raise ValueError if any of the other options stands beside this one."""
    for other in others:
        if other in variant.given:
            raise ValueError(f"{name} does not go with {other}: {because}")
