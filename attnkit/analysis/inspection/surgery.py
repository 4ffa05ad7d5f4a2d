"""Accuracy of trained models with heads switched off, or with matrices tied after training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from attnkit.analysis.inspection.replay import (
    Replay,
    Replayed,
    batched_replays,
    is_tied,
    replays,
)
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, header_of, with_measures
from attnkit.experiment import Experiment
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.foundation.settings import InvalidExperiment, as_sentence
from attnkit.foundation.slices import pause
from attnkit.model.model import Model
from attnkit.tasks import NOTHING, Examples
from attnkit.training import metrics
from attnkit.training.cohort import tie
from attnkit.training.data import held_out_examples, unstack
from attnkit.training.film import Film
from attnkit.variants import InvalidVariant, Variant
from attnkit.variants.options import OPTIONS
from attnkit.variants.sharing import Sharing

MOST_EXAMPLES = 256
"""Most held-out examples to measure on; they are the first of those evaluated in training."""


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
            text = tying.text if tying.repeatable else ""
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
        repeatable: Whether one run can train the variant, tie it and continue.
    """

    experiment: Experiment
    variant: Variant
    sharing: Sharing
    by: str
    repeatable: bool

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
            yield Tying(experiment, stage, coarser, by, len(variant.stages) == 1)


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
    """Return the accuracy of a model of one run."""
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
