"""What a page shows of a snapshot, made once however many people watch the same run.

A snapshot never changes and is one object for all its visitors, so what was made of it is kept by
identity, and no longer than the snapshot itself, which nothing here keeps alive. Nobody may change
what these functions return.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from attnkit.analysis.reasons import headline as _headline
from attnkit.analysis.responses import Example
from attnkit.experiment import Experiment
from attnkit.figures import board as boards
from attnkit.figures import curves
from attnkit.figures.example import example_cells as _example_cells
from attnkit.figures.thumbnail import thumbnail
from attnkit.tasks import TASKS
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import finding as _finding
from attnkit.training.summary import measures_finding as _measures_finding
from attnkit.training.summary import sharing_table as _sharing_table
from attnkit.training.summary import slice_table as _slice_table

_KEPT = 40
"""So many of the newest: of one snapshot, which has a map per seed, layer and head; of examples."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

_Made = OrderedDict[tuple[Any, ...], Any]

_MADE: weakref.WeakKeyDictionary[Snapshot, _Made] = weakref.WeakKeyDictionary()
_MAKING = threading.Lock()


def once(
    function: Callable[Concatenate[Snapshot, _P], _T],
) -> Callable[Concatenate[Snapshot, _P], _T]:
    """What a function makes of a snapshot, kept while the snapshot is somewhere in use.

    The result must not hold the snapshot. Other arguments are compared as values, other snapshots
    by identity.
    """

    @wraps(function)
    def made(snapshot: Snapshot, /, *args: _P.args, **given: _P.kwargs) -> _T:
        key = (function, *map(_told, args), *((n, _told(v)) for n, v in sorted(given.items())))
        with _MAKING:
            known = _MADE.setdefault(snapshot, OrderedDict())
            if key in known:
                known.move_to_end(key)
                value: _T = known[key]
                return value
        value = function(snapshot, *args, **given)  # two may make it at once, which does no harm
        with _MAKING:
            known[key] = value
            while len(known) > _KEPT:
                known.popitem(last=False)
        return value

    return made


def _told(value: Any) -> Any:
    """An argument as part of a key that keeps no other snapshot alive."""
    return weakref.ref(value) if isinstance(value, Snapshot) else value


plot_accuracy = once(curves.plot_accuracy)
plot_loss = once(curves.plot_loss)
plot_attention_measures = once(curves.plot_attention_measures)
board = once(boards.board)
finding = once(_finding)
measures_finding = once(_measures_finding)
headline = once(_headline)
slice_table = once(_slice_table)
sharing_table = once(_sharing_table)
example_cells = lru_cache(_KEPT)(_example_cells)


@once
def curves_only(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot without its attention, which may be large, as faded ones are kept."""
    shape = snapshot.probe.pattern.shape
    nothing = np.empty((*shape[:-2], 0, 0), snapshot.probe.pattern.dtype)
    return replace(snapshot, probe=replace(snapshot.probe, pattern=nothing, scores=None))


@lru_cache(_KEPT)
def planned_board(experiment: Experiment) -> dict[str, Any]:
    """Draw the board of an experiment of which nothing is trained."""
    return boards.planned_board(experiment)


@lru_cache(256)
def task_thumbnail(name: str, example: Example) -> str:
    """Of a task at its defaults; empty if a task of one's own cannot label it."""
    try:
        return thumbnail(TASKS[name](), example)
    except Exception:  # it may raise anything, and the page is everyone's
        return ""
