"""One small experiment for every kind of task, for tests that train.

Together they have one side and two, labels everywhere and few, positions and none, lean and
standard blocks, fresh examples, a stock and a corpus, given embeddings, and an earlier task.
"""

import pytest

from attnkit.experiment import Experiment
from attnkit.tasks import TASKS

_BOOK = {"n_entries": 5, "n_names": 11, "n_values": 7, "d_head": 6}
_SIZES = {"d_model": 16, "n_heads": 2, "d_head": 6, "n_layers": 1, "d_mlp": 7}
KINDS = {
    "directed": _BOOK,
    "phonebook": _BOOK,
    "mqar": {"n_tokens": 22, "n_pairs": 3, "length": 14, "d_head": 8},
    "dictionary": {"n_words": 5, "n_vocab": 11, "d_head": 6},
    "reverse": {"length": 5, "n_train": 80, "clip": 0.3, "warm_up": 0.2, **_SIZES, "n_layers": 2},
    "transfer": {**_BOOK, "n_values": 13},
    "neighbours": {"n_asking": 2, "n_families": 3, "n_values": 7, "d_head": 6},
    "language": {"length": 16, **_SIZES},
}

# Words that do not go with an encoder and a decoder.
NEEDS_ONE_SIDE = {"shared_layers", "kv_every", "kv_from", "exclusive", "shaped"}

# For an expensive test: one task of every kind by day, all tasks at night.
every_task = pytest.mark.parametrize(
    "task",
    [task if task in KINDS else pytest.param(task, marks=pytest.mark.long) for task in TASKS],
)

# Settings of two runs that train at once, for tests of what trains them.
SMALL = {**_BOOK, "sharing": ["QKV", "Q=K=V"], "n_seeds": 1, "d_head": 3, "evaluate_every": 11}
SMALL |= {"batch_size": 16, "n_eval": 16}


def tiny(kind, **given):
    """An experiment that trains in a moment; half of its steps are the earlier task's, if any."""
    steps = given.get("steps", 8)
    phases = {"earlier_steps": steps // 2} if TASKS[kind]().earlier is not None else {}
    training = {"steps": steps, "evaluate_every": 2, "batch_size": 16, "n_eval": 16, "n_seeds": 2}
    return Experiment(**{"task": kind, **training, **phases, **KINDS[kind], **given})
