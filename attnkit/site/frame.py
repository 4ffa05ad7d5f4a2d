"""What all pages of the static site share: the navigation, the way into the Lab, and the style."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

from plotly.graph_objects import Figure

from attnkit.analysis.export import command_line
from attnkit.experiment import Experiment
from attnkit.experiment.links import link_text
from attnkit.foundation.tables import html_list
from attnkit.ui.server.launch import PORT
from attnkit.ui.standalone import asset, page_html

LOCAL_LAB = f"http://localhost:{PORT}"
"""Address of the Lab on the reader's own machine."""

INSTALL = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/attnkit"
"""Command that installs and opens the dashboard at this address, in a copy of the repository."""

NAVIGATION = {
    "index.html": "Lab",
    "answers.html": "Answers",
    "lessons.html": "Lessons",
    "attention.html": "Attention",
    "asymmetry.html": "Asymmetry",
    "similarity.html": "Similarity",
    "capacity.html": "Capacity",
    "atlas.html": "Real models",
}
"""Pages of the navigation: title by file name."""

PLOTLY = "plotly.min.js"
"""Name of the file of the library that draws figures, which lies beside the pages."""

_DRAW = """
const figures = [...document.querySelectorAll(".ak-plotly")];
for (const node of figures) {
  const { data, layout } = JSON.parse(node.querySelector("script").textContent);
  node.replaceChildren();
  Plotly.newPlot(node, data, layout, { displayModeBar: false, responsive: true });
}
function color() { // texts in the colour of the page, which is light or dark
  for (const node of figures)
    Plotly.relayout(node, { "font.color": getComputedStyle(node).color });
}
color();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", color);
"""
"""Script that draws the figures of a page."""

STYLE = """
body { line-height: 1.5; overflow-wrap: break-word; }
a { color: var(--st-primary-color); }
:is(a, summary, .ak-wide):focus-visible { outline: 2px solid var(--st-primary-color);
  outline-offset: 2px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 12px 0 8px; }
h2 { font-size: 1.2rem; margin: 28px 0 6px; }
h3 { font-size: 1rem; margin: 18px 0 6px; }
p, li { max-width: 46em; }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 18px; list-style: none; margin: 0;
  padding: 0 0 8px; border-bottom: 1px solid var(--st-border-color); }
nav a { display: inline-block; padding: 6px 0; text-decoration: none; }
nav a[aria-current] { font-weight: 600; text-decoration: underline; }
.ak-skip { position: absolute; left: -999px; }
.ak-skip:focus { left: 8px; top: 8px; padding: 6px 12px; background: var(--st-background-color); }
.ak-train { display: inline-block; padding: 8px 16px; border-radius: 8px; font-weight: 600;
  color: var(--st-background-color); background: var(--st-primary-color); text-decoration: none; }
.ak-lead { font-weight: 600; font-size: 1.05rem; }
.ak-wide td, .ak-wide th { padding: 4px 12px; text-align: right; }
.ak-wide :is(td, th):first-child { padding-left: 0; text-align: left; }
.ak-tasks { display: grid; gap: 12px; padding: 0; list-style: none;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 250px), 1fr)); }
.ak-tasks li { border: 1px solid var(--st-border-color); border-radius: 8px; padding: 10px 12px; }
.ak-tasks p { margin: 4px 0 0; font-size: .92rem; }
.ak-wide { overflow-x: auto; }
.ak-plotly { min-width: 760px; }
@media (scripting: none) { .ak-plotly { height: auto !important; } }
.ak-answer [role=group] > style + .title { display: none; } /* the page has it already */
footer { margin-top: 40px; padding-top: 8px; border-top: 1px solid var(--st-border-color);
  font-size: .9rem; }
@page { margin: 14mm; }
@media print {
  nav, .ak-skip, .ak-again { display: none; }
  html { font-size: 13px; } /* a lesson then fits on two sheets */
  body { padding: 0; }
  p, li { max-width: none; }
}
"""


