"""Claims about shared projections: their source, our prediction, and the test of each.

A claim lists *arms* (a variant on a task, with its settings) and *statements* about them. A
statement names two arms, a measure, and the region in which their difference lies if the claim is
true. A rule then decides whether the statement holds, see `attnkit.evidence.verdict`. A claim also
records what we had seen when we wrote its prediction. For pages, torch is not imported here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain, combinations
from typing import Any, Literal, get_args

from attnkit.claims.statements import Statement, confirming, named
from attnkit.experiment import Experiment
from attnkit.foundation.display import Plotted
from attnkit.foundation.language import mark, tr


class Verdict(StrEnum):
    """Decision of the seeds on a claim or on one of its statements."""

    HELD = mark("held")
    FAILED = mark("did not hold")
    UNDECIDED = mark("undecided")

    @property
    def mark(self) -> str:
        """Mark beside the verdict, so that no verdict is recognised by its colour alone."""
        return {Verdict.HELD: "✓", Verdict.FAILED: "✗", Verdict.UNDECIDED: "?"}[self]


Seen = Literal["nothing", "a prototype", "an earlier run"]
"""Results of a comparison that we had seen when we wrote its prediction.

"a prototype": untuned or exploratory runs of this comparison or of a similar one. "an earlier run":
a first pass of the claim itself, on other seeds.
"""

_N_EVAL = 256
"""Held-out examples per evaluation, unless the arm sets another number or its task has a corpus."""

LONGEST = 16
"""Multiple of an arm's steps after which it must still fail before it is called unable."""

FOLLOWED = 8
"""Multiple of its base steps for which an arm is followed if it has lost a comparison."""

FOLLOWING_SEEDS = 20
"""Number of seeds of longer runs, which confirm an inability or follow an arm that has lost."""

SHOWN_SEEDS = 20
"""Largest number of seeds of an arm that is shown and not judged."""

LEAST_SEEDS = 6
"""Fewest seeds that allow a verdict: with 5 pairs the two-sided p of a sign test is at least
0.0625."""

Schedule = Literal["constant", "cosine"]
"""constant: the learning rate stays the same. cosine: it rises during the first twentieth of the
steps and then falls to zero along half a cosine, and gradients are clipped."""

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)

_CLIP = 1.0
"""Largest norm of a gradient with the cosine schedule, unless the arm sets another."""


@dataclass(frozen=True)
class Arm:
    """One condition of a comparison: a variant on a task.

    An arm is trained for `up_to` times its base steps, with the learning rate and the schedule that
    are best for so many steps, and its scores are read at 1, 2, 4, ... times the base steps.

    Attributes:
        name: Name on screen, unique within its claim.
        variant: Text form of the variant, without a learning rate, which is tuned.
        settings: Name of the task, and the settings that differ from its defaults. `steps` is the
            number of base steps.
        up_to: Multiple of the base steps for which the arm is trained, a power of two.
        tuned_at: Multiple of the base steps for which its recipe is tuned; 0: `up_to`.
        schedules: The schedules of the learning rate that are tried.
        recipe_of: Name of the arm whose recipe this arm uses instead of tuning its own.
        most_seeds: Largest number of seeds that are trained; None for no limit.
    """

    name: str
    variant: str
    settings: Mapping[str, Any]
    up_to: int = 1
    tuned_at: int = 0
    schedules: tuple[Schedule, ...] = SCHEDULES
    recipe_of: str = ""
    most_seeds: int | None = None

    @cached_property
    def base_steps(self) -> int:
        """Steps after which scores are read, unless a statement names a multiple of them."""
        return Experiment(**{**self.settings, "n_seeds": 1}).training.steps

    @property
    def steps(self) -> int:
        """Steps for which the arm is trained."""
        return self.up_to * self.base_steps

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment of this arm alone, at the learning rate of its task and with one seed."""
        return self.trained_for(self.up_to)

    def trained_for(self, times: int, schedule: Schedule | None = None) -> Experiment:
        """Return the experiment of this arm, trained for a multiple of its base steps.

        Without a schedule, that of the settings is used.
        """
        base = Experiment(**{**self.settings, "n_seeds": 1})
        steps = base.training.steps
        n_evaluations = 20 if times == 1 else 5  # within the base steps
        defaults: dict[str, Any] = {"evaluate_every": max(1, steps // n_evaluations)}
        if not base.task.corpus:
            defaults["n_eval"] = _N_EVAL
        settings = {**defaults, **self.settings, "steps": times * steps}
        if schedule == "cosine":
            clip = base.training.clip or _CLIP
            settings |= {"schedule": "cosine", "warm_up": 0.05, "clip": clip}
        elif schedule == "constant":
            settings |= {"schedule": "constant", "warm_up": 0.0}
        return base.replace(**settings, sharing=[self.variant], n_seeds=1)

    def longer(self, times: int, schedules: tuple[Schedule, ...] = SCHEDULES) -> Arm:
        """Return this arm, trained and tuned for a multiple of its steps."""
        condition = "" if schedules == SCHEDULES else f", {schedules[0]} rate"
        return replace(
            self,
            name=f"{self.name}, {times * self.steps:,} steps{condition}",
            up_to=times * self.up_to,
            tuned_at=0,
            schedules=schedules,
            recipe_of="",
            most_seeds=FOLLOWING_SEEDS,
        )


def arm(variant: str, name: str = "", **given: Any) -> Arm:
    """Return an arm, named after its variant unless `name` is set.

    Args:
        **given: Further fields of `Arm`, the name of the task, and settings of the experiment.
    """
    own = {field.name: given.pop(field.name) for field in fields(Arm) if field.name in given}
    return Arm(name=name or variant, variant=variant, settings=given, **own)


def arm_title(name: str) -> str:
    """Return the name of an arm in the reader's language."""
    return tr(named(name))


