"""Tables and sentences made of a Snapshot: what the command line prints and pages show."""

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
    """One row per run: what it is, its metrics at the last evaluation, its costs."""
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
    table["parameters"] = [experiment.costs(sharing).parameters for sharing, _ in experiment.runs]
    table["kv_cache_floats_per_token"] = [
        experiment.costs(sharing).kv_cache for sharing, _ in experiment.runs
    ]
    table["multiply_adds_per_token"] = [
        experiment.costs(variant).multiply_adds for variant, _ in experiment.runs
    ]
    return table


def sharing_table(snapshot: Snapshot) -> pd.DataFrame:
    """One row per sharing: means over seeds, with 95% intervals for accuracy.

    `solved` counts seeds that reached the threshold, and `steps_to_threshold` is the mean over
    those; `difference…` is the accuracy minus that of QKV, seed by seed, where QKV was trained.
    """
    import pandas as pd

    experiment = snapshot.experiment
    last = {name: snapshot.per_sharing(snapshot.latest(name)) for name in METRICS}
    accuracy = mean_interval(last["accuracy"])
    steps = snapshot.per_sharing(snapshot.steps_to_threshold())
    table = pd.DataFrame(
        {
            "sharing": [sharing.value for sharing in experiment.sharing],
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
    baselines = [place for place, v in enumerate(experiment.sharing) if v == Sharing.QKV.value]
    if baselines and len(experiment.sharing) > 1:
        baseline = last["accuracy"][baselines[0]]
        gap = paired_difference(last["accuracy"], np.broadcast_to(baseline, last["accuracy"].shape))
        others = table["sharing"] != Sharing.QKV.value
        for suffix, values in (("", gap.mean), ("_low", gap.low), ("_high", gap.high)):
            table[f"difference{suffix}"] = np.where(others, values, np.nan)
    return table


def slice_table(snapshot: Snapshot) -> pd.DataFrame:
    """One row per sharing, one column per group of answers: mean accuracy over seeds.

    Without columns besides the sharing where the task tells no groups apart.
    """
    import pandas as pd

    experiment = snapshot.experiment
    means = mean_interval(snapshot.per_sharing(snapshot.slice_accuracy.T)).mean  # (slice, sharing)
    columns = dict(zip(experiment.task.slice_names, means, strict=True))
    return pd.DataFrame({"sharing": [v.value for v in experiment.sharing], **columns})


def solved_variants(snapshot: Snapshot) -> list[Variant]:
    """Return the variants that have solved the task.

    All seeds of such a variant have reached the threshold. Where a task has a loss to beat, the
    variant's mean loss is below it with its upper 95% limit.
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
    """Return the upper 95% limit of each variant's mean loss; the loss itself of a single seed."""
    interval = mean_interval(snapshot.per_sharing(snapshot.latest("loss")))
    return np.where(np.isnan(interval.high), interval.mean, interval.high)


def finding(snapshot: Snapshot) -> str:
    """What the accuracies say, in one or two short sentences.

    A sharing is called solved if every one of its seeds has reached the threshold; of the others
    the mean is given with its 95% interval, in percent, and how many of their seeds diverged. An
    interval that is no wider than what is shown of the mean is left out.
    Where a task has a loss to beat, losses are told instead.
    """
    if snapshot.experiment.task.loss_to_beat is not None:
        return _finding_on_loss(snapshot, snapshot.experiment.task.loss_to_beat)
    accuracy = snapshot.per_sharing(snapshot.latest("accuracy"))
    reached = solved_variants(snapshot)
    lost = snapshot.per_sharing(snapshot.diverged_at >= 0).sum(-1)
    interval = mean_interval(accuracy)
    n_seeds = snapshot.experiment.n_seeds
    solved, others = [], []
    for i, sharing in enumerate(snapshot.experiment.sharing):
        if sharing in reached:
            solved.append(title_of(sharing))
        elif lost[i] == n_seeds:
            others.append(f"{title_of(sharing)} diverged")
        else:
            limits = percent_interval(interval.low[i], interval.high[i])
            text = f"{title_of(sharing)} {percent(interval.mean[i])}"
            text += f" [{limits}]" if " to " in limits else ""
            others.append(text + (f" ({lost[i]} of {n_seeds} diverged)" if lost[i] else ""))
    parts = []
    if solved:
        seeds = {1: "", 2: " by both seeds"}.get(n_seeds, f" by all {n_seeds} seeds")
        parts.append(f"Solved{seeds}: {', '.join(solved)}.")
    if others:
        not_solved = "Not solved yet" if snapshot.status == "running" else "Not solved"
        parts.append(f"{not_solved}: {', '.join(others)}.")
    return " ".join(parts)


def _finding_on_loss(snapshot: Snapshot, to_beat: float) -> str:
    """Whose mean loss is below that of a simple model, with its upper 95% limit, and whose not."""
    simple = f"the loss of {snapshot.experiment.task.simple_model}, {to_beat:.2f}"
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
    """What attention is like at the last evaluation: means over seeds of every sharing."""
    titles = [title_of(variant) for variant in snapshot.experiment.sharing]
    told = {
        "Asymmetry of the scores": (1 - snapshot.latest("score_symmetry")) / 2,
        "Attention on the right token": snapshot.latest("mass_on_target"),
        "Attention on the mirrored entry": snapshot.latest("mass_on_reverse"),
    }
    parts = []
    for label, values in told.items():
        means = mean_interval(snapshot.per_sharing(values)).mean
        known = [f"{t} {mean:.2f}" for t, mean in zip(titles, means, strict=True) if mean == mean]
        parts += [f"{label}: {', '.join(known)}."] if known else []
    return " ".join(parts) or "No number: this task has neither."


def percent_interval(low: float, high: float) -> str:
    """Return limits of a share in percent, cut to what a share can be.

    It is a single percentage where both limits are shown alike, and empty if there are none.
    """
    if np.isnan(low):
        return ""
    lowest, highest = percent(max(low, 0)), percent(min(high, 1))
    return highest if lowest == highest else f"{lowest.removesuffix('%')} to {highest}"


def percent(share: float) -> str:
    """A share as a whole percentage that says 100% only if nothing was wrong."""
    return f"{min(share, 0.99):.0%}" if share < 1 else "100%"
