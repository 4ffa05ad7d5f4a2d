"""How symmetric the scores are: S in two parts, over training, and what breaks the symmetry.

Everything is measured on S as it is before masks and softmax, unless its name says otherwise. Of
several maps per head each has its own S; numbers per head are then means over its maps.

Index letters as in `attnkit.analysis.inspection.replay`, with `l` layer, `p` map.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from attnkit.analysis.inspection.inspected_example import place_of
from attnkit.analysis.inspection.probes import N_EXAMPLES, example_for, examples_of
from attnkit.analysis.inspection.replay import Replay, parts_of, replays
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, header_of, with_accuracy
from attnkit.experiment import Experiment
from attnkit.experiment.layer_specs import LayerSpec
from attnkit.model.reference import Stages
from attnkit.tasks import NOTHING, Examples, Task
from attnkit.training import metrics
from attnkit.training.film import Film
from attnkit.variants import Variant, Wiring
from attnkit.variants.position_rules import POSITIONS

MOST_POSITIONS = 24
"""Rows of the maps that travel; numbers about S are always of all positions."""

MOST_BYTES = 2**21
"""Of the maps of all frames; of more there are fewer frames."""

_STAGES = ("scores", "masked", "pattern")


def inspect_symmetry(film: Film, inspection: Inspection) -> InspectionResult:
    """The symmetry of one layer and head on one example, and of all heads on many.

    The variant at place p has these framed arrays; NaN where a head is not, or attention is not
    square. `p.scores` to `p.gap` are there only if both are.

    | array | shape | what |
    |---|---|---|
    | `p.scores` | f p n n | S of the example, at the header's `positions` |
    | `p.shares` | f p 2 | ‖S_s‖²/‖S‖² and ‖S_a‖²/‖S‖² of the whole S, 1 and 0 if it is zero |
    | `p.eigenvalues` | f p n | of its S_s, largest first |
    | `p.negative` | f p | share of ‖S_s‖² in its eigenvalues below zero |
    | `p.gap` | f p n | mean over j of \\|S_ij − S_ji\\|, all positions |
    | `p.positional` | f p | share of ‖S_a‖² that is the same in all examples |
    | `p.a` | f l h | asymmetry (1 − s)/2 as evaluated in training |
    | `p.stages` | f l h 3 | the same on the examples that can be looked at: of S, of S without
    what a mask hides, of the pattern |
    | `p.error` | f l 2 | max\\|S − Sᵀ\\| over examples and heads; the same over max\\|S\\| |
    | `p.must` | f | 1 where the wiring makes S symmetric |
    | `p.weight_symmetry`, `p.directionality` | f l h | of W_Q W_Kᵀ |
    | `p.mass` | f 2 | attention on the right and on the reversed entry |

    Raises:
        ValueError, InvalidExperiment: if there is no such layer, head or example.
    """
    sized, example = example_for(film.experiment, inspection)
    place = place_of(sized, inspection)
    positions = _shown_positions(sized.task, place, example)
    film = film.thinned(_most_frames(film.experiment, inspection, len(positions)))
    many = examples_of(film.experiment.task)
    framed = with_accuracy(film)
    notes = []
    for p, variant in enumerate(film.experiment.sharing):
        for name, array in _arrays(film, variant, inspection, sized, example, many).items():
            of_shown = array[..., positions, :][..., positions] if name == "scores" else array
            framed[f"{p}.{name}"] = of_shown
        masses = [film.metric(f"mass_on_{name}")[:, p] for name in ("target", "reverse")]
        framed[f"{p}.mass"] = np.stack(masses, 1).astype(np.float32)
        framed[f"{p}.a"] = ((1 - film.head_symmetry[:, p]) / 2).astype(np.float32)
        notes.append(_notes(film.experiment.wiring(variant)))
    labels = sized.task.label(example.tokens[0].numpy())
    header: dict[str, Any] = {
        **header_of(film, inspection),
        "square": place.square,
        "n_looked_at": place.key_positions[1] - place.key_positions[0],
        "positions": positions,
        "labels": [labels[place.key_positions[0] + i].short for i in positions]
        if place.square
        else [],
        "full_labels": [labels[place.key_positions[0] + i].full for i in positions]
        if place.square
        else [],
        "all_labels": [label.short for label in labels[slice(*place.key_positions)]],
        "target": _among(positions, place, example.target, sized.task),
        "reverse": _among(positions, place, example.reverse, sized.task),
        "n_examples": N_EXAMPLES,
        "stages": list(_STAGES),
        "causal": place.causal,
        "notes": notes,
    }
    return InspectionResult(header, framed, {})


def _shown_positions(task: Task, place: LayerSpec, example: Examples) -> list[int]:
    """Which positions of a layer travel: those asked last, with their answers; then the last.

    Counted from the first that is looked at.
    """
    if not place.square:
        return []
    start, stop = place.key_positions
    if stop - start <= MOST_POSITIONS:
        return list(range(stop - start))
    reverse = example.target if example.reverse is None else example.reverse
    rows = zip(example.labels[0], example.target[0], reverse[0], strict=True)
    wanted: list[int] = []
    for i, (label, *held) in reversed(list(enumerate(rows, task.answers_from))):
        if label != NOTHING:
            wanted += [i, *map(int, held)]
    inside = [i for i in (*wanted, *range(stop - 1, start - 1, -1)) if start <= i < stop]
    return sorted(i - start for i in list(dict.fromkeys(inside))[:MOST_POSITIONS])


def _among(positions: list[int], place: LayerSpec, held: Tensor | None, task: Task) -> list[int]:
    """For each shown position, which of them holds its answer; −1 if none of them does."""
    if held is None:
        return [NOTHING] * len(positions)
    where = {place.key_positions[0] + position: i for i, position in enumerate(positions)}
    return [
        where.get(int(held[0, i - task.answers_from]), NOTHING) if i >= task.answers_from else -1
        for i in where
    ]


def _most_frames(experiment: Experiment, inspection: Inspection, n_positions: int) -> int:
    """So many frames of maps may travel."""
    n_maps = sum(experiment.wiring(variant).n_maps for variant in experiment.sharing)
    return MOST_BYTES // max(1, 4 * n_maps * n_positions**2)


def _arrays(
    film: Film,
    variant: Variant,
    inspection: Inspection,
    sized: Experiment,
    example: Examples,
    many: Examples,
) -> dict[str, np.ndarray]:
    """What is computed of a variant's weights, over all frames."""
    parts: dict[str, list[np.ndarray]] = {}
    for some in parts_of(film, variant, film.experiment, N_EXAMPLES):
        of_one = list(replays(some, variant, sized))
        for one, replay in zip(of_one, replays(some, variant), strict=True):
            stages = replay.forward(many.tokens).stages
            found = _of_all_heads(replay, stages, film.experiment.n_heads)
            if stages[inspection.layer].spec.square:
                here = one.forward(example.tokens).stages[inspection.layer]
                if inspection.head < here.scores.shape[2]:
                    found |= _of_one_head(here, stages[inspection.layer], inspection.head)
            for name, array in found.items():
                parts.setdefault(name, []).append(array)
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _of_one_head(one: Stages, many: Stages, head: int) -> dict[str, np.ndarray]:
    """S of an example in all its detail, and what of it hangs on positions alone."""
    scores = one.scores[:, 0, head].double()  # (f, p, n, n)
    symmetry = metrics.score_symmetry(scores)
    even = (scores + scores.mT) / 2
    finite = even.isfinite().all(-1).all(-1)
    eigenvalues = torch.linalg.eigvalsh(torch.where(finite[..., None, None], even, 0.0)).flip(-1)
    eigenvalues[~finite] = torch.nan
    size = eigenvalues.square().sum(-1)
    below = eigenvalues.clamp_max(0).square().sum(-1)
    odd = many.scores[:, :, head].double()
    odd = (odd - odd.mT) / 2  # (f, b, p, n, n)
    found = {
        "scores": scores,
        "shares": torch.stack([(1 + symmetry) / 2, (1 - symmetry) / 2], -1),
        "eigenvalues": eigenvalues,
        "negative": torch.where(size == 0, size, below / size),
        "gap": (scores - scores.mT).abs().mean(-1),
        "positional": shared_part(odd.transpose(1, 2)),
    }
    return {name: _narrow(values) for name, values in found.items()}


