"""Kinds of failure, each with the conditions on the metrics of a run under which it is reported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnkit.analysis.attention_map import example_of
from attnkit.analysis.reasons.run import Reason, Run, marked_pair
from attnkit.tasks import NOTHING
from attnkit.training.failure import failure_of
from attnkit.training.summary import percent, two_numbers
from attnkit.variants.sharing import Sharing

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

LEAST_SELF, LEAST_SELF_ROWS = 0.3, 0.5
"""Least attention of tokens to themselves, and least share of tokens that attend most to
themselves, at which a variant is said to find itself. The attention must also be twice that to the
right token: some runs solve a task with half of their attention on themselves."""

MOST_QUESTIONS = 0.9
"""Least attention to questions at which questions are said to attend to each other. A run that
solves its task in one layer gives them less than 0.1."""

NARROW = 8
"""Largest width of a head that counts as narrow. K=V needs 280 steps for the phone book at a width
of 8, 130 at 16 and 70 at 32, where QKV needs as many. Q=K=V is slow at every width, so this reason
is not given for it."""

GAP = 0.1
"""Least difference of accuracy to explain: about ten times the noise of evaluations."""

RISING = 0.03
"""Least rise of the accuracy in the last quarter of a run's steps that counts as learning: about
three times the noise of evaluations."""

FALLING = 0.05
"""Least fall of the loss in the same time, in nats, that counts as learning."""

GUESSED_LOSS, WORSE = 0.02, 0.1
"""Largest relative distance to the loss of uniform guessing that counts as guessing, and least
relative distance above it that counts as worse. New runs begin up to 0.04 above it."""

KNOWN, UNKNOWN = 0.9, 0.6
"""Least accuracy of questions that count as answered, and largest of those that do not."""

NEARLY = 0.95
"""Accuracy above which there is little left to explain."""

_ENDED = "was still learning when training ended"

_ROLES = {
    Sharing.K_V: "both key and value",
    Sharing.Q_V: "both query and value",
}


def failed(run: Run) -> Reason | None:
    """Report that no variant has learnt the task, not even QKV, so sharing is not the reason."""
    failure = failure_of(run.snapshot)
    if failure is None or run.snapshot.step == 0:
        return None
    return run.reason("failed", failure.sentence, page="", advice=failure.advice)


def diverged(run: Run) -> Reason | None:
    """Report that the loss is not a finite number any more."""
    step = int(run.snapshot.diverged_at[run.index])
    if step < 0:
        return None
    sentence = f"{run.title} diverged by step {step}: its loss is not a finite number any more."
    advice = f"Try a learning rate below {run.learning_rate:g}."
    return run.reason("diverged", sentence, advice=advice)


def not_trained(run: Run) -> Reason | None:
    """Report that no step has been taken."""
    if run.snapshot.step > 0:
        return None
    return run.reason("early", f"{run.title} is not trained yet: {percent(run.accuracy)} right.")


def too_fast(run: Run) -> Reason | None:
    """Report that a run above the task's default learning rate has learnt next to nothing."""
    early = run.step < run.snapshot.experiment.training.steps / 2
    if early or not run.counts or run.has_learnt or run.learning_rate <= run.default_rate:
        return None
    sentence = (
        f"{run.title} learnt next to nothing at a learning rate of {run.learning_rate:g}: "
        f"{percent(run.accuracy)} right."
    )
    return run.reason("too fast", sentence, advice=_slower(run))


def _slower(run: Run) -> str:
    """Return the advice to lower the learning rate."""
    return f"The task’s default is {run.default_rate:g}: lower the learning rate and train again."


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
        sentence = (
            f"{run.title} gives {percent(right)} of its attention to the right entry and "
            f"{percent(wrong)} to the mirrored one, so it guesses: {percent(run.accuracy)} right."
        )
        return run.reason("mirrored", sentence, "asymmetry")
    probe, labels = run.snapshot.probe, task.label(run.snapshot.probe.tokens)
    right_of_second = int(probe.target[pair[1] - task.answers_from])
    first, second, third = (labels[position].short for position in (*pair, right_of_second))
    both = (float(run.scores[each]) for each in (pair, pair[::-1]))
    score, mirror = two_numbers(*both, same=run.same_both_ways)
    numbers = f"both {score}" if score == mirror else f"{score} and {mirror}"
    same = f"the same ({score})" if run.same_both_ways else f"almost the same ({numbers})"
    tied = run.variant.sharing.symmetric
    because = ", because Q and K share a matrix" if tied else ""
    relation = task.label_legend.partition(": ")[2]  # for example "boss"
    verb = f"’s {relation} is" if relation else " asks for"
    question = f"{second}’s {relation}" if relation else second
    mixed_up = run.pattern[pair[::-1]] >= LEAST_DIVERTED * run.pattern[pair[1], right_of_second]
    mix_up = f"Asked for {question}, it mixes up {third} and {first}"
    effect = mix_up if mixed_up else "So it guesses"
    sentence = (
        f"{first}{verb} {second}, {second}{verb} {third}. {run.title} scores {first}→{second} and "
        f"{second}→{first} {same}{because}. {effect}: {percent(run.accuracy)} right."
    )
    return run.reason("mirrored", sentence, "asymmetry")


