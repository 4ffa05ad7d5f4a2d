"""Whose address counts: that of the socket, or the one that a trusted proxy wrote."""

import pytest
from idle import idle_service, show, visit
from starlette.datastructures import Headers

from attnkit.service.server import server_settings
from attnkit.ui.service import training_service
from attnkit.ui.visitor_address import session_address, visitor_address

FORGED, TRUE, PEER = "192.0.2.1", "198.51.100.7", "203.0.113.9"


@pytest.fixture
def header(monkeypatch):
    """Set `ATTNKIT_ADDRESS_HEADER` for one test."""

    def set_header(name):
        monkeypatch.setenv("ATTNKIT_ADDRESS_HEADER", name)
        server_settings.cache_clear()

    return set_header


def address(peer=PEER, *pairs):
    """The visitor's address for a socket's peer and some headers."""
    raw = [(name.lower().encode(), value.encode()) for name, value in pairs]
    return visitor_address(Headers(raw=raw).getlist, peer)


def test_without_the_setting_no_header_is_believed():
    """Anybody can send a header."""
    assert address(PEER, ("X-Forwarded-For", FORGED)) == PEER


def test_the_last_address_in_the_named_header_counts(header):
    """The proxy appends to what the visitor sent, in the same header or in another one."""
    header("x-forwarded-for")
    for values in [[f"{FORGED}, {TRUE}"], [FORGED, TRUE], [f" {TRUE} "], [f"nonsense,{TRUE}"]]:
        assert address(PEER, *[("X-Forwarded-For", value) for value in values]) == TRUE, values


def test_a_header_without_an_address_leaves_the_peer(header):
    """A wrong value does not make an identity of its own."""
    header("X-Forwarded-For")
    for value in ["", ",", "unknown", "1.2.3", f"{TRUE}, ", "\x00", "1" * 5000]:
        assert address(PEER, ("X-Forwarded-For", value)) == PEER, value


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("::ffff:198.51.100.7", TRUE),
        ("fe80::1%eth0", "fe80::/64"),
        (None, "127.0.0.1"),
        ("testclient", "127.0.0.1"),
    ],
)
def test_addresses_have_one_canonical_form(peer, expected):
    """One visitor has a /64 of IPv6 addresses, and those are one."""
    assert address(peer) == expected


def test_outside_a_page_the_address_is_loopback():
    """Nobody is connected there, and nothing raises."""
    assert session_address() == "127.0.0.1"


@pytest.mark.server
@pytest.mark.parametrize(("hosted", "address"), [("true", "127.0.0.1"), ("false", "")])
def test_what_a_page_asks_for_counts_for_its_address_on_hosted_copies(tmp_path, hosted, address):
    """On one's own machine no limits of an address apply."""
    with idle_service(tmp_path, hosted=hosted):
        tab = visit(task="phonebook", n_seeds="1", steps="50")
        tab.button(key="train").click()
        show(tab)
        assert [row["address"] for row in training_service().overview()] == [address]
