"""A visitor's choices in the atlas of real models, their link, and the components of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeVar

import pandas as pd
import streamlit as st

from attnkit.figures.groups import Group, two_models
from attnkit.figures.panels import Figure
from attnkit.realmodels.atlas import PLACE, Atlas
from attnkit.realmodels.measures import MEASURES
from attnkit.realmodels.shipped import OFFSETS
from attnkit.ui import components
from attnkit.ui.address import Linked, open_choice, shortened
from attnkit.ui.bundle import asset, script
from attnkit.ui.measured_models import MOST_ATLASES, measured_models
from attnkit.ui.standalone import film_style

T = TypeVar("T")

_COUNTINGS = {"once": True, "query": False}
"""Values of `kv` in a link: a shared key and value head counts once, or once per query head."""


class Head(NamedTuple):
    """Position of a head in the atlas; layers and heads count from 0."""

    model: str
    kind: str
    layer: int
    head: int

    @property
    def in_words(self) -> str:
        """The position as text."""
        return f"{self.model}, {self.kind}, layer {self.layer}, head {self.head}"

    @property
    def link(self) -> str:
        """The position as a link has it: model/kind/layer/head."""
        return "/".join(map(str, self))

    @classmethod
    def of(cls, text: str) -> Head | None:
        """Read what `link` wrote; None if it is no head. A model's name may contain slashes."""
        parts = text.rsplit("/", 3)
        if len(parts) != 4 or not (parts[2] + parts[3]).isdecimal() or not (parts[2] and parts[3]):
            return None
        return cls(parts[0], parts[1], int(parts[2][:9]), int(parts[3][:9]))


SECTIONS = {
    "head": "One head",
    "measures": "Two measures",
    "models": "Two models",
    "numbers": "The numbers",
    "own": "A model of your own",
}
"""Title of each section below the main figures, by its name in a link."""

OVERVIEW = "overview"
"""Value of `show` in a link that opens no section."""

_SWITCH = {"0": False, "1": True}

X, Y = "overlap_qk", "symmetry"
"""Measures that the scatter shows at first."""


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

    measure: str = "overlap_qk"
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

    def follow(self, params: dict[str, str]) -> None:
        """Take over the choices of a link, and note what is not allowed.

        Heads and groups are checked once there is a table, by `find` and `find_pair`.
        """
        self.link, self.problems = params, []
        self._unchecked = {"head", "one", "other"} & set(params)
        measures = {name: name for name in MEASURES}
        self.measure = self._read("measure", measures, AtlasChoice.measure)
        self.fold = self._read("fold", _SWITCH, False)
        self.offset = self._read("offset", {str(offset): offset for offset in OFFSETS}, 0)
        self.once = self._read("kv", _COUNTINGS, True)
        self.toys = self._read("toys", _SWITCH, False)
        self.x, self.y = self._read("x", measures, X), self._read("y", measures, Y)
        sections = {OVERVIEW: "", **{name: name for name in SECTIONS}}
        self.section = self._read("show", sections, "head" if "head" in params else "")
        self.one, self.other = params.get("one", ""), params.get("other", "")
        self.head = Head.of(params.get("head", ""))
        if "head" in params and self.head is None:
            self._complain("head", "model/kind/layer/head")
        if params.get("mine", self.mine) != self.mine:
            self._open_measured(params["mine"])

    def _read(self, name: str, allowed: Mapping[str, T], default: T) -> T:
        """Return what a value of the link stands for; the default, with a note, if nothing."""
        value = self.link.get(name)
        if value is not None and value not in allowed:
            self._complain(name, ", ".join(allowed))
        return default if value is None else allowed.get(value, default)

    def _complain(self, name: str, allowed: str) -> None:
        self.problems.append(
            f"The link has {name}={shortened(self.link[name])!r}. Allowed: {allowed}."
        )

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
        self.mine = measured_models().keep(self.measured) or measured_models().keep(atlas)

    def find(self, heads: pd.DataFrame) -> Head:
        """Return the head to inspect: the chosen one, or the nearest that the table has.

        If none was chosen, it is the head whose measure is farthest from random matrices.

        Args:
            heads: One row per head, as from `heads_in`.
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
                f"The link has head={shortened(requested.link)!r}, but there is no such head here; "
                f"shown is {found.link}."
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
                    self._complain(side, "; ".join(names))
                setattr(self, side, "")
        self._unchecked -= {"one", "other"}
        return names.get(self.one, one), names.get(self.other, other)

    def write_link(self) -> None:
        """Write the choices into the address bar; what is the default is left out."""
        link = {} if self.measure == AtlasChoice.measure else {"measure": self.measure}
        link |= {} if self.head is None else {"head": self.head.link}
        if self.section != ("" if self.head is None else "head"):
            link["show"] = self.section or OVERVIEW
        link |= {"fold": "1"} if self.fold else {}
        link |= {"offset": str(self.offset)} if self.offset else {}
        link |= {} if self.once else {"kv": "query"}
        link |= {"toys": "1"} if self.toys else {}
        link |= {} if self.x == X else {"x": self.x}
        link |= {} if self.y == Y else {"y": self.y}
        link |= {
            name: getattr(self, name) for name in ("one", "other", "mine") if getattr(self, name)
        }
        self.set_link(link)


def open_atlas_choice() -> AtlasChoice:
    """Return this visitor's choices, made from the link if they are new or it has changed."""
    return open_choice("atlas", "atlas_chosen", AtlasChoice)


def grid(
    panels: dict[str, Any], chosen: Head | None, picked: Callable[[], None], *, key: str
) -> None:
    """Draw the grids of heads.

    Args:
        panels: Return value of `attnkit.figures.atlas.atlas_panels`.
        chosen: The head that is outlined.
        picked: Called when a cell was pressed; `st.session_state[key].chosen` is then a list of
            model, kind, layer and head.
        key: Key of the component.
    """
    data = {**panels, "chosen": None if chosen is None else list(chosen)}
    packed = json.dumps(data, separators=(",", ":")).encode()
    _grid_component()(key=key, data=packed, on_chosen_change=picked)


def picture(figure: Figure, *, key: str, alt: str, title: str) -> None:
    """Draw a figure that has a height of its own, with a menu that saves it."""
    name = "attnkit-atlas-" + re.sub(r"\W+", "-", key.removeprefix("atlas_"))
    components.picture(figure, key=key, alt=alt, title=title, file=name)


@cache
def _grid_component() -> Any:
    return st.components.v2.component(
        "attnkit_atlas",
        js=script("atlas"),
        css=film_style() + asset("atlas.css"),
        isolate_styles=False,
    )


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
    st.session_state[f"atlas_{field}"] = getattr(choice, field)
    st.selectbox(
        label,
        list(MEASURES),
        format_func=title_of_measure,
        key=f"atlas_{field}",
        on_change=take,
        args=(choice, field),
        width=width,
    )


def title_of_measure(name: str) -> str:
    """Return the title of a measure."""
    return MEASURES[name].title


def take(choice: AtlasChoice, field: str) -> None:
    """Set a field of the visitor's choice to the value of its widget."""
    setattr(choice, field, st.session_state[f"atlas_{field}"])
