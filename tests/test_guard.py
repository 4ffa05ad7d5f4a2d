"""The guard of a hosted copy, without a server: what passes, what is dropped, what is closed."""

import ast
import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from attackers import message, rerun, with_states
from dockerfile import ROOT
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from attnkit.foundation.settings import InvalidSettings
from attnkit.service.server import ServerSettings, server_settings
from attnkit.ui.server import guard, startup
from attnkit.ui.server.guard import Bucket, Guard, guards, is_foreign

HOST = (b"host", b"copy.example")
VISITOR, OTHER = "198.51.100.7", "203.0.113.9"


@pytest.fixture(autouse=True)
def no_message_waits(monkeypatch):
    """A message beyond the limit of its address is refused at once."""
    monkeypatch.setattr(guard, "ADDRESS_SECONDS", 0.0)


def run(coroutine):
    """Run a coroutine in a thread of its own; the shared browser has its loop in this one.

    A coroutine that waits for what never comes fails, as no other limit ends it.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asyncio.wait_for(coroutine, 20)).result()


class Guarded:
    """The guard before an application that notes what reaches it, at a time that a test sets."""

    def __init__(self, **given):
        settings = {"address_rate": 300.0, "frame_ancestors": "'self'", **given}
        self.now, self.got, self.headers = 1000.0, [], {}
        self.guard = Guard(self.app, clock=lambda: self.now, **settings)

    async def app(self, scope, receive, send):
        """Take everything until the connection ends; answer a request with a cookie."""
        if scope["type"] == "http":
            self.seen = Headers(scope=scope)
            response = PlainTextResponse("page")
            response.headers["set-cookie"] = "a=b; Path=/"
            await response(scope, receive, send)
            return
        while (event := await receive())["type"] != "websocket.disconnect":
            if event["type"] == "websocket.connect":
                await send({"type": "websocket.accept"})
            else:
                self.got.append(event.get("bytes"))
        late = ForwardMsg(ref_hash="too late").SerializeToString()
        await send({"type": "websocket.send", "bytes": late})

    def ask(self, events, client, headers, **scope):
        """Let the guard take events; return what the visitor is told."""
        told = []

        async def receive():
            while isinstance(events[0], float):
                self.now += events.pop(0)
            return events.pop(0)

        async def send(event):
            told.append(event)

        scope |= {"client": (client, 1), "headers": [HOST, *headers]}
        run(self.guard(scope, receive, send))
        return told

    def visit(self, *payloads, client=VISITOR, headers=()):
        """Connect, send messages, let seconds pass; return kinds of answers, or the last code."""
        events = [{"type": "websocket.connect"}]
        for payload in payloads:
            kind = "text" if isinstance(payload, str) else "bytes"
            sent = {"type": "websocket.receive", kind: payload}
            events.append(payload if isinstance(payload, float) else sent)
        events.append({"type": "websocket.disconnect", "code": 1005})
        told = self.ask(events, client, headers, type="websocket")
        return [event.get("code", event["type"].removeprefix("websocket.")) for event in told]

    def get(self, path, client=VISITOR, headers=(), scheme="http"):
        """Ask for a page; return its status, and keep the headers of the answer in `headers`."""
        events = [{"type": "http.request", "body": b""}]
        scope = {"type": "http", "method": "GET", "path": path, "scheme": scheme}
        scope["server"] = ("192.0.2.1", 8501)
        told = self.ask(events, client, headers, **scope)
        self.headers = Headers(raw=told[0]["headers"])
        return told[0]["status"]


@pytest.fixture
def guarded():
    """The guard with its usual limits."""
    return Guarded()


def beat(n=1):
    """Return signs of life: messages that cost 1."""
    return [message(app_heartbeat=True)] * n


def test_a_bucket_gives_back_at_its_rate():
    """A burst at once, then the rate, and never more than the burst."""
    now = [1000.0]
    bucket = Bucket(rate=2, burst=3, clock=lambda: now[0])
    assert [bucket.take(1) for _ in range(4)] == [True, True, True, False]
    now[0] += 0.5
    assert [bucket.take(1), bucket.take(1)] == [True, False]
    now[0] += 1000
    assert [bucket.take(3), bucket.take(1)] == [True, False]


def test_only_messages_of_our_pages_reach_the_application(guarded):
    """Others are dropped without a word; what no browser sends ends the connection with a code."""
    ours = [rerun(), rerun(fragment_id="0123456789abcdef" * 2), message(stop_script=True), *beat()]
    dropped = [
        message(clear_cache=True),
        message(set_run_on_save=True),
        message(load_git_info=True),
        message(debug_disconnect_websocket=True),
        message(debug_shutdown_runtime=True),
        message(file_urls_request={"request_id": "a", "file_names": ["b"]}),
        message(backend_operation_request={"request_id": "a"}),
        message(),
        b"",
        rerun(fragment_id='a\n{"event": "owner signed in"}'),
        rerun(fragment_id="a" * 1000),
    ]
    assert guarded.visit(*dropped, *ours) == ["accept", "send"]
    assert guarded.got == ours
    for sent, code in (
        (b"\xff\xff\xff", guard.NOT_UNDERSTOOD),
        ("text", guard.NO_TEXT),
        (with_states(guard.MOST_BYTES), guard.TOO_LARGE),
    ):
        guarded.got.clear()
        assert guarded.visit(rerun(), sent, rerun()) == ["accept", code]
        assert guarded.got == [rerun()]


def test_a_connection_that_asks_too_often_is_closed(guarded):
    """A burst passes, then so many a second; a page costs more than a part of it."""
    for sent, n_passed in (
        (rerun(), guard.CONNECTION_START // guard.PAGE_COST),
        (*beat(), guard.CONNECTION_START),
        (with_states(guard.MOST_BYTES - 1000), 1),
    ):
        guarded.got.clear()
        assert guarded.visit(*[sent] * (n_passed + 5)) == ["accept", guard.TOO_OFTEN]
        assert len(guarded.got) == n_passed
    beats = beat(guard.CONNECTION_START), beat(guard.CONNECTION_RATE)
    assert guarded.visit(*beats[0], 1.0, *beats[1]) == ["accept", "send"]
    assert guarded.visit(*beats[0], 1.0, *beats[1], *beat()) == ["accept", guard.TOO_OFTEN]


def test_an_address_shares_one_limit_over_all_its_connections(monkeypatch):
    """Others have theirs; beyond it messages wait, so that a class behind a router is slowed."""
    guarded = Guarded(address_rate=10.0)
    burst = 10 * guard.BURST_SECONDS
    for n_sent in (guard.CONNECTION_START, burst - guard.CONNECTION_START - 4):
        assert guarded.visit(*beat(n_sent)) == ["accept", "send"]
    assert guarded.visit(rerun()) == ["accept", guard.TOO_OFTEN]
    assert guarded.visit(rerun(), client=OTHER) == ["accept", "send"]
    guarded.now += 1
    assert guarded.visit(rerun(), *beat(9)) == ["accept", "send"]
    waited = []

    async def pass_time(seconds):
        waited.append(seconds)
        guarded.now += seconds

    monkeypatch.undo()
    monkeypatch.setattr(guard.asyncio, "sleep", pass_time)
    assert guarded.visit(rerun()) == ["accept", "send"]
    assert sum(waited) == pytest.approx(0.5, abs=0.11)


def test_an_address_opens_a_class_at_once_and_then_a_few_in_a_second(guarded, monkeypatch):
    """Each connection draws a first page; attackers with many addresses fill no memory."""
    opened = [guarded.visit() == ["accept", "send"] for _ in range(guard.OPENING_BURST + 5)]
    assert sum(opened) == guard.OPENING_BURST
    assert guarded.visit(client=OTHER) == ["accept", "send"]
    guarded.now += 1
    assert sum(guarded.visit() == ["accept", "send"] for _ in range(20)) == guard.OPENING_RATE
    monkeypatch.setattr(guard, "MOST_ADDRESSES", 3)
    guarded = Guarded()
    for number in range(20):
        guarded.visit(rerun(), client=f"10.0.0.{number}")
    assert list(guarded.guard._addresses) == [f"10.0.0.{number}" for number in (17, 18, 19)]


def test_few_connections_of_one_address_are_drawn_for_at_once(monkeypatch):
    """The next turn comes when a page has been drawn; other addresses have their own turns."""
    monkeypatch.setattr(guard, "DRAWN_AT_ONCE", 1)
    for end, client, waits in (
        (None, VISITOR, True),
        (ForwardMsg.FINISHED_EARLY_FOR_RERUN, VISITOR, True),
        (ForwardMsg.FINISHED_SUCCESSFULLY, VISITOR, False),
        (ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY, VISITOR, False),
        (None, OTHER, False),
    ):
        assert run(second_waits(Guarded(), end, client)) == waits
    monkeypatch.setattr(guard, "PAGE_SECONDS", 0.0)  # a fragment that is gone is never drawn
    assert not run(second_waits(Guarded(), None, VISITOR))


async def second_waits(guarded, end, client):
    """Whether a second connection's page waits after the first one's page has come to an end."""
    served = []
    forever = asyncio.Event()

    async def app(scope, receive, send):
        served.append(await receive())
        if end is not None:
            done = ForwardMsg(script_finished=end).SerializeToString()
            await send({"type": "websocket.send", "bytes": done})
        await forever.wait()

    async def receive():
        return {"type": "websocket.receive", "bytes": rerun()}

    async def send(event):
        pass

    guarded.guard._app = app
    tasks = []
    for address in (VISITOR, client):
        scope = {"type": "websocket", "client": (address, 1), "headers": [HOST]}
        tasks.append(asyncio.create_task(guarded.guard(scope, receive, send)))
        for _ in range(10):
            await asyncio.sleep(0)
    n_served = len(served)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return n_served == 1


def test_the_named_header_tells_addresses_apart(monkeypatch):
    """Behind a proxy all come from one socket address."""
    monkeypatch.setenv("ATTNKIT_ADDRESS_HEADER", "X-Forwarded-For")
    server_settings.cache_clear()
    guarded = Guarded(address_rate=10.0)
    codes = [
        guarded.visit(*[rerun()] * 8, headers=[(b"x-forwarded-for", end)])[-1]
        for end in (b"1.1.1.1", b"1.1.1.1", b"9.9.9.9, 1.1.1.1", b"2.2.2.2")
    ]
    assert codes == ["send", guard.TOO_OFTEN, guard.TOO_OFTEN, "send"]


def test_pages_of_other_sites_open_no_connection(guarded):
    """Streamlit would ask the network who it is, while all others wait."""
    for origin, foreign in (
        (None, False),
        (b"http://copy.example", False),
        (b"http://localhost:8501", False),
        (b"http://evil.example", True),
        (b"http://copy.example.evil.example", True),
        (b"null", True),
        (b"http://[", True),
    ):
        given = [] if origin is None else [(b"origin", origin)]
        assert is_foreign(Headers(raw=[HOST, *given])) == foreign
        assert (guarded.visit(rerun(), headers=given) == [guard.TOO_OFTEN]) == foreign
        guarded.get("/_stcore/health", headers=given)
        assert ("origin" in guarded.seen) == (origin is not None and not foreign)


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
    for name in ("prepare_for_serving", "training_service", "sweep", "st", "config"):
        monkeypatch.setattr(startup, name, Mock())
    server_settings.cache_clear()
    for said in (True, False):
        startup.start.clear()
        startup.start()
        assert ('"event": "not guarded"' in capsys.readouterr().err) == said
        assert [one.cls for one in guards()] == [Guard]
    startup.start.clear()
