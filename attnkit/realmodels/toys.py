"""Our own small models, measured as the real ones are; a control whose sharing is known."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pandas as pd

from attnkit.realmodels.atlas import Atlas, measure_model
from attnkit.realmodels.base import AttentionLayer, Kind, Projections, RealModel
from attnkit.realmodels.shipped import FOLDER

if TYPE_CHECKING:
    from attnkit.experiment.layer_specs import LayerSpec
    from attnkit.training.results import Result
    from attnkit.variants import Variant

FILE = FOLDER / "toys.parquet"

TASKS = ("directed", "k_hop", "reverse", "induction", "language", "translation")
"""Tasks at their defaults: bidirectional, causal, and with cross-attention."""

FAMILY = "toy"


@cache
def toy_table() -> pd.DataFrame:
    """Rows of heads as of `measure_model`; heads are counted on over seeds.

    Raises:
        OSError, Unreadable: if the file is gone or damaged.
    """
    return Atlas.load(FILE).table


def measure_toys() -> pd.DataFrame:
    """Train the tasks of `TASKS` and measure all models; minutes."""
    from attnkit.experiment import Experiment
    from attnkit.training import train

    tables = []
    for task in TASKS:
        result = train(Experiment(task=task))
        tables += [measure_model(toy_model(result, v)).table for v in result.experiment.sharing]
    table = pd.concat(tables, ignore_index=True)
    return table[table["head"].notna()]  # a layer of several seeds' heads is no model's


def toy_model(result: Result, variant: Variant) -> RealModel:
    """The runs of one variant of a finished experiment, as one model with the heads of all seeds.

    Head h of seed number s is its head s·n_heads + h.
    """
    import torch

    from attnkit.experiment.layer_specs import layer_specs_of
    from attnkit.model.model import Model
    from attnkit.variants.sharing import ROLES

    experiment = result.experiment
    runs = [run for run, (of, _) in enumerate(experiment.runs) if of == variant]
    seeds = [experiment.runs[run][1] for run in runs]
    model = Model(experiment, seeds, torch.device("cpu"), sharing=[variant], drawn=False)
    for place, run in enumerate(runs):
        for name, value in model.run_parameters(place).items():
            value.copy_(torch.from_numpy(result.parameters[run][name]))
    counted: dict[Kind, int] = {}
    layers = []
    for number, place_ in enumerate(layer_specs_of(experiment.size, experiment.task)):
        kind = _kind(place_)
        q, k, v = (model.role_weights(number, role)[0].flatten(0, 1).numpy() for role in ROLES)
        layers.append(_layer(kind, counted.get(kind, 0), Projections(q, k, v)))
        counted[kind] = counted.get(kind, 0) + 1
    name = f"toy {experiment.task.title.lower()}, {variant}"
    return RealModel(name, FAMILY, "attnkit", tuple(layers))


def _layer(kind: Kind, index: int, weights: Projections) -> AttentionLayer:
    return AttentionLayer(kind, index, len(weights.W_Q), len(weights.W_K), lambda: weights)


def _kind(place: LayerSpec) -> Kind:
    if not place.square:
        return Kind.CROSS
    return Kind.CAUSAL if place.causal else Kind.ENCODER
