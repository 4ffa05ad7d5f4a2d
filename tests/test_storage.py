"""Objects of which a server has one, and where it finds the store: settings, or secrets."""

import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import streamlit as st
from finished import store_finished
from kinds import tiny
from sqlalchemy import create_engine
from storing import made

from attnkit.service.database_engines import FILE
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, TooLarge, Unavailable
from attnkit.ui.server import storage
from attnkit.ui.server.owner import gate
from attnkit.ui.server.singletons import Singleton
from attnkit.ui.server.storage import result_store, stored_experiment


@pytest.fixture(autouse=True)
def anew(tmp_path, monkeypatch):
    """Nothing is kept from or for other tests."""
    monkeypatch.setenv("ATTNKIT_STORE", str(tmp_path))
    server_settings.cache_clear()
    result_store.clear()
    yield
    result_store.clear()


def test_without_secrets_the_settings_decide(tmp_path, capsys, monkeypatch):
    """Nothing is opened before the first use; a file that was moved aside is logged.

    One result may take what the settings say, so that no visitor flushes what others have trained.
    """
    monkeypatch.setenv("ATTNKIT_RESULT_MEGABYTES", "1")
    server_settings.cache_clear()
    found = result_store()
    assert isinstance(found, ResultStore)
    assert not list(tmp_path.iterdir())
    (tmp_path / FILE).write_bytes(b"Dear diary, " * 500)
    assert found.entries() == []
    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["event"], line["reason"]) == ("database moved aside", "its file is not a database")
    with pytest.raises(TooLarge, match="at most 1 MB"):
        found.put(*made(n_numbers=300_000).to_blobs())


def test_a_stored_experiment_is_found_by_its_hash_without_its_numbers(tmp_path):
    """A link may be opened by anybody: a snapshot may be large."""
    experiment = tiny("directed")
    store_finished(result_store(), experiment)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("UPDATE results SET snapshot = x'', parameters = x''")
        connection.commit()
    assert stored_experiment(experiment.hash) == experiment
    assert stored_experiment("0123456789abcdef") is None


def test_a_connection_in_the_secrets_comes_first(monkeypatch):
    """Its engine is the store's; what is wrong with its URL, which has a password, is not told."""
    engine = create_engine("sqlite:///of_secrets.sqlite")
    monkeypatch.setattr(storage.st, "secrets", {"connections": {"attnkit": {"url": "told"}}})
    for error in (ValueError("port: pass@word"), ImportError("No module 'x'")):
        monkeypatch.setattr(storage.st, "connection", Mock(side_effect=error))
        result_store.clear()
        found = result_store()
        assert isinstance(found, Unavailable)
        assert "[connections.attnkit]" in str(found)
        assert "pass@word" not in str(found)
    monkeypatch.setattr(storage.st, "connection", lambda *_, **__: SimpleNamespace(engine=engine))
    monkeypatch.setattr(storage, "ResultStore", lambda where, **_: Mock(where=where))
    result_store.clear()
    assert result_store().where is engine


def test_many_threads_get_one_object_until_it_is_cleared():
    """None is kept like any other; a failed attempt keeps nothing; what is cleared is released."""
    together, made, released = threading.Barrier(8), [], []

    @Singleton
    def fragile():
        made.append(None)
        if len(made) == 1:
            raise BlockingIOError

    def call(_):
        together.wait(10)
        try:
            return fragile()
        except BlockingIOError:
            return "failed"

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(call, range(8)), key=str) == [None] * 7 + ["failed"]
    assert len(made) == 2
    one = Singleton(object, release=released.append)
    first = one()
    assert one() is first
    one.clear()
    one.clear()
    assert released == [first]
    assert one() is not first


def test_clearing_the_caches_of_streamlit_clears_no_object_of_ours():
    """Any visitor can ask Streamlit to clear its caches."""
    for single in (gate, result_store):
        before = single()
        st.cache_resource.clear()
        assert single() is before
        single.clear()
