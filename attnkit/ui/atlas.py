"""What a visitor has chosen in the atlas of real models, its link, and how it is drawn."""

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

_LONGEST = 60
"""Letters of a faulty link that are said."""

_COUNTED = ("once", "query")
"""How a link says what shared keys and values count: once, or per query head."""


class Head(NamedTuple):
    """A place in the atlas; layers and heads count from 0."""

    model: str
    kind: str
    layer: int
    head: int

    @property
    def in_words(self) -> str:
        """In words."""
        return f"{self.model}, {self.kind}, layer {self.layer}, head {self.head}"

    @property
    def link(self) -> str:
        """As it stands in an address."""
        return "/".join(map(str, self))

    @classmethod
    def of(cls, text: str) -> Head | None:
        """What `link` wrote; a model's name may have strokes."""
        parts = text.rsplit("/", 3)
        if len(parts) != 4 or not (parts[2] + parts[3]).isdecimal() or not (parts[2] and parts[3]):
            return None
        return cls(parts[0], parts[1], int(parts[2][:9]), int(parts[3][:9]))


@dataclass
class AtlasChoice(Linked):
    """One visitor's choices.

    Attributes:
        head: the one that is looked at; None: the one farthest from chance.
        own: models that this visitor has measured.
        problem: what was wrong with the link.
    """

    measure: str = "cos_qk"
    head: Head | None = None
    fold: bool = False
    offset: int = 0
    once: bool = True
    toys: bool = False
    own: Atlas | None = None
    problem: str = ""
    _by_link: bool = False

    def follow(self, params: dict[str, str]) -> None:
        """Take over what a link names; what there is not is said."""
        self.link, self.problem, self._by_link = params, "", "head" in params
        measure = params.get("measure", self.measure)
        if measure in MEASURES:
            self.measure = measure
        else:
            self._complain("measure", measure, ", ".join(MEASURES))
        self.fold = params.get("fold", "0") == "1"
        self.toys = params.get("toys", "0") == "1"
        counted = params.get("kv", "once")
        if counted in _COUNTED:
            self.once = counted == "once"
        else:
            self._complain("kv", counted, ", ".join(_COUNTED))
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
        """The chosen head, or the nearest that there is."""
        wanted = self.head
        known = wanted is not None and bool((heads["model"] == wanted.model).any())
        if wanted is not None and known:
            for name, value in zip(PLACE, wanted, strict=True):
                same = heads[heads[name] == value]
                heads = same if len(same) else heads
        else:
            away = (heads[self.measure] - heads.get(f"{self.measure}_random", 0)).abs()
            heads = heads.loc[[away.idxmax()]] if away.notna().any() else heads
        first = heads.iloc[0]
        self.head = Head(first["model"], first["kind"], int(first["layer"]), int(first["head"]))
        if self._by_link and wanted is not None and wanted != self.head:
            self.problem = (
                f"The link has head={_short(wanted.link)!r}, but there is no such head here; shown "
                f"is {self.head.link}."
            )
            if not known:
                self.problem += " A model that its sender measured is only there."
        self._by_link = False
        return self.head

    def write_link(self) -> None:
        """Make the address bar name what is chosen."""
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
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def open_atlas_choice() -> AtlasChoice:
    """This visitor's choices, from the link if there are none yet or the link has changed."""
    params = st.query_params.to_dict()
    chosen: AtlasChoice | None = st.session_state.get("atlas_chosen")
    if chosen is None:
        chosen = st.session_state.atlas_chosen = AtlasChoice()
        chosen.follow(params)
    elif chosen.is_called(params, "atlas"):
        chosen.follow(params)
    st.session_state.page = "atlas"
    return chosen


def heads_in(table: pd.DataFrame, fold: bool, offset: int) -> pd.DataFrame:
    """A row per head, measured that way; as it is where there are no such rows.

    Layers without rotary positions have rows of offset 0 only.
    """
    heads = table[table["head"].notna()]
    kept = []
    for _, own in heads.groupby(["model", "kind"], sort=False):
        for name, value in (("folded", fold), ("offset", offset)):
            same = own[own[name] == value]
            own = same if len(same) else own[own[name] == own[name].iloc[0]]
        kept.append(own)
    return pd.concat(kept, ignore_index=True) if kept else heads


def grid(
    panels: dict[str, Any], chosen: Head | None, picked: Callable[[], None], *, key: str
) -> None:
    """Draw what `attnkit.figures.atlas.atlas_panels` gave.

    Args:
        picked: called when a cell was chosen; `st.session_state[key].chosen` is model, kind, layer
            and head.
    """
    data = {**panels, "chosen": None if chosen is None else list(chosen)}
    packed = json.dumps(data, separators=(",", ":")).encode()
    _grid_component()(key=key, data=packed, on_chosen_change=picked)


def picture(figure: Figure, *, key: str, alt: str, title: str) -> None:
    """Draw a figure that brings its own height, with a menu that saves it."""
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
    """A fold with a figure's numbers, made when it is opened."""
    fold = st.expander("Numbers", key=f"numbers_{name}", on_change="rerun")
    if fold.open:
        with fold:
            st.dataframe(table(), hide_index=True, alt=alt, height=320)


def heads_table(heads: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Places and some measures."""
    return heads[[*PLACE, *measures]]
