"""Symmetry of the scores S over training: its two parts, and the rules that break the symmetry.

Measures are of S before masks and softmax, unless the name says otherwise. If a head has several
maps, each has its own S; numbers per head are means over its maps.

Index letters are those of `attnkit.analysis.inspection.replay`, with `l` layer and `p` map. S_s and
S_a are the symmetric and the antisymmetric part of S.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from attnkit.analysis.inspection.inspected_example import (
    N_EXAMPLES,
    InspectedExample,
    examples_of,
    indices_of,
)
from attnkit.analysis.inspection.replay import Replay, film_parts, replays
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, header_of, with_measures
from attnkit.analysis.inspection.symmetry_words import direction_sentences, table_columns
from attnkit.analysis.reasons import marked_pair
from attnkit.experiment import Experiment
from attnkit.model.reference import Stages
from attnkit.tasks import NOTHING, Examples
from attnkit.training import metrics
from attnkit.training.film import Film
from attnkit.variants import Variant, Wiring
from attnkit.variants.position_rules import POSITIONS

MOST_POSITIONS = 24
"""Most rows of the maps that are sent; measures are always of all positions."""

MOST_BYTES = 2**21
"""Most bytes of the maps of all frames; larger maps are sent for fewer frames."""

_STAGES = ("scores", "masked", "pattern")

_UNEQUAL = " So even with Q = K the scores are not exactly symmetric."


def inspect_symmetry(film: Film, inspection: Inspection) -> InspectionResult:
    """Return the symmetry of one layer and head on one example, and of all heads on many examples.

    The variant with index p has these framed arrays. NaN stands for heads that a variant lacks, and
    for layers whose query and key positions differ; there, `p.scores` to `p.positional` are absent.

    | array | shape | content |
    |---|---|---|
    | `p.scores` | f p n n | S of the example, at the header's `positions` |
    | `p.shares` | f p 2 | ‖S_s‖²/‖S‖² and ‖S_a‖²/‖S‖²; 1 and 0 if S is zero |
    | `p.eigenvalues` | f p n | eigenvalues of S_s, largest first |
    | `p.negative` | f p | share of ‖S_s‖² in negative eigenvalues |
    | `p.gap` | f p n | mean over j of \\|S_ij − S_ji\\|, at all positions |
    | `p.positional` | f p | share of ‖S_a‖² that is the same in all examples |
    | `p.a` | f l h | asymmetry as evaluated in training |
    | `p.stages` | f l h 3 | asymmetry on the examples of inspections: of S, of S without masked
    entries, and of the pattern |
    | `p.error` | f l 2 | max\\|S − Sᵀ\\| over examples and heads; the same over max\\|S\\| |
    | `p.must` | f | 1 if the wiring makes S symmetric |
    | `p.weight_symmetry`, `p.directionality` | f l h | the measures of W_Q W_Kᵀ |
    | `p.mass` | f 2 | attention to the right and to the reversed entry |

    Raises:
        ValueError, InvalidExperiment: If there is no such layer, head or example.
    """
    inspected = InspectedExample.at(film.experiment, inspection)
    example, spec = inspected.example, inspected.spec
    positions = _sent_positions(inspected)
    sent = [spec.key_positions[0] + position for position in positions]
    film = film.thinned(_most_frames(film.experiment, len(positions)))
    many = examples_of(film.experiment.task)
    framed = with_measures(film)
    for p, variant in enumerate(film.experiment.sharing):
        for name, array in _arrays(film, variant, inspected, many).items():
            if name == "scores":
                array = array[..., positions, :][..., positions]
            framed[f"{p}.{name}"] = array
        masses = [film.metric(f"mass_on_{name}")[:, p] for name in ("target", "reverse")]
        framed[f"{p}.mass"] = np.stack(masses, 1).astype(np.float32)
        framed[f"{p}.a"] = metrics.asymmetry(film.head_symmetry[:, p]).astype(np.float32)
    labels = inspected.labels[slice(*spec.key_positions)]
    target, reverse = (
        indices_of(entries, sent, inspected.experiment.task)
        for entries in (example.target, example.reverse)
    )
    header: dict[str, Any] = {
        **header_of(film, inspection),
        "square": spec.square,
        "n_keys": spec.n_keys,
        "positions": positions,
        "labels": [labels[i].short for i in positions],
        "full_labels": [labels[i].full for i in positions],
        "all_labels": [label.short for label in labels],
        "target": target,
        "reverse": reverse,
        "n_examples": N_EXAMPLES,
        "stages": list(_STAGES),
        "causal": spec.causal,
        "pair": _pair_of(inspected, sent, target),
        "n_masses": sum(
            entries is not None and bool((entries != NOTHING).any())
            for entries in (many.target, many.reverse)
        ),
        "notes": [_notes(film.experiment.wiring(variant)) for variant in film.experiment.sharing],
    }
    header["columns"] = table_columns(header)
    header["sentences"] = direction_sentences(header, framed)
    return InspectionResult(header, framed, {})


def _sent_positions(inspected: InspectedExample) -> list[int]:
    """Return the positions whose scores are sent, relative to the layer's first; [] if not square.

    If there are too many, the last queries and their entries come first, then the last positions.
    """
    spec, example = inspected.spec, inspected.example
    if not spec.square:
        return []
    start, stop = spec.key_positions
    if stop - start <= MOST_POSITIONS:
        return list(range(stop - start))
    rows = zip(example.labels, example.target, example.reverse, strict=True)
    preferred: list[int] = []
    numbered = enumerate(rows, inspected.experiment.task.answers_from)
    for i, (label, *entries) in reversed(list(numbered)):
        if label != NOTHING:
            preferred += [i, *map(int, entries)]
    ordered = [i for i in (*preferred, *range(stop - 1, start - 1, -1)) if start <= i < stop]
    return sorted(i - start for i in list(dict.fromkeys(ordered))[:MOST_POSITIONS])


def _pair_of(inspected: InspectedExample, sent: list[int], target: list[int]) -> list[int] | None:
    """Return the indices, among the sent positions, of a question and the entry of its answer.

    The pair is the one that the Lab names, or else the first one of which both positions are sent.
    None if there is no such pair.
    """
    marked = marked_pair(inspected.experiment.task, inspected.example)
    if marked is not None and {*marked} <= {*sent}:
        return [sent.index(position) for position in marked]
    pairs = ([i, entry] for i, entry in enumerate(target) if entry not in (i, NOTHING))
    return next(pairs, None)


def _most_frames(experiment: Experiment, n_positions: int) -> int:
    """Return the number of frames whose maps fit in `MOST_BYTES`."""
    n_maps = sum(experiment.wiring(variant).n_maps for variant in experiment.sharing)
    return MOST_BYTES // max(1, 4 * n_maps * n_positions**2)


def _arrays(
    film: Film,
    variant: Variant,
    inspected: InspectedExample,
    many: Examples,
) -> dict[str, np.ndarray]:
    """Return the arrays of a variant over all frames that need its weights."""
    layer, head = inspected.request.layer, inspected.request.head
    parts: dict[str, list[np.ndarray]] = {}
    for part in film_parts(film, variant, film.experiment, N_EXAMPLES):
        sized = replays(part, variant, inspected.experiment)
        for replay_of_example, replay in zip(sized, replays(part, variant), strict=True):
            stages = replay.forward(many.tokens).stages
            arrays = _arrays_of_heads(replay, stages, film.experiment.n_heads)
            if stages[layer].spec.square and head < stages[layer].scores.shape[2]:
                of_example = replay_of_example.forward(inspected.tokens).stages[layer]
                arrays |= _arrays_of_head(of_example, stages[layer], head)
            for name, array in arrays.items():
                parts.setdefault(name, []).append(array)
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _arrays_of_head(example: Stages, many: Stages, head: int) -> dict[str, np.ndarray]:
    """Return all measures of one head's S on an example, and its part that is alike in many."""
    scores = example.scores[:, 0, head].double()  # (f, p, n, n)
    symmetry = metrics.score_symmetry(scores)
    even = (scores + scores.mT) / 2
    finite = even.isfinite().all(-1).all(-1)
    eigenvalues = torch.linalg.eigvalsh(torch.where(finite[..., None, None], even, 0.0)).flip(-1)
    eigenvalues[~finite] = torch.nan
    squares = eigenvalues.square().sum(-1)
    negative = eigenvalues.clamp_max(0).square().sum(-1)
    odd = many.scores[:, :, head].double()
    odd = (odd - odd.mT) / 2  # (f, b, p, n, n)
    arrays = {
        "scores": scores,
        "shares": torch.stack([metrics.asymmetry(-symmetry), metrics.asymmetry(symmetry)], -1),
        "eigenvalues": eigenvalues,
        "negative": torch.where(squares == 0, squares, negative / squares),
        "gap": (scores - scores.mT).abs().mean(-1),
        "positional": shared_part(odd.transpose(1, 2)),
    }
    return {name: _single(values) for name, values in arrays.items()}


