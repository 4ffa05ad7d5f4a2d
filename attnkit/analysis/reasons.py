"""Reasons why a variant fails, in one sentence with the numbers of its run.

Every kind of failure is recognised by conditions on the metrics of this run. If none of them holds,
there is no sentence. The sentences say what happened, not what is impossible: such claims need
longer training and more seeds, see `attnkit.claims`.

This module imports no torch and no Streamlit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from attnkit.analysis.attention_map import example_of, marked_pair
from attnkit.analysis.direction import LEARNT, MARGIN, symmetry_decides
from attnkit.experiment import Experiment
from attnkit.experiment.experiment import default_settings
from attnkit.foundation.language import mark, tr
from attnkit.foundation.words import Sentence, capitalised, first_true, listed
from attnkit.tasks import NOTHING, Task
from attnkit.tasks.own_relations import Relations
from attnkit.training.failure import failure_of, has_learnt, is_plain, rate_of
from attnkit.training.snapshot import THRESHOLD, Snapshot
from attnkit.training.summary import percent, two_numbers
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.sharing import Sharing
from attnkit.variants.wiring import Wiring


@dataclass(frozen=True)
class Reason:
    """Reason why a variant fails in one run, or that no variant does.

    Attributes:
        variant: The variant that the sentence is about.
        kind: Kind of failure, for example "mirrored"; "solved" if there is none.
        sentence: One plain sentence with numbers of this run.
        page: Page that shows more about it: "attention", "asymmetry" or "questions"; may be empty.
        advice: What is not known about it, or which setting to change; may be empty.
    """

    variant: Variant
    kind: str
    sentence: str
    page: str
    advice: str = ""

    def in_words(self, experiment: Experiment, seed: int) -> str:
        """Return sentence and advice, with the seed if the sentence is about one of several."""
        of_one = experiment.n_seeds > 1 and self.kind not in ("solved", "other seeds", "failed")
        sentence = self.sentence
        if of_one:
            plain = sentence.removesuffix(".")
            # Translators: puts the seed after a whole sentence, before its full stop.
            sentence = tr("{sentence} (seed {seed}).", sentence=plain, seed=seed)
        return f"{sentence} {self.advice}".rstrip()


def reason(snapshot: Snapshot, variant: Variant, seed: int) -> Reason | None:
    """Return the reason why a variant fails with this seed.

    Returns:
        None if it solves the task, or if no kind of failure fits its metrics.
    """
    (run,) = _numbers_of(snapshot, [variant], seed)
    row = _row_of(run)
    return None if row is None else _reason(run, row)


def headline(snapshot: Snapshot, seed: int) -> Reason | None:
    """Return the reason to show first: that of the variant that fails most clearly.

    If no variant fails, return the fewest matrices with which the task was solved.

    Returns:
        None if neither holds.
    """
    runs = _numbers_of(snapshot, snapshot.experiment.sharing, seed)
    found = [(run, row) for run in runs if (row := _row_of(run)) is not None]
    if not found:
        return _solved(runs)
    _, clearest = min(found, key=lambda pair: KINDS.index(pair[1]))
    failing = [pair for pair in found if pair[1].kind == clearest.kind]
    # Rising curves cross each other, so the lowest is named. Runs of most other kinds have similar
    # accuracies, so the first is named, always the same one.
    varied = clearest.kind in ("learning", "unknown")
    return _reason(*(min(failing, key=lambda pair: pair[0].accuracy) if varied else failing[0]))


def _row_of(run: SimpleNamespace) -> Sentence | None:
    rows = (row for row in KINDS if run.counts or row.kind in OF_EVERY_EVALUATION)
    return next((row for row in rows if row.holds(run)), None)


def _reason(run: SimpleNamespace, row: Sentence) -> Reason:
    advice = first_true(ADVICE.get(row.kind, ()), run, _shown)
    return _about(run, row.kind, row.fill(run, _shown), advice)


def _about(run: SimpleNamespace, kind: str, sentence: str, advice: str = "") -> Reason:
    """Return a reason about a run, with the page that shows more about it.

    Attention leaves out what a PyTorch module computes, and Asymmetry needs its scores.
    """
    page = _PAGES.get(kind, "attention")
    if kind == "unknown" and _symmetric(run):
        page = "asymmetry"
    if run.module is not None and page in ("attention", "asymmetry"):
        page = "asymmetry" if run.module.has_scores else ""
    return Reason(run.given, kind, sentence, page, advice)


RISING_SHARE = 0.75
"""Share of a run's steps; the newest evaluation is compared with the last one within this share."""


