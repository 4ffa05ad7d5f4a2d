"""What pages show is made once for all who watch, and kept no longer than what it was made of."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from finished import one_variant

from attnkit.figures.curves import plot_accuracy as draw_accuracy
from attnkit.figures.curves import plot_loss as draw_loss
from attnkit.ui.components import Packed
from attnkit.ui.render_cache import (
    _CACHE,
    _MOST_RESULTS,
    board,
    cached_with_snapshot,
    curves_only,
    finding,
    plot_accuracy,
    plot_loss,
    sharing_table,
)

RISING = [[0.1, 0.2], [0.5, 0.6], [0.9, 1.0]]


@pytest.fixture
def snapshot():
    """One that nobody else has."""
    return one_variant(RISING)


def test_what_was_made_of_a_snapshot_is_the_same_object(snapshot):
    """For all arguments that it was made with; snapshots count by identity."""
    assert plot_accuracy(snapshot, None) is plot_accuracy(snapshot, None)
    assert board(snapshot, snapshot.experiment, 0, 0, 0) is board(
        snapshot, snapshot.experiment, 0, 0, 0
    )
    assert board(snapshot, snapshot.experiment, 1, 0, 0) is not board(
        snapshot, snapshot.experiment, 0, 0, 0
    )
    assert plot_loss(snapshot, None) is not plot_loss(one_variant(RISING), None)
    one, two = one_variant(RISING, d_head=5), one_variant(RISING, d_head=5)
    assert plot_accuracy(snapshot, one) is plot_accuracy(snapshot, one)
    assert plot_accuracy(snapshot, one) is not plot_accuracy(snapshot, two)
    assert plot_accuracy(snapshot, one) == draw_accuracy(snapshot, one)

    def show(_):  # every visitor's page runs in a thread of its own
        start.wait()
        return [board(snapshot, snapshot.experiment, seed, 0, 0)["columns"] for seed in (0, 1)]

    start = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        shown = list(pool.map(show, range(8)))
    assert all(drawn == shown[0] for drawn in shown)


def test_a_snapshot_that_nobody_has_any_more_is_not_kept():
    """However often the page was drawn while a run went on, beside whichever other."""
    snapshot, previous = one_variant(RISING), one_variant(RISING, d_head=5)
    gone = [weakref.ref(snapshot), weakref.ref(previous)]
    for show in (finding, sharing_table, curves_only):
        show(snapshot)
    board(snapshot, snapshot.experiment, 0, 0, 0)
    plot_accuracy(snapshot, previous)
    del previous
    gc.collect()
    assert gone[1]() is None
    n_kept = len(_CACHE)
    del snapshot, show
    gc.collect()
    assert gone[0]() is None
    assert len(_CACHE) < n_kept


def test_of_one_snapshot_the_newest_drawings_are_kept(snapshot):
    """Whoever tries all seeds, layers and heads fills no memory."""
    made = []

    @cached_with_snapshot
    def count(_, number):
        made.append(number)
        return number

    for number in range(_MOST_RESULTS + 1):
        assert count(snapshot, number) == number
    assert len(_CACHE[snapshot]) == _MOST_RESULTS
    count(snapshot, _MOST_RESULTS)
    count(snapshot, 0)
    assert made == [*range(_MOST_RESULTS + 1), 0]


def test_what_failed_is_tried_again(snapshot):
    """A drawing that cannot be made is not kept as one."""
    tries = []

    @cached_with_snapshot
    def fails(_):
        tries.append(1)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            fails(snapshot)
    assert len(tries) == 2


def test_what_fades_has_its_curves_and_no_attention(snapshot):
    """One for all whose run it was; figures draw it as the whole."""
    fading, other = curves_only(snapshot), one_variant(RISING, d_head=5)
    assert fading is curves_only(snapshot)
    assert fading.probe.pattern.size == 0
    assert fading.probe.scores is None
    assert snapshot.probe.pattern.size > 0
    assert draw_accuracy(other, fading) == draw_accuracy(other, snapshot)
    assert draw_loss(other, fading) == draw_loss(other, snapshot)


def test_a_drawing_is_packed_once():
    """As long as it is the same object with the same words beside it."""
    packed, drawing = Packed(1000), {"a": 1}
    one = packed.of(drawing, lambda: drawing, "words")
    assert one == b'{"a":1}'
    assert packed.of(drawing, dict, "words") is one
    assert packed.of(drawing, dict, "others") == b"{}"
    assert packed.of({"a": 1}, dict, "words") == b"{}"


def test_packed_drawings_are_bounded_by_their_bytes():
    """The least recently used go first; one that is too large is packed all the same."""
    packed, drawings = Packed(100), [{"text": number * "x"} for number in range(20, 24)]
    one, two, three, four = (lambda d=d: d for d in drawings)
    packed.of(drawings[0], one)
    kept = packed.of(drawings[1], two)
    packed.of(drawings[2], three)
    assert packed.of(drawings[1], dict) is kept
    packed.of(drawings[3], four)
    assert packed.n_bytes <= 100
    assert packed.of(drawings[1], dict) is kept
    assert packed.of(drawings[0], dict) == b"{}"
    assert len(packed.of([], lambda: {"text": "x" * 500})) > 500
    assert packed.n_bytes == 0
