"""A visitor's choices on the page Capacity, and their link.

Which values a choice may have depends on the sweep, so that `read_for` reads them once it is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from attnkit.figures.capacity import MEASURES, MOST_PANELS, Measure, middle_of
from attnkit.foundation.settings import Value
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.cells import COSTS, Cost
from attnkit.sweeps.conclusion import Conclusion, conclusion, label_of
from attnkit.sweeps.result import SHIPPED
from attnkit.ui.address import Linked, LinkField, LinkList, by_text
from attnkit.ui.render_cache import cached_by_language
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

OWN = "own"
"""Value of `sweep` in a link for the sweep that the visitor has run."""

SECTIONS = {
    "slices": "Slices",
    "difference": "Difference of two variants",
    "frontier": "Accuracy and cost",
    "numbers": "The numbers",
    "live": "A sweep of your own",
}
"""Title of each section below the phase diagram, by its name in a link."""

_NAMES = {"sweep", "measure", "x", "y", "variants", "show", "one", "other", "cost", "cell"}
"""Fields of a link of this page, besides the names of axes."""

BASELINE = Variant("QKV")


class Cell(NamedTuple):
    """A variant at a point of a sweep, the values of its axes in their order."""

    point: tuple[Value, ...]
    variant: Variant

    def __str__(self) -> str:
        """Return the cell as a link has it: the values of the axes, then the variant."""
        return "/".join([*map(text_of, self.point), self.variant])

    def in_words(self, sweep: Sweep) -> str:
        """Return the variant and the value of every axis as text."""
        values = self.values_in(sweep).items()
        texts = [f"{label_of(name)} {text_of(value)}" for name, value in values]
        return ", ".join([title_of(self.variant), *texts])

    def values_in(self, sweep: Sweep) -> dict[str, Value]:
        """Return the values of the axes by their names."""
        return dict(zip(sweep.axes, self.point, strict=True))


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
    _read_for: Sweep | None = field(default=None, repr=False)

    def _fields(self) -> Iterator[tuple[str, LinkField[Any]]]:
        """Yield the choices that every sweep has, by the name of their attribute."""
        costs = self.section == "frontier"
        yield "sweep", LinkField("sweep", CapacityChoice.sweep, by_text([*SHIPPED, OWN]))
        yield "measure", LinkField("measure", CapacityChoice.measure, by_text(MEASURES))
        shown = by_text(SECTIONS) | {"matching": "frontier"}  # a section of older versions
        yield "section", LinkField("show", "", shown, ", ".join(SECTIONS))
        yield "cost", LinkField("cost", CapacityChoice.cost, by_text(COSTS), is_shown=costs)

    def _fields_of(self, sweep: Sweep) -> Iterator[tuple[dict[str, Any], str, LinkField[Any]]]:
        """Yield the choices that depend on the sweep, but for the variants that have a panel.

        Each comes with its holder and its name there. A link has the values of axes that are not
        drawn.
        """
        own, axes = vars(self), list(sweep.axes)
        yield own, "x", LinkField("x", (axes or [""])[0], by_text(axes))
        others = [name for name in axes if name != self.x]
        yield own, "y", LinkField("y", (others or [""])[0], by_text(others))
        present, pair = by_text(sweep.sharing), default_pair(sweep.sharing)
        compares = self.section == "difference"
        for side, variant in zip(("one", "other"), pair, strict=True):
            yield own, side, LinkField(side, variant, present, is_shown=compares)
        allowed = "the values of all axes, and a variant"
        yield own, "cell", LinkField("cell", None, cells_by_link(sweep), allowed)
        drawn = [self.x] if self.section in ("slices", "frontier") else [self.x, self.y]
        for name, values in sweep.axes.items():
            texts, is_shown = {text_of(value): value for value in values}, name not in drawn
            yield self.fixed, name, LinkField(name, middle_of(values), texts, is_shown=is_shown)

    def follow(self, params: dict[str, str]) -> None:
        """Take over a link; what depends on the sweep is left to `read_for`.

        A link that names no choice of this page, as the browser's Back may bring one of the Lab,
        changes nothing.
        """
        self.link, self.problems = params, []
        if params and _NAMES.isdisjoint(params):
            return
        self._unread, self._read_for = params, None
        self.x = self.y = ""
        self.fixed, self.cell = {}, None
        self.one = self.other = BASELINE
        for name, declared in self._fields():
            setattr(self, name, declared.read(params, self.problems))

    def forget_link(self) -> None:
        """Leave out what a link says about a sweep that is not shown."""
        self._unread = {}

    def read_for(self, sweep: Sweep) -> None:
        """Read the rest of the link, and replace what a sweep does not have by defaults."""
        if self._read_for == sweep:
            return
        self._read_for = sweep
        if self.one == self.other or {self.one, self.other} - set(sweep.sharing):
            self.one, self.other = default_pair(sweep.sharing)
        for holder, name, declared in self._fields_of(sweep):
            holder[name] = declared.read(self._unread, self.problems, holder.get(name))
        self.fixed = {name: self.fixed[name] for name in sweep.axes}
        variants = _variants_of(sweep).read_all(self._unread, self.problems)
        self.variants = tuple(variants) or sweep.sharing[:MOST_PANELS]
        self._unread = {}

    @property
    def beside(self) -> dict[str, Value]:
        """Values of the axes that are not drawn."""
        return {name: v for name, v in self.fixed.items() if name not in (self.x, self.y)}

    @property
    def beside_x(self) -> dict[str, Value]:
        """Values of all axes but the one across, for figures over one axis."""
        return {name: value for name, value in self.fixed.items() if name != self.x}

    def take_axis(self, side: str, name: str) -> None:
        """Choose the axis of a side, "x" or "y"; the axis that is on the other side moves over."""
        if name == (self.y if side == "x" else self.x):
            self.x, self.y = self.y, self.x
        setattr(self, side, name)

    def take_variants(self, sweep: Sweep, chosen: list[Variant]) -> None:
        """Show the chosen variants in the order of the sweep; at least one of them stays."""
        self.variants = tuple(v for v in sweep.sharing if v in chosen) or self.variants

    def write_link(self) -> None:
        """Write the choices into the address bar, without those that are the default."""
        sweep, link = self._read_for, self.written(self._fields())
        if sweep is not None:
            for holder, name, declared in self._fields_of(sweep):
                link |= declared.write(holder[name])
            if self.variants != sweep.sharing[:MOST_PANELS]:
                link |= _variants_of(sweep).write_all(self.variants)
        self.set_link(link and {**link, "sweep": self.sweep})


def _variants_of(sweep: Sweep) -> LinkList[Variant]:
    """Return the field of the variants that have a panel."""
    return LinkList("variants", sweep.sharing[0], by_text(sweep.sharing))


def default_pair(variants: tuple[Variant, ...]) -> tuple[Variant, Variant]:
    """Return the variants that are compared at first: QKV and K=V, or else the first two."""
    preferred = [v for v in (BASELINE, Variant("K=V"), *variants) if v in variants]
    first, *others = dict.fromkeys(preferred)
    return first, (others or [first])[0]


def cells_of(sweep: Sweep) -> list[Cell]:
    """Return all cells of a sweep, in the order of its variants, then of its points."""
    points = [tuple(point.values()) for point in sweep.points()]
    return [Cell(point, variant) for variant in sweep.sharing for point in points]


@lru_cache(maxsize=16)
def cells_by_link(sweep: Sweep) -> dict[str, Cell]:
    """Return all cells of a sweep by their text in a link."""
    return {str(cell): cell for cell in cells_of(sweep)}


def text_of(value: Value) -> str:
    """Return a value of an axis as a link and a list on screen have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


@cached_by_language(32)
def conclusion_of(
    result: SweepResult, x: str, y: str, fixed: tuple[tuple[str, Value], ...]
) -> Conclusion:
    """Return the conclusion of a sweep; kept for the newest results."""
    return conclusion(result, x, y or None, dict(fixed))
