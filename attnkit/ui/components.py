"""The live components: small, stable DOM nodes that change instead of being replaced.

`st.plotly_chart` is rebuilt in the browser whenever its data change. Ours call `Plotly.react` on
one node, so zoom and hover survive every tick. plotly.js comes from the `plotly` wheel and is put
in the page once, by a component that is mounted after the first content.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import streamlit as st

from attnkit.figures.curves import Figure
from attnkit.figures.diagram import sharing_diagram
from attnkit.figures.palette import COLORS, colors_of
from attnkit.results import Snapshot
from attnkit.sharing import Sharing
from attnkit.summary import percent, percent_interval
from attnkit.ui.shown import sharing_table

NARROWEST = 175
"""Pixels below which panels wrap into another row; the same for all, so that columns align."""

PANEL_HEIGHT = 210
"""Pixels of one row of panels."""


def _asset(name: str) -> str:
    return (files("attnkit.ui") / "assets" / name).read_text(encoding="utf-8")


@cache
def _component(name: str) -> Any:
    return st.components.v2.component(
        f"attnkit_{name}",
        js=_asset("panels.js") + _asset(f"{name}.js"),
        css=_asset("lab.css"),
        isolate_styles=False,
    )


@cache
def _plotly_loader() -> Any:
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    library = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    source = library.read_text(encoding="utf-8")
    return st.components.v2.component(
        "attnkit_plotly", js=f"{source}\nexport default function () {{}}\n"
    )


def load_plotly() -> None:
    """Put plotly.js in the page; call once per page, after the first content."""
    _plotly_loader()(key="plotly_js", height=0)


def live_figure(
    figure: Figure, legend: list[dict[str, str]], *, key: str, alt: str, faded: bool
) -> None:
    """Draw a figure of panels; `faded` if it is not what the visitor has set up."""
    _component("figure")(
        key=key,
        data={
            "figure": figure,
            "legend": legend,
            "height": PANEL_HEIGHT,
            "narrowest": NARROWEST,
            "alt": alt,
            "faded": faded,
        },
    )


def attention_maps(maps: dict[str, Any], *, key: str, alt: str, faded: bool) -> None:
    """Draw what `attnkit.figures.maps.attention_maps` gave."""
    _component("maps")(key=key, data={**maps, "narrowest": NARROWEST, "alt": alt, "faded": faded})


def sharing_cards(snapshot: Snapshot, *, key: str, faded: bool) -> None:
    """One card per sharing: what is tied, accuracy with its interval, costs."""
    rows: Any = sharing_table(snapshot).set_index("sharing")
    n_seeds = snapshot.experiment.n_seeds
    cards = []
    variants = snapshot.experiment.sharing
    for sharing, color in zip(variants, colors_of(variants), strict=True):
        row = rows.loc[sharing.value]
        cards.append(
            {
                "name": sharing.value,
                "color": color,
                "diagram": sharing_diagram(sharing.sharing),
                "meaning": sharing.meaning,
                "value": "–" if row.accuracy != row.accuracy else percent(row.accuracy),
                "note": _note(row, n_seeds),
                "facts": _facts(row, sharing.sharing),
            }
        )
    _component("cards")(key=key, data={"cards": cards, "narrowest": 130, "faded": faded})


def sharing_glossary(sharings: list[Sharing], *, key: str) -> None:
    """One card per sharing that says in words what is tied."""
    cards = [
        {
            "name": sharing.value,
            "color": COLORS[sharing],
            "diagram": sharing_diagram(sharing),
            "meaning": sharing.meaning,
            "value": "",
            "note": sharing.meaning,
            "facts": "",
        }
        for sharing in sharings
    ]
    _component("cards")(key=key, data={"cards": cards, "narrowest": 150})


def _note(row: Any, n_seeds: int) -> str:
    if row.diverged:
        return f"{row.diverged:.0f} of {n_seeds} diverged"
    limits = percent_interval(row.accuracy_low, row.accuracy_high)
    return f"95% interval {limits}" if limits else "right answers"


def _facts(row: Any, sharing: Sharing) -> str:
    matrices = "1 matrix" if sharing.n_matrices == 1 else f"{sharing.n_matrices} matrices"
    return (
        f"{matrices}, {row.parameters:,.0f} parameters, "
        f"{row.kv_cache_floats_per_token:.0f} cached floats per token"
    )
