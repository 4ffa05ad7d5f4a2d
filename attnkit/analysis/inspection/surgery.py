"""Accuracy of trained models with heads switched off, or with matrices tied after training.

Ties are measured in every way at once, for one seed; and for keys and values with every mixture of
W_K and W_V and with a repair, for all seeds of a variant as one batch. A repair is a K=V model
whose W_O has taken up a linear map of the values: with the values K M, the heads read out
(P K) M W_O, so each head's rows of W_O become M W_O.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from attnkit.analysis.inspection.replay import (
    Replay,
    Replayed,
    batched_replays,
    is_tied,
    model_of,
    replays,
)
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, header_of, with_measures
from attnkit.analysis.similarity import linear_cka
from attnkit.analysis.tying import ALPHAS, MOST_SEEDS, TyingResult, linear_map
from attnkit.experiment import Experiment
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.foundation.settings import InvalidExperiment, as_sentence
from attnkit.foundation.slices import pause
from attnkit.model.model import Model
from attnkit.tasks import NOTHING, Examples
from attnkit.training import metrics
from attnkit.training.cohort import tie
from attnkit.training.data import TrainingData, held_out_examples, unstack
from attnkit.training.engine import choose_engine, is_ready, kernel_knows
from attnkit.training.film import Film
from attnkit.training.loops import train
from attnkit.training.results import Result
from attnkit.variants import InvalidVariant, Variant
from attnkit.variants.options import OPTIONS
from attnkit.variants.sharing import Sharing
from attnkit.variants.wiring import TOKEN, Rule, Wiring

if TYPE_CHECKING:
    import pandas as pd

MOST_EXAMPLES = 256
"""Most held-out examples to measure on; they are the first of those evaluated in training."""

EXAMPLES = 256
"""Number of training examples of each seed, the first ones, on which the map is fitted."""

Parameters: TypeAlias = dict[str, np.ndarray]
"""Parameters of one run by name."""

Runs: TypeAlias = tuple[Experiment, list[Parameters], int]
"""Experiment of a variant, the parameters of all its seeds, and their training step."""

TokensAndLabels: TypeAlias = tuple[Int64[Tensor, "s b n fields"], Int64[Tensor, "s b a"]]
"""Held-out examples of every seed."""


def inspect_heads(film: Film, inspection: Inspection) -> InspectionResult:
    """Return the accuracy at the last frame with the outputs of heads set to zero.

    Heads are switched off one at a time, a layer at a time, and all together. A bias of W_O stays.
    """
    last = film.at(film.steps[-1])
    examples, unchanged, fixed = _examples_of(last), list[float](), dict[str, np.ndarray]()
    for index, variant in enumerate(film.experiment.sharing):
        ((replay, n),) = batched_replays(last, variant, film.experiment, len(examples.tokens))
        unchanged.append(_accuracy(replay.model, examples))
        n_right = dict[str, np.ndarray]()
        for batch in torch.arange(len(examples.tokens)).split(n):
            for name, counts in _count_right(replay, examples.take(batch)).items():
                n_right[name] = n_right.get(name, 0) + counts
        n_answers = int((examples.labels != NOTHING).sum())
        for name, counts in n_right.items():
            fixed[f"{index}.{name}"] = (counts / n_answers).astype(np.float32)
    fixed["accuracy_whole"] = np.array(unchanged, np.float32)
    return InspectionResult(_header(last, inspection, examples), with_measures(last), fixed)


def _count_right(replay: Replay, examples: Examples) -> dict[str, np.ndarray]:
    """Count right answers without one head, without the heads of one layer, and without any head.

    Returns:
        "head" → (l, h), "layer" → (l,), "none" → (1,).
    """
    original = replay.forward(examples.tokens)

    def n_right(replayed: Replayed) -> int:
        return int((replayed.logits[0].argmax(-1) == examples.labels).sum())

    heads, layers, headless = [], [], original
    for layer, stages in enumerate(original.stages):
        of_layer = []
        for head in range(stages.z.shape[2]):
            pause()
            z = stages.z.clone()
            z[:, :, head] = 0.0
            of_layer.append(n_right(replay.with_head_outputs(original, layer, z)))
        heads.append(of_layer)
        zeros = torch.zeros_like(stages.z)
        layers.append(n_right(replay.with_head_outputs(original, layer, zeros)))
        headless = replay.with_head_outputs(headless, layer, zeros)
    return {
        "head": np.array(heads),
        "layer": np.array(layers),
        "none": np.array([n_right(headless)]),
    }


def inspect_ties(film: Film, inspection: Inspection) -> InspectionResult:
    """Return the accuracy at the last frame after each possible way to tie matrices."""
    last = film.at(film.steps[-1])
    examples = _examples_of(last)
    rows, tied, untied = list[dict[str, Any]](), list[float](), list[float]()
    for index, variant in enumerate(film.experiment.sharing):
        (replay,) = replays(last, variant)
        untied.append(_accuracy(replay.model, examples))
        for tying in tyings(film.experiment, variant, last.steps[-1]):
            try:
                model, refusal = tying.model([last.frames[0].parameters[index]]), ""
                tied.append(_accuracy(model, examples))
            except (InvalidVariant, InvalidExperiment) as error:
                tied.append(np.nan)
                refusal = refusal_of(error, tying.sharing)
            text = tying.text if len(variant.stages) == 1 else ""  # a run is tied once
            row = {"variant": index, "tie": tying.sharing.value, "by": tying.by, "text": text}
            rows.append({**row, "refusal": refusal})
    header = {**_header(last, inspection, examples), "rows": rows}
    fixed = {"tied": np.array(tied, np.float32), "untied": np.array(untied, np.float32)}
    return InspectionResult(header, with_measures(last), fixed)


@dataclass(frozen=True)
class Tying:
    """One way to tie matrices of a trained variant.

    Attributes:
        experiment: Experiment in which it was trained, with fixed widths.
        variant: The variant at the last frame.
        sharing: The sharing after tying.
        by: How tied weights are computed: "average", or "keep_Q", "keep_K" or "keep_V".
    """

    experiment: Experiment
    variant: Variant
    sharing: Sharing
    by: str

    @property
    def text(self) -> str:
        """Text form of the variant that is trained untied, then tied in this way."""
        by = "" if self.by == "average" else f" tie_by={self.by}"
        return f"{self.variant} tie={self.sharing}{by}"

    def model(
        self, parameters: Sequence[dict[str, np.ndarray]], model_class: type[Model] = Model
    ) -> Model:
        """Return the tied models of some runs of the variant.

        Args:
            parameters: Parameters of each untied model.
            model_class: Class of the tied models.

        Raises:
            InvalidVariant, InvalidExperiment: If it cannot be tied in this way; says why.
        """
        variant = Variant(f"{self.text} tie_at=0")
        experiment = self.experiment.replace(sharing=[variant])
        model = model_class(
            experiment,
            [experiment.first_seed] * len(parameters),
            torch.device("cpu"),
            tied={variant},
            drawn=False,
        )
        for run, of_run in enumerate(parameters):
            new = model.run_parameters(run)
            old = {name: torch.from_numpy(value) for name, value in of_run.items()}
            for name, value in tie(variant, old, new):
                new[name].copy_(value)
        return model


def tyings(experiment: Experiment, variant: Variant, step: int) -> Iterator[Tying]:
    """Yield every way to tie more matrices of a variant than are tied at a step of its training."""
    stage = variant.stages[-1 if is_tied(experiment, variant, step) else 0]
    if experiment.equal != "nothing":  # keep the widths that equal costs have led to
        adjusted = experiment.adjusted(variant)
        widths = {"d_head": adjusted.size.d_head, "d_mlp": adjusted.size.d_mlp}
        experiment = experiment.replace(equal="nothing", sharing=["QKV"], **widths)
        stage = stage if adjusted.rank is None else stage.replacing(adjusted.rank)
    finer = stage.sharing
    for coarser in Sharing:
        if coarser is finer or any(
            len({coarser.owner(role) for role in members}) > 1 for members in finer.classes
        ):
            continue
        keep = [f"keep_{members[0]}" for members in finer.classes if members not in coarser.classes]
        for by in ("average", *keep):
            yield Tying(experiment, stage, coarser, by)


def refusal_of(error: InvalidVariant | InvalidExperiment, sharing: Sharing) -> str:
    """Return the reason why a variant cannot be tied, as a sentence."""
    text = str(error).removeprefix(f"tie={sharing}: ")
    if isinstance(error, InvalidExperiment):
        text = error.problems[0].allowed.removeprefix("but ")
    first = text.split()[0]
    return as_sentence(text if first in OPTIONS else text[0].upper() + text[1:])


def accuracy_of(
    model: Model, tokens: Int64[Tensor, "s b n fields"], labels: Int64[Tensor, "s b a"]
) -> Float64[np.ndarray, " s"]:
    """Return the accuracy of every run of a model on its examples, computed as in training."""
    batches = tokens.split(max(1, MEASURED_TOGETHER // len(tokens)), 1)
    parts = list[Tensor]()
    for batch in batches:
        parts.append(model.logits(batch.contiguous()))
        pause()
    logits = torch.cat(parts, 1)
    accuracy: np.ndarray = metrics.accuracy(logits, labels).numpy()
    return accuracy


def _accuracy(model: Model, examples: Examples) -> float:
    return float(accuracy_of(model, examples.tokens[None], examples.labels[None])[0])


def _examples_of(film: Film) -> Examples:
    """Return the first held-out examples of the evaluation at the film's only frame."""
    experiment = film.experiment
    drawn = held_out_examples(
        experiment,
        experiment.seeds,
        torch.device("cpu"),
        experiment.task_at(film.steps[-1]),
    )
    return unstack(drawn)[0].take(torch.arange(min(MOST_EXAMPLES, experiment.training.n_eval)))


