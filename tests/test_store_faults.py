"""Files of a store that are damaged, foreign, gone or full.

Whatever it is, the disk keeps it, and the store begins anew or says why it cannot. Kills are in
test_faults_servers.py.
"""

import contextlib
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly
from sqlalchemy import Engine, event, text
from storing import connected, made, put, stored

from attnkit.service.database_engines import FILE
from attnkit.service.store import ResultStore, Unavailable

RESULTS = [made(first_seed) for first_seed in range(8)]
BLOBS = {result.experiment.hash: result.to_blobs() for result in RESULTS}
DIARY = b"Dear diary, today I trained a transformer. " * 500
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40


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


# foreign files


def test_foreign_files_are_moved_aside_or_left_alone(tmp_path):
    """They are not ours to delete: the store begins anew each time, says so, and keeps them all."""
    beside = ["notes.txt", f"{FILE}-wal", f"{FILE}-journal.bak", "other.sqlite"]
    for name in beside:
        (tmp_path / name).write_bytes(DIARY)
    contents = [DIARY, b"?", PICTURE, b"SQLite format 3\0" + b"\xff" * 5000]
    for number, content in enumerate(contents, 1):
        (tmp_path / FILE).write_bytes(content)
        with contextlib.closing(ResultStore(tmp_path)) as store:
            assert store.entries() == []
            assert works(store)
            assert (tmp_path / f"{FILE}.broken-{number}").read_bytes() == content
            (note,) = store.notes
        assert note.startswith(f"{FILE}: its file is ")
        assert note.endswith(f". It is called {FILE}.broken-{number} now.")
        assert str(tmp_path) not in note
    for name in set(beside) - {f"{FILE}-wal"}:  # that name is SQLite's, which moves with its file
        assert (tmp_path / name).read_bytes() == DIARY
    for part in ("-wal", "-shm"):  # SQLite takes over nothing of them
        (tmp_path / f"{FILE}{part}").write_bytes(PICTURE)
    with contextlib.closing(ResultStore(tmp_path)) as store:
        assert stored(store) == set(BLOBS)


def test_a_database_of_another_program_is_moved_aside(tmp_path):
    """Its rows are still there, beside the new file."""
    with connected(f"sqlite:///{tmp_path / FILE}") as connection:
        connection.execute(text("CREATE TABLE results (score INTEGER)"))
        connection.execute(text("INSERT INTO results VALUES (5)"))
    with contextlib.closing(ResultStore(tmp_path)) as store:
        put(store, 1, 2)
        assert store.notes == [
            f"{FILE}: its table `results` was not made by attnkit. "
            f"It is called {FILE}.broken-1 now."
        ]
    with connected(f"sqlite:///{tmp_path / FILE}.broken-1") as connection:
        assert connection.scalar(text("SELECT score FROM results")) == 5


def test_what_the_user_has_named_or_made_stays(tmp_path, open_store):
    """A damaged file named by its address, a folder in place of the file, a file of the folder."""
    (tmp_path / "mine.db").write_bytes(DIARY)
    (tmp_path / FILE).mkdir()
    (tmp_path / FILE / "mine").write_text("mine")
    (tmp_path / "data").write_text("mine")
    for where, reason in (
        (f"sqlite:///{tmp_path / 'mine.db'}", "its file is not a database"),
        (tmp_path, "its file cannot be opened"),
        (tmp_path / "data", "its folder cannot be used"),
    ):
        with pytest.raises(Unavailable, match=reason):
            open_store(where).entries()
    assert {path.name for path in tmp_path.iterdir()} == {"mine.db", FILE, "data"}
    assert (tmp_path / "mine.db").read_bytes() == DIARY
    assert (tmp_path / FILE / "mine").read_text() == (tmp_path / "data").read_text() == "mine"


# damage


def test_damage_found_while_running_is_mended(tmp_path, open_store, whole):
    """By whichever use of the store comes upon it; the others follow to the new file."""
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


# files that go away, disks that are full


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
