"""Failure of symmetric scores: a mirrored entry gets the attention of the right one."""

from __future__ import annotations

from attnkit.analysis.attention_map import example_of
from attnkit.analysis.direction import LEARNT, MARGIN, symmetry_decides
from attnkit.analysis.reasons.run import Reason, Run, marked_pair
from attnkit.foundation.language import mark, tr
from attnkit.tasks.own_relations import Relations
from attnkit.training.summary import percent, two_numbers

EVEN = 0.12
"""Largest relative difference of two shares of attention that count as equal. With symmetric scores
they differed by up to a tenth, because only some hundred examples are measured."""

LEAST_REVERSED = 1.15
"""Least attention to the right and the reversed entry, as a multiple of uniform attention. With
less, a run has hardly begun to distinguish entries."""

LEAST_DIVERTED = 0.5
"""Least attention to the mirrored entry, as a multiple of that to the right one, at which a query
of the example is said to mix them up."""

NEAR_GUESSING = (-0.15, 0.05)
"""Limits of the accuracy, relative to that of guessing between the two entries. A run well above
has found a way to distinguish them, for example with several heads."""

_ALIKE = {
    ("same", True): mark(
        "{variant} scores {first}→{second} and {second}→{first} the same ({score}), because Q and "
        "K share a matrix."
    ),
    ("same", False): mark(
        "{variant} scores {first}→{second} and {second}→{first} the same ({score})."
    ),
    ("rounded", True): mark(
        "{variant} scores {first}→{second} and {second}→{first} almost the same (both {score}), "
        "because Q and K share a matrix."
    ),
    ("rounded", False): mark(
        "{variant} scores {first}→{second} and {second}→{first} almost the same (both {score})."
    ),
    ("different", True): mark(
        "{variant} scores {first}→{second} and {second}→{first} almost the same ({score} and "
        "{mirror}), because Q and K share a matrix."
    ),
    ("different", False): mark(
        "{variant} scores {first}→{second} and {second}→{first} almost the same ({score} and "
        "{mirror})."
    ),
}
"""Sentences on both scores of a pair: how alike they are, and whether Q and K share a matrix."""


def mirrored(run: Run) -> Reason | None:
    """Report that the reversed entry has the scores and the attention of the right one."""
    task = run.snapshot.experiment.task
    right, wrong = run.last("mass_on_target"), run.last("mass_on_reverse")
    level = 0.5 if task.plateau is None else task.plateau
    low, high = (level + distance for distance in NEAR_GUESSING)
    n_others = task.n_ctx - task.answers_from - 1
    attended = min(right, wrong) * n_others >= LEAST_REVERSED
    even = abs(right - wrong) <= EVEN * max(right, wrong)
    if not (run.counts and run.has_symmetric_scores and attended and even):
        return None
    if not low <= run.accuracy <= high:
        return None
    pair = marked_pair(task, example_of(run.snapshot))
    if pair is None or run.scores is None or run.pattern is None:
        sentence = tr(
            "{variant} gives {right} of its attention to the right entry and {wrong} to the "
            "mirrored one, so it guesses: {accuracy} right.",
            variant=run.title,
            right=percent(right),
            wrong=percent(wrong),
            accuracy=percent(run.accuracy),
        )
        return run.reason("mirrored", sentence, "asymmetry")
    probe, labels = run.snapshot.probe, task.label(run.snapshot.probe.tokens)
    right_of_second = int(probe.target[pair[1] - task.answers_from])
    first, second, third = (labels[position].short for position in (*pair, right_of_second))
    both = (float(run.scores[each]) for each in (pair, pair[::-1]))
    score, mirror = two_numbers(*both, same=run.same_both_ways)
    kind = "same" if run.same_both_ways else "rounded" if score == mirror else "different"
    alike = tr(
        _ALIKE[kind, run.variant.sharing.symmetric],
        variant=run.title,
        first=first,
        second=second,
        score=score,
        mirror=mirror,
    )
    mixed_up = run.pattern[pair[::-1]] >= LEAST_DIVERTED * run.pattern[pair[1], right_of_second]
    relation = task.label_legend.partition(": ")[2]  # for example "boss"
    names = first, second, third
    accuracy = percent(run.accuracy)
    if mixed_up:
        effect = _mix_up(relation, names, accuracy)
    else:
        effect = tr("So it guesses: {accuracy} right.", accuracy=accuracy)
    sentence = f"{_question(relation, names)} {alike} {effect}"
    return run.reason("mirrored", sentence, "asymmetry")


_ALIKE_IN_TABLE = {
    True: mark(
        "{variant} scores both directions alike, so {share} of the questions have a second entry "
        "as good as the right one. At most about {limit} can then be right: it has {accuracy}, "
        "{other} {other_accuracy}."
    ),
    False: mark(
        "{variant} scores both directions almost alike, so {share} of the questions have a second "
        "entry as good as the right one. At most about {limit} can then be right: it has "
        "{accuracy}, {other} {other_accuracy}."
    ),
}
"""Sentences on an own table, by whether both scores of every pair are the same."""


def alike_in_table(run: Run) -> Reason | None:
    """Report that symmetric scores cannot tell the right entry of an own table from others.

    The limit is that of the expectation before training. It is a reason only if QKV has learnt the
    relations.
    """
    experiment, other = run.snapshot.experiment, run.reference()
    task = experiment.task
    if not isinstance(task, Relations) or task.plateau is None or other is None:
        return None
    is_symmetric = run.counts and run.has_symmetric_scores and symmetry_decides(experiment)
    if not (is_symmetric and run.accuracy <= task.plateau + MARGIN and other.accuracy >= LEARNT):
        return None
    sentence = tr(
        _ALIKE_IN_TABLE[run.same_both_ways],
        variant=run.title,
        share=percent(task.direction.contested),
        limit=percent(task.plateau),
        accuracy=percent(run.accuracy),
        other=other.title,
        other_accuracy=percent(other.accuracy),
    )
    advice = ""
    if run.accuracy < task.plateau - 2 * MARGIN:
        advice = tr("Why it stays far below that is not known.")
    return run.reason("alike in table", sentence, "asymmetry", advice)


def _question(relation: str, names: tuple[str, str, str]) -> str:
    """Return the sentence that the first name leads to the second, and that one to the third."""
    values = dict(zip(("first", "second", "third"), names, strict=True))
    if relation == "boss":
        return tr("{first}’s boss is {second}, {second}’s boss is {third}.", **values)
    if relation:
        return tr(
            "{first}’s {relation} is {second}, {second}’s {relation} is {third}.",
            relation=relation,
            **values,
        )
    return tr("{first} asks for {second}, {second} asks for {third}.", **values)


def _mix_up(relation: str, names: tuple[str, str, str], accuracy: str) -> str:
    """Return the sentence that a variant mixes up what the second name leads to."""
    first, second, third = names
    values = {"name": second, "right": third, "wrong": first, "accuracy": accuracy}
    if relation == "boss":
        return tr(
            "Asked for {name}’s boss, it mixes up {right} and {wrong}: {accuracy} right.", **values
        )
    if relation:
        return tr(
            "Asked for {name}’s {relation}, it mixes up {right} and {wrong}: {accuracy} right.",
            relation=relation,
            **values,
        )
    return tr("Asked for {name}, it mixes up {right} and {wrong}: {accuracy} right.", **values)
