"""Whose address counts: that of the socket, or the one that a trusted proxy wrote."""

import pytest
from idle import idle_service, show, visit
from starlette.datastructures import Headers

from attnkit.service.server import server_settings
from attnkit.ui.server.service import training_service
from attnkit.ui.server.visitor_address import session_address, visitor_address

FORGED, TRUE, PEER = "192.0.2.1", "198.51.100.7", "203.0.113.9"


def address(*values, peer=PEER):
    """The visitor's address for a socket's peer and the values of a header."""
    raw = [(b"x-forwarded-for", value.encode()) for value in values]
    return visitor_address(Headers(raw=raw).getlist, peer)


def test_only_the_last_address_in_the_named_header_counts(monkeypatch):
    """The proxy appends to what the visitor sent; without the setting no header is believed."""
    assert address(FORGED) == PEER
    monkeypatch.setenv("ATTNKIT_ADDRESS_HEADER", "X-Forwarded-For")
    server_settings.cache_clear()
    for values in [[f"{FORGED}, {TRUE}"], [FORGED, TRUE], [f" {TRUE} "], [f"nonsense,{TRUE}"]]:
        assert address(*values) == TRUE, values
    for value in ["", ",", "unknown", "1.2.3", f"{TRUE}, ", "\x00", "1" * 5000]:
        assert address(value) == PEER, value


def test_addresses_have_one_canonical_form():
    """One visitor has a /64 of IPv6 addresses, and those are one; nobody is the loopback."""
    for peer, expected in {
        "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
        "2001:db8:1:2::": "2001:db8:1:2::/64",
        "::ffff:198.51.100.7": TRUE,
        "fe80::1%eth0": "fe80::/64",
        None: "127.0.0.1",
        "testclient": "127.0.0.1",
    }.items():
        assert address(peer=peer) == expected
    assert session_address() == "127.0.0.1"  # outside of a page


@pytest.mark.server
def test_what_a_page_asks_for_counts_for_its_address_on_hosted_copies(tmp_path):
    """On one's own machine no limits of an address apply."""
    for hosted, expected in {"true": "127.0.0.1", "false": ""}.items():
        with idle_service(tmp_path, hosted=hosted):
            tab = visit(task="phonebook", n_seeds="1", steps="50")
            tab.button(key="train").click()
            show(tab)
            assert [row["address"] for row in training_service().overview()] == [expected]
