"""Statements about two arms of a claim: their difference and the region in which it must lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from attnkit.claims.measures import MEASURES, Measure

RELEVANT_DIFFERENCE = 0.05
"""Smallest difference of accuracies that matters, unless a statement names another."""

Word = Literal["better", "worse"]

_UNNAMED = ("accuracy", "longest_accuracy", "mean_accuracy", "loss")
"""Measures that a comparison does not name."""


@dataclass(frozen=True)
class Statement:
    """A difference between two arms, and the region in which it lies if the claim is true.

    Attributes:
        text: The statement in words, without a full stop.
        opposite: What is found if the statement does not hold, in positive words.
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
        in_words: Subject with its verb, and object, of sentences about the arms; None for the names
            of the arms.
    """

    text: str
    opposite: str
    left: str
    right: str | None = None
    measure: str = "accuracy"
    low: float = -math.inf
    high: float = math.inf
    second_left: str | None = None
    second_right: str | None = None
    at: int = 1
    unable: bool = False
    in_words: tuple[str, str] | None = None

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

    @property
    def measured(self) -> Measure:
        """The measure on which the arms are compared."""
        return MEASURES[self.measure]

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms that are compared."""
        names = (self.left, self.right, self.second_left, self.second_right)
        return tuple(name for name in names if name is not None)

    @property
    def asserts_difference(self) -> bool:
        """Whether the statement says that its arms differ, instead of differing by little."""
        return not self.low < 0 < self.high

    @property
    def counts_better(self) -> bool:
        """Whether the pairs beyond the limit are those in which the left arm is better."""
        counts_higher = math.isinf(self.high) == self.asserts_difference
        return counts_higher == (self.measured.better > 0)

    @property
    def more_often(self) -> str:
        """Sentence on a finding in which no more than half of the pairs lie beyond the limit."""
        subject, object_ = self.in_words or _subject_and_object(self.left, self.right or "", "is")
        name, _, verb = subject.rpartition(" ")
        ending = "s" if verb in ("is", "has") else ""
        change = f"get{ending} ahead of" if self.counts_better else f"fall{ending} behind"
        return f"{name} {change} {object_} more often{_in_measure(self.measured)}"


def worse(
    left: str,
    right: str,
    by: float = RELEVANT_DIFFERENCE,
    *,
    measure: str = "accuracy",
    at: int = 1,
    unable: bool = False,
    text: str = "",
    in_words: tuple[str, str] | None = None,
) -> Statement:
    """Return the statement that `left` is worse than `right` by more than an amount.

    Args:
        left: Name of an arm.
        right: Name of the arm that it is compared with.
        by: The amount, in the unit of the measure's values; accuracies go from 0 to 1.
        measure: Name of a measure of which one direction is better.
        at: Multiple of the base steps at which both are read.
        unable: Whether the statement says that `left` cannot do something, see `Statement`.
        text: The statement in words; by default written like its opposite.
        in_words: See `Statement`, as in ("On recall, two key heads are", "four").

    Raises:
        ValueError: If neither direction of the measure is better.
    """
    return _compared(left, right, by, "worse", True, measure, at, unable, text, in_words)


def better(
    left: str,
    right: str,
    by: float = RELEVANT_DIFFERENCE,
    *,
    measure: str = "accuracy",
    at: int = 1,
    text: str = "",
    in_words: tuple[str, str] | None = None,
) -> Statement:
    """Return the statement that `left` is better than `right` by more than an amount.

    Arguments are those of `worse`.
    """
    return _compared(left, right, by, "better", True, measure, at, False, text, in_words)


def no_worse(
    left: str,
    right: str,
    within: float = RELEVANT_DIFFERENCE,
    *,
    measure: str = "accuracy",
    at: int = 1,
    text: str = "",
    in_words: tuple[str, str] | None = None,
) -> Statement:
    """Return the statement that `left` is worse than `right` by at most an amount.

    Arguments are those of `worse`.
    """
    return _compared(left, right, within, "worse", False, measure, at, False, text, in_words)


def _compared(
    left: str,
    right: str,
    by: float,
    word: Word,
    is_beyond: bool,
    measure: str,
    at: int,
    unable: bool,
    text: str,
    in_words: tuple[str, str] | None,
) -> Statement:
    """Return the statement that `left` is better or worse than `right`, beyond an amount or not.

    Raises:
        ValueError: If neither direction of the measure is better.
    """
    directions = {name: entry.better for name, entry in MEASURES.items() if entry.better}
    if measure not in directions:
        raise ValueError(f"measure: got {measure!r}, allowed {', '.join(directions)}")
    held, opposite = (
        _sentence(MEASURES[measure], left, right, by, word, beyond, in_words)
        for beyond in (is_beyond, not is_beyond)
    )
    direction = directions[measure] if word == "better" else -directions[measure]
    limit = direction * by
    low, high = (limit, math.inf) if is_beyond == (direction > 0) else (-math.inf, limit)
    return Statement(
        text or held,
        opposite,
        left,
        right,
        measure,
        low,
        high,
        at=at,
        unable=unable,
        in_words=in_words,
    )


def _sentence(
    measure: Measure,
    left: str,
    right: str,
    by: float,
    word: Word,
    is_beyond: bool,
    in_words: tuple[str, str] | None,
) -> str:
    """Return the sentence that `left` is better or worse than `right`, beyond an amount or not."""
    is_mean = not by and measure.compares_means
    named = _subject_and_object(left, right, "has" if is_mean else "is")
    if measure.unit == "doublings":
        left, right = named[0].removesuffix(" is"), named[1]
        slow, fast = (left, right) if word == "worse" else (right, left)
        how_many = "more than" if is_beyond else "at most"
        return f"{slow} needs {how_many} {2**by:g} times the steps of {fast}"
    subject, object_ = in_words or named
    if is_mean:
        is_higher = (is_beyond == (word == "better")) == (measure.better > 0)
        return f"{subject} a {'higher' if is_higher else 'lower'} {measure.title} than {object_}"
    if not by and not is_beyond:
        return f"{subject} at {'most' if word == 'better' else 'least'} as good as {object_}"
    if not by:
        return f"{subject} {word} than {object_}"
    number = f"{100 * by:g}" if measure.unit == "points" else f"{by:g}"
    amount = f"{number} {measure.unit}".rstrip()
    where = _in_measure(measure)
    if is_beyond:
        return f"{subject} {word} than {object_} by more than {amount}{where}"
    return f"{subject} at most {amount} {word} than {object_}{where}"


def _subject_and_object(left: str, right: str, verb: str) -> tuple[str, str]:
    """Return the names of two arms as subject, with a verb, and object of a sentence.

    If both names end with the same condition, the sentence begins with it.
    """
    (left_name, _, condition), (right_name, _, other) = left.partition(", "), right.partition(", ")
    if condition and condition == other:
        left, right = f"{condition[0].upper()}{condition[1:]}: {left_name}", right_name
    return f"{left} {verb}", right


def _in_measure(measure: Measure) -> str:
    """Return the words that name a measure at the end of a comparison; empty for common ones."""
    return "" if measure.name in _UNNAMED else f" in {measure.title}"
