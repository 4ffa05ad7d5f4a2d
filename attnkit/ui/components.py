"""Live components: small, stable DOM nodes that change instead of being replaced.

`st.plotly_chart` is rebuilt in the browser whenever its data change. The components here call
`Plotly.react` on one node, so zoom and hover survive every tick. plotly.js comes from the `plotly`
wheel and is put in the page once, by a component that is mounted after the first content.

Every function takes the `key` of its component. Figures take `alt`, a description for people who do
not see them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import streamlit as st
from pydantic import Field, TypeAdapter, ValidationError

from attnkit.analysis.responses import Example
from attnkit.experiment import Experiment
from attnkit.figures.board import planned_columns
from attnkit.figures.diagram import variant_diagram
from attnkit.figures.panels import Figure
from attnkit.foundation.language import ENGLISH, language, tr
from attnkit.tasks import FAMILIES, OWN_TASKS, TASKS
from attnkit.ui.cache import Cache, example_cells, task_thumbnail
from attnkit.ui.standalone import asset, script
from attnkit.variants import Variant

OWN_DATA = "own_data"
"""Name of the card of the gallery that asks for data of one's own."""

_SHEET = (
    '<svg class="ak-thumb" viewBox="0 0 200 66" fill="none" stroke="currentColor" '
    'aria-hidden="true">'
    '<path d="M62 10h76v46H62zM62 25.3h76M62 40.7h76M100 10v46" opacity="0.6"/></svg>'
)
"""Picture on this card: an empty table."""

Index = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
"""An index that a component reports."""

FILM = ("lab", "film")
"""Styles of components that show a film; their data are the blob of an inspection."""


def component(name: str, *styles: str) -> Any:
    """Return the component that a script in `attnkit/ui/assets` draws, in the reader's language."""
    return _component(name, styles, language())


@cache
def _component(name: str, styles: tuple[str, ...], code: str) -> Any:
    css = "".join(asset(f"{style}.css") for style in styles) or None
    registered = f"attnkit_{name}" if code == ENGLISH else f"attnkit_{name}_{code}"
    return st.components.v2.component(
        registered, js=script(name, code), css=css, isolate_styles=False
    )


def reported(key: str, event: str, kind: Any) -> Any:
    """Return what a component has reported; None if it is not of the kind that it reports.

    Args:
        kind: Type of what the component reports, such as `list[Index]`.
    """
    try:
        return TypeAdapter(kind).validate_python(st.session_state[key].get(event))
    except (KeyError, ValidationError):
        return None


def packed(data: dict[str, Any]) -> bytes:
    """Return data as JSON bytes: Streamlit would encode, walk and hash a dictionary twice."""
    return json.dumps(data, separators=(",", ":")).encode()


_PACKED: Cache[tuple[object, bytes]] = Cache(10_000, 2**24, lambda one: len(one[1]))
"""Drawings beside their JSON bytes; a drawing should be about as large as its bytes."""


def packed_once(drawing: object, data: Callable[[], dict[str, Any]], *more: Any) -> bytes:
    """Return `packed` of what `data` returns; `data` is called once for each drawing.

    A drawing, which nobody may change, is recognised by its identity. `more` are values besides the
    drawing on which the data depend.
    """
    key = (id(drawing), language(), *more)
    kept = _PACKED.get(key) or _PACKED.put(key, (drawing, packed(data())))
    return kept[1]


@cache
def _plotly_loader() -> Any:
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    library = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    source = library.read_text(encoding="utf-8")
    return st.components.v2.component("attnkit_plotly", js=f"{source}\n{script('saving')}")


def load_plotly() -> None:
    """Put plotly.js and what saves figures in the page; call once, after the first content."""
    _plotly_loader()(key="plotly_js", height=0)


def live_figure(
    figure: Figure,
    *,
    key: str,
    alt: str,
    file: str = "",
    asymmetry: Mapping[str, Any] | None = None,
) -> None:
    """Draw a figure of panels.

    Args:
        file: Name of the files in which it can be saved; empty if it cannot be.
        asymmetry: Return value of `attnkit.figures.board.asymmetry_over_steps`, for these files.
    """
    data: dict[str, Any] = {
        "figure": figure,
        "legend": figure["layout"]["meta"]["legend"],
        "panels": {"height": 210, "narrowest": 175},  # narrower ones wrap into another row
        "alt": alt,
    }
    if file:
        title = alt.partition(". ")[0]
        data["save"] = {"title": title, "name": file, "asymmetry": asymmetry}
    component("figure", "lab")(key=key, data=packed_once(figure, lambda: data, alt))


