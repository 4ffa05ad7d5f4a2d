"""A visitor's choices on the page Capacity, and their link.

Which values a choice may have depends on the sweep, so that `settle` reads them once it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from attnkit.analysis.capacity import COSTS, Cost
from attnkit.analysis.conclusion import Conclusion, conclusion, label_of
from attnkit.figures.phase import MEASURES, Measure
from attnkit.foundation.settings import Value
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.shipped import SHIPPED
from attnkit.ui.address import Linked, open_choice, shortened
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

T = TypeVar("T")

OWN = "own"
"""Value of `sweep` in a link for the sweep that the visitor has run."""

SECTIONS = {
    "slices": "Slices",
    "difference": "Difference of two variants",
    "frontier": "Accuracy and cost",
    "matching": "Cost of equal accuracy",
    "numbers": "The numbers",
    "live": "A sweep of your own",
}
"""Title of each section below the phase diagram, by its name in a link."""

_OVER_ONE_AXIS = ("slices", "frontier", "matching")
"""Sections whose figures have one axis of the sweep."""

_NAMES = {"sweep", "measure", "x", "y", "variants", "show", "one", "other", "cost", "cell"}
"""Fields of a link of this page, besides the names of axes."""

BASELINE = Variant("QKV")

MOST_PANELS = 6
"""Number of variants that are shown at first, at most."""


class Cell(NamedTuple):
    """A variant at a point of a sweep, the values of its axes in their order."""

    point: tuple[Value, ...]
    variant: Variant

    @property
    def link(self) -> str:
        """The cell as a link has it: the values of the axes, then the variant."""
        return "/".join([*map(text_of, self.point), self.variant])

    def in_words(self, sweep: Sweep) -> str:
        """Return the variant and the value of every axis as text."""
        texts = [
            f"{label_of(name)} {text_of(value)}"
            for name, value in zip(sweep.axes, self.point, strict=True)
        ]
        return ", ".join([title_of(self.variant), *texts])


@dataclass
class CapacityChoice(Linked):
    """One visitor's choices.

    Attributes:
        sweep: Name of the sweep in `SHIPPED`, or `OWN`.
        measure: Name of the measure that the phase diagram and its slices show.
        x: Name of the axis across.
        y: Name of the axis upwards; empty if the sweep has a single axis.
        fixed: Value of every axis, which counts where the axis is not drawn.
        variants: The variants that have a panel.
        section: Name of the open section; empty if none is open.
        one: First variant of a comparison.
        other: Second variant of a comparison.
        cost: Name of the cost that is compared with accuracy.
        cell: The cell whose numbers are shown; None if none was chosen.
        problems: Problems of the link, in sentences.
    """

    sweep: str = next(iter(SHIPPED))
    measure: Measure = "accuracy"
    x: str = ""
    y: str = ""
    fixed: dict[str, Value] = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()
    section: str = ""
    one: Variant = BASELINE
    other: Variant = BASELINE
    cost: Cost = "attention_parameters"
    cell: Cell | None = None
    problems: list[str] = field(default_factory=list)
    _unread: dict[str, str] = field(default_factory=dict, repr=False)
    _settled_for: Sweep | None = field(default=None, repr=False)

    def follow(self, params: dict[str, str]) -> None:
        """Take over a link; what depends on the sweep is left to `settle`.

        A link that names no choice of this page, as the browser's Back may bring one of the Lab,
        changes nothing.
        """
        self.link, self.problems = params, []
        if params and _NAMES.isdisjoint(params):
            return
        self._unread = dict(params)
        self._settled_for = None
        self.x = self.y = ""
        self.fixed, self.cell = {}, None
        self.one = self.other = BASELINE
        self.sweep = self._read("sweep", _names([*SHIPPED, OWN]), CapacityChoice.sweep)
        self.measure = self._read("measure", _names(MEASURES), CapacityChoice.measure)
        self.section = self._read("show", _names(SECTIONS), "")
        self.cost = self._read("cost", _names(COSTS), CapacityChoice.cost)

    def forget_link(self) -> None:
        """Leave out what a link says about a sweep that is not shown."""
        self._unread = {}

    def settle(self, sweep: Sweep) -> None:
        """Read the rest of the link, and replace what a sweep does not have by defaults.

        Args:
            sweep: The sweep that is shown.
        """
        if self._settled_for == sweep:
            return
        self._settled_for = sweep
        axes = list(sweep.axes)
        self.x = self._read("x", _names(axes), self.x if self.x in axes else (axes or [""])[0])
        others = [name for name in axes if name != self.x]
        self.y = self._read(
            "y", _names(others), self.y if self.y in others else (others or [""])[0]
        )
        self.fixed = {
            name: self._read(
                name,
                {text_of(value): value for value in values},
                self.fixed[name] if self.fixed.get(name) in values else middle_of(values),
            )
            for name, values in sweep.axes.items()
        }
        self._settle_variants(sweep)
        cells = {cell.link: cell for cell in cells_of(sweep)} if "cell" in self._unread else {}
        kept = self.cell if self.cell is not None and has_cell(sweep, self.cell) else None
        self.cell = self._read("cell", cells, kept, "the values of all axes, and a variant")
        self._unread = {}

    def _settle_variants(self, sweep: Sweep) -> None:
        present = {str(variant): variant for variant in sweep.sharing}
        named = self._unread.pop("variants", "")
        known = tuple(present[name] for name in named.split(",") if name in present)
        if named and len(known) <= named.count(","):
            self._complain("variants", named, ", ".join(present))
        self.variants = known or sweep.sharing[:MOST_PANELS]
        if self.one == self.other or {self.one, self.other} - set(present):
            self.one, self.other = default_pair(sweep.sharing)
        self.one = self._read("one", present, self.one)
        self.other = self._read("other", present, self.other)

    def _read(self, name: str, allowed: Mapping[str, T], default: T, in_words: str = "") -> T:
        """Return what a text of the link stands for; the default, with a note, if nothing."""
        text = self._unread.pop(name, None)
        if text is not None and text not in allowed:
            self._complain(name, text, in_words or ", ".join(allowed))
        return default if text is None else allowed.get(text, default)

    def _complain(self, name: str, text: str, allowed: str) -> None:
        self.problems.append(f"The link has {name}={shortened(text)!r}. Allowed: {allowed}.")

    @property
    def beside(self) -> dict[str, Value]:
        """Values of the axes that are not drawn."""
        return {name: v for name, v in self.fixed.items() if name not in (self.x, self.y)}

    def take_axis(self, side: str, name: str) -> None:
        """Choose the axis of a side, "x" or "y"; the axis that is on the other side moves over."""
        before = {"x": self.x, "y": self.y}
        if name in before.values():
            self.x, self.y = (self.x, self.y) if before[side] == name else (self.y, self.x)
        else:
            setattr(self, side, name)

    def write_link(self) -> None:
        """Write the choices into the address bar; what is the default is left out."""
        sweep, link = self._settled_for, dict[str, str]()
        if self.measure != CapacityChoice.measure:
            link["measure"] = self.measure
        if sweep is not None:
            if [self.x, self.y] != [*sweep.axes, ""][:2]:
                link |= {"x": self.x, "y": self.y}
            drawn = [self.x] if self.section in _OVER_ONE_AXIS else [self.x, self.y]
            link |= {
                name: text_of(value)
                for name, value in self.fixed.items()
                if name not in drawn and value != middle_of(sweep.axes[name])
            }
            if self.variants != sweep.sharing[:MOST_PANELS]:
                link["variants"] = ",".join(self.variants)
        link |= {"show": self.section} if self.section else {}
        if self.section in ("difference", "matching"):
            is_default = sweep is None or (self.one, self.other) == default_pair(sweep.sharing)
            link |= {} if is_default else {"one": str(self.one), "other": str(self.other)}
        if self.section in ("frontier", "matching") and self.cost != CapacityChoice.cost:
            link["cost"] = self.cost
        link |= {} if self.cell is None else {"cell": self.cell.link}
        if link or self.sweep != CapacityChoice.sweep:
            link["sweep"] = self.sweep
        self.set_link({name: value for name, value in link.items() if value})


def open_capacity_choice() -> CapacityChoice:
    """Return this visitor's choices, made from the link if they are new or it has changed."""
    return open_choice("capacity", "capacity_chosen", CapacityChoice)


