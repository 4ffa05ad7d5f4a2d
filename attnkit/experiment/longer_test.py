"""The longer test: a trained model's accuracy on examples that are several times as long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.foundation.language import mark
from attnkit.foundation.settings import InvalidExperiment, disagreement
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.size import ALIGNED

if TYPE_CHECKING:
    from attnkit.experiment.experiment import Experiment


def longer_experiment(experiment: Experiment) -> Experiment | None:
    """Return an experiment with the examples of the longer test; None if there is no such test.

    There are fewer examples than held-out ones, with about as many tokens together.
    """
    task, times = experiment.task, experiment.training.longer_test
    if times == 1:
        return None
    n_longer = min(experiment.training.n_eval // times, MEASURED_TOGETHER) // ALIGNED * ALIGNED
    lengths = {name: times * getattr(task, name) for name in task.lengths}
    return experiment.replace(**lengths, longer_test=1, n_eval=max(n_longer, ALIGNED))


def check_longer_test(experiment: Experiment) -> None:
    """Raise the error of a longer test that is not possible; it says why."""
    task, times = experiment.task, experiment.training.longer_test
    if times > 1 and not task.lengths:
        allowed = mark("1: all examples have one length here")
        raise disagreement("longer_test", times, allowed, "task")
    try:
        longer = longer_experiment(experiment)
    except InvalidExperiment as error:
        problem = error.problems[0]
        if problem.has_reason:
            allowed = mark("1: for longer examples {reason}", reason=problem.reason)
        else:
            allowed = mark(
                "less: {setting} would be {value}, allowed {allowed}",
                setting=problem.field,
                value=problem.value,
                allowed=problem.allowed,
            )
        others = (*task.lengths, *problem.others)
        raise disagreement("longer_test", times, allowed, *others) from None
    if longer is None:
        return
    for variant in experiment.sharing:
        wiring, at_length = (experiment.wiring(variant, task=t) for t in (task, longer.task))
        positions = wiring.sizes.positions
        if wiring.module is not None and wiring.weights != at_length.weights:
            name = wiring.module.name
            allowed = mark("1: {name} has parameters for the trained length only", name=name)
            raise disagreement("longer_test", times, allowed, "sharing")
        if POSITIONS[positions].embedded or wiring.weights != at_length.weights:
            allowed = mark(
                "1 with positions={positions}, which are learned up to the trained length",
                positions=positions,
            )
            raise disagreement("longer_test", times, allowed, "positions", "sharing")
