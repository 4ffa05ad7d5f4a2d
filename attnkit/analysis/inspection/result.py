"""What an inspection found: a header and arrays, as one blob that browsers read as it is.

A blob is a safetensors file: eight bytes of length, JSON that names every array's type, shape and
place, then the numbers. No torch here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from attnkit.analysis.inspection.request import Inspection
from attnkit.training.film import Film
from attnkit.training.snapshot import metadata_of
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import colors_of


@dataclass(frozen=True, eq=False)
class InspectionResult:
    """The answer to an inspection.

    Attributes:
        header: plain values; `header_of` makes what all views have.
        framed: arrays with a leading axis of frames, by name. Those of the variant at place p are
            called `p.name`.
        fixed: arrays without one.
    """

    header: dict[str, Any]
    framed: dict[str, np.ndarray]
    fixed: dict[str, np.ndarray]

    def to_bytes(self) -> bytes:
        """As a safetensors blob."""
        named = {name: np.ascontiguousarray(a) for name, a in {**self.framed, **self.fixed}.items()}
        header = {**self.header, "framed": sorted(self.framed)}
        return save_arrays(named, metadata={"inspected": json.dumps(header)})

    @staticmethod
    def from_bytes(blob: bytes) -> InspectionResult:
        """Read `to_bytes`."""
        arrays = load_arrays(blob)
        header = json.loads(metadata_of(blob)["inspected"])
        framed = set(header.pop("framed"))
        return InspectionResult(
            header,
            {name: array for name, array in arrays.items() if name in framed},
            {name: array for name, array in arrays.items() if name not in framed},
        )


def header_of(film: Film, inspection: Inspection) -> dict[str, Any]:
    """What every view says of itself: the film, its frames, its variants, its layers."""
    experiment = film.experiment
    named = zip(experiment.sharing, colors_of(experiment.sharing), strict=True)
    return {
        "view": inspection.view,
        "request": {name: v for name, v in inspection.to_dict().items() if name != "since"},
        "since": inspection.since if inspection.since >= 0 else None,
        "task": experiment.task.name,
        "title": experiment.task.title,
        "chance": experiment.task.chance,
        "seed": experiment.first_seed,
        "steps": film.steps,
        "total_steps": experiment.training.steps,
        "places": [place.title for place in experiment.layer_specs],
        "variants": [
            {
                "name": title_of(variant),
                "text": variant.value,
                "color": color,
                "classes": ["".join(members) for members in variant.sharing.classes],
                "n_heads": experiment.wiring(variant).sizes.n_heads,
            }
            for variant, color in named
        ],
    }


def with_accuracy(film: Film) -> dict[str, np.ndarray]:
    """The framed array that every view has: held-out accuracy, (f, v)."""
    return {"accuracy": film.metric("accuracy").astype(np.float32)}