def picture(
    figure: Figure,
    *,
    key: str,
    alt: str,
    narrower: Mapping[int, Figure | None] | None = None,
    title: str = "",
    file: str = "",
    table: Mapping[str, Any] | None = None,
    picked: Callable[[], None] | None = None,
) -> None:
    """Draw a figure that sets its height itself, and may change at every tick.

    Args:
        narrower: Largest width in pixels → figure for places up to it, from wide to narrow.
        title: Heading of the saved figure.
        file: Name of the files in which it can be saved, without a suffix; empty if it cannot be.
        table: `columns` and `rows` of the file of comma-separated values; None for every mark.
        picked: Called when a mark was pressed; `st.session_state[key].picked` is its `customdata`.
    """
    data: dict[str, Any] = {"figure": figure, "alt": alt, "picks": picked is not None}
    data["narrower"] = [{"most": most, "figure": one} for most, one in (narrower or {}).items()]
    if file:
        data["save"] = {"title": title, "name": file, "table": table}
    events = {} if picked is None else {"on_picked_change": picked}
    component("figure", "lab")(key=key, data=packed(data), **events)


def board(drawing: dict[str, Any], *, key: str, alt: str) -> None:
    """Draw the return value of `attnkit.figures.board.board` or `planned_board`."""
    data = {**drawing, "alt": alt, "file": f"attnkit-{drawing['task']}-board"}
    component("late")(key=key, data=packed_once(drawing, lambda: data, alt))


def example(experiment: Experiment, probe: Example | str | None, *, key: str) -> None:
    """Draw an example of a task, or a text that says why there is none; None if it comes later."""
    data: dict[str, Any] = {"cells": [], "n_source": 0, "note": "", "message": ""}
    if isinstance(probe, Example):
        data = example_cells(experiment.task, probe)
    elif probe is None:
        data["message"] = tr("Drawing an example: the training process is getting ready.")
    else:
        data["message"] = tr("No example could be drawn. {reason}.", reason=probe)
    component("example", "lab")(key=key, data=packed(data))


def task_gallery(
    current: str,
    examples: Mapping[str, Example | str | None],
    chosen: Callable[[], None],
    *,
    key: str,
) -> None:
    """Draw a card for every task, behind a button that shows the current task.

    `chosen` is called when a card was pressed; `st.session_state[key].chosen` is its task, or
    `OWN_DATA`. Tasks without an example have no thumbnail.
    """
    is_own = current in OWN_TASKS
    title = tr("Your own data")
    question = tr("Paste pairs, relations or a text: the models learn what you bring.")
    card = {"title": title, "question": question, "source": "", "thumbnail": _SHEET}
    if is_own:
        own = OWN_TASKS[current]
        card |= {"title": tr(own.title), "question": tr(own.question)}
    families = [{"title": title, "tasks": [{"name": OWN_DATA, **card}]}]
    families += [
        {
            "title": tr(family),
            "tasks": [
                {
                    "name": name,
                    "title": tr(task.title),
                    "question": tr(task.question),
                    "source": tr(task.source),
                    "thumbnail": task_thumbnail(name, examples.get(name)),
                }
                for name, task in TASKS.items()
                if task.family == family
            ],
        }
        for family in FAMILIES
    ]
    shown = OWN_DATA if is_own else current
    data = {"families": [family for family in families if family["tasks"]], "current": shown}
    component("gallery", "lab")(key=key, data=packed(data), on_chosen_change=chosen)


def markup(html: str, *, key: str) -> None:
    """Draw HTML of a figure module, which has escaped everything that people typed."""
    component("diagram", "lab")(key=key, data={"diagram": html})


def diagram(experiment: Experiment, variant: Variant, color: str, *, key: str) -> None:
    """Draw the diagram of a variant with the sizes of an experiment."""
    svg = variant_diagram(variant, experiment.wiring(variant), color)
    component("diagram", "lab")(key=key, data={"diagram": svg})


def glossary(experiment: Experiment, *, key: str) -> None:
    """Draw one card per variant, with its diagram and its tied roles in words."""
    cards = [
        {
            "name": column["name"],
            "text": column["second"],
            "color": column["color"],
            "diagram": column["diagram"],
            "note": column["meaning"],
        }
        for column in planned_columns(experiment)
    ]
    component("cards", "lab")(key=key, data=packed({"cards": cards, "narrowest": 150}))
