"""Links to copy: an address that only this computer can open is told, and a better one offered."""

import random
from types import SimpleNamespace

import pytest

from attnkit.service.server import server_settings
from attnkit.ui import address
from attnkit.ui.lab import share

LAN, HERE = "192.0.2.7", "http://localhost:8501/"
OTHER = f"http://{LAN}:8501/"


@pytest.mark.parametrize(
    ("shown", "listens", "network", "offered", "told"),
    [
        (HERE, None, LAN, OTHER, ("8501",)),
        (f"{HERE}attn/two/", None, LAN, f"{OTHER}attn/two/", ("8501",)),
        ("http://127.8.8.8:8501/", "0.0.0.0", LAN, OTHER, ("8501",)),
        ("http://[::1]:8501/", "::", LAN, OTHER, ("8501",)),
        (HERE, "127.0.0.1", LAN, HERE, ("python -m attnkit --host 0.0.0.0",)),
        (HERE, None, "127.0.0.1", HERE, ("network",)),
        ("https://class.example.org/", None, LAN, "https://class.example.org/", ()),
        (OTHER, None, LAN, OTHER, ()),  # works for others as it is
        ("", None, LAN, "", ()),  # one that is not known cannot be judged
    ],
)
def test_a_loopback_address_is_replaced_by_the_one_in_the_network(
    monkeypatch, shown, listens, network, offered, told
):
    """With what is needed, or the reason if there is no other; a hosted copy names no other."""
    monkeypatch.setattr(share.st, "get_option", {"server.address": listens}.get)
    monkeypatch.setattr(share, "get_internal_ip", lambda: network)
    address, warning = share.reachable(shown)
    assert address == offered
    assert bool(warning) == bool(told)
    assert all(words in warning for words in told)
    monkeypatch.setenv("ATTNKIT_HOSTED", "true")
    server_settings.cache_clear()
    address, warning = share.reachable(shown)
    assert address == shown
    assert bool(warning) == any(name in shown for name in ("localhost", "127.", "::1"))
    assert LAN not in warning


def test_a_base_path_stays_in_links(seed, monkeypatch):
    """With any page open, even if the path ends with the name of one, as in “my-runs”."""
    draw, pages = random.Random(seed), ("", "runs", "attention", "guide")
    infos = {name: {"url_pathname": name} for name in pages}
    names = ("attn", "my-runs", "runs2", "user", "a b", "attention", "guide")
    for _ in range(100):
        base = "/".join(draw.choices(names, k=draw.randint(0, 3)))
        page = draw.choice(pages)
        # A proxy may strip the path; only if it ends with a page's name must the server know it.
        is_known = base.rpartition("/")[2] in pages or draw.random() < 0.5
        monkeypatch.setattr(
            address.st, "get_option", {"server.baseUrlPath": base if is_known else ""}.get
        )
        start = (
            f"{draw.choice(('http', 'https'))}://{draw.choice(('localhost:80', 'x', '[::1]:7'))}/"
        )
        shown = start + "/".join(filter(None, (base, page))) + draw.choice(("", "/"))
        context = SimpleNamespace(
            context_info=SimpleNamespace(url=shown),
            pages_manager=SimpleNamespace(get_pages=lambda: infos),
        )
        monkeypatch.setattr(address, "get_script_run_ctx", lambda context=context: context)
        assert address.dashboard_address() == f"{start}{base}{'/' if base else ''}"
    for wrong in ("", "http://[", "ftp://x", "http://x:0"):
        context.context_info.url = wrong
        assert address.dashboard_address() == ""
