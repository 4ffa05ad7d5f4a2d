"""Databases of the result store: addresses, damaged files, full disks, servers that are gone."""

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly
from sqlalchemy import Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from storing import connected, made, put, stored

from attnkit.service import database_engines
from attnkit.service.database import VERSION
from attnkit.service.database_engines import FILE
from attnkit.service.store import ResultStore, Unavailable

RESULTS = [made(first_seed) for first_seed in range(8)]
BLOBS = {result.experiment.hash: result.to_blobs() for result in RESULTS}
DIARY = b"Dear diary, today I trained a transformer. " * 500
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a file with eight results."""
    folder = tmp_path_factory.mktemp("whole")
    with contextlib.closing(ResultStore(folder)) as store:
        for blobs in BLOBS.values():
            store.put(*blobs)
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


def test_tables_of_another_version_or_program_are_left_alone(where, open_store):
    """The message names both versions, or the table; tables that are dropped are made anew."""
    store = open_store(where)
    put(store, 1)

    def execute(database, *statements):
        with connected(database) as connection:
            for statement in statements:
                connection.execute(text(statement))
            return inspect(connection).get_table_names()

    for version in (1, 99):
        execute(where, f"UPDATE results_schema SET version = {version}")
        refuses(open_store(where), f"version {version}, .* version {VERSION}")
    dropped = [f"DROP TABLE IF EXISTS {table}" for table in ("results", "results_schema")]
    execute(where, *dropped)
    assert set(put(store, 2)) == stored(store)
    database = f"sqlite:///{where}.db" if isinstance(where, Path) else where
    execute(database, *dropped, "CREATE TABLE results (score INTEGER)")
    refuses(open_store(database), "its table `results`")
    assert execute(database) == ["results"]


def test_a_folder_is_made_at_the_first_use_and_a_file_shortened(tmp_path, open_store, monkeypatch):
    """A folder is a text or a path, or for an empty address the user's own; an engine is used."""
    folder = tmp_path / "not" / "yet"
    stores = open_store(str(folder)), open_store(folder)
    assert list(tmp_path.iterdir()) == []
    key, *others = put(stores[0], *range(4), n_numbers=100_000)
    assert {key, *others} == stored(stores[1])
    with connected(folder) as connection:
        for pragma, value in {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 1e4}.items():
            assert connection.scalar(text(f"PRAGMA {pragma}")) == value
    for store in stores:
        store.close()
    before = (folder / FILE).stat().st_size
    for other in others:
        stores[0].delete(other)
    stores[0].close()
    assert (folder / FILE).stat().st_size < before / 2
    assert stored(stores[1]) == {key}
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    put(open_store(""), 1)
    assert (tmp_path / "attnkit" / FILE).is_file()
    engine = create_engine(f"sqlite:///{tmp_path / 'own.db'}")
    put(open_store(engine), 1)
    engine.dispose()
    assert len(stored(open_store(f"sqlite:///{tmp_path / 'own.db'}"))) == 1


def test_an_address_that_is_refused_is_told_why(monkeypatch):
    """The reason has no part of the address, as it may hold a password."""
    engine, forms = create_engine("sqlite://"), "sqlite:///… or postgresql://…"
    for address, reason in (
        *((address, "NUL") for address in ("a\0b", "sqlite:///a\0b", Path("a\0b"))),
        *((f"{scheme}://me:secret@host:x/db", forms) for scheme in ("mysql", "http", "postgres")),
        *(("://", forms), ("sqlite://", "name a file"), (engine, "name a file")),
        ("postgresql://me:secret@127.0.0.1:1/db", "cannot be reached"),
        ("~nobody-has-this-name/data", "no folder"),
    ):
        with pytest.raises(Unavailable, match=reason) as caught:
            ResultStore(address).entries()
        assert "secret" not in str(caught.value)
    monkeypatch.setattr(engine, "url", make_url("mysql://me:secret@host/db"))
    with pytest.raises(Unavailable, match=forms):
        ResultStore(engine)
    monkeypatch.setattr(database_engines, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"attnkit\[postgres\]"):
        ResultStore("postgresql://me@host/db")


