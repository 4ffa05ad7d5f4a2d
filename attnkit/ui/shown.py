"""What a page shows of a snapshot, made once however many people watch the same run.

A snapshot never changes and is one object for all its visitors, so what was made of it is kept by
identity. Nobody may change what these functions return.
"""

from __future__ import annotations

from functools import lru_cache

from attnkit.figures import curves, maps
from attnkit.figures.example import example_cells as _example_cells
from attnkit.figures.thumbnail import thumbnail
from attnkit.live.views import Example
from attnkit.summary import finding as _finding
from attnkit.summary import sharing_table as _sharing_table
from attnkit.summary import slice_table as _slice_table
from attnkit.tasks import TASKS

_KEPT = 40
"""So many of the newest: one for each experiment that a class watches."""

plot_accuracy = lru_cache(_KEPT)(curves.plot_accuracy)
plot_loss = lru_cache(_KEPT)(curves.plot_loss)
plot_attention_measures = lru_cache(_KEPT)(curves.plot_attention_measures)
attention_maps = lru_cache(_KEPT)(maps.attention_maps)
finding = lru_cache(_KEPT)(_finding)
slice_table = lru_cache(_KEPT)(_slice_table)
sharing_table = lru_cache(_KEPT)(_sharing_table)
example_cells = lru_cache(_KEPT)(_example_cells)


@lru_cache(256)
def task_thumbnail(name: str, example: Example) -> str:
    """Of a task at its defaults; empty if a task of one's own cannot label it."""
    try:
        return thumbnail(TASKS[name](), example)
    except Exception:  # it may raise anything, and the page is everyone's
        return ""
