"""Numbers of one run of a snapshot, by name; the pair of entries to mark in maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from attnkit.analysis.attention_map import example_of
from attnkit.analysis.direction import symmetry_decides
from attnkit.analysis.responses import Example
from attnkit.experiment.experiment import default_settings
from attnkit.foundation.language import tr
from attnkit.tasks import NOTHING, Task
from attnkit.tasks.own_relations import Relations
from attnkit.training.failure import failure_of, has_learnt, is_plain, rate_of
from attnkit.training.snapshot import THRESHOLD, Snapshot
from attnkit.training.summary import two_numbers
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.sharing import Sharing

RISING_SHARE = 0.75
"""Share of a run's steps; the newest evaluation is compared with the last one within this share."""


def numbers_of(snapshot: Snapshot, variant: Variant, seed: int) -> SimpleNamespace:
    """Return the numbers of one run by name, with every metric at its last evaluation.

    Names that begin with "untied" are of the run with the same seed and options, but without
    sharing, and with "reference" of plain QKV with this seed; NaN and empty if there is none.
    """
    experiment, task = snapshot.experiment, snapshot.experiment.task
    runs, wiring = experiment.runs, experiment.wiring(variant)
    run = runs.index((variant, seed))
    evaluation = int(snapshot.last_evaluation[run])
    counted = snapshot.counted()[: evaluation + 1, run]
    history = {name: values[: evaluation + 1, run] for name, values in snapshot.history.items()}
    last = {name: float(values[-1]) for name, values in history.items()}
    accuracies = snapshot.latest("accuracy").astype(float)
    solved = ~np.isnan(snapshot.steps_to_threshold()) & (accuracies >= THRESHOLD)
    others = [k for k, (other, s) in enumerate(runs) if other == variant and s != seed]
    worst = min(others, key=lambda k: float(np.nan_to_num(accuracies[k])), default=run)
    failure = failure_of(snapshot)

    def twin(name: str, fits: Callable[[Variant], bool]) -> dict[str, Any]:
        k = next((k for k, (other, s) in enumerate(runs) if s == seed and fits(other)), None)
        mass = snapshot.latest("mass_on_target")
        return {
            name: "" if k is None else title_of(runs[k][0]),
            f"{name}_accuracy": math.nan if k is None else float(accuracies[k]),
            f"{name}_mass": math.nan if k is None else float(mass[k]),
        }

    untied = " ".join([Sharing.QKV.value, *variant.value.split()[1:]])
    return SimpleNamespace(
        **last,
        loss_now=last["loss"],
        # The variant, its settings and the task
        given=variant,
        variant=title_of(variant),
        sharing=variant.sharing,
        seed=seed,
        module=wiring.module,
        width=wiring.sizes.d_v,
        rate=rate_of(experiment, variant),
        default_rate=float(default_settings(task.name)["learning_rate"]),
        chance=task.chance,
        guessed=math.log(task.n_classes),
        n_answers=task.n_classes,
        n_others=task.n_ctx - task.answers_from - 1,
        plateau=task.plateau,
        contested=task.direction.contested if isinstance(task, Relations) else None,
        symmetry_decides=symmetry_decides(experiment),
        loss_to_beat=task.loss_to_beat,
        property=tr(task.slice_title),
        of_bosses=task.label_legend == "name: boss",
        # The run
        step=int(snapshot.eval_steps[evaluation]),
        untrained=snapshot.step == 0,
        early=snapshot.eval_steps[evaluation] < experiment.training.steps / 2,
        running=snapshot.status == "running",
        counts=bool(counted[-1]),
        diverged_at=int(snapshot.diverged_at[run]),
        failure=failure is not None,
        failed="" if failure is None else failure.sentence,
        failed_advice="" if failure is None else failure.advice,
        solves=bool(solved[run]),
        has_learnt=bool(has_learnt(experiment, *map(np.array, (last["accuracy"], last["loss"])))),
        same_both_ways=bool(snapshot.same_both_ways[run]),
        **_since_earlier(snapshot.eval_steps[: evaluation + 1], counted, history),
        **_groups(task, snapshot.slice_accuracy[run]),
        **_example(snapshot, run, variant),
        # Other runs
        n_seeds=experiment.n_seeds,
        n_solved=int(solved[others].sum()),
        worst_seed=runs[worst][1],
        worst_accuracy=float(accuracies[worst]),
        **twin("untied", lambda other: other.value == untied),
        **twin("reference", lambda other: is_plain(other) and other != variant),
    )


