"""Data: every Python, torch, library and locale draws the same examples.

The hashes were recorded once. Another hash means that results are not those of the same data.
"""

from hashlib import blake2b

import numpy as np
import pytest
import torch
from random_tasks import every_task

from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS
from attnkit.training.data import TrainingData, draw_probe, held_out_examples

RECORDED = {
    "phonebook": "0f40524aa0f9e91f",
    "directed": "dccdb9c72bb88007",
    "mutual": "9dee975a6913522c",
    "fuzzy_phonebook": "add3bdaa7936095c",
    "neighbours": "e7edec1f0c1b0505",
    "dual_role": "373d560b94aab205",
    "transfer": "bc97a8e6c6b6abd4",
    "dictionary": "ba9795c8e0765478",
    "mqar": "73f2eaf3c40727fa",
    "noisy_recall": "4d2685f38b4f37e6",
    "selective_copy": "9b2b9fb783554d23",
    "fuzzy_recall": "498c89413e8c98b9",
    "induction": "d8a7f2645fa22782",
    "k_hop": "579dcd243bd3e75d",
    "reverse": "7c2541b541a0364c",
    "sort": "74587129e45e9269",
    "swap": "1186b1b676b256b8",
    "sub": "bbbbd4efae112575",
    "copy": "478404c1c9946838",
    "language": "d5af912977f57615",
    "translation": "23dd25169db7174b",
}
"""Task → hash of the first examples of its default, its full size and its choices."""


def first_examples(task, **settings):
    """Return the arrays of the first batch, the held-out examples and the probe of two seeds."""
    experiment = Experiment(task=task, sharing="QKV", **{"n_eval": 48, **settings})
    seeds, cpu = [0, 1], torch.device("cpu")
    drawn = [held_out_examples(experiment, seeds, cpu), draw_probe(experiment.task)]
    arrays = [array for examples in drawn for array in vars(examples).values()]
    return [*TrainingData(experiment, seeds, cpu).next(), *(a for a in arrays if a is not None)]


def kinds_of(task):
    """Yield settings of a task: its default, its full size, and each choice of its dials."""
    yield {}
    yield task.full_size
    for name, field in task.model_fields.items():
        for choice in getattr(field.annotation, "__args__", ()):
            yield {name: choice}


def hash_of_examples(task):
    """Return the hash that `RECORDED` holds."""
    digest = blake2b(digest_size=8)
    for settings in kinds_of(task):
        for array in first_examples(task.name, **settings):
            digest.update(np.ascontiguousarray(array.numpy(), "<i8").tobytes())
    return digest.hexdigest()


@every_task
def test_the_first_examples_are_the_recorded_ones(cls):
    """Random numbers, shipped texts, orders and hashes decide about them."""
    assert hash_of_examples(cls) == RECORDED[cls.name]


@pytest.mark.parametrize("name", TASKS)
def test_the_probe_of_a_shipped_example_is_drawn_again(name):
    """Its numbers are about the examples that this machine draws."""
    snapshot = load_example(name)
    for key, array in vars(draw_probe(snapshot.experiment.task)).items():
        if array is not None and key != "reverse":
            assert np.array_equal(array[0].numpy(), getattr(snapshot.probe, key)), key
