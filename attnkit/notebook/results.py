"""Cards of snapshots and results: the answer in words, and a table of variants."""

from __future__ import annotations

import math
from html import escape

from attnkit.analysis.reasons import headline
from attnkit.foundation.language import tr
from attnkit.notebook.experiments import title_of_runs
from attnkit.notebook.plots import figures_of
from attnkit.notebook.style import card, paragraph, swatch, table
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import (
    finding,
    percent,
    percent_interval,
    sharing_table,
    solved_in_words,
    two_decimals,
)
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import colors_of


def result_card(result: Result) -> str:
    """Return the card of a result: that of its last snapshot."""
    return snapshot_card(result.snapshot)


def snapshot_card(snapshot: Snapshot) -> str:
    """Return the card of a snapshot."""
    experiment, steps = snapshot.experiment, snapshot.experiment.training.steps
    title = f"{title_of_runs(experiment)}, step {snapshot.step:,} of {steps:,}"
    parts = [paragraph(experiment.task.question, "quiet"), _progress(snapshot)]
    reason = headline(snapshot, experiment.first_seed) if snapshot.step else None
    if reason is not None:
        sentence = reason.in_words(experiment, experiment.first_seed)
        parts.append(f"<p><b>{escape(sentence)}</b></p>")
    parts.append(paragraph(finding(snapshot)))
    parts += [_table(snapshot), paragraph(solved_in_words(experiment.task), "quiet small")]
    modules = (experiment.wiring(variant).module for variant in experiment.sharing)
    missing = [tr(module.missing) for module in modules if module is not None and module.missing]
    below = (*missing, figures_of(snapshot), _footnote(snapshot))
    parts += [paragraph(text, "quiet small") for text in below]
    return card(title, *parts)


def _progress(snapshot: Snapshot) -> str:
    """Return a bar for a training that runs, or a note that it was stopped."""
    if snapshot.status == "stopped":
        return paragraph("Stopped before the last step.")
    if snapshot.status == "finished":
        return ""
    share = f"{snapshot.step / snapshot.experiment.training.steps:.0%}"
    return (
        f'<div class="bar" role="img" aria-label="{share} of the steps are done">'
        f'<span style="width:{share}"></span></div>'
    )


def _table(snapshot: Snapshot) -> str:
    """Return the table of variants: means over seeds and costs."""
    experiment = snapshot.experiment
    on_loss = experiment.task.loss_to_beat is not None
    columns = ["Variant", "Accuracy", "95% interval"]
    columns += ["Loss"] if on_loss else ["Seeds that solve it", "Steps to solve it"]
    columns += ["Score asymmetry", "Parameters", "KV cache, numbers per token"]
    colors = colors_of(experiment.sharing)
    rows = []
    for i, row in enumerate(sharing_table(snapshot).to_dict("records")):
        variant = experiment.sharing[i]
        low, high = row["accuracy_low"], row["accuracy_high"]
        cells = [percent(row["accuracy"]), percent_interval(low, high) or "–"]
        if row["diverged"]:
            cells[1] = f"{row['diverged']} of {experiment.n_seeds} diverged"
        if on_loss:
            cells.append(two_decimals(row["loss"]))
        else:
            steps = row["steps_to_threshold"]
            cells.append(f"{row['solved']} of {experiment.n_seeds}")
            cells.append("–" if math.isnan(steps) else f"{steps:,.0f}")
        cells += [two_decimals(row["asymmetry"])]
        cache = experiment.costs(variant).kv_cache  # a module may not say it
        cells += [f"{row['parameters']:,}", "–" if cache is None else f"{cache:,}"]
        name = escape(title_of(variant))
        titled = f'<span title="{escape(variant.value, quote=True)}">{name}</span>'
        rows.append([swatch(colors[i]) + titled, *cells])
    return table(columns, rows)


def _footnote(snapshot: Snapshot) -> str:
    """Return who trained it and how long; empty if it is not trained."""
    seconds = snapshot.seconds
    took = f"{seconds:.1f} seconds" if seconds < 90 else f"{seconds / 60:.1f} minutes"
    return f"Trained in {took} by {snapshot.trained_by}." if snapshot.step else ""
