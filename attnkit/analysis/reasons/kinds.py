"""The kinds of failure: each is told only if the numbers of the run show it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnkit.analysis.reasons.run import Reason, Run, marked_pair
from attnkit.tasks import NOTHING
from attnkit.training.summary import percent
from attnkit.variants.sharing import Sharing

EVEN = 0.12
"""Relative difference below which two shares of attention count as equal. With symmetric scores
they differed by up to a tenth, because only some hundred examples are measured."""

LEAST_REVERSED = 1.15
"""The reversed entry counts as looked at if it has so many times the attention of equal shares:
with less, a run has hardly begun to tell entries apart."""

LEAST_DIVERTED = 0.5
"""A token of the example is said to find the mirrored entry, too, if that gets at least so many
times the attention of the right one."""

NEAR_GUESSING = (-0.15, 0.05)
"""How far the accuracy may lie below and above that of picking one of the two entries. A run well
above it has found a way to tell them apart, for example with several heads."""

LEAST_SELF, MOST_ROWS = 0.3, 0.5
"""Share of attention on itself, and share of tokens that look at themselves most, from which a
variant is said to find itself. It must also be twice the share of the right token: there are runs
that solve a task with half of their attention on themselves."""

MOST_QUESTIONS = 0.9
"""Share of attention on questions from which questions are said to look at each other. A run that
solves its task in one layer gives them less than 0.1."""

NARROW = 8
"""Widest head that is called narrow. K=V needs 280 steps for the phone book at a width of 8, 130 at
16 and 70 at 32, where QKV needs as many. Q=K=V is slow at every width, so it is not explained."""

GAP = 0.1
"""Least difference of accuracy that is explained: about ten times the scatter of evaluations."""

RISING = 0.03
"""A run is still learning if its accuracy has risen by so much in the last quarter of its steps:
about three times the scatter of evaluations."""

FALLING = 0.05
"""Least fall of the loss since then, in nats, that counts as learning."""

GUESSED_LOSS, WORSE = 0.02, 0.1
"""Relative distance within which a loss counts as that of equal guesses, and from which it counts
as worse. New runs begin up to 0.04 above equal guesses."""

KNOWN, UNKNOWN = 0.9, 0.6
"""Accuracies from which questions count as answered, and up to which as not."""

NEARLY = 0.95
"""Accuracy from which there is little left to explain."""

_ENDED = "was still learning when training ended"

_ROLES = {
    Sharing.K_V: "both key and value",
    Sharing.Q_V: "both query and value",
}


def diverged(run: Run) -> Reason | None:
    """Say that the loss is not a finite number any more."""
    step = int(run.snapshot.diverged_at[run.index])
    if step < 0:
        return None
    sentence = (
        f"{run.title} diverged by step {step}: its loss is not a finite number any more. "
        f"Try a learning rate below {run.learning_rate:g}."
    )
    return run.says("diverged", sentence)


def not_trained(run: Run) -> Reason | None:
    """Say that no step has been taken."""
    if run.snapshot.step > 0:
        return None
    return run.says("early", f"{run.title} is not trained yet: {percent(run.accuracy)} right.")


def mirrored(run: Run) -> Reason | None:
    """Say that the reversed entry scores like the right one and gets as much attention."""
    task = run.snapshot.experiment.task
    right, wrong = run.last("mass_on_target"), run.last("mass_on_reverse")
    level = 0.5 if task.plateau is None else task.plateau
    low, high = (level + distance for distance in NEAR_GUESSING)
    n_others = task.n_ctx - task.answers_from - 1
    looked_at = min(right, wrong) * n_others >= LEAST_REVERSED
    even = abs(right - wrong) <= EVEN * max(right, wrong)
    if not (run.counts and run.alike and looked_at and even and low <= run.accuracy <= high):
        return None
    pair = marked_pair(run.snapshot)
    if pair is None or run.scores is None or run.pattern is None:
        sentence = (
            f"{run.title} gives {percent(right)} of its attention to the right entry and "
            f"{percent(wrong)} to the mirrored one, so it guesses: {percent(run.accuracy)} right."
        )
        return run.says("mirrored", sentence, "asymmetry")
    probe, names = run.snapshot.probe, task.label(run.snapshot.probe.tokens)
    wanted = int(probe.target[pair[1] - task.answers_from])
    one, other, right_one = (names[position].short for position in (*pair, wanted))
    score, mirror = (f"{run.scores[each]:.2f}" for each in (pair, pair[::-1]))
    same = f"the same ({score})" if score == mirror else f"almost the same ({score} and {mirror})"
    tied = run.sharing.owner("Q") == run.sharing.owner("K")
    because = ", because Q and K share a matrix" if tied else ""
    role = task.label_legend.partition(": ")[2]
    asks = f"’s {role} is" if role else " asks for"
    diverted = run.pattern[pair[::-1]] >= LEAST_DIVERTED * run.pattern[pair[1], wanted]
    asked = f"{other}’s {role}" if role else other
    so = f"Asked for {asked}, it mixes up {right_one} and {one}" if diverted else "So it guesses"
    sentence = (
        f"{one}{asks} {other}, {other}{asks} {right_one}. {run.title} scores {one}→{other} and "
        f"{other}→{one} {same}{because}. {so}: {percent(run.accuracy)} right."
    )
    return run.says("mirrored", sentence, "asymmetry")


def finds_itself(run: Run) -> Reason | None:
    """Say that tokens look at themselves, in the last layer, instead of at the right token."""
    probe, first = run.snapshot.probe, run.snapshot.experiment.task.answers_from
    rows = first + np.flatnonzero((probe.target != NOTHING) & (probe.labels != NOTHING))
    targets = probe.target[rows - first]
    rows, targets = rows[targets != rows], targets[targets != rows]
    if not (run.counts and run.accuracy < KNOWN) or run.pattern is None or not len(rows):
        return None
    itself = float(run.pattern[rows, rows].mean())
    right = float(run.pattern[rows, targets].mean())
    n_first = (run.pattern[rows].argmax(1) == rows).mean()
    if not (n_first >= MOST_ROWS and itself >= max(LEAST_SELF, 2 * right)):
        return None
    sentence = (
        f"{run.title} finds itself: here, tokens give {percent(itself)} of their attention to "
        f"themselves and {_little(right)} to the right token."
    )
    return run.says("finds itself", sentence)


def looks_elsewhere(run: Run) -> Reason | None:
    """Say that questions look at each other, in the last layer, instead of at the entries."""
    probe, first = run.snapshot.probe, run.snapshot.experiment.task.answers_from
    asked = np.flatnonzero((probe.target != NOTHING) & (probe.labels != NOTHING))
    if not (run.counts and run.accuracy < KNOWN) or run.pattern is None or not len(asked):
        return None
    questions = float(run.pattern[first + asked, first:].sum(1).mean())
    entries = float(run.pattern[first + asked, :first].sum(1).mean())
    if probe.target[asked].max() >= first or not questions >= MOST_QUESTIONS:
        return None
    sentence = (
        f"{run.title}: here, questions give {percent(questions)} of their attention to questions "
        f"and {_little(entries)} to the entries that hold the answers."
    )
    return run.says("looks elsewhere", sentence)


def narrow(run: Run) -> Reason | None:
    """Say that a narrow head learns more slowly than one with values of its own."""
    width, twin = run.snapshot.experiment.wiring(run.variant).sizes.d_v, run.untied()
    if not run.counts or run.sharing not in _ROLES or twin is None or width > NARROW:
        return None
    has_begun = run.accuracy > run.snapshot.experiment.task.chance
    still_learns = run.rise > 0 and (run.rise >= RISING or run.fall >= FALLING)
    if not (has_begun and still_learns and twin.accuracy - run.accuracy >= GAP):
        return None
    sentence = (
        f"{run.title} learns slowly: the {width} numbers of a head are {_ROLES[run.sharing]}: "
        f"{percent(run.accuracy)} right at step {run.step}, {twin.title} "
        f"{percent(twin.accuracy)}."
    )
    return run.says("narrow head", sentence, "questions")


def other_seeds(run: Run) -> Reason | None:
    """Say that other seeds of the same variant solve the task."""
    others = run.others()
    n_solved = sum(other.solves for other in others)
    if not run.counts or run.rise >= RISING or not run.accuracy < NEARLY or not n_solved:
        return None
    sentence = (
        f"{run.title} solves it with {n_solved} of {len(others) + 1} seeds; this seed has "
        f"{percent(run.accuracy)} right, and only its random numbers differ."
    )
    return run.says("optimiser", sentence)


def worse_than_guesses(run: Run) -> Reason | None:
    """Say that the loss is above that of giving every answer the same probability."""
    guessed, loss = run.guessed_loss, run.last("loss")
    has_learned = run.accuracy > run.snapshot.experiment.task.chance
    begun = run.step < run.snapshot.experiment.training.steps / 2
    if begun or not run.counts or has_learned or not loss > (1 + WORSE) * guessed:
        return None
    sentence = (
        f"{run.title} does worse than guessing at a learning rate of {run.learning_rate:g}: its "
        f"loss is {loss:.2f}, that of guesses {guessed:.2f}."
    )
    return run.says("optimiser", sentence)


def guesses(run: Run) -> Reason | None:
    """Say that the loss is that of giving every answer the same probability."""
    guessed, loss = run.guessed_loss, run.last("loss")
    if not (run.counts and abs(loss - guessed) <= GUESSED_LOSS * guessed):
        return None
    sentence = (
        f"{run.title} has learned nothing yet: its loss of {loss:.2f} is that of guessing among "
        f"{run.snapshot.experiment.task.n_classes} answers."
    )
    return run.says("chance", sentence)


def memorised(run: Run) -> Reason | None:
    """Say that examples that were trained on are answered much better than new ones."""
    known = run.last("training_accuracy")
    if not (run.counts and known >= KNOWN and known - run.accuracy >= GAP):
        return None
    sentence = (
        f"{run.title} has {percent(known)} right on examples that it was trained on, but only "
        f"{percent(run.accuracy)} on new ones."
    )
    return run.says("memorised", sentence)


def part(run: Run) -> Reason | None:
    """Say that one group of questions is answered and another is not."""
    task, shares = run.snapshot.experiment.task, run.snapshot.slice_accuracy[run.index]
    known = np.flatnonzero(np.isfinite(shares))
    if not (run.counts and len(known)):
        return None
    best, worst = known[shares[known].argmax()], known[shares[known].argmin()]
    if not (shares[best] >= KNOWN and shares[worst] <= UNKNOWN):
        return None
    sentence = (
        f"{run.title} answers only some questions. {task.slice_title} "
        f"“{task.slice_names[best]}”: {percent(float(shares[best]))} right, "
        f"“{task.slice_names[worst]}”: {percent(float(shares[worst]))}."
    )
    return run.says("part", sentence)


def learns(run: Run) -> Reason | None:
    """Say that the accuracy is still rising, or else that the loss is still falling."""
    if not run.counts or run.earlier is None or not run.accuracy < NEARLY:
        return None
    on_loss = run.snapshot.experiment.task.loss_to_beat is not None or not run.rise >= RISING
    below_guessing = run.last("loss") < (1 - GUESSED_LOSS) * run.guessed_loss
    if on_loss and not (run.fall >= FALLING and run.rise >= 0 and below_guessing):
        return None
    metric = run.snapshot.history["loss" if on_loss else "accuracy"]
    was, is_now = (float(metric[place, run.index]) for place in (run.earlier, run.place))
    start, end = run.snapshot.eval_steps[run.earlier], run.step
    running = run.snapshot.status == "running"
    sentence = f"{run.title} {'is still learning' if running else _ENDED}: "
    if on_loss:
        sentence += f"loss {was:.2f} at step {start}, {is_now:.2f} at step {end}."
    else:
        sentence += f"{percent(was)} right at step {start}, {percent(is_now)} at step {end}."
    return run.says("early", sentence)


def _little(share: float) -> str:
    """Return a small share in percent, readable also where it rounds to nothing."""
    return percent(share) if share >= 0.01 else "under 1%"


KINDS: tuple[Callable[[Run], Reason | None], ...] = (
    diverged,
    not_trained,
    mirrored,
    finds_itself,
    looks_elsewhere,
    narrow,
    other_seeds,
    worse_than_guesses,
    guesses,
    memorised,
    learns,
    part,
)
"""The kinds of failure, the clearest first."""