def shared_part(matrices: Float64[Tensor, "*n b i j"]) -> Float64[Tensor, "*n"]:
    """Share of mean ‖A‖² that is the same in all of several independent matrices; 0 if they are 0.

    That is ‖mean A‖² over mean ‖A‖², less what chance alone leaves of b matrices. Below zero
    where they agree less than by chance.
    """
    n_matrices = matrices.shape[-3]
    size = matrices.square().sum((-2, -1)).mean(-1)
    of_mean = matrices.mean(-3).square().sum((-2, -1))
    share = (n_matrices * of_mean / size - 1) / (n_matrices - 1)
    return torch.where(size == 0, size, share)


def _of_all_heads(replay: Replay, stages: list[Stages], n_heads: int) -> dict[str, np.ndarray]:
    """What is measured on every head of every layer."""
    (wiring,) = replay.model.wirings.values()
    layers = [_of_layer(replay, layer, each) for layer, each in enumerate(stages)]
    found = {name: torch.stack([of[name] for of in layers], 1) for name in layers[0]}
    for name in ("stages", "weight_symmetry", "directionality"):
        per_head = found[name]  # (f, l, h, …)
        shape = (*per_head.shape[:2], n_heads, *per_head.shape[3:])
        found[name] = per_head.new_full(shape, torch.nan)
        found[name][:, :, : per_head.shape[2]] = per_head
    must = np.full(len(replay.model.seeds), wiring.symmetric, np.uint8)
    return {"must": must, **{name: _narrow(values) for name, values in found.items()}}


