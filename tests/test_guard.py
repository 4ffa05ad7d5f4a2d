"""The guard of a hosted copy, without a server: connections, messages, requests, other sites."""

import ast
import asyncio
import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from dockerfile import ROOT
from forging import message, rerun
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from attnkit.foundation.settings import InvalidSettings
from attnkit.service.foreign_logs import Repetitions
from attnkit.service.server import ServerSettings, server_settings
from attnkit.ui.server import connection, guard, metering, startup
from attnkit.ui.server.guard import Guard, guards, is_foreign
from attnkit.ui.server.metering import Meter

HOST = (b"host", b"copy.example")
VISITOR, OTHER = "198.51.100.7", "203.0.113.9"


def run(coroutine):
    """Run a coroutine in a thread of its own; the shared browser has its loop in this one.

    A coroutine that waits for what never comes fails, as no other limit ends it.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asyncio.wait_for(coroutine, 20)).result()


def scope_of(client, *headers, type="websocket", host=(HOST,), **fields):
    """Return what a server tells about a connection or a request."""
    return {"type": type, "client": (client, 1), "headers": [*host, *headers], **fields}


class Guarded:
    """The guard before an application that notes what reaches it, at a time that a test sets.

    Attributes:
        cost: Processor seconds that the application needs for each message.
    """

    def __init__(self, frame_ancestors="'self'", cost=0.0):
        self.now, self.got, self.headers = 1000.0, [], {}
        self.cost, self.worked = cost, 0.0
        self.guard = Guard(self.app, frame_ancestors, Meter(lambda: self.now, lambda: self.worked))

    async def app(self, scope, receive, send):
        """Take everything until the connection ends; answer a request with a cookie."""
        self.seen = Headers(scope=scope)
        if scope["type"] == "http":
            response = PlainTextResponse("page")
            response.headers["set-cookie"] = "a=b; Path=/"
            await response(scope, receive, send)
            return
        while (event := await receive())["type"] != "websocket.disconnect":
            if event["type"] == "websocket.connect":
                await send({"type": "websocket.accept"})
            else:
                self.got.append(event.get("bytes"))
                self.worked += self.cost
        late = ForwardMsg(ref_hash="too late").SerializeToString()
        await send({"type": "websocket.send", "bytes": late})

    def ask(self, events, client, headers, host=(HOST,), **scope):
        """Let the guard take events; return what the visitor is told."""
        told = []

        async def receive():
            return events.pop(0)

        async def send(event):
            told.append(event)

        run(self.guard(scope_of(client, *headers, host=host, **scope), receive, send))
        return told

    def visit(self, *payloads, client=VISITOR, headers=(), host=(HOST,)):
        """Connect and send messages; return kinds of answers, or the last code."""
        events = [{"type": "websocket.connect"}]
        for payload in payloads:
            kind = "text" if isinstance(payload, str) else "bytes"
            events.append({"type": "websocket.receive", kind: payload})
        events.append({"type": "websocket.disconnect", "code": 1005})
        told = self.ask(events, client, headers, host, type="websocket")
        return [event.get("code", event["type"].removeprefix("websocket.")) for event in told]

    def get(self, path, client=VISITOR, headers=(), scheme="http"):
        """Ask for a page; return its status, and keep the headers of the answer in `headers`."""
        events = [{"type": "http.request", "body": b""}]
        scope = {"type": "http", "method": "GET", "path": path, "scheme": scheme}
        scope["server"] = ("192.0.2.1", 8501)
        told = self.ask(events, client, headers, **scope)
        self.headers = Headers(raw=told[0]["headers"])
        return told[0]["status"]


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch):
    """No message starts a thread that draws, and no timer logs closed connections later."""
    monkeypatch.setattr(connection, "is_crowded", lambda _: False)
    monkeypatch.setattr(guard, "_CLOSED", Repetitions(guard._log_closed, lambda *_: None))


@pytest.fixture
def guarded():
    """The guard with its usual limits."""
    return Guarded()


def test_only_messages_of_our_pages_reach_the_application(guarded):
    """Others are dropped without a word; what no browser sends ends the connection with a code."""
    ours = [rerun(), rerun(fragment_id="0123456789abcdef" * 2), message(stop_script=True)]
    ours.append(message(app_heartbeat=True))
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
        (b"\xff\xff\xff", connection.NOT_UNDERSTOOD),
        ("text", connection.NO_TEXT),
        (rerun(query_string="x" * metering.MOST_BYTES), connection.TOO_LARGE),
        (with_widgets(connection.MOST_STATES + 1), connection.TOO_LARGE),
    ):
        guarded.got.clear()
        assert guarded.visit(rerun(), sent, rerun()) == ["accept", code]
        assert guarded.got == [rerun()]


def with_widgets(number):
    """Return a message that draws a page, with the values of so many widgets."""
    return rerun(widget_states={"widgets": [{"id": f"{n}"} for n in range(number)]})


def test_nothing_more_is_read_from_a_visitor_who_is_gone(guarded):
    """The guard drops messages that came before the end; answering them logs a traceback."""
    events = [{"type": "websocket.connect"}, {"type": "websocket.receive", "bytes": rerun()}]

    async def receive():
        return events.pop(0)

    async def send(event):
        raise ConnectionResetError

    run(guarded.guard(scope_of(VISITOR), receive, send))
    assert guarded.got == []


def test_an_address_rests_for_what_its_messages_cost(monkeypatch):
    """All its connections together take a third of the time; others are not slowed."""
    guarded, slept = Guarded(cost=0.1), []

    async def sleep(seconds):
        slept.append(seconds)
        guarded.now += seconds

    monkeypatch.setattr(connection.asyncio, "sleep", sleep)
    for _ in range(2):
        assert guarded.visit(*[rerun()] * 10) == ["accept", "send"]
    assert len(guarded.got) == 20
    assert sum(slept) == pytest.approx(19 * 0.1 * metering.REST)
    slept.clear()
    assert guarded.visit(rerun(), client=OTHER) == ["accept", "send"]
    assert slept == []


@pytest.mark.parametrize("others_train", [True, False])
def test_messages_wait_while_an_address_slows_the_training_of_others(monkeypatch, others_train):
    """Pages and training share the processor; without training, nobody has to wait."""
    monkeypatch.setattr(connection, "rest", lambda name: float(name == VISITOR))
    service = Mock(others_train=lambda name: others_train)
    monkeypatch.setattr(connection, "training_service", lambda: service)
    assert connection.must_wait(VISITOR) is others_train
    assert not connection.must_wait(OTHER)


class Slow(Guarded):
    """A guard that lets the address wait until a test says otherwise; the visitor stays."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.crowded, self.events, self.n_read = True, asyncio.Queue(), 0
        monkeypatch.setattr(connection, "CROWDED_SECONDS", 0.001)
        monkeypatch.setattr(connection, "is_crowded", lambda name: name == VISITOR and self.crowded)

    async def receive(self):
        """Wait for what the visitor sends."""
        event = await self.events.get()
        self.n_read += 1
        return event

    async def send(self, event):
        """Forget what the visitor is told."""

    async def visit(self, *payloads, client=VISITOR):
        """Connect, send messages, and let the guard read as many as it wants."""
        self.events.put_nowait({"type": "websocket.connect"})
        for payload in payloads:
            self.events.put_nowait({"type": "websocket.receive", "bytes": payload})
        return asyncio.ensure_future(self.guard(scope_of(client), self.receive, self.send))

    async def has(self, *payloads):
        """Wait until exactly these messages have reached the application."""
        while len(self.got) < len(payloads):
            await asyncio.sleep(0.001)
        assert self.got == [*payloads]

    async def leave(self, task):
        """End the connection."""
        self.events.put_nowait({"type": "websocket.disconnect", "code": 1005})
        await task


