"""The guard of a hosted copy, without a server: connections, messages, requests, other sites."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import AsyncMock, Mock

import pytest
from forging import message, rerun
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from attnkit.foundation.settings import InvalidSettings
from attnkit.service.foreign_logs import Repetitions
from attnkit.service.server import ServerSettings, server_settings
from attnkit.ui.server import connection, guard, metering, startup
from attnkit.ui.server.guard import Guard, guards, is_foreign
from attnkit.ui.server.metering import Address, Meter, read_little_at_once

HOST = (b"host", b"copy.example")
VISITOR, OTHER = "198.51.100.7", "203.0.113.9"


def run(coroutine):
    """Run a coroutine in a thread of its own, as the shared browser has its loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asyncio.wait_for(coroutine, 20)).result()


CONNECT = {"type": "websocket.connect"}
DISCONNECT = {"type": "websocket.disconnect", "code": 1005}


def sent(payload):
    """Return what a server hands on of a message."""
    return {"type": "websocket.receive", "text" if isinstance(payload, str) else "bytes": payload}


def scope_of(client, *headers, type="websocket", host=(HOST,), **fields):
    """Return what a server tells about a connection or a request."""
    return {"type": type, "client": (client, 1), "headers": [*host, *headers], **fields}


class Guarded:
    """The guard before an application that notes messages and needs `cost` seconds for each."""

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
        send, scope = AsyncMock(), scope_of(client, *headers, host=host, **scope)
        run(self.guard(scope, AsyncMock(side_effect=events), send))
        return [call.args[0] for call in send.call_args_list]

    def visit(self, *payloads, client=VISITOR, headers=(), host=(HOST,)):
        """Connect and send messages; return kinds of answers, or the last code."""
        events = [CONNECT, *map(sent, payloads), DISCONNECT]
        told = self.ask(events, client, headers, host, type="websocket")
        return [event.get("code", event["type"].removeprefix("websocket.")) for event in told]

    def get(self, path, client=VISITOR, headers=(), scheme="http"):
        """Ask for a page; return its status, and keep the headers of the answer in `headers`."""
        scope = {"method": "GET", "path": path, "scheme": scheme, "server": ("192.0.2.1", 8501)}
        (start, *_) = self.ask([], client, headers, type="http", **scope)
        self.headers = Headers(raw=start["headers"])
        return start["status"]


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
        message(debug_shutdown_runtime=True),
        message(file_urls_request={"request_id": "a", "file_names": ["b"]}),
        message(),
        b"",
        rerun(fragment_id='a\n{"event": "owner signed in"}'),
        rerun(fragment_id="a" * 1000),
    ]
    assert guarded.visit(*dropped, *ours) == ["accept", "send"]
    assert guarded.got == ours
    widgets = [{"id": f"{n}"} for n in range(connection.MOST_STATES + 1)]
    for sent, code in (
        (b"\xff\xff\xff", connection.NOT_UNDERSTOOD),
        ("text", connection.NO_TEXT),
        (rerun(query_string="x" * metering.MOST_BYTES), connection.TOO_LARGE),
        (rerun(widget_states={"widgets": widgets}), connection.TOO_LARGE),
    ):
        guarded.got.clear()
        assert guarded.visit(rerun(), sent, rerun()) == ["accept", code]
        assert guarded.got == [rerun()]


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


class Socket:
    """A WebSocket of uvicorn, whose frames cost a tenth of a second each."""

    read_paused = False

    def __init__(self):
        self.got, self.reading, self.unread, self.worked = [], True, 0, 0.0
        self.conn = Mock(max_message_size=10**9)
        self.transport = Mock(
            get_write_buffer_size=lambda: self.unread,
            is_closing=lambda: False,
            pause_reading=lambda: setattr(self, "reading", False),
            resume_reading=lambda: setattr(self, "reading", True),
        )

    async def receive(self):
        """Make this object the one that the guard finds."""

    def data_received(self, data):
        """Handle what was read."""
        self.got.append(data)
        self.worked += 0.1


