"""Tables and sentences about a snapshot, for the command line and the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnkit.training.snapshot import METRICS, Snapshot
from attnkit.training.statistics import mean_interval, paired_difference
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.sharing import Sharing

if TYPE_CHECKING:
    import pandas as pd


def run_table(snapshot: Snapshot) -> pd.DataFrame:
    """Return a table with one row per run: variant, seed, metrics at the last evaluation, costs."""
    import pandas as pd

    experiment = snapshot.experiment
    table = pd.DataFrame(experiment.runs, columns=["sharing", "seed"])
    table["sharing"] = [sharing.value for sharing, _ in experiment.runs]
    for name in METRICS:
        table[name] = snapshot.latest(name).astype(np.float64)
    asymmetry = (1 - snapshot.latest("score_symmetry")) / 2
    table.insert(5, "asymmetry", asymmetry.astype(np.float64))
    table.insert(4, "steps_to_threshold", snapshot.steps_to_threshold())
    table["diverged_at"] = np.where(snapshot.diverged_at < 0, np.nan, snapshot.diverged_at)
    table["attention_parameters"] = [experiment.costs(v).attention for v, _ in experiment.runs]
    table["parameters"] = [experiment.costs(sharing).parameters for sharing, _ in experiment.runs]
    table["kv_cache_floats_per_token"] = [
        experiment.costs(sharing).kv_cache for sharing, _ in experiment.runs
    ]
    table["multiply_adds_per_token"] = [
        experiment.costs(variant).multiply_adds for variant, _ in experiment.runs
    ]
    return table


def sharing_table(snapshot: Snapshot) -> pd.DataFrame:
    """Return a table with one row per variant: means over seeds, accuracy with 95% interval.

    `solved` counts the seeds that reached the threshold, and `steps_to_threshold` is the mean over
    these seeds. `difference…` is the mean difference to the accuracy of QKV, seed by seed, if QKV
    was trained.
    """
    import pandas as pd

    experiment = snapshot.experiment
    sharings = [sharing.value for sharing in experiment.sharing]
    last = {name: snapshot.per_sharing(snapshot.latest(name)) for name in METRICS}
    accuracy = mean_interval(last["accuracy"])
    steps = snapshot.per_sharing(snapshot.steps_to_threshold())
    table = pd.DataFrame(
        {
            "sharing": sharings,
            "accuracy": accuracy.mean,
            "accuracy_low": accuracy.low,
            "accuracy_high": accuracy.high,
            "training_accuracy": mean_interval(last["training_accuracy"]).mean,
            "loss": mean_interval(last["loss"]).mean,
            "solved": (~np.isnan(steps)).sum(-1),
            "steps_to_threshold": mean_interval(steps).mean,
            "asymmetry": mean_interval((1 - last["score_symmetry"]) / 2).mean,
            "mass_on_target": mean_interval(last["mass_on_target"]).mean,
            "mass_on_reverse": mean_interval(last["mass_on_reverse"]).mean,
            "diverged": snapshot.per_sharing(snapshot.diverged_at >= 0).sum(-1),
            "parameters": [experiment.costs(s).parameters for s in experiment.sharing],
            "kv_cache_floats_per_token": [experiment.costs(s).kv_cache for s in experiment.sharing],
            "multiply_adds_per_token": [
                experiment.costs(s).multiply_adds for s in experiment.sharing
            ],
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

    They list the variants that have solved the task (see `solved_variants`), and the others with
    the mean in percent, its 95% interval, and the number of diverged seeds. An interval whose
    limits are the same percentage is left out. Where a task has a loss to beat, the sentences are
    about losses instead.
    """
    if snapshot.experiment.task.loss_to_beat is not None:
        return _finding_on_loss(snapshot, snapshot.experiment.task.loss_to_beat)
    accuracy = snapshot.per_sharing(snapshot.latest("accuracy"))
    solved_sharings = solved_variants(snapshot)
    n_diverged = snapshot.per_sharing(snapshot.diverged_at >= 0).sum(-1)
    interval = mean_interval(accuracy)
    n_seeds = snapshot.experiment.n_seeds
    solved, others, explained = [], [], False
    for i, sharing in enumerate(snapshot.experiment.sharing):
        if sharing in solved_sharings:
            solved.append(title_of(sharing))
        elif n_diverged[i] == n_seeds:
            others.append(f"{title_of(sharing)} diverged")
        else:
            limits = percent_interval(interval.low[i], interval.high[i])
            text = f"{title_of(sharing)} {percent(interval.mean[i])}"
            if " to " in limits:
                text += f" ({'' if explained else '95% interval '}{limits})"
                explained = True
            text += f" ({n_diverged[i]} of {n_seeds} diverged)" if n_diverged[i] else ""
            others.append(text)
    sentences = []
    if solved:
        seeds = {1: "", 2: " by both seeds"}.get(n_seeds, f" by all {n_seeds} seeds")
        sentences.append(f"Solved{seeds}: {', '.join(solved)}.")
    if others:
        not_solved = "Not solved yet" if snapshot.status == "running" else "Not solved"
        sentences.append(f"{not_solved}: {', '.join(others)}.")
    return " ".join(sentences)


