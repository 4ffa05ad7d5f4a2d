"""The result store on SQLite and on PostgreSQL, and how a server finds its own."""

import dataclasses
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from idle import idle_service
from searching import briefly
from sqlalchemy import create_engine
from storing import alter, make_result, put, stored

from attnkit.service import store as store_module
from attnkit.service.database import FILE
from attnkit.service.store import TooLarge, Unavailable, checksum
from attnkit.training.results import Result
from attnkit.ui.server import service
from attnkit.ui.server.service import result_store, stored_experiment

KEYS = [make_result(seed).experiment.hash for seed in range(5)]


@pytest.fixture
def clock(monkeypatch):
    """The clock of the store, whose `wall` the test sets and may set back."""
    one = SimpleNamespace(wall=1_800_000_000, passed=0)
    one.time_ns, one.monotonic = lambda: one.wall * 10**9, lambda: one.passed
    monkeypatch.setattr(store_module, "time", one)
    return one


@cache
def blobs_of(key, n_numbers, engine):
    """Return a result of one of the keys, trained by an engine."""
    result = make_result(KEYS.index(key), n_numbers)
    return Result(dataclasses.replace(result.snapshot, engine=engine), result.parameters).to_blobs()


class Model:
    """Check what a store of one megabyte keeps; its rows are in the order of their use."""

    def __init__(self, store, clock):
        self.store, self.clock, self.rows = store, clock, {}

    def put(self, key, draw):
        """Keep an equal result; else replace it, and delete what was longest not used."""
        size, engine = draw.choice([5_000, 60_000, 300_000]), draw.choice(["torch", "kernel"])
        blobs, row = blobs_of(key, size, engine), self.rows.pop(key, None)
        is_new = row is None or row.engine != engine
        assert self.store.put(*blobs) is is_new
        if is_new:
            unpinned = [other for other, row in self.rows.items() if not row.pinned]
            while unpinned and self.n_bytes() + sum(map(len, blobs)) > 2**20:
                del self.rows[unpinned.pop(0)]
            row = row or SimpleNamespace(name="", pinned=False)
            vars(row).update(blobs=blobs, engine=engine, created=self.clock.wall)
        self.rows[key] = row

    def read(self, key, draw):
        """Read a result or its snapshot; a peek is no use."""
        method = draw.choice(["snapshot", "result", "peek"])
        read = getattr(self.store, method)(key)
        assert (read is None) == (key not in self.rows)
        if read is not None:
            blobs = read.to_blobs() if method == "result" else (read.to_bytes(),)
            assert blobs == self.rows[key].blobs[: len(blobs)]
            if method != "peek":
                self.rows[key] = self.rows.pop(key)

    def change(self, key, draw):
        """Rename or pin a row, and say whether it was there; its name is one line and is found."""
        row, name, pinned = self.rows.get(key), draw.choice(NAMES), draw.random() < 0.3
        assert self.store.rename(key, name) == self.store.pin(key, pinned) == (key in self.rows)
        if row:
            row.name = "".join(c for c in " ".join(name.split()) if c.isprintable())[:80]
            row.pinned = pinned
            assert key in {entry.hash for entry in self.store.entries(row.name)}

    def delete(self, key, _):
        """Delete a row, and say whether it was there."""
        assert self.store.delete(key) is (self.rows.pop(key, None) is not None)

    def n_bytes(self):
        """Return the size of all rows."""
        return sum(len(blob) for row in self.rows.values() for blob in row.blobs)

    def check(self):
        """Compare the list of the store, newest first, and the order of use."""
        entries = self.store.entries()
        newest = sorted(self.rows.items(), key=lambda item: (-item[1].created, item[0]))
        expected = [(key, row.name, row.pinned, row.created) for key, row in newest]
        listed = [(one.hash, one.name, one.pinned, one.created_at.timestamp()) for one in entries]
        assert listed == expected
        assert [one.hash for one in sorted(entries, key=lambda one: one.used_at)] == [*self.rows]
        assert self.store.n_bytes() == self.n_bytes() == sum(one.n_bytes for one in entries)


NAMES = ["", "Monday's class", " a\tb\0\u202e%\n", "Straße 東京 " * 20]
STEPS = "put put put put read read change change delete".split()


