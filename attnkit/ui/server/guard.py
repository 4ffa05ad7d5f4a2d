"""Guard of a hosted copy: limits on what visitors send, and headers on the server's responses.

Every visitor holds one WebSocket, over which the browser sends messages of Streamlit's protocol
(`BackMsg`), and Streamlit trusts them. Only the kinds of message that our pages need pass, within
limits of size. A message that draws waits while its address has enough to draw.

One thread reads and sends the messages of all visitors. The processor time that an address costs it
is measured, and the address rests for twice as long before more is read from it.

The guard wraps the server as ASGI middleware, see `dashboard.py`; a copy that is not hosted has no
guard. What a proxy does better is left to the proxy in `docs/hosting.md`, such as deadlines for
headers.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from asyncio import Transport
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote

from google.protobuf.message import DecodeError
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.proto.BackMsg_pb2 import BackMsg
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from attnkit.service.server import server_settings
from attnkit.ui.server.turns import is_crowded, visitor_address

MOST_CONNECTIONS = 250
"""Open connections of one address, at most."""

MOST_SOCKETS = 500
"""Sockets of one address that may be open, idle ones included; a browser opens up to seven."""

MOST_ADDRESSES = 4096
"""Addresses that are remembered, at most; those that have been idle longest are forgotten."""

_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors {}"
)
"""Content security policy. Inline code is allowed because Streamlit and our components need it."""

MOST_STATES = 200
"""Widgets whose values one message may hold; our pages have at most fifty.

