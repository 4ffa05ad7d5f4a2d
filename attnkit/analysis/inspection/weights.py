"""Trained weights of all variants, for download."""

from __future__ import annotations

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, header_of
from attnkit.training.film import Film


def inspect_weights(film: Film, inspection: Inspection) -> InspectionResult:
    """Return the parameters of every variant at the last frame; `0/W_E` is of the first variant."""
    last = film.frames[-1]
    fixed = {
        f"{index}/{name}": array
        for index, parameters in enumerate(last.parameters)
        for name, array in parameters.items()
    }
    return InspectionResult(header_of(film.at(last.step), inspection), {}, fixed)
