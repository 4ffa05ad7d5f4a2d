"""Where the pages find the store: settings, or a connection of Streamlit's secrets."""

from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine

from attnkit.server import server_settings
from attnkit.store import ResultStore, Unavailable
from attnkit.ui import storage
from attnkit.ui.storage import result_store


@pytest.fixture(autouse=True)
def anew(tmp_path, monkeypatch):
    """Nothing is kept from or for other tests."""
    monkeypatch.setenv("ATTNKIT_STORE", str(tmp_path))
    server_settings.cache_clear()
    result_store.clear()
    yield
    monkeypatch.undo()
    server_settings.cache_clear()
    result_store.clear()


def test_without_secrets_the_settings_decide(tmp_path):
    """Nothing is opened before the first use."""
    found = result_store()
    assert isinstance(found, ResultStore)
    assert not list(tmp_path.iterdir())
    assert found.entries() == []
    assert list(tmp_path.iterdir())
    found.close()


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
