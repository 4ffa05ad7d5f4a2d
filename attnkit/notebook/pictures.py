"""Pictures of interactive figures, for places that show a notebook without running scripts.

Such places are pages made by nbconvert, GitHub, and files to print. A picture is an SVG of the
marks that `attnkit.figures.marks` has. A figure to which a user has added something that they
cannot draw has no picture.
"""

from __future__ import annotations

import contextlib
import re
from base64 import b64decode
from html import escape, unescape
from typing import Any
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
from plotly.io import renderers

from attnkit.figures.marks import WHOLE, Mark, cells
from attnkit.figures.panels import Axis, Panel
from attnkit.foundation.display import jupyter_shell
from attnkit.notebook.drawings import LETTER, Canvas, longest
from attnkit.notebook.style import ROOT, STYLE

WIDTH = 960
"""Width of a picture in pixels; figures on screen are as wide as their cell."""

_LINE = 1.4
"""Height of a line of text as a multiple of the size of its letters."""

_SIDES = {"left": "start", "center": "middle", "right": "end"}

_TRACES = ("scatter", "bar", "heatmap")
"""Types of the traces that are drawn."""


class PicturedFigure(go.Figure):  # type: ignore[misc]
    """Plotly figure with a picture beside it in the output of a notebook's cell."""

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Show the figure as Plotly does, in a notebook together with its picture."""
        shell = jupyter_shell()
        shown = {} if shell is None or args or kwargs else self._repr_mimebundle_()
        if shell is None or not shown:  # Plotly opens a browser
            super().show(*args, **kwargs)
            return
        with contextlib.suppress(Exception):  # whatever a user has made of the figure
            svg = picture(self)
            ElementTree.fromstring(svg)  # nothing is shown of a picture that is no valid XML
            shown["image/svg+xml"] = svg
        shell.display_pub.publish(shown)

    def _ipython_display_(self) -> None:
        if jupyter_shell() is None or not renderers.render_on_display:
            super()._ipython_display_()
        else:
            self.show()


def picture(figure: go.Figure) -> str:
    """Return a figure as an SVG."""
    values = figure.to_dict()
    traces, layout = values["data"], {"annotations": [], "shapes": [], **values["layout"]}
    shown = [trace for trace in traces if trace.get("showlegend") and trace.get("name")]
    names = [_plain(trace["name"]).rstrip() for trace in shown] if layout["showlegend"] else []
    suffixes = [name[5:] for name in layout if name.startswith("xaxis")]
    panels = {suffix: _panel(suffix, traces, layout) for suffix in suffixes}
    margin, height = layout["margin"], layout["height"]
    labels = [text for panel in panels.values() for text in panel.y.texts or ()]
    left = max(margin["l"], 26 + LETTER * longest(labels))
    right = WIDTH - max(margin["r"], 40 if "coloraxis" in layout else 16)
    right -= LETTER * longest(names) + 50 if names else 0
    area = height - margin["t"] - margin["b"]
    parts = [_words(layout["title"], left, 20)]
    for suffix, panel in panels.items():
        (x0, x1), (y0, y1) = (layout[f"{letter}axis{suffix}"]["domain"] for letter in "xy")
        top, width = margin["t"] + (1 - y1) * area, right - left
        placed = Panel(panel.x, panel.y, panel.marks, height=round((y1 - y0) * area))
        canvas = Canvas(placed, left + x0 * width, left + x1 * width, top)
        parts.append(_contents(canvas, layout))
        parts += [_annotation(one, canvas) for one in _of_panel(layout["annotations"], suffix)]
        middle = (canvas.left + canvas.right) / 2
        title = {"text": escape(panel.x.title), "font": {"size": 13}}
        parts.append(_words(title, middle, canvas.bottom + canvas.below + 16, "center"))
        turned = f"translate({14} {canvas.top + placed.height / 2:g})rotate(-90)"
        title["text"] = escape(panel.y.title)
        parts.append(f'<g transform="{turned}">{_words(title, 0, 0, "center")}</g>')
    for one in layout["annotations"]:
        if one.get("xref") == "paper":
            parts.append(_words(one, (left + right) / 2, height - margin["b"] + 40, "center"))
    for row, (name, trace) in enumerate(zip(names, shown, strict=False)):
        top = margin["t"] + 20 * row
        sample = Canvas(Panel(Axis(0, 1), Axis(0, 1), [], height=20), right + 16, right + 46, top)
        mark = _mark({**trace, "x": [0.0, 0.5, 1.0], "y": [0.5, 0.5, 0.5]})
        parts.append(f'<g class="plot">{_scaled(sample.mark(mark, [], 0.0))}</g>')
        parts.append(_words({"text": escape(name)}, right + 52, top + 14))
    if "coloraxis" in layout:
        parts.append(_scale(layout["coloraxis"], right, margin["t"], area))
    ink = escape(str(layout["font"]["color"]), quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{ROOT}" width="{WIDTH}" '
        f'height="{height}" viewBox="0 0 {WIDTH} {height}" fill="currentColor" '
        f'style="color:{ink};max-width:none" '
        f'role="img" aria-label="{escape(_plain(layout["title"]["text"]), quote=True)}">'
        f"{STYLE}{''.join(parts)}</svg>"
    )


def _panel(suffix: str, traces: list[Any], layout: dict[str, Any]) -> Panel:
    """Return the panel whose axes have this suffix, without its annotations."""
    own = [trace for trace in traces if trace.get("xaxis", "x") == f"x{suffix}"]
    marks = [_mark(trace) for trace in own if trace["type"] in _TRACES]
    shapes = [Mark("shapes", shape) for shape in _of_panel(layout["shapes"], suffix)]
    above = [shape for shape in shapes if shape.values.get("layer") == "above"]
    below = [shape for shape in shapes if shape not in above]
    x, y = (_axis(layout[f"{letter}axis{suffix}"], letter, marks) for letter in "xy")
    return Panel(x, y, [*below, *marks, *above])


def _mark(trace: dict[str, Any]) -> Mark:
    """Return a trace as a mark with all that drawing reads."""
    numbers = {name: _numbers(trace[name]) for name in "xyz" if name in trace}
    dot = {"size": 8, "symbol": "circle", "line": {"width": 0}, **trace.get("marker", {})}
    line = {"width": 2, **trace.get("line", {})}
    return Mark("data", {"mode": "lines", **trace, **numbers, "marker": dot, "line": line})


def _scaled(marks: str) -> str:
    """Return marks, which are written in tenths of pixels."""
    return f'<g transform="scale(.1)">{marks}</g>'


def _of_panel(values: list[dict[str, Any]], suffix: str) -> list[dict[str, Any]]:
    """Return shapes or annotations of a panel, with the names of its coordinates shortened."""
    return [
        {**one, **{f"{letter}ref": one[f"{letter}ref"].partition(" ")[2] for letter in "xy"}}
        for one in values
        if one.get("xref", "x").partition(" ")[0] == f"x{suffix}"
    ]


def _axis(values: dict[str, Any], letter: str, marks: list[Mark]) -> Axis:
    """Return an axis with all its labels."""
    log = values.get("type") == "log"
    if "range" in values:
        low, high = (10**end if log else end for end in values["range"])
    else:
        numbers = np.concatenate([mark.values[letter] for mark in marks])
        low, high = np.nanmin(numbers), np.nanmax(numbers)
        low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    ticks = values.get("tickvals")
    if ticks is None:
        step = 10 ** np.floor(np.log10(abs(high - low) / 2))
        step *= next(s for s in (1, 2, 5, 10) if abs(high - low) / (step * s) <= 7)
        first, last = np.ceil(min(low, high) / step), np.floor(max(low, high) / step)
        ticks = [float(f"{step * n:.6g}") for n in range(int(first), int(last) + 1)]
    texts = [
        _plain(str(text))
        for text in values.get("ticktext") or [f"{v:,g}".replace("-", "−") for v in ticks]
    ]
    texts = [""] * len(texts) if values.get("showticklabels") is False else texts
    title = _plain(values.get("title", {}).get("text", ""))
    style = {"grid": values.get("showgrid", True), "angle": values.get("tickangle", 0)}
    visible = values.get("visible", True)
    texts = [escape(text) for text in texts]
    return Axis(float(low), float(high), title, ticks, texts, log=log, visible=visible, **style)


def _contents(canvas: Canvas, layout: dict[str, Any]) -> str:
    """Return the axes and marks of a panel."""
    parts = []
    for mark in canvas.panel.marks:
        colors, scale = [], mark.values
        if mark.values.get("type") == "heatmap":
            scale = layout["coloraxis"] if "coloraxis" in scale else {"cmin": 0, "cmax": 1, **scale}
            colors = [color for _, color in scale["colorscale"]]
            z = (mark.values["z"] - scale["cmin"]) / (scale["cmax"] - scale["cmin"])
            mark = Mark("data", {**mark.values, "z": z})
        parts.append(canvas.mark(mark, colors, 0.0))
    return f'<g class="plot">{canvas.axes()}{_scaled("".join(parts))}</g>'


def _annotation(values: dict[str, Any], canvas: Canvas) -> str:
    """Return a text of a panel."""
    places = []
    for letter, axis in (("x", canvas.panel.x), ("y", canvas.panel.y)):
        place = values[letter]
        if values[f"{letter}ref"] == WHOLE:
            place = axis.ends[round(place)]
        elif axis.log:
            place = 10**place
        places.append(getattr(canvas, letter)(place) / 10)
    n_lines, size = values["text"].count("<br>") + 1, values["font"]["size"]
    up = {"top": 0, "middle": n_lines / 2, "bottom": n_lines}[values.get("yanchor", "middle")]
    x = places[0] + values.get("xshift", 0) + values.get("ax", 0)
    y = places[1] - values.get("yshift", 0) + values.get("ay", 0) + size * (1 - _LINE * up)
    return _words(values, x, y, values.get("xanchor", "center"))


def _words(values: dict[str, Any], x: float, y: float, side: str = "left") -> str:
    """Return lines of text, of which the first one stands at a place."""
    size = values.get("font", {}).get("size", 12)
    lines = []
    for number, line in enumerate(values.get("text", "").split("<br>")):
        pieces = re.split(r"(<[^>]*>)", line)
        words = "".join(_TAGS.get(p, _span(p)) if p[:1] == "<" else _safe(p) for p in pieces)
        dy = f"{size * _LINE * number:g}"
        lines.append(f'<text y="{dy}" style="text-anchor:{_SIDES[side]}">{words}</text>')
    style = f"font-size:{size}px"
    return f'<g transform="translate({x:g} {y:g})" style="{style}">{"".join(lines)}</g>'


_TAGS = {"<b>": '<tspan font-weight="bold">', "</b>": "</tspan>", "</span>": "</tspan>"}


def _span(tag: str) -> str:
    """Return the tag of a styled part of a text; nothing for other tags."""
    style = re.fullmatch(r'<span(?: style="([^"]*)")?.*>', tag)
    if style is None:
        return ""
    return f'<tspan style="{escape(unescape(style[1] or "").replace("color:", "fill:"))}">'


def _safe(text: str) -> str:
    """Return plain text as escaped XML."""
    return escape(unescape(text))


def _plain(text: str) -> str:
    """Return a text of Plotly's without its tags."""
    return unescape(re.sub(r"<[^>]*>", " " if "<br>" in text else "", text))


