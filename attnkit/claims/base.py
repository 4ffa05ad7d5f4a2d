"""What a claim is: who says what, what was expected, and how it is put to the test.

A claim is written before its runs. It names *arms* (a variant on a task, at given settings) and
*statements* about them, each a difference between two arms and the region in which the claim wants
it. Whether evidence supports or contradicts it follows by rule; see `attnkit.evidence.verdict`.
No torch here: pages read claims.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from attnkit.evidence.measures import MEASURES, Measure
from attnkit.experiment import Experiment

Verdict = Literal["supported", "contradicted", "inconclusive"]

MATTERS = 0.05
"""The smallest difference of accuracies that matters, unless a statement says otherwise."""

N_EVALUATIONS = 20
"""Evaluations of a run, unless its arm says otherwise."""

N_EVAL = 256
"""Held-out examples of an evaluation, unless its arm says otherwise or its task has a corpus."""

LONGER = 3
"""A variant is called unable only if so many times the steps do not help."""


@dataclass(frozen=True)
class Arm:
    """One condition: a variant on a task.

    Attributes:
        name: as shown, and unique in its claim.
        variant: its text form; its learning rate is tuned.
        settings: the task's name and what differs from its defaults.
        finely: whether its learning rate is tuned on the finer grid, with a schedule.
        rate_of: name of the arm whose learning rate it takes, in place of one of its own: they are
            then the same run for as long as they do the same.
    """

    name: str
    variant: str
    settings: Mapping[str, Any]
    finely: bool = False
    rate_of: str = ""

    @property
    def experiment(self) -> Experiment:
        """It alone, at the task's own learning rate, with one seed."""
        base = Experiment(**{**self.settings, "n_seeds": 1})
        chosen = {"evaluate_every": max(1, base.training.steps // N_EVALUATIONS)}
        if not base.task.corpus:
            chosen["n_eval"] = N_EVAL
        return base.replace(**{**chosen, **self.settings, "sharing": [self.variant], "n_seeds": 1})

    def longer(self) -> Arm:
        """The same, trained for `LONGER` times the steps."""
        steps = LONGER * self.experiment.training.steps
        settings = {**self.settings, "steps": steps}
        return replace(self, name=f"{self.name}, {steps:,} steps", settings=settings, rate_of="")

    def finer(self) -> Arm:
        """The same with a schedule, warm-up and clipped gradients, tuned on more learning rates."""
        settings = {**self.settings, "schedule": "cosine", "warm_up": 0.05, "clip": 1.0}
        name = f"{self.name}, with a schedule"
        return replace(self, name=name, settings=settings, finely=True, rate_of="")


def arm(variant: str, name: str = "", *, rate_of: str = "", **settings: Any) -> Arm:
    """An arm, called by its variant unless it has a name of its own."""
    return Arm(name or variant, variant, settings, rate_of=rate_of)


@dataclass(frozen=True)
class Statement:
    """A region in which a claim wants a difference to be.

    Attributes:
        text: in words, as the claim would have it.
        left, right: names of arms; the difference is left − right, or left alone.
        measure: a name of `MEASURES`.
        low, high: the region, both limits outside it.
        left_too, right_too: a second difference that is taken from the first.
        unable: whether it says that the left arm cannot do something: then it must also hold if
            that is trained longer, and if it is tuned finer.
    """

    text: str
    left: str
    right: str | None = None
    measure: str = "accuracy"
    low: float = -math.inf
    high: float = math.inf
    left_too: str | None = None
    right_too: str | None = None
    unable: bool = False

    def __post_init__(self) -> None:
        """Check that there is such a measure.

        Raises:
            ValueError: if there is none.
        """
        if self.measure not in MEASURES:
            raise ValueError(f"measure: got {self.measure!r}, allowed {', '.join(MEASURES)}")

    @property
    def measured(self) -> Measure:
        """What it is about."""
        return MEASURES[self.measure]

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of its arms."""
        named = (self.left, self.right, self.left_too, self.right_too)
        return tuple(name for name in named if name is not None)


def worse(
    left: str,
    right: str,
    by: float = MATTERS,
    *,
    measure: str = "accuracy",
    unable: bool = False,
    text: str = "",
) -> Statement:
    """`left` is worse than `right` by more than so much."""
    low, high = _beyond(-by, measure)
    text = text or f"{left} is worse than {right} by more than {_amount(measure, by)}"
    return Statement(text, left, right, measure, low, high, unable=unable)


def better(
    left: str, right: str, by: float = MATTERS, *, measure: str = "accuracy", text: str = ""
) -> Statement:
    """`left` is better than `right` by more than so much."""
    high, low = (-limit for limit in _beyond(-by, measure))
    text = text or f"{left} is better than {right} by more than {_amount(measure, by)}"
    return Statement(text, left, right, measure, low, high)


def no_worse(
    left: str, right: str, within: float = MATTERS, *, measure: str = "accuracy", text: str = ""
) -> Statement:
    """`left` is at most so much worse than `right`."""
    high, low = (-limit for limit in _beyond(within, measure))
    text = text or f"{left} is at most {_amount(measure, within)} worse than {right}"
    return Statement(text, left, right, measure, low, high)


def _beyond(limit: float, measure: str) -> tuple[float, float]:
    """The region of differences that are worse than a limit, which is negative if it is worse.

    Raises:
        ValueError: if of that measure neither way is better.
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
    """What somebody says about sharing, and how it is tested.

    Attributes:
        id: as typed; the name of its file.
        title: a few words.
        question: what is asked.
        source: who says it, as a citation. says: what exactly.
        prediction: what we expected, and why, before the runs. expected: the verdict, as foretold.
        arms: what is trained. statements: what must hold, all of it; the first is the main one.
        n_seeds: of the full form.
        reason: of what came out, written after the runs; an honest “unknown” where it is.
        family: under which heading it stands, one of `FAMILIES`.
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
    n_seeds: int = 20
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
                if replace(one, name=other.name, rate_of=other.rate_of) == other:
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
    def judged_arms(self) -> tuple[Arm, ...]:
        """The arms that statements are about, and those whose learning rates they take.

        Others are there to be seen beside them.
        """
        named = {name for statement in self.statements for name in statement.arms}
        named |= {self._by_name[name].rate_of for name in named}
        return tuple(one for one in self.arms if one.name in named)

    def sure(self) -> tuple[tuple[Arm, ...], tuple[Statement, ...]]:
        """The further arms and statements that make sure of an inability, once it shows."""
        arms: list[Arm] = []
        statements: list[Statement] = []
        for statement in self.statements:
            if not statement.unable:
                continue
            own = self._by_name[statement.left]
            for stronger, how in (
                (own.longer(), f"with {LONGER} times the steps"),
                (own.finer(), "with a schedule and more learning rates"),
            ):
                if stronger not in arms:
                    arms.append(stronger)
                text = f"{statement.text}, also {how}"
                statements.append(replace(statement, text=text, left=stronger.name, unable=False))
        return tuple(arms), tuple(statements)

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits of its arms and statements, whatever their wording."""
        further_arms, further = self.sure()
        arms, statements = (*self.arms, *further_arms), (*self.statements, *further)
        told = {
            "arms": [[one.name, one.finely, one.rate_of, one.experiment.to_json()] for one in arms],
            "statements": [
                [s.left, s.right, s.left_too, s.right_too, s.measure, str(s.low), str(s.high)]
                for s in statements
            ],
            "n_seeds": self.n_seeds,
        }
        return hashlib.blake2b(json.dumps(told).encode(), digest_size=8).hexdigest()


FAMILIES = ("What people ask", "What papers say", "Our own")
"""The order in which claims are listed."""

CLAIMS: dict[str, Claim] = {}
"""Every claim by its id."""


def register_claim(claim: Claim) -> Claim:
    """Add a claim: command line, pages and README's table then have it.

    Raises:
        ValueError: if the id is taken.
    """
    if claim.id in CLAIMS:
        raise ValueError(f"id: {claim.id!r} is taken")
    CLAIMS[claim.id] = claim
    return claim
