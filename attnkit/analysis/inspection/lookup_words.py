"""Conclusion of the attention view: what the variants attend to and answer for one query."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from types import SimpleNamespace
from typing import Any

import numpy as np

from attnkit.analysis.inspection.result import Sentences
from attnkit.foundation.words import Group, listed, said_in_english
from attnkit.tasks import NOTHING
from attnkit.training.summary import percent, percents

HALF, PART = 0.5, 0.2
"""Least share of attention on one entry to say that it goes there, and on each of two entries."""

_MOST_CLAUSES, _MOST_WITHOUT_VERDICTS = 2, 3
"""Most clauses of a sentence, with verdicts and without; beyond them it gives the answers only."""


@dataclass(frozen=True)
class Lookup:
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
        """Whether the answer is right, in one word."""
        return "right" if self.is_right else "wrong"

    def describe(self, columns: Sequence[str], titles: Sequence[str]) -> str:
        """Return attention and answer in words, with the entries that hold a wrong answer."""
        text = f"its largest weight, {percent(self.weights.max())}, is on {self.entry}"
        if not np.isnan(self.right):
            text = f"{percent(self.right)} of its attention is on the right entry"
            if not np.isnan(self.mirrored):
                text += f", {percent(self.mirrored)} on the one that points back"
        if self.answer:
            mark = {None: "", True: " ✓", False: " ✗"}[self.is_right]
            text += f"; it answers {self.answer}{mark} with probability {percent(self.probability)}"
        holds = np.array([title.endswith(f" {self.answer}") for title in titles])
        if self.is_right is False and holds.any():
            names, held = listed(compress(columns, holds)), self.weights[holds].sum()
            text += f": {self.answer} is held by {names}, {percent(held)} of its attention"
        return f"{text}."


def lookup_sentences(header: Mapping[str, Any], framed: Mapping[str, np.ndarray]) -> Sentences:
    """Return for every frame the conclusion, what each variant does, and its best head.

    The best heads are left out where there is only one head.
    """
    steps, variants = header["steps"], header["variants"]
    layer = header["layers"][header["layer"]]
    found = [
        [_lookup(header, framed, p, frame) for p in range(len(variants))]
        for frame in range(len(steps))
    ]
    lacking = [variant["refusal"] or variant["lacking"] for variant in variants]
    return {
        "conclusion": [
            conclude([one for one in all_ if one], step, header)
            for all_, step in zip(found, steps, strict=True)
        ],
        "finding": [
            [
                one.describe(layer["columns"], layer["column_titles"]) if one else why
                for one, why in zip(all_, lacking, strict=True)
            ]
            for all_ in found
        ],
        "heads": [
            [_best_head(header, framed[f"{p}.mass"][frame]) for p in range(len(variants))]
            for frame in range(len(steps))
            if place_name(header, 0, 0)
        ],
    }


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
    is_right = None if header["right"] == NOTHING else answer == header["right"]
    probability = float(np.exp(framed[f"{p}.top"][frame] - framed[f"{p}.total"][frame]))
    text = header["texts"][str(answer)]
    return replace(lookup, answer=text, is_right=is_right, probability=probability)


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
    """Return the head with the most attention on the right entries, given (l, h, 2)."""
    right = mass[..., 0]
    if np.isnan(right).all():
        return "not known"
    layer, head = np.unravel_index(np.nanargmax(right), right.shape)
    return f"{percent(right[layer, head])} in {place_name(header, int(layer), int(head))}"


def _clauses(found: Sequence[Lookup]) -> list[str]:
    """Return clauses on attention and answers; on answers only, if there were too many clauses."""
    groups = _grouped(
        found,
        lambda one: (
            one.attends,
            one.attends == "most" and one.entry,
            one.is_right is None and one.answer,
        ),
    )
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
    """Return a clause about variants with the same attention."""
    first: Lookup = group[0]
    numbers = SimpleNamespace(
        group=group,
        attends=first.attends,
        right=percents(one.right for one in group),
        largest=percents(one.weights.max() for one in group),
        entry=first.entry,
        answer=first.answer,
        verdict="" if first.is_right is None else first.verdict,
        verdicts=listed(_verdicts(group)),
        agree=all(one.is_right == first.is_right for one in group),
        expected=first.attends == "most" or (first.attends == "right") == first.is_right,
    )
    return f"{said_in_english(_ATTEND, numbers)}{said_in_english(_ANSWER, numbers)}"


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
