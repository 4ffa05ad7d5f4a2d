"""The guard of a hosted copy, without a server: connections, messages, requests, other sites."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import AsyncMock, Mock

import pytest
from forging import message, rerun
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from attnkit.foundation.settings import InvalidSettings
from attnkit.service.server import ServerSettings, server_settings
from attnkit.ui.server import guard
from attnkit.ui.server.guard import Address, Guard, Meter, guards, read_little_at_once

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
    path = {"path": "/_stcore/stream"} if type == "websocket" else {}
    return {"type": type, "client": (client, 1), "headers": [*host, *headers], **path, **fields}


class Guarded:
    """The guard before an application that notes messages and needs `cost` seconds for each."""

    def __init__(self, frame_ancestors="'self'", cost=0.0):
        self.now, self.got, self.cost, self.worked = 1000.0, [], cost, 0.0
        self.guard = Guard(self.app, frame_ancestors, Meter(lambda: self.now, lambda: self.worked))

    async def app(self, scope, receive, send):
        """Take everything until the connection ends; answer a request with a cookie."""
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
        await send({"type": "websocket.send", "bytes": b"too late"})

    def ask(self, events, client, headers, host=(HOST,), **scope):
        """Let the guard take events; return what it answers."""
        send, scope = AsyncMock(), scope_of(client, *headers, host=host, **scope)
        run(self.guard(scope, AsyncMock(side_effect=events), send))
        return [call.args[0] for call in send.call_args_list]

    def visit(self, *payloads, client=VISITOR, headers=(), host=(HOST,)):
        """Connect and send messages; return kinds of answers, or the last code."""
        events = [CONNECT, *map(sent, payloads), DISCONNECT]
        answers = self.ask(events, client, headers, host, type="websocket")
        return [event.get("code", event["type"].removeprefix("websocket.")) for event in answers]

    def get(self, path, headers=(), scheme="http"):
        """Ask for a page; return its status and the headers of the answer."""
        scope = {"method": "GET", "path": path, "scheme": scheme}
        (start, *_) = self.ask([], VISITOR, headers, type="http", **scope)
        return start["status"], Headers(raw=start["headers"])


@pytest.fixture(autouse=True)
def _no_thread_draws(monkeypatch):
    """No address is crowded."""
    monkeypatch.setattr(guard, "is_crowded", lambda _: False)


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
    widgets = [{"id": f"{n}"} for n in range(guard.MOST_STATES + 1)]
    for sent, code in (
        (b"\xff\xff\xff", guard.NOT_UNDERSTOOD),
        ("text", guard.NO_TEXT),
        (rerun(query_string="x" * guard.MOST_BYTES), guard.TOO_LARGE),
        (rerun(widget_states={"widgets": widgets}), guard.TOO_LARGE),
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

    monkeypatch.setattr(guard.asyncio, "sleep", sleep)
    for _ in range(2):
        assert guarded.visit(*[rerun()] * 10) == ["accept", "send"]
    assert len(guarded.got) == 20
    assert sum(slept) == pytest.approx(19 * 0.1 * guard.REST)
    slept.clear()
    assert guarded.visit(rerun(), client=OTHER) == ["accept", "send"]
    assert slept == []


def test_frames_are_charged_before_any_message_is_whole(monkeypatch):
    """Pings and empty frames reach no application; who does not read the answers waits, too."""
    now, later, got, unread = [0.0], [], [], [0]
    loop = Mock(call_later=lambda *call: later.append(call))
    monkeypatch.setattr(guard.asyncio, "get_running_loop", lambda: loop)

    class Socket:  # of uvicorn, where every piece of frames costs a tenth of a second
        read_paused, conn, data_received = False, Mock(max_message_size=10**9), got.append
        transport = Mock(get_write_buffer_size=lambda: unread[0], is_closing=lambda: False)

        async def receive(self):
            """Make this object the one that the guard finds."""

    socket = Socket()
    socket.frames = []
    address = Address(VISITOR, Meter(lambda: now[0], lambda: 0.1 * len(got)))
    read_little_at_once(socket.receive, address)
    assert socket.conn.max_message_size == guard.MOST_BYTES
    assert socket.transport.max_size == guard.READ_AT_ONCE

    def is_reading():
        names = [name for name, *_ in socket.transport.method_calls if name.endswith("_reading")]
        return names[-1] == "resume_reading"

    for number in range(3):  # the last one comes although the guard has paused
        socket.data_received(number)
    assert (got, is_reading()) == ([0], False)
    while later:
        seconds, go_on = later.pop(0)
        assert seconds == pytest.approx(0.1 * guard.REST)
        now[0] += seconds + 1e-6
        go_on()
    assert (got, is_reading()) == ([0, 1, 2], True)
    now[0] += 10.0
    unread[0] = guard.MOST_UNREAD + 1
    socket.data_received(3)
    assert (got, is_reading()) == ([0, 1, 2], False)
    unread[0] = 0
    later.pop()[1]()
    assert (got, is_reading()) == ([0, 1, 2, 3], True)
    assert not socket.transport.abort.called
    socket.frames += [b""] * (guard.MOST_FRAMES + 1)
    now[0] += 10.0
    socket.data_received(4)
    assert socket.transport.abort.called


def test_what_comes_meanwhile_is_read_and_a_fragment_that_redraws_itself_waits_once(monkeypatch):
    """Signs of life and refused messages never wait; pages of visitors who left are not drawn."""
    guarded, events, crowded, n_read = Guarded(), asyncio.Queue(), [True], [0]
    monkeypatch.setattr(guard, "CROWDED_SECONDS", 0.001)
    monkeypatch.setattr(guard, "is_crowded", lambda name: name == VISITOR and crowded[0])

    async def receive():
        event = await events.get()
        n_read[0] += 1
        return event

    def give(*payloads):
        for payload in payloads:
            events.put_nowait(sent(payload))

    async def has(*payloads, read=0):
        while len(guarded.got) < len(payloads) or n_read[0] < read:
            await asyncio.sleep(0.001)
        assert guarded.got == [*payloads]
        guarded.got.clear()

    async def visit():
        alive, alone = [message(app_heartbeat=True)] * 50, {"is_auto_rerun": True}
        live = [rerun(fragment_id="live", query_string=f"{n}", **alone) for n in range(90)]
        presses = [rerun(fragment_id="live", query_string="press"), rerun()]
        other = rerun(fragment_id="other", **alone)
        events.put_nowait(CONNECT)
        task = asyncio.ensure_future(guarded.guard(scope_of(VISITOR), receive, AsyncMock()))
        give(alive[0], *live[:50], other, *presses, *live[50:], *[b""] * 200)
        await has(alive[0], read=295)  # the last one is read although all wait
        crowded[0] = False
        await has(other, *presses, live[-1])
        crowded[0], n_read[0] = True, 0
        many = [rerun(query_string="a" * 4000)] * 20  # the memory of what waits is bounded
        give(*many, *alive)
        await asyncio.sleep(0.05)
        assert n_read[0] < 12
        crowded[0] = False
        await has(*many, *alive)
        crowded[0] = True
        give(rerun(), "a text closes the connection")
        await task
        assert guarded.got == []

    run(visit())


def test_an_address_has_so_many_connections_and_so_many_addresses_are_remembered(monkeypatch):
    """Attackers with many addresses fill no memory. Nothing is sent to a visitor who is gone."""
    monkeypatch.setattr(guard, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(guard, "MOST_ADDRESSES", 3)
    guarded, send, reached = Guarded(), AsyncMock(), []

    async def stay(scope, receive, send):
        reached.append(scope)
        await asyncio.sleep(0.05)

    async def come_at_once():
        scope = scope_of(VISITOR)
        await asyncio.gather(*(guarded.guard(scope, AsyncMock(), send) for _ in range(5)))

    guarded.guard._app = stay
    run(come_at_once())
    assert len(reached) == 3
    assert [call.args[0]["code"] for call in send.call_args_list] == [guard.REFUSED] * 2
    guarded, gone = Guarded(), AsyncMock(side_effect=ConnectionResetError)
    receive = AsyncMock(side_effect=[CONNECT, sent(rerun())])
    run(guarded.guard(scope_of(VISITOR), receive, gone))
    assert guarded.got == []
    monkeypatch.setenv("ATTNKIT_ADDRESS_HEADER", "X-Forwarded-For")
    server_settings.cache_clear()
    for number in range(20):
        proxied = [(b"x-forwarded-for", f"9.9.9.9, 10.0.0.{number}".encode())]
        assert guarded.visit(rerun(), headers=proxied) == ["accept", "send"]
    assert list(guarded.guard._addresses) == [f"10.0.0.{number}" for number in (17, 18, 19)]


def test_every_answer_says_what_a_page_may_load_and_who_may_frame_it():
    """Nobody frames the owner's page, in whatever spelling; cookies are secure behind HTTPS."""
    host = "https://huggingface.co"
    guarded = Guarded(frame_ancestors=host)
    owner = "/owner /owner/ /base/Owner /own%65r".split()
    for path in ("/", "/runs", *owner, "/owner ", "/owner\t/"):
        status, headers = guarded.get(path)
        policy = headers["content-security-policy"]
        assert status == 200
        assert policy.startswith("default-src 'self'; ")
        framed_by = host if path in ("/", "/runs") else "'none'"
        assert policy.endswith(f"frame-ancestors {framed_by}")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    for scheme, given, secure in (
        ("http", [], False),
        ("https", [], True),
        ("http", [(b"x-forwarded-proto", b"https")], True),
    ):
        _, headers = guarded.get("/", given, scheme)
        assert headers["set-cookie"].endswith("; Secure") == secure
    for bad in ("'self'; script-src *", "a\nb", "a,b", "ü"):  # would break out of the header
        with pytest.raises(InvalidSettings, match="ATTNKIT_FRAME_ANCESTORS"):
            ServerSettings.of({"ATTNKIT_FRAME_ANCESTORS": bad})


