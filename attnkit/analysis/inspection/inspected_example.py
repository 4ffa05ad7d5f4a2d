"""Example that an inspection is about: the inspected query, and rows and columns of its maps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from attnkit.analysis.attention_map import (
    MapLayout,
    axes_of,
    map_layout_of,
    named_query,
    query_positions_of,
)
from attnkit.analysis.custom_phone_book import NOT_IN_BOOK
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.responses import Example
from attnkit.experiment import Experiment
from attnkit.experiment.layer_specs import LayerSpec
from attnkit.foundation.language import mark
from attnkit.model.initial import generator_for
from attnkit.tasks import NOTHING, Examples, Label, Task
from attnkit.training.data import draw_probe
from attnkit.variants import Variant

N_EXAMPLES = 32
"""Held-out examples that can be inspected, and over which averages are taken."""

MOST_CLASSES = 128
"""Most classes for which all logits are sent; of more, only those of the example's answers are."""


@dataclass(frozen=True, eq=False)
class InspectedExample:
    """One example with the layer, head and query position to inspect, the same for all variants.

    Attributes:
        experiment: The experiment with a task of the example's size.
        trained: The experiment as it was trained.
        request: The inspection, with the layer, the head and the query.
        example: The example, with the answers that are known to be right.
        map_example: The example that decides on rows and columns; it answers every query.
        labels: Labels of its tokens.
        query_index: Index of the inspected query in `query_positions_of` the layer.
        layouts: Rows and columns of the map of every layer.
    """

    experiment: Experiment
    trained: Experiment
    request: Inspection
    example: Example
    map_example: Example
    labels: list[Label]
    query_index: int
    layouts: list[MapLayout]

    @staticmethod
    def at(trained: Experiment, inspection: Inspection) -> InspectedExample:
        """Return the example that an inspection requests.

        Raises:
            ValueError, InvalidExperiment: If there is no such example, layer, head or key.
        """
        layers = len(trained.layer_specs)
        for name, count in {
            "layer": layers,
            "head": trained.n_heads,
            "example": N_EXAMPLES,
        }.items():
            if getattr(inspection, name) >= count:
                got = getattr(inspection, name)
                raise ValueError(f"{name}: got {got}, allowed 0 to {count - 1}")
        experiment, example = _example_of(trained, inspection)
        first, end = experiment.layer_specs[inspection.layer].key_positions
        key = inspection.key_position
        if key is not None and not first <= key < end:
            raise ValueError(f"key_position: got {key}, allowed {first} to {end - 1}")
        task, map_example = experiment.task, example
        labels = task.label(example.tokens)
        if inspection.tokens:  # a custom book: its questions are about its entries, in their order
            entries = np.arange(len(example.labels))
            map_example = replace(example, labels=np.zeros_like(entries), target=entries)
        if inspection.names:
            example, labels = _answered_book(example, inspection)
        named = None if inspection.tokens else named_query(task, example)
        query_indices, layouts = [], []
        for spec in experiment.layer_specs:
            positions = query_positions_of(task, spec, map_example)
            index = positions.index(named) if named in positions else 0
            if inspection.query_index is not None:
                index = min(inspection.query_index, len(positions) - 1)
            query_indices.append(index)
            layouts.append(map_layout_of(task, spec, map_example, index))
        return InspectedExample(
            experiment,
            trained,
            inspection,
            example,
            map_example,
            labels,
            query_indices[inspection.layer],
            layouts,
        )

    @property
    def is_custom_book(self) -> bool:
        """Whether the example is a book that a visitor typed."""
        return self.map_example is not self.example

    @property
    def tokens(self) -> Int64[Tensor, "1 i fields"]:
        """Tokens as a batch of one example."""
        return torch.from_numpy(self.example.tokens).unsqueeze(0)

    @property
    def spec(self) -> LayerSpec:
        """Specification of the inspected layer."""
        return self.experiment.layer_specs[self.request.layer]

    @property
    def layout(self) -> MapLayout:
        """Rows and columns of the map of the inspected layer."""
        return self.layouts[self.request.layer]

    @property
    def query_positions(self) -> list[int]:
        """Query positions of the inspected layer from which the query can be chosen."""
        return query_positions_of(self.experiment.task, self.spec, self.map_example)

    @property
    def query_position(self) -> int:
        """Position of the inspected query."""
        return self.query_positions[self.query_index]

    @property
    def row(self) -> int:
        """Row of the inspected query in the map."""
        return self.layout.rows.index(self.query_position)

    @property
    def answer_index(self) -> int:
        """Index of the inspected query in arrays of answers; `NOTHING` if it gives no answer."""
        return self.layout.answers[self.row]

    @property
    def classes(self) -> list[int]:
        """Classes whose logits are sent."""
        n_classes = self.experiment.task.n_classes
        if n_classes <= MOST_CLASSES:
            return list(range(n_classes))
        labels = self.example.labels
        right = [] if self.answer_index == NOTHING else [int(labels[self.answer_index])]
        others = np.unique(labels[labels != NOTHING]).tolist()
        return sorted({*right, *others[: MOST_CLASSES - 1]})

    def text_of(self, answer: int) -> str:
        """Return the text of a class of answers."""
        numbers = self.request.numbers
        if not numbers:
            return self.experiment.task.answer_text(answer)
        return numbers[answer] if answer < len(numbers) else NOT_IN_BOOK

    def header(self, answered: list[np.ndarray]) -> dict[str, Any]:
        """Return the values that a page needs besides the arrays.

        Args:
            answered: Classes that the variants answered.
        """
        layers = [self._header_of_layer(layer) for layer in range(len(self.layouts))]
        inspected = layers[self.request.layer]
        classes = {*self.classes, *inspected["right"], *np.unique(answered).tolist()} - {NOTHING}
        row_at = {position: row for row, position in enumerate(self.layout.rows)}
        right = inspected["right"][self.row]
        form = "query" if inspected["is_asked"] else "short"
        return {
            "layer": self.request.layer,
            "head": self.request.head,
            "query_index": self.query_index,
            "key_position": self.request.key_position,
            "attribution": self._header_of_attribution(),
            "askable": [
                {
                    "label": getattr(self.labels[position], form),
                    "title": self.labels[position].full,
                    "row": row_at.get(position, NOTHING),
                }
                for position in self.query_positions
            ],
            "row": self.row,
            "is_asked": self.answer_index != NOTHING,
            "right": right,
            "right_text": "" if right == NOTHING else self.text_of(right),
            "target": inspected["target"][self.row],
            "reverse": inspected["reverse"][self.row],
            "layers": layers,
            "texts": {str(answer): self.text_of(answer) for answer in sorted(classes)},
            "classes": self.classes,
            "n_examples": N_EXAMPLES,
        }

    def _header_of_attribution(self) -> dict[str, Any] | None:
        """Return the names of the tokens whose score is attributed; None if none is."""
        key = self.request.key_position
        if key is None:
            return None
        names, tokens = (
            [label.short for label in self.labels],
            [label.full for label in self.labels],
        )
        header: dict[str, Any] = {}
        for name, position in (("query", self.query_position), ("key", key)):
            short = names[position]
            alone = names.count(short) == 1
            header[name] = tokens[position]
            header[f"short_{name}"] = short if alone else f"{short} (position {position + 1})"
        first_keys = [spec.key_positions[0] for spec in self.experiment.layer_specs]
        return {**header, "tokens": tokens, "first_keys": first_keys}

    def _header_of_layer(self, layer: int) -> dict[str, Any]:
        layout, right = self.layouts[layer], self.example.labels
        return {
            **axes_of(self.labels, layout, self.example),
            "title": self.experiment.layer_specs[layer].title,
            "row_positions": layout.rows,
            "column_positions": layout.columns,
            "rest": layout.rest,
            "right": [int(right[a]) if a >= 0 else NOTHING for a in layout.answers],
            "is_asked": any(a >= 0 for a in layout.answers),
        }