@dataclass(frozen=True)
class Page:
    """A page of the site.

    Attributes:
        file: Name of its file.
        title: Title as a plain text.
        body: Content below the title, as HTML.
        embedded: Content of the file that stands in a frame of another page; empty if there is
            none.
    """

    file: str
    title: str
    body: str
    embedded: str = field(default="", repr=False)

    @property
    def embed_file(self) -> str:
        """Name of the file that stands in a frame of another page."""
        return f"embed_{self.file}"


def html_of(page: Page) -> str:
    """Return a page with its navigation."""
    items = []
    for file, title in NAVIGATION.items():
        current = ' aria-current="page"' if file == page.file else ""
        items.append(f'<a href="{file}"{current}>{escape(title)}</a>')
    body = f"""<a class="ak-skip" href="#main">Skip to the content</a>
<nav aria-label="Pages">{html_list(items)}</nav>
<main id="main">
<h1>{escape(page.title)}</h1>
{page.body}
{_embedding(page)}
</main>
<footer><p>Written by attnkit. The results of small models come from trainings;
<a href="answers.html">the answers</a> name their seeds and intervals.</p></footer>"""
    return page_html(page.title, body, style=asset("board.css") + STYLE)


def figure_html(figure: Figure, label: str) -> str:
    """Return a figure that a page `with_plotly` draws; it scrolls sideways on a narrow screen."""
    name = f'aria-label="{escape(label, quote=True)}"'
    return (
        f'<div class="ak-wide" role="group" tabindex="0" {name}><div class="ak-plotly" '
        f'style="height: {figure.layout.height}px">'
        f'<script type="application/json">{figure.to_json()}</script>'
        "<noscript>This figure needs scripts.</noscript></div></div>"
    )


def with_plotly(body: str) -> str:
    """Return the content of a page with the scripts that draw its figures."""
    return f'{body}<script src="{PLOTLY}"></script><script type="module">{_DRAW}</script>'


def lab_address(lab: str, query: str) -> str:
    """Return the address of a Lab with a query, which begins with "?" or is empty."""
    return f"{lab.rstrip('/')}/{query}"


def lab_button(label: str, query: str, lab: str, terminal: str = "") -> str:
    """Return a button that opens a Lab, and how to start one.

    Args:
        label: Text of the button.
        query: Query of the link; it begins with "?" or is empty.
        lab: Address of a Lab.
        terminal: Command that does the same in a terminal; empty if there is none.
    """
    address = escape(lab_address(lab, query), quote=True)
    place = "a Lab on your own machine" if lab == LOCAL_LAB else "the Lab"
    if terminal:
        terminal = f"<p>Or train in a terminal:</p><pre>{escape(terminal)}</pre>"
    return f"""<p class="ak-again"><a class="ak-train" href="{address}">{escape(label)}</a></p>
<details class="ak-again"><summary>It opens {place}. How to start one</summary>
<p>In a copy of the repository of attnkit, install and open the dashboard. Then press the button
again.</p><pre>{escape(INSTALL)}</pre>{terminal}</details>"""


def train_yourself(experiment: Experiment, lab: str) -> str:
    """Return the button that opens the Lab with an experiment, and how to start a Lab.

    Args:
        experiment: The experiment.
        lab: Address of a Lab.
    """
    terminal = command_line(experiment)
    return lab_button("Train this yourself", link_text(experiment), lab, terminal)


def paragraphs(texts: Iterable[str], css_class: str = "") -> str:
    """Return plain texts as paragraphs; empty ones are left out."""
    attribute = f' class="{css_class}"' if css_class else ""
    return "".join(f"<p{attribute}>{escape(text)}</p>" for text in texts if text)


def _embedding(page: Page) -> str:
    """Return how to show the figure of a page elsewhere; empty if it has no file for that."""
    if not page.embedded:
        return ""
    line = (
        f'<iframe src="{page.embed_file}" title="{escape(page.title, quote=True)}" width="100%" '
        'height="720" loading="lazy" style="border:0"></iframe>'
    )
    return (
        '<details class="ak-again"><summary>Show this figure on your own page</summary>'
        "<p>Put this line into your page, with the address of this site before the name of the "
        f'file, or copy <a href="{page.embed_file}">the file</a>.</p><pre>{escape(line)}</pre>'
        "</details>"
    )
