"""Learning of a finished experiment, from its stored evaluations, as a film of curves.

The browser shows it with the player of all films. The store keeps every evaluation but the weights
of the last step only, so this film has no attention maps: those pages train one seed again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnkit.analysis.comparison import Metric, levels_in_words
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.figures.panels import thin
from attnkit.training.metrics import SHOWN
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import colors_of

CURVES = ("accuracy", "loss", "asymmetry", "mass_on_target", "mass_on_reverse")
"""Metrics that have a curve; those without a number are left out."""


def replay(snapshot: Snapshot, variants: Sequence[Variant], metric: Metric) -> bytes:
    """Return the curves of some variants, the means over seeds with their 95% intervals.

    Args:
        snapshot: The last snapshot of the experiment.
        variants: The variants that are shown.
        metric: Measure of the first curve and of the sentence at each step.
    """
    experiment = snapshot.experiment
    steps, moments = thin(snapshot.eval_steps)
    columns = [experiment.sharing.index(variant) for variant in variants]
    arrays, hints = dict[str, np.ndarray](), dict[str, str]()
    for name in CURVES:
        values = snapshot.per_sharing(snapshot.curve(name))[moments][:, columns]
        if np.isnan(values).all() and name != metric:
            continue
        interval = mean_interval(values).within(*SHOWN[name].limits)
        arrays[name] = interval.mean
        arrays |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
        bands = "; bands: 95% intervals" * bool((interval.high > interval.low).any())
        hints[name] = f"Means of {experiment.n_seeds} seeds{bands}."
        if experiment.n_seeds == 1:
            hints[name] = "One seed."
    colors = dict(zip(experiment.sharing, colors_of(experiment.sharing), strict=True))
    header = {
        "film": experiment.hash,
        "view": "replay",
        "task": experiment.task.name,
        "request": {"metric": metric, "variants": [variant.value for variant in variants]},
        "title": experiment.task.title,
        "chance": experiment.task.chance,
        "loss_to_beat": experiment.task.loss_to_beat,
        "simple_model": experiment.task.simple_model,
        "hints": hints,
        "steps": steps.tolist(),
        "total_steps": experiment.training.steps,
        "curves": {name: SHOWN[name].heading for name in CURVES if name in arrays},
        "sentences": {
            "conclusion": [
                levels_in_words(
                    variants, means.tolist(), metric, f"At step {step}, " if step else "Untrained, "
                )
                for step, means in zip(steps, arrays[metric], strict=True)
            ]
        },
        "variants": [
            {"name": title_of(variant), "text": variant.value, "color": colors[variant]}
            for variant in variants
        ],
    }
    framed = {name: values.astype(np.float32) for name, values in arrays.items()}
    return InspectionResult(header, framed, {}).to_bytes()