def _of_layer(replay: Replay, layer: int, stages: Stages) -> dict[str, Tensor]:
    """Numbers per head, and the largest gap of all heads."""
    (q,), (k,) = (replay.model.role_weights(layer, role) for role in ("Q", "K"))
    q, k = q.double(), k.double()  # (f, h·p, m, d)
    n_heads = stages.pattern.shape[2]
    of_weights = {
        "weight_symmetry": metrics.weight_symmetry(q, k),
        "directionality": metrics.directionality(q, k),
    }
    found = {name: each.unflatten(1, (n_heads, -1)).mean(2) for name, each in of_weights.items()}
    n_frames = len(stages.scores)
    found["stages"] = q.new_full((n_frames, n_heads, len(_STAGES)), torch.nan)
    found["error"] = q.new_full((n_frames, 2), torch.nan)
    if stages.spec.square:
        hidden = stages.scores.isfinite() & (stages.masked != stages.scores)
        kept = stages.scores.masked_fill(hidden, 0.0)
        measured = [
            metrics.score_symmetry(each.double()).mean(1)  # over examples
            for each in (stages.scores, kept, stages.pattern.unsqueeze(3))
        ]
        found["stages"] = torch.stack([(1 - s.mean(-1)) / 2 for s in measured], -1)
        gap = (stages.scores - stages.scores.mT).abs().flatten(1).amax(1).double()
        found["error"] = torch.stack([gap, metrics.symmetry_error(stages.scores).double()], -1)
    return found


def _notes(wiring: Wiring) -> dict[str, Any]:
    """What a variant's positions do, and which of its rules break the symmetry of tied scores."""
    breaking = [rule for rule in wiring.rules if getattr(rule, "asymmetric", False)]
    positions = POSITIONS[wiring.sizes.positions]
    return {
        "positions": positions.name,
        "help": positions.help,
        "breaks": positions.asymmetric,
        "breaking": [getattr(rule, "help", "") for rule in breaking if rule is not positions],
        "n_maps": 1 if wiring.adds_maps else wiring.n_maps,
        "self_mask": wiring.sizes.self_mask,
    }


def _narrow(values: Tensor) -> Float32[np.ndarray, "*n"]:
    array: np.ndarray = values.float().numpy()
    return array
