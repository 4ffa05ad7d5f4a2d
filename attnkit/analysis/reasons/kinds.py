"""Kinds of failure, each with the conditions on the metrics of a run under which it is reported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnkit.analysis.reasons.mirrored import alike_in_table, mirrored
from attnkit.analysis.reasons.run import Reason, Run
from attnkit.foundation.language import mark, tr
from attnkit.tasks import NOTHING
from attnkit.training.failure import failure_of
from attnkit.training.summary import percent
from attnkit.variants.sharing import Sharing

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

_SLOWLY = {
    Sharing.K_V: mark(
        "{variant} learns slowly: the {width} numbers of a head are both key and value: {accuracy} "
        "right at step {step}, {other} {other_accuracy}."
    ),
    Sharing.Q_V: mark(
        "{variant} learns slowly: the {width} numbers of a head are both query and value: "
        "{accuracy} right at step {step}, {other} {other_accuracy}."
    ),
}
"""Sentences on narrow heads in which two roles share a matrix."""


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
    sentence = tr(
        "{variant} diverged by step {step}: its loss is not a finite number any more.",
        variant=run.title,
        step=step,
    )
    advice = tr("Try a learning rate below {rate:g}.", rate=run.learning_rate)
    return run.reason("diverged", sentence, advice=advice)


def not_trained(run: Run) -> Reason | None:
    """Report that no step has been taken."""
    if run.snapshot.step > 0:
        return None
    sentence = tr(
        "{variant} is not trained yet: {accuracy} right.",
        variant=run.title,
        accuracy=percent(run.accuracy),
    )
    return run.reason("early", sentence)


def too_fast(run: Run) -> Reason | None:
    """Report that a run above the task's default learning rate has learnt next to nothing."""
    early = run.step < run.snapshot.experiment.training.steps / 2
    if early or not run.counts or run.has_learnt or run.learning_rate <= run.default_rate:
        return None
    sentence = tr(
        "{variant} learnt next to nothing at a learning rate of {rate:g}: {accuracy} right.",
        variant=run.title,
        rate=run.learning_rate,
        accuracy=percent(run.accuracy),
    )
    return run.reason("too fast", sentence, advice=_slower(run))


