"""A visitor's choices in the atlas of real models, their link, and the components of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st

from attnkit.figures.panels import Figure
from attnkit.realmodels.atlas import PLACE, Atlas
from attnkit.realmodels.measures import MEASURES
from attnkit.realmodels.shipped import OFFSETS
from attnkit.ui.address import Linked
from attnkit.ui.bundle import asset, script

_MOST_CHARACTERS = 60
"""Characters of a faulty link that a message repeats."""

_COUNTINGS = ("once", "query")
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
        measured: Models that this visitor has measured.
        problem: Problem of the link, in a sentence; empty if there is none.
    """

    measure: str = "cos_qk"
    head: Head | None = None
    fold: bool = False
    offset: int = 0
    once: bool = True
    toys: bool = False
    measured: Atlas | None = None
    problem: str = ""
    _by_link: bool = False

    def follow(self, params: dict[str, str]) -> None:
        """Take over the choices of a link, and note the last one that is not allowed."""
        self.link, self.problem, self._by_link = params, "", "head" in params
        measure = params.get("measure", self.measure)
        if measure in MEASURES:
            self.measure = measure
        else:
            self._complain("measure", measure, ", ".join(MEASURES))
        self.fold = params.get("fold", "0") == "1"
        self.toys = params.get("toys", "0") == "1"
        counting = params.get("kv", "once")
        if counting in _COUNTINGS:
            self.once = counting == "once"
        else:
            self._complain("kv", counting, ", ".join(_COUNTINGS))
        offset = params.get("offset", "0")
        if offset in map(str, OFFSETS):
            self.offset = int(offset)
        else:
            self._complain("offset", offset, ", ".join(map(str, OFFSETS)))
        if "head" in params:
            self.head = Head.of(params["head"])
            if self.head is None:
                self._complain("head", params["head"], "model/kind/layer/head")

    def find(self, heads: pd.DataFrame) -> Head:
        """Return the chosen head, or the nearest that the table has, and choose it.

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
        self.head = Head(first["model"], first["kind"], int(first["layer"]), int(first["head"]))
        if self._by_link and requested is not None and requested != self.head:
            self.problem = (
                f"The link has head={_short(requested.link)!r}, but there is no such head here; "
                f"shown is {self.head.link}."
            )
            if not has_model:
                self.problem += " A model that its sender measured is only there."
        self._by_link = False
        return self.head

    def write_link(self) -> None:
        """Write the choices into the address bar."""
        link = {"measure": self.measure}
        if self.head is not None:
            link["head"] = self.head.link
        link |= {"fold": "1"} if self.fold else {}
        link |= {"offset": str(self.offset)} if self.offset else {}
        link |= {} if self.once else {"kv": "query"}
        link |= {"toys": "1"} if self.toys else {}
        self.set_link(link)

    def _complain(self, name: str, value: str, allowed: str) -> None:
        self.problem = f"The link has {name}={_short(value)!r}. Allowed: {allowed}."


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def open_atlas_choice() -> AtlasChoice:
    """Return this visitor's choices, made from the link if they are new or it has changed."""
    params = st.query_params.to_dict()
    choice: AtlasChoice | None = st.session_state.get("atlas_chosen")
    if choice is None:
        choice = st.session_state.atlas_chosen = AtlasChoice()
        choice.follow(params)
    elif choice.is_called(params, "atlas"):
        choice.follow(params)
    st.session_state.page = "atlas"
    return choice


def heads_in(table: pd.DataFrame, fold: bool, offset: int) -> pd.DataFrame:
    """Return one row per head, measured with these settings where a model has such rows.

    A model without them, such as one without rotary positions, keeps the rows of its first setting.

    Args:
        table: Table of an atlas.
        fold: Whether gains of the norm before attention are multiplied into the matrices.
        offset: Distance of query and key positions in tokens.
    """
    heads = table[table["head"].notna()]
    selected = []
    for _, rows in heads.groupby(["model", "kind"], sort=False):
        for name, value in (("folded", fold), ("offset", offset)):
            same = rows[rows[name] == value]
            rows = same if len(same) else rows[rows[name] == rows[name].iloc[0]]
        selected.append(rows)
    return pd.concat(selected, ignore_index=True) if selected else heads


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
    data = {"figure": figure, "alt": alt, "title": title, "name": name}
    _picture_component()(key=key, data=json.dumps(data, separators=(",", ":")).encode())


@cache
def _grid_component() -> Any:
    return st.components.v2.component(
        "attnkit_atlas",
        js=script("atlas"),
        css=_style(),
        isolate_styles=False,
    )


@cache
def _picture_component() -> Any:
    return st.components.v2.component(
        "attnkit_saved", js=script("saved"), css=_style(), isolate_styles=False
    )


def _style() -> str:
    return asset("lab.css") + asset("film.css") + asset("atlas.css")


def numbers(name: str, table: Callable[[], pd.DataFrame], alt: str) -> None:
    """Draw an expander with the numbers of a figure; the table is made when it is opened."""
    expander = st.expander("Numbers", key=f"numbers_{name}", on_change="rerun")
    if expander.open:
        with expander:
            st.dataframe(table(), hide_index=True, alt=alt, height=320)


def heads_table(heads: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Return the positions of heads and the given measures."""
    return heads[[*PLACE, *measures]]
