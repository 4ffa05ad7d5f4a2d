"""The guard in front of a hosted copy: limits on what visitors send, and headers on the answers.

Every visitor holds one WebSocket, over which the browser sends messages of Streamlit's protocol
(`BackMsg`). Streamlit trusts them: any visitor may clear the caches of all, or ask for pages faster
than a server can draw them. The guard lets pass only the kinds of message that our pages need, as
often as people need them. It wraps the server as ASGI middleware, see `dashboard.py`; a copy for
oneself has none.
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
from attnkit.ui.visitor_address import visitor_address

OTHER_KINDS = ("stop_script", "app_heartbeat")
"""Kinds of message that our pages need besides `rerun_script`; all others are dropped."""

MOST_BYTES = 2**18
"""Size of one message. Those of our pages have some kilobytes."""

PAGE_COST = 5
"""What a message that draws a whole page costs; any other costs 1."""

BYTES_PER_COST = 2**13
"""Larger messages cost 1 more for every so many bytes."""

CONNECTION_RATE, CONNECTION_BURST = 20, 100
"""Costs that one connection may cause in a second, and at once."""

CONNECTION_START = 40
"""What a new connection may cause at once, so that closing it and opening another gains nothing."""

ADDRESS_SECONDS, ADDRESS_TRIES = 5.0, 50
"""So long a message waits until its address may cause more, and how often that is looked up."""

OPENING_RATE, OPENING_BURST = 5, 100
"""Connections that one address may open in a second, and at once: each draws a first page."""

BURST_SECONDS = 5
"""An address may at once cause what it may cause in so many seconds."""

DRAWN_AT_ONCE = 3
"""Connections of one address that are drawn for at once; the others wait for their turn.

Drawing takes the interpreter's one lock, so that more at once are not faster for their address but
slower for all others.
"""

PAGE_SECONDS, FRAGMENT_SECONDS = 3.0, 0.5
"""A turn ends when the page or fragment has been drawn, at the latest after so long.

A browser may ask for a fragment that is gone, which is never answered.
"""

MOST_CONNECTIONS = 250
"""Open connections of one address."""

MOST_ADDRESSES = 4096
"""Addresses that are remembered; those that have been idle longest are forgotten."""

TOO_OFTEN, NOT_UNDERSTOOD, NO_TEXT, TOO_LARGE = 1008, 1002, 1003, 1009
"""Codes with which connections are closed."""

_FRAGMENT = re.compile("[0-9a-zA-Z_-]{0,128}")  # Streamlit logs the name of one that is gone
_LARGEST_END = 2000  # bytes of a message that says that a page was drawn
_LOOPBACK = ("localhost", "127.0.0.1", "0.0.0.0")  # as Streamlit has it
_PROXIED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")

_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors {}"
)
"""Streamlit's page has a script of its own inline, and so have its styles and our components."""


