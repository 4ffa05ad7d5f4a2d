"""What a lookup is about: an example, its rows and columns in every layer, who is followed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from attnkit.analysis.attention_map import MapLayout, axes_of, map_layout_of, queries_of
from attnkit.analysis.custom_phone_book import NOT_IN_BOOK
from attnkit.analysis.inspection.probes import N_EXAMPLES, example_for
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.responses import Example
from attnkit.experiment import Experiment
from attnkit.experiment.layer_specs import LayerSpec
from attnkit.tasks import NOTHING, Examples, Label

MOST_CLASSES = 128
"""Of more classes, only those that the example's answers have are told one by one."""


@dataclass(frozen=True, eq=False)
class InspectedExample:
    """What is looked at, the same for all variants.

    Attributes:
        experiment: with a task of the example's size. trained: as trained.
        example: with what is known to be right. laid_out: with rows for all that is asked.
        labels: of its tokens. numbers: what classes of answers are called, if not as usual.
        asking: the place of the token that is followed among `queries_of` the layer.
        frames: rows and columns of every layer.
    """

    experiment: Experiment
    trained: Experiment
    example: Example
    laid_out: Example
    labels: list[Label]
    numbers: tuple[str, ...]
    layer: int
    head: int
    asking: int
    frames: list[MapLayout]

    @staticmethod
    def at(trained: Experiment, inspection: Inspection) -> InspectedExample:
        """What an inspection asks for.

        Raises:
            ValueError, InvalidExperiment: if there is no such example, layer or head.
        """
        experiment, examples = example_for(trained, inspection)
        place_of(experiment, inspection)
        (example,) = one_by_one(examples)
        task, places, laid_out = experiment.task, experiment.layer_specs, example
        labels = task.label(example.tokens)
        if inspection.tokens:  # its questions are about its entries, in their order
            n_entries = len(example.labels)
            everyone = np.arange(n_entries)
            laid_out = replace(example, labels=np.zeros_like(everyone), target=everyone)
        if inspection.names:
            example = _as_known(example, inspection)
            labels = _own_labels(example, inspection)
        asking = [
            min(inspection.asking, len(queries_of(task, place, laid_out)) - 1) for place in places
        ]
        frames = [
            map_layout_of(task, place, laid_out, row)
            for place, row in zip(places, asking, strict=True)
        ]
        return InspectedExample(
            experiment,
            trained,
            example,
            laid_out,
            labels,
            inspection.numbers,
            inspection.layer,
            inspection.head,
            asking[inspection.layer],
            frames,
        )

    @property
    def own(self) -> bool:
        """Whether it is a book of one's own."""
        return self.laid_out is not self.example

    @property
    def tokens(self) -> Int64[Tensor, "1 i fields"]:
        """As a batch."""
        return torch.from_numpy(self.example.tokens).unsqueeze(0)

    @property
    def frame(self) -> MapLayout:
        """Rows and columns of the layer."""
        return self.frames[self.layer]

    @property
    def position(self) -> int:
        """Where the token that is followed stands."""
        place = self.experiment.layer_specs[self.layer]
        return queries_of(self.experiment.task, place, self.laid_out)[self.asking]

    @property
    def row(self) -> int:
        """Its row in the map."""
        return self.frame.rows.index(self.position)

    @property
    def answer(self) -> int:
        """Its place in arrays of answers; `NOTHING` if it is asked nothing."""
        return self.frame.answers[self.row]

    @property
    def classes(self) -> list[int]:
        """The classes whose logits are told."""
        n_classes = self.experiment.task.n_classes
        if n_classes <= MOST_CLASSES:
            return list(range(n_classes))
        held = np.unique(self.example.labels[self.example.labels != NOTHING]).tolist()
        right = [] if self.answer == NOTHING else [int(self.example.labels[self.answer])]
        return sorted({*right, *held[: MOST_CLASSES - 1]})

    def text_of(self, answer: int) -> str:
        """A class, readable."""
        if not self.numbers:
            return self.experiment.task.answer_text(answer)
        return self.numbers[answer] if answer < len(self.numbers) else NOT_IN_BOOK

    def header(self, answered: list[np.ndarray]) -> dict[str, Any]:
        """What the page must know beside the arrays.

        Args:
            answered: classes that variants answered.
        """
        place = self.experiment.layer_specs[self.layer]
        layers = [self._told(layer) for layer in range(len(self.frames))]
        own = layers[self.layer]
        classes = {*self.classes, *own["right"], *np.unique(answered).tolist()} - {NOTHING}
        where = {position: row for row, position in enumerate(self.frame.rows)}
        right = own["right"][self.row]
        shown = "asking" if own["is_asked"] else "short"
        return {
            "layer": self.layer,
            "head": self.head,
            "asking": self.asking,
            "askable": [
                {
                    "label": getattr(self.labels[position], shown),
                    "title": self.labels[position].full,
                    "row": where.get(position, NOTHING),
                }
                for position in queries_of(self.experiment.task, place, self.laid_out)
            ],
            "row": self.row,
            "is_asked": self.answer != NOTHING,
            "right": right,
            "right_text": "" if right == NOTHING else self.text_of(right),
            "target": own["target"][self.row],
            "reverse": own["reverse"][self.row],
            "layers": layers,
            "texts": {str(answer): self.text_of(answer) for answer in sorted(classes)},
            "classes": self.classes,
            "n_examples": N_EXAMPLES,
        }

    def _told(self, layer: int) -> dict[str, Any]:
        frame, right = self.frames[layer], self.example.labels
        return {
            **axes_of(self.labels, frame, self.example),
            "title": self.experiment.layer_specs[layer].title,
            "row_positions": frame.rows,
            "column_positions": frame.columns,
            "rest": frame.rest,
            "right": [int(right[a]) if a >= 0 else NOTHING for a in frame.answers],
            "is_asked": any(a >= 0 for a in frame.answers),
        }


