"""Conclusion of the symmetry view: whether scores and attention tell i → j from j → i."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnkit.analysis.inspection.result import Sentences
from attnkit.foundation.words import all_of, capitalised, listed, named, verb
from attnkit.training.summary import percent, percents, two_decimals, two_numbers

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

_HELD_OUT = "of held-out questions"
_APART = "the two directions apart"


@dataclass(frozen=True)
class Direction:
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
        if self.scores is None or self.sign == "":
            return "" if self.scores is None else "The run diverged."
        if self.sign == "=":
            return "Nothing breaks the symmetry: every pair has the same score in both directions."
        gap = np.nan_to_num(np.abs(self.scores - self.scores.T))
        i, j = np.unravel_index(gap.argmax(), gap.shape)
        apart = f"{labels[i]} and {labels[j]}, by {two_decimals(float(gap[i, j]))}"
        shared = percent(min(max(self.shared, 0.0), 1.0))
        return f"Farthest apart: {apart}. {shared} of Sₐ is the same in all examples."


def direction_sentences(header: Mapping[str, Any], framed: Mapping[str, np.ndarray]) -> Sentences:
    """Return for every frame the conclusion, the rows of a table, and the pairs farthest apart."""
    steps = header["steps"]
    found = [_directions(header, framed, frame) for frame in range(len(steps))]
    return {
        "conclusion": [
            conclude(all_, step, header) for all_, step in zip(found, steps, strict=True)
        ],
        "meaning": [[state.row(header) for state in all_] for all_ in found],
        "breakers": [[state.farthest(header["labels"]) for state in all_] for all_ in found],
    }


def _directions(
    header: Mapping[str, Any], framed: Mapping[str, np.ndarray], frame: int
) -> list[Direction]:
    """Return the state of every variant at a frame."""
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


def conclude(states: Sequence[Direction], step: int, header: Mapping[str, Any]) -> str:
    """Return the conclusion about the states of all variants at a training step."""
    if not header["square"]:
        return (
            "Queries and keys belong to different sequences here, so a score has no opposite "
            "direction."
        )
    known = [state for state in states if state.sign]
    if not known:
        return "Training diverged, so there are no scores to compare."
    pair = listed(_pair_names(header)) or "both directions"
    tied = [state for state in known if state.tied]
    if tied:
        return _about_tied(tied, [state for state in known if not state.tied], pair, step)
    return _about_free(known, pair, step)


def _names(states: Sequence[Direction]) -> str:
    return named([state.name for state in states])


def _accuracies(states: Sequence[Direction]) -> str:
    return percents(state.accuracy for state in states)


def _about_tied(
    tied: Sequence[Direction], others: Sequence[Direction], pair: str, step: int
) -> str:
    """Return the sentence about variants whose scores must be symmetric, and the others."""
    same = f"{_names(tied)} {verb(tied, 'scores', 'score')} {pair} the same"
    rest = others[0].name if len(others) == 1 else "The others"
    if step == 0:
        differ = others and all(state.sign == "≠" for state in others)
        more = f" {rest} {verb(others, 'scores', 'score')} them differently." if differ else ""
        return f"{same}, even before training.{more}"
    lost = [state for state in tied if state.lost]
    if lost:
        first = f"{same} and {verb(tied, 'does', 'do')} not tell {_APART}"
        if len(lost) < len(tied):
            first = f"{same}. {_names(lost)} {verb(lost, 'does', 'do')} not tell {_APART}"
        tell = [state for state in others if state.finds_direction]
        able = rest if len(tell) == len(others) else _names(tell)
        more = f" {able} {verb(tell, 'does', 'do')}: {_accuracies(tell)} right." if tell else ""
        return f"{first}: {_accuracies(lost)} {_HELD_OUT} right.{more}"
    right = _accuracies(tied)
    if not right:
        return f"{same}."
    if all(state.accuracy >= SOLVED for state in tied):
        return f"{same}, and that costs nothing here: {right} {_HELD_OUT} right."
    beside = _accuracies(others)
    more = f" {rest} {verb(others, 'is', 'are')} right in {beside}." if beside else ""
    return f"{same}, and {verb(tied, 'it is', 'they are')} right in {right} {_HELD_OUT}.{more}"


def _about_free(states: Sequence[Direction], pair: str, step: int) -> str:
    """Return the sentence about variants of which none must have symmetric scores."""
    right = _accuracies(states)
    same = [state for state in states if state.sign == "="]
    if same:
        more = f": {_accuracies(same)} {_HELD_OUT} right" if right and step else ""
        force = f"although nothing forces {verb(same, 'it', 'them')} to"
        return (
            f"{_names(same)} {verb(same, 'scores', 'score')} {pair} the same here, {force}{more}."
        )
    n_nearly = sum(state.sign == "≈" for state in states)
    if 0 < n_nearly < len(states):
        more = f": {right} {_HELD_OUT} right" if right and step else ""
        return f"No variant here scores both directions exactly the same{more}."
    who = capitalised(all_of([state.name for state in states]))
    how = "nearly the same" if n_nearly else "differently"
    differ = f"{who} {verb(states, 'scores', 'score')} {pair} {how}"
    if step == 0:
        return f"{differ}, even before training."
    tell = [state for state in states if state.finds_direction]
    if len(tell) == len(states):
        return f"{differ}, and {verb(states, 'tells', 'tell')} {_APART}: {right} {_HELD_OUT} right."
    if tell:
        success = f"{_names(tell)} {verb(tell, 'tells', 'tell')} {_APART}"
        return f"{differ}. {success}: {_accuracies(tell)} {_HELD_OUT} right."
    more = f", and {verb(states, 'is', 'are')} right in {right} {_HELD_OUT}" if right else ""
    return f"{differ}{more}."