def _numbers_of(
    snapshot: Snapshot, variants: Sequence[Variant], seed: int
) -> list[SimpleNamespace]:
    """Return the numbers of each variant's run by name, with every metric at its last evaluation.

    Names that begin with "untied" are of the run with the same seed and options, but without
    sharing, and with "reference" of plain QKV with this seed; NaN and empty if there is none.
    """
    experiment, task, runs = snapshot.experiment, snapshot.experiment.task, snapshot.experiment.runs
    accuracies, masses = (
        snapshot.latest(name).astype(float) for name in ("accuracy", "mass_on_target")
    )
    solved = ~np.isnan(snapshot.steps_to_threshold()) & (accuracies >= THRESHOLD)
    failure, same_both_ways = failure_of(snapshot), snapshot.same_both_ways
    last_evaluation, counts = snapshot.last_evaluation, snapshot.counted()
    shared = {
        "seed": seed,
        "n_seeds": experiment.n_seeds,
        "default_rate": float(default_settings(task.name)["learning_rate"]),
        "chance": task.chance,
        "guessed": math.log(task.n_classes),
        "n_answers": task.n_classes,
        "n_others": task.n_ctx - task.answers_from - 1,
        "plateau": task.plateau,
        "most_right": task.most_right,
        "contested": task.direction.contested if isinstance(task, Relations) else None,
        "symmetry_decides": symmetry_decides(experiment),
        "loss_to_beat": task.loss_to_beat,
        "property": tr(task.slice_title),
        "of_bosses": task.label_legend == "name: boss",
        "untrained": snapshot.step == 0,
        "running": snapshot.status == "running",
        "failure": failure is not None,
        "failed": "" if failure is None else failure.sentence,
        "failed_advice": "" if failure is None else failure.advice,
        **_pair_in_words(snapshot),
    }

    def numbers(run: int, variant: Variant) -> SimpleNamespace:
        evaluation, wiring = int(last_evaluation[run]), experiment.wiring(variant)
        counted, steps = counts[: evaluation + 1, run], snapshot.eval_steps[: evaluation + 1]
        history = {name: values[: evaluation + 1, run] for name, values in snapshot.history.items()}
        last = {name: float(values[-1]) for name, values in history.items()}
        others = [
            k for k, (other, s) in enumerate(experiment.runs) if other == variant and k != run
        ]
        worst = min(others, key=lambda k: float(np.nan_to_num(accuracies[k])), default=run)
        untied = " ".join([Sharing.QKV.value, *variant.value.split()[1:]])
        beside = {
            "untied": [k for k, other in with_seed if other.value == untied],
            "reference": [k for k, other in with_seed if is_plain(other) and other != variant],
        }
        for name, found in beside.items():
            last[f"{name}_accuracy"] = float(accuracies[found[0]]) if found else math.nan
            last[f"{name}_mass"] = float(masses[found[0]]) if found else math.nan
        return SimpleNamespace(
            **shared,
            **last,
            **_since_earlier(steps, counted, history),
            **_groups(task, snapshot.slice_accuracy[run]),
            **_attention(snapshot, run, shared["marked"], wiring, same=bool(same_both_ways[run])),
            **{
                name: title_of(runs[found[0]][0]) if found else "" for name, found in beside.items()
            },
            given=variant,
            variant=title_of(variant),
            sharing=variant.sharing,
            module=wiring.module,
            width=wiring.sizes.d_v,
            rate=rate_of(experiment, variant),
            step=int(steps[-1]),
            early=steps[-1] < experiment.training.steps / 2,
            counts=bool(counted[-1]),
            diverged_at=int(snapshot.diverged_at[run]),
            solves=bool(solved[run]),
            has_learnt=bool(
                has_learnt(experiment, *map(np.array, (last["accuracy"], last["loss"])))
            ),
            same_both_ways=bool(same_both_ways[run]),
            n_solved=int(solved[others].sum()),
            worst_seed=runs[worst][1],
            worst_accuracy=float(accuracies[worst]),
        )

    with_seed = [(k, other) for k, (other, s) in enumerate(runs) if s == seed]
    return [numbers(k, variant) for k, variant in with_seed if variant in variants]


