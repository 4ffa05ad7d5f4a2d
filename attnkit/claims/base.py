"""Claims: who says what, what we predicted, and how it is tested.

A claim names *arms* (a variant on a task, with its settings) and *statements* about them. A
statement names two arms, a measure, and the region in which the claim wants their difference to
lie. Whether the statement holds follows from a rule; see `attnkit.evidence.verdict`. A claim also
says what had been seen when its prediction was written. Pages import claims, so this module does
not import torch.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from attnkit.claims.measures import MEASURES, Measure
from attnkit.experiment import Experiment

Verdict = Literal["held", "did not hold", "undecided"]

Seen = Literal["nothing", "a prototype", "an earlier run"]
"""What had been seen of a comparison when its prediction was written.

"a prototype": untuned or exploratory runs of this comparison, or of a close relative of it; "an
earlier run": a first pass of the claim itself, on other seeds.
"""

MATTERS = 0.05
"""The smallest difference of accuracies that matters, unless a statement says otherwise."""

N_EVALUATIONS = 20
"""Number of evaluations in the base steps of an arm, unless the arm says otherwise."""

N_EVALUATIONS_LONG = 5
"""The same for an arm that is trained for longer than its base steps."""

N_EVAL = 256
"""Held-out examples of an evaluation, unless the arm says otherwise or its task has a corpus."""

LONGEST = 32
"""A variant is called unable to do something only if this many times the steps do not help."""

SURE_SEEDS = 20
"""Number of seeds of the long runs that confirm an inability."""

LEAST_SEEDS = 6
"""With 5 pairs the smallest two-sided p of a sign test is 0.0625: nothing could be decided."""

TUNED_AT = 4
"""The learning rates of these long runs are tuned at this many times the base steps."""


@dataclass(frozen=True)
class Arm:
    """One condition of a comparison: a variant on a task.

    With a constant learning rate the first steps of a long run are the same as those of a short
    one. So an arm is trained once, for `up_to` times its base steps, and read at 1, 2, 4, ... times
    the base steps.

    Attributes:
        name: Name as shown, unique in its claim.
        variant: Text form of the variant; its learning rate is tuned.
        settings: Name of the task and the settings that differ from its defaults. `steps` are the
            base steps.
        up_to: Multiple of the base steps for which the arm is trained, a power of two.
        tuned_at: Multiple of the base steps at which its learning rate is tuned.
        finely: Whether the learning rate is tuned on the finer grid.
        rate_of: Name of the arm whose learning rate this arm uses instead of tuning its own.
        most_seeds: Largest number of seeds that are trained, or None.
    """

    name: str
    variant: str
    settings: Mapping[str, Any]
    up_to: int = 1
    tuned_at: int = 1
    finely: bool = False
    rate_of: str = ""
    most_seeds: int | None = None

    @property
    def base_steps(self) -> int:
        """Steps after which the arm is read unless a statement says otherwise."""
        return Experiment(**{**self.settings, "n_seeds": 1}).training.steps

    @property
    def experiment(self) -> Experiment:
        """The experiment with this arm alone, the learning rate of its task, and one seed."""
        return self.trained_for(self.up_to)

    @property
    def tuning_experiment(self) -> Experiment:
        """The experiment on which its learning rate is tuned."""
        return self.trained_for(self.tuned_at)

    def trained_for(self, times: int) -> Experiment:
        """Return the experiment of the arm, trained for a multiple of its base steps."""
        base = Experiment(**{**self.settings, "n_seeds": 1})
        steps = base.training.steps
        n_evaluations = N_EVALUATIONS if times == 1 else N_EVALUATIONS_LONG
        chosen: dict[str, Any] = {"evaluate_every": max(1, steps // n_evaluations)}
        if not base.task.corpus:
            chosen["n_eval"] = N_EVAL
        own = {**chosen, **self.settings, "steps": times * steps}
        return base.replace(**own, sharing=[self.variant], n_seeds=1)

    def longest(self) -> Arm:
        """Return the arm trained for `LONGEST` times its steps, its rate tuned on long runs."""
        return replace(
            self,
            name=f"{self.name}, {LONGEST * self.base_steps:,} steps",
            up_to=LONGEST,
            tuned_at=TUNED_AT,
            rate_of="",
            most_seeds=SURE_SEEDS,
        )

    def scheduled(self) -> Arm:
        """Return the same with warm-up, cosine schedule, clipped gradients, and finer tuning."""
        schedule = {"schedule": "cosine", "warm_up": 0.05, "clip": 1.0}
        longest = self.longest()
        return replace(
            longest,
            name=f"{longest.name} with a schedule",
            settings={**self.settings, **schedule},
            finely=True,
        )


def arm(
    variant: str,
    name: str = "",
    *,
    up_to: int = 1,
    tuned_at: int = 1,
    rate_of: str = "",
    **settings: Any,
) -> Arm:
    """Return an arm, named after its variant unless a name is given."""
    return Arm(name or variant, variant, settings, up_to, tuned_at, rate_of=rate_of)


@dataclass(frozen=True)
class Statement:
    """A difference between two arms, and the region in which a claim wants it to lie.

    Attributes:
        text: The statement in words, as the claim would have it.
        left: Name of an arm.
        right: Name of the arm that is subtracted from it; None for the left arm alone.
        measure: Name of a measure in `MEASURES`.
        low: Lower limit of the region, which does not belong to it.
        high: Upper limit of the region, which does not belong to it.
        left_too: With `right_too` a second difference, which is subtracted from the first.
        right_too: See `left_too`.
        at: Multiple of the base steps at which the left arms are read. The right arms are read
            there, too, or at their last step if they are not trained for so long.
        unable: Whether the statement says that the left arm cannot do something. Then it must also
            hold after `LONGEST` times the steps, with a constant learning rate and with a schedule.
    """

    text: str
    left: str
    right: str | None = None
    measure: str = "accuracy"
    low: float = -math.inf
    high: float = math.inf
    left_too: str | None = None
    right_too: str | None = None
    at: int = 1
    unable: bool = False

    def __post_init__(self) -> None:
        """Check the measure.

        Raises:
            ValueError: If there is no such measure, or if it counts pairs of seeds and the
                statement does not compare two arms.
        """
        if self.measure not in MEASURES:
            raise ValueError(f"measure: got {self.measure!r}, allowed {', '.join(MEASURES)}")
        if self.measured.scatters:
            return
        one_sided = math.isinf(self.low) != math.isinf(self.high)
        if self.right is None or self.left_too is not None or not one_sided:
            allowed = ", ".join(name for name, one in MEASURES.items() if one.scatters)
            raise ValueError(
                f"measure: got {self.measure!r}, which counts pairs of two arms beyond one limit; "
                f"allowed otherwise {allowed}"
            )

    @property
    def measured(self) -> Measure:
        """The measure that is compared."""
        return MEASURES[self.measure]

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of the arms."""
        named = (self.left, self.right, self.left_too, self.right_too)
        return tuple(name for name in named if name is not None)


