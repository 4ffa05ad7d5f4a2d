"""Examples for inspections: held-out examples of the task, or a custom phone book."""

from __future__ import annotations

import torch

from attnkit.analysis.inspection.request import Inspection
from attnkit.experiment import Experiment
from attnkit.model.initial import generator_for
from attnkit.tasks import NOTHING, Examples, Task
from attnkit.training.data import draw_probe
from attnkit.variants import Variant

N_EXAMPLES = 32
"""Held-out examples that can be inspected, and over which averages are taken."""

_SEED = 0


def examples_of(task: Task) -> Examples:
    """Return the held-out examples of a task, always the same; the first is that of the Lab.

    Raises:
        ValueError: If the task has too few different examples.
    """
    first = draw_probe(task)
    more = task.draw(N_EXAMPLES - 1, generator_for(_SEED, "more probes"), held_out=True)
    reverses = [each.reverse for each in (first, more) if each.reverse is not None]
    return Examples(
        torch.cat([first.tokens, more.tokens]),
        torch.cat([first.labels, more.labels]),
        torch.cat([first.target, more.target]),
        torch.cat(reverses) if reverses else None,
    )


def example_for(experiment: Experiment, inspection: Inspection) -> tuple[Experiment, Examples]:
    """Return an experiment with a task of the requested example's size, and the example.

    A custom book has no labels: its right answers are not known here.

    Raises:
        ValueError, InvalidExperiment: If there is no such example, or no task of its size.
    """
    if inspection.tokens:
        tokens = torch.tensor(inspection.tokens)[None]
        sized = experiment.replace(n_entries=tokens.shape[1] // 2)
        n_answers = sized.task.n_ctx - sized.task.answers_from
        nothing = torch.full((1, n_answers), NOTHING)
        return sized, Examples(tokens, nothing, nothing)
    if inspection.example >= N_EXAMPLES:
        raise ValueError(f"example: got {inspection.example}, allowed 0 to {N_EXAMPLES - 1}")
    index = torch.tensor([inspection.example])
    return experiment, examples_of(experiment.task).take(index)


def size_refusal(trained: Experiment, sized: Experiment, variant: Variant) -> str:
    """Return the reason why a variant cannot answer books of another size than in training.

    Args:
        trained: The experiment as it was trained.
        sized: The experiment with a task of the book's size.
        variant: The variant whose weights do not fit.
    """
    n_trained = trained.task.n_ctx // 2
    reason = "how it tells positions apart was learnt for them"
    if trained.adjusted(variant).changes != sized.adjusted(variant).changes:
        reason = "its widths were changed to make the costs of that size equal"
    return f"It answers books of {n_trained} entries only: {reason}."
