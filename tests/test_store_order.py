"""Order in the result store: newest listed first, least recently used forgotten first."""

from datetime import UTC

import pytest
from table_rows import put, row_of, stored

from attnkit.service import store as store_module


class Clock:
    """Time that goes on when a test says so, and jumps."""

    def __init__(self):
        self.seconds = 1_800_000_000.0
        self.passed = 0.0

    def time_ns(self):
        """The clock on the wall."""
        return int(self.seconds * 1e9)

    def monotonic(self):
        """The clock that never jumps."""
        return self.passed

    def wait(self, seconds):
        """Both go on."""
        self.seconds += seconds
        self.passed += seconds


@pytest.fixture
def clock(monkeypatch):
    """The store's clock, in the test's hands."""
    made_clock = Clock()
    monkeypatch.setattr(store_module, "time", made_clock)
    return made_clock


def test_entries_come_newest_first(where, open_store, clock):
    """As many as are asked for."""
    store = open_store(where)
    hashes = []
    for first_seed in range(5):
        hashes += put(store, first_seed)
        clock.wait(1)
    assert [entry.hash for entry in store.entries()] == hashes[::-1]
    assert [entry.hash for entry in store.entries(limit=2)] == hashes[:2:-1]


def test_what_was_longest_not_used_is_forgotten(where, open_store, clock):
    """Not what was read lately, nor what is pinned, nor what has just been put."""
    store = open_store(where, megabytes=1)
    hashes = []
    for first_seed in range(4):  # 0.23 MB each
        hashes += put(store, first_seed, n_numbers=60_000)
        clock.wait(100)
    assert store.pin(hashes[0], True)
    assert store.snapshot(hashes[1]) is not None
    assert store.result(hashes[2]) is not None
    (new,) = put(store, 9, n_numbers=60_000)
    assert stored(store) == {hashes[0], hashes[1], hashes[2], new}
    clock.wait(100)
    assert store.result(hashes[1]) is not None
    (newer,) = put(store, 10, n_numbers=60_000)
    assert stored(store) == {hashes[0], hashes[1], new, newer}
    assert store.n_bytes() < 2**20


def test_what_is_larger_than_the_limit_stays_until_the_next(where, open_store):
    """What has just been put is there, and pinned ones are, whatever the limit."""
    store = open_store(where, megabytes=1)
    (pinned,) = put(store, 1, n_numbers=200_000)
    store.pin(pinned, True)
    (large,) = put(store, 2, n_numbers=400_000)
    assert stored(store) == {pinned, large}
    (small,) = put(store, 3)
    assert stored(store) == {pinned, small}


def test_putting_what_is_there_counts_as_use(where, open_store, clock):
    """It has been computed again, so somebody wants it."""
    store = open_store(where)
    one, two = put(store, 1, 2)
    clock.wait(100)
    put(store, 1)
    assert row_of(where, one).used_at > row_of(where, two).used_at


def test_many_reads_are_one_use_a_minute(where, open_store, clock):
    """Reading does not write each time."""
    store = open_store(where)
    (key,) = put(store, 1)
    used = []
    for _ in range(5):
        clock.wait(25)
        assert store.snapshot(key) is not None
        used.append(row_of(where, key).used_at)
    assert used[0] == used[1] == used[2] < used[3] == used[4]


@pytest.mark.parametrize("jump", [-400 * 86400, 400 * 86400], ids=["back", "forward"])
def test_a_jump_of_the_clock_keeps_the_order_of_use(where, open_store, clock, jump):
    """What was used after it is the most recent all the same; nothing fresh is forgotten."""
    store = open_store(where, megabytes=1)
    one, two = put(store, 1, 2, n_numbers=60_000)
    clock.wait(100)
    clock.seconds += jump
    (three,) = put(store, 3, n_numbers=60_000)
    clock.wait(100)
    assert store.snapshot(one) is not None
    clock.seconds -= jump
    (four,) = put(store, 4, n_numbers=60_000)
    uses = [row_of(where, key).used_at for key in (two, three, one, four)]
    assert uses == sorted(set(uses))
    (five,) = put(store, 5, n_numbers=60_000)
    assert stored(store) == {three, one, four, five}
    assert all(entry.used_at.tzinfo is UTC for entry in store.entries())