def test_frames_are_charged_before_any_message_is_whole(monkeypatch):
    """Pings and empty frames reach no application; who does not read the answers waits, too."""
    now, later, socket = [0.0], [], Socket()
    loop = Mock(call_later=lambda *call: later.append(call))
    monkeypatch.setattr(metering.asyncio, "get_running_loop", lambda: loop)
    address = Address(VISITOR, Meter(lambda: now[0], lambda: socket.worked))
    read_little_at_once(socket.receive, address)
    assert socket.conn.max_message_size == metering.MOST_BYTES
    assert socket.transport.max_size == metering.READ_AT_ONCE
    pieces = [bytes([number]) for number in range(4)]
    for piece in pieces[:3]:  # the last one comes although the guard has paused
        socket.data_received(piece)
    assert (socket.got, socket.reading) == (pieces[:1], False)
    while later:
        seconds, go_on = later.pop(0)
        assert seconds == pytest.approx(0.1 * metering.REST)
        now[0] += seconds + 1e-6
        go_on()
    assert (socket.got, socket.reading) == (pieces[:3], True)
    now[0] += 10.0
    socket.unread = metering.MOST_UNREAD + 1
    socket.data_received(pieces[3])
    assert (socket.got, socket.reading) == (pieces[:3], False)
    socket.unread = 0
    later.pop()[1]()
    assert (socket.got, socket.reading) == (pieces, True)


