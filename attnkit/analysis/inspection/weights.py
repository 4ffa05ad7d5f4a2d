"""The trained numbers themselves, for people to take away."""

from __future__ import annotations

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, header_of
from attnkit.training.film import Film


def inspect_weights(film: Film, inspection: Inspection) -> InspectionResult:
    """Every variant's parameters at the last frame, called `place/name`."""
    last = film.frames[-1]
    fixed = {
        f"{place}/{name}": array
        for place, own in enumerate(last.parameters)
        for name, array in own.items()
    }
    return InspectionResult(header_of(film.at(last.step), inspection), {}, fixed)
