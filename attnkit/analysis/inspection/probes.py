"""The examples that inspections look at: held-out ones of the task, or a book of one's own."""

from __future__ import annotations

import torch

from attnkit.analysis.inspection.request import Inspection
from attnkit.experiment import Experiment
from attnkit.model.initial import generator_for
from attnkit.tasks import NOTHING, Examples, Task
from attnkit.training.data import draw_probe
from attnkit.variants import Variant

N_EXAMPLES = 32
"""Held-out examples that one can look at, and that figures of averages are made of."""

_SEED = 0


def examples_of(task: Task) -> Examples:
    """The held-out examples that can be looked at, the same for everyone; the Lab's is the first.

    Raises:
        ValueError: if the task has too few different ones.
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
    """The one example that is looked at, and the experiment with a task of its size.

    A book of one's own has no labels: nothing is known to be right.

    Raises:
        ValueError, InvalidExperiment: if there is no such example, or none of that size.
    """
    if inspection.tokens:
        tokens = torch.tensor(inspection.tokens)[None]
        sized = with_entries(experiment, tokens.shape[1] // 2)
        n_answers = sized.task.n_ctx - sized.task.answers_from
        nothing = torch.full((1, n_answers), NOTHING)
        return sized, Examples(tokens, nothing, nothing)
    if inspection.example >= N_EXAMPLES:
        raise ValueError(f"example: got {inspection.example}, allowed 0 to {N_EXAMPLES - 1}")
    one = torch.tensor([inspection.example])
    return experiment, examples_of(experiment.task).take(one)


def with_entries(experiment: Experiment, n_entries: int) -> Experiment:
    """The same experiment about books of so many entries, which its weights can answer.

    Raises:
        InvalidExperiment: if the task allows no such book.
    """
    return experiment.replace(n_entries=n_entries)


def why_not(trained: Experiment, asked: Experiment, variant: Variant) -> str:
    """Why a variant's weights cannot answer a book of another size than they were trained on."""
    n_trained = trained.task.n_ctx // 2
    why = "how it tells positions apart was learnt for them"
    if trained.adjusted(variant).changes != asked.adjusted(variant).changes:
        why = "its widths were changed to make the costs of that size equal"
    return f"It answers books of {n_trained} entries only: {why}."
