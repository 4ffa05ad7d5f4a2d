"""The store: what is put is there, whole, on SQLite and on PostgreSQL alike."""

import contextlib
import dataclasses
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import KINDS, tiny
from sqlalchemy import create_engine, event, inspect, select, text, update
from sqlalchemy.engine import make_url
from storing import answer, ask, made, storing
from test_results import same_arrays

from attnkit import __version__
from attnkit.experiment.experiment import hash_of
from attnkit.service import database_engines
from attnkit.service import store as store_module
from attnkit.service.database_engines import FILE, open_engine
from attnkit.service.store import LONGEST_NAME, ResultStore, StoredEntry, TooLarge, Unavailable
from attnkit.service.table import RESULTS, VERSION, checksum
from attnkit.training import Training
from attnkit.training.results import Result

UNKNOWN = "0123456789abcdef"


def put(store, *first_seeds, **given):
    """Store made results; their hashes, in the same order."""
    hashes = []
    for first_seed in first_seeds:
        result = made(first_seed, **given)
        store.put(*result.to_blobs())
        hashes.append(result.experiment.hash)
    return hashes


def stored(store):
    """The hashes of all results."""
    return {entry.hash for entry in store.entries()}


@contextlib.contextmanager
def connected(where):
    """A connection of one's own to the database of a store, in a transaction."""
    engine, _ = open_engine(where)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def alter(where, altered, **values):
    """Change a row behind the store's back."""
    with connected(where) as connection:
        connection.execute(update(RESULTS).where(RESULTS.c.hash == altered).values(**values))


def row_of(where, hash):
    """A row as it stands in the database."""
    with connected(where) as connection:
        return connection.execute(select(RESULTS).where(RESULTS.c.hash == hash)).one()


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


def of_a_text():
    """A result of a task that reads a text of this package."""
    training = Training(tiny("language", sharing="QKV", n_seeds=1), "cpu")
    training.advance(8)
    return training.result()


@pytest.fixture
def clock(monkeypatch):
    """The store's clock, in the test's hands."""
    made_clock = Clock()
    monkeypatch.setattr(store_module, "time", made_clock)
    return made_clock


# Put and read


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_result_reads_back(kind, tmp_path, open_store):
    """Every bit of its arrays and weights, for every kind of task."""
    training = Training(tiny(kind), "cpu")
    training.advance(8)
    result = training.result()
    store = open_store(tmp_path)
    assert store.put(*result.to_blobs())
    back = store.result(result.experiment.hash)
    assert back.experiment == result.experiment
    same_arrays(back.snapshot, result.snapshot)
    assert back.to_blobs() == result.to_blobs()


def test_a_result_reads_back_from_both_databases(where, open_store):
    """Weights and snapshot, through another connection, too."""
    result = made(3, sharing=["QKV", "K=V"], n_seeds=2)
    assert open_store(where).put(*result.to_blobs())
    for store in (open_store(where), open_store(where)):
        assert store.result(result.experiment.hash).to_blobs() == result.to_blobs()
        assert store.snapshot(result.experiment.hash).to_bytes() == result.snapshot.to_bytes()


def test_putting_again_changes_nothing(where, open_store, monkeypatch):
    """One row, whatever later bytes of the same experiment say; no space is given back."""
    store = open_store(where)
    result, other = made(1), made(1, n_numbers=6000)
    assert store.put(*result.to_blobs()) is True
    monkeypatch.setattr(store._database, "free_space", pytest.fail)
    assert store.put(*other.to_blobs()) is False
    assert store.result(result.experiment.hash).to_blobs() == result.to_blobs()
    assert len(store.entries()) == 1


@pytest.mark.parametrize("change", [{"engine": "kernel"}, {"processor": "Intel AVX-512"}])
def test_a_result_of_another_engine_or_processor_replaces_the_one_that_is_there(
    where, open_store, change
):
    """Its bits differ; the name that people gave it stays, and so does its pin."""
    store, first = open_store(where), made(1)
    store.put(*first.to_blobs())
    key = first.experiment.hash
    assert store.rename(key, "mine")
    assert store.pin(key, True)
    second = Result(dataclasses.replace(first.snapshot, **change), first.parameters)
    assert store.put(*second.to_blobs()) is True
    assert store.put(*second.to_blobs()) is False
    assert store.snapshot(key).maker == second.snapshot.maker != first.snapshot.maker
    (entry,) = store.entries()
    assert (entry.name, entry.pinned) == ("mine", True)


