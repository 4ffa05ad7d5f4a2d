"""Guard of a hosted copy: limits on what visitors send, and headers on the server's responses.

Every visitor holds one WebSocket, over which the browser sends messages of Streamlit's protocol
(`BackMsg`). Streamlit trusts them: any visitor may clear the caches of all, or request pages faster
than a server can draw them. The guard passes only the kinds of message that our pages need, as
often as people need them. It wraps the server as ASGI middleware, see `dashboard.py`; a copy that
is not hosted has no guard.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from attnkit.service.server import server_settings
from attnkit.ui.server.visitor_address import visitor_address

OTHER_KINDS = ("stop_script", "app_heartbeat")
"""Kinds of message besides `rerun_script` that our pages need; all others are dropped."""

MOST_BYTES = 2**18
"""Size of one message in bytes, at most; those of our pages have some kilobytes."""

PAGE_COST = 5
"""Cost of a message that draws a whole page; any other message costs 1."""

BYTES_PER_COST = 2**13
"""Number of bytes for each of which a message costs 1 more."""

CONNECTION_RATE, CONNECTION_BURST = 20, 100
"""Cost that one connection may cause per second, and at once."""

CONNECTION_START = 40
"""Cost that a new connection may cause at once: opening another one must not gain anything."""

ADDRESS_SECONDS, ADDRESS_TRIES = 5.0, 50
"""Seconds that a message waits until its address may cause its cost, and number of checks."""

OPENING_RATE, OPENING_BURST = 5, 100
"""Connections that one address may open per second, and at once: each draws a first page."""

BURST_SECONDS = 5
"""Seconds whose allowed cost an address may cause at once."""

DRAWN_AT_ONCE = 3
"""Connections of one address whose pages are drawn at the same time; others wait for their turn.

Drawing holds the interpreter's lock: more at the same time are not faster for their address, but
slower for all others.
"""

PAGE_SECONDS, FRAGMENT_SECONDS = 3.0, 0.5
"""Seconds after which a turn ends even if its page or fragment has not been drawn.

