"""Tables and sentences about a snapshot, for the command line and the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnkit.experiment import Experiment
from attnkit.foundation.language import in_language, mark, tr
from attnkit.training.failure import Failure, failure_of
from attnkit.training.metrics import SHOWN
from attnkit.training.snapshot import CONSECUTIVE, THRESHOLD, Snapshot
from attnkit.training.statistics import mean_interval, paired_difference
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.sharing import Sharing

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.tasks import Task


def run_table(snapshot: Snapshot) -> pd.DataFrame:
    """Return a table with one row per run: variant, seed, metrics at the last evaluation, costs."""
    import pandas as pd

    experiment = snapshot.experiment
    variants = [variant for variant, _ in experiment.runs]
    metrics = {name: snapshot.latest(name).astype(np.float64) for name in SHOWN}
    return pd.DataFrame(
        {
            "sharing": [variant.value for variant in variants],
            "seed": [seed for _, seed in experiment.runs],
            "steps_to_threshold": snapshot.steps_to_threshold(),
            **metrics,
            "diverged_at": np.where(snapshot.diverged_at < 0, np.nan, snapshot.diverged_at),
            "attention_parameters": [experiment.costs(v).attention for v in variants],
            **_costs(experiment, variants),
        }
    )


def _costs(experiment: Experiment, variants: Sequence[Variant]) -> dict[str, Any]:
    """Return the columns of the costs of variants that both tables have."""
    import pandas as pd

    costs = [experiment.costs(variant) for variant in variants]
    caches = [cost.kv_cache for cost in costs]
    return {
        "parameters": [cost.parameters for cost in costs],
        "kv_cache_floats_per_token": pd.Series(caches, dtype="Int64" if None in caches else None),
        "multiply_adds_per_token": [cost.multiply_adds for cost in costs],
    }


def sharing_table(snapshot: Snapshot) -> pd.DataFrame:
    """Return a table with one row per variant: means over seeds, accuracy with 95% interval.

    `solved` counts the seeds that reached the threshold, and `steps_to_threshold` is the mean over
    these seeds. `difference…` is the mean difference to the accuracy of QKV, seed by seed, if QKV
    was trained.
    """
    import pandas as pd

    experiment = snapshot.experiment
    sharings = [sharing.value for sharing in experiment.sharing]
    last = {name: snapshot.per_sharing(snapshot.latest(name)) for name in SHOWN}
    accuracy = mean_interval(last["accuracy"])
    steps = snapshot.per_sharing(snapshot.steps_to_threshold())
    means = {
        name: mean_interval(last[name]).mean
        for name, metric in SHOWN.items()
        if metric.in_summary and name != "accuracy"
    }
    table = pd.DataFrame(
        {
            "sharing": sharings,
            "accuracy": accuracy.mean,
            "accuracy_low": accuracy.low,
            "accuracy_high": accuracy.high,
            "solved": (~np.isnan(steps)).sum(-1),
            "steps_to_threshold": mean_interval(steps).mean,
            **means,
            "diverged": snapshot.per_sharing(snapshot.diverged_at >= 0).sum(-1),
            **_costs(experiment, experiment.sharing),
        }
    )
    if Sharing.QKV.value in sharings and len(sharings) > 1:
        baseline = last["accuracy"][sharings.index(Sharing.QKV.value)]
        gap = paired_difference(last["accuracy"], np.broadcast_to(baseline, last["accuracy"].shape))
        others = table["sharing"] != Sharing.QKV.value
        for suffix, values in (("", gap.mean), ("_low", gap.low), ("_high", gap.high)):
            table[f"difference{suffix}"] = np.where(others, values, np.nan)
    return table


def slice_table(snapshot: Snapshot) -> pd.DataFrame:
    """Return the mean accuracy over seeds, with a row per variant and a column per slice.

    If the task has no slices (groups of answers), the table has no other column than the sharing.
    """
    import pandas as pd

    experiment = snapshot.experiment
    means = mean_interval(snapshot.per_sharing(snapshot.slice_accuracy.T)).mean  # (slice, sharing)
    columns = dict(zip(experiment.task.slice_names, means, strict=True))
    return pd.DataFrame({"sharing": [v.value for v in experiment.sharing], **columns})


def solved_in_words(task: Task) -> str:
    """Return what it means to solve a task; an empty text where the loss counts."""
    if task.loss_to_beat is not None:
        return ""
    meaning = f"Solved: at least {percent(THRESHOLD)} right at {CONSECUTIVE} evaluations in a row."
    return f"{meaning} {never_solved(task)}".rstrip()


def never_solved(task: Task) -> str:
    """Return why no variant can solve a task; an empty text if one may be able to."""
    if task.most_right >= THRESHOLD:
        return ""
    return tr(
        "No variant can solve this task: some questions have several answers, so that no more "
        "than about {most} can be right.",
        most=percent(task.most_right),
    )


def solved_variants(snapshot: Snapshot) -> list[Variant]:
    """Return the variants that have solved the task.

    A variant has solved a task if all its seeds have reached the threshold; or, where the task has
    a loss to beat, if the upper 95% limit of its mean loss is below that loss.
    """
    experiment = snapshot.experiment
    if experiment.task.loss_to_beat is None:
        solved = ~np.isnan(snapshot.per_sharing(snapshot.steps_to_threshold())).any(-1)
    else:
        solved = _highest_loss(snapshot) < experiment.task.loss_to_beat
    return [
        variant for variant, is_solved in zip(experiment.sharing, solved, strict=True) if is_solved
    ]


def _highest_loss(snapshot: Snapshot) -> np.ndarray:
    """Return the upper 95% limit of each variant's mean loss; with a single seed, its loss."""
    interval = mean_interval(snapshot.per_sharing(snapshot.latest("loss")))
    return np.where(np.isnan(interval.high), interval.mean, interval.high)


