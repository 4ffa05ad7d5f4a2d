"""Requests about a film. This module imports no torch, since pages create requests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

View = Literal[
    "examples", "attention", "symmetry", "similarity", "heads", "ties", "tying", "weights"
]
"""Kind of request; `attnkit.analysis.inspection.views` has a function for each."""


@dataclass(frozen=True)
class Inspection:
    """One request about a film.

    Attributes:
        view: Kind of result.
        example: Index of the held-out example; 0 is the one of the Lab's maps.
        tokens: Tokens of a custom book instead of that example, (i, fields).
        names: Names of the book's entries.
        numbers: Phone number of each of the book's classes of answers.
        right: Indices of the book's entries that answer the typed question.
        layer: Index of the layer in `Experiment.layer_specs`.
        head: Index of the head.
        query_index: Index of the query among the layer's queries that must answer, or among all
            if none must; None for the query that the Lab's reasons name, or else for the first.
        key_position: Position of the token whose score with the query is attributed to parts of
            both tokens; None for no attribution.
        since: Step after which frames are included.

    Raises:
        ValueError: Names the field, the value and what is allowed.
    """

    view: View
    example: int = 0
    tokens: tuple[tuple[int, ...], ...] = ()
    names: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    right: tuple[int, ...] = ()
    layer: int = 0
    head: int = 0
    query_index: int | None = None
    key_position: int | None = None
    since: int = -1

    def __post_init__(self) -> None:
        if self.view not in get_args(View):
            raise ValueError(f"view: got {self.view!r}, allowed {', '.join(get_args(View))}")
        for name in ("example", "layer", "head", "query_index", "key_position", "since"):
            value, low = getattr(self, name), -1 if name == "since" else 0
            if name in ("query_index", "key_position") and value is None:
                continue
            if not isinstance(value, int) or value < low:
                raise ValueError(f"{name}: got {value!r}, allowed a whole number from {low}")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Inspection:
        """Create an inspection from `to_dict`, even if JSON has turned its tuples into lists."""
        tokens = tuple(tuple(int(field) for field in token) for token in data["tokens"])
        tuples = {name: tuple(data[name]) for name in ("names", "numbers", "right")}
        return Inspection(**{**data, **tuples, "tokens": tokens})
