"""Notebooks: the bases of types that show themselves there and draw their own figures.

The drawings are in the room `notebook`, which comes last and is imported only when something is
drawn. So this is the only place through which other rooms reach it.
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
        html: str = import_module("attnkit.notebook").html_of(self)
        return html


class Plotted(Displayed):
    """Base of a type that shows itself under a notebook's cell and draws its own figures."""

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
        figure: Figure = import_module("attnkit.notebook").plot(self, kind, **options)
        return figure
