"""Sentences and tables about statements and what is found on them; plain texts.

All are in the reader's language, with lists of whole phrases behind commas and semicolons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from attnkit.claims import Claim, Verdict
from attnkit.claims.base import LONGEST, SCHEDULES, arm_title
from attnkit.claims.measures import multiples
from attnkit.claims.statements import Statement
from attnkit.evidence.record import Evidence, Tried, rivals_of
from attnkit.evidence.verdict import MOST_WORSE, Finding
from attnkit.experiment.experiment import settings
from attnkit.foundation.language import in_language, mark, tr, tr_n
from attnkit.foundation.words import capitalised, listed
from attnkit.training.summary import fixed, percent


class Table(NamedTuple):
    """A table of plain texts in three columns, which small screens have room for."""

    head: tuple[str, str, str]
    rows: list[tuple[str, str, str]]


_MASKS = {
    frozenset([False]): mark("no self-mask"),
    frozenset([True]): mark("self-mask"),
    frozenset([False, True]): mark("with and without a self-mask"),
}
"""What is said of the self-masks of all arms."""

_DATA = {
    "n_entries": mark("{number} entries"),
    "n_names": mark("{number} names"),
    "n_pairs": mark("{number} pairs"),
    "length": mark("{number} tokens"),
    "steps": mark("{number} steps"),
    "batch_size": mark("batches of {number}"),
}
"""Sizes of the data and the training by their settings; the batch is the last."""

_SIZES = ("n_layers", "d_model", *_DATA)
"""Settings with sizes that no variant changes."""


def structure_in_words(
    claim: Claim, evidence: Evidence | None = None, *, is_complete: bool = False
) -> str:
    """Return the tasks and sizes with which the compared arms of a claim are trained.

    A reader must know them before taking a claim for more than it was tested for. Heads, their
    widths, MLPs, positions and masks are those of the variants; keys and values may differ in
    width. That there is no MLP, no positions or no self-mask is told as well.

    Args:
        evidence: Its arms that were trained for longer to confirm an inability count, too.
        is_complete: Whether to tell batches, positions and self-masks, too.
    """
    tasks, positions, masks = [], [], set()
    found: dict[str, set[int]] = {}
    scored = {} if evidence is None else evidence.scores
    longer = (arm for arm in claim.confirmation[0] if arm.name in scored)
    for arm in (*claim.compared_arms, *longer):
        experiment = arm.experiment
        sizes, known = experiment.wiring(arm.variant).sizes, settings(experiment.task.name)
        tasks.append(tr(experiment.task.title))
        positions.append(tr(known["positions"].label_of(sizes.positions)))
        masks.add(sizes.self_mask)
        values = experiment.settings()
        numbers = {name: {values[name]} for name in _SIZES if name in values}
        numbers |= {"n_heads": {sizes.n_heads}, "d_head": {sizes.d_k, sizes.d_v}}
        for name, own in (numbers | {"d_mlp": {sizes.d_mlp}, "steps": {arm.steps}}).items():
            found.setdefault(name, set()).update(own)
    either = {
        name: listed((in_language(f"{n:,}", n) for n in sorted(numbers)), "or")
        for name, numbers in found.items()
    }
    n_layers, n_heads = max(found["n_layers"]), max(found["n_heads"])
    heads = {"heads": either["n_heads"], "width": either["d_head"]}
    has_mlp = found["d_mlp"] != {0}
    parts = [
        tr_n("{layers} layer", "{layers} layers", n_layers, layers=either["n_layers"]),
        # Translators: number of heads, and how many numbers wide each is.
        tr_n("{heads} head of {width}", "{heads} heads of {width}", n_heads, **heads),
        # Translators: of the model.
        tr("width {width}", width=either["d_model"]),
        tr("MLP {width}", width=either["d_mlp"]) if has_mlp else tr("no MLP"),
        *(tr(_DATA[name], number=either[name]) for name in _DATA if name in found),
    ]
    on = listed(dict.fromkeys(tasks))
    if not is_complete:
        # Translators: sizes of the models and the data with which a claim was tested.
        return tr("Tested on {tasks}: {sizes}.", tasks=on, sizes=", ".join(parts[:-1]))
    schemes = tr("positions: {schemes}", schemes=listed(dict.fromkeys(positions), "or"))
    return f"{on}: {', '.join([*parts, schemes, tr(_MASKS[frozenset(masks)])])}."


def tested_in_words(finding: Finding) -> str:
    """Return a statement in words that its finding allows, without a full stop.

    A variant that falls behind with no more than half of the seeds is not called worse; it falls
    behind more often. Of one that is called no worse the share of the seeds is told for which that
    is shown.
    """
    statement = finding.statement
    if statement.asserts_difference:
        return tr(statement.more_often if finding.is_frequency else statement.text)
    return _limited(tr(statement.text), finding)


def _limited(sentence: str, finding: Finding) -> str:
    """Return a sentence that a variant is no worse, with the share of the seeds that it limits."""
    if finding.method == "mean":
        return sentence
    share = percent(1 - MOST_WORSE)
    return tr("{sentence}, with at least {share} of all seeds", sentence=sentence, share=share)


def found_in_words(finding: Finding) -> str:
    """Return the finding on a statement, without a full stop."""
    tested, statement = capitalised(tested_in_words(finding)), finding.statement
    if finding.verdict is Verdict.UNDECIDED:
        return tr("The seeds do not decide whether this is true: “{statement}”", statement=tested)
    if finding.verdict is Verdict.HELD:
        return tested
    if statement.asserts_difference:
        return capitalised(_limited(tr(statement.opposite), finding))
    return capitalised(tr(statement.more_often if finding.is_frequency else statement.opposite))


def main_finding(evidence: Evidence, verdict: Verdict) -> Finding:
    """Return the finding on the first statement that has the verdict on its claim, or the first.

    If only the other claims, read together with this one, leave it undecided, that is the statement
    which is the least certain.
    """
    alone = evidence.judgement.verdict
    if verdict is Verdict.UNDECIDED and alone is Verdict.HELD:
        return max(evidence.findings, key=lambda finding: finding.p_held)
    found = [f for one in (verdict, alone) for f in evidence.findings if f.verdict is one]
    return (found or evidence.findings)[0]


def _share(n: int, of: int) -> str:
    return tr("{n} of {all}", n=n, all=of)


def _in_numbers(texts: Mapping[str, str]) -> str:
    return " ".join(f"{name}: {text}." for name, text in texts.items() if text)


def statements_table(evidence: Evidence) -> Table:
    """Return a row for every statement: seeds that solve the task, pairs, and the difference.

    Beside the pairs stands with how many more recipes the verdict stands.
    """
    rows = []
    for finding in evidence.findings:
        solved, seeds = [], []
        if finding.method == "pairs":
            for name in finding.statement.arms:
                n_solved = _share(*evidence.n_solved(name, finding.statement.at))
                solved.append(f"{arm_title(name)}: {n_solved}")
            seeds.append(pairs_in_words(finding))
            rivals = rivals_of(finding.loser or "", evidence.tuned)
            if n_more := sum(name in evidence.scores for name in rivals):
                seeds.append(
                    tr_n(
                        "the same with {n} more learning rate or schedule",
                        "the same with {n} more learning rates or schedules",
                        n_more,
                    )
                )
        numbers = {
            # Translators: heading above numbers of seeds that have solved the task.
            tr("Solved"): "; ".join(solved),
            tr("Seeds"): "; ".join(seeds),
            tr("Difference"): effect_in_words(finding),
        }
        verdict = f"{finding.verdict.mark} {tr(finding.verdict)}"
        rows.append((tested_in_words(finding), _in_numbers(numbers), verdict))
    # Translators: heading above statements that were tested.
    return Table((tr("Tested"), tr("In numbers"), tr("Verdict, read alone")), rows)


def tuning_table(evidence: Evidence) -> Table:
    """Return a row for every arm: its learning rate and schedule, and those that were tried."""
    rows, rivals = [], {arm.name for arm in evidence.rivals}
    for name in (name for name in evidence.tuned if name not in rivals):
        tuning = evidence.tuned[name]
        tried: dict[str, list[str]] = {}
        for one in tuning.tried:
            told = f"{one.rate:g}: {_tried_in_words(one, tuning.by)}"
            tried.setdefault(one.schedule, []).append(told)
        note = ""
        if tuning.never_learnt:
            note = tr("not learnt with any")
        elif tuning.at_edge:
            note = tr("best at the edge of the grid")
        recipe = [f"{tuning.rate:g}", *([tr(tuning.schedule)] if tuning.schedule else [])]
        by_schedule = [f"{tr(schedule)}: {', '.join(told)}" for schedule, told in tried.items()]
        numbers = {
            tr("Learning rate, schedule"): ", ".join(recipe),
            tr("Steps"): in_language(f"{tuning.steps:,}", tuning.steps),
            tr("Tried (rate: seeds that learn, or the mean)"): "; ".join(by_schedule),
        }
        rows.append((arm_title(name), _in_numbers(numbers), note))
    return Table((tr("Variant"), tr("In numbers"), tr("Note")), rows)


def _tried_in_words(tried: Tried, by: str) -> str:
    if math.isnan(tried.mean):
        return tr("diverged")
    if by == "loss":
        return f"{tried.mean:.3f}"
    share = _share(tried.n_solved, tried.n_seeds)
    mean = in_language(f"{tried.mean:.0%}", tried.mean)
    return share if tried.n_solved else f"{share} ({mean})"


def finding_in_words(finding: Finding) -> str:
    """Return the finding on a statement in a few words."""
    effect, lost = effect_in_words(finding), finding.n_lost
    if finding.method == "pairs":
        return "; ".join(filter(None, [pairs_in_words(finding), effect]))
    diverged = tr("diverged with {n} of {all} seeds", n=lost, all=finding.n_pairs) if lost else ""
    return ", ".join(filter(None, (effect, diverged)))


# Translators: numbers of seeds; alike are those with which neither variant is better.
_BETTER_FIRST = mark(
    "better with {n} of {all} seeds [{low} to {high}], worse with {n_others}, alike with {n_alike}"
)
# Translators: numbers of seeds; alike are those with which neither variant is better.
_WORSE_FIRST = mark(
    "worse with {n} of {all} seeds [{low} to {high}], better with {n_others}, alike with {n_alike}"
)


def pairs_in_words(finding: Finding) -> str:
    """Return the numbers of seeds with which the left arm is worse, better and alike.

    The first number has the exact interval of its share.
    """
    pairs = tr(
        _BETTER_FIRST if finding.statement.counts_better else _WORSE_FIRST,
        n=finding.n_worse,
        all=finding.n_pairs,
        low=percent(finding.share_low),
        high=percent(finding.share_high),
        n_others=finding.n_better,
        n_alike=finding.n_alike,
    )
    # Translators: number of seeds with which a run diverged.
    lost = tr("diverged with {n}", n=finding.n_lost)
    return f"{pairs}, {lost}" if finding.n_lost else pairs


_IN_UNIT = {
    "points": mark("{number} points"),
    "doublings": mark("{number} doublings"),
    "nats": mark("{number} nats"),
}
"""Differences by their unit; one of another measure is a number alone."""

_EFFECTS = {
    ("pairs", True): mark("median difference {effect}"),
    ("pairs", False): mark("median {effect}"),
    ("mean", True): mark("mean difference {effect}"),
    ("mean", False): mark("mean {effect}"),
}
"""Effects by the method of the test, and by whether there is a right arm."""


def effect_in_words(finding: Finding) -> str:
    """Return the median or mean difference with its interval; empty if it is NaN.

    Of steps it is a ratio.
    """
    values, statement = (finding.effect, finding.effect_low, finding.effect_high), finding.statement
    if statement.measured.unit == "doublings":
        template = mark("median ratio {effect}")
        effect, low, high = ("" if np.isnan(one) else f"{2**one:.2g}" for one in values)
    else:
        template = _EFFECTS[finding.method, statement.right is not None]
        effect = difference_in_words(finding.effect, statement)
        low, high = (_difference(one, statement) for one in values[1:])
    if not effect:
        return ""
    told = tr(template, effect=effect)
    # Translators: an interval of differences, such as "[−50.0 to +0.0]".
    interval = tr("[{low} to {high}]", low=low, high=high)
    return f"{told} {interval}" if low and high else told


def difference_in_words(value: float, statement: Statement) -> str:
    """Return a difference with its sign and unit; empty if it is NaN."""
    unit, number = statement.measured.unit, _difference(value, statement)
    return tr(_IN_UNIT[unit], number=number) if number and unit in _IN_UNIT else number


def _difference(value: float, statement: Statement) -> str:
    """Return a difference with its sign, without a unit; empty if it is NaN."""
    scale, digits = {"points": (100, 1), "doublings": (1, 1)}.get(statement.measured.unit, (1, 3))
    return "" if np.isnan(value) else fixed(scale * value, digits, "+")


def values_in_words(evidence: Evidence, finding: Finding) -> str:
    """Return the values of the arms that a statement compares, and the number of seeds.

    They are means over seeds, and medians of steps; numbers of seeds that have solved the task, if
    some seeds of an arm have and others have not. Of four arms, both differences are given. If only
    some pairs differ, the text begins with their number.
    """
    statement = finding.statement
    is_share = statement.measure == "accuracy"
    solved = [evidence.n_solved(name, statement.at) for name in statement.arms if is_share]
    if any(0 < n < of for n, of in solved):
        (left, n_left), (right, n_right) = solved
        text = tr(
            "{left} of {n_left} against {right} of {n_right} seeds solve the task",
            left=left,
            n_left=n_left,
            right=right,
            n_right=n_right,
        )
    else:
        seeds = tr_n("{n} seed", "{n} seeds", finding.n_pairs)
        text = f"{_values_of_arms(evidence, statement)}, {seeds}"
    if not finding.is_frequency:
        return text
    n, numbers = finding.n_worse, {"all": finding.n_pairs, "n_others": finding.n_better}
    ahead = tr_n(
        "{n} of {all} seeds gets ahead, {n_others} the other way round",
        "{n} of {all} seeds get ahead, {n_others} the other way round",
        n,
        **numbers,
    )
    behind = tr_n(
        "{n} of {all} seeds falls behind, {n_others} the other way round",
        "{n} of {all} seeds fall behind, {n_others} the other way round",
        n,
        **numbers,
    )
    return f"{ahead if statement.counts_better else behind}; {text}"


_MEDIAN_STEPS = {
    # Translators: steps until two variants solve the task; "we gave" steps for training.
    (True, True): mark("{left:,.0f} against {right:,.0f} steps, median"),
    (True, False): mark("{left:,.0f} steps against more than we gave, median"),
    (False, True): mark("more than we gave against {right:,.0f} steps, median"),
    (False, False): mark("more steps than we gave with both, median"),
}
"""Medians of the steps until two arms solve a task, by whether each does."""


def _values_of_arms(evidence: Evidence, statement: Statement) -> str:
    """Return the means of arms, or two differences of them, or medians of steps."""
    unit = statement.measured.unit
    if unit == "doublings":
        left, right = (evidence.median_steps(name, statement.at) for name in statement.arms)
        return tr(_MEDIAN_STEPS[left < math.inf, right < math.inf], left=left, right=right)
    means = [evidence.mean(name, statement.measure, statement.at) for name in statement.arms]
    if len(means) == 4:
        means = [means[0] - means[1], means[2] - means[3]]
    is_share = unit == "points" or statement.measure == "mass_on_target"
    first, *others = (
        tr("diverged") if math.isnan(mean) else percent(mean) if is_share else fixed(mean, 2)
        for mean in means
    )
    if not others:
        return tr("{number} nats", number=first) if unit == "nats" else first
    if unit == "nats":
        return tr("{left} against {right} nats", left=first, right=others[0])
    # Translators: values of two variants, such as "50% against 99%".
    return tr("{left} against {right}", left=first, right=others[0])


_NONE = mark("{variant} learns with no seed of {all} within {steps:,} steps ({accuracy})")
_NONE_BUT_RISES = mark(
    "{variant} learns with no seed of {all} within {steps:,} steps ({accuracy}, and it still rises)"
)
_SOME = mark("{variant} learns later, {n} of {all} seeds within {steps:,} steps")
_SOME_AND_MEDIAN = mark(
    "{variant} learns later, {n} of {all} seeds within {steps:,} steps, after a median of "
    "{median:,.0f}"
)


def followed_in_words(evidence: Evidence) -> str:
    """Return what became of the arms that lost and were trained for longer; may be empty."""
    parts = []
    for name, arm in evidence.lost:
        if arm.name not in evidence.scores:
            continue
        n_solved, n = evidence.n_solved(arm.name, arm.up_to)
        values = {"variant": arm_title(name), "n": n_solved, "all": n, "steps": arm.steps}
        median, rises = evidence.median_steps(arm.name, arm.up_to), evidence.still_rises(arm.name)
        if n_solved:
            text = _SOME_AND_MEDIAN if math.isfinite(median) else _SOME
        else:
            text = _NONE_BUT_RISES if rises else _NONE
        accuracy = percent(evidence.mean(arm.name, at=arm.up_to))
        parts.append(tr(text, **values, median=median, accuracy=accuracy))
    arms = "; ".join(parts)
    return arms and tr("Trained for longer, with recipes tuned for it: {arms}.", arms=arms)


_RISES = {
    ("", True): mark("{variant} still rises at {steps:,} steps"),
    ("", False): mark("{variant} has stopped rising by {steps:,} steps"),
    ("constant", True): mark("{variant} with a constant rate still rises at {steps:,} steps"),
    ("constant", False): mark(
        "{variant} with a constant rate has stopped rising by {steps:,} steps"
    ),
    ("cosine", True): mark("{variant} with a cosine rate still rises at {steps:,} steps"),
    ("cosine", False): mark("{variant} with a cosine rate has stopped rising by {steps:,} steps"),
}
"""Clauses on accuracy by the schedule of an arm that was trained for longer, and by whether it
rises."""


def rises_in_words(evidence: Evidence) -> str:
    """Return whether the accuracies of arms that a claim calls unable still rise; may be empty.

    Arms that were read at fewer than three steps are left out: the rule needs two doublings.
    """
    parts = []
    for name in (statement.left for statement in evidence.claim.statements if statement.unable):
        short = evidence.claim.arm_of(name)
        arms = {"": short} | {one: short.longer(LONGEST, (one,)) for one in SCHEDULES}
        for schedule, arm in arms.items():
            if arm.name in evidence.scores and len(multiples(arm.up_to)) >= 3:
                rises = _RISES[schedule, evidence.still_rises(arm.name)]
                parts.append(tr(rises, variant=arm_title(name), steps=arm.steps))
    variants = "; ".join(dict.fromkeys(parts))
    return variants and tr("Accuracy: {variants}.", variants=variants)


def longer_in_words(evidence: Evidence) -> str:
    """Return what longer training has shown; empty if there was none."""
    return " ".join(filter(None, (rises_in_words(evidence), followed_in_words(evidence))))
