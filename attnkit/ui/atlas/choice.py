"""A visitor's choices in the atlas of real models, their link, and the components of the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st

from attnkit.figures.groups import Group, two_models
from attnkit.figures.panels import Figure
from attnkit.realmodels.atlas import PLACE, Atlas
from attnkit.realmodels.measures import MEASURES
from attnkit.realmodels.shipped import OFFSETS
from attnkit.ui import components
from attnkit.ui.address import Linked, LinkField, by_text, shortened
from attnkit.ui.atlas.measured_models import MOST_ATLASES, keep_measured, measured_models
from attnkit.ui.widgets import bound


class Head(NamedTuple):
    """Position of a head in the atlas; layers and heads count from 0."""

    model: str
    kind: str
    layer: components.Index
    head: components.Index

    @property
    def in_words(self) -> str:
        """The position as text."""
        return f"{self.model}, {self.kind}, layer {self.layer}, head {self.head}"

    def __str__(self) -> str:
        """Return the position as a link has it: model/kind/layer/head."""
        return "/".join(map(str, tuple(self)))

    @classmethod
    def of(cls, text: str) -> Head | None:
        """Read a head from its text in a link, in which a model's name may have slashes."""
        parts = text.rsplit("/", 3)
        if len(parts) != 4 or not (parts[2] + parts[3]).isdecimal() or not (parts[2] and parts[3]):
            return None
        return cls(parts[0], parts[1], int(parts[2][:9]), int(parts[3][:9]))


SECTIONS = {
    "head": "One head",
    "measures": "Two measures",
    "models": "Two models",
    "tying": "What tying would cost",
    "training": "Over training",
    "numbers": "The numbers",
    "own": "A model of your own",
    "sentence": "A sentence of your own",
}
"""Title of each section below the main figures, by its name in a link."""

OVERVIEW = "overview"
"""Value of `show` in a link that opens no section."""

_SWITCH = {"0": False, "1": True}

OVERLAP = X = "overlap_qk"
Y = "symmetry"
"""Measures that the figures and the two axes of the scatter show at first."""


