"""Short films that several tests look into, each recorded once."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch
from reference import DOZEN, SHAPES, Reference, sized

from attnkit.analysis.inspection.inspected_example import examples_of
from attnkit.analysis.inspection.replay import is_tied
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS
from attnkit.training.loops import record

SHORT = {"steps": 4, "evaluate_every": 2, "n_seeds": 1, "batch_size": 16, "n_eval": 16}
FEW = ("QKV", "Q=K", "MQA n_heads=2", "Differential")


def shaken(film):
    """The film with the last frame's weights moved: what starts at zero or one matters then."""
    draw = np.random.default_rng(2).standard_normal
    parameters = [
        {name: value + 0.1 * draw(value.shape).astype(np.float32) for name, value in own.items()}
        for own in film.frames[-1].parameters
    ]
    last = replace(film.frames[-1], parameters=parameters)
    return replace(film, frames=[*film.frames[:-1], last])


@cache
def film_of_shape(shape):
    """All variants at one of the shapes."""
    return shaken(record(sized(DOZEN, SHAPES[shape] | SHORT)))


@cache
def film_of(task="directed", sharing=FEW, **settings):
    """Some variants on a task."""
    return shaken(record(experiment_of(task, sharing=list(sharing), **settings)))


def experiment_of(task, **settings):
    """A short experiment on a task."""
    needed = {"earlier_steps": 2} if TASKS[task].overrides.get("earlier_steps") else {}
    return Experiment(**SHORT | needed | settings, task=task)


@cache
def reference_of(film, place, frame):
    """A variant's forward pass in double precision on all examples, its logits, its weights."""
    variant, moment = film.experiment.sharing[place], film.frames[frame]
    form = variant.stages[-1 if is_tied(film.experiment, variant, moment.step) else 0]
    own = {name: torch.from_numpy(a).double() for name, a in moment.parameters[place].items()}
    reference = Reference(film.experiment, form)
    with torch.no_grad():
        logits = reference.logits(own, examples_of(film.experiment.task).tokens)
    return reference, logits, own