def middle_of(values: Sequence[Value]) -> Value:
    """Return the default value of an axis that is not drawn, the middle one."""
    return values[len(values) // 2]


def default_pair(variants: tuple[Variant, ...]) -> tuple[Variant, Variant]:
    """Return the variants that are compared at first: QKV and K=V, or else the first two."""
    preferred = [v for v in (BASELINE, Variant("K=V"), *variants) if v in variants]
    first, *others = dict.fromkeys(preferred)
    return first, (others or [first])[0]


def cells_of(sweep: Sweep) -> list[Cell]:
    """Return all cells of a sweep, in the order of its variants, then of its points."""
    points = [tuple(point.values()) for point in sweep.points()]
    return [Cell(point, variant) for variant in sweep.sharing for point in points]


def has_cell(sweep: Sweep, cell: Cell) -> bool:
    """Return whether a sweep has a cell."""
    fits = len(cell.point) == len(sweep.axes) and cell.variant in sweep.sharing
    return fits and all(
        v in values for v, values in zip(cell.point, sweep.axes.values(), strict=True)
    )


def text_of(value: Value) -> str:
    """Return a value of an axis as a link and a list on screen have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _names(names: Iterable[T]) -> dict[str, T]:
    return {str(name): name for name in names}


@lru_cache(maxsize=32)
def conclusion_of(
    result: SweepResult, x: str, y: str, fixed: tuple[tuple[str, Value], ...]
) -> Conclusion:
    """Return the conclusion of a sweep; kept for the newest results."""
    return conclusion(result, x, y or None, dict(fixed))
