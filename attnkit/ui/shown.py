"""What a page shows of a snapshot, made once however many people watch the same run.

A snapshot never changes and is one object for all its visitors, so what was made of it is kept by
identity. Nobody may change what these functions return.
"""

from __future__ import annotations

from functools import lru_cache

from attnkit.figures import curves, maps
from attnkit.summary import finding as _finding
from attnkit.summary import sharing_table as _sharing_table

_KEPT = 4
"""So many of the newest; a snapshot that nobody watches any more should not stay in memory."""

plot_accuracy = lru_cache(_KEPT)(curves.plot_accuracy)
plot_attention_measures = lru_cache(_KEPT)(curves.plot_attention_measures)
attention_maps = lru_cache(_KEPT)(maps.attention_maps)
finding = lru_cache(_KEPT)(_finding)
sharing_table = lru_cache(_KEPT)(_sharing_table)