A browser may request a fragment that is gone, and no message says that it was drawn.
"""

MOST_CONNECTIONS = 250
"""Open connections of one address, at most."""

MOST_ADDRESSES = 4096
"""Addresses that are remembered, at most; those that have been idle longest are forgotten."""

TOO_OFTEN, NOT_UNDERSTOOD, NO_TEXT, TOO_LARGE = 1008, 1002, 1003, 1009
"""WebSocket codes with which connections are closed."""

_FRAGMENT = re.compile("[0-9a-zA-Z_-]{0,128}")  # Streamlit logs the name of one that is gone
_MOST_FINISHED_BYTES = 2000  # of a message which says that a page was drawn
_LOOPBACK = ("localhost", "127.0.0.1", "0.0.0.0")  # origins that Streamlit allows, too
_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")

_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors {}"
)
"""Content security policy. Inline code is allowed because Streamlit and our components need it."""


@dataclass
class Bucket:
    """Token bucket that limits a rate of costs, with bursts.

    Args:
        rate: Tokens that are added per second.
        burst: Tokens that the bucket holds, at most.
        clock: Returns seconds that never decrease.
    """

    rate: float
    burst: float
    clock: Callable[[], float] = time.monotonic
    _tokens: float = field(init=False)
    _when: float = field(init=False)

    def __post_init__(self) -> None:
        self._tokens, self._when = self.burst, self.clock()

    def take(self, cost: float) -> bool:
        """Take tokens, and return whether there were enough; if not, none is taken."""
        now = self.clock()
        self._tokens = min(self.burst, self._tokens + (now - self._when) * self.rate)
        self._when = now
        if self._tokens < cost:
            return False
        self._tokens -= cost
        return True


@dataclass
class _Address:
    """Limits and turns that all open connections of one address share."""

    bucket: Bucket
    openings: Bucket
    n_connections: int = 0
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DRAWN_AT_ONCE))


class Guard:
    """ASGI middleware that limits what visitors can ask of a hosted copy.

    Args:
        app: The guarded application.
        address_rate: Cost that all connections of one address may cause per second.
        frame_ancestors: Sites that may show the pages in a frame, as in the header of this name.
        clock: Returns seconds that never decrease.
    """

    def __init__(
        self,
        app: ASGIApp,
        address_rate: float,
        frame_ancestors: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._rate, self._frame_ancestors, self._clock = address_rate, frame_ancestors, clock
        self._addresses: dict[str, _Address] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or connection, as ASGI prescribes."""
        if scope["type"] == "websocket":
            await self._connect(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; uploads do not exist here, and metrics only for this machine."""
        headers, path = Headers(scope=scope), scope["path"]
        if is_foreign(headers):  # Streamlit would ask the network for its own address
            scope = {**scope, "headers": [h for h in scope["headers"] if h[0] != b"origin"]}
        app = self._app
        if "/_stcore/upload_file" in path or (
            "/_stcore/metrics" in path and not is_from_this_machine(scope, headers)
        ):
            app = PlainTextResponse("Not Found", status_code=404)
        is_owner_page = path.rstrip("/").rpartition("/")[2].lower() == "owner"
        policy = _POLICY.format("'none'" if is_owner_page else self._frame_ancestors)
        secure = "https" in (scope.get("scheme"), headers.get("x-forwarded-proto"))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_headers(message, policy, secure=secure)
            await send(message)

        await app(scope, receive, send_with_headers)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a WebSocket; close it at once if it is foreign or its address has too many."""
        headers = Headers(scope=scope)
        peer = (scope.get("client") or (None,))[0]
        address = self._address(visitor_address(headers.getlist, peer))
        if (
            is_foreign(headers)
            or address.n_connections >= MOST_CONNECTIONS
            or not address.openings.take(1)
        ):
            await receive()
            await send({"type": "websocket.close", "code": TOO_OFTEN})
            return
        limit_message_size(receive)
        connection = _Connection(receive, send, address, self._clock)
        address.n_connections += 1
        try:
            await self._app(scope, connection.receive, connection.send)
        finally:
            address.n_connections -= 1
            connection.end_turn()

    def _address(self, name: str) -> _Address:
        """Return the state of an address; forget the one idle longest if there are many."""
        address = self._addresses.pop(name, None)
        if address is None:
            bucket = Bucket(self._rate, BURST_SECONDS * self._rate, self._clock)
            address = _Address(bucket, Bucket(OPENING_RATE, OPENING_BURST, self._clock))
        self._addresses[name] = address  # at the end, so that the first is idle longest
        if len(self._addresses) > MOST_ADDRESSES:
            idle = (n for n, other in self._addresses.items() if not other.n_connections)
            del self._addresses[next(idle, name)]
        return address


class _Connection:
    """One visitor's WebSocket between the server and Streamlit."""

    def __init__(
        self, receive: Receive, send: Send, address: _Address, clock: Callable[[], float]
    ) -> None:
        self._receive, self._send, self._address = receive, send, address
        self._bucket = Bucket(CONNECTION_RATE, CONNECTION_BURST, clock)
        self._bucket.take(CONNECTION_BURST - CONNECTION_START)
        self._closed = False
        self._turn: asyncio.TimerHandle | None = None  # ends the present turn
        self._written = asyncio.Event()  # set while the client has received everything
        self._written.set()

    async def send(self, message: Message) -> None:
        """Send a message to the visitor; after the connection was closed, drop it."""
        if self._closed:
            return
        self._written.clear()
        try:
            await self._send(message)
        finally:
            self._written.set()
        if is_script_finished(message):
            self.end_turn()

    async def receive(self) -> Message:
        """Return the next message that may pass, or the end of the connection."""
        while True:
            await self._written.wait()  # a client that does not read may not request more
            message = await self._receive()
            if message["type"] != "websocket.receive":
                return message
            parsed = await self._judge(message.get("bytes"))
            if isinstance(parsed, int):
                self._closed = True
                await self._send({"type": "websocket.close", "code": parsed})
                return {"type": "websocket.disconnect", "code": parsed}
            kind, fragment = parsed.WhichOneof("type"), parsed.rerun_script.fragment_id
            if kind == "rerun_script" and _FRAGMENT.fullmatch(fragment):
                await self._begin_turn(FRAGMENT_SECONDS if fragment else PAGE_SECONDS)
                return message
            if kind in OTHER_KINDS:
                return message

    def end_turn(self) -> None:
        """End the turn, so that another connection of the address is drawn for."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
            self._address.turns.release()

    async def _begin_turn(self, seconds: float) -> None:
        """Wait for a turn, unless the connection has one already."""
        if self._turn is None:
            await self._address.turns.acquire()
            self._turn = asyncio.get_running_loop().call_later(seconds, self.end_turn)

    async def _judge(self, data: bytes | None) -> BackMsg | int:
        """Return a message within all limits, or the code to close the connection with."""
        if data is None:
            return NO_TEXT
        if len(data) > MOST_BYTES:
            return TOO_LARGE
        try:
            parsed: BackMsg = BackMsg.FromString(data)
        except DecodeError:
            return NOT_UNDERSTOOD
        draws_page = parsed.HasField("rerun_script") and not parsed.rerun_script.fragment_id
        cost = (PAGE_COST if draws_page else 1) + len(data) // BYTES_PER_COST
        if not self._bucket.take(cost):
            return TOO_OFTEN
        for _ in range(ADDRESS_TRIES):  # many visitors behind one router are slowed, not cut off
            if self._address.bucket.take(cost):
                return parsed
            await asyncio.sleep(ADDRESS_SECONDS / ADDRESS_TRIES)
        return TOO_OFTEN


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
    # The log of a hosted copy names nobody, but uvicorn logs the address of every connection.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return [
        Middleware(
            Guard, address_rate=settings.address_rate, frame_ancestors=settings.frame_ancestors
        )
    ]


def is_foreign(headers: Headers) -> bool:
    """Return whether a request was made by a page of another site.

    Streamlit checks this, too, but it asks the network for its own address first, and the whole
    server waits up to 2 s for the answer.
    """
    origin = headers.get("origin")
    if origin is None or not config.get_option("server.enableCORS"):
        return False
    options = ("browser.serverAddress", "server.corsAllowedOrigins")
    server, allowed = (config.get_option(option) for option in options)
    try:
        parts = urlsplit(origin)
        names = {urlsplit(url).hostname for url in allowed} | {server, *_LOOPBACK}
        return parts.netloc != headers.get("host") and parts.hostname not in names
    except ValueError:
        return True


def is_from_this_machine(scope: Scope, headers: Headers) -> bool:
    """Return whether a request came from this machine itself, and not through a proxy on it."""
    peer, server = ((scope.get(end) or ("",))[0] for end in ("client", "server"))
    if any(name in headers for name in _PROXY_HEADERS):
        return False
    try:
        return peer == server or ip_address(peer).is_loopback
    except ValueError:
        return False


def add_headers(message: Message, policy: str, *, secure: bool) -> None:
    """Add headers that say what the page may load and which sites may frame it.

    Args:
        message: Start of a response; it is changed.
        policy: Content security policy.
        secure: Whether the visitor came by HTTPS, so that cookies are sent by HTTPS only.
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


def is_script_finished(message: Message) -> bool:
    """Return whether a message to the visitor says that a page or fragment has been drawn."""
    data = message.get("bytes") or b""
    if not 0 < len(data) <= _MOST_FINISHED_BYTES:
        return False
    sent = ForwardMsg.FromString(data)
    unfinished = ForwardMsg.FINISHED_EARLY_FOR_RERUN
    return bool(sent.HasField("script_finished") and sent.script_finished != unfinished)


def limit_message_size(receive: Receive) -> None:
    """Make uvicorn refuse messages of more than `MOST_BYTES` at their first bytes.

    Its own limit is the one for responses, which are far larger: unfinished messages of a hundred
    connections could fill the memory. Other servers keep their limit.
    """
    connection = getattr(getattr(receive, "__self__", None), "conn", None)
    if connection is not None and hasattr(connection, "max_message_size"):
        connection.max_message_size = MOST_BYTES
