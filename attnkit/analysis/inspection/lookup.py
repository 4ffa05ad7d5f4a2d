"""Stages of one lookup: the query, its scores and attention, the read-out values and the answer.

The sentences say what the variants attend to and answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from types import SimpleNamespace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.analysis.attention_map import MapLayout, levels_of, shown_columns
from attnkit.analysis.inspection.attribution import (
    NO_ATTRIBUTION,
    attribution_of,
    attribution_sentences,
)
from attnkit.analysis.inspection.inspected_example import (
    N_EXAMPLES,
    InspectedExample,
    examples_of,
    size_refusal,
)
from attnkit.analysis.inspection.replay import Replay, batched_replays
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, Sentences, header_of, with_measures
from attnkit.foundation.words import Group, first_true, listed
from attnkit.model.reference import Stages
from attnkit.tasks import NOTHING
from attnkit.training.film import Film, Frame
from attnkit.training.summary import percent, percents
from attnkit.variants import Variant

MOST_BYTES = 3 * 2**20
"""Most bytes of the arrays of one result; of larger models it has fewer frames."""

UNKNOWN = 255
"""Value in place of right (1) or wrong (0) where no answer is expected or none is known."""

N_NAMED = 3
"""Questions in the name of an example."""


def inspect_attention(film: Film, inspection: Inspection) -> InspectionResult:
    """Return the attention of one example, and every stage of one query's lookup in one head.

    Args:
        film: Film of the run.
        inspection: Its query index is clipped to the number of queries.

    Raises:
        ValueError, InvalidExperiment: If there is no such example, layer or head.
    """
    inspected = InspectedExample.at(film.experiment, inspection)
    one_frame, _ = _arrays(film.at(film.steps[-1]), inspected)
    n_bytes = sum(array.nbytes for array in one_frame.values())
    thinned = film.thinned(MOST_BYTES // n_bytes)
    framed, of_variants = _arrays(thinned, inspected)
    header = header_of(thinned, inspection)
    header["variants"] = [
        {**common, **more} for common, more in zip(header["variants"], of_variants, strict=True)
    ]
    answered = [array for name, array in framed.items() if name.endswith(".answers")]
    header |= inspected.header(answered)
    header["thinned"] = len(thinned.frames) < len(film.frames)
    header["sentences"] = lookup_sentences(header, framed)
    if inspection.key_position is not None:
        header["sentences"]["attribution"] = attribution_sentences(header, framed)
    return InspectionResult(header, framed, {})


def inspect_examples(film: Film, inspection: Inspection) -> InspectionResult:
    """Return which answers to each of the examples are right at the last frame."""
    last, task = film.at(film.steps[-1]), film.experiment.task
    examples = examples_of(task)
    has_answer = (examples.labels != NOTHING).numpy()
    fixed: dict[str, np.ndarray] = {}
    n_wrong = np.zeros(len(has_answer), int)
    for index, variant in enumerate(film.experiment.sharing):
        ((replay, n),) = batched_replays(last, variant, film.experiment, N_EXAMPLES)
        batches = examples.tokens.split(n)
        answers = torch.cat([replay.forward(batch).logits[0].argmax(-1) for batch in batches])
        right = (answers == examples.labels).numpy()
        n_wrong += (has_answer & ~right).sum(1)
        fixed[f"{index}.right"] = np.where(has_answer, right, UNKNOWN).astype(np.uint8)
    described = []
    for tokens, asked, wrong in zip(examples.tokens.numpy(), has_answer, n_wrong, strict=True):
        positions, labels = task.answers_from + np.flatnonzero(asked), task.label(tokens)
        text = ", ".join(labels[int(position)].query for position in positions[:N_NAMED])
        text += " …" * (len(positions) > N_NAMED)
        described.append({"text": text, "n_asked": len(positions), "n_wrong": int(wrong)})
    header = {
        **header_of(last, inspection),
        "examples": described,
        "order": [int(index) for index in np.argsort(-n_wrong, kind="stable")],
    }
    return InspectionResult(header, with_measures(last), fixed)


def _arrays(
    film: Film, inspected: InspectedExample
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Return the framed arrays, and the header values of every variant."""
    framed, headers = with_measures(film), []
    for index, variant in enumerate(film.experiment.sharing):
        wiring = inspected.experiment.wiring(variant)
        header = {
            "refusal": "",
            "n_maps": wiring.n_maps,
            "n_score_maps": 1 if wiring.adds_maps else wiring.n_maps,
            "scale": wiring.scale,
            "d_k": wiring.sizes.d_k,
            "d_v": wiring.sizes.d_v,
            "has_output": wiring.has_output,
            "attribution": NO_ATTRIBUTION,
        }
        arrays = dict[str, np.ndarray]()
        try:
            arrays, why = _arrays_of_variant(film, variant, inspected)
            header["attribution"] = why
        except ValueError:
            if not inspected.is_custom_book:
                raise
            header["refusal"] = size_refusal(inspected.trained, inspected.experiment, variant)
        arrays["mass"] = mass_of(film, variant)
        framed |= {f"{index}.{name}": array for name, array in arrays.items()}
        headers.append(header)
    return framed, headers