def shared_part(matrices: Float64[Tensor, "*n b i j"]) -> Float64[Tensor, "*n"]:
    """Return the share of the mean ‖A‖² that is common to b independent matrices; 0 if all are 0.

    It is ‖mean A‖² over mean ‖A‖², corrected for the value that unrelated matrices have. It is
    negative if they agree less than by chance.
    """
    n_matrices = matrices.shape[-3]
    size = matrices.square().sum((-2, -1)).mean(-1)
    of_mean = matrices.mean(-3).square().sum((-2, -1))
    share = (n_matrices * of_mean / size - 1) / (n_matrices - 1)
    return torch.where(size == 0, size, share)


def _arrays_of_heads(replay: Replay, stages: list[Stages], n_heads: int) -> dict[str, np.ndarray]:
    """Return the measures of every head of every layer, padded with NaN to `n_heads`."""
    (wiring,) = replay.model.wirings.values()
    layers = [_tensors_of_layer(replay, layer, each) for layer, each in enumerate(stages)]
    tensors = {name: torch.stack([layer[name] for layer in layers], 1) for name in layers[0]}
    for name in ("stages", "weight_symmetry", "directionality"):
        per_head = tensors[name]  # (f, l, h, …)
        shape = (*per_head.shape[:2], n_heads, *per_head.shape[3:])
        tensors[name] = per_head.new_full(shape, torch.nan)
        tensors[name][:, :, : per_head.shape[2]] = per_head
    must = np.full(len(replay.model.seeds), wiring.symmetric, np.uint8)
    return {"must": must, **{name: _single(values) for name, values in tensors.items()}}