def test_messages_wait_while_threads_of_their_address_wait(monkeypatch):
    """Each would start a thread that waits, too; those of others and signs of life pass."""

    async def visit_all():
        slow = Slow(monkeypatch)
        ours, alive = rerun(), message(app_heartbeat=True)
        task = await slow.visit(ours, client=OTHER)
        await slow.has(ours)
        await slow.leave(task)
        task = await slow.visit(alive, ours)
        await slow.has(ours, alive)
        await asyncio.sleep(0.05)
        await slow.has(ours, alive)
        slow.crowded = False
        await slow.has(ours, alive, ours)
        slow.crowded = True
        slow.events.put_nowait({"type": "websocket.receive", "bytes": ours})
        await slow.leave(task)  # nothing is drawn for who has left
        await slow.has(ours, alive, ours)

    run(visit_all())


def test_what_comes_meanwhile_is_read_and_a_fragment_that_redraws_itself_waits_once(monkeypatch):
    """Answers to pings come behind the messages; without them, uvicorn closes the connection."""

    async def visit():
        slow = Slow(monkeypatch)
        alone = {"is_auto_rerun": True}
        live = [rerun(fragment_id="live", query_string=f"{n}", **alone) for n in range(90)]
        other = rerun(fragment_id="other", **alone)
        presses = [rerun(fragment_id="live", query_string="press"), rerun()]
        task = await slow.visit(*live[:50], other, *presses, *live[50:])
        while slow.n_read < 94:  # the last one is read although all wait
            await asyncio.sleep(0.001)
        slow.crowded = False
        await slow.has(other, *presses, live[-1])
        slow.crowded, slow.n_read = True, 0
        many = [rerun(query_string="a" * 4000)] * 20  # the memory of what waits is bounded
        alive = message(app_heartbeat=True)
        for payload in [*many, *[alive] * 50]:
            slow.events.put_nowait({"type": "websocket.receive", "bytes": payload})
        await asyncio.sleep(0.05)
        assert slow.n_read < 12
        slow.crowded = False
        await slow.has(other, *presses, live[-1], *many, *[alive] * 50)
        await slow.leave(task)

    run(visit())