@settings(briefly(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=some.randoms(use_true_random=False))
def test_a_store_does_what_its_model_does(where, open_store, clock, draw):
    """Names and pins stay, and what was longest not used goes first, whatever the clock says."""
    store = open_store(where, megabytes=1)
    for key in stored(store):
        store.delete(key)
    model = Model(store, clock)
    for _ in range(20):
        clock.passed += 61
        clock.wall += draw.choice([61, 61, 61, -86400 * 400])
        getattr(model, draw.choice(STEPS))(draw.choice(KEYS), draw)
        model.check()
    store.close()
    model.store = open_store(where)
    model.check()
    for seed, key in enumerate(KEYS):
        experiment = make_result(seed).experiment if key in model.rows else None
        assert model.store.experiment(key) == experiment
    model.store.close()  # of many examples, each would leave a connection


def test_a_result_that_is_not_finished_or_too_large_is_refused(tmp_path, open_store):
    """Too large is not `Unavailable`, because another try does not help."""
    store = open_store(tmp_path, result_megabytes=1)
    running = make_result()
    object.__setattr__(running.snapshot, "status", "running")
    snapshot, parameters = make_result().to_blobs()
    for blobs in (running.to_blobs(), (b"nothing", parameters), (snapshot, b"nothing")):
        with pytest.raises(ValueError, match=r"finished|hold"):
            store.put(*blobs)
    with pytest.raises(TooLarge, match=r"1\.2 MB, .* 1 MB"):
        put(store, 2, n_numbers=300_000)
    assert store.entries() == []
    assert not issubclass(TooLarge, Unavailable)


def test_any_key_and_search_may_be_asked_for(where, open_store):
    """Every word of a search must occur, in any case; wildcards and quotes are letters."""
    store = open_store(where)
    one, two = put(store, 1, 23)
    (three,) = put(store, 1, task="mutual", sharing=["QKV", "K=V"])
    for key in ("0123456789abcdef", "", "ABCDEF0123456789", "a\0b", "%", "é" * 16, "' OR 1=1 --"):
        read = (store.result, store.snapshot, store.peek, store.experiment)
        assert [method(key) for method in read] == [None] * 4, key
        assert not any([store.rename(key, "name"), store.pin(key, True), store.delete(key)]), key
    store.rename(two, "Monday's class")
    known = {"": {one, two, three}, "DIRECTED": {one, two}, "mutual": {three}, "K=V": {three}}
    known |= {"class monday": {two}, "class mutual": set(), one[:9]: {one}}
    (entry,) = store.entries("mutual")
    assert (entry.task, entry.n_runs, entry.steps, entry.seconds) == ("mutual", 2, 20, 1.5)
    nothing = ("nothing", "%", "_lass", '\\"%', "/", "a\0b", "\ud800x", "x " * 5000)
    for search in (*known, *nothing):
        assert {entry.hash for entry in store.entries(search)} == known.get(search, set()), search


def test_many_may_open_put_and_read_the_same_at_once(where, open_store, monkeypatch):
    """Exactly one of four stores, used by two threads each, reports each result as new."""
    monkeypatch.setattr("attnkit.service.database.BUSY_SECONDS", 60)  # a disk may stall
    stores, together = [open_store(where) for _ in range(4)] * 2, threading.Barrier(8)

    def use(number):
        together.wait()
        for first_seed in (0, 1, 10 + number):
            result = make_result(first_seed)
            yield stores[number].put(*result.to_blobs())
            assert stores[number].result(result.experiment.hash) is not None
            assert stores[number].pin(result.experiment.hash, number % 2 == 0)
            assert stores[number].entries()

    with ThreadPoolExecutor(8) as pool:
        new = list(pool.map(lambda number: list(use(number)), range(8)))
    assert [sum(each) for each in zip(*new, strict=True)] == [1, 1, 8]
    assert len(stores[0].entries()) == 10


def test_a_torn_or_altered_row_is_absent_where_it_is_wrong(where, open_store):
    """A torn one is replaced when it is put again, and keeps its name and pin."""
    store, result, other = open_store(where), make_result(1), make_result(2)
    (key,), (snapshot, parameters) = put(store, 1), result.to_blobs()
    assert (store.rename(key, "name"), store.pin(key, True)) == (True, True)
    foreign = dict(zip(("snapshot", "parameters"), other.to_blobs(), strict=True))
    sums = {"checksum": checksum(key, *foreign.values())}
    sums["snapshot_checksum"] = checksum(key, foreign["snapshot"])
    for altered, absent in (
        ({"text": other.experiment.to_json()}, {"experiment", "entries"}),
        ({"text": result.experiment.to_json(), "created_at": 2**62}, {"entries"}),
        ({"created_at": 0, "checksum": "0" * 32}, {"result"}),
        ({"parameters": parameters[::-1]}, {"result"}),
        ({"snapshot": snapshot[::-1]}, {"result", "snapshot"}),
        ({"snapshot_checksum": "0" * 32}, {"result", "snapshot"}),
        ({**foreign, **sums}, {"result", "snapshot"}),
    ):
        alter(where, key, **altered)
        names = ("result", "snapshot", "experiment", "entries")
        assert {name for name in names if not getattr(store, name)(key)} == absent, altered.keys()
        assert store.put(*result.to_blobs()) is ("result" in absent)
    assert [(entry.name, entry.pinned) for entry in store.entries()] == [("name", True)]


@pytest.fixture
def of_server(tmp_path):
    """The store of a server in a folder of its own; nothing is kept from or for other tests."""
    with idle_service(tmp_path, result_megabytes="1"):
        yield result_store


def test_without_secrets_the_settings_decide(of_server, tmp_path, capsys):
    """Nothing is opened before the first use; a file that was moved aside is logged."""
    store = of_server()
    assert not list(tmp_path.iterdir())
    (tmp_path / FILE).write_bytes(b"Dear diary, " * 500)
    assert store.entries() == []
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], "damaged" in line["reason"]) == ("database moved aside", True)
    with pytest.raises(TooLarge, match="at most 1 MB"):
        put(store, 2, n_numbers=300_000)
    (key,) = put(store, 3)
    alter(tmp_path, key, snapshot=b"", parameters=b"")  # a link opens without them
    assert stored_experiment(key) == make_result(3).experiment
    assert stored_experiment("0123456789abcdef") is None


def test_a_connection_in_the_secrets_comes_first(of_server, monkeypatch):
    """Its engine is the store's; the message about a wrong address has no part of it."""
    engine = create_engine("sqlite:///of_secrets.sqlite")
    monkeypatch.setattr(service.st, "secrets", {"connections": {"attnkit": {"url": "secret"}}})
    for error in (ValueError("port: pass@word"), ImportError("No module 'x'")):
        monkeypatch.setattr(service.st, "connection", Mock(side_effect=error))
        of_server.clear()
        assert isinstance(refusal := of_server(), Unavailable)
        assert "[connections.attnkit]" in str(refusal)
        assert "pass@word" not in str(refusal)
    monkeypatch.setattr(service.st, "connection", lambda *_, **__: SimpleNamespace(engine=engine))
    monkeypatch.setattr(service, "ResultStore", lambda where, **_: Mock(where=where))
    of_server.clear()
    assert of_server().where is engine