def finds_itself(run: Run) -> Reason | None:
    """Report that tokens attend to themselves in the last layer, instead of to the right token."""
    probe, first = run.snapshot.probe, run.snapshot.experiment.task.answers_from
    rows = first + np.flatnonzero((probe.target != NOTHING) & (probe.labels != NOTHING))
    targets = probe.target[rows - first]
    rows, targets = rows[targets != rows], targets[targets != rows]
    if not (run.counts and run.accuracy < KNOWN) or run.pattern is None or not len(rows):
        return None
    itself = float(run.pattern[rows, rows].mean())
    right = float(run.pattern[rows, targets].mean())
    share_of_rows = (run.pattern[rows].argmax(1) == rows).mean()
    if not (share_of_rows >= LEAST_SELF_ROWS and itself >= max(LEAST_SELF, 2 * right)):
        return None
    sentence = (
        f"{run.title} finds itself: here, tokens give {percent(itself)} of their attention to "
        f"themselves and {_small_percent(right)} to the right token."
    )
    return run.reason("finds itself", sentence)


def looks_elsewhere(run: Run) -> Reason | None:
    """Report that questions attend to each other in the last layer, instead of to the entries."""
    probe, first = run.snapshot.probe, run.snapshot.experiment.task.answers_from
    answers = np.flatnonzero((probe.target != NOTHING) & (probe.labels != NOTHING))
    if not (run.counts and run.accuracy < KNOWN) or run.pattern is None or not len(answers):
        return None
    questions = float(run.pattern[first + answers, first:].sum(1).mean())
    entries = float(run.pattern[first + answers, :first].sum(1).mean())
    if probe.target[answers].max() >= first or not questions >= MOST_QUESTIONS:
        return None
    sentence = (
        f"{run.title}: here, questions give {percent(questions)} of their attention to questions "
        f"and {_small_percent(entries)} to the entries that hold the answers."
    )
    return run.reason("looks elsewhere", sentence)


def narrow(run: Run) -> Reason | None:
    """Report that a narrow head learns more slowly than one with a separate value matrix."""
    width, twin = run.snapshot.experiment.wiring(run.variant).sizes.d_v, run.untied()
    shared = _ROLES.get(run.variant.sharing)
    if not run.counts or shared is None or twin is None or width > NARROW:
        return None
    has_begun = run.accuracy > run.snapshot.experiment.task.chance
    still_learns = run.rise > 0 and (run.rise >= RISING or run.fall >= FALLING)
    if not (has_begun and still_learns and twin.accuracy - run.accuracy >= GAP):
        return None
    sentence = (
        f"{run.title} learns slowly: the {width} numbers of a head are {shared}: "
        f"{percent(run.accuracy)} right at step {run.step}, {twin.title} "
        f"{percent(twin.accuracy)}."
    )
    return run.reason("narrow head", sentence, "questions")


def other_seeds(run: Run) -> Reason | None:
    """Report that other seeds of the same variant solve the task."""
    others = run.other_seeds()
    n_solved = sum(other.solves for other in others)
    if not run.counts or run.rise >= RISING or not run.accuracy < NEARLY or not n_solved:
        return None
    sentence = (
        f"{run.title} solves it with {n_solved} of {len(others) + 1} seeds, but here it has "
        f"{percent(run.accuracy)} right."
    )
    advice = (
        "Seeds differ in their random starting weights and training examples; we do not know what "
        "in them decides."
    )
    return run.reason("optimiser", sentence, advice=advice)


def worse_than_guesses(run: Run) -> Reason | None:
    """Report that the loss is above that of giving every answer the same probability."""
    guessed, loss = run.guessed_loss, run.last("loss")
    has_learned = run.accuracy > run.snapshot.experiment.task.chance
    early = run.step < run.snapshot.experiment.training.steps / 2
    if early or not run.counts or has_learned or not loss > (1 + WORSE) * guessed:
        return None
    sentence = (
        f"{run.title} does worse than guessing at a learning rate of {run.learning_rate:g}: its "
        f"loss is {loss:.2f}, that of guesses {guessed:.2f}."
    )
    return run.reason("optimiser", sentence)


