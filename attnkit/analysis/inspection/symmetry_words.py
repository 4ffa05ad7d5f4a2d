"""Conclusion of the symmetry view: whether scores and attention tell i → j from j → i."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from attnkit.analysis.inspection.result import Sentences
from attnkit.foundation.words import Group, all_of, capitalised, listed, said_in_english
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


@dataclass(frozen=True, eq=False)
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


class _Directions(Group):
    """States of several variants."""

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
    return f"{said_in_english(_CONCLUSIONS, numbers)} {said_in_english(_BESIDE, numbers)}".rstrip()


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