@pytest.mark.parametrize("status", ["running", "stopped"])
def test_what_is_not_finished_is_refused(where, open_store, status):
    """Half of an experiment would answer for all of it."""
    store = open_store(where)
    result = made()
    object.__setattr__(result.snapshot, "status", status)
    with pytest.raises(ValueError, match=f"status: got '{status}', allowed 'finished'"):
        store.put(*result.to_blobs())
    assert store.entries() == []


@pytest.mark.parametrize("which", [0, 1])
def test_bytes_that_are_no_result_are_refused(where, open_store, which):
    """Neither snapshot nor parameters of another kind come in."""
    store = open_store(where)
    blobs = list(made().to_blobs())
    blobs[which] = b"nothing"
    with pytest.raises(ValueError, match="hold no"):
        store.put(*blobs)
    assert store.entries() == []


@pytest.mark.parametrize("hash", [UNKNOWN, "", "x", "ABCDEF0123456789", "a\0b", "%", "é" * 16])
def test_what_is_not_stored_is_none(where, open_store, hash):
    """Whatever stands in a link."""
    store = open_store(where)
    put(store, 1)
    assert store.result(hash) is None
    assert store.snapshot(hash) is None
    assert not store.rename(hash, "name")
    assert not store.pin(hash, True)
    assert not store.delete(hash)


def test_an_entry_says_what_is_stored(where, open_store):
    """Its settings, counts, sizes and times."""
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


def test_an_empty_store_has_nothing(where, open_store):
    """No entries, no bytes."""
    store = open_store(where)
    assert store.entries() == []
    assert store.n_bytes() == 0


# Lists


def test_entries_come_newest_first(where, open_store, clock):
    """As many as are asked for."""
    store = open_store(where)
    hashes = []
    for first_seed in range(5):
        hashes += put(store, first_seed)
        clock.wait(1)
    assert [entry.hash for entry in store.entries()] == hashes[::-1]
    assert [entry.hash for entry in store.entries(limit=2)] == hashes[:2:-1]


def test_search_looks_into_names_tasks_settings_and_hashes(where, open_store):
    """Every word must stand somewhere; case does not matter."""
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


@pytest.mark.parametrize("search", ["%", "_ass", "'", '\\"%', "/", "a\0b", "\ud800x", "x " * 5000])
def test_search_takes_any_text(where, open_store, search):
    """Patterns and quotes of SQL are letters like all others."""
    store = open_store(where)
    (key,) = put(store, 1)
    store.rename(key, "class")
    assert store.entries(search) == []


@settings(max_examples=25)
@given(name=st.text(max_size=100))
def test_any_name_is_kept_and_found(name):
    """On one line, what can be seen of it, and not longer than a name."""
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(ResultStore(folder)) as store:
        (key,) = put(store, 1)
        assert store.rename(key, name)
        (entry,) = store.entries()
        assert entry.name == "".join(c for c in " ".join(name.split()) if c.isprintable())[:80]
        assert len(entry.name) <= LONGEST_NAME
        assert store.entries(entry.name) == [entry]


def test_rename_pin_and_delete(where, open_store):
    """Each says whether there was something to change; other rows stay as they are."""
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


# The size limit


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


# Torn rows


TORN_SNAPSHOTS = {
    "snapshot cut": {"snapshot": made(1).to_blobs()[0][:1000]},
    "snapshot of another": {"snapshot": made(2).to_blobs()[0]},
    "both checksums": {"checksum": "0" * 32, "snapshot_checksum": "0" * 32},
}
TORN_PARAMETERS = {
    "parameters cut": {"parameters": made(1).to_blobs()[1][:-1]},
    "parameters empty": {"parameters": b""},
    "parameters of another": {"parameters": made(2).to_blobs()[1]},
    "checksum": {"checksum": "0" * 32},
}
TORN = TORN_SNAPSHOTS | TORN_PARAMETERS


