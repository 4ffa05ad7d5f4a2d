"""Whose address counts: that of the socket, or the one that a trusted proxy wrote."""

import random

import pytest
import uvicorn
from idle import idle_service, show, visit
from starlette.datastructures import Headers

from attnkit.service.server import server_settings
from attnkit.ui.server.service import training_service
from attnkit.ui.server.visitor_address import (
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


def test_only_the_last_address_in_the_named_header_counts(monkeypatch):
    """The proxy appends to what the visitor sent; without the setting no header is believed."""
    assert address(FORGED) == PEER
    monkeypatch.setenv("ATTNKIT_ADDRESS_HEADER", "X-Forwarded-For")
    server_settings.cache_clear()
    for values in [[f"{FORGED}, {TRUE}"], [FORGED, TRUE], [f" {TRUE} "], [f"nonsense,{TRUE}"]]:
        assert address(*values) == TRUE, values
    for value in ["", ",", "unknown", "1.2.3", f"{TRUE}, ", "\x00", "1" * 5000]:
        assert address(value) == PEER, value


def written(draw, address):
    """An address as proxies write it: alone or with a port, or as RFC 7239 has it."""
    port, is_new = draw.randrange(1, 65536), ":" in address
    bracketed = f"[{address}]" if is_new else address
    alone = draw.choice((address, bracketed, f"{bracketed}:{port}"))
    if draw.random() < 0.5:
        return draw.choice((alone, f" {alone} "))
    quoted = f'"{bracketed}:{port}"' if is_new else draw.choice((address, f'"{address}:{port}"'))
    name = draw.choice(("for", "For", "FOR"))
    return draw.choice(
        (
            f"{name}={quoted}",
            f"by=203.0.113.1;{name}={quoted};proto=https",
            f"{name}={quoted}; host=a.b",
        )
    )


def test_addresses_are_understood_in_all_forms_that_proxies_write(monkeypatch, seed):
    """Addresses that visitors write before it are ignored; without one the socket's counts."""
    monkeypatch.setenv("ATTNKIT_ADDRESS_HEADER", "X-Forwarded-For")
    server_settings.cache_clear()
    draw = random.Random(seed)
    for _ in range(300):
        group = f"2001:db8:{draw.randrange(1, 2**16):x}:{draw.randrange(1, 2**16):x}"
        true, expected = draw.choice(
            ((TRUE, TRUE), (f"{group}::{draw.randrange(2**16):x}", f"{group}::/64"))
        )
        before = draw.choice(("", "unknown, ", f"{FORGED}, ", f"for={FORGED}, ", 'for="[, ', ";,,"))
        assert address(before + written(draw, true)) == expected, (seed, before, true)
    wrong = 'unknown|for=unknown|for=_hidden|for="_hidden:12"|for=|by=1.2.3.4|1.2.3.4:|1.2.3:80'
    wrong += f'|[::1|::1]:80|[]:80|1.2.3.4:x|for={FORGED};for={TRUE}|host="a;for={FORGED}'
    for _ in range(300):
        noise = "".join(draw.choices('[]:.;="1fo r', k=draw.randrange(12))) + "?"
        spaces = draw.choice((" " * 5000 + "=", "for=" + " " * 5000 + '"'))
        last = draw.choice((*wrong.split("|"), spaces, noise))
        assert address(f"{FORGED}, {last}") == PEER, (seed, last)


def test_the_server_itself_believes_no_header(monkeypatch):
    """By default it takes the address out of a header that a proxy on the same machine hands on."""
    monkeypatch.setattr(
        uvicorn.config, "ProxyHeadersMiddleware", uvicorn.config.ProxyHeadersMiddleware
    )

    async def app(scope, receive, send):
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


def test_only_a_browser_on_this_machine_is_local(seed):
    """A proxy on this machine is betrayed by a header, or by the address that the browser shows."""
    draw = random.Random(seed)
    ports = ["", *(f":{draw.randint(1, 65535)}" for _ in range(9))]
    own = [f"http://{host}{port}" for host in ("localhost", "127.0.0.1", "[::1]") for port in ports]

    def local(*headers, peer=None):
        raw = [(name.encode(), value.encode()) for name, value in headers]
        return is_local(Headers(raw=raw).getlist, peer)

    for origin in own:
        assert local(("origin", origin))
        assert not local(("origin", origin), peer=PEER)
        assert not local(("origin", origin), (draw.choice(PROXY_HEADERS), "127.0.0.1"))
        assert not local(("origin", origin), ("origin", "https://lab.example"))
    for origin in ("https://lab.example", "http://localhost.example", "null", "", "http://[::1"):
        assert not local(("origin", origin), ("host", "localhost:7580"))
    assert not local(("host", "localhost:7580"))  # no browser


@pytest.mark.parametrize(("hosted", "expected"), [("true", "127.0.0.1"), ("false", "")])
def test_what_a_page_asks_for_counts_for_its_address_on_hosted_copies(tmp_path, hosted, expected):
    """On one's own machine no limits of an address apply."""
    with idle_service(tmp_path, hosted=hosted):
        tab = visit(task="phonebook", n_seeds="1", steps="50")
        tab.button(key="train").click()
        show(tab)
        assert [row["address"] for row in training_service().overview()] == [expected]