def finding(snapshot: Snapshot) -> str:
    """Return one or two short sentences about the accuracies.

    If the training failed (see `attnkit.training.failure`), they say so. Otherwise they list the
    variants that have solved the task (see `solved_variants`), and the others with the mean in
    percent, its 95% interval, and the number of diverged seeds. An interval whose limits are the
    same percentage is left out. Where a task has a loss to beat, the sentences are about losses.
    Before the first step they say that nothing is learnt.
    """
    if not snapshot.step:
        return tr("Untrained: nothing is learnt yet.")
    failure = failure_of(snapshot)
    if failure is not None:
        return _finding_of_failure(snapshot, failure)
    if snapshot.experiment.task.loss_to_beat is not None:
        return _finding_on_loss(snapshot, snapshot.experiment.task.loss_to_beat)
    accuracy = snapshot.per_sharing(snapshot.latest("accuracy"))
    solved_sharings = solved_variants(snapshot)
    n_diverged = snapshot.per_sharing(snapshot.diverged_at >= 0).sum(-1)
    interval = mean_interval(accuracy)
    n_seeds = snapshot.experiment.n_seeds
    solved, others, explained = [], [], False
    for i, variant in enumerate(snapshot.experiment.sharing):
        if variant in solved_sharings:
            solved.append(title_of(variant))
        elif n_diverged[i] == n_seeds:
            others.append(tr("{variant} diverged", variant=title_of(variant)))
        else:
            limits = percent_limits(interval.low[i], interval.high[i])
            parts = [title_of(variant), percent(interval.mean[i])]
            if limits:
                first = tr("(95% interval {limits})", limits=limits)
                parts.append(f"({limits})" if explained else first)
                explained = True
            if n := int(n_diverged[i]):
                parts.append(tr("({n} of {n_seeds} diverged)", n=n, n_seeds=n_seeds))
            others.append(" ".join(parts))
    sentences = []
    if solved:
        sentences.append(_solved_by_all(n_seeds, ", ".join(solved)))
    if others:
        not_solved = _NOT_SOLVED[snapshot.status == "running"]
        sentences.append(tr(not_solved, variants=", ".join(others)))
    return " ".join(sentences)


_NOT_SOLVED = {
    True: mark("Not solved yet: {variants}."),
    False: mark("Not solved: {variants}."),
}
"""Sentences about the variants that have not solved a task, while they train and afterwards."""


def _solved_by_all(n_seeds: int, variants: str) -> str:
    """Return the sentence that variants have solved a task with all their seeds."""
    if n_seeds == 1:
        return tr("Solved: {variants}.", variants=variants)
    if n_seeds == 2:
        return tr("Solved by both seeds: {variants}.", variants=variants)
    return tr("Solved by all {n_seeds} seeds: {variants}.", n_seeds=n_seeds, variants=variants)


