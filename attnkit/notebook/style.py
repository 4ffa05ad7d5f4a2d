"""Frame of the cards that notebooks show: scoped style sheet, table and list of facts.

Cards have no script, no identifiers and no background. All text and lines have the colour of the
text around them, so that cards follow the theme of JupyterLab, VS Code, marimo and Colab alike.
Every selector begins with a class whose name contains a hash of the style sheet, so that the cards
of other versions on the same page do not change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from html import escape

from attnkit.foundation.tables import html_table

_RULES = """
& { display: block; box-sizing: border-box; max-width: 1240px; padding: 4px 2px; color: inherit;
  font: 13px/1.45 system-ui, -apple-system, "Segoe UI", sans-serif; text-align: left;
  overflow-wrap: anywhere; }
& * { box-sizing: border-box; }
& p { margin: 4px 0; padding: 0; max-width: 80em; }
& .title { font-size: 15px; font-weight: 600; }
& ul { margin: 4px 0; padding-left: 20px; max-width: 80em; }
& .quiet { opacity: .8; }
& .small { font-size: 12px; }
& .swatch { display: inline-block; width: 10px; height: 10px; margin-right: 6px; border: 1px
  solid currentColor; border-radius: 2px; }
& .wide { overflow-x: auto; }
& table { border-collapse: collapse; margin: 8px 0; font: inherit; color: inherit; border: 0;
  table-layout: auto; width: auto; }
& tr, & tr:nth-child(even), & tr:hover { background: none; }
& th, & td { padding: 3px 14px 3px 0; border: 0; border-bottom: 1px solid color-mix(in srgb,
  currentColor 25%, transparent); text-align: right; vertical-align: baseline; font: inherit;
  font-variant-numeric: tabular-nums; white-space: nowrap; max-width: none; color: inherit;
  background: none; }
& th { font-weight: 600; vertical-align: bottom; white-space: normal; overflow-wrap: normal; }
& :is(th, td):first-child { text-align: left; }
& .worded :is(th, td) { text-align: left; white-space: normal; min-width: 7em; }
& .worded td:first-child { min-width: 16em; }
& .untrusted { display: none; }
& .drawing { display: block !important; }
& .grid { display: grid !important; gap: 14px; margin: 10px 0; align-items: start; }
& .column { min-width: 0; }
& .head { display: flex; gap: 12px; min-height: 70px; }
& .head > div { min-width: 0; }
& .bar { height: 6px; border: 1px solid currentColor; border-radius: 3px; max-width: 420px;
  margin: 6px 0; }
& .bar > span { display: block; height: 100%; background: currentColor; }
& svg { display: block; margin: 0; }
& svg text { fill: currentColor; font-family: system-ui, -apple-system, "Segoe UI", sans-serif; }
& path:not([fill]) { fill: none; }
& .ak-diagram { flex: none; width: auto; height: 66px; max-width: 50%; }
& .ak-diagram text { font-size: 13px; font-weight: 600; text-anchor: middle; }
& .ak-diagram .ak-matrix { fill: #fff; stroke: rgba(0,0,0,.55); stroke-width: 2px; paint-order:
  stroke; }
& .ak-diagram .ak-token { font-style: italic; font-size: 15px; }
& .ak-diagram .ak-small { font-size: 9.5px; font-weight: 500; }
& .ak-diagram .ak-mark rect { fill: #fff; stroke-width: 1.5px; }
& .ak-diagram .ak-mark text { font-size: 9px; fill: #222; }
& .ak-diagram .ak-role { fill: none; stroke: currentColor; }
& .ak-thumb { width: 168px; flex: none; }
& .ak-thumb text { text-anchor: middle; }
& .ak-thumb .ak-said { fill: none; stroke: currentColor; stroke-opacity: .4; }
& .ak-thumb .ak-asks { fill: currentColor; fill-opacity: .1; stroke: currentColor;
  stroke-dasharray: 3 2; }
& .ak-thumb .ak-held { fill: none; stroke: currentColor; stroke-width: 2; }
& .ak-thumb .ak-answer { font-weight: 700; }
& .ak-thumb .ak-other { opacity: .75; }
& .ak-thumb .ak-arc { stroke: currentColor; stroke-opacity: .75; stroke-width: 1.6px; }
"""

ROOT = f"attnkit-{hashlib.blake2b(_RULES.encode(), digest_size=3).hexdigest()}"
"""Class of a card's outermost element."""

STYLE = f"<style>{' '.join(_RULES.split()).replace('&', f'.{ROOT}.{ROOT}')}</style>"
"""Style sheet of all cards.

The class stands twice in each selector, so that it has more weight than a notebook's own rules.
"""


_UNTRUSTED = (
    '<p class="untrusted">Drawings are not shown, since this notebook is not trusted. '
    "Trust it, or run it again.</p>"
)
"""Note that stands in place of the drawings where a notebook removes style sheets and drawings.

JupyterLab does so in a notebook that it does not trust, but keeps the texts within drawings. So
these are hidden by a style of their own, which the style sheet undoes. The attribute `hidden` would
not do, since marimo's own style sheet lets nothing undo it.
"""


def card(title: str, *parts: str) -> str:
    """Return a card.

    Args:
        title: Title as a plain text.
        *parts: Parts below the title, as HTML.
    """
    heading = f'<p class="title">{escape(title)}</p>'
    name = escape(title, quote=True)
    body = "".join(parts)
    return f'<div class="{ROOT}" role="group" aria-label="{name}">{STYLE}{heading}{body}</div>'


def paragraph(text: str, css_class: str = "") -> str:
    """Return a paragraph with a plain text; nothing if the text is empty."""
    attribute = f' class="{css_class}"' if css_class else ""
    return f"<p{attribute}>{escape(text)}</p>" if text else ""


def swatch(color: str) -> str:
    """Return a square in a colour, hidden from screen readers."""
    return f'<span class="swatch" style="background:{color}" aria-hidden="true"></span>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], worded: bool = False) -> str:
    """Return a table that scrolls sideways where it is too wide.

    Args:
        columns: Headings as plain texts.
        rows: Cells as HTML.
        worded: Whether cells hold sentences, which are aligned on the left and wrapped.
    """
    inner = html_table([escape(c) for c in columns], rows, css_class="worded" if worded else "")
    label = escape(columns[0], quote=True)
    return f'<div class="wide" role="region" tabindex="0" aria-label="Table: {label}">{inner}</div>'


def drawing(svg: str) -> str:
    """Return a drawing that a notebook hides where it removes drawings; nothing for nothing."""
    return f'<div class="drawing" style="display:none">{svg}</div>' if svg else ""


def grid(columns: Iterable[str], width: int) -> str:
    """Return columns side by side, wrapped where there is no space.

    Args:
        columns: Columns as HTML.
        width: Smallest width of a column in pixels.
    """
    template = f"repeat(auto-fill,minmax(min(100%,{width}px),1fr))"
    style = f"display:none;grid-template-columns:{template}"
    return f'<div class="grid" style="{style}">{"".join(columns)}</div>{_UNTRUSTED}'
