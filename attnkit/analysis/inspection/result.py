"""Results of inspections: a header and arrays, as one blob that browsers read directly.

A blob is a safetensors file: eight bytes of length, JSON with the type, shape and offset of every
array, then the numbers. This module imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from attnkit.analysis.attention_map import lacking_note
from attnkit.analysis.inspection.attribution_tables import Attribution
from attnkit.analysis.inspection.request import Inspection
from attnkit.foundation.documents import parse_json
from attnkit.training.failure import failure
from attnkit.training.film import Film
from attnkit.training.metrics import asymmetry
from attnkit.training.snapshot import metadata_of
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import colors_of

Sentences = dict[str, list[Any]]
"""Text, or texts of all variants, for each frame, by name of the figure that shows them."""


@dataclass(frozen=True, eq=False)
class InspectionResult:
    """Result of an inspection.

    Attributes:
        header: Plain values; `header_of` returns those that all views have. Its "sentences"
            are lists over the frames, and its "newest" values are those of the last frame.
        framed: Arrays with a leading axis of frames, by name. The names of those of the variant
            with index p begin with `p.`.
        fixed: Arrays without such an axis, by name.
    """

    header: dict[str, Any]
    framed: dict[str, np.ndarray]
    fixed: dict[str, np.ndarray]

    @property
    def attribution(self) -> Attribution:
        """Why the inspected head looks at one token, and which values make the answer, as tables.

        Raises:
            ValueError: If the inspection has no attribution.
        """
        if self.header.get("attribution") is None:
            raise ValueError(
                "key_position: got none, but an attribution explains the score of one key; inspect "
                'with Inspection("attention", key_position=…)'
            )
        return Attribution(self.header, self.framed)

    def to_bytes(self) -> bytes:
        """Return header and arrays as a safetensors blob, in which each sentence stands once."""
        numbers = dict[str, int]()
        sentences = {
            name: _mapped(texts, lambda text: numbers.setdefault(text, len(numbers)))
            for name, texts in self.header["sentences"].items()
        }
        named = {name: np.ascontiguousarray(a) for name, a in {**self.framed, **self.fixed}.items()}
        header = {**self.header, "framed": sorted(self.framed)}
        header |= {"sentences": sentences, "all_sentences": list(numbers)}
        return save_arrays(named, metadata={"inspected": json.dumps(header, ensure_ascii=False)})

    @staticmethod
    def from_bytes(blob: bytes) -> InspectionResult:
        """Create a result from the blob of `to_bytes`."""
        arrays = load_arrays(blob)
        header = parse_json(metadata_of(blob)["inspected"], len(blob))
        framed, texts = set(header.pop("framed")), header.pop("all_sentences")
        for name, numbers in header["sentences"].items():
            header["sentences"][name] = _mapped(numbers, texts.__getitem__)
        return InspectionResult(
            header,
            {name: array for name, array in arrays.items() if name in framed},
            {name: array for name, array in arrays.items() if name not in framed},
        )


def _mapped(nested: Any, function: Callable[[Any], Any]) -> Any:
    """Return nested lists with a function applied to all that are no lists."""
    if isinstance(nested, list):
        return [_mapped(part, function) for part in nested]
    return function(nested)


def header_of(film: Film, inspection: Inspection) -> dict[str, Any]:
    """Return the header values of every view: the film, its frames, variants and layers."""
    experiment = film.experiment
    failed, message = None, ""
    if film.frames:  # there may be none since the last request
        last = (film.metric(name)[-1] for name in ("accuracy", "loss"))
        failed = failure(experiment, *last, over=film.steps[-1] >= experiment.training.steps)
    if failed is not None and failed.setting == "learning_rate":
        message = f"{failed.sentence} {failed.advice}"
    colored = zip(experiment.sharing, colors_of(experiment.sharing), strict=True)
    return {
        "view": inspection.view,
        "request": {name: v for name, v in inspection.to_dict().items() if name != "since"},
        "since": inspection.since if inspection.since >= 0 else None,
        "task": experiment.task.name,
        "title": experiment.task.title,
        "failure": message,
        "sentences": {},
        "chance": experiment.task.chance,
        "seed": experiment.first_seed,
        "steps": film.steps,
        "total_steps": experiment.training.steps,
        "places": [spec.title for spec in experiment.layer_specs],
        "variants": [
            {
                "name": title_of(variant),
                "text": variant.value,
                "color": color,
                "classes": ["".join(members) for members in variant.sharing.classes],
                "n_heads": (n_heads := experiment.wiring(variant).sizes.n_heads),
                "lacking": lacking_note(n_heads),
            }
            for variant, color in colored
        ],
    }


def with_measures(film: Film) -> dict[str, np.ndarray]:
    """Return the framed arrays that every view has: accuracy and score asymmetry, (f, v)."""
    return {
        "accuracy": film.metric("accuracy").astype(np.float32),
        "asymmetry": asymmetry(film.metric("score_symmetry")).astype(np.float32),
    }
