"""The trained numbers themselves, for people to take away."""

from __future__ import annotations

from attnkit.film import Film
from attnkit.inspection.inspected import Inspected, header_of
from attnkit.inspection.request import Inspection


def inspect_weights(film: Film, inspection: Inspection) -> Inspected:
    """Every variant's parameters at the last frame, called `place/name`."""
    last = film.frames[-1]
    fixed = {
        f"{place}/{name}": array
        for place, own in enumerate(last.parameters)
        for name, array in own.items()
    }
    return Inspected(header_of(film.at(last.step), inspection), {}, fixed)
