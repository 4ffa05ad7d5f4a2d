"""What trained models lose: heads that are switched off, matrices that are tied afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attnkit.analysis.inspection.replay import Replay, Replayed, in_parts, is_tied, replays
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, header_of, with_accuracy
from attnkit.experiment import Experiment
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.foundation.settings import InvalidExperiment, as_sentence
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
"""Held-out examples that are answered; those of the Lab, if it has no more."""


def inspect_heads(film: Film, inspection: Inspection) -> InspectionResult:
    """Accuracy at the last frame with what heads read out set to zero.

    One head at a time, all of a layer, all of the model. A bias of W_O stays.
    """
    last = film.at(film.steps[-1])
    examples, whole, fixed = _examples_of(last), list[float](), dict[str, np.ndarray]()
    for place, variant in enumerate(film.experiment.sharing):
        ((replay, n),) = in_parts(last, variant, film.experiment, len(examples.tokens))
        whole.append(_accuracy(replay.model, examples))
        n_right = dict[str, np.ndarray]()
        for some in torch.arange(len(examples.tokens)).split(n):
            for name, counted in _count_right(replay, examples.take(some)).items():
                n_right[name] = n_right.get(name, 0) + counted
        n_asked = int((examples.labels != NOTHING).sum())
        for name, counted in n_right.items():
            fixed[f"{place}.{name}"] = (counted / n_asked).astype(np.float32)
    fixed["accuracy_whole"] = np.array(whole, np.float32)
    return InspectionResult(_header(last, inspection, examples), with_accuracy(last), fixed)


def _count_right(replay: Replay, examples: Examples) -> dict[str, np.ndarray]:
    """Right answers without each head (l, h), without those of a layer (l), without all (1)."""
    found = replay.forward(examples.tokens)

    def n_right(answered: Replayed) -> int:
        return int((answered.logits[0].argmax(-1) == examples.labels).sum())

    heads, layers, nothing = [], [], found
    for layer, stages in enumerate(found.stages):
        of_layer = []
        for head in range(stages.z.shape[2]):
            z = stages.z.clone()
            z[:, :, head] = 0.0
            of_layer.append(n_right(replay.changed(found, layer, z)))
        heads.append(of_layer)
        none = torch.zeros_like(stages.z)
        layers.append(n_right(replay.changed(found, layer, none)))
        nothing = replay.changed(nothing, layer, none)
    return {
        "head": np.array(heads),
        "layer": np.array(layers),
        "none": np.array([n_right(nothing)]),
    }


def inspect_ties(film: Film, inspection: Inspection) -> InspectionResult:
    """Accuracy at the last frame if matrices are tied at once, in every way that is allowed."""
    last = film.at(film.steps[-1])
    examples = _examples_of(last)
    rows, tied, untied = list[dict[str, Any]](), list[float](), list[float]()
    for place, variant in enumerate(film.experiment.sharing):
        (replay,) = replays(last, variant)
        untied.append(_accuracy(replay.model, examples))
        for cut in _cuts(last, variant):
            try:
                model, refusal = cut.model(last.frames[0].parameters[place]), ""
                tied.append(_accuracy(model, examples))
            except (InvalidVariant, InvalidExperiment) as error:
                tied.append(np.nan)
                refusal = _reason(error, cut.sharing)
            rows.append({"variant": place, **cut.in_words, "refusal": refusal})
    header = {**_header(last, inspection, examples), "rows": rows}
    fixed = {"tied": np.array(tied, np.float32), "untied": np.array(untied, np.float32)}
    return InspectionResult(header, with_accuracy(last), fixed)


@dataclass(frozen=True)
class _Cut:
    """One way to tie a variant.

    Attributes:
        experiment: in which it was trained, at sizes that do not change.
        variant: as it stands now. sharing: what is tied. by: which numbers it goes on with.
        repeatable: whether the variant can be trained from the start, tied, and trained on.
    """

    experiment: Experiment
    variant: Variant
    sharing: Sharing
    by: str
    repeatable: bool

    @property
    def text(self) -> str:
        """The variant that is trained untied, then tied in this way."""
        by = "" if self.by == "average" else f" tie_by={self.by}"
        return f"{self.variant} tie={self.sharing}{by}"

    @property
    def in_words(self) -> dict[str, str]:
        """What a page says of it."""
        text = self.text if self.repeatable else ""
        return {"tie": self.sharing.value, "by": self.by, "text": text}

    def model(self, parameters: dict[str, np.ndarray]) -> Model:
        """The tied model.

        Args:
            parameters: of the untied one.

        Raises:
            InvalidVariant, InvalidExperiment: if it cannot be tied so; says why.
        """
        variant = Variant(f"{self.text} tie_at=0")
        experiment = self.experiment.replace(sharing=[variant])
        model = Model(
            experiment,
            [experiment.first_seed],
            torch.device("cpu"),
            tied={variant},
            drawn=False,
        )
        own = model.run_parameters(0)
        old = {name: torch.from_numpy(value) for name, value in parameters.items()}
        for name, value in tie(variant, old, own):
            own[name].copy_(value)
        return model


def _cuts(film: Film, variant: Variant) -> Iterator[_Cut]:
    """Every way to tie more than a variant has tied by the film's only frame."""
    experiment = film.experiment
    stage = variant.stages[-1 if is_tied(experiment, variant, film.steps[-1]) else 0]
    if experiment.equal != "nothing":  # the widths that it was given stay
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
        kept = [f"keep_{members[0]}" for members in finer.classes if members not in coarser.classes]
        for by in ("average", *kept):
            yield _Cut(experiment, stage, coarser, by, len(variant.stages) == 1)


def _reason(error: InvalidVariant | InvalidExperiment, sharing: Sharing) -> str:
    """Why it cannot be tied so, as a sentence."""
    text = str(error).removeprefix(f"tie={sharing}: ")
    if isinstance(error, InvalidExperiment):
        text = error.problems[0].allowed.removeprefix("but ")
    first = text.split()[0]
    return as_sentence(text if first in OPTIONS else text[0].upper() + text[1:])


def _accuracy(model: Model, examples: Examples) -> float:
    """Of the one run of a model, by the engine that trains."""
    batches = examples.tokens.unsqueeze(0).split(MEASURED_TOGETHER, 1)
    logits = torch.cat([model.logits(some.contiguous()) for some in batches], 1)
    return float(metrics.accuracy(logits, examples.labels.unsqueeze(0)))


def _examples_of(film: Film) -> Examples:
    """The held-out examples that were answered at the film's only frame, up to a number."""
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