def worse(
    left: str,
    right: str,
    by: float = MATTERS,
    *,
    measure: str = "accuracy",
    at: int = 1,
    unable: bool = False,
    text: str = "",
) -> Statement:
    """Return the statement that `left` is worse than `right` by more than an amount."""
    low, high = _beyond(-by, measure)
    text = text or f"{left} is worse than {right} by more than {_amount(measure, by)}"
    return Statement(text, left, right, measure, low, high, at=at, unable=unable)


def better(
    left: str,
    right: str,
    by: float = MATTERS,
    *,
    measure: str = "accuracy",
    at: int = 1,
    text: str = "",
) -> Statement:
    """Return the statement that `left` is better than `right` by more than an amount."""
    high, low = (-limit for limit in _beyond(-by, measure))
    text = text or f"{left} is better than {right} by more than {_amount(measure, by)}"
    return Statement(text, left, right, measure, low, high, at=at)


def no_worse(
    left: str,
    right: str,
    within: float = MATTERS,
    *,
    measure: str = "accuracy",
    at: int = 1,
    text: str = "",
) -> Statement:
    """Return the statement that `left` is at most an amount worse than `right`."""
    high, low = (-limit for limit in _beyond(within, measure))
    text = text or f"{left} is at most {_amount(measure, within)} worse than {right}"
    return Statement(text, left, right, measure, low, high, at=at)


def _beyond(limit: float, measure: str) -> tuple[float, float]:
    """Return the region of differences that are worse than a limit, negative if it is worse.

    Raises:
        ValueError: If neither direction of the measure is better.
    """
    known = {name: one.better for name, one in MEASURES.items() if one.better}
    if measure not in known:
        raise ValueError(f"measure: got {measure!r}, allowed {', '.join(known)}")
    return (-math.inf, limit) if known[measure] > 0 else (-limit, math.inf)


def _amount(measure: str, amount: float) -> str:
    of = MEASURES[measure]
    number = f"{100 * amount:g}" if of.unit == "points" else f"{amount:g}"
    of_what = f" of {of.title}" if measure not in ("accuracy", "loss") else ""
    return f"{number} {of.unit}".strip() + of_what


