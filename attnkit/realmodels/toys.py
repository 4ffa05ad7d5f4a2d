"""Measurements of small models trained by attnkit, as a control whose sharing is known."""

from __future__ import annotations

from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnkit.realmodels.atlas import Atlas, measure_model
from attnkit.realmodels.base import (
    TRAINED_HERE,
    Array,
    AttentionLayer,
    Kind,
    Projections,
    RealModel,
)
from attnkit.realmodels.shipped import FOLDER

if TYPE_CHECKING:
    from attnkit.experiment.layer_specs import LayerSpec
    from attnkit.model.model import Model
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
        A table as by `measure_model`, without rows of whole layers, and with columns on the run of
        each head: `accuracy` on held-out examples, `accuracy_qk` and `accuracy_kv` after the best
        tied matrices (`tied_matrices`) have replaced its own in all heads, which are NaN where a
        variant shares matrices already, and `chance`, the accuracy of a simple guess.
    """
    from attnkit.experiment.experiment import full_size
    from attnkit.training import train

    tables = []
    for task in TASKS:
        result = train(full_size(task), progress=False)
        tables += [_measured(result, variant) for variant in result.experiment.sharing]
    return pd.concat(tables, ignore_index=True)


def _measured(result: Result, variant: Variant) -> pd.DataFrame:
    from attnkit.analysis.inspection.surgery import accuracy_of
    from attnkit.training.data import held_out_examples

    experiment, model = result.experiment, _trained(result, variant)
    examples = held_out_examples(experiment, model.seeds, model.device, experiment.task)
    table = measure_model(toy_model(result, variant)).table
    table = table[table["head"].notna()]  # heads of several seeds together are no model's layer
    of_seed = (table["head"] // (table["n_heads"] // len(model.seeds))).to_numpy(int)
    columns = {"accuracy": accuracy_of(model, examples.tokens, examples.labels)[of_seed]}
    for roles in ("QK", "KV"):
        after = np.full(len(model.seeds), np.nan)
        if str(variant) == "QKV":
            model = _trained(result, variant)
            tie(model, variant, roles)
            after = accuracy_of(model, examples.tokens, examples.labels)
        columns[f"accuracy_{roles.lower()}"] = after[of_seed]
    return table.assign(**columns, chance=experiment.task.chance)


def tie(model: Model, variant: Variant, roles: str) -> None:
    """Replace the matrices of two roles by the best tied ones, in every head of all runs.

    Args:
        model: The runs of the variant.
        variant: A variant in which both roles have a matrix of their own.
        roles: "QK" or "KV".
    """
    import torch

    from attnkit.variants.sharing import ROLES

    of_roles = [role for role in ROLES if role in roles]
    weights, wiring = model.transformer(variant).weights, model.wirings[variant]
    for layer in range(len(model.layer_specs)):
        own = (model.role_weights(layer, role)[0].numpy() for role in of_roles)
        for role, tied in zip(of_roles, tied_matrices(roles, *own), strict=True):
            heads = torch.from_numpy(tied).transpose(1, 2)  # (s, m, h, d)
            weights[wiring.names(layer)[f"W_{role}"]].copy_(heads.flatten(2))


def tied_matrices(
    roles: str, a: Float[Array, "*n m d"], b: Float[Array, "*n m d"]
) -> tuple[Float[Array, "*n m d"], Float[Array, "*n m d"]]:
    """Return the best tied matrices of two roles, whose errors are `tie_qk` and `tie_kv`.

    Args:
        roles: "QK" for one matrix W with the best W Wᵀ. "KV" for one matrix that differs in the
            two roles by the norm and by a rotation of the basis of W_V only, which W_O can undo.
        a: Matrices of the first role.
        b: Matrices of the second role.
    """
    if roles == "QK":
        form = a.astype(np.float64) @ b.swapaxes(-2, -1)
        values, vectors = np.linalg.eigh((form + form.swapaxes(-2, -1)) / 2)
        columns = (vectors * np.sqrt(values.clip(0))[..., None, :])[..., -a.shape[-1] :]
        best = np.zeros(a.shape)  # a head may be wider than the model
        best[..., : columns.shape[-1]] = columns
        return best, best
    norms = [np.linalg.norm(w.astype(np.float64), axis=(-2, -1), keepdims=True) for w in (a, b)]
    keys, values = (w / norm for w, norm in zip((a, b), norms, strict=True))
    # The orthogonal matrix R with the smallest ‖V R − K‖ (Schönemann 1966).
    left, _, right = np.linalg.svd(np.swapaxes(values, -2, -1) @ keys)
    rotation = left @ right
    shared = (keys + values @ rotation) / 2
    return norms[0] * shared, norms[1] * shared @ rotation.swapaxes(-2, -1)


def toy_model(result: Result, variant: Variant) -> RealModel:
    """Return the runs of one variant as one model that has the heads of all seeds.

    Head h of the seed with index s is head s · n_heads + h of the model.

    Args:
        result: Result of a finished experiment.
        variant: One of the experiment's variants.
    """
    from attnkit.experiment.layer_specs import layer_specs_of
    from attnkit.variants.sharing import ROLES

    experiment, model = result.experiment, _trained(result, variant)
    indices = {kind: count() for kind in Kind}
    layers = []
    for i, spec in enumerate(layer_specs_of(experiment.size, experiment.task)):
        kind = _kind(spec)
        q, k, v = (model.role_weights(i, role)[0].flatten(0, 1).numpy() for role in ROLES)
        read = partial(Projections, q, k, v)
        layers.append(AttentionLayer(kind, next(indices[kind]), len(q), len(k), read))
    name = f"toy {experiment.task.title.lower()}, {variant}"
    return RealModel(name, FAMILY, TRAINED_HERE, tuple(layers))


def _trained(result: Result, variant: Variant) -> Model:
    """Return the runs of one variant with their trained weights."""
    import torch

    from attnkit.model.model import Model

    experiment = result.experiment
    runs = [run for run, (of_run, _) in enumerate(experiment.runs) if of_run == variant]
    seeds = [experiment.runs[run][1] for run in runs]
    model = Model(experiment, seeds, torch.device("cpu"), sharing=[variant], drawn=False)
    for index, run in enumerate(runs):
        for name, parameter in model.run_parameters(index).items():
            parameter.copy_(torch.from_numpy(result.parameters[run][name]))
    return model


def _kind(spec: LayerSpec) -> Kind:
    if not spec.square:
        return Kind.CROSS
    return Kind.CAUSAL if spec.causal else Kind.ENCODER
