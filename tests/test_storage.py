"""Where the pages find the store: settings, or a connection of Streamlit's secrets."""

import json
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest
from finished import store_finished
from kinds import tiny
from sqlalchemy import create_engine
from storing import made

from attnkit.service.database_engines import FILE
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, TooLarge, Unavailable
from attnkit.ui import storage
from attnkit.ui.storage import result_store, stored_experiment


@pytest.fixture(autouse=True)
def anew(tmp_path, monkeypatch):
    """Nothing is kept from or for other tests."""
    monkeypatch.setenv("ATTNKIT_STORE", str(tmp_path))
    server_settings.cache_clear()
    result_store.clear()
    yield
    result_store.clear()


def test_without_secrets_the_settings_decide(tmp_path):
    """Nothing is opened before the first use."""
    found = result_store()
    assert isinstance(found, ResultStore)
    assert not list(tmp_path.iterdir())
    assert found.entries() == []
    assert list(tmp_path.iterdir())
    found.close()


def test_a_file_that_was_moved_aside_is_logged(tmp_path, capsys):
    """Whoever runs the copy may want what stands in it."""
    (tmp_path / FILE).write_bytes(b"Dear diary, " * 500)
    assert result_store().entries() == []
    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert line["event"] == "database moved aside"
    assert (line["reason"], line["results"]) == ("its file is not a database", 0)


def test_a_stored_experiment_is_found_by_its_hash_without_its_numbers(tmp_path):
    """A link may be opened by anybody: a snapshot may be large."""
    experiment = tiny("directed")
    store_finished(result_store(), experiment)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("UPDATE results SET snapshot = x'', parameters = x''")
        connection.commit()
    assert stored_experiment(experiment.hash) == experiment
    assert stored_experiment("0123456789abcdef") is None


def test_one_result_may_take_what_the_settings_say(monkeypatch):
    """So that no visitor flushes what others have trained."""
    monkeypatch.setenv("ATTNKIT_RESULT_MEGABYTES", "1")
    server_settings.cache_clear()
    with pytest.raises(TooLarge, match="allowed at most 1 MB"):
        result_store().put(*made(n_numbers=300_000).to_blobs())


def secrets(monkeypatch, **given):
    """What Streamlit's secrets hold."""
    monkeypatch.setattr(storage.st, "secrets", {"connections": {"attnkit": given}})


def test_a_connection_in_the_secrets_comes_first(monkeypatch):
    """Its engine is the store's."""
    engine = create_engine("sqlite:///of_secrets.sqlite")
    secrets(monkeypatch, url="told")
    monkeypatch.setattr(storage.st, "connection", lambda *_, **__: SimpleNamespace(engine=engine))
    monkeypatch.setattr(storage, "ResultStore", lambda where, **_: where)
    assert result_store() is engine


@pytest.mark.parametrize("error", [ValueError("port: pass@word"), ImportError("No module 'x'")])
def test_a_connection_that_cannot_be_made_is_told_without_its_password(monkeypatch, error):
    """What is wrong with a URL is not repeated."""

    def fails(*_, **__):
        raise error

    secrets(monkeypatch, url="told")
    monkeypatch.setattr(storage.st, "connection", fails)
    found = result_store()
    assert isinstance(found, Unavailable)
    assert "[connections.attnkit]" in str(found)
    assert "pass@word" not in str(found)
