"""Limits on the size of experiments; `attnkit.training.memory` estimates what they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.experiment.costs import count_costs
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.foundation.language import mark
from attnkit.foundation.settings import disagreement

if TYPE_CHECKING:
    from attnkit.experiment.experiment import Experiment

_MOST_AT_ONCE = 2**30
"""Largest number of intermediate values in one step of all runs.

Cohorts take turns, so that these values never exist all at the same time.
"""

_MOST_PERMANENT = 2**29
"""Largest number of values that all runs together keep during the whole training."""

MAX_EVALUATIONS = 4000
"""Largest number of evaluations; every snapshot carries all of them to the page."""

_COSTLY = (
    *("n_heads", "n_layers", "d_mlp", "d_model", "d_head"),
    *("batch_size", "n_eval", "n_train", "sharing"),
)
"""Settings, besides seeds and the task's dials, that decide how much memory is needed."""


def check_memory(experiment: Experiment) -> None:
    """Raise the error of an experiment that is too large; it says how much is allowed."""
    at_once, permanent = _numbers_per_seed(experiment)
    for numbers, limit in ((at_once, _MOST_AT_ONCE), (permanent, _MOST_PERMANENT)):
        if experiment.n_seeds * numbers > limit:
            allowed = mark("at most {most} at these sizes", most=limit // numbers)
            if numbers > limit:
                allowed = mark("smaller sizes or batches: too large for a single seed")
            others = (*_COSTLY, *type(experiment.task).model_fields, "task")
            raise disagreement("n_seeds", experiment.n_seeds, allowed, *others)
    steps, cadence = experiment.training.steps, experiment.training.evaluate_every
    if cadence < (least := -(-steps // MAX_EVALUATIONS)):
        allowed = mark("at least {least} for {steps} steps", least=least, steps=steps)
        raise disagreement("evaluate_every", cadence, allowed, "steps")


def _numbers_per_seed(experiment: Experiment) -> tuple[int, int]:
    """Return the numbers in memory for one seed of all variants: during a step, and always."""
    task, training = experiment.task, experiment.training
    examples = max(training.batch_size, min(training.n_eval, MEASURED_TOGETHER))
    answers = 2 * (training.batch_size + training.n_eval) * (task.n_ctx - task.answers_from)
    at_once = permanent = 0
    for variant in experiment.sharing:
        wiring = experiment.wiring(variant)
        per_token = 4 * max(wiring.n_inner, wiring.vectors[wiring.roles["Q"]].n_numbers)
        per_token += 6 * wiring.sizes.d_model + 2 * wiring.sizes.d_mlp
        per_token += 3 * wiring.sizes.n_heads * wiring.n_maps * task.n_ctx
        at_once += examples * task.n_ctx * len(experiment.layer_specs) * per_token
        at_once += answers * task.n_classes
        # Parameter, gradient, two moments of Adam, and a temporary root.
        permanent += 5 * count_costs(wiring, task).parameters
        # Tokens, labels and positions have 64 bits, twice a float's.
        permanent += 2 * training.n_train * task.n_ctx * (task.n_fields + 3)
    return at_once, permanent