def test_a_host_is_compared_as_browsers_write_it():
    """A proxy may write capitals, or the default port that a browser leaves out."""
    written = {b"Example.org:443": b"example.org", b"example.org:8080": b"example.org:8080"}
    for given, plain in written.items():
        scope = guard.with_plain_host({"headers": [(b"host", given), (b"origin", b"X")]})
        assert scope["headers"] == [(b"host", plain), (b"origin", b"X")]


def test_of_streamlits_own_routes_those_that_a_page_needs_are_open(guarded):
    """Neither uploads, metrics and agents, nor what a later version adds."""
    for (
        path
    ) in "/_stcore/health /base/_stcore/host-config /static/js/index.js /media/a.png".split():
        assert guarded.get(path)[0] == 200
    closed = "upload_file/a/b metrics agent/interact agent/mcp script-health-check new /health"
    for path in closed.split():
        for base in ("", "/base", "/runs"):
            assert guarded.get(f"{base}/_stcore/{path}")[0] == 404


def test_only_a_hosted_copy_has_a_guard(monkeypatch):
    """The owner of a copy for oneself may do anything."""
    monkeypatch.setattr(guard, "in_front", threading.Event())
    for hosted, expected in (("false", []), ("true", [Guard])):
        monkeypatch.setenv("ATTNKIT_HOSTED", hosted)
        server_settings.cache_clear()
        assert [one.cls for one in guards()] == expected
