"""Analysis of trained models and results: inspections, comparisons, similarity, reasons and export.

Names are imported on first use, so that pages can create inspections without importing torch.
"""

from typing import TYPE_CHECKING

from attnkit.foundation.lazy import import_on_use

if TYPE_CHECKING:
    from attnkit.analysis.direction import expectation, outcome
    from attnkit.analysis.inspection.request import Inspection
    from attnkit.analysis.inspection.surgery import measure_tying, tying_table
    from attnkit.analysis.inspection.views import inspect

_HOMES = {
    "Inspection": "inspection.request",
    "expectation": "direction",
    "inspect": "inspection.views",
    "measure_tying": "inspection.surgery",
    "outcome": "direction",
    "tying_table": "inspection.surgery",
}

__all__ = [
    "Inspection",
    "expectation",
    "inspect",
    "measure_tying",
    "outcome",
    "tying_table",
]


__getattr__ = import_on_use(__name__, _HOMES)
