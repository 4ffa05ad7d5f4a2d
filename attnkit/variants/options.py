"""Options of a variant: the words of its text form besides the sharing, and their registry.

`Parts` are a sharing, the roles that are the token, and options, which check each other.

To add a way of sharing, register a subclass of `Option` with `register_option`, in a module of
this package or in a plugin, and add it to the catalogue. Reading, writing, costs, training, the
command line, the Lab and the law tests then support it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from attnkit.foundation.language import mark
from attnkit.foundation.registry import name_taken, origin_of
from attnkit.variants.sharing import Role, Sharing
from attnkit.variants.width import Width
from attnkit.variants.wiring import Rule

if TYPE_CHECKING:
    from attnkit.variants.wiring import Wiring

IDENTITY = "I"
"""Letter that marks a role without a matrix, which is the token itself."""


@dataclass(frozen=True)
class Option(Rule):
    """One word of a variant's text form, with its value.

    Class attributes:
        name: Name in the text form.
        help: What it does to the variant, in one plain sentence; a text from `mark`.
        allowed: Allowed values in words; empty if it takes no value.
        samples: Values for tests, as typed; None is the word without a value.
        place: Rank in the text form and in the order of application; equal ranks go by name.
        implied: Value that is equal to leaving the option out; text forms leave it out.
        asymmetric: Whether it makes scores asymmetric, even if queries and keys are tied.
        diagonal: Whether it multiplies tied queries and keys by different factors. Scores then
            stay symmetric unless positions rotate the vectors.
        least_layers: Smallest number of layers with which it has an effect.
        refuses: Why it does not go with some words: words with spaces between them → reason, a
            text from `mark`. A word is a sharing, a role without a matrix such as V=I, or the name
            of another option.

    Attributes:
        value: The value that was read; True without one.
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
    refuses: ClassVar[dict[str, str]] = {}

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read an option from the text after its `=`.

        Args:
            text: Text of the value; None if there is no `=`.

        Raises:
            ValueError: If the value is not allowed; the message, a text from `mark`, says what is.
        """
        if text is not None:
            raise ValueError(mark("no value: the bare word"))
        return cls()

    def __str__(self) -> str:
        return self.name if self.value is True else f"{self.name}={self.written}"

    @property
    def written(self) -> str:
        """Text of the value in the text form."""
        return str(self.value)

    def check(self, parts: Parts) -> None:
        """Raise ValueError, with the reason, if the rest of the variant excludes this option."""
        for words, reason in self.refuses.items():
            refuse(parts, self.name, *words.split(), because=reason)


@dataclass(frozen=True)
class Parts:
    """Parts of a variant; `text` is their canonical text form, which a `Variant` is.

    Attributes:
        sharing: Partition of the roles into classes of tied roles.
        identity: Tied roles that are the token itself; empty if all roles have a matrix.
        options: Options in the order in which they are applied.
    """

    sharing: Sharing
    identity: tuple[Role, ...]
    options: tuple[Option, ...]

    @cached_property
    def given(self) -> dict[str, Option]:
        """Options by name."""
        return {option.name: option for option in self.options}

    @cached_property
    def text(self) -> str:
        """Canonical text form."""
        words = [] if len(self.identity) > 1 else [self.sharing.value]
        if self.identity:
            words.append("=".join([*self.identity, IDENTITY]))
        return " ".join([*words, *map(str, self.options)])

    def checked(self) -> Parts:
        """Return the parts without options that change nothing.

        Raises:
            ValueError: If the parts do not go together; the message says why.
        """
        for option in self.options:
            option.check(self)
        kept = tuple(option for option in self.options if option.value != option.implied)
        return replace(self, options=kept)

    def replacing(self, option: Option) -> Parts:
        """Return the parts with this option instead of the option of the same name, if any."""
        options = tuple(option if old.name == option.name else old for old in self.options)
        return replace(self, options=options)

    def without(self, *names: str) -> Parts:
        """Return the parts without the options of these names."""
        kept = tuple(option for option in self.options if option.name not in names)
        return replace(self, options=kept)

    @cached_property
    def stages(self) -> tuple[Parts, ...]:
        """Parts with which the variant is trained in turn: its own, or untied and then tied.

        Raises:
            ValueError: If the parts of a stage do not go together.
        """
        if "tie" not in self.given:
            return (self,)
        before = self.without(*TIE_OPTIONS).checked()
        return before, replace(before.without("start"), sharing=self.given["tie"].value).checked()


class CountOption(Option):
    """An option whose value is a whole number from `low` to `high`."""

    value: int
    low: ClassVar[int] = 1
    high: ClassVar[int]

    @classmethod
    def read(cls, text: str | None) -> Self:
        digits = text is not None and text.isascii() and text.isdecimal()
        if text is None or not digits or not cls.low <= int(text) <= cls.high:
            raise ValueError(
                mark("a whole number from {low} to {high}", low=cls.low, high=cls.high)
            )
        return cls(int(text))


class WidthOption(Option):
    """An option whose value is a width, possibly relative to that of the model or of a head.

    Class attributes:
        adjustable: Whether a relative width may be changed to make the costs of variants equal.
    """

    value: Width
    adjustable: ClassVar[bool] = False
    allowed: ClassVar[str] = "a number, m (model width), d (head width), or as m/4, 2d, m/h"

    @classmethod
    def read(cls, text: str | None) -> Self:
        return cls(Width.read(text or ""))


class EvenWidthOption(WidthOption):
    """An option whose value is an even width."""

    allowed: ClassVar[str] = f"an even number, or {WidthOption.allowed.removeprefix('a number, ')}"

    def width(self, wiring: Wiring) -> int:
        """Return the width at the sizes of a variant. Raises ValueError if it is odd."""
        width = self.value.resolve(self.name, wiring.sizes)
        if width % 2:
            raise ValueError(
                mark(
                    "{name}={value} is {width} here, allowed an even number",
                    name=self.name,
                    value=self.value,
                    width=width,
                )
            )
        return width


class NumberOption(Option):
    """An option whose value is a number from `low` to `high`."""

    value: float
    low: ClassVar[float]
    high: ClassVar[float]

    @classmethod
    def read(cls, text: str | None) -> Self:
        try:
            number = float("" if text is None or "_" in text else text)
        except ValueError:
            number = float("nan")
        if not cls.low <= number <= cls.high:
            raise ValueError(mark("a number from {low:g} to {high:g}", low=cls.low, high=cls.high))
        return cls(number)

    @property
    def written(self) -> str:
        """Shortest text that is read as this number."""
        return repr(self.value).removesuffix(".0")


class ChoiceOption(Option):
    """An option whose value is one of `choices`."""

    value: str
    choices: ClassVar[tuple[str, ...]]

    @classmethod
    def read(cls, text: str | None) -> Self:
        for choice in cls.choices:
            if text is not None and choice.lower() == text.lower():
                return cls(choice)
        choices = ", ".join(cls.choices)
        raise ValueError(mark("one of {choices}", choices=choices) if cls.choices[1:] else choices)


TIE_OPTIONS = ("tie", "tie_by", "tie_at")
"""Names of the options for tying a variant during training."""

OPTIONS: dict[str, type[Option]] = {}
"""Every option by name, in the order of the text form."""

_OptionType = TypeVar("_OptionType", bound=type[Option])


def register_option(option_type: _OptionType) -> _OptionType:
    """Register an option, as a decorator of its class, so that text forms can contain it.

    Raises:
        ValueError: If another option has its name, or if its name or help is missing or invalid.
    """
    name, help_text = getattr(option_type, "name", ""), getattr(option_type, "help", "")
    if name != "O" and re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", str(name)) is None:
        raise ValueError(f"name: got {name!r}, allowed small letters, digits and underscores")
    if not isinstance(help_text, str) or not help_text:
        raise ValueError(f"help: {name} has none, allowed a plain sentence")
    registered = OPTIONS.get(name)
    if registered is not None and origin_of(registered) != origin_of(option_type):
        raise name_taken("name", name, origin_of(registered), origin_of(option_type))
    OPTIONS[name] = option_type
    ordered = sorted(OPTIONS.values(), key=lambda option: (option.place, option.name))
    OPTIONS.clear()
    OPTIONS.update({option.name: option for option in ordered})
    return option_type


def refuse(parts: Parts, name: str, *words: str, because: str) -> None:
    """Raise ValueError if a variant has any of these words besides the option `name`.

    Args:
        because: The reason, a text from `mark`.
    """
    without_matrix = {f"{role}={IDENTITY}" for role in parts.identity}
    present = {parts.sharing.value, *without_matrix, *parts.given} - {name}
    for word in words:
        if word in present:
            raise ValueError(
                # Translators: {reason} is a clause, such as "both define how keys are computed".
                mark(
                    "{name} does not go with {word}: {reason}", name=name, word=word, reason=because
                )
            )
