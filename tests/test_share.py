"""Links to copy: an address that only this computer can open is told, and a better one offered."""

import pytest

from attnkit.service.server import server_settings
from attnkit.ui import share

LAN = "192.0.2.7"


@pytest.fixture
def listens_at(monkeypatch):
    """Say where the server listens; this computer is in a network."""

    def listen(address):
        monkeypatch.setattr(share.st, "get_option", {"server.address": address}.get)
        monkeypatch.setattr(share, "get_internal_ip", lambda: LAN)

    return listen


@pytest.mark.parametrize(
    ("host", "everywhere"), [("localhost", None), ("127.8.8.8", "0.0.0.0"), ("[::1]", "::")]
)
def test_a_loopback_address_is_replaced_by_the_one_in_the_network(listens_at, host, everywhere):
    """With what is needed: the same network, a running server, an open port."""
    listens_at(everywhere)
    address, warning = share.reachable(f"http://{host}:8501/")
    assert address == f"http://{LAN}:8501/"
    for needed in ("same network", "keeps running", "firewall", "8501"):
        assert needed in warning


def test_a_server_that_listens_at_a_loopback_address_says_how_to_change_it(listens_at):
    """No other address would work."""
    listens_at("127.0.0.1")
    address, warning = share.reachable("http://localhost:8501/")
    assert address == "http://localhost:8501/"
    assert "this computer only" in warning
    assert "python -m attnkit --host 0.0.0.0" in warning


def test_a_computer_without_a_network_says_so(listens_at, monkeypatch):
    """There is nobody to share with."""
    listens_at(None)
    monkeypatch.setattr(share, "get_internal_ip", lambda: "127.0.0.1")
    address, warning = share.reachable("http://localhost:8501/")
    assert address == "http://localhost:8501/"
    assert "no network" in warning


@pytest.mark.parametrize("shown", ["https://class.example.org/", f"http://{LAN}:8501/", ""])
def test_other_addresses_stay_and_need_no_warning(listens_at, shown):
    """They work for others as they are; one that is not known cannot be judged."""
    listens_at(None)
    assert share.reachable(shown) == (shown, "")


def test_a_hosted_copy_never_warns(listens_at, monkeypatch):
    """Behind a proxy its own address is loopback."""
    listens_at(None)
    monkeypatch.setenv("ATTNKIT_HOSTED", "true")
    server_settings.cache_clear()
    assert share.reachable("http://localhost:8501/") == ("http://localhost:8501/", "")
