"""The result store on SQLite and on PostgreSQL, and how a server finds its own."""

import dataclasses
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from idle import idle_service
from kinds import tiny
from searching import briefly
from sqlalchemy import create_engine
from storing import alter, made, put, stored

from attnkit import __version__
from attnkit.experiment.experiment import hash_of
from attnkit.service import store as store_module
from attnkit.service.database import checksum
from attnkit.service.database_engines import FILE
from attnkit.service.store import ResultStore, TooLarge, Unavailable
from attnkit.training import Training
from attnkit.training.results import Result
from attnkit.ui.server import storage
from attnkit.ui.server.owner import gate
from attnkit.ui.server.singletons import Singleton
from attnkit.ui.server.storage import result_store, stored_experiment


@pytest.fixture
def clock(monkeypatch):
    """The clocks of the store, which the test advances: one on the wall, which may jump."""
    made_clock = SimpleNamespace(wall=1_800_000_000, passed=0)
    made_clock.time_ns = lambda: made_clock.wall * 10**9
    made_clock.monotonic = lambda: made_clock.passed

    def wait(seconds):
        made_clock.wall += seconds
        made_clock.passed += seconds

    made_clock.wait = wait
    monkeypatch.setattr(store_module, "time", made_clock)
    return made_clock


KEYS = [made(seed).experiment.hash for seed in range(5)]


@cache
def blobs_of(key, n_numbers, maker):
    """Return a result of one of the keys, trained by an engine on a processor."""
    result = made(KEYS.index(key), n_numbers)
    snapshot = dataclasses.replace(result.snapshot, engine=maker[0], processor=maker[1])
    return Result(snapshot, result.parameters).to_blobs()


class Model:
    """Model of a store of one megabyte; its rows are in the order of their use."""

    def __init__(self, where, store, clock):
        self.where, self.store, self.clock, self.rows = where, store, clock, {}

    def put(self, key, n_numbers, maker):
        """Keep an equal result; else replace it, and forget what was longest not used."""
        blobs, before = blobs_of(key, n_numbers, maker), self.rows.pop(key, None)
        is_new = before is None or before.maker != maker or bool(before.lacks)
        assert self.store.put(*blobs) is is_new
        if is_new:
            unpinned = [other for other, row in self.rows.items() if not row.pinned]
            while unpinned and self.n_bytes() + sum(map(len, blobs)) > 2**20:
                del self.rows[unpinned.pop(0)]
            before = before or SimpleNamespace(name="", pinned=False)
            vars(before).update(blobs=blobs, maker=maker, created=self.clock.wall, lacks=set())
        self.rows[key] = before

    def read(self, key, method):
        """Read whole results or snapshots only; `peek` is no use."""
        row, found = self.rows.get(key), getattr(self.store, method)(key)
        if row is None or ("result" if method == "result" else "snapshot") in row.lacks:
            assert found is None
            return
        blobs = found.to_blobs() if method == "result" else (found.to_bytes(),)
        assert blobs == row.blobs[: len(blobs)]
        if method != "peek":
            self.rows[key] = self.rows.pop(key)

    def tear(self, key, column):
        """Cut a blob or lose a checksum behind the store's back."""
        if (row := self.rows.get(key)) is None:
            return
        columns = dict(zip(("snapshot", "parameters"), row.blobs, strict=True))
        altered = columns[column][:-1] if column in columns else "0" * 32
        alter(self.where, key, **{column: altered})
        row.blobs = tuple(({**columns, column: altered})[name] for name in columns)
        row.lacks |= {"result", "snapshot" if column.startswith("snapshot") else "result"}

    def change(self, key, changed):
        """Rename, pin or delete a row, and say whether it was there."""
        method, *value = changed
        assert getattr(self.store, method)(key, *value) is (key in self.rows)
        if method == "delete":
            self.rows.pop(key, None)
        elif method == "pin" and key in self.rows:
            self.rows[key].pinned = value[0]
        elif key in self.rows:  # a name is one line, printable and short, and is found
            name = "".join(c for c in " ".join(value[0].split()) if c.isprintable())[:80]
            self.rows[key].name = name
            assert key in {entry.hash for entry in self.store.entries(name)}

    def jump(self, _, days):
        """Set the clock on the wall."""
        self.clock.wall += 86400 * days

    def n_bytes(self):
        """Return the size of all rows."""
        return sum(len(blob) for row in self.rows.values() for blob in row.blobs)

    def check(self):
        """Compare the list of the store, newest first, and the order of use."""
        entries = self.store.entries()
        newest = sorted(self.rows.items(), key=lambda item: (-item[1].created, item[0]))
        expected = [(key, row.name, row.pinned) for key, row in newest]
        assert [(entry.hash, entry.name, entry.pinned) for entry in entries] == expected
        used = sorted(entries, key=lambda entry: entry.used_at)
        assert [entry.hash for entry in used] == list(self.rows)
        assert self.store.n_bytes() == self.n_bytes()