class Slow(Guarded):
    """A guard that lets the address wait until a test says otherwise; the visitor stays."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.crowded, self.slows, self.events, self.n_read = True, False, asyncio.Queue(), 0
        monkeypatch.setattr(connection, "CROWDED_SECONDS", 0.001)
        monkeypatch.setattr(connection, "is_crowded", lambda name: name == VISITOR and self.crowded)
        monkeypatch.setattr(connection, "rest", lambda name: float(name == VISITOR))
        service = Mock(others_train=lambda name: self.slows)
        monkeypatch.setattr(connection, "training_service", lambda: service)

    async def visit(self, *payloads, client=VISITOR):
        """Connect, send messages, and let the guard read as many as it wants."""

        async def receive():
            event = await self.events.get()
            self.n_read += 1
            return event

        self.events.put_nowait(CONNECT)
        self.give(*payloads)
        return asyncio.ensure_future(self.guard(scope_of(client), receive, AsyncMock()))

    def give(self, *payloads):
        """Send messages."""
        for payload in payloads:
            self.events.put_nowait(sent(payload))

    async def has(self, *payloads, n_read=0):
        """Wait until so many are read and exactly these have reached the application."""
        while len(self.got) < len(payloads) or self.n_read < n_read:
            await asyncio.sleep(0.001)
        assert self.got == [*payloads]

    async def leave(self, task):
        """End the connection."""
        self.events.put_nowait(DISCONNECT)
        await task


def test_what_comes_meanwhile_is_read_and_a_fragment_that_redraws_itself_waits_once(monkeypatch):
    """Signs of life and refused messages never wait; pages of visitors who left are not drawn."""

    async def visit():
        slow, alive = Slow(monkeypatch), [message(app_heartbeat=True)] * 50
        task = await slow.visit(rerun(), client=OTHER)
        await slow.has(rerun())
        await slow.leave(task)
        slow.got.clear()
        slow.n_read, alone = 0, {"is_auto_rerun": True}
        live = [rerun(fragment_id="live", query_string=f"{n}", **alone) for n in range(90)]
        other = rerun(fragment_id="other", **alone)
        presses = [rerun(fragment_id="live", query_string="press"), rerun()]
        task = await slow.visit(alive[0], *live[:50], other, *presses, *live[50:], *[b""] * 200)
        await slow.has(alive[0], n_read=295)  # the last one is read although all wait
        slow.crowded = False
        await slow.has(alive[0], other, *presses, live[-1])
        slow.got.clear()
        slow.slows, slow.n_read = True, 0  # the training of others
        many = [rerun(query_string="a" * 4000)] * 20  # the memory of what waits is bounded
        slow.give(*many, *alive)
        await asyncio.sleep(0.05)
        assert slow.n_read < 12
        slow.slows = False
        await slow.has(*many, *alive)
        slow.crowded = True
        slow.give(rerun())
        await slow.leave(task)
        task = await slow.visit(rerun())
        slow.give("a" * 200_000)
        await task
        await slow.has(*many, *alive)

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
    """Attackers with many addresses fill no memory; files wait for clients that do not read."""
    monkeypatch.setattr(guard, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(metering, "FILES_AT_ONCE", 3)

    receive, send = AsyncMock(), AsyncMock()
    assert run(at_once(Guarded(), [scope_of(VISITOR)] * 5, receive, send)) == (3, 3)
    assert [call.args[0]["code"] for call in send.call_args_list] == [guard.REFUSED] * 2
    files = [scope_of(VISITOR, type="http", path="/file")] * 5
    assert run(at_once(Guarded(), [*files, scope_of(OTHER, type="http", path="/other")])) == (4, 6)
    # The messages of a visitor who is gone are dropped; answering them logs a traceback.
    guarded, gone = Guarded(), AsyncMock(side_effect=ConnectionResetError)
    receive = AsyncMock(side_effect=[CONNECT, sent(rerun())])
    run(guarded.guard(scope_of(VISITOR), receive, gone))
    assert guarded.got == []
    guarded = Guarded()
    monkeypatch.setattr(guard, "MOST_ADDRESSES", 3)
    monkeypatch.setenv("ATTNKIT_ADDRESS_HEADER", "X-Forwarded-For")
    server_settings.cache_clear()
    for number in range(20):
        proxied = [(b"x-forwarded-for", f"9.9.9.9, 10.0.0.{number}".encode())]
        assert guarded.visit(rerun(), headers=proxied) == ["accept", "send"]
    assert list(guarded.guard._addresses) == [f"10.0.0.{number}" for number in (17, 18, 19)]


def test_pages_of_other_sites_open_no_connection(guarded, capsys):
    """A proxy may write capitals and the default port. The log has few lines."""
    others = "http://evil.example http://copy.example.evil.example null http://["
    for host, origin, foreign in (
        ("copy.example", "", False),
        ("copy.example", "http://copy.example", False),
        ("COPY.example:80", "http://copy.example", False),
        ("Copy.Example", "https://copy.example:443", False),
        ("[2001:DB8::1]:8443", "https://[2001:db8::1]:8443", False),
        ("copy.example", "http://localhost:8501", False),
        *(("copy.example", origin, True) for origin in others.split()),
        ("copy.example", "https://copy.example:8443", True),
        ("copy.example:80", "https://copy.example", True),
        ("copy.example", "http://a:1@copy.example", True),
    ):
        given = [(b"host", host.encode()), *([(b"origin", origin.encode())] if origin else [])]
        assert is_foreign(Headers(raw=given)) == foreign
        assert (guarded.visit(rerun(), headers=given, host=()) == [guard.REFUSED]) == foreign
        if origin and not foreign and "localhost" not in origin:
            assert guarded.seen["host"] == origin.rpartition("/")[2]
        guarded.ask([], VISITOR, given, (), type="http", method="GET", path="/_stcore/health")
        assert ("origin" in guarded.seen) == (bool(origin) and not foreign)
    guard._CLOSED.end_minute()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {line["event"] for line in lines} == {"foreign connection closed"}
    told = [(line["same_host"], line.get("more")) for line in lines]
    assert told == [(False, None)] * 3 + [(True, None)] * 2 + [(False, 2)]


def test_every_answer_says_what_a_page_may_load_and_who_may_frame_it():
    """Cookies are secure behind HTTPS, nothing is uploaded, metrics are for this machine."""
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
    for path, client, headers, status in (
        ("/base/_stcore/upload_file/a/b", VISITOR, [], 404),
        ("/_stcore/metrics", "127.0.0.1", [], 200),
        ("/_stcore/metrics", "192.0.2.1", [], 200),
        ("/_stcore/metrics", VISITOR, [], 404),
        ("/_stcore/metrics", "127.0.0.1", [(b"x-forwarded-for", b"127.0.0.1")], 404),
    ):
        assert guarded.get(path, client, headers) == status
    for bad in ("'self'; script-src *", "a\nb", "a,b", "ü"):  # would break out of the header
        with pytest.raises(InvalidSettings, match="ATTNKIT_FRAME_ANCESTORS"):
            ServerSettings.of({"ATTNKIT_FRAME_ANCESTORS": bad})


def test_only_a_hosted_copy_has_a_guard_and_says_in_its_log_if_it_has_none(monkeypatch, capsys):
    """As where a host runs the script alone; the owner of a copy for oneself may do anything."""
    monkeypatch.delenv("ATTNKIT_HOSTED", raising=False)
    server_settings.cache_clear()
    assert guards() == []
    monkeypatch.setenv("ATTNKIT_HOSTED", "true")
    monkeypatch.setattr(guard, "in_front", threading.Event())
    for name in "prepare_for_serving training_service sweep log_foreign_errors st config".split():
        monkeypatch.setattr(startup, name, Mock())
    server_settings.cache_clear()
    for said in (True, False):
        startup.start.clear()
        startup.start()
        assert ('"event": "not guarded"' in capsys.readouterr().err) == said
        assert [one.cls for one in guards()] == [Guard]
    startup.start.clear()
