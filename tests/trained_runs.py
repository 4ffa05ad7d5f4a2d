"""Short trainings on a CPU, and the numbers of their runs as bytes.

Tests compare bytes, so that equal numbers that were rounded differently do not pass.
"""

import numpy as np
import pytest
from kinds import KINDS

from attnkit.training import Training
from attnkit.training import training as training_module
from attnkit.training.engine import kernel_knows

every_kind = pytest.mark.parametrize("kind", KINDS)


def trained(experiment, n_steps=None):
    """Return the result after `n_steps` steps, or after all steps of the experiment."""
    training = Training(experiment, "cpu")
    training.advance(experiment.training.steps if n_steps is None else n_steps)
    return training.result()


def one_cohort(experiment):
    """Return a training that computes all runs of an engine in one batch, as a GPU would."""
    seeds = list(experiment.seeds)

    def whole(experiment, device, engine):
        variants = experiment.sharing if engine == "kernel" else ()
        known = [variant for variant in variants if kernel_knows(experiment, variant)]
        others = [variant for variant in experiment.sharing if variant not in known]
        return [training_module.CohortPlan(tuple(some), seeds) for some in (known, others) if some]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_module, "plan_cohorts", whole)
        return Training(experiment, "cpu")


def bits(result, run):
    """Return all numbers of one run as bytes, by name, without the heads that it lacks."""
    snapshot = result.snapshot
    variant, _ = result.experiment.runs[run]
    n_heads = result.experiment.wiring(variant).sizes.n_heads
    arrays = {f"parameter {name}": value for name, value in result.parameters[run].items()}
    arrays |= {name: values[:, run] for name, values in snapshot.history.items()}
    arrays["head_symmetry"] = snapshot.head_symmetry[run, :, :n_heads]
    arrays["probe answers"] = snapshot.probe.answers[run]
    arrays["probe pattern"] = snapshot.probe.pattern[run, :, :n_heads]
    if snapshot.probe.scores is not None:
        arrays["probe scores"] = snapshot.probe.scores[run, :, :n_heads]
    return {name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()}


def differing_names(one, other):
    """Return the names under which two runs have different bytes."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def all_bits(result):
    """Return the numbers of all runs as bytes, by name."""
    return [bits(result, run) for run in range(result.experiment.n_runs)]