def test_what_does_not_pass_never_waits(monkeypatch):
    """Dropped messages take no memory, and one that ends the connection does so at once."""

    async def visit():
        slow = Slow(monkeypatch)
        task = await slow.visit(*[rerun()] * 2, *[b""] * 200, *[message(clear_cache=True)] * 200)
        while slow.n_read < 403:
            await asyncio.sleep(0.001)
        slow.events.put_nowait({"type": "websocket.receive", "text": "a" * 200_000})
        await task
        assert slow.got == []

    run(visit())


async def at_once(guarded, scopes, receive=None, send=None):
    """Let all come at once; return how many reach the application first, and in the end."""
    reached, may_end = [], asyncio.Event()

    async def stay(scope, *_):
        reached.append(scope)
        await may_end.wait()

    guarded.guard._app = stay
    tasks = [asyncio.create_task(guarded.guard(one, receive, send)) for one in scopes]
    await asyncio.sleep(0)
    n_before = len(reached)
    may_end.set()
    await asyncio.gather(*tasks)
    return n_before, len(reached)


def test_an_address_has_so_many_connections_and_so_many_addresses_are_remembered(monkeypatch):
    """Attackers with many addresses fill no memory."""
    guarded, told = Guarded(), []
    monkeypatch.setattr(guard, "MOST_CONNECTIONS", 3)

    async def receive():
        return {"type": "websocket.connect"}

    async def send(event):
        told.append(event["code"])

    assert run(at_once(guarded, [scope_of(VISITOR)] * 5, receive, send)) == (3, 3)
    assert told == [guard.REFUSED] * 2
    guarded = Guarded()
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
    files = [scope_of(VISITOR, type="http", path="/file")] * 5
    assert run(at_once(Guarded(), [*files, scope_of(OTHER, type="http", path="/other")])) == (4, 6)


def test_pages_of_other_sites_open_no_connection(guarded, capsys):
    """Streamlit would ask the network who it is, while all others wait. The log has few lines."""
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
    for _ in range(30):
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