def _tensors_of_layer(replay: Replay, layer: int, stages: Stages) -> dict[str, Tensor]:
    """Return the measures of every head of a layer, and the symmetry error of all heads."""
    (q,), (k,) = (replay.model.role_weights(layer, role) for role in ("Q", "K"))
    q, k = q.double(), k.double()  # (f, h·p, m, d)
    n_heads = stages.pattern.shape[2]
    of_weights = {
        "weight_symmetry": metrics.weight_symmetry(q, k),
        "directionality": metrics.directionality(q, k),
    }
    tensors = {}
    for name, each in of_weights.items():
        per_map = each.expand(-1, n_heads) if each.shape[1] == 1 else each  # a module has no maps
        tensors[name] = per_map.unflatten(1, (n_heads, -1)).mean(2)
    n_frames = len(stages.scores)
    tensors["stages"] = q.new_full((n_frames, n_heads, len(_STAGES)), torch.nan)
    tensors["error"] = q.new_full((n_frames, 2), torch.nan)
    if stages.spec.square:
        hidden = stages.scores.isfinite() & (stages.masked != stages.scores)
        visible = stages.scores.masked_fill(hidden, 0.0)
        symmetries = [
            metrics.score_symmetry(each.double()).mean(1)  # over examples
            for each in (stages.scores, visible, stages.pattern.unsqueeze(3))
        ]
        tensors["stages"] = torch.stack([metrics.asymmetry(s.mean(-1)) for s in symmetries], -1)
        gap = (stages.scores - stages.scores.mT).abs().flatten(1).amax(1).double()
        tensors["error"] = torch.stack([gap, metrics.symmetry_error(stages.scores).double()], -1)
    return tensors


def _notes(wiring: Wiring) -> dict[str, Any]:
    """Return what a page says of a variant's positions and of its rules that break the symmetry."""
    positions = POSITIONS[wiring.sizes.positions]
    breaking = [rule for rule in wiring.rules if getattr(rule, "asymmetric", False)]
    rules = [getattr(rule, "help", "") + _UNEQUAL for rule in breaking if rule is not positions]
    if positions.name != "none":
        effect = "" if "symmetric" in positions.help else " That keeps Q = K symmetric."
        rules.insert(0, positions.help + (_UNEQUAL if positions.asymmetric else effect))
    return {
        "rules": " ".join(rules),
        "n_maps": 1 if wiring.adds_maps else wiring.n_maps,
        "self_mask": wiring.sizes.self_mask,
    }


def _single(values: Tensor) -> Float32[np.ndarray, "*n"]:
    array: np.ndarray = values.float().numpy()
    return array