def _numbers(values: Any) -> np.ndarray:
    """Return the numbers of a trace, which Plotly may have packed."""
    if not isinstance(values, dict):
        return np.asarray(values, np.float64)
    numbers = np.frombuffer(b64decode(values["bdata"]), values["dtype"]).astype(np.float64)
    return numbers.reshape([int(n) for n in str(values.get("shape", numbers.size)).split(",")])


def _scale(values: dict[str, Any], right: float, top: float, height: float) -> str:
    """Return the scale of colours beside the panels."""
    ends = f"{values['cmin']:.3g}", f"{values['cmax']:.3g}"
    texts = values["colorbar"].get("ticktext") or ends
    panel = Panel(Axis(-0.5, 0.5), Axis(63.5, -0.5), [], height=round(height))
    shades = cells([0], range(64), np.linspace(1, 0, 64)[:, None], tips=[])
    canvas = Canvas(panel, right + 4, right + 12, top)
    marks = canvas.mark(shades, [color for _, color in values["colorscale"]], 0.0)
    small = {"font": {"size": 10}}
    return (
        _scaled(marks)
        + _words({"text": _safe(str(texts[-1])), **small}, right + 2, top - 3)
        + _words({"text": _safe(str(texts[0])), **small}, right + 2, canvas.bottom + 11)
    )
