"""The result store on SQLite and on PostgreSQL: every result that is put reads back whole."""

import contextlib
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import tiny
from same import assert_same
from searching import briefly
from sqlalchemy import event
from storing import answer, ask, made, storing
from table_rows import UNKNOWN, put, stored

from attnkit import __version__
from attnkit.service.store import LONGEST_NAME, ResultStore, StoredEntry, TooLarge, Unavailable
from attnkit.training import Training
from attnkit.training.results import Result

# put and read


@pytest.mark.parametrize("kind", ["directed", "language"])
def test_a_trained_result_reads_back(kind, tmp_path, open_store):
    """Arrays and weights read back to the bit, also of a task that reads a text."""
    training = Training(tiny(kind), "cpu")
    training.advance(8)
    result = training.result()
    store = open_store(tmp_path)
    assert store.put(*result.to_blobs())
    back = store.result(result.experiment.hash)
    assert back.experiment == result.experiment
    assert_same(back.snapshot, result.snapshot)
    assert back.to_blobs() == result.to_blobs()


def test_a_result_reads_back_from_both_databases(where, open_store):
    """Weights and snapshot read back to the bit, also over another connection."""
    result = made(3, sharing=["QKV", "K=V"], n_seeds=2)
    assert open_store(where).put(*result.to_blobs())
    for store in (open_store(where), open_store(where)):
        assert store.result(result.experiment.hash).to_blobs() == result.to_blobs()
        assert store.snapshot(result.experiment.hash).to_bytes() == result.snapshot.to_bytes()


def test_putting_again_changes_nothing(where, open_store, monkeypatch):
    """A second put of an experiment changes no byte and gives back no space."""
    store = open_store(where)
    result, other = made(1), made(1, n_numbers=6000)
    assert store.put(*result.to_blobs()) is True
    monkeypatch.setattr(store._database, "free_space", pytest.fail)
    assert store.put(*other.to_blobs()) is False
    assert store.result(result.experiment.hash).to_blobs() == result.to_blobs()
    assert len(store.entries()) == 1


def test_a_result_of_another_engine_or_processor_replaces_the_one_that_is_there(where, open_store):
    """The bits are replaced; name and pin stay."""
    store, found = open_store(where), made(1)
    store.put(*found.to_blobs())
    key = found.experiment.hash
    assert store.rename(key, "mine")
    assert store.pin(key, True)
    for change in ({"engine": "kernel"}, {"processor": "Intel AVX-512"}):
        before = found
        found = Result(dataclasses.replace(before.snapshot, **change), before.parameters)
        assert store.put(*found.to_blobs()) is True
        assert store.put(*found.to_blobs()) is False
        assert store.snapshot(key).maker == found.snapshot.maker != before.snapshot.maker
    (entry,) = store.entries()
    assert (entry.name, entry.pinned) == ("mine", True)


def test_what_is_not_a_finished_result_is_refused(where, open_store):
    """Neither what still trains nor bytes that are no snapshot or no parameters."""
    store = open_store(where)
    assert (store.entries(), store.n_bytes()) == ([], 0)
    running = made()
    object.__setattr__(running.snapshot, "status", "running")
    with pytest.raises(ValueError, match="status: got 'running', allowed 'finished'"):
        store.put(*running.to_blobs())
    snapshot, parameters = made().to_blobs()
    for blobs in ((b"nothing", parameters), (snapshot, b"nothing")):
        with pytest.raises(ValueError, match="hold no"):
            store.put(*blobs)
    assert store.entries() == []


def test_a_result_beyond_the_limit_of_one_is_refused_with_the_sizes(where, open_store):
    """A result over `result_megabytes` is refused with both sizes, and not as `Unavailable`."""
    store = open_store(where, result_megabytes=1)
    (small,) = put(store, 1)
    with pytest.raises(TooLarge, match=r"it takes 1\.2 MB, allowed at most 1 MB on this copy"):
        put(store, 2, n_numbers=300_000)
    assert stored(store) == {small}
    assert not issubclass(TooLarge, Unavailable)


def test_what_is_not_stored_is_none(where, open_store):
    """Any unknown hash reads as None and changes nothing."""
    store = open_store(where)
    put(store, 1)
    for key in (UNKNOWN, "", "ABCDEF0123456789", "a\0b", "%", "é" * 16):
        assert store.result(key) is store.snapshot(key) is store.peek(key) is None
        changed = [store.rename(key, "name"), store.pin(key, True), store.delete(key)]
        assert changed == [False] * 3


def test_a_snapshot_is_read_without_the_parameters(tmp_path, open_store):
    """No statement that reads a snapshot or an experiment reads parameters, which are larger."""
    store = open_store(tmp_path)
    result = made(1)
    store.put(*result.to_blobs())
    key, statements = result.experiment.hash, []
    engine = store._database._engine
    event.listen(
        engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2])
    )
    assert store.snapshot(key).to_bytes() == result.snapshot.to_bytes()
    assert store.experiment(key) == result.experiment
    assert any("snapshot" in statement for statement in statements)
    assert not any("parameters" in statement for statement in statements)


def test_a_look_for_a_list_counts_as_no_use(where, open_store):
    """Else a list would make all results equally recent, and the store delete the wrong ones."""
    store = open_store(where)
    result = made(1)
    store.put(*result.to_blobs())
    (before,) = store.entries()
    store._used_at.clear()
    assert store.peek(result.experiment.hash).to_bytes() == result.snapshot.to_bytes()
    assert store.entries() == [before]