def _since_earlier(
    steps: np.ndarray, counted: np.ndarray, history: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Return accuracy and loss at the last evaluation that counts within `RISING_SHARE` of steps.

    Rise of the accuracy and fall of the loss are those since then; all are NaN if there is none.
    """
    start = steps[counted][0] if counted.any() else steps[-1]
    before = counted & (steps <= start + RISING_SHARE * (steps[-1] - start)) & (steps < steps[-1])
    k = int(np.flatnonzero(before)[-1]) if before.any() else None
    accuracy, loss = (
        math.nan if k is None else float(history[name][k]) for name in ("accuracy", "loss")
    )
    return {
        "start": -1 if k is None else int(steps[k]),
        "accuracy_before": accuracy,
        "loss_before": loss,
        "rise": float(history["accuracy"][-1]) - accuracy,
        "fall": loss - float(history["loss"][-1]),
    }


def _groups(task: Task, accuracies: np.ndarray) -> dict[str, Any]:
    if not np.isfinite(accuracies).any():
        return {"best": math.nan, "worst": math.nan}
    best, worst = int(np.nanargmax(accuracies)), int(np.nanargmin(accuracies))
    return {
        "best": float(accuracies[best]),
        "best_group": tr(task.slice_names[best]),
        "worst": float(accuracies[worst]),
        "worst_group": tr(task.slice_names[worst]),
    }


def _pair_in_words(snapshot: Snapshot) -> dict[str, Any]:
    """Return the marked pair, and the names of its entries and of the second one's answer."""
    task, probe = snapshot.experiment.task, snapshot.probe
    pair = marked_pair(task, example_of(snapshot))
    if pair is None:
        return {"marked": None}
    labels, third = task.label(probe.tokens), int(probe.target[pair[1] - task.answers_from])
    names = (labels[position].short for position in (*pair, third))
    return {"marked": pair, **dict(zip(("first", "second", "third"), names, strict=True))}


def _attention(
    snapshot: Snapshot, run: int, marked: tuple[int, int] | None, wiring: Wiring, *, same: bool
) -> dict[str, Any]:
    """Return where queries of the example look in the last layer, and both scores of a pair.

    Those are the queries that have an answer in one token. The attention is the mean of the heads;
    scores are known of a single head only. What is not known is NaN, and the pair None.
    """
    probe, first = snapshot.probe, snapshot.experiment.task.answers_from
    names = ("itself", "right", "most_itself", "questions", "entries")
    found: dict[str, Any] = {**dict.fromkeys(names, math.nan), "pair": None}
    if not probe.pattern.size:
        return found
    pattern = probe.pattern[run, -1, : wiring.sizes.n_heads].astype(np.float64).mean(0)
    answers = np.flatnonzero((probe.target != NOTHING) & (probe.labels != NOTHING))
    rows, targets = first + answers, probe.target[answers]
    if len(rows) and targets.max() < first:
        found["questions"] = float(pattern[rows, first:].sum(1).mean())
        found["entries"] = float(pattern[rows, :first].sum(1).mean())
    rows, targets = rows[targets != rows], targets[targets != rows]
    if len(rows):
        found["itself"] = float(pattern[rows, rows].mean())
        found["right"] = float(pattern[rows, targets].mean())
        found["most_itself"] = float((pattern[rows].argmax(1) == rows).mean())
    if marked is None or probe.scores is None or not wiring.sizes.n_heads == wiring.n_maps == 1:
        return found
    scores = probe.scores[run, -1, 0].astype(np.float64)
    score, mirror = two_numbers(float(scores[marked]), float(scores[marked[::-1]]), same=same)
    kept = pattern[marked[1], int(probe.target[marked[1] - first])]
    found |= {"pair": marked, "score": score, "mirror": mirror}
    return {**found, "diverted": float(pattern[marked[::-1]]), "kept": float(kept)}


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

NEAR_MOST = 0.03
"""Points below the most that can be right; questions are drawn, so this varies between runs."""

NEARLY = 0.95
"""Accuracy above which there is little left to explain."""

SYMMETRIC = 0.1
"""Largest symmetry error of scores that count as symmetric. After training, scores of separate
matrices have 0.3 or more, those of Q=K with relative positions about 0.03."""

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


_PERCENT = set(
    "accuracy accuracy_before training_accuracy untied_accuracy reference_accuracy worst_accuracy "
    "best worst itself questions contested plateau most_right".split()
)
_SMALL_PERCENT = {"mass_on_target", "mass_on_reverse", "reference_mass", "right", "entries"}


def _shown(run: SimpleNamespace, name: str) -> Any:
    """Return a number as sentences show it, or a sentence that is part of a text by its name."""
    if name in PARTS:
        return first_true(PARTS[name], run, _shown)
    value = getattr(run, name)
    if name in _SMALL_PERCENT and value < 0.01:
        # Translators: stands for a number, such as in "gives under 1% to the right token".
        return tr("under {share}", share=percent(0.01))
    return percent(value) if name in _PERCENT | _SMALL_PERCENT else value


def _symmetric(run: SimpleNamespace) -> Any:
    return run.symmetry_error <= SYMMETRIC and run.score_symmetry > 0


def _mirrored(run: SimpleNamespace) -> Any:
    right, mirrored = run.mass_on_target, run.mass_on_reverse
    level = 0.5 if run.plateau is None else run.plateau
    attended = min(right, mirrored) * run.n_others >= LEAST_REVERSED
    even = abs(right - mirrored) <= EVEN * max(right, mirrored)
    low, high = (level + distance for distance in NEAR_GUESSING)
    return _symmetric(run) and attended and even and low <= run.accuracy <= high


def _alike_in_table(run: SimpleNamespace) -> Any:
    """Return whether symmetric scores limit a run on an own table that QKV has learnt.

    The limit is that of the expectation before training.
    """
    limited = run.contested is not None and run.plateau is not None and run.symmetry_decides
    learnt = run.reference_accuracy >= LEARNT
    return limited and learnt and _symmetric(run) and run.accuracy <= run.plateau + MARGIN


def _finds_itself(run: SimpleNamespace) -> Any:
    attends = run.itself >= max(LEAST_SELF, 2 * run.right)
    return attends and run.most_itself >= LEAST_SELF_ROWS and run.accuracy < KNOWN


def _narrow(run: SimpleNamespace) -> Any:
    learns = run.rise > 0 and (run.rise >= RISING or run.fall >= FALLING)
    slower = run.untied_accuracy - run.accuracy >= GAP
    return run.width <= NARROW and learns and slower and run.accuracy > run.chance


def _worse_than_guesses(run: SimpleNamespace) -> Any:
    learnt = run.accuracy > run.chance  # confident models may have such a loss, too
    return not run.early and not learnt and run.loss > (1 + WORSE) * run.guessed


def _rises(run: SimpleNamespace) -> Any:
    return run.accuracy < NEARLY and run.rise >= RISING and run.loss_to_beat is None


def _loss_falls(run: SimpleNamespace) -> Any:
    """Return whether the loss is still falling, below that of guesses, and the accuracy is not."""
    below = run.loss < (1 - GUESSED_LOSS) * run.guessed
    return run.accuracy < NEARLY and run.fall >= FALLING and run.rise >= 0 and below


def _near_most(run: SimpleNamespace) -> Any:
    """Return whether nearly all is right that can be, where one question has several answers."""
    return run.most_right < 1 and run.accuracy >= run.most_right - NEAR_MOST


def _ended(run: SimpleNamespace) -> Any:
    below = run.accuracy < NEARLY and not _near_most(run)
    return not run.running and run.loss_to_beat is None and below


def _ended_below(run: SimpleNamespace) -> Any:
    return _ended(run) and run.reference_accuracy - run.accuracy >= GAP


def _too_fast(run: SimpleNamespace) -> Any:
    return run.rate > run.default_rate


_MIRRORED, _FAILED, _FAILED_ADVICE = "{question} {alike} {effect}", "{failed}", "{failed_advice}"
_TOO_HIGH, _SCORED = "{too_high} {slower}", "{scored}."

KINDS = (
    # Not even QKV has learnt the task, so sharing is not the reason.
    Sentence(_FAILED, lambda run: run.failure and not run.untrained, kind="failed"),
    Sentence(
        "{variant} diverged by step {diverged_at}: its loss is not a finite number any more.",
        lambda run: run.diverged_at >= 0,
        kind="diverged",
    ),
    Sentence(
        "{variant} is not trained yet: {accuracy} right.",
        lambda run: run.untrained,
        kind="not trained",
    ),
    Sentence(
        "{variant} learnt next to nothing at a learning rate of {rate:g}: {accuracy} right.",
        lambda run: _too_fast(run) and not run.early and not run.has_learnt,
        kind="too fast",
    ),
    Sentence(_MIRRORED, lambda run: _mirrored(run) and run.pair, kind="mirrored"),
    Sentence(
        "{variant} gives {mass_on_target} of its attention to the right entry and "
        "{mass_on_reverse} to the mirrored one, so it guesses: {accuracy} right.",
        _mirrored,
        kind="mirrored",
    ),
    Sentence(
        "{variant} scores both directions alike, so {contested} of the questions have a second "
        "entry as good as the right one. At most about {plateau} can then be right: it has "
        "{accuracy}, {reference} {reference_accuracy}.",
        lambda run: _alike_in_table(run) and run.same_both_ways,
        kind="alike in table",
    ),
    Sentence(
        "{variant} scores both directions almost alike, so {contested} of the questions have a "
        "second entry as good as the right one. At most about {plateau} can then be right: it "
        "has {accuracy}, {reference} {reference_accuracy}.",
        _alike_in_table,
        kind="alike in table",
    ),
    Sentence(
        "{variant} finds itself: here, tokens give {itself} of their attention to themselves and "
        "{right} to the right token.",
        _finds_itself,
        kind="finds itself",
    ),
    Sentence(
        "{variant}: here, questions give {questions} of their attention to questions and {entries} "
        "to the entries that hold the answers.",
        lambda run: run.questions >= MOST_QUESTIONS and run.accuracy < KNOWN,
        kind="looks elsewhere",
    ),
    Sentence(
        "{variant} learns slowly: the {width} numbers of a head are both key and value: "
        "{accuracy} right at step {step}, {untied} {untied_accuracy}.",
        lambda run: run.sharing is Sharing.K_V and _narrow(run),
        kind="narrow head",
    ),
    Sentence(
        "{variant} learns slowly: the {width} numbers of a head are both query and value: "
        "{accuracy} right at step {step}, {untied} {untied_accuracy}.",
        lambda run: run.sharing is Sharing.Q_V and _narrow(run),
        kind="narrow head",
    ),
    Sentence(
        "{variant} solves it with {n_solved} of {n_seeds} seeds, but here it has {accuracy} right.",
        lambda run: run.n_solved and not run.rise >= RISING and run.accuracy < NEARLY,
        kind="this seed",
    ),
    Sentence(
        "{variant} does worse than guessing at a learning rate of {rate:g}: its loss is "
        "{loss:.2f}, that of guesses {guessed:.2f}.",
        _worse_than_guesses,
        kind="worse than guesses",
    ),
    Sentence(
        "{variant} has learnt nothing yet: its loss of {loss:.2f} is that of guessing among "
        "{n_answers} answers.",
        lambda run: abs(run.loss - run.guessed) <= GUESSED_LOSS * run.guessed,
        kind="chance",
    ),
    Sentence(
        "{variant} has {training_accuracy} right on examples that it was trained on, but only "
        "{accuracy} on new ones.",
        lambda run: run.training_accuracy >= KNOWN and run.training_accuracy - run.accuracy >= GAP,
        kind="memorised",
    ),
    Sentence(
        "{variant} is still learning: {accuracy_before} right at step {start}, {accuracy} at "
        "step {step}.",
        lambda run: _rises(run) and run.running,
        kind="learning",
    ),
    Sentence(
        "{variant} was still learning when training ended: {accuracy_before} right at step "
        "{start}, {accuracy} at step {step}.",
        _rises,
        kind="learning",
    ),
    Sentence(
        "{variant} is still learning: loss {loss_before:.2f} at step {start}, {loss:.2f} at "
        "step {step}.",
        lambda run: _loss_falls(run) and run.running,
        kind="learning",
    ),
    Sentence(
        "{variant} was still learning when training ended: loss {loss_before:.2f} at step "
        "{start}, {loss:.2f} at step {step}.",
        _loss_falls,
        kind="learning",
    ),
    # Translators: {property} is for example "Hops", and the groups are "1" and "2".
    Sentence(
        "{variant} answers only some questions. {property} “{best_group}”: {best} right, "
        "“{worst_group}”: {worst}.",
        lambda run: run.best >= KNOWN and run.worst <= UNKNOWN,
        kind="part",
    ),
    Sentence(
        "{variant} has {accuracy} right and gives {mass_on_target} of its attention to the "
        "right token; {reference} has {reference_accuracy} and gives {reference_mass}.",
        lambda run: _ended_below(run) and not math.isnan(run.mass_on_target),
        kind="unknown",
    ),
    Sentence(
        "{variant} has {accuracy} right; {reference} has {reference_accuracy}.",
        _ended_below,
        kind="unknown",
    ),
    Sentence(
        "{variant} has {accuracy} right and gives {mass_on_target} of its attention to the "
        "right token.",
        lambda run: _ended(run) and not math.isnan(run.mass_on_target),
        kind="unknown",
    ),
    Sentence("{variant} has {accuracy} right.", _ended, kind="unknown"),
    Sentence(
        "{variant} has {accuracy} right. No more than about {most_right} can be, because some "
        "questions have several answers.",
        lambda run: _near_most(run) and not run.solves,
        kind="contradictions",
    ),
)
"""Failures, the clearest first."""

OF_EVERY_EVALUATION = ("failed", "diverged", "not trained")
"""Kinds that do not need an evaluation of the final variant on the final task."""

_PAGES = {"failed": "", "mirrored": "asymmetry", "alike in table": "asymmetry"}
_PAGES |= {"narrow head": "questions"}
"""Page that shows more about a kind, where it is not Attention."""

_SLOWER = Sentence(
    "The task’s default is {default_rate:g}: lower the learning rate and train again.",
    _too_fast,
)

ADVICE = {
    "failed": [Sentence(_FAILED_ADVICE)],
    "diverged": [Sentence("Try a learning rate below {rate:g}.")],
    "too fast": [_SLOWER],
    "alike in table": [
        Sentence(
            "Why it stays far below that is not known.",
            lambda run: run.accuracy < run.plateau - 2 * MARGIN,
        )
    ],
    "this seed": [
        Sentence(
            "Seeds differ in their random starting weights and training examples; we do not know "
            "what in them decides."
        )
    ],
    "unknown": [Sentence(_TOO_HIGH, _too_fast), Sentence("We do not know why.")],
}
"""What is not known about a kind, or which setting to change."""

PARTS = {
    "question": [
        Sentence(
            "{first}’s boss is {second}, {second}’s boss is {third}.", lambda run: run.of_bosses
        ),
        Sentence("{first} asks for {second}, {second} asks for {third}."),
    ],
    "alike": [
        Sentence("{scored}, because Q and K share a matrix.", lambda run: run.sharing.symmetric),
        Sentence(_SCORED),
    ],
    # Translators: these three stand before "." or before ", because Q and K share a matrix.".
    "scored": [
        Sentence(
            "{variant} scores {first}→{second} and {second}→{first} the same ({score})",
            lambda run: run.same_both_ways,
        ),
        Sentence(
            "{variant} scores {first}→{second} and {second}→{first} almost the same (both {score})",
            lambda run: run.score == run.mirror,
        ),
        Sentence(
            "{variant} scores {first}→{second} and {second}→{first} almost the same ({score} and "
            "{mirror})"
        ),
    ],
    "effect": [
        Sentence(
            "So it guesses: {accuracy} right.",
            lambda run: not run.diverted >= LEAST_DIVERTED * run.kept,
        ),
        Sentence(
            "Asked for {second}’s boss, it mixes up {third} and {first}: {accuracy} right.",
            lambda run: run.of_bosses,
        ),
        Sentence(
            "Asked for {second}, it mixes up {third} and {first}: {accuracy} right.",
        ),
    ],
    "too_high": [Sentence("The learning rate of {rate:g} may be too high.")],
    "slower": [_SLOWER],
}
"""Sentences that stand beside others in a text, by the names that it gives them."""


_FEWEST = (Sharing.Q_K_V, Sharing.Q_K, Sharing.K_V, Sharing.Q_V, Sharing.QKV)

_NOUNS = {"Q": mark("queries"), "K": mark("keys"), "V": mark("values")}

_PLAIN = {
    ("one", True): mark("{variant} solves it."),
    ("both", True): mark("Both variants solve it."),
    ("all", True): mark("All {n_variants} variants solve it."),
    ("one", False): mark("{variant} has at least {accuracy} right."),
    ("both", False): mark("Both variants have at least {accuracy} right."),
    ("all", False): mark("All {n_variants} variants have at least {accuracy} right."),
}
"""Sentences by the number of variants, and by whether they solve the task or nearly do."""

# Translators: {sentence} is for example "Both variants solve it", and {roles} "queries and keys" or
# "queries, keys and values".
_SHARING = mark("{sentence}, even with one matrix for {roles}.")

# Translators: {outcome} is "with seed 1, Q=K diverged" or "with seed 1, Q=K has 50% right".
_WITH_SEED = mark("{sentence} with seed {seed}; {outcome}.")

_OUTCOMES = {
    True: mark("with seed {seed}, {variant} diverged"),
    False: mark("with seed {seed}, {variant} has {accuracy} right"),
}
"""Clauses about the worst run of other seeds, by whether it diverged."""


def _solved(runs: Sequence[SimpleNamespace]) -> Reason | None:
    lowest = min(run.accuracy for run in runs)
    is_solved = all(run.solves for run in runs)
    if not is_solved and not lowest >= NEARLY:
        return None
    key = {1: "one", 2: "both"}.get(len(runs), "all"), is_solved
    variant, accuracy = capitalised(runs[0].variant), percent(lowest)
    sentence = tr(_PLAIN[key], variant=variant, n_variants=len(runs), accuracy=accuracy)
    clause = sentence.removesuffix(".")
    worst = min(runs, key=lambda run: float(np.nan_to_num(run.worst_accuracy)))
    if not worst.worst_accuracy >= NEARLY:
        outcome = tr(
            _OUTCOMES[math.isnan(worst.worst_accuracy)],
            seed=worst.worst_seed,
            variant=worst.variant,
            accuracy=percent(worst.worst_accuracy),
        )
        of_seed = tr(_WITH_SEED, sentence=clause, seed=runs[0].seed, outcome=outcome)
        return _about(worst, "other seeds", of_seed)
    plain = [run for run in runs if run.given.is_partition]
    fewest = min(plain or runs, key=lambda run: _FEWEST.index(run.sharing))
    sharing = next((members for members in fewest.sharing.classes if len(members) > 1), ())
    if plain and sharing:
        roles = listed(tr(_NOUNS[role]) for role in sharing)
        sentence = tr(_SHARING, sentence=clause, roles=roles)
    return _about(fewest, "solved", sentence)
