"""What may happen to a store: damage, foreign files, a full disk, a kill, a database that is gone.

Whatever it is, nothing that was reported as stored is lost where the disk still has it, all else is
`Unavailable`, and the store goes on as soon as it can.
"""

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly
from sqlalchemy import Engine, create_engine, event, text
from storing import answer, ask, made, storing
from table_rows import connected, put, stored

from attnkit.service import database_engines
from attnkit.service.database_engines import FILE
from attnkit.service.store import ResultStore, Unavailable

RESULTS = [made(first_seed) for first_seed in range(8)]
BLOBS = {result.experiment.hash: result.to_blobs() for result in RESULTS}


@pytest.fixture(scope="module")
def whole():
    """The bytes of a file with eight results."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.closing(ResultStore(folder)) as store:
            for blobs in BLOBS.values():
                store.put(*blobs)
        return (Path(folder) / FILE).read_bytes()


def works(store):
    """A store takes every result and gives it back."""
    for key, blobs in BLOBS.items():
        store.put(*blobs)
        assert store.result(key).to_blobs() == blobs
    return stored(store) >= set(BLOBS)


# Files that cannot be read

FOREIGN = {
    "text": b"Dear diary, today I trained a transformer. " * 500,
    "short": b"?",
    "picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40,
    "almost": b"SQLite format 3\0" + b"\xff" * 5000,
}


def test_foreign_files_are_moved_aside(tmp_path, open_store):
    """They are not ours to delete: the store begins anew each time, says so, and keeps them all."""
    for number, content in enumerate(FOREIGN.values(), 1):
        (tmp_path / FILE).write_bytes(content)
        with contextlib.closing(ResultStore(tmp_path)) as store:
            assert store.entries() == []
            assert works(store)
            assert (tmp_path / f"{FILE}.broken-{number}").read_bytes() == content
            (note,) = store.notes
        assert note.startswith(f"{FILE}: its file is ")
        assert note.endswith(f". It is called {FILE}.broken-{number} now.")
        assert str(tmp_path) not in note


def test_a_database_of_another_program_is_moved_aside(tmp_path, open_store):
    """If its table has our name; its rows are still there."""
    with connected(f"sqlite:///{tmp_path / FILE}") as connection:
        connection.execute(text("CREATE TABLE results (score INTEGER)"))
        connection.execute(text("INSERT INTO results VALUES (5)"))
    store = open_store(tmp_path)
    assert works(store)
    assert store.notes == [
        f"{FILE}: its table `results` was not made by attnkit. It is called {FILE}.broken-1 now."
    ]
    with connected(f"sqlite:///{tmp_path / FILE}.broken-1") as connection:
        assert connection.scalar(text("SELECT score FROM results")) == 5


def test_a_named_file_that_is_damaged_is_left_alone(tmp_path, open_store):
    """Who names a file by an address may have a use for it."""
    file = tmp_path / "mine.db"
    file.write_bytes(FOREIGN["text"])
    store = open_store(f"sqlite:///{file}")
    with pytest.raises(Unavailable, match="its file is not a database"):
        store.entries()
    assert file.read_bytes() == FOREIGN["text"]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.db"]


def test_foreign_files_beside_it_are_left_alone(tmp_path, open_store):
    """Even those that look like parts of a database."""
    names = ["notes.txt", f"{FILE}-wal", f"{FILE}-journal.bak", f"{FILE}.broken-1", "other.sqlite"]
    for name in names:
        (tmp_path / name).write_bytes(FOREIGN["text"])
    store = open_store(tmp_path)
    assert works(store)
    assert store.notes == []
    for name in set(names) - {f"{FILE}-wal"}:  # that name is SQLite's, which writes it anew
        assert (tmp_path / name).read_bytes() == FOREIGN["text"]


def test_a_foreign_log_does_no_harm(tmp_path, open_store):
    """SQLite takes over nothing of it."""
    with contextlib.closing(ResultStore(tmp_path)) as store:
        hashes = put(store, 1, 2)
    for part in ("-wal", "-shm"):
        (tmp_path / f"{FILE}{part}").write_bytes(FOREIGN["picture"])
        with contextlib.closing(ResultStore(tmp_path)) as store:
            assert stored(store) == set(hashes)
    assert works(open_store(tmp_path))


def test_a_folder_in_place_of_the_file_and_a_file_in_place_of_the_folder_are_said(
    tmp_path, open_store
):
    """They stay; somebody made them."""
    (tmp_path / FILE).mkdir()
    (tmp_path / FILE / "mine").write_text("mine")
    (tmp_path / "data").write_text("mine")
    with pytest.raises(Unavailable, match="its file cannot be opened"):
        open_store(tmp_path).entries()
    with pytest.raises(Unavailable, match="its folder cannot be used"):
        open_store(tmp_path / "data").entries()
    assert (tmp_path / FILE / "mine").read_text() == (tmp_path / "data").read_text() == "mine"


def test_what_can_be_read_of_a_damaged_file_is_kept(tmp_path, open_store, whole):
    """Half of a file still has results, with their names and pins."""
    (tmp_path / FILE).write_bytes(whole)
    with contextlib.closing(ResultStore(tmp_path)) as store:
        for key in BLOBS:
            store.rename(key, "kept")
            store.pin(key, True)
    content = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(content[: len(content) // 2])
    moved = []
    store = open_store(tmp_path, moved=lambda *told: moved.append(told))
    entries = {entry.hash: entry for entry in store.entries()}
    assert 2 <= len(entries) <= 4
    assert moved == [("its file is damaged", len(entries))]
    for key, entry in entries.items():
        assert (entry.name, entry.pinned) == ("kept", True)
        assert store.result(key).to_blobs() == BLOBS[key]
    (note,) = store.notes
    assert f"; of its results {len(entries)} could be read and are kept." in note
    assert works(store)


def test_damage_found_while_running_is_mended(tmp_path, open_store, whole):
    """By whichever use of the store comes upon it; the others follow to the new file."""
    (tmp_path / FILE).write_bytes(whole)
    stores = [open_store(tmp_path) for _ in range(3)]
    for store in stores:
        assert len(store.entries()) == 8
        store.close()
    (tmp_path / FILE).write_bytes(b"\0" * 4096 + whole[4096:])
    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(works, stores))
    assert sorted(path.name for path in tmp_path.glob("*broken*")) == [f"{FILE}.broken-1"]
    assert sum(len(store.notes) for store in stores) == 1
    assert all(stored(store) == set(BLOBS) for store in stores)


@briefly(10)
@given(data=st.data())
def test_any_damage_is_mended_or_said(whole, data):
    """Wrong bytes, missing bytes, empty pages anywhere: never another result, never a traceback."""
    content = bytearray(whole)
    kind = data.draw(st.sampled_from(["bytes", "page", "header", "cut", "empty"]))
    place = data.draw(st.integers(0, len(whole) - 1))
    if kind == "cut":
        del content[place:]
    elif kind == "empty":
        content[place : place + 5000] = bytes(len(content[place : place + 5000]))
    else:
        low, high = {"bytes": (0, len(whole)), "page": (0, 200), "header": (0, 100)}[kind]
        low += place - place % 4096 if kind == "page" else 0
        change = st.tuples(st.integers(low, min(low + high, len(whole)) - 1), st.integers(1, 255))
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


# Files that go away


def test_a_file_that_was_removed_is_begun_anew(tmp_path, open_store):
    """What is put later is in the file that people see."""
    store = open_store(tmp_path / "data")
    put(store, 1)
    shutil.rmtree(tmp_path / "data")
    assert store.entries() == []
    hashes = put(store, 2)
    assert stored(open_store(tmp_path / "data")) == set(hashes)


def test_a_file_that_was_replaced_is_opened(tmp_path, open_store, whole):
    """By a copy that somebody has put back, say."""
    store = open_store(tmp_path)
    put(store, 50)
    store.close()
    (tmp_path / "copy").write_bytes(whole)
    (tmp_path / "copy").replace(tmp_path / FILE)
    assert stored(store) == set(BLOBS)


def test_tables_that_are_dropped_are_made_anew(where, open_store):
    """By somebody who empties the database while the store is open."""
    store = open_store(where)
    put(store, 1)
    with connected(where) as connection:
        connection.execute(text("DROP TABLE results"))
        connection.execute(text("DROP TABLE results_schema"))
    assert store.entries() == []
    assert works(store)


def test_a_version_that_is_no_number_is_said(tmp_path, open_store):
    """The file is moved aside, and its results are kept."""
    with contextlib.closing(ResultStore(tmp_path)) as store:
        hashes = put(store, 1, 2)
    for version in ("'three'", "2.5", "x'00'", "-1"):
        with connected(tmp_path) as connection:
            connection.execute(text(f"UPDATE results_schema SET version = {version}"))
        with contextlib.closing(ResultStore(tmp_path)) as store:
            assert stored(store) == set(hashes)
            assert "`results_schema` is not a positive integer. It is called" in store.notes[0]


# A full disk


def test_a_full_disk_is_said_and_loses_nothing(tmp_path, open_store):
    """SQLite finds no page left; as soon as there is room again, all goes on."""
    most = {"pages": 100}

    def limit(connection, _):
        connection.execute(f"PRAGMA max_page_count = {most['pages']}")

    event.listen(Engine, "connect", limit)
    try:
        store = open_store(tmp_path)
        hashes = []
        with contextlib.suppress(Unavailable):
            for first_seed in range(100):
                hashes += put(store, first_seed)
        assert 3 < len(hashes) < 100
        assert all(store.result(key) is not None for key in hashes)
        with pytest.raises(Unavailable, match="the disk is full"):
            put(store, 100)
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
def test_a_file_that_may_not_grow_is_said_and_loses_nothing(tmp_path, open_store):
    """The system refuses the writes of a real process, then takes them again."""
    with storing(tmp_path) as process:
        ask(process, "put 1", "full", "put 2", "put 1", "room", "put 3")
        told = [answer(process) for _ in range(6)]
    one, two, three = (made(first_seed).experiment.hash for first_seed in (1, 2, 3))
    assert told[1] == told[4] == "done"
    assert told[0] == told[3] == one
    assert told[2] in ("the disk is full", "the disk cannot be read or written")
    assert told[5] == three
    store = open_store(tmp_path)
    assert stored(store) == {one, three}
    assert two not in stored(store)
    assert store.result(one).to_blobs() == made(1).to_blobs()
    assert store.notes == []


# A kill in the middle


@pytest.mark.server
def test_what_was_reported_before_a_kill_is_there(tmp_path, open_store, long, seed):
    """The storing process is killed at moments drawn from the seed: once, with --long 50 times."""
    moment, told = random.Random(seed), set()
    for kill in range(50 if long else 1):
        with storing(tmp_path) as process:
            ask(process, *(f"put {1000 * kill + number}" for number in range(999)))
            own = {answer(process)}
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moment.uniform(0, 0.3))
            process.kill()
            own.update(process.stdout.read().split("\n")[:-1])  # the last line may be cut off
            assert process.wait() == -signal.SIGKILL
        told |= own
        with contextlib.closing(ResultStore(tmp_path)) as store:
            assert all(store.result(key) is not None for key in own), f"seed {seed}, kill {kill}"
            assert store.notes == []
    store = open_store(tmp_path)
    found = [entry.hash for entry in store.entries(limit=10**6)]
    assert told <= set(found)
    assert all(store.result(key) is not None for key in found)
    with connected(tmp_path) as connection:
        assert connection.scalar(text("PRAGMA integrity_check")) == "ok"


# A database that is gone


@pytest.fixture
def gone(postgres):
    """`with gone():` the server is not there."""

    @contextlib.contextmanager
    def stopped():
        postgres.stop()
        try:
            yield
        finally:
            postgres.start()

    return stopped


@pytest.mark.server
@pytest.mark.parametrize("own_engine", [False, True], ids=["address", "engine"])
def test_a_database_may_be_gone_and_come_back(postgres, open_store, gone, own_engine, long):
    """Meanwhile every use says so; afterwards the first use works, and nothing is lost."""
    where = postgres.database()
    if own_engine:  # as `st.connection` makes it: it does not look whether connections still live
        where = create_engine(where.replace("postgresql:", "postgresql+psycopg:"))
    store = open_store(where)
    hashes = put(store, 1, 2)
    with gone():
        later = open_store(where)
        back = time.monotonic() + (10 if long else 0)
        while True:
            for use in (store.entries, store.n_bytes, lambda: put(store, 3), later.entries):
                with pytest.raises(Unavailable, match="the database cannot be reached"):
                    use()
            if time.monotonic() >= back:
                break
            time.sleep(0.1)
    hashes += put(store, 3)
    assert stored(store) == stored(later) == set(hashes)
    assert all(store.result(key) is not None for key in hashes)
    with gone():  # connections that broke in between are made anew
        pass
    assert works(store)
    if own_engine:
        where.dispose()


@pytest.mark.server
@pytest.mark.parametrize("own_engine", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_server_that_never_answers_is_given_up(open_store, own_engine):
    """It takes connections and says nothing: a few seconds, then it counts as gone."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"postgresql+psycopg://me@127.0.0.1:{silent.getsockname()[1]}/db"
        with pytest.raises(Unavailable, match="the database cannot be reached"):
            open_store(create_engine(address) if own_engine else address).entries()


@pytest.mark.server
def test_a_database_that_refuses_says_so(postgres, open_store):
    """What is wrong is told apart from a server that is not there."""
    with pytest.raises(Unavailable, match="there is no such database"):
        open_store(postgres.url("nothing")).entries()
    with pytest.raises(Unavailable, match="the database refuses the user"):
        open_store(postgres.url().replace("attnkit@", "nobody@")).entries()


@pytest.mark.server
def test_a_database_that_can_only_be_read_is_read(postgres, open_store):
    """A standby, say: what is there is shown."""
    where = postgres.new_database()
    hashes = put(open_store(where), 1)
    with connected(where) as connection:
        name = where.rsplit("/")[-1]
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    store = open_store(where)
    assert stored(store) == set(hashes)
    assert store.result(hashes[0]) is not None
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
