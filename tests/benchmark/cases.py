"""Benchmark cases: tasks with model sizes that are usual for them, in lean blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from attnkit.experiment import Experiment
from attnkit.experiment.training_settings import TrainingSettings
from attnkit.tasks import TASKS, Task
from attnkit.variants import Variant
from attnkit.variants.sharing import Sharing
from attnkit.variants.size import Size


@dataclass(frozen=True)
class Case:
    """One benchmark case: a task, a model size and a batch size."""

    name: str
    task: Task
    size: Size
    batch_size: int

    def experiment(self, n_runs: int, *, steps: int = 10**6) -> Any:
        """Return an experiment of five sharings × seeds, or one run of QKV; bounds do not hold."""
        sharing = tuple(map(Variant, Sharing if n_runs > 1 else [Sharing.QKV]))
        if n_runs % len(sharing):
            raise ValueError(f"n_runs: got {n_runs}, allowed 1 or a multiple of {len(sharing)}")
        bounded = TrainingSettings(learning_rate=1e-3, batch_size=self.batch_size, n_eval=16)
        return Experiment.model_construct(
            sharing=sharing,
            n_seeds=n_runs // len(sharing),
            first_seed=0,
            equal="nothing",
            task=self.task,
            size=self.size,
            training=bounded.model_copy(update={"steps": steps, "evaluate_every": steps}),
        )

    def resized(self, **changes: int) -> Case:
        """Return this case with some settings of the task or the model size changed."""
        of_task = {name: value for name, value in changes.items() if name in dict(self.task)}
        of_size = {name: value for name, value in changes.items() if name not in of_task}
        name = " ".join([self.name, *(f"{name}={value}" for name, value in changes.items())])
        task, size = ({**dict(self.task), **of_task}, {**dict(self.size), **of_size})
        return replace(self, name=name, task=type(self.task)(**task), size=Size(**size))


_ORDERED = {"n_layers": 2, "positions": "learned", "causal": True}
_BLOCKS = {"d_model": 64, "n_heads": 4, "d_head": 16}
_NARROW, _WIDE = ({"d_model": width, "d_head": width} for width in (32, 64))
_DEEP = {**_BLOCKS, "n_layers": 4, "d_mlp": 256, "positions": "learned"}

CASES = {
    name: Case(name, TASKS[name.partition(" ")[0].lower()](**settings), Size(**size), n_batch)
    for name, settings, size, n_batch in (
        ("phonebook", {}, _NARROW, 64),
        ("MQAR T=24", {"n_tokens": 64, "n_pairs": 6, "length": 24}, {**_NARROW, **_ORDERED}, 64),
        ("MQAR T=64", {"n_tokens": 64, "n_pairs": 16, "length": 64}, {**_WIDE, **_ORDERED}, 64),
        ("REVERSE", {"length": 16}, _DEEP, 128),
        ("language", {"length": 64}, {**_BLOCKS, "d_mlp": 128, **_ORDERED}, 16),
    )
}

N_RUNS = (1, 5, 15, 60)