def guesses(run: Run) -> Reason | None:
    """Report that the loss is that of giving every answer the same probability."""
    guessed, loss = run.guessed_loss, run.last("loss")
    if not (run.counts and abs(loss - guessed) <= GUESSED_LOSS * guessed):
        return None
    sentence = (
        f"{run.title} has learned nothing yet: its loss of {loss:.2f} is that of guessing among "
        f"{run.snapshot.experiment.task.n_classes} answers."
    )
    return run.reason("chance", sentence)


def memorised(run: Run) -> Reason | None:
    """Report that the accuracy on training examples is much higher than on new ones."""
    training_accuracy = run.last("training_accuracy")
    gap = training_accuracy - run.accuracy
    if not (run.counts and training_accuracy >= KNOWN and gap >= GAP):
        return None
    sentence = (
        f"{run.title} has {percent(training_accuracy)} right on examples that it was trained on, "
        f"but only {percent(run.accuracy)} on new ones."
    )
    return run.reason("memorised", sentence)


def solves_in_part(run: Run) -> Reason | None:
    """Report that one group of questions is answered and another is not."""
    task, accuracies = run.snapshot.experiment.task, run.snapshot.slice_accuracy[run.index]
    measured = np.flatnonzero(np.isfinite(accuracies))
    if not (run.counts and len(measured)):
        return None
    best, worst = measured[accuracies[measured].argmax()], measured[accuracies[measured].argmin()]
    if not (accuracies[best] >= KNOWN and accuracies[worst] <= UNKNOWN):
        return None
    sentence = (
        f"{run.title} answers only some questions. {task.slice_title} "
        f"“{task.slice_names[best]}”: {percent(float(accuracies[best]))} right, "
        f"“{task.slice_names[worst]}”: {percent(float(accuracies[worst]))}."
    )
    return run.reason("part", sentence)


def learns(run: Run) -> Reason | None:
    """Report that the accuracy is still rising, or else that the loss is still falling."""
    if not run.counts or run.earlier_evaluation is None or not run.accuracy < NEARLY:
        return None
    on_loss = run.snapshot.experiment.task.loss_to_beat is not None or not run.rise >= RISING
    below_guessing = run.last("loss") < (1 - GUESSED_LOSS) * run.guessed_loss
    if on_loss and not (run.fall >= FALLING and run.rise >= 0 and below_guessing):
        return None
    metric = run.snapshot.history["loss" if on_loss else "accuracy"][:, run.index]
    before, now = float(metric[run.earlier_evaluation]), float(metric[run.evaluation])
    start, end = run.snapshot.eval_steps[run.earlier_evaluation], run.step
    running = run.snapshot.status == "running"
    sentence = f"{run.title} {'is still learning' if running else _ENDED}: "
    if on_loss:
        sentence += f"loss {before:.2f} at step {start}, {now:.2f} at step {end}."
    else:
        sentence += f"{percent(before)} right at step {start}, {percent(now)} at step {end}."
    return run.reason("early", sentence)


def unknown(run: Run) -> Reason | None:
    """Report that a run has ended without solving its task, and that the reason is not known.

    If the attention to the right token is known, the sentence compares it with that of QKV.
    """
    task = run.snapshot.experiment.task
    over = run.snapshot.status != "running" and task.loss_to_beat is None
    if not (over and run.counts and run.accuracy < NEARLY):
        return None
    right, twin = run.last("mass_on_target"), run.reference()
    sentence = f"{run.title} has {percent(run.accuracy)} right"
    if not np.isnan(right):
        sentence += f" and gives {_small_percent(right)} of its attention to the right token"
    if twin is not None and twin.accuracy - run.accuracy >= GAP:
        sentence += f"; {twin.title} has {percent(twin.accuracy)}"
        if not np.isnan(right):
            sentence += f" and gives {_small_percent(twin.last('mass_on_target'))}"
    advice = "We do not know why."
    if run.learning_rate > run.default_rate:
        advice = f"The learning rate of {run.learning_rate:g} may be too high. {_slower(run)}"
    return run.reason("unknown", f"{sentence}.", advice=advice)


def _small_percent(share: float) -> str:
    """Return a share in percent, or "under 1%" where it would round to 0."""
    return percent(share) if share >= 0.01 else "under 1%"


KINDS: tuple[Callable[[Run], Reason | None], ...] = (
    failed,
    diverged,
    not_trained,
    too_fast,
    mirrored,
    finds_itself,
    looks_elsewhere,
    narrow,
    other_seeds,
    worse_than_guesses,
    guesses,
    memorised,
    learns,
    solves_in_part,
    unknown,
)
"""Functions that report one kind of failure each, the clearest first."""
