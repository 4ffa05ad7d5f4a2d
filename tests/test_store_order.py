"""Order in the result store: newest listed first, least recently used forgotten first."""

from datetime import UTC

import pytest
from table_rows import put, row_of, stored

from attnkit.service import store as store_module


class Clock:
    """Stand-in for the module `time`: two clocks that a test advances."""

    def __init__(self):
        self.seconds = 1_800_000_000.0
        self.passed = 0.0

    def time_ns(self):
        """Return the wall clock, which may jump."""
        return int(self.seconds * 1e9)

    def monotonic(self):
        """Return the clock that never jumps."""
        return self.passed

    def wait(self, seconds):
        """Advance both clocks."""
        self.seconds += seconds
        self.passed += seconds


@pytest.fixture
def clock(monkeypatch):
    """The clock of the store, which the test advances."""
    made_clock = Clock()
    monkeypatch.setattr(store_module, "time", made_clock)
    return made_clock


def test_entries_come_newest_first(where, open_store, clock):
    """Entries are listed newest first, at most `limit` of them."""
    store = open_store(where)
    hashes = []
    for first_seed in range(5):
        hashes += put(store, first_seed)
        clock.wait(1)
    assert [entry.hash for entry in store.entries()] == hashes[::-1]
    assert [entry.hash for entry in store.entries(limit=2)] == hashes[:2:-1]


def test_what_was_longest_not_used_is_forgotten(where, open_store, clock):
    """The least recently used result is forgotten, unless it is pinned or has just been put."""
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
    """A result that exceeds the limit stays until the next put, and pinned ones stay."""
    store = open_store(where, megabytes=1)
    (pinned,) = put(store, 1, n_numbers=200_000)
    store.pin(pinned, True)
    (large,) = put(store, 2, n_numbers=400_000)
    assert stored(store) == {pinned, large}
    (small,) = put(store, 3)
    assert stored(store) == {pinned, small}


def test_many_reads_are_one_use_a_minute(where, open_store, clock):
    """Reads within a minute write the time of use once; a second put counts as a use, too."""
    store = open_store(where)
    key, other = put(store, 1, 2)
    used = []
    for _ in range(5):
        clock.wait(25)
        assert store.snapshot(key) is not None
        used.append(row_of(where, key).used_at)
    assert used[0] == used[1] == used[2] < used[3] == used[4]
    clock.wait(100)
    put(store, 2)
    assert row_of(where, other).used_at > row_of(where, key).used_at


@pytest.mark.parametrize("jump", [-400 * 86400, 400 * 86400], ids=["back", "forward"])
def test_a_jump_of_the_clock_keeps_the_order_of_use(where, open_store, clock, jump):
    """A jump of the wall clock keeps the order of use."""
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