def _header(film: Film, inspection: Inspection, examples: Examples) -> dict[str, Any]:
    n_examples = len(examples.tokens)
    return {**header_of(film, inspection), "step": film.steps[-1], "n_examples": n_examples}


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


def tying_table(trained: Experiment | Result) -> pd.DataFrame:
    """Return the accuracies of all variants whose keys and values can be tied after training.

    Args:
        trained: A result, or an experiment, which is trained first.

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
            tables.append(measure_tying(experiment, variant, runs, step).table)
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
) -> TyingResult:
    """Return the accuracies of a trained variant after its keys and values are tied in many ways.

    Args:
        experiment: The experiment in which the variant was trained.
        variant: A variant of QKV.
        parameters: Parameters of the variant's runs, one for each seed of the experiment.
        step: Training step of these parameters.
        most_examples: Most held-out examples of each seed to measure on. None: all.

    Raises:
        CannotBeTied: If its keys and values cannot be tied in this way; says why.
    """
    model_class = _model_class(experiment, variant)
    model = model_of(experiment, variant, parameters, step, model_class)
    tied = tied_to_key(experiment, variant, step, model, parameters)
    task = experiment.task_at(step)
    drawn = held_out_examples(experiment, experiment.seeds, model.device, task)
    examples = drawn.tokens[:, :most_examples], drawn.labels[:, :most_examples]
    sizes = model.wirings[variant].sizes
    maps, cka = [], []
    for layers in keys_and_values(model, variant, experiment, step):
        maps.append(np.stack([linear_map(*np.nan_to_num(layer)) for layer in layers], 1))
        cka.append(np.stack([linear_cka(*layer) for layer in layers], 1))
    finite = np.array([all(np.isfinite(v).all() for v in run.values()) for run in parameters])
    arrays = {"before": accuracy_of(model, *examples)}
    arrays["mixed"] = _mixed(model, variant, tied, examples)
    take_up(tied, torch.from_numpy(np.concatenate(maps)))
    arrays |= {"fitted": accuracy_of(tied, *examples), "cka": np.concatenate(cka)}
    for values in arrays.values():
        values[~finite] = np.nan
    return TyingResult(
        task.name,
        variant.value,
        tuple(experiment.seeds),
        step,
        task.chance,
        examples[1].shape[1],
        sizes.d_v,
        sizes.d_model,
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
    for index, variant in enumerate(film.experiment.sharing):
        experiment, parameters, step = runs[index]
        few = experiment.replace(n_seeds=min(MOST_SEEDS, experiment.n_seeds))
        entry: dict[str, Any] = {"variant": variant.value, "refusal": ""}
        try:
            result = measure_tying(few, variant, parameters[:MOST_SEEDS], step, MOST_EXAMPLES)
            entry["result"] = result.header
            fixed |= {f"{index}.{name}": array for name, array in result.arrays.items()}
        except CannotBeTied as error:
            entry["refusal"] = error.reason
        entries.append(entry)
    header = {**header_of(last, inspection), "tying": entries}
    return InspectionResult(header, with_measures(last), fixed)


def _model_class(experiment: Experiment, variant: Variant) -> type[Model]:
    """Return the class of models that computes a variant fastest, without compiling anything."""
    engine = choose_engine(torch.device("cpu"))
    if engine == "kernel" and is_ready(engine) and kernel_knows(experiment, variant):
        from attnkit.model.kernel.model import KernelModel

        return KernelModel
    return Model


def tied_to_key(
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


def absorbed(
    output: Float[Tensor, "s hd m"], maps: Float64[Tensor, "s g d d"]
) -> Float[Tensor, "s hd m"]:
    """Return the output matrix that has taken up maps of the values: each head's rows are M W_O.

    Args:
        output: W_O with the rows of all heads, one head below the other.
        maps: Map of every key-value head, which adjacent heads may share.
    """
    d_head = maps.shape[-1]
    by_head = output.double().unflatten(1, (-1, d_head))  # (s, h, d, m)
    of_heads = maps.repeat_interleave(by_head.shape[1] // maps.shape[1], 1)
    new: Tensor = (of_heads @ by_head).flatten(1, 2).to(output.dtype)
    return new


def take_up(tied: Model, maps: Float64[Tensor, "s l g d d"]) -> list[Float32[Tensor, "s hd m"]]:
    """Multiply W_O of every layer of tied models by maps of the values, and return the products."""
    (wiring,) = tied.wirings.values()
    weights = tied.transformer(tied.variants[0]).weights
    products = []
    for layer in range(len(tied.layer_specs)):
        weight = weights[wiring.names(layer)["W_O"]]
        products.append(absorbed(weight.clone(), maps[:, layer]))
        with torch.no_grad():
            weight.copy_(products[-1])
    return products


def keys_and_values(
    model: Model, variant: Variant, experiment: Experiment, step: int
) -> Iterator[list[Float32[np.ndarray, "2 1 g t d"]]]:
    """Yield, for each seed, keys and values of its first training examples in every layer.

    Raises:
        CannotBeTied: If a rule of the variant changes values afterwards.
    """
    weights, task = model.transformer(variant).weights, experiment.task_at(step)
    for index, seed in enumerate(experiment.seeds):  # in turn, because training sets may be large
        data = TrainingData(experiment, [seed], torch.device("cpu"), task)
        batches = [data.next()[0]]
        while sum(batch.shape[1] for batch in batches) < EXAMPLES:
            batches.append(data.next()[0])
        pause()
        of_seed = {name: weight[index : index + 1] for name, weight in weights.items()}
        transformer = model.transformer(variant, of_seed)
        roles, parts = transformer.wiring.roles, list[list[Tensor]]()
        for tokens in torch.cat(batches, 1)[:, :EXAMPLES].split(MEASURED_TOGETHER, 1):
            pause()
            x = transformer.embed(tokens.contiguous())
            parts.append([])
            for layer in range(len(transformer.layer_specs)):
                stages = transformer.attention(layer, x)
                x = transformer.stream_after(layer, stages)
                projected = stages.heads.project(stages.rows[:, :, stages.places.keys])
                keys, values = projected[roles["K"]], projected[roles["V"]]
                unchanged = stages.heads.for_all_heads(values)
                if not torch.equal(stages.v.nan_to_num(), unchanged.nan_to_num()):
                    raise CannotBeTied(variant, "a rule changes the values after W_V")
                parts[-1].append(torch.stack([keys, values]))  # (2, 1, b, g, j, d)
        joined = (torch.cat(of_layer, 2) for of_layer in zip(*parts, strict=True))
        yield [layer.transpose(2, 3).flatten(3, 4).numpy() for layer in joined]
