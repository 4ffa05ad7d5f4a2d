"""The guard of a hosted copy, without a server: connections, requests, headers, other sites."""

import ast
import asyncio
import json
import random
import threading
from unittest.mock import Mock

import pytest
from attackers import rerun
from dockerfile import ROOT
from guarding import HOST, OTHER, VISITOR, Guarded, guarded, nothing_starts, run
from starlette.datastructures import Headers

from attnkit.foundation.settings import InvalidSettings
from attnkit.service.foreign_logs import Repetitions
from attnkit.service.server import ServerSettings, server_settings
from attnkit.ui.server import guard, metering, startup
from attnkit.ui.server.guard import Guard, guards, is_foreign

__all__ = ["guarded", "nothing_starts"]


def test_an_address_has_so_many_connections_and_so_many_addresses_are_remembered(monkeypatch):
    """Attackers with many addresses fill no memory."""
    guarded, forever = Guarded(), asyncio.Event()
    monkeypatch.setattr(guard, "MOST_CONNECTIONS", 3)

    async def stay(scope, receive, send):
        await forever.wait()

    async def visit_all():
        events = []

        async def receive():
            return {"type": "websocket.connect"}

        async def send(event):
            events.append(event["code"])

        scope = {"type": "websocket", "client": (VISITOR, 1), "headers": [HOST]}
        tasks = [asyncio.create_task(guarded.guard(scope, receive, send)) for _ in range(5)]
        await asyncio.sleep(0)
        forever.set()
        await asyncio.gather(*tasks)
        return events

    app, guarded.guard._app = guarded.guard._app, stay
    assert run(visit_all()) == [guard.REFUSED] * 2
    guarded.guard._app = app
    monkeypatch.setattr(guard, "MOST_ADDRESSES", 3)
    for number in range(20):
        assert guarded.visit(rerun(), client=f"10.0.0.{number}") == ["accept", "send"]
    assert list(guarded.guard._addresses) == [f"10.0.0.{number}" for number in (17, 18, 19)]


def test_the_named_header_tells_addresses_apart(monkeypatch):
    """Behind a proxy all come from one socket address."""
    monkeypatch.setenv("ATTNKIT_ADDRESS_HEADER", "X-Forwarded-For")
    server_settings.cache_clear()
    guarded = Guarded()
    for end in (b"1.1.1.1", b"9.9.9.9, 1.1.1.1", b"2.2.2.2"):
        guarded.visit(rerun(), headers=[(b"x-forwarded-for", end)])
    assert sorted(guarded.guard._addresses) == ["1.1.1.1", "2.2.2.2"]


def test_few_files_are_sent_to_an_address_at_once(monkeypatch):
    """The others wait, because a client that does not read holds an open file for each."""
    monkeypatch.setattr(metering, "FILES_AT_ONCE", 3)
    guarded, sending, read = Guarded(), [], asyncio.Event()

    async def send_file(scope, receive, send):
        sending.append(scope["path"])
        await read.wait()

    async def ask_for_all():
        scope = {"type": "http", "path": "/file", "client": (VISITOR, 1), "headers": [HOST]}
        others = {**scope, "path": "/other", "client": (OTHER, 1)}
        asked = [guarded.guard(each, None, None) for each in [scope] * 5 + [others]]
        tasks = [asyncio.create_task(one) for one in asked]
        await asyncio.sleep(0)
        n_before = len(sending)
        read.set()
        await asyncio.gather(*tasks)
        return n_before

    guarded.guard._app = send_file
    assert run(ask_for_all()) == 4
    assert len(sending) == 6


def test_pages_of_other_sites_open_no_connection(guarded, capsys, monkeypatch):
    """Streamlit would ask the network who it is, while all others wait. The log has few lines."""
    monkeypatch.setattr(guard, "_CLOSED", Repetitions(guard._log_closed, lambda *_: None))
    for origin, foreign in (
        (None, False),
        (b"http://copy.example", False),
        (b"http://localhost:8501", False),
        (b"http://evil.example", True),
        (b"http://copy.example.evil.example", True),
        (b"null", True),
        (b"http://[", True),
        (b"https://copy.example:8443", True),
        (b"http://a:1@copy.example", True),
    ):
        given = [] if origin is None else [(b"origin", origin)]
        assert is_foreign(Headers(raw=[HOST, *given])) == foreign
        assert (guarded.visit(rerun(), headers=given) == [guard.REFUSED]) == foreign
        guarded.get("/_stcore/health", headers=given)
        assert ("origin" in guarded.seen) == (origin is not None and not foreign)
    guard._CLOSED.end_minute()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {line["event"] for line in lines} == {"foreign connection closed"}
    told = [(line["same_host"], line.get("more")) for line in lines]
    assert told == [(False, None)] * 3 + [(True, None), (False, 2)]