CALLS = {  # method of the model → its arguments after the key
    "put": (
        st.sampled_from([5_000, 60_000, 300_000]),
        st.sampled_from([("torch", "A"), ("kernel", "A"), ("kernel", "B")]),
    ),
    "read": (st.sampled_from(["snapshot", "result", "peek"]),),
    "tear": (st.sampled_from("checksum parameters snapshot snapshot_checksum".split()),),
    "change": (
        st.one_of(
            st.tuples(st.just("rename"), st.text(max_size=100)),
            st.tuples(st.just("pin"), st.booleans()),
            st.tuples(st.just("delete")),
        ),
    ),
    "jump": (st.integers(-400, 400),),
}
STEPS = st.sampled_from("put put put put read read tear change change change jump".split()).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(KEYS), *CALLS[name])
)


@settings(briefly(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=10, max_size=30))
def test_a_store_does_what_its_model_does(where, open_store, clock, steps):
    """Torn rows are absent, names and pins stay, what was longest not used goes first."""
    store = open_store(where, megabytes=1)
    for key in stored(store):
        store.delete(key)
    model = Model(where, store, clock)
    for name, *arguments in steps:
        clock.wait(61)
        getattr(model, name)(*arguments)
        model.check()
    store.close()
    model.store = open_store(where)
    for key in KEYS:
        clock.wait(61)
        known = model.store.experiment(key)
        assert known == (made(KEYS.index(key)).experiment if key in model.rows else None)
        model.read(key, "peek")
        model.read(key, "result")
    model.check()
    assert model.store.entries(limit=2) == model.store.entries()[:2]
    model.store.close()


def test_a_result_is_refused_that_is_not_finished_too_large_or_of_another_text(
    tmp_path, open_store, monkeypatch
):
    """Too large is not `Unavailable`, because another try does not help; the sizes are told."""
    store = open_store(tmp_path, result_megabytes=1)
    assert (store.entries(), store.n_bytes()) == ([], 0)
    running = made()
    object.__setattr__(running.snapshot, "status", "running")
    snapshot, parameters = made().to_blobs()
    for blobs, message in (
        (running.to_blobs(), "status: got 'running', allowed 'finished'"),
        ((b"nothing", parameters), "hold"),
        ((snapshot, b"nothing"), "hold"),
    ):
        with pytest.raises(ValueError, match=message):
            store.put(*blobs)
    with pytest.raises(TooLarge, match=r"1\.2 MB, .* 1 MB"):
        put(store, 2, n_numbers=300_000)
    assert store.entries() == []
    assert not issubclass(TooLarge, Unavailable)
    training = Training(tiny("language", sharing="QKV", n_seeds=1), "cpu")
    training.advance(8)
    result, key = training.result(), training.experiment.hash
    with monkeypatch.context() as other:
        other.setattr(type(result.experiment.task), "fingerprint", "another text")
        assert store.put(*result.to_blobs())
    assert store.result(key) is None
    assert store.put(*result.to_blobs())
    assert store.result(key).to_blobs() == result.to_blobs()


def test_any_key_and_search_may_be_asked_for(where, open_store):
    """Every word of a search must be found, in any case; wildcards and quotes are letters."""
    store = open_store(where)
    one, two = put(store, 1, 23)
    (three,) = put(store, 1, task="mutual", sharing=["QKV", "K=V"])
    for key in ("0123456789abcdef", "", "ABCDEF0123456789", "a\0b", "%", "é" * 16, "' OR 1=1 --"):
        read = (store.result, store.snapshot, store.peek, store.experiment)
        assert [method(key) for method in read] == [None] * 4, key
        assert not any([store.rename(key, "name"), store.pin(key, True), store.delete(key)]), key
    store.rename(two, "Monday's class")
    found = {"": {one, two, three}, "DIRECTED": {one, two}, "mutual": {three}, "K=V": {three}}
    found |= {"class monday": {two}, "class mutual": set(), one[:9]: {one}}
    nothing = ("nothing", "%", "_lass", '\\"%', "/", "a\0b", "\ud800x", "x " * 5000)
    for search in (*found, *nothing):
        hashes = {entry.hash for entry in store.entries(search)}
        assert hashes == found.get(search, set()), search


def test_an_entry_says_what_is_stored(where, open_store, clock):
    """It tells settings, counts, sizes and times."""
    store, result = open_store(where), made(7, sharing=["QKV", "Q=K"], n_seeds=2)
    store.put(*(blobs := result.to_blobs()))
    (entry,) = store.entries()
    assert entry.experiment == result.experiment
    assert (entry.task, entry.n_runs, entry.steps, entry.seconds) == ("directed", 4, 20, 1.5)
    assert (entry.version, entry.n_bytes) == (__version__, len(blobs[0]) + len(blobs[1]))
    assert entry.created_at == entry.used_at == datetime.fromtimestamp(clock.wall, UTC)