Streamlit makes objects of about a kilobyte of each."""

CROWDED_SECONDS = 0.1
"""Time between two looks at whether an address may draw again."""

PASSES, DROPPED = 1, 0
"""What the guard does with a message, if it does not close the connection."""

REFUSED, NOT_UNDERSTOOD, NO_TEXT, TOO_LARGE, GONE = 1008, 1002, 1003, 1009, 1006
"""WebSocket codes with which connections are closed, and of a visitor who is gone."""

_FRAGMENT = re.compile("[0-9a-zA-Z_-]{0,128}")  # Streamlit logs the name of one that is gone

MOST_BYTES = 2**18
"""Size of one message in bytes, at most; those of our pages have some kilobytes."""

MOST_FRAMES = 1000
"""Frames of one message, at most; uvicorn keeps them all, also empty ones. Browsers send one."""

REST = 2.0
"""Seconds for which an address rests, for each second that its frames and messages have cost."""

READ_AT_ONCE = 2**13
"""Bytes that are read at once, so that empty frames in them cost about as much as one message."""

MOST_UNREAD = 2**17
"""Unread bytes of a visitor beyond which nothing more is read from this visitor."""


class Guard:
    """ASGI middleware that limits what visitors can ask of a hosted copy.

    Args:
        frame_ancestors: Sites that may show the pages in a frame, as in the header of this name.
    """

    def __init__(self, app: ASGIApp, frame_ancestors: str, meter: Meter | None = None) -> None:
        self._app, self._frame_ancestors = app, frame_ancestors
        self._meter = meter or Meter()
        self._addresses: dict[str, Address] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or connection, as ASGI prescribes."""
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._connect(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_owner_page = "owner" in unquote(scope["path"]).lower()  # in whatever spelling
        policy = _POLICY.format("'none'" if is_owner_page else self._frame_ancestors)
        forwarded = Headers(scope=scope).get("x-forwarded-proto")
        secure = "https" in (scope.get("scheme"), forwarded)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(message, policy, secure=secure)
            await send(message)
            self._meter.seconds()  # no visitor is charged for files, which a class opens at once

        app = self._app if is_open(scope["path"]) else PlainTextResponse("Not Found", 404)
        await app(scope, receive, send_with_headers)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a WebSocket; close it at once if its address has too many."""
        peer = (scope.get("client") or (None,))[0]
        name = visitor_address(Headers(scope=scope).getlist, peer)
        address = self._addresses.pop(name, None) or Address(name, self._meter)
        self._addresses[name] = address  # at the end, so that the first is idle longest
        if len(self._addresses) > MOST_ADDRESSES:
            idle = (other for other, a in self._addresses.items() if not a.n_connections)
            del self._addresses[next(idle, name)]
        if address.n_connections >= MOST_CONNECTIONS:
            await receive()
            await send({"type": "websocket.close", "code": REFUSED})
            return
        read_little_at_once(receive, address)
        connection = Connection(receive, send, address)
        address.n_connections += 1
        try:
            await self._app(with_plain_host(scope), connection.receive, connection.send)
        finally:
            address.n_connections -= 1
            connection.close()


def with_plain_host(scope: Scope) -> Scope:
    """Return a request with its host as browsers write it: in lower case, without a default port.

    A proxy may write it otherwise, and Streamlit compares it with the page's address as a text.
    """

    def plain(name: bytes, value: bytes) -> bytes:
        if name != b"host":
            return value
        return value.lower().removesuffix(b":80").removesuffix(b":443")

    headers = [(name, plain(name, value)) for name, value in scope["headers"]]
    return {**scope, "headers": headers}


in_front = threading.Event()
"""Set if the guard is in front of this server; not if a host runs the script alone."""


def guards() -> list[Middleware]:
    """Return the middleware of this copy: the guard if it is hosted, else none.

    Raises:
        InvalidSettings: If an environment variable has a value that is not allowed.
    """
    settings = server_settings()
    if not settings.hosted:
        return []
    in_front.set()
    return [Middleware(Guard, frame_ancestors=settings.frame_ancestors)]


@cache
def limit_sockets() -> None:
    """Let uvicorn close sockets of an address that has many; idle ones reach no guard.

    Each is an open file, of which a system may allow 1,024. Behind a proxy nothing is limited,
    because all sockets are the proxy's.
    """
    if server_settings().address_header:
        return
    accept = AutoHTTPProtocol.connection_made

    def connection_made(self: Any, transport: Transport) -> None:
        accept(self, transport)
        clients = [one.client[0] for one in self.connections if one.client]
        if self.client and clients.count(self.client[0]) > MOST_SOCKETS:
            transport.abort()

    AutoHTTPProtocol.connection_made = connection_made  # type: ignore[assignment,method-assign]


def is_open(path: str) -> bool:
    """Return whether a path is one that our pages need; all files and names of pages are."""
    _, core, route = path.rpartition("_stcore")
    return not core or route.removeprefix("/") in ("health", "host-config", "stream")


def _add_headers(message: Message, policy: str, *, secure: bool) -> None:
    """Add headers that say what the page may load and which sites may frame it.

    With `secure`, the visitor came by HTTPS, and cookies are sent by HTTPS only.
    """
    headers = MutableHeaders(scope=message)
    headers["Content-Security-Policy"] = policy
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Referrer-Policy"] = "same-origin"
    if secure:
        message["headers"] = [
            (name, value + b"; Secure")
            if name.lower() == b"set-cookie" and b"secure" not in value.lower().split(b"; ")
            else (name, value)
            for name, value in message["headers"]
        ]


@dataclass(frozen=True)
class JudgedMessage:
    """A message that was read, and what the guard does with it.

    Attributes:
        verdict: `PASSES`, `DROPPED`, or the code with which the connection is closed.
        draws: Whether it draws a page or a fragment.
        redraws: Name of the fragment that redraws itself by this message; empty if none does.
    """

    message: Message
    verdict: int
    draws: bool = False
    redraws: str = ""

    @property
    def ends(self) -> bool:
        """Whether it ends the connection, so that what came before is not drawn any more."""
        is_last = self.message["type"] == "websocket.disconnect"
        return is_last or self.verdict not in (PASSES, DROPPED)


class Connection:
    """One visitor's WebSocket between the server and Streamlit."""

    def __init__(self, receive: Receive, send: Send, address: Address) -> None:
        self._receive, self._send, self._address = receive, send, address
        self._closed = False
        self._waiting: list[JudgedMessage] = []
        self._reading: asyncio.Future[Message] | None = None
        self._written = asyncio.Event()  # set while the client has received everything
        self._written.set()

    async def send(self, message: Message) -> None:
        """Send a message to the visitor; once the connection is closed, drop it."""
        if self._closed:
            return
        self._written.clear()
        try:
            await self._send(message)
        except (OSError, RuntimeError):  # the visitor is gone, or uvicorn has closed the connection
            self._closed = True
        finally:
            self._written.set()
            self._address.charge()

    async def receive(self) -> Message:
        """Return the next message that may pass, or the end of the connection."""
        self._address.charge()  # Streamlit has handled the last one
        await self._written.wait()  # a client that does not read may not request more
        while not self._waiting:
            await self._read()
        while (rest := self._address.rest) > 0 and not self._waiting[0].ends:
            await asyncio.sleep(rest)
        while self._waiting[0].draws and not self._closed and is_crowded(self._address.name):
            await self._read(CROWDED_SECONDS)
        first = self._waiting.pop(0)
        if first.message["type"] == "websocket.disconnect":
            return first.message
        code = GONE
        if not self._closed:
            if first.verdict == PASSES:
                return first.message
            code, self._closed = first.verdict, True
            await self._send({"type": "websocket.close", "code": code})
        return {"type": "websocket.disconnect", "code": code}

    async def _read(self, seconds: float | None = None) -> None:
        """Read one message, waiting at most `seconds`; None: without a limit.

        Messages are read although others wait, because answers to pings may come behind them, and
        uvicorn closes a connection that does not answer. Of the messages with which a fragment
        redraws itself, only the newest waits.
        """
        # A message takes about 1,000 bytes besides its content.
        n_bytes = sum(1000 + len(w.message.get("bytes", b"")) for w in self._waiting)
        if n_bytes > 2**15 or (self._waiting and self._address.rest > 0):
            await asyncio.sleep(CROWDED_SECONDS)
            return
        self._reading = self._reading or asyncio.ensure_future(self._receive())
        await asyncio.wait([self._reading], timeout=seconds)
        if self._reading.done():
            judged, self._reading = judge(self._reading.result()), None
            self._address.charge()
            if judged.ends:
                self._waiting.clear()
            elif judged.redraws:
                self._waiting = [w for w in self._waiting if w.redraws != judged.redraws]
            if judged.verdict != DROPPED:
                self._waiting.append(judged)

    def close(self) -> None:
        """End the reading, when nobody receives any more."""
        if self._reading is not None:
            self._reading.cancel()


def judge(message: Message) -> JudgedMessage:
    """Decide what the guard does with a message."""
    if message["type"] != "websocket.receive":
        return JudgedMessage(message, PASSES)
    data = message.get("bytes")
    if data is None:
        return JudgedMessage(message, NO_TEXT)
    if len(data) > MOST_BYTES:
        return JudgedMessage(message, TOO_LARGE)
    try:
        parsed = BackMsg.FromString(data)
    except DecodeError:
        return JudgedMessage(message, NOT_UNDERSTOOD)
    kind, rerun = parsed.WhichOneof("type"), parsed.rerun_script
    if len(rerun.widget_states.widgets) > MOST_STATES:
        return JudgedMessage(message, TOO_LARGE)
    if kind == "rerun_script" and _FRAGMENT.fullmatch(rerun.fragment_id):
        redraws = rerun.fragment_id if rerun.is_auto_rerun else ""
        return JudgedMessage(message, PASSES, draws=True, redraws=redraws)
    is_needed = kind in ("stop_script", "app_heartbeat")  # our pages need no others
    return JudgedMessage(message, PASSES if is_needed else DROPPED)


class Meter:
    """Measures the work of the thread that serves all visitors."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.thread_time,
    ) -> None:
        self.clock, self._work = clock, work
        self._charged = 0.0

    def seconds(self) -> float:
        """Return the processor seconds since the last call."""
        before, self._charged = self._charged, self._work()
        return self._charged - before


class Address:
    """State that all connections of one address share.

    Args:
    """

    def __init__(self, name: str, meter: Meter) -> None:
        self.name, self._meter = name, meter
        self.n_connections = 0
        self._rests_until = 0.0

    @property
    def rest(self) -> float:
        """Seconds until more is read from this address; 0 or less if it does not rest."""
        return self._rests_until - self._meter.clock()

    def charge(self) -> None:
        """Let the address rest for all work since any address was last charged.

        An address is charged at once after its work, so nearly all of it is its own.
        """
        seconds = REST * self._meter.seconds()
        self._rests_until = max(self._meter.clock(), self._rests_until) + seconds


def read_little_at_once(receive: Receive, address: Address) -> None:
    """Let uvicorn read the frames of a WebSocket in small pieces, and charge each to the address.

    Uvicorn answers pings and joins frames by itself before the guard sees a message, and its limit
    of a message's size is the one of responses, which are far larger. Other servers are unchanged.
    """
    protocol: Any = getattr(receive, "__self__", None)
    if not hasattr(getattr(protocol, "conn", None), "max_message_size"):
        return
    protocol.conn.max_message_size = MOST_BYTES
    transport, handle = protocol.transport, protocol.data_received
    transport.max_size = READ_AT_ONCE  # of asyncio's sockets
    pieces: deque[bytes] = deque()  # received but not handled yet

    def receive_data(data: bytes) -> None:
        pieces.append(data)
        if len(pieces) == 1:
            handle_pieces()
        else:  # uvicorn has begun to read again, although the address rests
            transport.pause_reading()

    def handle_pieces() -> None:
        """Handle pieces until the address rests, or the visitor has to read first."""
        while pieces and not transport.is_closing():
            unread = transport.get_write_buffer_size() > MOST_UNREAD
            wait = 0.25 if unread else address.rest
            if wait > 0:
                transport.pause_reading()
                asyncio.get_running_loop().call_later(wait, handle_pieces)
                return
            handle(pieces[0])
            if len(protocol.frames) > MOST_FRAMES:
                transport.abort()
            pieces.popleft()
            address.charge()
        pieces.clear()
        if not protocol.read_paused:
            transport.resume_reading()

    protocol.data_received = receive_data
