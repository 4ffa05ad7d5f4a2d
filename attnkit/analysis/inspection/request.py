"""What can be asked about a film. No torch here: pages build these."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

View = Literal["examples", "attention", "symmetry", "similarity", "heads", "ties", "weights"]
"""What is asked for; `attnkit.analysis.inspection.answer` has a function for each."""


@dataclass(frozen=True)
class Inspection:
    """One question about a film.

    Attributes:
        view: which arrays are wanted.
        example: which of the held-out examples is looked at; 0 is the one of the Lab's maps.
        tokens: a book of one's own in its place, (i, fields).
        names, numbers: what its entries, and its classes of answers, are called.
        right: places of its entries that answer the question that is followed.
        layer: counted from 0 in the order of `Experiment.layer_specs`.
        head: counted from 0.
        asking: which of the asked positions is followed, counted from 0.
        since: only frames after this step.

    Raises:
        ValueError: names the field, the value and what is allowed.
    """

    view: View
    example: int = 0
    tokens: tuple[tuple[int, ...], ...] = ()
    names: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    right: tuple[int, ...] = ()
    layer: int = 0
    head: int = 0
    asking: int = 0
    since: int = -1

    def __post_init__(self) -> None:
        if self.view not in get_args(View):
            raise ValueError(f"view: got {self.view!r}, allowed {', '.join(get_args(View))}")
        for name, low in (("example", 0), ("layer", 0), ("head", 0), ("asking", 0), ("since", -1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < low:
                raise ValueError(f"{name}: got {value!r}, allowed a whole number from {low}")

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Inspection:
        """Read `to_dict`, also after JSON has made lists of tuples."""
        tokens = tuple(tuple(int(field) for field in token) for token in values["tokens"])
        lists = {name: tuple(values[name]) for name in ("names", "numbers", "right")}
        return Inspection(**{**values, **lists, "tokens": tokens})
