"""Sweeps: the same variants trained at every point of a grid of settings, on many processes.

Names are imported when first used, so that pages can read sweeps without importing torch.
"""

from typing import TYPE_CHECKING

from attnkit.foundation.lazy import import_on_use

if TYPE_CHECKING:
    from attnkit.sweeps.result import SweepResult
    from attnkit.sweeps.run import run_sweep
    from attnkit.sweeps.specification import Axis, RateRule, Sweep, read_sweep

_MODULES = {
    "Axis": "specification",
    "RateRule": "specification",
    "Sweep": "specification",
    "SweepResult": "result",
    "read_sweep": "specification",
    "run_sweep": "run",
}

__all__ = ["Axis", "RateRule", "Sweep", "SweepResult", "read_sweep", "run_sweep"]


__getattr__ = import_on_use(__name__, _MODULES)
