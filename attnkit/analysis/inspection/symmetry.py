"""Symmetry of the scores S over training: its two parts, and the rules that break the symmetry.

Measures are of S before masks and softmax, unless the name says otherwise. If a head has several
maps, each has its own S; numbers per head are means over its maps.

Index letters are those of `attnkit.analysis.inspection.replay`, with `l` layer and `p` map. S_s and
S_a are the symmetric and the antisymmetric part of S. The sentences say whether scores and
attention tell i → j from j → i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from attnkit.analysis.attention_map import marked_pair
from attnkit.analysis.inspection.inspected_example import (
    N_EXAMPLES,
    InspectedExample,
    examples_of,
    indices_of,
)
from attnkit.analysis.inspection.replay import Replay, film_parts, replays
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, Sentences, header_of, with_measures
from attnkit.foundation.words import Group, all_of, capitalised, first_true, listed
from attnkit.model.reference import Stages
from attnkit.tasks import NOTHING, Examples
from attnkit.training import metrics
from attnkit.training.film import Film
from attnkit.training.summary import percent, percents, two_decimals, two_numbers
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
    n_maps = sum(film.experiment.wiring(variant).n_maps for variant in film.experiment.sharing)
    film = film.thinned(MOST_BYTES // max(1, 4 * n_maps * len(positions) ** 2))
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


def _arrays(
    film: Film,
    variant: Variant,
    inspected: InspectedExample,
    many: Examples,
) -> dict[str, np.ndarray]:
    layer, head = inspected.request.layer, inspected.request.head
    parts: list[dict[str, Tensor]] = []
    for part in film_parts(film, variant, film.experiment, N_EXAMPLES):
        sized = replays(part, variant, inspected.experiment)
        for replay_of_example, replay in zip(sized, replays(part, variant), strict=True):
            stages = replay.forward(many.tokens).stages
            tensors = _tensors_of_heads(replay, stages, film.experiment.n_heads)
            if stages[layer].spec.square and head < stages[layer].scores.shape[2]:
                of_example = replay_of_example.forward(inspected.tokens).stages[layer]
                tensors |= _tensors_of_head(of_example, stages[layer], head)
            parts.append(tensors)
    return {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}


def _tensors_of_head(example: Stages, many: Stages, head: int) -> dict[str, Tensor]:
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
    tensors = {
        "scores": scores,
        "shares": torch.stack([metrics.asymmetry(-symmetry), metrics.asymmetry(symmetry)], -1),
        "eigenvalues": eigenvalues,
        "negative": torch.where(squares == 0, squares, negative / squares),
        "gap": (scores - scores.mT).abs().mean(-1),
        "positional": shared_part(odd.transpose(1, 2)),
    }
    return {name: values.float() for name, values in tensors.items()}


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


def _tensors_of_heads(replay: Replay, stages: list[Stages], n_heads: int) -> dict[str, Tensor]:
    """Return the measures of every head of every layer, padded with NaN to `n_heads`."""
    (wiring,) = replay.model.wirings.values()
    layers = [_tensors_of_layer(replay, layer, each) for layer, each in enumerate(stages)]
    tensors = {name: torch.stack([layer[name] for layer in layers], 1) for name in layers[0]}
    for name in ("stages", "weight_symmetry", "directionality"):
        per_head = tensors[name]  # (f, l, h, …)
        tensors[name] = per_head.new_full(
            (*per_head.shape[:2], n_heads, *per_head.shape[3:]), torch.nan
        )
        tensors[name][:, :, : per_head.shape[2]] = per_head
    must = torch.full((len(replay.model.seeds),), wiring.symmetric, dtype=torch.uint8)
    return {"must": must, **{name: values.float() for name, values in tensors.items()}}


def _tensors_of_layer(replay: Replay, layer: int, stages: Stages) -> dict[str, Tensor]:
    """Return the measures of every head of a layer, and the symmetry error of all heads."""
    (q,), (k,) = (replay.model.role_weights(layer, role) for role in ("Q", "K"))
    n_frames, n_heads = len(stages.scores), stages.pattern.shape[2]
    tensors = {}
    for measure in (metrics.weight_symmetry, metrics.directionality):
        each = measure(q.double(), k.double())  # (f, h·p)
        per_map = each.expand(-1, n_heads) if each.shape[1] == 1 else each  # a module has no maps
        tensors[measure.__name__] = per_map.unflatten(1, (n_heads, -1)).mean(2)
    nothing = q.new_full((), torch.nan, dtype=torch.double)
    tensors["stages"] = nothing.expand(n_frames, n_heads, len(_STAGES))
    tensors["error"] = nothing.expand(n_frames, 2)
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


ROUNDING = 1e-5
"""Largest difference of opposite scores, relative to the largest score, that is rounding."""

NEARLY = 0.01
"""Asymmetry below which scores are called nearly the same in both directions."""

EVEN, ATTENDED, LOST = 0.05, 0.3, 0.7
"""The direction is lost if attention is split evenly between the right and the mirrored entry (it
differs by less than EVEN), both get more than ATTENDED, and the accuracy is below LOST."""

SOLVED = 0.99
"""Accuracy at which symmetric scores are said to cost nothing."""

_SIGNS = {"=": "= the same", "≈": "≈ nearly the same", "≠": "≠ different"}


class Direction(NamedTuple):
    """Scores and attention of one variant at one frame, in both directions.

    Attributes:
        name: Title of the variant.
        sign: "=" if opposite scores are the same, "≈" if nearly, "≠" if not; empty if unknown.
        must: Whether the wiring makes the scores symmetric.
        masses: Attention to the right and to the mirrored entry.
        accuracy: Share of right answers.
        scores: Scores of the example in the first map; None if the variant has no such head.
        shared: Share of the antisymmetric part of the scores that all examples have.
    """

    name: str
    sign: str
    must: bool
    masses: tuple[float, float]
    accuracy: float
    scores: np.ndarray | None
    shared: float

    @property
    def tied(self) -> bool:
        """Whether the scores are the same in both directions and must be."""
        return self.must and self.sign == "="

    @property
    def lost(self) -> bool:
        """Whether attention is split evenly, and answers are wrong."""
        is_even = abs(self.masses[0] - self.masses[1]) < EVEN and self.accuracy < LOST
        return is_even and sum(self.masses) > ATTENDED

    @property
    def finds_direction(self) -> bool:
        """Whether attention goes to the right entry rather than to the mirrored one."""
        return sum(self.masses) > ATTENDED and self.masses[0] > 2 * self.masses[1]

    def row(self, header: Mapping[str, Any]) -> list[str]:
        """Return the cells of the table, under the headings of `table_columns`."""
        cells = []
        if header["square"] and header["pair"] is None:
            cells = [_SIGNS.get(self.sign, "–")]
        elif header["square"]:
            there, back = "–", "–"
            if self.scores is not None:
                i, j = header["pair"]
                both = float(self.scores[i, j]), float(self.scores[j, i])
                there, back = two_numbers(*both, same=self.sign == "=")
            cells = [there, f"{self.sign} {back}".strip()]
        return [*cells, *map(percent, (*self.masses[: header["n_masses"]], self.accuracy))]

    def farthest(self, labels: Sequence[str]) -> str:
        """Return the pair whose scores differ most, and how much of that all examples share."""
        numbers = SimpleNamespace(scores=self.scores, sign=self.sign)
        if self.scores is not None and self.sign:
            gap = np.nan_to_num(np.abs(self.scores - self.scores.T))
            i, j = np.unravel_index(gap.argmax(), gap.shape)
            numbers.a, numbers.b, numbers.gap = labels[i], labels[j], two_decimals(float(gap[i, j]))
            numbers.share = percent(min(max(self.shared, 0.0), 1.0))
        return first_true(_FARTHEST, numbers)


_FARTHEST = {
    "": lambda n: n.scores is None,
    "The run diverged.": lambda n: n.sign == "",
    "Nothing breaks the symmetry: every pair has the same score in both directions.": lambda n: (
        n.sign == "="
    ),
    "Farthest apart: {a} and {b}, by {gap}. {share} of Sₐ is the same in all examples.": lambda n: (
        True
    ),
}


def direction_sentences(header: Mapping[str, Any], framed: Mapping[str, np.ndarray]) -> Sentences:
    """Return for every frame the conclusion, the rows of a table, and the pairs farthest apart."""
    steps, sentences = header["steps"], Sentences(conclusion=[], meaning=[], breakers=[])
    for frame, step in enumerate(steps):
        states = _directions(header, framed, frame)
        sentences["conclusion"].append(conclude(states, step, header))
        sentences["meaning"].append([state.row(header) for state in states])
        sentences["breakers"].append([state.farthest(header["labels"]) for state in states])
    return sentences


def _directions(
    header: Mapping[str, Any], framed: Mapping[str, np.ndarray], frame: int
) -> list[Direction]:
    layer, head = header["request"]["layer"], header["request"]["head"]
    found = []
    for p, variant in enumerate(header["variants"]):
        error = framed[f"{p}.error"][frame, layer, 1]
        asymmetry = framed[f"{p}.a"][frame, layer, min(head, variant["n_heads"] - 1)]
        sign = "=" if error < ROUNDING else "≈" if asymmetry < NEARLY else "≠"
        right, mirrored = map(float, framed[f"{p}.mass"][frame])
        has_head = f"{p}.scores" in framed
        found.append(
            Direction(
                variant["name"],
                sign if np.isfinite(error) else "",
                bool(framed[f"{p}.must"][frame]),
                (right, mirrored),
                float(framed["accuracy"][frame, p]),
                framed[f"{p}.scores"][frame, 0] if has_head else None,
                float(framed[f"{p}.positional"][frame, 0]) if has_head else np.nan,
            )
        )
    return found


def table_columns(header: Mapping[str, Any]) -> list[str]:
    """Return the headings of the table: scores and attention there and back, as far as known."""
    columns = []
    if header["square"]:
        names = _pair_names(header)
        columns += [f"score {name}" for name in names] if names else ["both directions"]
    entries = ("right", "mirrored")[: header["n_masses"]]
    return [*columns, *(f"attention on the {entry} entry" for entry in entries), "accuracy"]


def _pair_names(header: Mapping[str, Any]) -> list[str]:
    """Return the names of the two directions of the shown pair; empty if no pair is shown."""
    if header["pair"] is None:
        return []
    labels, positions = header["labels"], header["positions"]
    names = [labels[k] for k in header["pair"]]
    if names[0] == names[1]:
        names = [f"{labels[k]} (token {positions[k] + 1})" for k in header["pair"]]
    return ["→".join(names), "→".join(names[::-1])]


class _Directions(Group):
    @property
    def right(self) -> str:
        """Range of their accuracies; empty if none is known."""
        return percents(state.accuracy for state in self)


def conclude(states: Sequence[Direction], step: int, header: Mapping[str, Any]) -> str:
    """Return the conclusion about the states of all variants at a training step."""
    known = _Directions(state for state in states if state.sign and np.isfinite(state.accuracy))
    tied = _Directions(state for state in known if state.tied)
    others = _Directions(state for state in known if not state.tied)
    n_nearly = sum(state.sign == "≈" for state in known)
    lost = _Directions(state for state in tied if state.lost)
    numbers = SimpleNamespace(
        square=header["square"],
        step=step,
        pair=listed(_pair_names(header)) or "both directions",
        known=known,
        all=capitalised(all_of([state.name for state in known])) if known else "",
        tied=tied,
        free=bool(tied and others and not lost),
        others=others,
        rest=others[0].name if len(others) == 1 else "The others",
        lost=lost,
        tell=_Directions(state for state in others if state.finds_direction),
        same=_Directions(state for state in others if state.sign == "="),
        mixed=0 < n_nearly < len(known),
        how="nearly the same" if n_nearly else "differently",
        differ=bool(tied and others) and all(state.sign == "≠" for state in others),
        costless=all(state.accuracy >= SOLVED for state in tied),
    )
    return f"{first_true(_CONCLUSIONS, numbers)} {first_true(_BESIDE, numbers)}".rstrip()


_CONCLUSIONS = {
    "Queries and keys belong to different sequences here, so a score has no opposite "
    "direction.": lambda n: not n.square,
    "Training diverged, so there are no scores to compare.": lambda n: not n.known,
    # Some variants must have symmetric scores.
    "{tied} {tied:scores|score} {pair} the same, even before training.": lambda n: (
        n.tied and n.step == 0
    ),
    "{tied} {tied:scores|score} {pair} the same and {tied:does|do} not tell the two directions "
    "apart: {lost.right} of held-out questions right.": lambda n: n.lost and n.lost == n.tied,
    "{tied} {tied:scores|score} {pair} the same. {lost} {lost:does|do} not tell the two directions "
    "apart: {lost.right} of held-out questions right.": lambda n: n.lost,
    "{tied} {tied:scores|score} {pair} the same, and that costs nothing here: {tied.right} of "
    "held-out questions right.": lambda n: n.tied and n.costless,
    "{tied} {tied:scores|score} {pair} the same, and {tied:it is|they are} right in {tied.right} "
    "of held-out questions.": lambda n: n.tied,
    # No variant must.
    "{same} {same:scores|score} {pair} the same here, although nothing forces {same:it|them} to: "
    "{same.right} of held-out questions right.": lambda n: n.same and n.step,
    "{same} {same:scores|score} {pair} the same here, although nothing forces {same:it|them} "
    "to.": lambda n: n.same,
    "No variant here scores both directions exactly the same: {known.right} of held-out questions "
    "right.": lambda n: n.mixed and n.step,
    "No variant here scores both directions exactly the same.": lambda n: n.mixed,
    "{all} {known:scores|score} {pair} {how}, even before training.": lambda n: n.step == 0,
    "{all} {known:scores|score} {pair} {how}, and {known:tells|tell} the two directions apart: "
    "{known.right} of held-out questions right.": lambda n: n.tell == n.known,
    "{all} {known:scores|score} {pair} {how}. {tell} {tell:tells|tell} the two directions apart: "
    "{tell.right} of held-out questions right.": lambda n: n.tell,
    "{all} {known:scores|score} {pair} {how}, and {known:is|are} right in {known.right} of "
    "held-out questions.": lambda n: True,
}
"""Conclusions about all variants."""

_BESIDE = {
    "{rest} {others:scores|score} them differently.": lambda n: n.differ and n.step == 0,
    "": lambda n: n.step == 0,
    "{rest} {tell:does|do}: {tell.right} right.": lambda n: n.lost and n.tell == n.others != [],
    "{tell} {tell:does|do}: {tell.right} right.": lambda n: n.lost and n.tell,
    "{rest} {others:is|are} right in {others.right}.": lambda n: n.free and not n.costless,
}
"""Sentences beside a conclusion on variants that must have symmetric scores, about the others."""