def test_many_may_open_put_and_read_the_same_at_once(where, open_store, monkeypatch):
    """Exactly one of four stores, used by two threads each, reports each result as new."""
    monkeypatch.setattr("attnkit.service.database_engines.BUSY_SECONDS", 60)  # a disk may stall
    stores, start = [open_store(where) for _ in range(4)] * 2, threading.Barrier(8)

    def use(number):
        store, new = stores[number], []
        start.wait()
        for first_seed in (0, 1, 10 + number):
            result = made(first_seed)
            new += [store.put(*result.to_blobs())]
            assert store.result(result.experiment.hash) is not None
            assert store.pin(result.experiment.hash, number % 2 == 0)
            assert store.entries()
        return new

    with ThreadPoolExecutor(8) as pool:
        new = list(pool.map(use, range(8)))
    assert [sum(each) for each in zip(*new, strict=True)] == [1, 1, 8]
    assert len(stores[0].entries()) == 10


def test_an_altered_row_is_absent_until_it_is_put_again(where, open_store):
    """It may have other settings, an unknown task, an impossible date or another hash."""
    store = open_store(where)
    one, two = put(store, 1, 2)
    foreign = made(2).experiment.to_json().replace("directed", "theirs")
    for altered in (made(2).experiment.to_json(), foreign):
        alter(where, one, text=altered)
        assert (store.experiment(one), stored(store)) == (None, {two})
    blobs = made(2).to_blobs()
    checksums = {"checksum": checksum(one, *blobs), "snapshot_checksum": checksum(one, blobs[0])}
    store.delete(one)
    alter(where, two, hash=one, **checksums)
    assert (store.result(one), store.snapshot(one), store.entries()) == (None, None, [])
    put(store, 1, 2)
    alter(where, one, text=foreign, hash=hash_of(foreign))
    assert store.experiment(hash_of(foreign)) is None
    alter(where, two, created_at=2**62)
    assert two not in stored(store)


@pytest.fixture
def of_server(tmp_path):
    """The store of a server in a folder of its own; nothing is kept from or for other tests."""
    with idle_service(tmp_path, result_megabytes="1"):
        yield result_store


def test_without_secrets_the_settings_decide(of_server, tmp_path, capsys):
    """Nothing is opened before the first use; a file that was moved aside is logged."""
    found = of_server()
    assert isinstance(found, ResultStore)
    assert not list(tmp_path.iterdir())
    (tmp_path / FILE).write_bytes(b"Dear diary, " * 500)
    assert found.entries() == []
    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["event"], line["reason"]) == ("database moved aside", "its file is not a database")
    with pytest.raises(TooLarge, match="at most 1 MB"):
        put(found, 2, n_numbers=300_000)
    (key,) = put(found, 3)
    alter(tmp_path, key, snapshot=b"", parameters=b"")
    assert stored_experiment(key) == made(3).experiment  # a link is opened without large numbers
    assert stored_experiment("0123456789abcdef") is None


def test_a_connection_in_the_secrets_comes_first(of_server, monkeypatch):
    """Its engine is the store's; what is wrong with its URL, which has a password, is not told."""
    engine = create_engine("sqlite:///of_secrets.sqlite")
    monkeypatch.setattr(storage.st, "secrets", {"connections": {"attnkit": {"url": "told"}}})
    for error in (ValueError("port: pass@word"), ImportError("No module 'x'")):
        monkeypatch.setattr(storage.st, "connection", Mock(side_effect=error))
        of_server.clear()
        assert isinstance(found := of_server(), Unavailable)
        assert "[connections.attnkit]" in str(found)
        assert "pass@word" not in str(found)
    monkeypatch.setattr(storage.st, "connection", lambda *_, **__: SimpleNamespace(engine=engine))
    monkeypatch.setattr(storage, "ResultStore", lambda where, **_: Mock(where=where))
    of_server.clear()
    assert of_server().where is engine


def test_many_threads_get_one_object_until_it_is_cleared():
    """None is kept like any other; a failed attempt keeps nothing; what is cleared is released."""
    fragile, together = Singleton(Mock(side_effect=[BlockingIOError, None])), threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(lambda: (together.wait(10), fragile())) for _ in range(8)]
    failed = [call for call in calls if call.exception()]
    assert len(failed) == 1
    assert {call.result()[1] for call in calls if call not in failed} == {None}
    released = []
    one = Singleton(object, release=released.append)
    first = one()
    storage.st.cache_resource.clear()  # as any visitor can ask Streamlit to do
    assert one() is first
    assert all(isinstance(kept, Singleton) for kept in (gate, result_store))
    one.clear()
    one.clear()
    assert released == [first]
    assert one() is not first