def _since_earlier(
    steps: np.ndarray, counted: np.ndarray, history: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Return accuracy and loss at the last evaluation that counts within `RISING_SHARE` of steps.

    Rise of the accuracy and fall of the loss are those since then; all are NaN if there is none.
    """
    start = steps[counted][0] if counted.any() else steps[-1]
    before = counted & (steps <= start + RISING_SHARE * (steps[-1] - start)) & (steps < steps[-1])
    found = {"start": -1, "accuracy_before": math.nan, "loss_before": math.nan}
    if before.any():
        k = int(np.flatnonzero(before)[-1])
        accuracy, loss = (float(history[name][k]) for name in ("accuracy", "loss"))
        found = {"start": int(steps[k]), "accuracy_before": accuracy, "loss_before": loss}
    rise = float(history["accuracy"][-1]) - found["accuracy_before"]
    return {**found, "rise": rise, "fall": found["loss_before"] - float(history["loss"][-1])}


def _groups(task: Task, accuracies: np.ndarray) -> dict[str, Any]:
    """Return names and accuracies of the groups of questions that are answered best and worst."""
    found: dict[str, Any] = {"best": math.nan, "worst": math.nan}
    measured = np.flatnonzero(np.isfinite(accuracies))
    if len(measured):
        ordered = accuracies[measured]
        for name, k in (("best", ordered.argmax()), ("worst", ordered.argmin())):
            found[name] = float(ordered[k])
            found[f"{name}_group"] = tr(task.slice_names[measured[k]])
    return found


def _example(snapshot: Snapshot, run: int, variant: Variant) -> dict[str, Any]:
    """Return where queries of the example look in the last layer, and both scores of a pair.

    Those are the queries that have an answer in one token. The attention is the mean of the heads;
    scores are known of a single head only. What is not known is NaN, and the pair None.
    """
    probe, task = snapshot.probe, snapshot.experiment.task
    wiring, first = snapshot.experiment.wiring(variant), task.answers_from
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
    pair = marked_pair(task, example_of(snapshot))
    if pair is None or probe.scores is None or not wiring.sizes.n_heads == wiring.n_maps == 1:
        return found
    scores = probe.scores[run, -1, 0].astype(np.float64)
    third = int(probe.target[pair[1] - first])
    same = bool(snapshot.same_both_ways[run])
    score, mirror = two_numbers(float(scores[pair]), float(scores[pair[::-1]]), same=same)
    labels = task.label(probe.tokens)
    texts = (labels[position].short for position in (*pair, third))
    return {
        **found,
        **dict(zip(("first", "second", "third"), texts, strict=True)),
        "pair": pair,
        "score": score,
        "mirror": mirror,
        "diverted": float(pattern[pair[::-1]]),
        "kept": float(pattern[pair[1], third]),
    }


def marked_pair(task: Task, example: Example) -> tuple[int, int] | None:
    """Return the pair of entries of the example that maps mark and sentences name.

    It is the first query with an answer and the entry that holds it. The pair depends on the
    example alone, so that it is the same for all variants and seeds and at every step.

    Returns:
        The position of the query, and of the entry that it should attend to. Attending in the
        opposite direction is wrong. None if the task has no such pairs.
    """
    first = task.answers_from
    reverse = {first + a: int(position) for a, position in enumerate(example.reverse)}
    for a, target in enumerate(map(int, example.target)):
        has_answer = target != NOTHING and example.labels[a] != NOTHING
        if has_answer and reverse.get(target) == first + a:
            return first + a, target
    return None


def named_query(task: Task, example: Example) -> int | None:
    """Return the position of the query that sentences about mirrored scores speak of.

    It is the second entry of the marked pair: a variant that scores both directions alike mixes up
    its right entry with the first entry of the pair. None if there is no pair, or no answer to it.
    """
    pair = marked_pair(task, example)
    if pair is None or example.labels[pair[1] - task.answers_from] == NOTHING:
        return None
    return pair[1]
