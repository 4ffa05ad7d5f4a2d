"""Statements about two arms of a claim: their difference and the region in which it must lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from attnkit.claims.measures import MEASURES, Measure

RELEVANT_DIFFERENCE = 0.05
"""Smallest difference of accuracies that matters, unless a statement names another."""


@dataclass(frozen=True)
class Statement:
    """A difference between two arms, and the region in which it lies if the claim is true.

    Attributes:
        text: The statement in words.
        left: Name of an arm.
        right: Name of the arm that is subtracted from `left`; None for the left arm alone.
        measure: Name of a measure in `MEASURES`.
        low: Lower limit of the open region.
        high: Upper limit of the open region.
        second_left: Left arm of a second difference, which is subtracted from the first; None for
            no second difference.
        second_right: Right arm of the second difference.
        at: Multiple of the base steps at which the arms are read; an arm that is not trained for
            so long is read at its last step.
        unable: Whether the statement says that the left arm cannot do something. Then it must also
            hold after `LONGEST` times the steps, with a constant learning rate and with a schedule.
        if_held: What is found if the statement holds, in plain words; empty for `text`.
        if_not: What is found if it does not hold; empty for words that are made from the names.
    """

    text: str
    left: str
    right: str | None = None
    measure: str = "accuracy"
    low: float = -math.inf
    high: float = math.inf
    second_left: str | None = None
    second_right: str | None = None
    at: int = 1
    unable: bool = False
    if_held: str = ""
    if_not: str = ""

    def __post_init__(self) -> None:
        """Check the measure.

        Raises:
            ValueError: If there is no such measure, or if it counts pairs of seeds and the
                statement does not compare two arms at one limit.
        """
        if self.measure not in MEASURES:
            raise ValueError(f"measure: got {self.measure!r}, allowed {', '.join(MEASURES)}")
        if self.measured.compares_means:
            return
        one_sided = math.isinf(self.low) != math.isinf(self.high)
        if self.right is None or self.second_left is not None or not one_sided:
            allowed = ", ".join(
                name for name, measure in MEASURES.items() if measure.compares_means
            )
            raise ValueError(
                f"measure: got {self.measure!r}, which needs a left and a right arm and one limit; "
                f"allowed otherwise {allowed}"
            )

    def worded(self, *, held: str = "", failed: str = "") -> Statement:
        """Return this statement with plain words for what is found, see `if_held` and `if_not`."""
        return replace(self, if_held=held, if_not=failed)

    @property
    def measured(self) -> Measure:
        """The measure on which the arms are compared."""
        return MEASURES[self.measure]

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms that are compared."""
        names = (self.left, self.right, self.second_left, self.second_right)
        return tuple(name for name in names if name is not None)


def worse(
    left: str,
    right: str,
    by: float = RELEVANT_DIFFERENCE,
    *,
    measure: str = "accuracy",
    at: int = 1,
    unable: bool = False,
    text: str = "",
) -> Statement:
    """Return the statement that `left` is worse than `right` by more than an amount.

    Args:
        left: Name of an arm.
        right: Name of the arm that it is compared with.
        by: The amount, in the unit of the measure's values; accuracies go from 0 to 1.
        measure: Name of a measure of which one direction is better.
        at: Multiple of the base steps at which both are read.
        unable: Whether the statement says that `left` cannot do something, see `Statement`.
        text: The statement in words; by default written from the names.

    Raises:
        ValueError: If neither direction of the measure is better.
    """
    low, high = _beyond(-by, measure)
    text = text or f"{left} is worse than {right} by more than {_amount(measure, by)}"
    return Statement(text, left, right, measure, low, high, at=at, unable=unable)


def better(
    left: str,
    right: str,
    by: float = RELEVANT_DIFFERENCE,
    *,
    measure: str = "accuracy",
    at: int = 1,
    text: str = "",
) -> Statement:
    """Return the statement that `left` is better than `right` by more than an amount.

    Arguments are those of `worse`.
    """
    high, low = (-limit for limit in _beyond(-by, measure))
    text = text or f"{left} is better than {right} by more than {_amount(measure, by)}"
    return Statement(text, left, right, measure, low, high, at=at)


def no_worse(
    left: str,
    right: str,
    within: float = RELEVANT_DIFFERENCE,
    *,
    measure: str = "accuracy",
    at: int = 1,
    text: str = "",
) -> Statement:
    """Return the statement that `left` is worse than `right` by at most an amount.

    Arguments are those of `worse`.
    """
    high, low = (-limit for limit in _beyond(within, measure))
    text = text or f"{left} is at most {_amount(measure, within)} worse than {right}"
    return Statement(text, left, right, measure, low, high, at=at)


def _beyond(limit: float, measure: str) -> tuple[float, float]:
    """Return the region of differences that are worse than a limit; negative limits are worse.

    Raises:
        ValueError: If neither direction of the measure is better.
    """
    directions = {name: entry.better for name, entry in MEASURES.items() if entry.better}
    if measure not in directions:
        raise ValueError(f"measure: got {measure!r}, allowed {', '.join(directions)}")
    return (-math.inf, limit) if directions[measure] > 0 else (-limit, math.inf)


def _amount(name: str, amount: float) -> str:
    measure = MEASURES[name]
    number = f"{100 * amount:g}" if measure.unit == "points" else f"{amount:g}"
    title = f" of {measure.title}" if name not in ("accuracy", "loss") else ""
    return f"{number} {measure.unit}".strip() + title