def _slower(run: Run) -> str:
    """Return the advice to lower the learning rate."""
    return tr(
        "The task’s default is {rate:g}: lower the learning rate and train again.",
        rate=run.default_rate,
    )


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
    sentence = tr(
        "{variant} finds itself: here, tokens give {itself} of their attention to themselves and "
        "{right} to the right token.",
        variant=run.title,
        itself=percent(itself),
        right=_small_percent(right),
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
    sentence = tr(
        "{variant}: here, questions give {questions} of their attention to questions and {entries} "
        "to the entries that hold the answers.",
        variant=run.title,
        questions=percent(questions),
        entries=_small_percent(entries),
    )
    return run.reason("looks elsewhere", sentence)


def narrow(run: Run) -> Reason | None:
    """Report that a narrow head learns more slowly than one with a separate value matrix."""
    width, twin = run.snapshot.experiment.wiring(run.variant).sizes.d_v, run.untied()
    slowly = _SLOWLY.get(run.variant.sharing)
    if not run.counts or slowly is None or twin is None or width > NARROW:
        return None
    has_begun = run.accuracy > run.snapshot.experiment.task.chance
    still_learns = run.rise > 0 and (run.rise >= RISING or run.fall >= FALLING)
    if not (has_begun and still_learns and twin.accuracy - run.accuracy >= GAP):
        return None
    sentence = tr(
        slowly,
        variant=run.title,
        width=width,
        accuracy=percent(run.accuracy),
        step=run.step,
        other=twin.title,
        other_accuracy=percent(twin.accuracy),
    )
    return run.reason("narrow head", sentence, "questions")


def other_seeds(run: Run) -> Reason | None:
    """Report that other seeds of the same variant solve the task."""
    others = run.other_seeds()
    n_solved = sum(other.solves for other in others)
    if not run.counts or run.rise >= RISING or not run.accuracy < NEARLY or not n_solved:
        return None
    sentence = tr(
        "{variant} solves it with {n_solved} of {n_seeds} seeds, but here it has {accuracy} right.",
        variant=run.title,
        n_solved=n_solved,
        n_seeds=len(others) + 1,
        accuracy=percent(run.accuracy),
    )
    advice = tr(
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
    sentence = tr(
        "{variant} does worse than guessing at a learning rate of {rate:g}: its loss is "
        "{loss:.2f}, that of guesses {guessed:.2f}.",
        variant=run.title,
        rate=run.learning_rate,
        loss=loss,
        guessed=guessed,
    )
    return run.reason("optimiser", sentence)


def guesses(run: Run) -> Reason | None:
    """Report that the loss is that of giving every answer the same probability."""
    guessed, loss = run.guessed_loss, run.last("loss")
    if not (run.counts and abs(loss - guessed) <= GUESSED_LOSS * guessed):
        return None
    sentence = tr(
        "{variant} has learned nothing yet: its loss of {loss:.2f} is that of guessing among "
        "{n_answers} answers.",
        variant=run.title,
        loss=loss,
        n_answers=run.snapshot.experiment.task.n_classes,
    )
    return run.reason("chance", sentence)


def memorised(run: Run) -> Reason | None:
    """Report that the accuracy on training examples is much higher than on new ones."""
    training_accuracy = run.last("training_accuracy")
    gap = training_accuracy - run.accuracy
    if not (run.counts and training_accuracy >= KNOWN and gap >= GAP):
        return None
    sentence = tr(
        "{variant} has {training_accuracy} right on examples that it was trained on, but only "
        "{accuracy} on new ones.",
        variant=run.title,
        training_accuracy=percent(training_accuracy),
        accuracy=percent(run.accuracy),
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
    # Translators: {property} is for example "Hops", and the groups are "1" and "2".
    sentence = tr(
        "{variant} answers only some questions. {property} “{best_group}”: {best} right, "
        "“{worst_group}”: {worst}.",
        variant=run.title,
        property=tr(task.slice_title),
        best_group=tr(task.slice_names[best]),
        best=percent(float(accuracies[best])),
        worst_group=tr(task.slice_names[worst]),
        worst=percent(float(accuracies[worst])),
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
    form = "{:.2f}".format if on_loss else percent
    sentence = tr(
        _STILL_LEARNING[on_loss, run.snapshot.status == "running"],
        variant=run.title,
        before=form(before),
        start=start,
        now=form(now),
        end=end,
    )
    return run.reason("early", sentence)


_STILL_LEARNING = {
    (True, True): mark(
        "{variant} is still learning: loss {before} at step {start}, {now} at step {end}."
    ),
    (True, False): mark(
        "{variant} was still learning when training ended: loss {before} at step {start}, {now} at "
        "step {end}."
    ),
    (False, True): mark(
        "{variant} is still learning: {before} right at step {start}, {now} at step {end}."
    ),
    (False, False): mark(
        "{variant} was still learning when training ended: {before} right at step {start}, {now} "
        "at step {end}."
    ),
}
"""Sentences on learning: of the loss or of the accuracy, and while training runs or afterwards."""


def unknown(run: Run) -> Reason | None:
    """Report that a run has ended without solving its task, and that the reason is not known.

    If the attention to the right token is known, the sentence compares it with that of QKV.
    """
    task = run.snapshot.experiment.task
    over = run.snapshot.status != "running" and task.loss_to_beat is None
    if not (over and run.counts and run.accuracy < NEARLY):
        return None
    right, twin = run.last("mass_on_target"), run.reference()
    better = twin if twin is not None and twin.accuracy - run.accuracy >= GAP else None
    values = {"variant": run.title, "accuracy": percent(run.accuracy)}
    values["attention"] = _small_percent(right)
    if better is not None:
        values |= {"other": better.title, "other_accuracy": percent(better.accuracy)}
        values["other_attention"] = _small_percent(better.last("mass_on_target"))
    sentence = tr(_UNKNOWN[not np.isnan(right), better is not None], **values)
    advice = tr("We do not know why.")
    if run.learning_rate > run.default_rate:
        too_high = tr("The learning rate of {rate:g} may be too high.", rate=run.learning_rate)
        advice = f"{too_high} {_slower(run)}"
    page = "asymmetry" if run.has_symmetric_scores else "attention"
    return run.reason("unknown", sentence, page, advice)


_UNKNOWN = {
    (False, False): mark("{variant} has {accuracy} right."),
    (False, True): mark("{variant} has {accuracy} right; {other} has {other_accuracy}."),
    (True, False): mark(
        "{variant} has {accuracy} right and gives {attention} of its attention to the right token."
    ),
    (True, True): mark(
        "{variant} has {accuracy} right and gives {attention} of its attention to the right token; "
        "{other} has {other_accuracy} and gives {other_attention}."
    ),
}
"""Sentences on unknown reasons: whether attention is known, and whether QKV is better."""


def _small_percent(share: float) -> str:
    """Return a share in percent, or "under 1%" where it would round to 0."""
    if share >= 0.01:
        return percent(share)
    # Translators: stands for a number in sentences, such as "gives under 1% to the right token".
    return tr("under {share}", share=percent(0.01))


KINDS: tuple[Callable[[Run], Reason | None], ...] = (
    failed,
    diverged,
    not_trained,
    too_fast,
    mirrored,
    alike_in_table,
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