@pytest.mark.parametrize("change", TORN.values(), ids=TORN)
def test_a_torn_row_is_absent_until_it_is_put_again(where, open_store, change):
    """Then it is whole, and called what it was called."""
    store = open_store(where)
    one, two = put(store, 1, 2)
    store.rename(one, "kept")
    store.pin(one, True)
    alter(where, one, **change)
    assert store.result(one) is None
    assert (store.snapshot(one) is None) == (change in TORN_SNAPSHOTS.values())
    assert store.result(two) is not None
    result = made(1)
    assert store.put(*result.to_blobs()) is True
    assert store.result(one).to_blobs() == result.to_blobs()
    by_hash = {entry.hash: entry for entry in store.entries()}
    assert (by_hash[one].name, by_hash[one].pinned) == ("kept", True)


def test_a_result_of_another_text_is_absent_until_it_is_put_again(where, open_store, monkeypatch):
    """Its numbers are not those that this copy would get."""
    store = open_store(where)
    result = of_a_text()
    key = result.experiment.hash
    with monkeypatch.context() as other:
        other.setattr(type(result.experiment.task), "fingerprint", "another text")
        assert store.put(*result.to_blobs()) is True
    assert store.result(key) is None
    assert store.put(*result.to_blobs()) is True
    assert store.result(key).to_blobs() == result.to_blobs()


def test_a_row_whose_snapshot_cannot_be_checked_is_put_again(where, open_store):
    """Else its snapshot would be absent for good."""
    store = open_store(where)
    (one,) = put(store, 1)
    alter(where, one, snapshot_checksum="0" * 32)
    assert store.snapshot(one) is None
    assert store.put(*made(1).to_blobs()) is True
    assert store.snapshot(one) is not None


def test_a_snapshot_is_read_without_the_parameters(tmp_path, open_store):
    """They may be many times as large, and links need neither."""
    store = open_store(tmp_path)
    result = made(1)
    store.put(*result.to_blobs())
    key, statements = result.experiment.hash, []
    engine = store._database._engine
    event.listen(engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
    assert store.snapshot(key).to_bytes() == result.snapshot.to_bytes()
    assert store.experiment(key) == result.experiment
    assert any("snapshot" in statement for statement in statements)
    assert not any("parameters" in statement for statement in statements)


def test_an_experiment_is_known_by_its_hash(where, open_store):
    """What is not there, was altered or is unknown to this copy is absent."""
    store = open_store(where)
    one, two = put(store, 1, 2)
    assert store.experiment(one) == made(1).experiment
    assert store.experiment(UNKNOWN) is None
    assert store.experiment("' OR 1=1 --") is None
    alter(where, one, text=made(2).experiment.to_json())
    assert store.experiment(one) is None
    foreign = made(2).experiment.to_json().replace("directed", "theirs")
    alter(where, two, text=foreign, hash=hash_of(foreign))
    assert store.experiment(hash_of(foreign)) is None


def test_a_result_beyond_the_limit_of_one_is_refused_with_the_sizes(where, open_store):
    """It would push out many others; trying again does not help, so it is not `Unavailable`."""
    store = open_store(where, result_megabytes=1)
    (small,) = put(store, 1)
    with pytest.raises(TooLarge, match=r"it takes 1\.2 MB, allowed at most 1 MB on this copy"):
        put(store, 2, n_numbers=300_000)
    assert stored(store) == {small}
    assert not issubclass(TooLarge, Unavailable)


def test_a_row_under_another_hash_is_absent(where, open_store):
    """Even a whole one: a link would show what it does not name."""
    store = open_store(where)
    one, two = put(store, 1, 2)
    store.delete(one)
    blobs = made(2).to_blobs()
    told = {"checksum": checksum(one, *blobs), "snapshot_checksum": checksum(one, blobs[0])}
    alter(where, two, hash=one, **told)
    assert store.result(one) is None
    assert store.snapshot(one) is None
    assert store.entries() == []


def test_an_altered_entry_is_left_out(where, open_store):
    """A list holds what its hashes stand for."""
    store = open_store(where)
    one, two = put(store, 1, 2)
    alter(where, one, text=made(2).experiment.to_json())
    assert stored(store) == {two}
    alter(where, two, created_at=2**62)
    assert store.entries() == []


@pytest.mark.parametrize("value", ["'text'", "x'ff'", "1e300", "-7"])
@pytest.mark.parametrize("column", [c.name for c in RESULTS.c if c.name != "hash"])
def test_a_value_of_another_type_does_no_harm(tmp_path, open_store, column, value):
    """SQLite keeps anything in any column: that row may be absent, and all others are there."""
    store = open_store(tmp_path)
    one, two = put(store, 1, 2)
    with connected(tmp_path) as connection:
        connection.execute(text(f"UPDATE results SET {column} = {value} WHERE hash = '{one}'"))
    if column == "snapshot_checksum":
        assert store.snapshot(one) is None
    elif column in ("snapshot", "parameters", "checksum"):
        assert store.result(one) is None
    assert store.result(two) is not None
    assert two in stored(store)
    assert store.n_bytes() > 0
    store.put(*made(1).to_blobs())
    assert store.put(*made(3).to_blobs()) is True
    assert store.result(one) is not None
    assert store.notes == []


# The schema


def test_two_copies_may_create_the_table_at_once(where, open_store):
    """One creates it, the others wait and find it."""
    stores = [open_store(where) for _ in range(4)]
    start = threading.Barrier(4)

    def use(store):
        start.wait()
        return store.put(*made(1).to_blobs())

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(use, stores)) == [False, False, False, True]