def _arrays_of_variant(
    film: Film, variant: Variant, inspected: InspectedExample
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of one variant at all frames, and the header of its attribution."""
    parts, why = [], NO_ATTRIBUTION
    n_heads = film.experiment.wiring(variant).sizes.n_heads
    attributed = inspected.request.key_position is not None and inspected.request.head < n_heads
    for replay, _ in batched_replays(film, variant, inspected.experiment, 1):
        arrays = _arrays_of(replay, inspected)
        if attributed and not why["note"]:
            summands, why = attribution_of(replay, inspected)
            arrays |= summands
        parts.append(arrays)
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: np.concatenate([part[name] for part in parts]) for name in shared}, why


def _arrays_of(replay: Replay, inspected: InspectedExample) -> dict[str, np.ndarray]:
    replayed = replay.forward(inspected.tokens)
    arrays: dict[str, np.ndarray] = {}
    for layer, (stages, layout) in enumerate(zip(replayed.stages, inspected.layouts, strict=True)):
        arrays[f"grid.{layer}"] = levels_of(_map(stages, layout))
    stages, layout = replayed.stages[inspected.request.layer], inspected.layout
    answers = replayed.logits[:, 0].argmax(-1).numpy()
    indices = np.array(layout.answers)
    answered = np.where(indices >= 0, answers[:, indices], NOTHING)
    labels = np.where(indices >= 0, inspected.example.labels[indices], NOTHING)
    arrays["answers"] = answered.astype(np.int32)
    arrays["right"] = np.where(labels >= 0, answered == labels, UNKNOWN).astype(np.uint8)
    if inspected.request.head < stages.heads.wiring.sizes.n_heads:
        arrays["map"] = _map(stages, layout)[:, inspected.request.head]
        arrays["weights"] = arrays["map"][:, inspected.row]
        arrays |= _arrays_of_head(stages, inspected)
    position = inspected.query_position
    arrays["token"] = stages.x[:, 0, position].numpy()
    arrays["normed"] = stages.rows[:, 0, position].numpy()
    arrays["added"] = stages.added[:, 0, position - stages.spec.query_positions[0]].numpy()
    if inspected.answer_index != NOTHING:
        logits = replayed.logits[:, 0, inspected.answer_index]
        arrays["logits"] = logits[:, inspected.classes].numpy()
        arrays["total"], arrays["top"] = logits.logsumexp(-1).numpy(), logits.amax(-1).numpy()
    return arrays


def _map(stages: Stages, layout: MapLayout) -> Float[np.ndarray, "f h rows columns"]:
    (first_row, _), (first_column, _) = stages.spec.query_positions, stages.spec.key_positions
    rows = stages.pattern[:, 0, :, [row - first_row for row in layout.rows]]
    return shown_columns(rows.numpy(), layout, first_column)


def _arrays_of_head(stages: Stages, inspected: InspectedExample) -> dict[str, np.ndarray]:
    """Return the stages of the inspected query's lookup in the inspected head."""
    head, wiring = inspected.request.head, stages.heads.wiring
    i = inspected.query_position - stages.spec.query_positions[0]
    j = [column - stages.spec.key_positions[0] for column in inspected.layout.columns]
    maps = slice(head * wiring.n_maps, (head + 1) * wiring.n_maps)
    q, k = stages.q[:, 0, maps, i], stages.k[:, 0, maps][:, :, j]
    z, width = stages.z[:, 0, head, i], wiring.sizes.d_v
    dims = slice(head * width, (head + 1) * width)
    if wiring.has_output:  # through the head's rows of W_O
        head_out = (z.unsqueeze(1) @ stages.heads.weights["W_O"][:, dims]).squeeze(1)
    else:
        head_out = z.new_zeros(len(z), wiring.n_inner)
        head_out[:, dims] = z
    tensors = {
        "q": q,
        "k": k,
        "v": stages.v[:, 0, head, j],
        "products": (k @ q.unsqueeze(-1)).squeeze(-1),
        "scores": stages.scores[:, 0, head, :, i, j],
        "masked": stages.masked[:, 0, head, :, i, j],
        "z": z,
        "head_out": head_out,
    }
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def mass_of(film: Film, variant: Variant) -> Float[np.ndarray, "f l h 2"]:
    """Return the attention to the right and to the reversed entry, mean of examples and questions.

    NaN if a task has no such entries, and in layers whose queries give no answers directly.
    """
    missing = [frame for frame in film.frames if variant not in _CACHE.get(frame, {})]
    if missing:
        measured = _measure_mass(replace(film, frames=missing), variant)
        for frame, mass in zip(missing, measured, strict=True):
            _CACHE.setdefault(frame, {})[variant] = mass
    return np.stack([_CACHE[frame][variant] for frame in film.frames])


_CACHE: WeakKeyDictionary[Frame, dict[Variant, np.ndarray]] = WeakKeyDictionary()
"""Results of `mass_of`, kept as long as their frames: they are slow to compute and never change."""


def _measure_mass(film: Film, variant: Variant) -> Float[np.ndarray, "f l h 2"]:
    examples = examples_of(film.experiment.task)
    entries = [examples.target, examples.reverse]
    counts = [0 if entry is None else int((entry != NOTHING).sum()) for entry in entries]
    if not any(counts):
        n_heads = film.experiment.wiring(variant).sizes.n_heads
        shape = (len(film.frames), len(film.experiment.layer_specs), n_heads, len(entries))
        return np.full(shape, np.nan, np.float32)
    parts = []
    for replay, n in batched_replays(film, variant, film.experiment, N_EXAMPLES):
        sums: list[Tensor] = []
        for batch in torch.arange(N_EXAMPLES).split(n):
            of_batch = [None if entry is None else entry[batch] for entry in entries]
            by_layer = [
                torch.stack([_mass_at(stages, entry) for entry in of_batch], -1)
                for stages in replay.forward(examples.tokens[batch]).stages
            ]
            sums.append(torch.stack(by_layer, 1))
        parts.append(torch.stack(sums).sum(0).numpy())
    with np.errstate(invalid="ignore"):
        mean: np.ndarray = (np.concatenate(parts) / np.array(counts)).astype(np.float32)
    return mean


def _mass_at(stages: Stages, position: Int64[Tensor, "b a"] | None) -> Float[Tensor, "f h"]:
    """Return the attention of each answer's query to one position, summed over all answers."""
    shape = (len(stages.pattern), stages.pattern.shape[2])
    if position is None or stages.spec.kind not in ("layer", "cross"):
        return torch.full(shape, torch.nan, dtype=torch.double)
    answering = stages.pattern[..., -position.shape[-1] :, :]
    index = position[None, :, None, :, None].expand(*answering.shape[:-1], 1)
    exists = index != NOTHING
    return (answering.gather(-1, index.clamp_min(0)).double() * exists).sum((1, 3, 4))


HALF, PART = 0.5, 0.2
"""Least share of attention on one entry to say that it goes there, and on each of two entries."""

_MOST_CLAUSES, _MOST_WITHOUT_VERDICTS = 2, 3
"""Most clauses of a sentence, with verdicts and without; beyond them it gives the answers only."""


class Lookup(NamedTuple):
    """Attention and answer of one variant for the inspected query at one frame.

    Attributes:
        name: Title of the variant.
        weights: Attention to every column.
        right: Attention to the right entry; NaN if it is not shown.
        mirrored: Attention to the mirrored entry; NaN if it is not shown.
        entry: Name of the column with the largest weight.
        answer: Text of the answer; empty if none is given.
        is_right: Whether the answer is right; None if that is not known.
        probability: Probability of the answer.
    """

    name: str
    weights: np.ndarray
    right: float
    mirrored: float
    entry: str
    answer: str = ""
    is_right: bool | None = None
    probability: float = np.nan

    @property
    def attends(self) -> str:
        """Entries that get the attention: "right", "two", "others"; "most" if it is not known."""
        if np.isnan(self.right):
            return "most"
        if min(self.right, self.mirrored) >= PART and self.right + self.mirrored >= HALF:
            return "two"
        return "right" if self.right >= HALF else "others"

    @property
    def verdict(self) -> str:
        """Whether the answer is right, in one word; empty if that is not known."""
        return {None: "", True: "right", False: "wrong"}[self.is_right]

    def describe(self, columns: Sequence[str], titles: Sequence[str]) -> str:
        """Return attention and answer in words, with the entries that hold a wrong answer."""
        holds = np.array([title.endswith(f" {self.answer}") for title in titles])
        numbers = SimpleNamespace(
            right="" if np.isnan(self.right) else percent(self.right),
            mirrored="" if np.isnan(self.mirrored) else percent(self.mirrored),
            largest=percent(self.weights.max()),
            entry=self.entry,
            answer=self.answer,
            mark={None: "", True: " ✓", False: " ✗"}[self.is_right],
            probability=percent(self.probability),
            holders=listed(compress(columns, holds)) if self.is_right is False else "",
            held=percent(self.weights[holds].sum()),
        )
        return "".join(first_true(table, numbers) for table in _FINDING)


_FINDING = (
    {
        "its largest weight, {largest}, is on {entry}": lambda n: not n.right,
        "{right} of its attention is on the right entry, {mirrored} on the one that points "
        "back": lambda n: n.mirrored,
        "{right} of its attention is on the right entry": lambda n: True,
    },
    {"; it answers {answer}{mark} with probability {probability}": lambda n: n.answer},
    {": {answer} is held by {holders}, {held} of its attention": lambda n: n.holders},
    {".": lambda n: True},
)


def lookup_sentences(header: Mapping[str, Any], framed: Mapping[str, np.ndarray]) -> Sentences:
    """Return for every frame the conclusion, what each variant does, and its best head.

    The best heads are left out where there is only one head.
    """
    layer, places = header["layers"][header["layer"]], range(len(header["variants"]))
    lacking = [variant["refusal"] or variant["lacking"] for variant in header["variants"]]
    sentences = Sentences(conclusion=[], finding=[], heads=[])
    for frame, step in enumerate(header["steps"]):
        found = [_lookup(header, framed, p, frame) for p in places]
        sentences["conclusion"].append(conclude([one for one in found if one], step, header))
        sentences["finding"].append(
            [
                one.describe(layer["columns"], layer["column_titles"]) if one else why
                for one, why in zip(found, lacking, strict=True)
            ]
        )
        if place_name(header, 0, 0):
            best = [_best_head(header, framed[f"{p}.mass"][frame]) for p in places]
            sentences["heads"].append(best)
    return sentences


def _lookup(
    header: Mapping[str, Any], framed: Mapping[str, np.ndarray], p: int, frame: int
) -> Lookup | None:
    """Return a variant's lookup at a frame; None if it has no such head."""
    if f"{p}.weights" not in framed:
        return None
    weights = framed[f"{p}.weights"][frame]
    columns = header["target"], header["reverse"]
    right, mirrored = (float(weights[j]) if j != NOTHING else np.nan for j in columns)
    entry = header["layers"][header["layer"]]["column_titles"][int(weights.argmax())]
    lookup = Lookup(header["variants"][p]["name"], weights, right, mirrored, entry)
    if f"{p}.logits" not in framed:
        return lookup
    answer = int(framed[f"{p}.answers"][frame, header["row"]])
    return lookup._replace(
        answer=header["texts"][str(answer)],
        is_right=None if header["right"] == NOTHING else answer == header["right"],
        probability=float(np.exp(framed[f"{p}.top"][frame] - framed[f"{p}.total"][frame])),
    )


def conclude(found: Sequence[Lookup], step: int, header: Mapping[str, Any]) -> str:
    """Return the conclusion about the lookups of all variants at a training step."""
    if not found:
        return "No variant here has such a map."
    place = place_name(header, header["layer"], header["head"])
    where = ", ".join(filter(None, [f"seed {header['seed']}", place]))
    before = "For" if step else "Before training, for"
    kind = "one question" if header["is_asked"] else "token"
    query = header["askable"][header["query_index"]]["label"]
    return f"{before} the {kind} “{query}” ({where}): {'; '.join(_clauses(found))}."


def place_name(header: Mapping[str, Any], layer: int, head: int) -> str:
    """Return a layer and head in words, each only if the model has several."""
    parts = [header["layers"][layer]["title"]] if len(header["layers"]) > 1 else []
    if max(variant["n_heads"] for variant in header["variants"]) > 1:
        parts.append(f"head {head + 1}")
    return ", ".join(parts)


def _best_head(header: Mapping[str, Any], mass: np.ndarray) -> str:
    right = mass[..., 0]
    if np.isnan(right).all():
        return "not known"
    layer, head = np.unravel_index(np.nanargmax(right), right.shape)
    return f"{percent(right[layer, head])} in {place_name(header, int(layer), int(head))}"


def _clauses(found: Sequence[Lookup]) -> list[str]:
    """Return clauses on attention and answers; on answers only, if there were too many clauses."""

    def kind(one: Lookup) -> Hashable:
        entry = one.entry if one.attends == "most" else ""
        return one.attends, entry, one.answer if one.is_right is None else ""

    groups = _grouped(found, kind)
    most = _MOST_WITHOUT_VERDICTS if found[0].is_right is None else _MOST_CLAUSES
    if len(groups) <= most:
        return [_clause(group) for group in groups]
    if not found[0].answer:
        return ["the variants attend most to different entries"]
    if found[0].is_right is None:
        return ["the variants attend and answer differently"]
    return _verdicts(found)


def _verdicts(found: Sequence[Lookup]) -> list[str]:
    """Return one clause on the variants that answer right, and one on those that answer wrong."""
    groups = _grouped(found, lambda one: one.is_right)
    return [f"{group} {group:answers|answer} {group[0].verdict}" for group in groups]


def _clause(group: Group) -> str:
    first: Lookup = group[0]
    numbers = SimpleNamespace(
        group=group,
        attends=first.attends,
        right=percents(one.right for one in group),
        largest=percents(one.weights.max() for one in group),
        entry=first.entry,
        answer=first.answer,
        verdict=first.verdict,
        verdicts=listed(_verdicts(group)),
        agree=all(one.is_right == first.is_right for one in group),
        expected=first.attends == "most" or (first.attends == "right") == first.is_right,
    )
    return f"{first_true(_ATTEND, numbers)}{first_true(_ANSWER, numbers)}"


_ATTEND = {
    "{group} {group:attends|attend} to the right entry ({right})": lambda n: n.attends == "right",
    "{group} {group:divides|divide} {group:its|their} attention ({right} on the right "
    "entry)": lambda n: n.attends == "two",
    "{group} {group:attends|attend} mostly to other entries ({right} on the right one)": lambda n: (
        n.attends == "others"
    ),
    "{group} {group:attends|attend} most to {entry} ({largest})": lambda n: True,
}
_ANSWER = {
    "": lambda n: not n.answer,
    " and {group:answers|answer} {answer}": lambda n: not n.verdict,
    "; of these, {verdicts}": lambda n: not n.agree,
    " and {group:answers|answer} {verdict}": lambda n: n.expected,
    " but {group:answers|answer} {verdict}": lambda n: True,
}
"""Clauses on the attention of several variants, and on their answers."""


def _grouped(found: Sequence[Lookup], key: Callable[[Lookup], Hashable]) -> list[Group]:
    """Return lookups in groups of one key, in the order in which the keys first come."""
    groups: dict[Hashable, Group] = {}
    for one in found:
        groups.setdefault(key(one), Group()).append(one)
    return list(groups.values())