def _finding_of_failure(snapshot: Snapshot, failure: Failure) -> str:
    """Return the accuracies of a training that failed, which is not the fault of a variant."""
    means = mean_interval(snapshot.per_sharing(snapshot.latest("accuracy"))).mean
    texts = [
        tr("{variant} diverged", variant=title_of(variant))
        if np.isnan(mean)
        else f"{title_of(variant)} {percent(mean)}"
        for variant, mean in zip(snapshot.experiment.sharing, means, strict=True)
    ]
    values = {"guess": percent(snapshot.experiment.task.chance), "accuracies": ", ".join(texts)}
    if failure.setting == "steps":
        return tr(
            "Nothing learnt: no variant is clearly better than a simple guess ({guess}). "
            "{accuracies}.",
            **values,
        )
    return tr(
        "Training failed: no variant is clearly better than a simple guess ({guess}). "
        "{accuracies}.",
        **values,
    )


def _finding_on_loss(snapshot: Snapshot, loss_to_beat: float) -> str:
    """List the variants whose mean loss is below that of a simple model, and the others."""
    interval = mean_interval(snapshot.per_sharing(snapshot.latest("loss")))
    below = solved_variants(snapshot)
    sides: dict[bool, list[str]] = {True: [], False: []}
    for i, variant in enumerate(snapshot.experiment.sharing):
        name = title_of(variant)
        mean, low, high = (values[i] for values in (interval.mean, interval.low, interval.high))
        text = tr("{variant} diverged", variant=name) if np.isnan(mean) else f"{name} {mean:.2f}"
        if not np.isnan(low):
            # Translators: the 95% interval of a loss.
            limits = tr("[{low:.2f} to {high:.2f}]", low=low, high=high)
            text = f"{text} {limits}"
        sides[variant in below].append(text)
    model = tr(snapshot.experiment.task.simple_model)
    sentences = [
        tr(_BELOW[side], model=model, loss=loss_to_beat, variants=", ".join(names))
        for side, names in sides.items()
        if names
    ]
    return " ".join([*sentences, *_advice_on_loss(snapshot, below)])


_LEAST_CHANGE = 0.01
"""Smallest change of a mean loss, in nats, for which advice is given."""


