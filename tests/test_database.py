"""Databases of the store: addresses, damaged files, full disks, servers that are gone."""

import contextlib
import shutil
import socket
import sqlite3
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from searching import briefly
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, event, text
from storing import connected, make_result, put, stored

from attnkit.service import database as module
from attnkit.service.database import FILE
from attnkit.service.store import VERSION, ResultStore, Unavailable

BLOBS = {(one := make_result(seed)).experiment.hash: one.to_blobs() for seed in range(8)}
DIARY = b"Dear diary, today I trained a transformer. " * 500


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a file with eight results."""
    folder = tmp_path_factory.mktemp("whole")
    assert works(ResultStore(folder))
    return (folder / FILE).read_bytes()


def works(store):
    """A store takes every result and gives it back."""
    for key, blobs in BLOBS.items():
        store.put(*blobs)
        assert store.result(key).to_blobs() == blobs
    return stored(store) >= set(BLOBS)


def refuses(store, reason):
    """Check that every use of a store says why it is not available."""
    for use in (store.entries, store.n_bytes, lambda: put(store, 9)):
        with pytest.raises(Unavailable, match=reason):
            use()


def execute(where, *statements):
    """Execute statements without the store."""
    with connected(where) as connection:
        for statement in statements:
            connection.execute(text(statement))


def test_tables_of_another_version_or_program_are_left_alone(where, open_store):
    """The message names both versions, or the table; tables that are gone are created anew."""
    store = open_store(where)
    put(store, 1)
    execute(where, "UPDATE results_schema SET version = 99")
    refuses(open_store(where), f"version 99, .* version {VERSION}")
    dropped = [f"DROP TABLE IF EXISTS {table}" for table in ("results", "results_schema")]
    execute(where, *dropped)
    assert set(put(store, 2)) == stored(store)
    address = f"sqlite:///{where}.db" if isinstance(where, Path) else where
    execute(address, *dropped, "CREATE TABLE results (score INTEGER)")
    refuses(open_store(address), "its table `results`")
    execute(address, "INSERT INTO results VALUES (1)")


def test_an_address_is_a_folder_a_url_or_an_engine(tmp_path, open_store, monkeypatch):
    """Nothing is made before the first use; an empty address is this user's own folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    named, memory = tmp_path / "named.db", open_store(create_engine("sqlite://"))
    for where, file in {
        str(tmp_path / "a" / "b"): tmp_path / "a" / "b" / FILE,
        tmp_path / "c": tmp_path / "c" / FILE,
        "": tmp_path / "home" / "attnkit" / FILE,
        create_engine(f"sqlite:///{named}"): named,
    }.items():
        store = open_store(where)
        assert not file.exists()
        put(store, 1)
        assert file.is_file()
    assert stored(open_store(f"sqlite:///{named}")) == stored(store)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(works, [memory] * 4))


@pytest.mark.parametrize(
    "address",
    "a\0b|sqlite:///a\0b|://|sqlite://|sqlite:///:memory:|~nobody-has-it/x|http://host:x/db"
    "|mysql://me:secret@host/db|postgres://me:secret@host:x/db".split("|"),
)
def test_an_address_that_is_refused_is_not_repeated(address):
    """The message names the forms that are allowed."""
    with pytest.raises(Unavailable, match=r"sqlite:///… or postgresql://…") as caught:
        ResultStore(address)
    assert "secret" not in str(caught.value)


def test_a_server_that_is_away_or_has_no_driver_is_reported_without_password(monkeypatch):
    """The message without a driver names the extra."""
    address = "postgresql://me:secret@127.0.0.1:1/db"
    with pytest.raises(Unavailable, match=r"^the database cannot be reached$"):
        ResultStore(address).entries()
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable, match=r"attnkit\[postgres\]"):
        ResultStore(address)


def test_a_file_of_an_older_version_opens_and_deletions_shorten_it(tmp_path, open_store):
    """It has a write-ahead log, which nobody has finished, and pages that nobody has freed."""
    store = open_store(tmp_path)
    keys = put(store, *range(4), n_numbers=100_000)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as older:
        older.execute("PRAGMA journal_mode = WAL")
        older.execute("PRAGMA auto_vacuum = INCREMENTAL")
        older.execute("UPDATE results SET name = 'older'")
        older.commit()
        assert stored(store) == set(keys)
        copy = shutil.copytree(tmp_path, tmp_path / "copy")
        assert (copy / f"{FILE}-wal").stat().st_size
    store = open_store(copy)
    assert {entry.name for entry in store.entries()} == {"older"}
    before = (copy / FILE).stat().st_size
    assert all(map(store.delete, keys[1:]))
    assert stored(store) == set(keys[:1])
    assert (copy / FILE).stat().st_size < before / 2
    assert [path.name for path in copy.iterdir()] == [FILE]


def test_foreign_files_are_moved_aside_or_left_alone(tmp_path, open_store):
    """The store begins anew each time, says so, and keeps them; named files stay where they are."""
    contents = [DIARY, b"?", b"\x89PNG\r\n\x1a\n" * 1000, b"SQLite format 3\0" + b"\xff" * 5000]
    for number, content in enumerate(contents, 1):
        (tmp_path / FILE).write_bytes(content)
        store = open_store(tmp_path)
        assert works(store)
        (note,) = store.notes
        assert f"{FILE}.broken-{number}" in note
        assert str(tmp_path) not in note
        assert (tmp_path / f"{FILE}.broken-{number}").read_bytes() == content
        refuses(open_store(f"sqlite:///{tmp_path / FILE}.broken-{number}"), "not a database")
        assert (tmp_path / f"{FILE}.broken-{number}").read_bytes() == content
    refuses(open_store(tmp_path / FILE), "folder cannot be opened")
    execute(f"sqlite:///{tmp_path / 'theirs.db'}", "CREATE TABLE results (score INTEGER)")
    (tmp_path / "theirs.db").replace(tmp_path / FILE)
    put(store, 1, 2)
    assert "`results`" in store.notes[-1]


