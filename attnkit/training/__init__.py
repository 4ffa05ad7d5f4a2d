"""Training of experiments: data, cohorts, metrics, snapshots, results and films.

Names are imported when first used, so that pages can read results without importing torch.
"""

from typing import TYPE_CHECKING

from attnkit.foundation.lazy import import_on_use

if TYPE_CHECKING:
    from attnkit.training.film import Film
    from attnkit.training.loops import record, stream, train
    from attnkit.training.results import Result
    from attnkit.training.snapshot import Snapshot
    from attnkit.training.training import Training

_MODULES = {
    "Film": "film",
    "Result": "results",
    "Snapshot": "snapshot",
    "Training": "training",
    "record": "loops",
    "stream": "loops",
    "train": "loops",
}

__all__ = ["Film", "Result", "Snapshot", "Training", "record", "stream", "train"]


__getattr__ = import_on_use(__name__, _MODULES)