@dataclass
class AtlasChoice(Linked):
    """One visitor's choices.

    Attributes:
        measure: Name of the measure that the figures show.
        head: The inspected head; None for the one farthest from random matrices.
        fold: Whether gains of the norm before attention are multiplied into the matrices.
        offset: Distance of query and key positions in tokens, for rotary positions.
        once: Whether a key and value head that query heads share counts once, not per query head.
        toys: Whether our toy models are shown, too.
        section: Name of the open section; empty if none is open.
        x: Name of the measure on the horizontal axis of the scatter.
        y: Name of the measure on its vertical axis.
        one: Name of the first compared group; empty for the default.
        other: Name of the second one.
        measured: Models that this visitor has measured, or that the link shows.
        mine: Id under which the server keeps `measured`; empty if it does not.
        problems: Problems of the link, in sentences.
    """

    measure: str = OVERLAP
    head: Head | None = None
    fold: bool = False
    offset: int = 0
    once: bool = True
    toys: bool = False
    section: str = ""
    x: str = X
    y: str = Y
    one: str = ""
    other: str = ""
    measured: Atlas | None = None
    mine: str = ""
    problems: list[str] = field(default_factory=list)
    _unchecked: set[str] = field(default_factory=set, repr=False)

    def _fields(self) -> Iterator[tuple[str, LinkField[Any]]]:
        """Yield every choice that a link carries, by the name of its attribute."""
        measures = by_text(MEASURES)
        yield "measure", LinkField("measure", OVERLAP, measures)
        yield "head", LinkField("head", None, Head.of, "model/kind/layer/head")
        opened = "" if self.head is None else "head"
        yield "section", LinkField("show", opened, {OVERVIEW: "", **by_text(SECTIONS)})
        yield "fold", LinkField("fold", False, _SWITCH)
        yield "offset", LinkField("offset", 0, by_text(OFFSETS))
        yield "once", LinkField("kv", True, {"once": True, "query": False})
        yield "toys", LinkField("toys", False, _SWITCH)
        yield "x", LinkField("x", X, measures)
        yield "y", LinkField("y", Y, measures)
        for side in ("one", "other", "mine"):
            yield side, LinkField(side, "", str)

    def follow(self, params: dict[str, str]) -> None:
        """Take over the choices of a link, and note values that are not allowed.

        Heads and groups are checked once there is a table, by `find` and `find_pair`.
        """
        self.link, self.problems = params, []
        self._unchecked = {"head", "one", "other"} & set(params)
        for name, declared in self._fields():
            if name != "mine":
                setattr(self, name, declared.read(params, self.problems))
        if params.get("mine", self.mine) != self.mine:
            self._open_measured(params["mine"])

    def _open_measured(self, key: str) -> None:
        measured = measured_models().get(key)
        if measured is not None:
            self.measured, self.mine = measured, key
        else:
            self.problems.append(
                "The link shows a measured model that this server no longer has: it keeps the "
                f"last {MOST_ATLASES}, until it is started again. Measure the model again."
            )

    def add_measured(self, atlas: Atlas) -> None:
        """Add measured models to the visitor's, and keep all of them under a new id.

        A new id, so that links that were sent before do not show the new models. If all together
        are too large to be kept, the new ones alone are.
        """
        self.measured = atlas if self.measured is None else self.measured.joined(atlas)
        self.mine = keep_measured(self.measured) or keep_measured(atlas)

    def find(self, heads: pd.DataFrame) -> Head:
        """Return the head to inspect: the chosen one, or the nearest that the table has.

        If none was chosen, it is the head whose measure is farthest from random matrices.
        """
        requested = self.head
        has_model = requested is not None and bool((heads["model"] == requested.model).any())
        if requested is not None and has_model:
            for name, value in zip(PLACE, requested, strict=True):
                same = heads[heads[name] == value]
                heads = same if len(same) else heads
        else:
            distance = (heads[self.measure] - heads.get(f"{self.measure}_random", 0)).abs()
            heads = heads.loc[[distance.idxmax()]] if distance.notna().any() else heads
        first = heads.iloc[0]
        found = Head(first["model"], first["kind"], int(first["layer"]), int(first["head"]))
        if "head" in self._unchecked and requested is not None and requested != found:
            problem = (
                f"The link has head={shortened(str(requested))!r}, but there is no such head here; "
                f"{found} is shown instead."
            )
            if not has_model and "mine" not in self.link:
                problem += " A model that its sender measured is in their full link only."
            self.problems.append(problem)
        self._unchecked.discard("head")
        self.head = found if has_model else None
        return found

    def find_pair(self, groups: list[Group]) -> tuple[Group, Group]:
        """Return the two chosen groups; the default in place of one that is not there."""
        names = {group.name: group for group in groups}
        one, other = two_models(groups)
        for side in ("one", "other"):
            name = getattr(self, side)
            if name and name not in names:
                if side in self._unchecked:
                    declared = LinkField(side, "", by_text(names), "; ".join(names))
                    self.problems.append(declared.problem_with(name))
                setattr(self, side, "")
        self._unchecked -= {"one", "other"}
        return names.get(self.one, one), names.get(self.other, other)

    def write_link(self) -> None:
        """Write the choices into the address bar, without those that are the default."""
        self.set_link(self.written(self._fields()))


def grid(
    panels: dict[str, Any], chosen: Head | None, picked: Callable[[], None], *, key: str
) -> None:
    """Draw the grids of heads that `atlas_panels` returns, with the chosen head outlined.

    `picked` is called when a cell was pressed; `st.session_state[key].chosen` is then a list of
    model, kind, layer and head.
    """
    data = {**panels, "chosen": None if chosen is None else list(chosen)}
    draw = components.component("atlas", *components.FILM, "atlas")
    draw(key=key, data=components.packed(data), on_chosen_change=picked)


def picture(figure: Figure, *, key: str, alt: str, title: str) -> None:
    """Draw a figure that has a height of its own, with a menu that saves it."""
    name = "attnkit-atlas-" + re.sub(r"\W+", "-", key.removeprefix("atlas_"))
    components.picture(figure, key=key, alt=alt, title=title, file=name)


def numbers(name: str, table: Callable[[], pd.DataFrame], alt: str) -> None:
    """Draw an expander with the numbers of a figure; the table is made when it is opened."""
    expander = st.expander("Numbers", key=f"numbers_{name}", on_change="rerun")
    if expander.open:
        with expander:
            st.dataframe(table(), hide_index=True, alt=alt, height=320)


def heads_table(heads: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Return the positions of heads and the given measures."""
    return heads[[*PLACE, *measures]]


def pick_measure(choice: AtlasChoice, label: str, field: str, width: int) -> None:
    """Let the visitor choose the measure that a field of their choice names."""
    st.selectbox(
        label,
        list(MEASURES),
        format_func=lambda name: MEASURES[name].title,
        width=width,
        **bound(choice, field, f"atlas_{field}"),
    )
