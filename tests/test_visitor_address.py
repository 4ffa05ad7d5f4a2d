"""Whose address counts: that of the socket, or the one that a trusted proxy wrote."""

from itertools import product

import uvicorn
from idle import idle_service, show, visit
from starlette.datastructures import Headers

from attnkit.service.server import server_settings
from attnkit.ui.server.service import training_service
from attnkit.ui.server.turns import (
    PROXY_HEADERS,
    is_local,
    session_address,
    trust_only_our_setting,
    visitor_address,
)

FORGED, TRUE, PEER = "192.0.2.1", "198.51.100.7", "203.0.113.9"


def address(*values, peer=PEER):
    """The visitor's address for a socket's peer and the values of a header."""
    raw = [(b"x-forwarded-for", value.encode()) for value in values]
    return visitor_address(Headers(raw=raw).getlist, peer)


def test_the_last_address_of_the_named_header_counts_in_all_forms_that_proxies_write(monkeypatch):
    """Addresses that visitors write before it are ignored; without one the socket's counts.

    Without the setting no header is believed.
    """
    assert address(TRUE) == PEER
    monkeypatch.setenv("ATTNKIT_ADDRESS_HEADER", "X-Forwarded-For")
    server_settings.cache_clear()
    forms = "{}| {} |{}:8|for={}|For={}; host=a.b|by=203.0.113.1;FOR={};proto=https"
    new = '[{}]|[{}]:80|for="[{}]"|for="[{}]:80"|by=203.0.113.1;for="[{}]:80";proto=https'
    known = [(form.format(TRUE), TRUE) for form in [*forms.split("|"), 'for="{}:80"']]
    known += [(form.format("2001:db8:1:2::3"), "2001:db8:1:2::/64") for form in new.split("|")]
    for before in ("", "unknown, ", f"{FORGED}, ", f"for={FORGED}, ", 'for="[, ', ";,,"):
        for form, expected in known:
            assert address(before + form) == expected, (before, form)
    assert address(FORGED, TRUE) == TRUE
    wrong = 'unknown|for=unknown|for=_hidden|for="_hidden:12"|for=|by=1.2.3.4|1.2.3.4:|1.2.3:80|'
    wrong += "|\x00|1.2.3|[::1|::1]:80|[]:80|1.2.3.4:x|" + " " * 5000 + "=|for=" + " " * 5000 + '"'
    wrong += f'|for={FORGED};for={TRUE}|host="a;for={FORGED}'
    for last in wrong.split("|"):
        assert address(f"{FORGED}, {last}") == PEER, last


def test_the_server_itself_believes_no_header(monkeypatch):
    """By default it takes the address out of a header that a proxy on the same machine hands on."""
    monkeypatch.setattr(
        uvicorn.config, "ProxyHeadersMiddleware", uvicorn.config.ProxyHeadersMiddleware
    )

    def app(scope):
        """Do nothing."""

    def loaded():
        config = uvicorn.Config(app, interface="asgi3", log_config=None)
        config.load()
        return config.loaded_app

    assert loaded() is not app
    trust_only_our_setting()
    assert loaded() is app


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


def test_only_a_browser_on_this_machine_is_local():
    """A proxy on this machine is betrayed by a header, or by the address that the browser shows."""

    def local(*headers, peer=None):
        raw = [(name.encode(), value.encode()) for name, value in headers]
        return is_local(Headers(raw=raw).getlist, peer)

    for host, port in product(("localhost", "127.0.0.1", "[::1]"), ("", ":1", ":8501")):
        own = ("origin", f"http://{host}{port}")
        assert local(own)
        assert not local(own, peer=PEER)
        assert not any(local(own, (name, "127.0.0.1")) for name in PROXY_HEADERS)
        assert not local(own, ("origin", "https://lab.example"))
    for origin in ("https://lab.example", "http://localhost.example", "null", "", "http://[::1"):
        assert not local(("origin", origin), ("host", "localhost:7580"))
    assert not local(("host", "localhost:7580"))  # no browser


def test_what_a_page_asks_for_counts_for_its_address_on_hosted_copies(tmp_path):
    """On one's own machine no limits of an address apply."""
    for hosted, expected in (("true", "127.0.0.1"), ("false", "")):
        with idle_service(tmp_path, hosted=hosted):
            tab = visit(task="phonebook", n_seeds="1", steps="50")
            tab.button(key="train").click()
            show(tab)
            assert [row["address"] for row in training_service().overview()] == [expected]