def _advice_on_loss(snapshot: Snapshot, below: Sequence[Variant]) -> list[str]:
    """Return advice for variants whose final loss is not below that of a simple model.

    There is none while training runs.
    """
    if snapshot.status == "running" or len(snapshot.eval_steps) < 4:
        return []
    curves = mean_interval(np.moveaxis(snapshot.per_sharing(snapshot.curve("loss")), 1, 0)).mean
    rising, falling = [], []
    for variant, curve in zip(snapshot.experiment.sharing, curves, strict=True):
        if variant in below:
            continue
        if curve[-1] - curve.min() > _LEAST_CHANGE:
            rising.append((title_of(variant), int(snapshot.eval_steps[curve.argmin()])))
        elif curve[-len(curve) // 4 - 1] - curve[-1] > _LEAST_CHANGE:
            falling.append(title_of(variant))
    advice = []
    if rising:
        names = ", ".join(f"{name} ({step:,})" for name, step in rising)
        advice.append(tr(_RISING, variants=names))
    if falling:
        advice.append(tr(_FALLING, variants=", ".join(falling)))
    return advice


# Translators: {variants} are names with numbers of steps, for example "QKV (350), Q=K (420)".
_RISING = mark(
    "The loss on held-out text was lowest after fewer steps and has risen since: {variants}. Fewer "
    "steps help, and so does a longer text."
)
_FALLING = mark("The loss still falls: {variants}. More steps help.")


_BELOW = {
    # Translators: {model} is for example "a bigram model", in the nominative.
    True: mark("Below the loss of {model}, {loss:.2f}: {variants}."),
    # Translators: {model} is for example "a bigram model", in the nominative.
    False: mark("Not clearly below the loss of {model}, {loss:.2f}: {variants}."),
}
"""Sentences about the variants whose loss is below that of a simple model, and about others."""


def measures_finding(snapshot: Snapshot) -> str:
    """Return sentences on attention at the last evaluation: each variant's means over seeds."""
    titles = [title_of(variant) for variant in snapshot.experiment.sharing]
    sentences = []
    for name in ("asymmetry", "mass_on_target", "mass_on_reverse"):
        means = mean_interval(snapshot.per_sharing(snapshot.latest(name))).mean
        pairs = zip(titles, means, strict=True)
        texts = [f"{title} {two_decimals(mean)}" for title, mean in pairs if mean == mean]
        sentences += [f"{SHOWN[name].heading}: {', '.join(texts)}."] if texts else []
    return " ".join(sentences) or tr("No number: this task has neither.")


def asymmetry_in_words(snapshot: Snapshot, variant: Variant) -> str:
    """Return the mean asymmetry of a variant's scores, and whether both directions are the same.

    They are called the same only if they differ by rounding with every seed that has scores.
    """
    index = snapshot.experiment.sharing.index(variant)
    values = snapshot.per_sharing(snapshot.latest("asymmetry"))[index]
    same = snapshot.per_sharing(snapshot.same_both_ways)[index]
    mean = float(mean_interval(values).mean)
    if np.isnan(mean):
        return tr("not defined here")
    if not same[np.isfinite(values)].all():
        return two_decimals(mean)
    # Translators: said of the scores of a pair, in both directions.
    return tr("{asymmetry}, the same both ways", asymmetry=two_decimals(mean))


def fixed(value: float, n_decimals: int, sign: str = "") -> str:
    """Return a number as a text with the minus sign "−"; "–" for NaN, ∞ for infinity.

    Args:
        value: The number.
        n_decimals: Number of decimals.
        sign: "+" for a sign before positive numbers, too.
    """
    if np.isnan(value):
        return "–"
    text = f"{value:{sign}z,.{n_decimals}f}".replace("-", "−").replace("inf", "∞")
    return in_language(text, value)


def two_decimals(value: float) -> str:
    """Return a number with two decimals and a true minus, with more where it would read as 0.00.

    Below a millionth, a number counts as 0; from a thousand on, it is a whole number. NaN is "–".
    """
    size = abs(value)
    if size >= 1000:
        return fixed(value, 0)
    return fixed(value, 2 if size >= 0.005 or size < 1e-6 else 4 if size >= 1e-4 else 6)


def two_numbers(first: float, second: float, *, same: bool) -> tuple[str, str]:
    """Return two numbers as texts that are equal if the numbers are the same, and else differ.

    Numbers that differ get as many decimals as it takes to show it, from two to six.
    """
    if same:
        return two_decimals(first), two_decimals(first)
    texts = [(two_decimals(first), two_decimals(second))]
    texts += [(fixed(first, n), fixed(second, n)) for n in range(3, 7)]
    return next((pair for pair in texts if len({*pair}) > 1), texts[0])


def percent_interval(low: float, high: float) -> str:
    """Return the limits of a share as a text in percent, clipped to 0 … 100%.

    The text is a single percentage if both limits round to it, and empty if there are no limits.
    """
    if np.isnan(low):
        return ""
    lowest, highest = _digits(max(low, 0)), _digits(min(high, 1))
    if lowest == highest:
        return in_percent(highest)
    # Translators: limits of an interval, such as "41 to 59%".
    return tr("{low} to {high}", low=lowest, high=in_percent(highest))


def percents(shares: Iterable[float]) -> str:
    """Return the range of some shares as `percent_interval` writes it, leaving out NaN."""
    known = [share for share in shares if np.isfinite(share)]
    return percent_interval(min(known), max(known)) if known else ""


def percent_limits(low: float, high: float, form: str = "{}") -> str:
    """Return `percent_interval` in a form such as " ({})"; nothing if it is a single percentage."""
    limits = percent_interval(low, high)
    known = limits and limits != percent_interval(high, high)
    return form.format(limits) if known else ""


def whole_percent(share: float) -> float:
    """Return a share as the number of `percent`, for columns that can be sorted; NaN stays NaN."""
    return share if np.isnan(share) else float(_digits(share))


def percent(share: float) -> str:
    """Return a share as a whole percentage, which is 100% only for a share of 1; "–" for NaN."""
    return "–" if np.isnan(share) else in_percent(_digits(share))


def in_percent(number: str) -> str:
    """Return a number with the percent sign, which stands apart in other languages."""
    return in_language(f"{number}%", 0)


def _digits(share: float) -> str:
    """Return the number of `percent` without its sign."""
    return f"{min(share, 0.99):.0%}".removesuffix("%") if share < 1 else "100"


def percent_beside(share: float, other: float) -> str:
    """Return a share in percent with as many decimals as it takes to differ from another share."""
    texts, others = _with_decimals(share), _with_decimals(other)
    return next((a for a, b in zip(texts, others, strict=True) if a != b), texts[0])


def _with_decimals(share: float) -> list[str]:
    """Return a share in percent without decimals, and with one to four."""
    decimals = (f"{share:.{n}%}".removesuffix("%") for n in range(1, 5))
    return [percent(share), *map(in_percent, decimals)]
