"""Keys and values of trained models tied afterwards: every mixture of W_K and W_V, and repairs.

All seeds of a variant are measured as one batch. A repair is a K=V model whose W_O has taken up a
map of the values (`attnkit.analysis.inspection.value_maps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from attnkit.analysis.inspection.replay import model_of
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, header_of, with_measures
from attnkit.analysis.inspection.surgery import MOST_EXAMPLES, accuracy_of, refusal_of, tyings
from attnkit.analysis.inspection.value_maps import (
    Outputs,
    fitted_maps,
    trained_maps,
    training_tokens,
)
from attnkit.analysis.recovery import MOST_SEEDS
from attnkit.analysis.similarity import linear_cka
from attnkit.analysis.tying import (
    ALPHAS,
    MAP_RATES,
    Repair,
    TyingResult,
    repairs_for,
)
from attnkit.experiment import Experiment
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.foundation.settings import InvalidExperiment
from attnkit.foundation.slices import pause
from attnkit.model.model import Model
from attnkit.model.reference import Transformer
from attnkit.training.data import held_out_examples
from attnkit.training.engine import choose_engine, is_ready, kernel_knows
from attnkit.training.film import Film
from attnkit.training.results import Result
from attnkit.training.training import train
from attnkit.variants import InvalidVariant, Variant
from attnkit.variants.rules import Rule
from attnkit.variants.sharing import Sharing
from attnkit.variants.wiring import TOKEN, Wiring

if TYPE_CHECKING:
    import pandas as pd

MAP_STEPS, PAGE_MAP_STEPS = 300, 100
"""Steps for which a map is trained at each learning rate; on a page, which waits, these are fewer.
On the phone book, 300 steps gain up to three points over 100, and 1,200 steps up to two more."""

_MOST_MULTIPLY_ADDS = 2**37
"""Approximate limit of the multiply-adds with which maps are trained for a page, forward only."""

_MOST_NUMBERS = 2**25
"""Approximate limit of the keys and values that are in memory at the same time."""

Parameters: TypeAlias = dict[str, np.ndarray]
"""Parameters of one run by name."""

Runs: TypeAlias = tuple[Experiment, list[Parameters], int]
"""Experiment of a variant, the parameters of all its seeds, and their training step."""

TokensAndLabels: TypeAlias = tuple[Int64[Tensor, "s b n fields"], Int64[Tensor, "s b a"]]
"""Held-out examples of every seed."""


class CannotBeTied(ValueError):
    """The keys and values of a variant cannot be tied here.

    Attributes:
        reason: The reason, without a full stop.
    """

    def __init__(self, variant: Variant, reason: str) -> None:
        self.reason = reason.removesuffix(".")
        super().__init__(
            f"sharing: got {variant}, allowed a variant with separate W_Q, W_K and W_V and "
            f"unchanged values and outputs; here: {self.reason}"
        )


def tying_table(trained: Experiment | Result, map_steps: int = MAP_STEPS) -> pd.DataFrame:
    """Return the accuracies of all variants whose keys and values can be tied after training.

    Args:
        trained: A result, or an experiment, which is trained first.
        map_steps: Steps to train the trained map for, at each of `MAP_RATES`.

    Returns:
        The `TyingResult.table` of the variants, one below the other. All held-out examples count.

    Raises:
        ValueError: If no variant can be tied in this way; says why.
    """
    import pandas as pd

    result = train(trained) if isinstance(trained, Experiment) else trained
    experiment, n_seeds, step = result.experiment, result.experiment.n_seeds, result.snapshot.step
    tables, refusals = [], []
    for index, variant in enumerate(experiment.sharing):
        runs = result.parameters[index * n_seeds : (index + 1) * n_seeds]
        try:
            tied = measure_tying(experiment, variant, runs, step, map_steps=map_steps)
            tables.append(tied.table)
        except CannotBeTied as error:
            refusals.append(str(error))
    if not tables:
        raise ValueError("; ".join(refusals))
    return pd.concat(tables, ignore_index=True)


@torch.no_grad()
def measure_tying(
    experiment: Experiment,
    variant: Variant,
    parameters: Sequence[Parameters],
    step: int,
    most_examples: int | None = None,
    map_steps: int = MAP_STEPS,
) -> TyingResult:
    """Return the accuracies of a trained variant after its keys and values are tied in many ways.

    Args:
        experiment: The experiment in which the variant was trained.
        variant: A variant of QKV.
        parameters: Parameters of the variant's runs, one for each seed of the experiment.
        step: Training step of these parameters.
        most_examples: Most held-out examples of each seed to measure on. None: all.
        map_steps: Steps to train the trained map for, at each of `MAP_RATES`.

    Raises:
        CannotBeTied: If its keys and values cannot be tied in this way; says why.
    """
    model_class = _model_class(experiment, variant)
    model = model_of(experiment, variant, parameters, step, model_class)
    tied = _tied_to_key(experiment, variant, step, model, parameters)
    task = experiment.task_at(step)
    drawn = held_out_examples(experiment, experiment.seeds, model.device, task)
    examples = drawn.tokens[:, :most_examples], drawn.labels[:, :most_examples]
    sizes = model.wirings[variant].sizes
    repairs = repairs_for(sizes.d_v)
    fitted = [repair for repair in repairs if repair.kind != "trained"]
    maps, cka = _fitted(model, variant, experiment, step, fitted)
    copies = ([own] * len(MAP_RATES) for own in parameters)
    by_seed = (_tied_to_key(experiment, variant, step, model, runs) for runs in copies)
    trained = trained_maps(by_seed, maps[0], experiment, task, map_steps)
    maps.insert([repair.kind for repair in repairs].index("trained"), trained)
    finite = np.array([all(np.isfinite(v).all() for v in run.values()) for run in parameters])
    arrays = {
        "before": accuracy_of(model, *examples),
        "mixed": _mixed(model, variant, tied, examples),
        "repaired": _repaired(tied, maps, examples),
        "cka": cka,
    }
    for values in arrays.values():
        values[~finite] = np.nan
    return TyingResult(
        task.name,
        variant.value,
        tuple(experiment.seeds),
        step,
        task.chance,
        examples[1].shape[1],
        sizes.d_model,
        map_steps,
        repairs,
        **arrays,
    )


def inspect_tying(
    film: Film,
    inspection: Inspection,
    runs: Sequence[Runs] | None = None,
) -> InspectionResult:
    """Return the accuracies at the last frame after keys and values are tied in many ways.

    The header's "tying" has an entry for every variant: its text and why it cannot be tied, or the
    header of its `TyingResult`, whose arrays have the index of the variant before their names.

    Args:
        film: Film of one seed.
        inspection: The request.
        runs: Runs of every variant, if more seeds than that of the film are known; the first
            `MOST_SEEDS` are measured.
    """
    last = film.at(film.steps[-1])
    if runs is None:
        of_variants = last.frames[0].parameters
        runs = [(film.experiment, [one_run], last.steps[0]) for one_run in of_variants]
    entries, fixed = list[dict[str, Any]](), dict[str, np.ndarray]()
    for index, (variant, run) in enumerate(zip(film.experiment.sharing, runs, strict=True)):
        experiment, parameters, step = run
        experiment = experiment.replace(n_seeds=min(MOST_SEEDS, experiment.n_seeds))
        parameters = parameters[:MOST_SEEDS]
        entry: dict[str, Any] = {"variant": variant.value, "refusal": ""}
        try:
            n_steps = map_steps_for(experiment, variant, len(parameters))
            result = measure_tying(experiment, variant, parameters, step, MOST_EXAMPLES, n_steps)
            entry |= {"result": result.header}
            fixed |= {f"{index}.{name}": array for name, array in result.arrays.items()}
        except CannotBeTied as error:
            entry["refusal"] = error.reason
        entries.append(entry)
    header = {**header_of(last, inspection), "tying": entries}
    return InspectionResult(header, with_measures(last), fixed)


def map_steps_for(experiment: Experiment, variant: Variant, n_seeds: int) -> int:
    """Return the steps for which a page can wait while the maps of these seeds are trained."""
    per_token = experiment.costs(variant).multiply_adds * experiment.task.n_ctx
    per_step = per_token * experiment.training.batch_size * n_seeds * len(MAP_RATES)
    return min(PAGE_MAP_STEPS, _MOST_MULTIPLY_ADDS // per_step)


def _model_class(experiment: Experiment, variant: Variant) -> type[Model]:
    """Return the class of models that computes a variant fastest, without compiling anything."""
    engine = choose_engine(torch.device("cpu"))
    if engine == "kernel" and is_ready(engine) and kernel_knows(experiment, variant):
        from attnkit.model.kernel.model import KernelModel

        return KernelModel
    return Model


def _tied_to_key(
    experiment: Experiment,
    variant: Variant,
    step: int,
    model: Model,
    parameters: Sequence[Parameters],
) -> Model:
    """Return the K=V models that keep W_K.

    Raises:
        CannotBeTied: If there are none, or if W_O cannot take up a map of the values.
    """
    sharing = model.forms[0].sharing
    if sharing is not Sharing.QKV:
        raise CannotBeTied(variant, "W_Q, W_K and W_V are not separate matrices")
    tying = next(
        tying
        for tying in tyings(experiment, variant, step)
        if tying.sharing is Sharing.K_V and tying.by == "keep_K"
    )
    try:
        tied = tying.model(parameters, type(model))
    except (InvalidVariant, InvalidExperiment) as error:
        raise CannotBeTied(variant, refusal_of(error, Sharing.K_V)) from None
    if reason := _why_not_absorbed(model.wirings[variant]):
        raise CannotBeTied(variant, reason)
    return tied


def _why_not_absorbed(wiring: Wiring) -> str:
    """Return the reason why W_O cannot take up a map of the values; empty if it can."""
    vectors = [wiring.vectors[wiring.roles[role]] for role in ("K", "V")]
    if any(vector.sources != (TOKEN,) or vector.per_head for vector in vectors):
        return "keys or values are computed in two steps"
    if wiring.layers_share or wiring.shared_layers:
        return "layers share matrices"
    if wiring.rotation.values:
        return "values are rotated"
    if not wiring.has_output:
        return "there is no W_O"
    if any(type(rule).finish is not Rule.finish for rule in wiring.rules):
        return "a rule changes the outputs of the heads before W_O"
    return ""


def _mixed(
    model: Model, variant: Variant, tied: Model, examples: TokensAndLabels
) -> Float64[np.ndarray, "s a"]:
    """Return the accuracy with every mixture of `ALPHAS`; the tied model keeps W_K afterwards."""
    old = model.transformer(variant).weights
    new = tied.transformer(tied.variants[0]).weights
    of_keys = [name for name in new if name[-4:] in (".W_K", ".b_K")]
    accuracies = []
    for alpha in ALPHAS:
        for name in of_keys:
            new[name].copy_(alpha * old[name] + (1 - alpha) * old[f"{name[:-1]}V"])
        accuracies.append(accuracy_of(tied, *examples))
    return np.stack(accuracies, 1)


def _repaired(
    tied: Model, maps: list[Float64[np.ndarray, "s l g d d"]], examples: TokensAndLabels
) -> Float64[np.ndarray, "s p"]:
    """Return the accuracy of the model that keeps W_K, with each of the maps taken up by W_O.

    Args:
        tied: The tied models of all seeds.
        maps: Maps of every layer and key-value head, for each repair.
        examples: Held-out examples of all seeds.
    """
    outputs, accuracies = Outputs(tied), []
    for of_repair in maps:
        outputs.take_up(torch.from_numpy(of_repair))
        accuracies.append(accuracy_of(tied, *examples))
    return np.stack(accuracies, 1)


def _fitted(
    model: Model, variant: Variant, experiment: Experiment, step: int, repairs: Sequence[Repair]
) -> tuple[list[Float64[np.ndarray, "s l g d d"]], Float64[np.ndarray, "s l g"]]:
    """Return the maps of every repair, and the CKA of keys and values, on training examples."""
    tokens = training_tokens(experiment, experiment.task_at(step))
    weights = model.transformer(variant).weights
    n_numbers = (
        2 * model.wirings[variant].n_inner * len(model.layer_specs) * tokens[0, ..., 0].numel()
    )
    maps, alignments = [], []
    for seeds in torch.arange(len(tokens)).split(max(1, _MOST_NUMBERS // n_numbers)):
        of_seeds = {name: weight[seeds] for name, weight in weights.items()}
        layers = _keys_and_values(model.transformer(variant, of_seeds), variant, tokens[seeds])
        alignments.append(np.stack([linear_cka(*layer) for layer in layers], 1))
        names = [experiment.seeds[int(seed)] for seed in seeds]
        of_layers = [
            fitted_maps(repairs, np.nan_to_num(layer), names, number)
            for number, layer in enumerate(layers)
        ]
        maps.append([np.stack(of_repair, 1) for of_repair in zip(*of_layers, strict=True)])
    joined = [np.concatenate(of_repair) for of_repair in zip(*maps, strict=True)]
    return joined, np.concatenate(alignments)


def _keys_and_values(
    transformer: Transformer, variant: Variant, tokens: Int64[Tensor, "s b n fields"]
) -> list[Float32[np.ndarray, "2 s g t d"]]:
    """Return the keys and the values of all tokens in every layer, as their matrices give them.

    Raises:
        CannotBeTied: If a rule of the variant changes values afterwards.
    """
    layers: list[list[Tensor]] = [[] for _ in transformer.layer_specs]
    roles = transformer.wiring.roles
    for batch in tokens.split(max(1, MEASURED_TOGETHER // len(tokens)), 1):
        pause()
        x = transformer.embed(batch.contiguous())
        for layer, batches in enumerate(layers):
            stages = transformer.attention(layer, x)
            x = transformer.stream_after(layer, stages)
            projected = stages.heads.project(stages.rows[:, :, stages.places.keys])
            keys, values = projected[roles["K"]], projected[roles["V"]]
            unchanged = stages.heads.for_all_heads(values)
            if not torch.equal(stages.v.nan_to_num(), unchanged.nan_to_num()):
                raise CannotBeTied(variant, "a rule changes the values after W_V")
            batches.append(torch.stack([keys, values]))  # (2, s, b, g, j, d)
    joined = [torch.cat(batches, 2).transpose(2, 3).flatten(3, 4) for batches in layers]
    return [layer.numpy() for layer in joined]
