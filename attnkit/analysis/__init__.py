"""Analysis of trained models and results: inspections, comparisons, similarity, reasons and export.

Names are imported when first used, so that pages can ask for inspections without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnkit.analysis.inspection.request import Inspection
    from attnkit.analysis.inspection.views import inspect

_HOMES = {"Inspection": "inspection.request", "inspect": "inspection.views"}

__all__ = ["Inspection", "inspect"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