def test_foreign_files_are_moved_aside_or_left_alone(tmp_path, open_store):
    """The store begins anew each time, says so, and keeps them; named files stay where they are."""
    beside = ["notes.txt", f"{FILE}-journal.bak", "other.sqlite"]
    for name in (*beside, f"{FILE}-wal"):  # the last name is SQLite's, and moves with its file
        (tmp_path / name).write_bytes(DIARY)
    contents = [DIARY, b"?", PICTURE, b"SQLite format 3\0" + b"\xff" * 5000]
    for number, content in enumerate(contents, 1):
        (tmp_path / FILE).write_bytes(content)
        store = open_store(tmp_path)
        assert store.entries() == []
        assert works(store)
        store.close()
        assert (tmp_path / f"{FILE}.broken-{number}").read_bytes() == content
        (note,) = store.notes
        assert f"{FILE}.broken-{number}" in note
        assert str(tmp_path) not in note
    for part in ("-wal", "-shm"):  # SQLite takes over nothing of them
        (tmp_path / f"{FILE}{part}").write_bytes(PICTURE)
    assert stored(open_store(tmp_path)) == set(BLOBS)
    assert all((tmp_path / name).read_bytes() == DIARY for name in beside)
    (tmp_path / "made" / FILE).mkdir(parents=True)
    for where, reason in (
        (f"sqlite:///{tmp_path / 'notes.txt'}", "not a database"),
        (tmp_path / "made", "opened"),
        (tmp_path / "notes.txt", "folder"),
    ):
        refuses(open_store(where), reason)
    assert (tmp_path / "notes.txt").read_bytes() == DIARY
    assert [path.name for path in (tmp_path / "made").iterdir()] == [FILE]
    (tmp_path / "theirs").mkdir()
    with connected(f"sqlite:///{tmp_path / 'theirs' / FILE}") as connection:
        connection.execute(text("CREATE TABLE results (score INTEGER)"))
    put(store := open_store(tmp_path / "theirs"), 1, 2)
    (note,) = store.notes
    assert "`results`" in note
    assert (tmp_path / "theirs" / f"{FILE}.broken-1").is_file()


def test_damage_found_while_running_is_mended(tmp_path, open_store, whole):
    """The first use that comes upon it mends it, and the others follow to the new file."""
    (tmp_path / FILE).write_bytes(whole)
    moved = []
    stores = [open_store(tmp_path, moved=moved.append) for _ in range(3)]
    for store in stores:
        assert len(store.entries()) == 8
        store.close()
    (tmp_path / FILE).write_bytes(b"\0" * 4096 + whole[4096:])
    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(works, stores))
    assert sorted(path.name for path in tmp_path.glob("*broken*")) == [f"{FILE}.broken-1"]
    assert sum(len(store.notes) for store in stores) == len(moved) == 1
    assert moved[0] in ("its file is damaged", "its file is not a database")
    assert all(stored(store) == set(BLOBS) for store in stores)


@briefly(10)
@given(data=st.data(), kind=st.sampled_from(["bytes", "page", "header", "cut", "empty"]))
def test_any_damage_is_mended_or_said(whole, data, kind):
    """Wrong or missing bytes and empty pages give neither another result nor a traceback."""
    content, place = bytearray(whole), data.draw(st.integers(0, len(whole) - 1))
    if kind == "cut":
        del content[place:]
    elif kind == "empty":
        content[place : place + 5000] = bytes(len(content[place : place + 5000]))
    else:
        first = place - place % 4096 if kind == "page" else 0
        last = {"bytes": len(whole), "page": first + 200, "header": 100}[kind] - 1
        change = st.tuples(st.integers(first, last), st.integers(1, 255))
        for at, bits in data.draw(st.lists(change, min_size=1, max_size=60)):
            content[at] ^= bits
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_bytes(content)
        with contextlib.closing(ResultStore(folder)) as store, contextlib.suppress(Unavailable):
            store.entries()
            for key, blobs in BLOBS.items():
                found = store.result(key)
                assert found is None or found.to_blobs() == blobs
            store.rename(RESULTS[1].experiment.hash, "name")
            store.delete(RESULTS[2].experiment.hash)
            assert works(store)


def test_a_file_that_was_removed_is_begun_anew_and_one_that_was_replaced_opened(
    tmp_path, open_store, whole
):
    """What is put later is in the file that people see."""
    folder = tmp_path / "data"
    store = open_store(folder)
    put(store, 1)
    shutil.rmtree(folder)
    assert store.entries() == []
    hashes = put(store, 50)
    with contextlib.closing(ResultStore(folder)) as other:
        assert stored(other) == set(hashes)
    store.close()
    (tmp_path / "copy").write_bytes(whole)
    (tmp_path / "copy").replace(folder / FILE)
    assert stored(store) == set(BLOBS)


def test_a_full_disk_is_said_and_loses_nothing(tmp_path, open_store):
    """SQLite finds no page left; as soon as there is room again, all goes on."""
    most, hashes = {"pages": 100}, []

    def limit(connection, _):
        connection.execute(f"PRAGMA max_page_count = {most['pages']}")

    event.listen(Engine, "connect", limit)
    try:
        store = open_store(tmp_path)
        with contextlib.suppress(Unavailable):
            for first_seed in range(100):
                hashes += put(store, first_seed)
        assert 3 < len(hashes) < 100
        with pytest.raises(Unavailable, match="full"):
            put(store, 100)
        assert all(store.result(key) is not None for key in hashes)
        assert stored(store) == set(hashes)
        store.delete(hashes[0])
        hashes[:1] = put(store, 101)
        most["pages"] = 10**6
        store.close()
        hashes += put(store, 102, 103)
    finally:
        event.remove(Engine, "connect", limit)
    assert stored(open_store(tmp_path)) == set(hashes)
    assert store.notes == []


