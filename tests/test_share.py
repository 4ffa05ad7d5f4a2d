"""Links to copy: an address that only this computer can open is told, and a better one offered."""

import pytest

from attnkit.service.server import server_settings
from attnkit.ui.lab import share

LAN, HERE = "192.0.2.7", "http://localhost:8501/"
OTHER = f"http://{LAN}:8501/"
NEEDED = ("same network", "keeps running", "firewall", "8501")


@pytest.mark.parametrize(
    ("shown", "listens", "network", "offered", "told"),
    [
        (HERE, None, LAN, OTHER, NEEDED),
        ("http://127.8.8.8:8501/", "0.0.0.0", LAN, OTHER, NEEDED),
        ("http://[::1]:8501/", "::", LAN, OTHER, NEEDED),
        (HERE, "127.0.0.1", LAN, HERE, ("this computer only", "python -m attnkit --host 0.0.0.0")),
        (HERE, None, "127.0.0.1", HERE, ("no network",)),
        ("https://class.example.org/", None, LAN, "https://class.example.org/", ()),
        (OTHER, None, LAN, OTHER, ()),  # works for others as it is
        ("", None, LAN, "", ()),  # one that is not known cannot be judged
    ],
)
def test_a_loopback_address_is_replaced_by_the_one_in_the_network(
    monkeypatch, shown, listens, network, offered, told
):
    """With what is needed, or with the reason if there is no other; a hosted copy never warns."""
    monkeypatch.setattr(share.st, "get_option", {"server.address": listens}.get)
    monkeypatch.setattr(share, "get_internal_ip", lambda: network)
    address, warning = share.reachable(shown)
    assert address == offered
    assert bool(warning) == bool(told)
    assert all(words in warning for words in told)
    monkeypatch.setenv("ATTNKIT_HOSTED", "true")  # behind a proxy its own address is loopback
    server_settings.cache_clear()
    assert share.reachable(shown) == (shown, "")