@pytest.mark.parametrize("version", [1, 99])
def test_a_database_of_another_version_is_left_alone(where, open_store, version):
    """The message says what to do; nothing is moved or changed."""
    (key,) = put(open_store(where), 1)
    with connected(where) as connection:
        connection.execute(text(f"UPDATE results_schema SET version = {version}"))
    store = open_store(where)
    expected = f"has version {version}, .* only version {VERSION}: use the attnkit that wrote it"
    for use in (store.entries, store.n_bytes, lambda: store.put(*made(2).to_blobs())):
        with pytest.raises(Unavailable, match=expected):
            use()
    assert store.notes == []
    with connected(where) as connection:
        connection.execute(text(f"UPDATE results_schema SET version = {VERSION}"))
    assert stored(store) == {key}


def test_a_foreign_table_of_a_database_is_left_alone(where, open_store):
    """A name is taken: that is said, and the table stays."""
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


# Where


def test_a_folder_is_made(tmp_path, open_store):
    """With those above it; as a text or a path."""
    folder = tmp_path / "not" / "yet"
    put(open_store(str(folder)), 1)
    assert (folder / FILE).is_file()
    assert len(open_store(folder).entries()) == 1


def test_nowhere_is_this_users_folder(tmp_path, open_store, monkeypatch):
    """Where the system keeps the data of programs."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    put(open_store(""), 1)
    assert (tmp_path / "attnkit" / FILE).is_file()


@pytest.mark.parametrize("where", ["a\0b", "sqlite:///a\0b", "postgresql://a\0b/c", Path("a\0b")])
def test_an_address_with_a_nul_is_refused(where):
    """In one sentence, before anything is opened."""
    with pytest.raises(Unavailable, match="contains a NUL character: write it without one"):
        ResultStore(where)


def test_nothing_is_opened_before_the_first_use(tmp_path, open_store):
    """A store may be described before its database is there."""
    open_store(tmp_path / "later")
    open_store("postgresql://nobody@127.0.0.1:1/nothing")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_set_up_to_lose_nothing(tmp_path, open_store):
    """A log beside it, every commit on the disk, and space that can be given back."""
    put(open_store(tmp_path), 1)
    with connected(tmp_path) as connection:
        pragmas = ("journal_mode", "synchronous", "auto_vacuum", "busy_timeout")
        found = [connection.scalar(text(f"PRAGMA {name}")) for name in pragmas]
    assert found == ["wal", 2, 2, 10_000]


def test_space_is_given_back(tmp_path, open_store):
    """A file gets shorter when results are forgotten."""
    store = open_store(tmp_path)
    hashes = put(store, *range(8), n_numbers=100_000)
    store.close()
    before = (tmp_path / FILE).stat().st_size
    for key in hashes[2:]:
        store.delete(key)
    store.close()
    assert (tmp_path / FILE).stat().st_size < before / 2
    assert stored(store) == set(hashes[:2])


def test_a_closed_store_opens_again(where, open_store):
    """Closing gives back connections only."""
    store = open_store(where)
    hashes = put(store, 1)
    store.close()
    assert stored(store) == set(hashes)


def test_an_engine_is_used_as_it_is(where, open_store, tmp_path):
    """The one of `st.connection`; a file with our settings, so that nothing is lost."""
    url = f"sqlite:///{tmp_path / 'own.db'}" if isinstance(where, Path) else where
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    store = open_store(engine)
    hashes = put(store, 1)
    store.close()
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT hash FROM results")) == hashes[0]
    engine.dispose()


@pytest.mark.server
@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_address_of_postgresql_is_understood(postgres, open_store, scheme):
    """What hosts hand out begins with `postgres`."""
    address = postgres.database().replace("postgresql", scheme, 1)
    assert len(put(open_store(address), 1)) == 1


@pytest.mark.parametrize(
    "address", ["mysql://me:secret@host/db", "http://host", "://", "sqlite://", "postgres://h:x/d"]
)
def test_an_address_of_another_kind_is_refused(address):
    """What is allowed is said; what was given is not, for it may hold a password."""
    with pytest.raises(Unavailable, match=r"allowed|address|memory") as caught:
        ResultStore(address)
    assert "secret" not in str(caught.value)


def test_an_engine_of_another_kind_is_refused(monkeypatch):
    """It might take the statements and keep nothing."""
    engine = create_engine("sqlite://")
    with pytest.raises(Unavailable, match="memory"):
        ResultStore(engine)
    monkeypatch.setattr(engine, "url", make_url("mysql://me:secret@host/db"))
    with pytest.raises(Unavailable, match="its address is neither a folder"):
        ResultStore(engine)


def test_a_user_without_a_folder_is_told_to_name_one(monkeypatch):
    """As in a container that runs under any number."""
    monkeypatch.setattr(
        database_engines, "user_data_dir", lambda name: f"~nobody-has-this-name/{name}"
    )
    with pytest.raises(Unavailable, match="this user has no folder: name one"):
        ResultStore("")


def test_a_missing_driver_is_said(monkeypatch):
    """With the extra that brings it."""
    monkeypatch.setattr(database_engines, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'attnkit\[postgres\]'"):
        ResultStore("postgresql://me@host/db")


def test_a_server_that_is_not_there_is_said_without_its_address(open_store):
    """Nothing of it reaches a page, the password least of all."""
    store = open_store("postgresql://me:secret@127.0.0.1:1/db")
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        store.entries()
    assert str(caught.value) == "the database cannot be reached"


# Many at once


def test_threads_may_share_a_store(where, open_store):
    """Some put, some read, some list; nothing fails and nothing is lost."""
    store = open_store(where)
    first = put(store, *range(100, 104))

    def use(number):
        (own,) = put(store, number)
        assert store.result(own) is not None
        for key in first:
            assert store.snapshot(key) is not None
            assert store.pin(key, number % 2 == 0)
        assert store.entries()
        return own

    with ThreadPoolExecutor(8) as pool:
        hashes = list(pool.map(use, range(16)))
    assert stored(store) == {*first, *hashes}


@pytest.mark.server
def test_two_processes_store_the_same_and_others_at_once(where, open_store):
    """One row of what is the same, and each of what is not; nobody is told of an error."""
    lines = [("put 0", f"put {first}", "put 1", f"put {first + 1}") for first in (10, 20)]
    with storing(where) as one, storing(where) as two:
        processes = (one, two)
        for process, own in zip(processes, lines, strict=True):
            ask(process, *own)
        told = {answer(process) for process in processes for _ in range(4)}
    assert told == {made(seed).experiment.hash for seed in (0, 1, 10, 11, 20, 21)}
    store = open_store(where)
    assert stored(store) == told
    assert all(store.result(key) is not None for key in told)


def test_two_replicas_put_the_same_at_once(where, open_store):
    """Exactly one of them is told that it was new."""
    stores = [open_store(where) for _ in range(2)]
    start = threading.Barrier(2)

    def put_each(store):
        start.wait()
        return [store.put(*made(first_seed).to_blobs()) for first_seed in range(6)]

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(put_each, stores)
    assert [new + old for new, old in zip(one, two, strict=True)] == [1] * 6
    assert len(stores[0].entries()) == 6