def place_of(experiment: Experiment, inspection: Inspection) -> LayerSpec:
    """The layer that is looked at.

    Raises:
        ValueError: if there is no such layer or head.
    """
    counts = {"layer": len(experiment.layer_specs), "head": experiment.n_heads}
    for name, count in counts.items():
        given = getattr(inspection, name)
        if given >= count:
            raise ValueError(f"{name}: got {given}, allowed 0 to {count - 1}")
    return experiment.layer_specs[inspection.layer]


def _as_known(example: Example, inspection: Inspection) -> Example:
    """A book of one's own with what is right, as far as the one who typed it knows.

    Every entry's name is asked in its place, but in one place what was typed.
    """
    numbers = _numbers_of(example)
    target = np.arange(len(numbers))
    typed, labels = _typed(inspection), numbers.copy()
    if len({int(numbers[place]) for place in inspection.right}) != 1:
        labels[typed] = NOTHING
    if len(inspection.right) != 1:
        target[typed] = NOTHING
    return replace(example, labels=labels, target=target)


def _own_labels(example: Example, inspection: Inspection) -> list[Label]:
    """Labels of a book of one's own: its entries, then its questions."""
    told = zip(inspection.names, _numbers_of(example), strict=True)
    entries = [Label(name, name, f"{name}, {inspection.numbers[number]}") for name, number in told]
    asked = [f"{name} ?" for name in inspection.names]
    if not inspection.right:
        asked[_typed(inspection)] = "your question"
    return entries + [Label(text, text, text) for text in asked]


def _typed(inspection: Inspection) -> int:
    """In place of which entry's name the typed one is asked."""
    return inspection.right[0] if inspection.right else len(inspection.names) - 1


def _numbers_of(example: Example) -> Int64[np.ndarray, " n"]:
    """The classes of a book's entries: its last fields, counted from the first entry's."""
    numbers = example.tokens[: len(example.labels), -1]
    classes: np.ndarray = numbers - numbers[0]
    return classes


def one_by_one(examples: Examples) -> Iterator[Example]:
    """One by one, as pages read them."""
    for place, tokens in enumerate(examples.tokens):
        target, reverse = examples.target[place].numpy(), examples.reverse
        yield Example(
            tokens.numpy(),
            examples.labels[place].numpy(),
            target,
            np.full_like(target, NOTHING) if reverse is None else reverse[place].numpy(),
        )