@dataclass
class Bucket:
    """A token bucket: costs may come at a rate, and up to a burst at once.

    Args:
        rate: Tokens that come back in a second.
        burst: Tokens that the bucket holds.
        clock: Returns seconds that never go back.
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
    """Limits and turns that all connections of one address share."""

    bucket: Bucket
    openings: Bucket
    n_connections: int = 0
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DRAWN_AT_ONCE))


class Guard:
    """ASGI middleware that limits what visitors can ask of a hosted copy.

    Args:
        app: What is guarded.
        address_rate: Costs that all connections of one address may cause in a second.
        frame_ancestors: Who may show the pages in a frame, as the header of browsers wants it.
        clock: Returns seconds that never go back.
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
        """Answer one request or one connection, as ASGI has it."""
        if scope["type"] == "websocket":
            await self._connect(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; some addresses of Streamlit do not exist on a hosted copy."""
        headers, path = Headers(scope=scope), scope["path"]
        if is_foreign(headers):  # Streamlit would ask the network for its own address
            scope = {**scope, "headers": [h for h in scope["headers"] if h[0] != b"origin"]}
        app = self._app
        if "/_stcore/upload_file" in path or (
            "/_stcore/metrics" in path and not is_from_this_machine(scope, headers)
        ):
            app = PlainTextResponse("Not Found", status_code=404)
        owner = path.rstrip("/").rpartition("/")[2].lower() == "owner"
        policy = _POLICY.format("'none'" if owner else self._frame_ancestors)
        secure = "https" in (scope.get("scheme"), headers.get("x-forwarded-proto"))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_headers(message, policy, secure=secure)
            await send(message)

        await app(scope, receive, send_with_headers)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a visitor in, and close the connection if it asks for too much."""
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
        """Return what is known of an address; the one idle longest makes room for a new one."""
        known = self._addresses.pop(name, None)
        if known is None:
            bucket = Bucket(self._rate, BURST_SECONDS * self._rate, self._clock)
            known = _Address(bucket, Bucket(OPENING_RATE, OPENING_BURST, self._clock))
        self._addresses[name] = known  # at the end
        if len(self._addresses) > MOST_ADDRESSES:
            idle = (n for n, other in self._addresses.items() if not other.n_connections)
            del self._addresses[next(idle, name)]
        return known


class _Connection:
    """One visitor's WebSocket between the server and Streamlit."""

    def __init__(
        self, receive: Receive, send: Send, address: _Address, clock: Callable[[], float]
    ) -> None:
        self._receive, self._send, self._address = receive, send, address
        self._own = Bucket(CONNECTION_RATE, CONNECTION_BURST, clock)
        self._own.take(CONNECTION_BURST - CONNECTION_START)
        self._closed = False
        self._turn: asyncio.TimerHandle | None = None  # ends the turn that the connection has
        self._written = asyncio.Event()  # whether the client has taken all that was sent
        self._written.set()

    async def send(self, message: Message) -> None:
        """Send a message to the visitor; after the end there is nobody to send it to."""
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
            await self._written.wait()  # who does not take answers may not ask for more
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
        """Let another connection of the address be drawn for."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
            self._address.turns.release()

    async def _begin_turn(self, seconds: float) -> None:
        """Wait until the connection may be drawn for; who has the turn need not wait again."""
        if self._turn is None:
            await self._address.turns.acquire()
            self._turn = asyncio.get_running_loop().call_later(seconds, self.end_turn)

    async def _judge(self, data: bytes | None) -> BackMsg | int:
        """Return a message that may be considered, or the code to close the connection with."""
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
        if not self._own.take(cost):
            return TOO_OFTEN
        for _ in range(ADDRESS_TRIES):  # many visitors behind one router are slowed, not cut off
            if self._address.bucket.take(cost):
                return parsed
            await asyncio.sleep(ADDRESS_SECONDS / ADDRESS_TRIES)
        return TOO_OFTEN


in_front = threading.Event()
"""Whether the guard was put in front of this server; not if a host runs the script alone."""


def guards() -> list[Middleware]:
    """Return the middleware of this copy: the guard if strangers use it.

    Raises:
        InvalidSettings: if an environment variable has a value that is not allowed.
    """
    settings = server_settings()
    if not settings.hosted:
        return []
    in_front.set()
    # The log of a hosted copy names nobody; uvicorn tells the address of every connection.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return [
        Middleware(
            Guard,
            address_rate=settings.address_rate,
            frame_ancestors=settings.frame_ancestors,
        )
    ]


def is_foreign(headers: Headers) -> bool:
    """Return whether a request was made by a page of another site.

    Streamlit checks that, too, but for this it asks the network for its own address, and the whole
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
    if any(name in headers for name in _PROXIED):
        return False
    try:
        return peer == server or ip_address(peer).is_loopback
    except ValueError:
        return False


def add_headers(message: Message, policy: str, *, secure: bool) -> None:
    """Tell the browser what the page may load and who may frame it.

    Args:
        message: The beginning of an answer; it is changed.
        policy: The content security policy.
        secure: Whether the visitor came by HTTPS, so that cookies travel by nothing else.
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
    if not 0 < len(data) <= _LARGEST_END:
        return False
    sent = ForwardMsg.FromString(data)
    early = ForwardMsg.FINISHED_EARLY_FOR_RERUN
    return bool(sent.HasField("script_finished") and sent.script_finished != early)


def limit_message_size(receive: Receive) -> None:
    """Let uvicorn refuse larger messages at their first bytes instead of collecting them.

    Its own limit is that of the answers, which are far larger: unfinished messages of a hundred
    connections filled the memory. Other servers keep their limit.
    """
    connection = getattr(getattr(receive, "__self__", None), "conn", None)
    if connection is not None and hasattr(connection, "max_message_size"):
        connection.max_message_size = MOST_BYTES
