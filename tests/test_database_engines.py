"""Databases of the result store: their addresses, their tables, and servers that are gone."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import make_url
from storing import connected, made, put, stored

from attnkit.service import database_engines
from attnkit.service.database import VERSION
from attnkit.service.database_engines import FILE
from attnkit.service.store import ResultStore, Unavailable

# tables


def test_a_database_of_another_version_is_left_alone(where, open_store):
    """It is not changed, and the message says what to do."""
    (key,) = put(open_store(where), 1)
    for version in (1, 99):
        with connected(where) as connection:
            connection.execute(text(f"UPDATE results_schema SET version = {version}"))
        store = open_store(where)
        expected = f"has version {version}, .* only version {VERSION}: use the attnkit that wrote"
        for use in (store.entries, store.n_bytes, lambda store=store: put(store, 2)):
            with pytest.raises(Unavailable, match=expected):
                use()
        assert store.notes == []
    with connected(where) as connection:
        connection.execute(text(f"UPDATE results_schema SET version = {VERSION}"))
    assert stored(store) == {key}


def test_a_foreign_table_of_a_database_is_left_alone(where, open_store):
    """A foreign table named `results` is not changed, and the message names it."""
    database = f"sqlite:///{where}.db" if isinstance(where, Path) else where
    with connected(database) as connection:
        connection.execute(text("CREATE TABLE results (score INTEGER)"))
    store = open_store(database)
    with pytest.raises(Unavailable, match="its table `results` was not made by attnkit"):
        put(store, 1)
    with connected(database) as connection:
        assert inspect(connection).get_table_names() == ["results"]


def test_tables_that_are_dropped_are_made_anew(where, open_store):
    """By somebody who empties the database while the store is open."""
    store = open_store(where)
    put(store, 1)
    with connected(where) as connection:
        connection.execute(text("DROP TABLE results"))
        connection.execute(text("DROP TABLE results_schema"))
    assert store.entries() == []
    assert set(put(store, 2)) == stored(store)


# addresses


def test_a_folder_is_made_at_the_first_use(tmp_path, open_store, monkeypatch):
    """With those above it, from a text or a path; an empty address means the user's data folder."""
    folder = tmp_path / "not" / "yet"
    stores = open_store(str(folder)), open_store(folder)
    assert list(tmp_path.iterdir()) == []
    assert set(put(stores[0], 1)) == stored(stores[1])
    assert (folder / FILE).is_file()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    put(open_store(""), 1)
    assert (tmp_path / "attnkit" / FILE).is_file()


ALLOWED = "its address is neither a folder nor of the form sqlite:///… or postgresql://…"
NUL = "its address contains a NUL character: write it without one"
MEMORY = "a database in memory keeps nothing: name a file"
REFUSED = {
    "a\0b": NUL,
    "sqlite:///a\0b": NUL,
    Path("a\0b"): NUL,
    "mysql://me:secret@host/db": ALLOWED,
    "http://host": ALLOWED,
    "://": ALLOWED,
    "postgres://me:secret@h:x/d": ALLOWED,
    "sqlite://": MEMORY,
    create_engine("sqlite://"): MEMORY,
    "postgresql://me:secret@127.0.0.1:1/db": "the database cannot be reached",
    "~nobody-has-this-name/data": "this user has no folder: name one",
}