def _finding_on_loss(snapshot: Snapshot, loss_to_beat: float) -> str:
    """List the variants whose mean loss is below that of a simple model, and the others."""
    simple = f"the loss of {snapshot.experiment.task.simple_model}, {loss_to_beat:.2f}"
    interval = mean_interval(snapshot.per_sharing(snapshot.latest("loss")))
    below = solved_variants(snapshot)
    sides: dict[str, list[str]] = {"Below": [], "Not below": []}
    for i, variant in enumerate(snapshot.experiment.sharing):
        mean, low, high = (values[i] for values in (interval.mean, interval.low, interval.high))
        limits = "" if np.isnan(low) else f" [{low:.2f} to {high:.2f}]"
        text = "diverged" if np.isnan(mean) else f"{mean:.2f}{limits}"
        sides["Below" if variant in below else "Not below"].append(f"{title_of(variant)} {text}")
    return " ".join(
        f"{side} {simple}: {', '.join(names)}." for side, names in sides.items() if names
    )


def measures_finding(snapshot: Snapshot) -> str:
    """Return sentences on attention at the last evaluation: each variant's means over seeds."""
    titles = [title_of(variant) for variant in snapshot.experiment.sharing]
    measures = {
        "Asymmetry of the scores": (1 - snapshot.latest("score_symmetry")) / 2,
        "Attention on the right token": snapshot.latest("mass_on_target"),
        "Attention on the mirrored entry": snapshot.latest("mass_on_reverse"),
    }
    sentences = []
    for label, values in measures.items():
        means = mean_interval(snapshot.per_sharing(values)).mean
        texts = [f"{t} {mean:.2f}" for t, mean in zip(titles, means, strict=True) if mean == mean]
        sentences += [f"{label}: {', '.join(texts)}."] if texts else []
    return " ".join(sentences) or "No number: this task has neither."


def percent_interval(low: float, high: float) -> str:
    """Return the limits of a share as a text in percent, clipped to 0 … 100%.

    The text is a single percentage if both limits round to it, and empty if there are no limits.
    """
    if np.isnan(low):
        return ""
    lowest, highest = percent(max(low, 0)), percent(min(high, 1))
    return highest if lowest == highest else f"{lowest.removesuffix('%')} to {highest}"


def whole_percent(share: float) -> float:
    """Return a share as the number of `percent`, for columns that can be sorted; NaN stays NaN."""
    return share if np.isnan(share) else float(percent(share).removesuffix("%"))


def percent(share: float) -> str:
    """Return a share as a whole percentage, which is 100% only for a share of 1; "–" for NaN."""
    if np.isnan(share):
        return "–"
    return f"{min(share, 0.99):.0%}" if share < 1 else "100%"