@dataclass(frozen=True)
class Claim:
    """A sentence about sharing that can be true or false, and its test.

    Attributes:
        id: Identifier as typed; the name of its file.
        title: The claim in a few words.
        question: The question that it answers.
        source: Who says it, as a citation.
        says: What exactly they say.
        prediction: What we expected, and why.
        expected: The verdict that we expected.
        arms: What is trained.
        statements: What must hold, all of it; the first is the main one.
        seen: What had been seen of this comparison when the prediction was written.
        seen_note: The same in a sentence, for readers.
        n_seeds: Seeds of the full form.
        reason: Explanation of the result, written after the runs; empty if it is unknown.
        family: Heading under which it is listed, one of `FAMILIES`.
    """

    id: str
    title: str
    question: str
    source: str
    says: str
    prediction: str
    expected: Verdict
    arms: tuple[Arm, ...]
    statements: tuple[Statement, ...]
    seen: Seen = "nothing"
    seen_note: str = ""
    n_seeds: int = 40
    reason: str = ""
    family: str = "What people ask"
    _by_name: dict[str, Arm] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that its statements speak of its arms.

        Raises:
            ValueError: if one does not, there is none, two arms are alike, or one takes the rate of
                an arm that has none of its own.
        """
        for place, one in enumerate(self.arms):
            for other in self.arms[:place]:
                if one.name == other.name:
                    raise ValueError(f"arms: got {one.name!r} twice, allowed each name once")
                if replace(one, name=other.name) == other:
                    allowed = f"an arm that differs from {other.name}"
                    raise ValueError(f"arms: got {one.name!r}, allowed {allowed}")
            self._by_name[one.name] = one
        tuned = [one.name for one in self.arms if not one.rate_of]
        for one in self.arms:
            if one.rate_of and one.rate_of not in tuned:
                raise ValueError(f"rate_of: got {one.rate_of!r}, allowed {', '.join(tuned)}")
        if not self.statements:
            raise ValueError("statements: got none, allowed one or more")
        for statement in self.statements:
            for name in statement.arms:
                if name not in self._by_name:
                    raise ValueError(
                        f"statements: got the arm {name!r}, allowed {', '.join(self._by_name)}"
                    )

    @property
    def quick_seeds(self) -> int:
        """Seeds of the quick form: half of those of the full form, but enough to decide."""
        return min(self.n_seeds, max(LEAST_SEEDS, self.n_seeds // 2))

    @property
    def judged_arms(self) -> tuple[Arm, ...]:
        """The arms of its statements, and those whose learning rates these use.

        The other arms are shown beside them.
        """
        named = {name for statement in self.statements for name in statement.arms}
        named |= {self._by_name[name].rate_of for name in named}
        return tuple(one for one in self.arms if one.name in named)

    def sure(self) -> tuple[tuple[Arm, ...], tuple[Statement, ...]]:
        """Return the further arms and statements that must confirm an inability once it shows."""
        arms: list[Arm] = []
        statements: list[Statement] = []
        for statement in self.statements:
            if not statement.unable:
                continue
            own = self._by_name[statement.left]
            for longer in (own.longest(), own.scheduled()):
                if longer not in arms:
                    arms.append(longer)
                how = f"also after {LONGEST * own.base_steps:,} steps"
                if longer.finely:
                    how += " with a schedule and more learning rates"
                statements.append(
                    replace(
                        statement,
                        text=f"{statement.text}, {how}",
                        left=longer.name,
                        at=LONGEST,
                        unable=False,
                    )
                )
        return tuple(arms), tuple(statements)

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits of its arms and statements, whatever their wording."""
        further_arms, further = self.sure()
        arms, statements = (*self.arms, *further_arms), (*self.statements, *further)
        compared = ("left", "right", "left_too", "right_too", "measure", "at")
        told = {
            "arms": [
                [
                    one.name,
                    one.up_to,
                    one.tuned_at,
                    one.finely,
                    one.rate_of,
                    one.most_seeds,
                    one.experiment.to_json(),
                ]
                for one in arms
            ],
            "statements": [
                [getattr(s, name) for name in compared] + [str(s.low), str(s.high)]
                for s in statements
            ],
            "n_seeds": self.n_seeds,
        }
        return _digest(told)

    @property
    def prediction_hash(self) -> str:
        """Sixteen hexadecimal digits of its prediction and of what had been seen before it."""
        return _digest([self.prediction, self.expected, self.seen])


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


FAMILIES = ("What people ask", "What papers say", "Our own")
"""The order in which claims are listed."""

CLAIMS: dict[str, Claim] = {}
"""Every claim by its id."""


def register_claim(claim: Claim) -> Claim:
    """Add a claim: command line, pages and docs/claims.md then have it.

    Raises:
        ValueError: if the id is taken.
    """
    if claim.id in CLAIMS:
        raise ValueError(f"id: {claim.id!r} is taken")
    CLAIMS[claim.id] = claim
    return claim