def _example_of(trained: Experiment, inspection: Inspection) -> tuple[Experiment, Example]:
    """Return an experiment with a task of the requested example's size, and the example.

    A custom book has no labels: its right answers are not known here.
    """
    if not inspection.tokens:
        examples, k = examples_of(trained.task), inspection.example
        target, reverse = examples.target[k].numpy(), examples.reverse
        back = np.full_like(target, NOTHING) if reverse is None else reverse[k].numpy()
        return trained, Example(
            examples.tokens[k].numpy(), examples.labels[k].numpy(), target, back
        )
    tokens = np.array(inspection.tokens)
    sized = trained.replace(n_entries=len(tokens) // 2)
    nothing = np.full(sized.task.n_ctx - sized.task.answers_from, NOTHING)
    return sized, Example(tokens, nothing, nothing, nothing)


def _answered_book(example: Example, inspection: Inspection) -> tuple[Example, list[Label]]:
    """Return a custom book with the right answers that are known, and the labels of its tokens.

    The typed question stands at its entry, or is the last one; the others name the entries.
    """
    names, right = inspection.names, inspection.right
    ids = example.tokens[: len(example.labels), -1]
    numbers, target = ids - ids[0], np.arange(len(ids))
    labels, question = numbers.copy(), right[0] if right else len(names) - 1
    if len({int(numbers[entry]) for entry in right}) != 1:
        labels[question] = NOTHING
    if len(right) != 1:
        target[question] = NOTHING
    pairs = zip(names, numbers, strict=True)
    entries = [Label(name, name, f"{name}, {inspection.numbers[number]}") for name, number in pairs]
    questions = [f"{name} ?" for name in names]
    if not right:
        questions[question] = "your question"
    texts = entries + [Label(text, text, text) for text in questions]
    return replace(example, labels=labels, target=target), texts


def indices_of(entries: Int64[np.ndarray, " a"], positions: list[int], task: Task) -> list[int]:
    """Return for each position the index in `positions` of its entry; −1 if it is not there."""
    entry_of = dict(enumerate(entries.tolist(), task.answers_from))
    index_of = {position: i for i, position in enumerate(positions)}
    return [index_of.get(entry_of.get(position, NOTHING), NOTHING) for position in positions]


def examples_of(task: Task) -> Examples:
    """Return the held-out examples of a task, always the same; the first is that of the Lab.

    Raises:
        ValueError: If the task has too few different examples.
    """
    first = draw_probe(task)
    more = task.draw(N_EXAMPLES - 1, generator_for(0, "more probes"), held_out=True)
    reverses = [each.reverse for each in (first, more) if each.reverse is not None]
    return Examples(
        torch.cat([first.tokens, more.tokens]),
        torch.cat([first.labels, more.labels]),
        torch.cat([first.target, more.target]),
        torch.cat(reverses) if reverses else None,
    )


def size_refusal(trained: Experiment, sized: Experiment, variant: Variant) -> str:
    """Return the reason why a variant cannot answer books of another size than in training.

    Args:
        trained: The experiment as it was trained.
        sized: The experiment with a task of the book's size.
        variant: The variant whose weights do not fit.
    """
    n = trained.task.n_ctx // 2
    if trained.adjusted(variant).changes != sized.adjusted(variant).changes:
        return mark(
            "It answers books of {n} entries only: its widths were changed to make the costs of "
            "that size equal.",
            n=n,
        )
    return mark(
        "It answers books of {n} entries only: how it tells positions apart was learnt for them.",
        n=n,
    )