def test_an_address_that_is_refused_is_told_why(monkeypatch):
    """Without any part of it, as it may hold a password."""
    for address, reason in REFUSED.items():
        with pytest.raises(Unavailable) as caught:
            ResultStore(address).entries()
        assert str(caught.value) == reason, address
    engine = create_engine("sqlite://")
    monkeypatch.setattr(engine, "url", make_url("mysql://me:secret@host/db"))
    with pytest.raises(Unavailable, match=f"^{ALLOWED}$"):
        ResultStore(engine)
    monkeypatch.setattr(database_engines, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'attnkit\[postgres\]'"):
        ResultStore("postgresql://me@host/db")


def test_a_file_is_set_up_to_lose_nothing(tmp_path, open_store):
    """SQLite is set to write-ahead logging, full synchronisation and incremental vacuum."""
    put(open_store(tmp_path), 1)
    with connected(tmp_path) as connection:
        pragmas = ("journal_mode", "synchronous", "auto_vacuum", "busy_timeout")
        found = [connection.scalar(text(f"PRAGMA {name}")) for name in pragmas]
    assert found == ["wal", 2, 2, 10_000]


def test_space_is_given_back(tmp_path, open_store):
    """The file gets shorter when results are deleted."""
    store = open_store(tmp_path)
    hashes = put(store, *range(4), n_numbers=100_000)
    store.close()
    before = (tmp_path / FILE).stat().st_size
    for key in hashes[1:]:
        store.delete(key)
    store.close()
    assert (tmp_path / FILE).stat().st_size < before / 2
    assert stored(store) == set(hashes[:1])


def engine_of(address):
    """Return an engine that does not look whether its connections still live."""
    return create_engine(address.replace("postgresql:", "postgresql+psycopg:"))


def test_an_engine_is_used_as_it_is(where, open_store, tmp_path):
    """A closed store leaves it open, and opens again."""
    engine = engine_of(f"sqlite:///{tmp_path / 'own.db'}" if isinstance(where, Path) else where)
    store = open_store(engine)
    hashes = put(store, 1)
    store.close()
    assert stored(store) == set(hashes)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT hash FROM results")) == hashes[0]
    engine.dispose()


# servers


@pytest.mark.server
def test_a_database_may_be_gone_and_come_back(postgres, open_store):
    """Meanwhile every use says so; afterwards the first use works, and nothing is lost.

    With every scheme that hosts hand out, and an engine as `st.connection` makes it. The server
    stops and starts twice: with use in between, and without, which breaks connections.
    """
    address = postgres.database()
    engine = engine_of(address)
    schemes = ("postgres", "postgresql", "postgresql+psycopg")
    stores = [open_store(address.replace("postgresql", scheme, 1)) for scheme in schemes]
    stores.append(open_store(engine))
    hashes = [put(store, number)[0] for number, store in enumerate(stores)]
    postgres.stop()
    try:
        for store in (*stores, later := open_store(address)):
            for use in (store.entries, store.n_bytes, lambda store=store: put(store, 9)):
                with pytest.raises(Unavailable, match="the database cannot be reached"):
                    use()
    finally:
        postgres.start()
    hashes += [put(store, 10 + number)[0] for number, store in enumerate(stores)]
    postgres.stop()
    postgres.start()
    for store in (*stores, later):
        assert stored(store) == set(hashes)
        assert None not in map(store.result, hashes)
    engine.dispose()


@pytest.mark.server
def test_a_server_that_never_answers_is_given_up():
    """It takes connections and says nothing: after three seconds it counts as gone."""

    def use(where):
        with pytest.raises(Unavailable, match="the database cannot be reached"):
            ResultStore(where).entries()

    with socket.socket() as silent, ThreadPoolExecutor(2) as pool:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"postgresql+psycopg://me@127.0.0.1:{silent.getsockname()[1]}/db"
        list(pool.map(use, [address, create_engine(address)]))


@pytest.mark.server
def test_what_a_server_refuses_is_told_apart(postgres, open_store):
    """No such database, no such user; what can only be read, such as a standby, is read."""
    with pytest.raises(Unavailable, match="there is no such database"):
        open_store(postgres.url("nothing")).entries()
    with pytest.raises(Unavailable, match="the database refuses the user"):
        open_store(postgres.url().replace("attnkit@", "nobody@")).entries()
    where = postgres.database()
    hashes = put(open_store(where), 1)
    store = open_store(f"{where}?options=-c%20default_transaction_read_only%3Don")
    assert store.result(hashes[0]).to_blobs() == made(1).to_blobs()
    with pytest.raises(Unavailable, match="it is read-only"):
        put(store, 2)


def test_a_database_that_others_hold_is_said(tmp_path, open_store, monkeypatch):
    """Waiting ends; what others do is not disturbed."""
    monkeypatch.setattr(database_engines, "BUSY_SECONDS", 0)
    store = open_store(tmp_path)
    hashes = put(store, 1)
    with connected(tmp_path) as other:
        other.execute(text("DELETE FROM results"))
        with pytest.raises(Unavailable, match="others have been writing to it for too long"):
            put(store, 2)
        assert stored(store) == set(hashes)
        assert store.result(hashes[0]) is not None
    assert stored(store) == set()
