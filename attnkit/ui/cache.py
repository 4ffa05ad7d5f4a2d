"""Caches of what is computed for pages, which all visitors and several threads share.

A snapshot never changes and is one object for all its visitors, so what is drawn of it is kept by
its identity, and only as long as the snapshot, which nothing here keeps alive. Callers must not
change what these functions return.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import lru_cache, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import numpy as np

from attnkit.analysis import reasons
from attnkit.analysis.responses import Example
from attnkit.figures import board as boards
from attnkit.figures import curves, example
from attnkit.figures.example import thumbnail
from attnkit.foundation.language import language
from attnkit.tasks import TASKS
from attnkit.training import summary
from attnkit.training.joining import join_snapshots
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant

T = TypeVar("T")


class Cache(Generic[T]):
    """Values by key; beyond its limits, the least recently used are dropped first.

    Args:
    """

    def __init__(
        self, most: int, most_bytes: float = math.inf, size_of: Callable[[T], int] = lambda _: 0
    ) -> None:
        self._most, self._most_bytes, self._size_of = most, most_bytes, size_of
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self.n_bytes = 0

    def get(self, key: Hashable) -> T | None:
        """Return the value of a key; None if there is none, or none any more."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Hashable, value: T) -> T:
        """Keep a value, and return it; a value beyond the limits by itself is not kept."""
        size = self._size_of(value)
        with self._lock:
            if size > self._most_bytes:
                return value
            self.n_bytes += size - self._kept.pop(key, (value, 0))[1]
            self._kept[key] = value, size
            while len(self._kept) > self._most or self.n_bytes > self._most_bytes:
                self.n_bytes -= self._kept.popitem(last=False)[1][1]
        return value


_MOST_RESULTS = 40
"""Cached results of one snapshot, which has a map per seed, layer and head; and of examples."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

_CACHE: weakref.WeakKeyDictionary[Snapshot, Cache[Any]] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def cached_with_snapshot(
    function: Callable[Concatenate[Snapshot, _P], _T],
) -> Callable[Concatenate[Snapshot, _P], _T]:
    """Cache the results of a function of a snapshot for as long as the snapshot is in use.

    A result must not refer to the snapshot. Other arguments are compared as values, other snapshots
    by identity.
    """

    @wraps(function)
    def cached(snapshot: Snapshot, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        named = ((name, _key_of(value)) for name, value in sorted(kwargs.items()))
        key = (function, language(), *map(_key_of, args), *named)
        with _LOCK:
            results = _CACHE.setdefault(snapshot, Cache(_MOST_RESULTS))
        kept = results.get(key)
        if kept is None:  # two threads may compute it at once: no harm
            kept = results.put(key, (function(snapshot, *args, **kwargs),))
        value: _T = kept[0]
        return value

    return cached


def _key_of(value: Any) -> Any:
    """Return an argument as part of a key that keeps no other snapshot alive."""
    return weakref.ref(value) if isinstance(value, Snapshot) else value


def cached_by_language(most: int) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Cache up to `most` results of a function for its arguments and the reader's language."""

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @lru_cache(most)
        def kept(_code: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
            return function(*args, **kwargs)

        @wraps(function)
        def cached(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            return kept(language(), *args, **kwargs)  # type: ignore[arg-type]

        return cached

    return decorate


plot_metric = cached_with_snapshot(curves.plot_metric)
plot_attention_measures = cached_with_snapshot(curves.plot_attention_measures)
board = cached_with_snapshot(boards.board)
finding = cached_with_snapshot(summary.finding)
measures_finding = cached_with_snapshot(summary.measures_finding)
headline = cached_with_snapshot(reasons.headline)
slice_table = cached_with_snapshot(summary.slice_table)
sharing_table = cached_with_snapshot(summary.sharing_table)
example_cells = cached_by_language(_MOST_RESULTS)(example.example_cells)
planned_board = cached_by_language(_MOST_RESULTS)(boards.planned_board)


@cached_with_snapshot
def curves_only(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot without its attention patterns, which may be large, for its curves only."""
    shape = snapshot.probe.pattern.shape
    no_pattern = np.empty((*shape[:-2], 0, 0), snapshot.probe.pattern.dtype)
    return replace(snapshot, probe=replace(snapshot.probe, pattern=no_pattern, scores=None))


def with_variants(snapshot: Snapshot, variants: tuple[Variant, ...]) -> Snapshot:
    """Return a snapshot with some of its variants only; the snapshot itself if they are all."""
    all_are_shown = variants == snapshot.experiment.sharing
    return snapshot if all_are_shown else _with_variants(snapshot, variants)


@cached_with_snapshot
def _with_variants(snapshot: Snapshot, variants: tuple[Variant, ...]) -> Snapshot:
    return join_snapshots(snapshot.experiment.replace(sharing=list(variants)), [snapshot])


@cached_by_language(256)
def task_thumbnail(name: str, example: Example | str | None) -> str:
    """Return the thumbnail of a task at its defaults; empty without an example, or on an error."""
    if not isinstance(example, Example):
        return ""
    try:
        return thumbnail(TASKS[name](), example)
    except Exception:  # a plugin may raise anything, and the page shows all other tasks
        return ""