def test_an_entry_says_what_is_stored(where, open_store):
    """An entry holds the settings, counts, sizes and times of its result."""
    store = open_store(where)
    result = made(7, sharing=["QKV", "Q=K"], n_seeds=2)
    blobs = result.to_blobs()
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    store.put(*blobs)
    (entry,) = store.entries()
    assert entry == StoredEntry(
        hash=result.experiment.hash,
        name="",
        task="directed",
        text=result.experiment.to_json(),
        n_runs=4,
        steps=20,
        seconds=1.5,
        version=__version__,
        n_bytes=len(blobs[0]) + len(blobs[1]),
        pinned=False,
        created_at=entry.created_at,
        used_at=entry.used_at,
    )
    assert before <= entry.created_at <= datetime.now(UTC)
    assert entry.created_at <= entry.used_at
    assert entry.experiment == result.experiment
    assert store.n_bytes() == entry.n_bytes


# lists


def test_search_looks_into_names_tasks_settings_and_hashes(where, open_store):
    """Every word of a search must stand in name, task, settings or hash, in any case."""
    store = open_store(where)
    one, two = put(store, 1, 23)
    (three,) = put(store, 1, task="mutual", sharing=["QKV", "K=V"])
    store.rename(two, "Monday's class")
    found = {
        "": {one, two, three},
        "DIRECTED": {one, two},
        "mutual": {three},
        "class monday": {two},
        "class mutual": set(),
        one[:9]: {one},
        "first_seed=1": {one, three},
        "first_seed=1 mutual": {three},
        "task=mutual": {three},
        "first_seed=2": set(),
        "K=V": {three},
        "nothing": set(),
    }
    for search, hashes in found.items():
        assert {entry.hash for entry in store.entries(search)} == hashes, search


def test_search_takes_any_text(where, open_store):
    """Wildcards and quotes of SQL are letters."""
    store = open_store(where)
    (key,) = put(store, 1)
    store.rename(key, "class")
    for search in ("%", "_ass", "'", '\\"%', "/", "a\0b", "\ud800x", "x " * 5000):
        assert store.entries(search) == [], search


@briefly(10)
@given(name=st.text(max_size=100))
def test_any_name_is_kept_and_found(name, named):
    """A name is kept on one line, printable and cut to its greatest length, and is found."""
    store, key = named
    assert store.rename(key, name)
    (entry,) = store.entries()
    assert entry.name == "".join(c for c in " ".join(name.split()) if c.isprintable())[:80]
    assert len(entry.name) <= LONGEST_NAME
    assert store.entries(entry.name) == [entry]


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A store and the hash of its only result."""
    with contextlib.closing(ResultStore(tmp_path_factory.mktemp("named"))) as store:
        yield store, *put(store, 1)


def test_rename_pin_and_delete(where, open_store):
    """Renaming, pinning and deleting return whether the row was there, and leave other rows."""
    store = open_store(where)
    one, two = put(store, 1, 2)
    assert store.rename(one, " two\nwords\0 ")
    assert store.pin(one, True)
    by_hash = {entry.hash: entry for entry in store.entries()}
    assert (by_hash[one].name, by_hash[one].pinned) == ("two words", True)
    assert (by_hash[two].name, by_hash[two].pinned) == ("", False)
    assert store.pin(one, False)
    assert not any(entry.pinned for entry in store.entries())
    assert store.delete(one)
    assert not store.delete(one)
    assert store.result(one) is None
    assert stored(store) == {two}


# many at once


def test_threads_may_share_a_store(where, open_store):
    """Threads that put, read and list through one store lose nothing."""
    store = open_store(where)
    first = put(store, 100, 101)

    def use(number):
        (new,) = put(store, number)
        assert store.result(new) is not None
        for key in first:
            assert store.snapshot(key) is not None
            assert store.pin(key, number % 2 == 0)
        assert store.entries()
        return new

    with ThreadPoolExecutor(4) as pool:
        hashes = list(pool.map(use, range(8)))
    assert stored(store) == {*first, *hashes}


@pytest.mark.server
def test_two_processes_store_the_same_and_others_at_once(tmp_path, open_store):
    """Two processes that store equal and different results leave one row of each."""
    lines = [("put 0", f"put {first}", "put 1", f"put {first + 1}") for first in (10, 20)]
    with storing(tmp_path) as one, storing(tmp_path) as two:
        processes = (one, two)
        for process, commands in zip(processes, lines, strict=True):
            ask(process, *commands)
        answers = {answer(process) for process in processes for _ in range(4)}
    assert answers == {made(seed).experiment.hash for seed in (0, 1, 10, 11, 20, 21)}
    store = open_store(tmp_path)
    assert stored(store) == answers
    assert all(store.result(key) is not None for key in answers)


def test_stores_may_create_the_table_and_put_the_same_at_once(where, open_store, monkeypatch):
    """Exactly one of four stores reports each result as new."""
    monkeypatch.setattr("attnkit.service.database_engines.BUSY_SECONDS", 60)  # a disk may stall
    stores = [open_store(where) for _ in range(4)]
    start = threading.Barrier(4)

    def put_each(store):
        start.wait()
        return [store.put(*made(first_seed).to_blobs()) for first_seed in range(3)]

    with ThreadPoolExecutor(4) as pool:
        new = list(pool.map(put_each, stores))
    assert [sum(each) for each in zip(*new, strict=True)] == [1] * 3
    assert len(stores[0].entries()) == 3
