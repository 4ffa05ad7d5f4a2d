"""Notebooks: the bases of types that show themselves there and draw their own figures.

Cards and figures are in the room `notebook`, which comes last and is imported only when something
is drawn. So this is the only place through which other rooms reach it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def jupyter_shell() -> Any | None:
    """Return the shell of the Jupyter kernel that this process is; None if it is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if getattr(shell, "kernel", None) is None else shell  # terminals have no kernel


class Displayed:
    """Base of a type that shows itself under a notebook's cell."""

    def _repr_html_(self) -> str:
        """Return a self-contained piece of HTML for a notebook."""
        html: str = import_module("attnkit.notebook.cards").card_of(self)
        return html


class NoFigure(ValueError):
    """Error of a value without any figure, such as a claim that was never tested."""


class Plotted(Displayed):
    """Base of a type that shows itself with its first figure below a notebook's cell."""

    def plot(self, kind: str = "", **options: Any) -> Figure:
        """Return an interactive figure, which notebooks show and whose `show` opens a browser.

        Args:
            kind: Name of the figure; an empty text stands for the first one. A wrong name raises
                an error that lists the allowed ones.
            **options: Options of the figure, such as `seed`, `layer` and `head` of an attention
                map; and `theme`: "light", "dark", or None for colours that suit both.

        Raises:
            ValueError: If the kind or an option is not allowed.
        """
        figure: Figure = import_module("attnkit.notebook.plots").plot(self, kind, **options)
        return figure

    def _ipython_display_(self) -> None:
        """Show the card and below it the first figure in Jupyter.

        Raises:
            NotImplementedError: If this is no kernel; IPython then writes the value as a text.
        """
        shell = jupyter_shell()
        if shell is None:
            raise NotImplementedError
        shell.display_pub.publish({"text/html": self._repr_html_(), "text/plain": repr(self)})
        figure = self._first_figure()
        if figure is not None:
            shell.display_pub.publish(in_jupyter(figure))

    def _display_(self) -> Any:
        """Return the card and below it the first figure, as marimo shows them."""
        return in_marimo(self._repr_html_(), self._first_figure())

    def _first_figure(self) -> Figure | None:
        """Return the first figure; None for a value without one."""
        try:
            return self.plot()
        except NoFigure:
            return None


def in_jupyter(figure: Figure) -> dict[str, Any]:
    """Return a figure in the forms that Plotly's renderers give it, by their MIME types.

    Before the first figure of a kernel, the renderers also publish plotly.js (five megabytes).
    `Figure._repr_mimebundle_` would publish it again for every figure.
    """
    from plotly.io import renderers

    bundle: dict[str, Any] = renderers._build_mime_bundle(figure.to_dict())
    return bundle


def in_marimo(html: str, figure: Figure | None) -> Any:
    """Return a card and a figure below it as an output of marimo, which is running."""
    marimo = sys.modules["marimo"]
    card = marimo.Html(html)
    return card if figure is None else marimo.vstack([card, figure])