def test_a_host_has_no_case_and_its_default_port_may_be_written(guarded, seed):
    """A proxy may do so; Streamlit, which compares texts, gets the host as in the origin."""
    draw, kinds = random.Random(seed), (str.lower, str.upper, str.title)
    for _ in range(60):
        scheme, default = draw.choice((("http", 80), ("https", 443)))
        origin_port, host_port = draw.choices((None, 80, 443, 8501, 8443), k=2)
        is_same = (origin_port or default) == (host_port or default)
        name = draw.choice(("copy.example", "xn--bcher-kva.example", "[2001:db8::1]", "192.0.2.9"))
        host = draw.choice(kinds)(name) + (f":{host_port}" if host_port else "")
        page = name + (f":{origin_port}" if origin_port else "")
        given = [(b"origin", f"{scheme}://{page}".encode()), (b"host", host.encode())]
        guarded.seen = None
        closed = guarded.visit(rerun(), headers=given, host=()) == [guard.REFUSED]
        assert closed == (not is_same)
        assert guarded.seen is None if closed else guarded.seen["host"] == page


def test_nothing_is_uploaded_and_metrics_are_for_this_machine(guarded):
    """The addresses do not exist; neither others nor a proxy on this machine may ask."""
    for base in ("", "/base"):
        assert guarded.get(f"{base}/_stcore/upload_file/a/b") == 404
    for client, headers, status in (
        ("127.0.0.1", [], 200),
        ("::1", [], 200),
        ("192.0.2.1", [], 200),
        (VISITOR, [], 404),
        ("127.0.0.1", [(b"x-forwarded-for", b"127.0.0.1")], 404),
        ("127.0.0.1", [(b"via", b"1.1 proxy")], 404),
    ):
        assert guarded.get("/_stcore/metrics", client, headers) == status


def test_every_answer_says_what_a_page_may_load_and_who_may_frame_it():
    """Nothing from elsewhere; nobody frames the owner's page; cookies are secure behind HTTPS."""
    host = "https://huggingface.co"
    guarded = Guarded(frame_ancestors=host)
    pages = {"/": host, "/runs": host, "/owner/": "'none'", "/base/Owner": "'none'"}
    for path, expected in pages.items():
        assert guarded.get(path) == 200
        policy = guarded.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; ")
        assert policy.endswith(f"frame-ancestors {expected}")
    assert guarded.headers["x-content-type-options"] == "nosniff"
    assert guarded.headers["referrer-policy"] == "same-origin"
    for scheme, headers, secure in (
        ("http", [], False),
        ("https", [], True),
        ("http", [(b"x-forwarded-proto", b"https")], True),
    ):
        guarded.get("/", headers=headers, scheme=scheme)
        assert guarded.headers["set-cookie"].endswith("; Secure") == secure
    for bad in ("'self'; script-src *", "a\nb", "a,b", "ü"):  # would break out of the header
        with pytest.raises(InvalidSettings, match="ATTNKIT_FRAME_ANCESTORS"):
            ServerSettings.of({"ATTNKIT_FRAME_ANCESTORS": bad})


def test_every_text_field_says_how_much_it_takes():
    """A text beyond the size of a message would close the connection again and again."""
    missing = [
        f"{path.name}:{call.lineno}"
        for path in ROOT.glob("attnkit/ui/**/*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and getattr(call.func, "attr", "") in ("text_input", "text_area", "chat_input")
        and "max_chars" not in [keyword.arg for keyword in call.keywords]
    ]
    assert missing == []


def test_only_a_hosted_copy_has_a_guard_and_says_in_its_log_if_it_has_none(monkeypatch, capsys):
    """As where a host runs the script alone; the owner of a copy for oneself may do anything."""
    monkeypatch.delenv("ATTNKIT_HOSTED", raising=False)
    server_settings.cache_clear()
    assert guards() == []
    monkeypatch.setenv("ATTNKIT_HOSTED", "true")
    monkeypatch.setattr(guard, "in_front", threading.Event())
    done = ("prepare_for_serving", "training_service", "sweep", "log_foreign_errors")
    for name in (*done, "st", "config"):
        monkeypatch.setattr(startup, name, Mock())
    server_settings.cache_clear()
    for said in (True, False):
        startup.start.clear()
        startup.start()
        assert ('"event": "not guarded"' in capsys.readouterr().err) == said
        assert [one.cls for one in guards()] == [Guard]
    startup.start.clear()