def test_damage_while_running_is_repaired_once_with_all_tables(tmp_path, open_store, whole):
    """The first use that meets it moves the file, and other threads follow to the new one."""
    others = Table("others", MetaData(), Column("number", Integer))
    (tmp_path / FILE).write_bytes(whole)
    moved = []
    stores = [open_store(tmp_path, moved=moved.append) for _ in range(3)]
    for store in stores:
        store.database.prepare(others.metadata.create_all)
        assert len(store.entries()) == 8
    (tmp_path / FILE).write_bytes(b"\0" * 4096 + whole[4096:])
    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(works, stores))
    assert sorted(path.name for path in tmp_path.glob("*broken*")) == [f"{FILE}.broken-1"]
    assert sum(len(store.notes) for store in stores) == len(moved) == 1
    for store in stores:
        assert store.database.do(lambda c: c.execute(others.select()).all(), changes=False) == []
    shutil.rmtree(tmp_path)
    assert store.database.do(lambda c: c.execute(others.insert()).rowcount) == 1
    (tmp_path / "copy").write_bytes(whole)
    (tmp_path / "copy").replace(tmp_path / FILE)  # a person puts a copy back
    assert all(stored(store) == set(BLOBS) for store in stores)


PLACES = some.integers(0, 300) | some.integers(0, 2**20) | some.integers(0, 99).map((2**12).__mul__)
CHANGES = some.tuples(
    PLACES, some.sampled_from([1, 100, 5000]), some.binary(min_size=1, max_size=1)
)


@briefly(10)
@given(changes=some.lists(CHANGES, min_size=1, max_size=40), cut=some.none() | PLACES)
def test_any_damage_is_repaired_or_reported(whole, changes, cut):
    """Wrong or missing bytes and empty pages give neither another result nor a traceback."""
    content = bytearray(whole[:cut])
    for at, length, value in changes:
        content[at : at + length] = value * len(content[at : at + length])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_bytes(content)
        store = ResultStore(folder)
        with contextlib.suppress(Unavailable):
            store.entries()
            for key, blobs in BLOBS.items():
                result = store.result(key)
                assert result is None or result.to_blobs() == blobs
            store.rename(key, "name")
            store.delete(key)
            assert works(store)


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path, open_store):
    """As soon as there is room again, all goes on."""
    most, hashes = [100], []

    def limit(connection, _):
        connection.execute(f"PRAGMA max_page_count = {most[0]}")

    event.listen(Engine, "connect", limit)
    try:
        store = open_store(tmp_path)
        with contextlib.suppress(Unavailable):
            for first_seed in range(100):
                hashes += put(store, first_seed)
        with pytest.raises(Unavailable, match="full"):
            put(store, 100)
        assert stored(store) == {key for key in hashes if store.result(key)}
        store.delete(hashes.pop())
        hashes += put(store, 101)
        most[0] = 10**6
        hashes += put(store, 102, 103)
    finally:
        event.remove(Engine, "connect", limit)
    assert stored(open_store(tmp_path)) == set(hashes)
    assert store.notes == []


def test_a_file_that_others_lock_is_reported(tmp_path, open_store, monkeypatch):
    """Waiting ends, reading goes on, and the message names a better place."""
    store = open_store(tmp_path)
    hashes = put(store, 1)
    monkeypatch.setattr(module, "BUSY_SECONDS", 0)
    with connected(tmp_path) as other:
        other.execute(text("DELETE FROM results"))
        with pytest.raises(Unavailable, match=r"NFS .* ATTNKIT_STORE"):
            put(open_store(tmp_path), 2)
        assert stored(store) == set(hashes)
    assert stored(store) == set()
    assert len(put(store, 1)) == 1


@pytest.mark.server
@pytest.mark.long
def test_a_server_that_refuses_or_is_gone_is_reported_and_may_come_back(postgres, open_store):
    """The server stops twice: with use in between, and without, which breaks connections."""
    refuses(open_store(postgres.url("nothing")), "or does not exist")
    refuses(open_store(postgres.url().replace("attnkit@", "nobody@")), "refuses the user")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql+psycopg://me@127.0.0.1:{silent.getsockname()[1]}/db"
        for where in (address, create_engine(address)):
            with pytest.raises(Unavailable, match="cannot be reached"):
                open_store(where).entries()
    address = postgres.database()
    driver = address.replace("postgresql:", "postgresql+psycopg:")
    places = (address, driver, address.replace("postgresql:", "postgres:"), create_engine(driver))
    stores = [open_store(where) for where in places]
    hashes = [put(store, number)[0] for number, store in enumerate(stores)]
    reader = open_store(f"{address}?options=-c%20default_transaction_read_only%3Don")
    assert reader.result(hashes[0]).to_blobs() == BLOBS[hashes[0]]
    with pytest.raises(Unavailable, match="read-only"):
        put(reader, 4)
    for use in (lambda store: refuses(store, "cannot be reached"), lambda store: None):
        postgres.stop()
        try:
            for store in stores:
                use(store)
        finally:
            postgres.start()
        hashes += [put(store, len(hashes))[0] for store in stores]
        assert all(stored(store) == set(hashes) for store in stores)