Side = Literal["mlp", "width", "layers", "heads", "entries", "steps"]
"""Side of the structure of an experiment that a claim may be about."""


@dataclass(frozen=True, repr=False)
class Claim(Plotted):
    """A sentence about sharing that can be true or false, and its test.

    Attributes:
        id: Identifier in commands and links; also the name of the claim's module.
        title: The claim in a few words.
        question: The question that the claim answers.
        source: Citation of the thread or paper that makes the claim.
        says: Quotation or summary of the source.
        prediction: The result that we expected, and why.
        expected: The verdict that we expected.
        arms: Arms that are trained.
        statements: Statements that must all hold; the first is the main one.
        seen: Results of this comparison that we had seen when we wrote the prediction.
        seen_note: Details of `seen`, in sentences for readers.
        n_seeds: Number of seeds of the full form.
        followed: Multiple of its base steps for which an arm that has lost is followed.
        reason: Explanation of the result, written after the runs; empty if it is unknown.
        family: Heading under which the claim is listed, one of `FAMILIES`.
        conditions: Sides of the structure whose values the title names, see
            `attnkit.evidence.elsewhere`.
        is_new: Whether, as far as we know, nobody had tested the claim on its tasks before.
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
    n_seeds: int = 60
    followed: int = FOLLOWED
    reason: str = ""
    family: str = "What people ask"
    conditions: tuple[Side, ...] = ()
    is_new: bool = False

    def __repr__(self) -> str:
        """Return a short description; the arms and statements would fill many screens."""
        return f"<Claim: {self.title}>"

    def __post_init__(self) -> None:
        """Check that arms differ and that statements and arms name arms that exist.

        Raises:
            ValueError: If there is no such verdict, two arms are alike, a statement names an arm
                that is missing, there is no statement, or an arm uses the learning rate of one that
                is not tuned.
        """
        if self.expected not in list(Verdict):
            raise ValueError(f"expected: got {self.expected!r}, allowed {', '.join(Verdict)}")
        object.__setattr__(self, "expected", Verdict(self.expected))
        for one, other in combinations(self.arms, 2):
            if one.name == other.name:
                raise ValueError(f"arms: got {one.name!r} twice, allowed each name once")
            if replace(other, name=one.name) == one:
                allowed = f"an arm that differs from {one.name}"
                raise ValueError(f"arms: got {other.name!r}, allowed {allowed}")
        tuned = [arm.name for arm in self.arms if not arm.recipe_of]
        for arm in self.arms:
            if arm.recipe_of and arm.recipe_of not in tuned:
                raise ValueError(f"recipe_of: got {arm.recipe_of!r}, allowed {', '.join(tuned)}")
        if not self.statements:
            raise ValueError("statements: got none, allowed one or more")
        names = [arm.name for arm in self.arms]
        for name in chain(*(statement.arms for statement in self.statements)):
            if name not in names:
                raise ValueError(f"statements: got the arm {name!r}, allowed {', '.join(names)}")

    @property
    def compared_arms(self) -> tuple[Arm, ...]:
        """Arms that a statement names, in the order of `arms`."""
        return self.arms_of(self.statements)

    def arms_of(self, statements: Iterable[Statement]) -> tuple[Arm, ...]:
        """Return arms that some of the claim's statements name, in the order of `arms`."""
        names = {name for statement in statements for name in statement.arms}
        return tuple(arm for arm in self.arms if arm.name in names)

    @property
    def trained_arms(self) -> tuple[Arm, ...]:
        """All arms, those that play no part in the verdict with at most `SHOWN_SEEDS` seeds."""
        if self.n_seeds <= SHOWN_SEEDS:
            return self.arms
        judged, most = self.judged_arms, SHOWN_SEEDS
        return tuple(a if a in judged else replace(a, most_seeds=most) for a in self.arms)

    @property
    def judged_arms(self) -> tuple[Arm, ...]:
        """Arms of the statements, and arms whose learning rates these use.

        All other arms are shown beside them and play no part in the verdict.
        """
        names = {name for arm in self.compared_arms for name in (arm.name, arm.recipe_of)}
        return tuple(arm for arm in self.arms if arm.name in names)

    @cached_property
    def confirmation(self) -> tuple[tuple[Arm, ...], tuple[Statement, ...]]:
        """The further arms and statements that must confirm an inability."""
        arms: list[Arm] = []
        statements: list[Statement] = []
        for statement in self.statements:
            if not statement.unable:
                continue
            for schedule in SCHEDULES:
                long = self.arm_of(statement.left).longer(LONGEST, (schedule,))
                if long not in arms:
                    arms.append(long)
                statements.append(
                    confirming(statement, long.name, long.up_to, long.steps, schedule)
                )
        return tuple(arms), tuple(statements)

    def follow_up(self, name: str) -> Arm | None:
        """Return the arm that follows one that has lost; None if that was trained long enough."""
        arm = self.arm_of(name)
        return arm.longer(self.followed // arm.up_to) if self.followed > arm.up_to else None

    def arm_of(self, name: str) -> Arm:
        """Return the arm with a name."""
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits that identify arms and statements, whatever their wording."""
        further_arms, further = self.confirmation
        trained = ("name", "up_to", "tuned_at", "schedules", "recipe_of", "most_seeds")
        compared = ("left", "right", "second_left", "second_right", "measure", "at")
        data = {
            "arms": [
                [getattr(arm, name) for name in trained] + [arm.experiment.to_json()]
                for arm in (*self.arms, *further_arms)
            ],
            "statements": [
                [getattr(s, name) for name in compared] + [str(s.low), str(s.high)]
                for s in (*self.statements, *further)
            ],
            "n_seeds": self.n_seeds,
        }
        return _digest(data)

    @property
    def prediction_hash(self) -> str:
        """Sixteen hexadecimal digits that identify the prediction and what we had seen by then."""
        return _digest([self.prediction, self.expected, self.seen])


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


FAMILIES = (mark("What people ask"), mark("What papers say"), mark("Our own"))
"""Headings under which claims are listed, in their order."""

CLAIMS: dict[str, Claim] = {}
"""All claims by id."""


def register_claim(claim: Claim) -> Claim:
    """Add a claim to `CLAIMS`, and so to the command line, the pages and docs/claims.md.

    Raises:
        ValueError: If the id is taken.
    """
    if claim.id in CLAIMS:
        raise ValueError(f"id: {claim.id!r} is taken")
    CLAIMS[claim.id] = claim
    return claim
