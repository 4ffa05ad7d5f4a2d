"""The sizes that are compared, as experiments on random tokens of that shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnkit.experiment import Experiment, Size, Training
from attnkit.sharing import Sharing
from attnkit.tasks.base import Examples, Label, Task
from attnkit.variants import Variant

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class RandomTokens(Task):
    """Tokens and labels without a rule: a shape to be fast at, nothing to learn."""

    name: ClassVar[str] = "random tokens"
    title: ClassVar[str] = "Random tokens"
    question: ClassVar[str] = "None."

    length: int
    vocabulary: int
    classes: int
    first_answer: int

    @property
    def d_vocab(self) -> int:
        return self.vocabulary

    @property
    def n_classes(self) -> int:
        return self.classes

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def answers_from(self) -> int:
        return self.first_answer

    @property
    def chance(self) -> float:
        return 1 / self.classes

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        n_answers = self.length - self.first_answer
        tokens = torch.randint(self.vocabulary, (n_examples, self.length, 1), generator=generator)
        labels = torch.randint(self.classes, (n_examples, n_answers), generator=generator)
        return Examples(tokens, labels, torch.zeros_like(labels), None)

    def draw(self, n_examples: int, generator: torch.Generator, *, held_out: bool) -> Examples:
        return self.make_examples(n_examples, generator)

    def book(self, tokens: Tensor) -> Tensor:
        return tokens

    def label(self, tokens: np.ndarray) -> list[Label]:
        return [Label(str(token), str(token), str(token)) for token in tokens[:, 0]]


@dataclass(frozen=True)
class Case:
    """One size: a task's shape, the model's, and the batch."""

    name: str
    task: RandomTokens
    size: Size
    batch_size: int

    def experiment(self, n_runs: int, *, steps: int = 10**6, evaluate_every: int = 10**6) -> Any:
        """As an experiment of so many runs: the five sharings × seeds, or QKV alone.

        Its bounds are not checked: a benchmark runs longer than anything a page may ask for.
        """
        sharing = tuple(map(Variant, Sharing if n_runs > 1 else [Sharing.QKV]))
        if n_runs % len(sharing):
            raise ValueError(f"n_runs: got {n_runs}, allowed 1 or a multiple of {len(sharing)}")
        training = Training.model_construct(
            steps=steps,
            learning_rate=1e-3,
            batch_size=self.batch_size,
            evaluate_every=evaluate_every,
            n_eval=16,
        )
        return Experiment.model_construct(
            sharing=sharing,
            n_seeds=n_runs // len(sharing),
            first_seed=0,
            equal="nothing",
            task=self.task,
            size=self.size,
            training=training,
        )

    def resized(self, **changes: Any) -> Case:
        """The same case at another width (`d_model`, `d_head`) or length (`length`)."""
        task, size = dict(self.task), dict(self.size)
        for name, value in changes.items():
            (task if name in task else size)[name] = value
        if "length" in changes:
            task["first_answer"] = changes["length"] // 2
        text = " ".join(f"{name}={value}" for name, value in changes.items())
        return replace(
            self, name=f"{self.name} {text}", task=RandomTokens(**task), size=Size(**size)
        )


def _case(
    name: str,
    *,
    length: int,
    vocabulary: int,
    classes: int,
    first_answer: int,
    batch_size: int = 64,
    **size: Any,
) -> Case:
    task = RandomTokens(
        length=length, vocabulary=vocabulary, classes=classes, first_answer=first_answer
    )
    return Case(name, task, Size(**size), batch_size)


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        _case(
            "phonebook",
            length=16,
            vocabulary=65,
            classes=32,
            first_answer=8,
            d_model=32,
            d_head=32,
        ),
        _case(
            "MQAR T=24",
            length=24,
            vocabulary=64,
            classes=64,
            first_answer=16,
            d_model=32,
            d_head=32,
            n_layers=2,
            positions="learned",
            causal=True,
        ),
        _case(
            "MQAR T=64",
            length=64,
            vocabulary=64,
            classes=64,
            first_answer=32,
            d_model=64,
            d_head=64,
            n_layers=2,
            positions="learned",
            causal=True,
        ),
        _case(
            "REVERSE",
            length=16,
            vocabulary=10,
            classes=10,
            first_answer=0,
            batch_size=128,
            d_model=64,
            n_heads=4,
            d_head=16,
            n_layers=4,
            d_mlp=256,
            positions="learned",
        ),
        _case(
            "language",
            length=64,
            vocabulary=96,
            classes=96,
            first_answer=0,
            batch_size=16,
            d_model=64,
            n_heads=4,
            d_head=16,
            n_layers=2,
            d_mlp=128,
            positions="learned",
            causal=True,
        ),
    )
}
"""By name."""

N_RUNS = (1, 5, 15, 60)
"""Numbers of runs at which every case is compared."""
