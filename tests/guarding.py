"""The guard of a hosted copy before an application that notes what reaches it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from attnkit.ui.server import connection
from attnkit.ui.server.guard import Guard
from attnkit.ui.server.metering import Meter

HOST = (b"host", b"copy.example")
VISITOR, OTHER = "198.51.100.7", "203.0.113.9"


def run(coroutine):
    """Run a coroutine in a thread of its own; the shared browser has its loop in this one.

    A coroutine that waits for what never comes fails, as no other limit ends it.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asyncio.wait_for(coroutine, 20)).result()


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

        scope |= {"client": (client, 1), "headers": [*host, *headers]}
        run(self.guard(scope, receive, send))
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
def nothing_starts(monkeypatch):
    """No message starts a thread that draws."""
    monkeypatch.setattr(connection, "is_crowded", lambda _: False)


@pytest.fixture
def guarded():
    """The guard with its usual limits."""
    return Guarded()