@pytest.mark.server
@pytest.mark.long
def test_a_server_that_refuses_or_is_gone_is_told_and_may_come_back(postgres, open_store):
    """The server stops twice: with use in between, and without, which breaks connections."""
    refuses(open_store(postgres.url("nothing")), "no such database")
    refuses(open_store(postgres.url().replace("attnkit@", "nobody@")), "refuses the user")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql+psycopg://me@127.0.0.1:{silent.getsockname()[1]}/db"
        for where in (address, create_engine(address)):
            with pytest.raises(Unavailable, match="cannot be reached"):
                open_store(where).entries()
    address = postgres.database()
    schemes = ("postgres", "postgresql", "postgresql+psycopg")
    stores = [open_store(address.replace("postgresql", scheme, 1)) for scheme in schemes]
    engine = create_engine(address.replace("postgresql:", "postgresql+psycopg:"))
    stores.append(open_store(engine))
    hashes = [put(store, number)[0] for number, store in enumerate(stores)]
    store = open_store(f"{address}?options=-c%20default_transaction_read_only%3Don")
    assert store.result(hashes[0]).to_blobs() == made(0).to_blobs()
    with pytest.raises(Unavailable, match="read-only"):
        put(store, 4)
    postgres.stop()
    try:
        for store in (*stores, later := open_store(address)):
            refuses(store, "cannot be reached")
    finally:
        postgres.start()
    hashes += [put(store, 10 + number)[0] for number, store in enumerate(stores)]
    postgres.stop()
    postgres.start()
    for store in (*stores, later):
        assert stored(store) == set(hashes)
        assert None not in map(store.result, hashes)
    engine.dispose()


class WithoutSharedMemory(sqlite3.Connection):
    """A connection to a file whose log SQLite cannot share: only one in exclusive mode reads it."""

    exclusive = False

    def execute(self, statement, *given):
        """Raise SQLite's error where the log is asked for."""
        if "locking_mode" in statement:
            self.exclusive = "EXCLUSIVE" in statement
        elif "journal_mode" in statement and not self.exclusive:
            error = sqlite3.OperationalError("no shared memory")
            error.sqlite_errorcode = sqlite3.SQLITE_PROTOCOL
            raise error
        return super().execute(statement, *given)


@pytest.mark.parametrize("fails", [True, False])
def test_results_are_kept_where_no_log_can_be(fails, tmp_path, open_store, monkeypatch):
    """The store opens where SQLite cannot share its file, or where several machines share it."""
    put(open_store(tmp_path / "here"), 1, 2)
    assert (tmp_path / "here" / f"{FILE}-wal").stat().st_size  # which nobody has finished
    moved = shutil.copytree(tmp_path / "here", tmp_path / "moved")
    if fails:
        connect = partial(sqlite3.connect, factory=WithoutSharedMemory)
        monkeypatch.setattr(sqlite3.dbapi2, "connect", connect)
    else:
        mounts = [SimpleNamespace(mountpoint=str(tmp_path.resolve()), fstype="nfs4")]
        monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)
        monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.EBADF, "no lock")))
    for folder, n_before in ((tmp_path / "new", 0), (moved, 2)):
        stores = [open_store(folder) for _ in range(2)]
        hashes = put(stores[0], 3) + put(stores[1], 4)
        assert stored(stores[0]) >= set(hashes)
        assert len(stored(open_store(folder))) == n_before + 2
    if not fails:  # a damaged file moves aside, though folders have no locks
        for store in stores:
            store.close()
        (moved / FILE).write_bytes(DIARY)
        assert stored(store) == set()
        assert (moved / f"{FILE}.broken-1").is_file()
    monkeypatch.undo()
    for folder in (tmp_path / "new", moved):
        with contextlib.closing(sqlite3.connect(folder / FILE)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
            assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, None], ids=str)
def test_a_file_that_others_hold_or_that_has_no_locks_is_said(
    number, tmp_path, open_store, monkeypatch
):
    """Waiting ends, and what others do is not disturbed; without locks, a better place is named."""
    store, reason = open_store(tmp_path), "others"
    hashes = put(store, 1)
    monkeypatch.setattr(database_engines, "BUSY_SECONDS", 0)
    if number is not None:
        monkeypatch.setattr(fcntl, "lockf", Mock(side_effect=OSError(number, os.strerror(number))))
        reason = r"NFS .* ATTNKIT_STORE"
    with connected(tmp_path) as other:  # others write, or a lock fails: the error is the same
        other.execute(text("DELETE FROM results"))
        with pytest.raises(Unavailable, match=reason):
            put(open_store(tmp_path), 2)
        assert stored(store) == set(hashes)
    assert stored(store) == set()
    assert len(put(store, 1)) == 1
