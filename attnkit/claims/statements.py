"""Statements about two arms of a claim: their difference and the region in which it must lie.

Names of arms are in English in records and statements; `named` and `label_of` translate them. A
name has parts between commas. A part is the name of a variant, which stays as it is, or words.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal, get_args

from attnkit.claims.measures import MEASURES, Measure
from attnkit.foundation.language import Message, mark

RELEVANT_DIFFERENCE = 0.05
"""Smallest difference of accuracies that matters, unless a statement names another."""

Kind = Literal["worse", "no_worse", "better"]

KINDS: tuple[Kind, ...] = get_args(Kind)

Word = Literal["better", "worse"]

_UNNAMED = ("accuracy", "longest_accuracy", "mean_accuracy", "loss")
"""Measures that a comparison does not name."""

_BEYOND: dict[tuple[Word, str], str] = {
    ("better", "points"): mark("{left} is better than {right} by more than {amount:g} points"),
    ("better", "nats"): mark("{left} is better than {right} by more than {amount:g} nats"),
    ("better", ""): mark("{left} is better than {right} by more than {amount:g}"),
    ("worse", "points"): mark("{left} is worse than {right} by more than {amount:g} points"),
    ("worse", "nats"): mark("{left} is worse than {right} by more than {amount:g} nats"),
    ("worse", ""): mark("{left} is worse than {right} by more than {amount:g}"),
}
"""Comparisons beyond an amount, by word and unit."""

_WITHIN: dict[tuple[Word, str], str] = {
    ("better", "points"): mark("{left} is at most {amount:g} points better than {right}"),
    ("better", "nats"): mark("{left} is at most {amount:g} nats better than {right}"),
    ("better", ""): mark("{left} is at most {amount:g} better than {right}"),
    ("worse", "points"): mark("{left} is at most {amount:g} points worse than {right}"),
    ("worse", "nats"): mark("{left} is at most {amount:g} nats worse than {right}"),
    ("worse", ""): mark("{left} is at most {amount:g} worse than {right}"),
}
"""Comparisons within an amount, by word and unit."""

_AT_ALL: dict[tuple[Word, bool], str] = {
    ("better", True): mark("{left} is better than {right}"),
    ("better", False): mark("{left} is at most as good as {right}"),
    ("worse", True): mark("{left} is worse than {right}"),
    ("worse", False): mark("{left} is at least as good as {right}"),
}
"""Comparisons without an amount, by word and whether they say that the arms differ."""

_HIGHER = {
    "loss": mark("{left} has a higher loss than {right}"),
    "loss_all_along": mark("{left} has a higher mean loss during training than {right}"),
    "mean_accuracy": mark("{left} has a higher mean accuracy than {right}"),
}
_LOWER = {
    "loss": mark("{left} has a lower loss than {right}"),
    "loss_all_along": mark("{left} has a lower mean loss during training than {right}"),
    "mean_accuracy": mark("{left} has a lower mean accuracy than {right}"),
}
"""Comparisons of means without an amount, by measure."""

_AFTER = {
    "constant": (
        mark("{sentence}, also after {steps:,} steps with a constant learning rate"),
        mark("{sentence} after {steps:,} steps with a constant learning rate"),
    ),
    "cosine": (
        mark("{sentence}, also after {steps:,} steps with a cosine learning rate"),
        mark("{sentence} after {steps:,} steps with a cosine learning rate"),
    ),
}
"""Statements that confirm an inability, and what is found if they do not hold, by schedule."""

_WITH_NUMBERS = (
    mark("{steps:,} steps"),
    mark("{n} entries"),
    mark("{n} pairs"),
    mark("1 head of {width}"),
    mark("{n} heads"),
    mark("{n} heads of {width}"),
    mark("{n} layers"),
    mark("{width} wide"),
    mark("MLP {width}"),
    mark("rank {rank} in a head of {width}"),
    mark("skew part of rank {rank}"),
    mark("skew part of {rank} in a head of {width}"),
)
"""Parts of names with numbers in them."""

# What `Arm.longer` adds to a name.
mark("constant rate")
mark("cosine rate")

_PATTERNS = {
    words: re.compile(re.sub(r"\\{(\w+):?,?\\}", r"(?P<\1>\\d[\\d,]*)", re.escape(words)))
    for words in _WITH_NUMBERS
}
"""Pattern of each of these parts, with a group for each number."""


def joined(*texts: str, between: str = " ") -> str:
    """Return texts one after the other, as one text that `tr` translates."""
    values = {f"text_{index}": text for index, text in enumerate(texts)}
    return Message(between.join(f"{{{key}}}" for key in values), values)


@cache
def named(name: str) -> str:
    """Return the name of an arm as a text that `tr` translates."""
    return joined(*map(part_of_name, name.split(", ")), between=", ")


def label_of(condition: str) -> str:
    """Return a condition, as in the name of an arm, as a label before a sentence."""
    return named(f"{condition[0].upper()}{condition[1:]}")


def part_of_name(part: str) -> str:
    """Return a part of a name as a text that `tr` translates; variants stay as they are."""
    for words, pattern in _PATTERNS.items():
        if found := pattern.fullmatch(part):
            numbers = {key: int(text.replace(",", "")) for key, text in found.groupdict().items()}
            return Message(words, numbers)
    return Message(part, {}) if re.search("[a-z]{2}", part) else part


@dataclass(frozen=True)
class Statement:
    """A difference between two arms, and the region in which it lies if the claim is true.

    Texts are marked for translation and end without a full stop.

    Attributes:
        text: The statement in words.
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
        more_often: What is found if no more than half of the pairs lie beyond the limit; by default
            a sentence with the names of the arms, and empty if means are compared.
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
    more_often: str = ""

    def __post_init__(self) -> None:
        """Fill in the sentence on frequencies, and check the measure.

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
        if not self.more_often:
            object.__setattr__(self, "more_often", _more_often(self))

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


def compared(
    kind: Kind,
    left: str,
    right: str,
    by: int | float = RELEVANT_DIFFERENCE,  # the hash of a claim tells 0 from 0.0
    *,
    measure: str = "accuracy",
    at: int = 1,
    unable: bool = False,
    text: str = "",
    opposite: str = "",
    more_often: str = "",
) -> Statement:
    """Return the statement that `left` is better or worse than `right`.

    Args:
        kind: "worse": by more than an amount; "no_worse": by at most that amount; "better".
        left: Name of an arm.
        right: Name of the arm that it is compared with.
        by: The amount, in the unit of the measure's values; accuracies go from 0 to 1.
        measure: Name of a measure of which one direction is better.
        at: Multiple of the base steps at which both are read.
        unable: Whether the statement says that `left` cannot do something, see `Statement`.
        text: The statement in words; by default a sentence with the names of the arms.
        opposite: See `Statement`; by default a sentence with the names of the arms.
        more_often: See `Statement`.

    Raises:
        ValueError: If neither direction of the measure is better.
    """
    directed = {name: entry for name, entry in MEASURES.items() if entry.better}
    if measure not in directed:
        raise ValueError(f"measure: got {measure!r}, allowed {', '.join(directed)}")
    word: Word = "better" if kind == "better" else "worse"
    is_beyond = kind != "no_worse"
    held, failed = (
        _sentence(directed[measure], left, right, by, word, beyond)
        for beyond in (is_beyond, not is_beyond)
    )
    direction = directed[measure].better * (1 if word == "better" else -1)
    limit = direction * by
    low, high = (limit, math.inf) if is_beyond == (direction > 0) else (-math.inf, limit)
    return Statement(
        text or held,
        opposite or failed,
        left,
        right,
        measure,
        low,
        high,
        at=at,
        unable=unable,
        more_often=more_often,
    )


worse, no_worse, better = (partial(compared, kind) for kind in KINDS)


def confirming(statement: Statement, left: str, at: int, steps: int, schedule: str) -> Statement:
    """Return the statement that confirms an inability after many steps."""
    also, after = _AFTER[schedule]
    often = statement.more_often
    return replace(
        statement,
        text=Message(also, {"sentence": statement.text, "steps": steps}),
        opposite=Message(after, {"sentence": statement.opposite, "steps": steps}),
        more_often=Message(after, {"sentence": often, "steps": steps}) if often else "",
        left=left,
        at=at,
        unable=False,
    )


def _sentence(
    measure: Measure, left: str, right: str, by: float, word: Word, is_beyond: bool
) -> str:
    """Return the sentence that `left` is better or worse than `right`, beyond an amount or not."""
    if measure.unit == "doublings":
        slow, fast = (left, right) if word == "worse" else (right, left)
        template = (
            mark("{left} needs more than {times:g} times the steps of {right}")
            if is_beyond
            else mark("{left} needs at most {times:g} times the steps of {right}")
        )
        return _with_names(template, slow, fast, times=2**by)
    if by:
        sentences = _BEYOND if is_beyond else _WITHIN
        amount = 100 * by if measure.unit == "points" else by
        return _with_names(sentences[word, measure.unit], left, right, measure, amount=amount)
    if measure.name in _HIGHER:
        is_higher = (is_beyond == (word == "better")) == (measure.better > 0)
        return _with_names((_HIGHER if is_higher else _LOWER)[measure.name], left, right)
    return _with_names(_AT_ALL[word, is_beyond], left, right, measure)


def _more_often(statement: Statement) -> str:
    template = (
        mark("{left} gets ahead of {right} more often")
        if statement.counts_better
        else mark("{left} falls behind {right} more often")
    )
    return _with_names(template, statement.left, str(statement.right), statement.measured)


def _with_names(
    template: str, left: str, right: str, measure: Measure | None = None, **values: float
) -> str:
    """Return a sentence with the names of two arms in it.

    If both names end with the same condition, the sentence begins with it. A measure is named at
    the end, unless it is a common one.
    """
    (left_name, _, condition), (right_name, _, other) = left.partition(", "), right.partition(", ")
    is_shared = bool(condition) and condition == other
    if is_shared:
        left, right = left_name, right_name
    sentence: str = Message(template, {"left": named(left), "right": named(right), **values})
    if measure is not None and measure.name not in _UNNAMED:
        sentence = mark("{sentence} ({measure})", sentence=sentence, measure=measure.title)
    if is_shared:
        sentence = mark("{condition}: {sentence}", condition=label_of(condition), sentence=sentence)
    return sentence
