"""Widths of vectors as typed in a text form: numbers, or multiples of the sizes of the model."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from attnkit.foundation.language import mark

if TYPE_CHECKING:
    from attnkit.variants.wiring import Sizes

WIDEST = 256
"""Largest width of a vector, per head."""


@dataclass(frozen=True)
class Width:
    """A width as typed: a number, or a multiple or fraction of `m` (d_model) or `d` (d_head).

    `m/h` is d_model divided by the number of heads, the usual width of a head.
    """

    count: int
    letter: str = ""
    divisor: int | str = 1

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a width such as `12`, `m`, `m/4`, `2d` or `m/h`.

        Raises:
            ValueError: If the text is no width.
        """
        match = re.fullmatch(r"([1-9]\d{0,2})?([md])?(?:/([1-9]\d{0,2}|h))?", text.strip().lower())
        if match is None or not (match[1] or match[2]) or (match[3] and not match[2]):
            raise ValueError(
                mark("a width: a number, or m (model width), d (head width), m/4, 2d, m/h")
            )
        count, letter, divisor = int(match[1] or 1), match[2] or "", match[3] or "1"
        if divisor == "h":
            return cls(count, letter, "h")
        common = math.gcd(count, int(divisor))
        return cls(count // common, letter, int(divisor) // common)

    def __str__(self) -> str:
        if not self.letter:
            return str(self.count)
        divisor = "" if self.divisor == 1 else f"/{self.divisor}"
        return f"{self.count if self.count > 1 else ''}{self.letter}{divisor}"

    def resolve(self, name: str, sizes: Sizes) -> int:
        """Return the width at these sizes.

        Raises:
            ValueError: If it is no whole number from 1 to `WIDEST`.
        """
        dividend = self.count * {"": 1, "m": sizes.d_model, "d": sizes.d_head}[self.letter]
        divisor = sizes.n_heads if isinstance(self.divisor, str) else self.divisor
        width, remainder = divmod(dividend, divisor)
        if remainder:
            raise ValueError(
                mark(
                    "{name}={value} is {dividend}/{divisor} here, which is no whole number",
                    name=name,
                    value=self,
                    dividend=dividend,
                    divisor=divisor,
                )
            )
        if not 1 <= width <= WIDEST:
            raise ValueError(
                mark(
                    "{name}={value} is {width} here, allowed 1 to {widest}",
                    name=name,
                    value=self,
                    width=width,
                    widest=WIDEST,
                )
            )
        return width
