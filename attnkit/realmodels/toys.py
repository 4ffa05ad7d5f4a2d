"""Measurements of small models trained by attnkit, as a control whose sharing is known."""

from __future__ import annotations

from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING

import pandas as pd

from attnkit.realmodels.atlas import Atlas, measure_model
from attnkit.realmodels.base import (
    TRAINED_HERE,
    AttentionLayer,
    Kind,
    Projections,
    RealModel,
)
from attnkit.realmodels.shipped import FOLDER

if TYPE_CHECKING:
    from attnkit.experiment.layer_specs import LayerSpec
    from attnkit.training.results import Result
    from attnkit.variants import Variant

FILE = FOLDER / "toys.parquet"

TASKS = ("directed", "k_hop", "reverse", "induction", "language", "translation")
"""Tasks of the models, at full size: bidirectional, causal, with cross-attention."""

FAMILY = "toy"


@cache
def toy_table() -> pd.DataFrame:
    """Return the stored measurements of the small models' heads, as by `measure_toys`.

    Raises:
        OSError: If the file does not exist.
        Unreadable: If the file is damaged.
    """
    return Atlas.load(FILE).table


def measure_toys() -> pd.DataFrame:
    """Train all sharings on `TASKS` and measure their heads; this takes minutes.

    Returns:
        A table as by `measure_model`, without rows of whole layers.
    """
    from attnkit.experiment.experiment import full_size
    from attnkit.training import train

    tables = []
    for task in TASKS:
        result = train(full_size(task), progress=False)
        tables += [measure_model(toy_model(result, v)).table for v in result.experiment.sharing]
    table = pd.concat(tables, ignore_index=True)
    return table[table["head"].notna()]  # heads of several seeds together are not a model's layer


def toy_model(result: Result, variant: Variant) -> RealModel:
    """Return the runs of one variant as one model that has the heads of all seeds.

    Head h of the seed with index s is head s · n_heads + h of the model.

    Args:
        result: Result of a finished experiment.
        variant: One of the experiment's variants.
    """
    import torch

    from attnkit.experiment.layer_specs import layer_specs_of
    from attnkit.model.model import Model
    from attnkit.variants.sharing import ROLES

    experiment = result.experiment
    runs = [run for run, (of_run, _) in enumerate(experiment.runs) if of_run == variant]
    seeds = [experiment.runs[run][1] for run in runs]
    model = Model(experiment, seeds, torch.device("cpu"), sharing=[variant], drawn=False)
    for index, run in enumerate(runs):
        for name, parameter in model.run_parameters(index).items():
            parameter.copy_(torch.from_numpy(result.parameters[run][name]))
    indices = {kind: count() for kind in Kind}
    layers = []
    for i, spec in enumerate(layer_specs_of(experiment.size, experiment.task)):
        kind = _kind(spec)
        q, k, v = (model.role_weights(i, role)[0].flatten(0, 1).numpy() for role in ROLES)
        read = partial(Projections, q, k, v)
        layers.append(AttentionLayer(kind, next(indices[kind]), len(q), len(k), read))
    name = f"toy {experiment.task.title.lower()}, {variant}"
    return RealModel(name, FAMILY, TRAINED_HERE, tuple(layers))


def _kind(spec: LayerSpec) -> Kind:
    if not spec.square:
        return Kind.CROSS
    return Kind.CAUSAL if spec.causal else Kind.ENCODER
