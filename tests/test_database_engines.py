"""Databases of the result store: their addresses, their tables, and the settings of a file."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import make_url
from storing import made
from table_rows import connected, put, stored

from attnkit.service import database_engines
from attnkit.service.database_engines import FILE
from attnkit.service.store import ResultStore, Unavailable
from attnkit.service.table import VERSION

# tables


def test_a_database_of_another_version_is_left_alone(where, open_store):
    """It is not changed, and the message says what to do."""
    (key,) = put(open_store(where), 1)
    for version in (1, 99):
        with connected(where) as connection:
            connection.execute(text(f"UPDATE results_schema SET version = {version}"))
        store = open_store(where)
        expected = f"has version {version}, .* only version {VERSION}: use the attnkit that wrote"
        uses = (store.entries, ()), (store.n_bytes, ()), (store.put, made(2).to_blobs())
        for use, given in uses:
            with pytest.raises(Unavailable, match=expected):
                use(*given)
        assert store.notes == []
    with connected(where) as connection:
        connection.execute(text(f"UPDATE results_schema SET version = {VERSION}"))
    assert stored(store) == {key}


def test_a_foreign_table_of_a_database_is_left_alone(where, open_store):
    """A foreign table named `results` is not changed, and the message names it."""
    database = f"sqlite:///{where}.db" if isinstance(where, Path) else where
    with connected(database) as connection:
        connection.execute(text("CREATE TABLE results (score INTEGER)"))
        connection.execute(text("INSERT INTO results VALUES (5)"))
    store = open_store(database)
    with pytest.raises(Unavailable, match="its table `results` was not made by attnkit"):
        put(store, 1)
    with connected(database) as connection:
        assert connection.scalar(text("SELECT score FROM results")) == 5
        assert inspect(connection).get_table_names() == ["results"]


# addresses


def test_a_folder_is_made(tmp_path, open_store, monkeypatch):
    """With those above it, from a text or a path; an empty address means the user's data folder."""
    folder = tmp_path / "not" / "yet"
    put(open_store(str(folder)), 1)
    assert (folder / FILE).is_file()
    assert len(open_store(folder).entries()) == 1
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    put(open_store(""), 1)
    assert (tmp_path / "attnkit" / FILE).is_file()


@pytest.mark.parametrize("where", ["a\0b", "sqlite:///a\0b", "postgresql://a\0b/c", Path("a\0b")])
def test_an_address_with_a_nul_is_refused(where):
    """An address with a NUL character is refused before anything is opened."""
    with pytest.raises(Unavailable, match="contains a NUL character: write it without one"):
        ResultStore(where)


def test_nothing_is_opened_before_the_first_use(tmp_path, open_store):
    """A store opens nothing before its first use."""
    open_store(tmp_path / "later")
    open_store("postgresql://nobody@127.0.0.1:1/nothing")
    assert list(tmp_path.iterdir()) == []


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


def test_an_engine_is_used_as_it_is(where, open_store, tmp_path):
    """An engine, such as that of `st.connection`, is used; a closed store opens again."""
    url = f"sqlite:///{tmp_path / 'own.db'}" if isinstance(where, Path) else where
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    store = open_store(engine)
    hashes = put(store, 1)
    store.close()
    assert stored(store) == set(hashes)
    store.close()
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT hash FROM results")) == hashes[0]
    engine.dispose()


@pytest.mark.server
def test_every_address_of_postgresql_is_understood(postgres, open_store):
    """Every scheme that hosts hand out for PostgreSQL is accepted."""
    address = postgres.database()
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        put(open_store(address.replace("postgresql", scheme, 1)), 1)
    assert len(open_store(address).entries()) == 1


@pytest.mark.parametrize(
    "address", ["mysql://me:secret@host/db", "http://host", "://", "sqlite://", "postgres://h:x/d"]
)
def test_an_address_of_another_kind_is_refused(address):
    """An address of another kind is refused with what is allowed, without its password."""
    with pytest.raises(Unavailable, match=r"allowed|address|memory") as caught:
        ResultStore(address)
    assert "secret" not in str(caught.value)


def test_an_engine_of_another_kind_is_refused(monkeypatch):
    """An engine in memory or of another database is refused."""
    engine = create_engine("sqlite://")
    with pytest.raises(Unavailable, match="memory"):
        ResultStore(engine)
    monkeypatch.setattr(engine, "url", make_url("mysql://me:secret@host/db"))
    with pytest.raises(Unavailable, match="its address is neither a folder"):
        ResultStore(engine)


def test_a_user_without_a_folder_is_told_to_name_one(monkeypatch):
    """A user without a home folder, as in a container, is asked to name a folder."""
    monkeypatch.setattr(
        database_engines, "user_data_dir", lambda name: f"~nobody-has-this-name/{name}"
    )
    with pytest.raises(Unavailable, match="this user has no folder: name one"):
        ResultStore("")


def test_a_missing_driver_is_said(monkeypatch):
    """Without the driver of PostgreSQL, the message names the extra that installs it."""
    monkeypatch.setattr(database_engines, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'attnkit\[postgres\]'"):
        ResultStore("postgresql://me@host/db")


def test_a_server_that_is_not_there_is_said_without_its_address(open_store):
    """An unreachable server is reported without its address and password."""
    store = open_store("postgresql://me:secret@127.0.0.1:1/db")
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        store.entries()
    assert str(caught.value) == "the database cannot be reached"
