"""Guard of a hosted copy: limits on what visitors send, and headers on the server's responses.

Every visitor holds one WebSocket, over which the browser sends messages of Streamlit's protocol
(`BackMsg`). Streamlit trusts them: any visitor may clear the caches of all. The guard passes only
the kinds of message that our pages need. One thread reads and sends the messages of all visitors.
The guard measures the processor time that each address costs it, and lets the address rest for
twice as long before it reads more. Drawing pages has turns of its own, see
`attnkit.ui.server.turns`.

The guard wraps the server as ASGI middleware, see `dashboard.py`; a copy that is not hosted has no
guard. What a proxy does better is left to the proxy in `docs/hosting.md`, such as deadlines for
headers.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config
from streamlit.proto.BackMsg_pb2 import BackMsg

from attnkit.service.foreign_logs import Repetitions, in_a_timer
from attnkit.service.logs import log
from attnkit.service.server import server_settings
from attnkit.ui.server.metering import MOST_BYTES, Address, Meter, read_little_at_once
from attnkit.ui.server.service import training_service
from attnkit.ui.server.turns import expect, is_crowded, rest
from attnkit.ui.server.visitor_address import visitor_address

OTHER_KINDS = ("stop_script", "app_heartbeat")
"""Kinds of message besides `rerun_script` that our pages need; all others are dropped."""

MOST_STATES = 200
"""Widgets whose values one message may hold; our pages have at most fifty.

Streamlit makes objects of about a kilobyte of each."""

MOST_CONNECTIONS = 250
"""Open connections of one address, at most."""

MOST_ADDRESSES = 4096
"""Addresses that are remembered, at most; those that have been idle longest are forgotten."""

MOST_AHEAD = 2**15
"""Bytes of a connection's messages that wait, beyond which no more of them are read."""

CROWDED_SECONDS = 0.1
"""Time between two looks at whether an address may draw again."""

PASSES, DROPPED = 1, 0
"""What the guard does with a message, if it does not close the connection."""

REFUSED, NOT_UNDERSTOOD, NO_TEXT, TOO_LARGE, GONE = 1008, 1002, 1003, 1009, 1006
"""WebSocket codes with which connections are closed, and of a visitor who is gone."""

Place = tuple[str, int]
"""A host and its port."""

_FRAGMENT = re.compile("[0-9a-zA-Z_-]{0,128}")  # Streamlit logs the name of one that is gone
_LOOPBACK = ("localhost", "127.0.0.1", "0.0.0.0")  # origins that Streamlit allows, too
_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")

_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors {}"
)
"""Content security policy. Inline code is allowed because Streamlit and our components need it."""


class Guard:
    """ASGI middleware that limits what visitors can ask of a hosted copy.

    Args:
        app: The guarded application.
        frame_ancestors: Sites that may show the pages in a frame, as in the header of this name.
        meter: Measures the work of the thread that runs the guard.
    """

    def __init__(self, app: ASGIApp, frame_ancestors: str, meter: Meter | None = None) -> None:
        self._app, self._frame_ancestors = app, frame_ancestors
        self._meter = meter or Meter()
        self._addresses: dict[str, Address] = {}

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
            self._meter.seconds()  # no visitor is charged for files, which a class opens at once

        address = self._address_of(scope, headers)
        address.n_requests += 1
        try:
            async with address.answering:
                await app(scope, receive, send_with_headers)
        finally:
            address.n_requests -= 1

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a WebSocket; close it at once if it is foreign or its address has too many."""
        headers = Headers(scope=scope)
        address = self._address_of(scope, headers)
        if foreign := is_foreign(headers):
            page, here = page_and_host(headers)
            _CLOSED.add(page[0] == here[0])
        if foreign or address.n_connections >= MOST_CONNECTIONS:
            await receive()
            await send({"type": "websocket.close", "code": REFUSED})
            return
        read_little_at_once(receive, address)
        scope = with_host_of_origin(scope, headers)
        connection = _Connection(receive, send, address)
        address.n_connections += 1
        try:
            await self._app(scope, connection.receive, connection.send)
        finally:
            address.n_connections -= 1
            connection.close()

    def _address_of(self, scope: Scope, headers: Headers) -> Address:
        """Return the address of a visitor; forget the one idle longest if there are many."""
        name = visitor_address(headers.getlist, (scope.get("client") or (None,))[0])
        address = self._addresses.pop(name, None) or Address(name, self._meter)
        self._addresses[name] = address  # at the end, so that the first is idle longest
        if len(self._addresses) > MOST_ADDRESSES:
            del self._addresses[next((n for n, a in self._addresses.items() if a.is_idle), name)]
        return address


class _Connection:
    """One visitor's WebSocket between the server and Streamlit."""

    def __init__(self, receive: Receive, send: Send, address: Address) -> None:
        self._receive, self._send, self._address = receive, send, address
        self._closed = False
        self._waiting: deque[Judged] = deque()
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
        except OSError:  # the visitor is gone; Streamlit would log a traceback
            self._closed = True
        finally:
            self._written.set()
            self._address.charge()

    async def receive(self) -> Message:
        """Return the next message that may pass, or the end of the connection."""
        while True:
            self._address.charge()  # Streamlit has handled the last one
            await self._written.wait()  # a client that does not read may not request more
            if not self._waiting:
                await self._read()
            if self._waiting[0].message["type"] == "websocket.disconnect":
                return self._waiting[0].message
            while (rest := self._address.rest) > 0:
                await asyncio.sleep(rest)
            while self._waiting[0].draws and not self._closed and must_wait(self._address.name):
                await self._read(CROWDED_SECONDS)
            first = self._waiting.popleft()
            if self._closed:
                return {"type": "websocket.disconnect", "code": GONE}
            if first.draws:
                expect(self._address.name)
            if first.verdict == PASSES:  # or the end, which came meanwhile
                return first.message
            if first.verdict != DROPPED:
                self._closed = True
                await self._send({"type": "websocket.close", "code": first.verdict})
                return {"type": "websocket.disconnect", "code": first.verdict}

    async def _read(self, seconds: float | None = None) -> None:
        """Read one message, and wait so long for it, or without a limit.

        Messages are read although others wait, because answers to pings may come behind them, and
        uvicorn closes a connection that does not answer. Of the messages with which a fragment
        redraws itself, only the newest waits.
        """
        if sum(judged.n_bytes for judged in self._waiting) > MOST_AHEAD:
            await asyncio.sleep(CROWDED_SECONDS)
            return
        self._reading = self._reading or asyncio.ensure_future(self._receive())
        await asyncio.wait([self._reading], timeout=seconds)
        if self._reading.done():
            message, self._reading = self._reading.result(), None
            judged = judge(message)
            if message["type"] == "websocket.disconnect":
                self._waiting.clear()
            elif judged.redraws:
                kept = [older for older in self._waiting if older.redraws != judged.redraws]
                self._waiting = deque(kept)
            self._waiting.append(judged)

    def close(self) -> None:
        """End the reading, when nobody receives any more."""
        if self._reading is not None:
            self._reading.cancel()


@dataclass(frozen=True)
class Judged:
    """A message that was read, and what the guard does with it.

    Attributes:
        message: The message.
        verdict: `PASSES`, `DROPPED`, or the code with which the connection is closed.
        draws: Whether it draws a page or a fragment.
        redraws: Name of the fragment that redraws itself by this message; empty if none does.
    """

    message: Message
    verdict: int
    draws: bool = False
    redraws: str = ""

    @property
    def n_bytes(self) -> int:
        """Size of the message in bytes."""
        return len(self.message.get("bytes") or "")


def must_wait(address: str) -> bool:
    """Return whether an address draws enough for now: its threads wait, or it slows training."""
    return is_crowded(address) or (rest(address) > 0 and training_service().others_train(address))


def judge(message: Message) -> Judged:
    """Decide what the guard does with a message."""
    if message["type"] != "websocket.receive":
        return Judged(message, PASSES)
    data = message.get("bytes")
    if data is None:
        return Judged(message, NO_TEXT)
    if len(data) > MOST_BYTES:
        return Judged(message, TOO_LARGE)
    try:
        parsed = BackMsg.FromString(data)
    except DecodeError:
        return Judged(message, NOT_UNDERSTOOD)
    kind, rerun = parsed.WhichOneof("type"), parsed.rerun_script
    if len(rerun.widget_states.widgets) > MOST_STATES:
        return Judged(message, TOO_LARGE)
    if kind == "rerun_script" and _FRAGMENT.fullmatch(rerun.fragment_id):
        redraws = rerun.fragment_id if rerun.is_auto_rerun else ""
        return Judged(message, PASSES, draws=True, redraws=redraws)
    return Judged(message, PASSES if kind in OTHER_KINDS else DROPPED)


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


def is_foreign(headers: Headers) -> bool:
    """Return whether a request was made by a page of another site.

    Streamlit checks this, too, but it asks the network for its own address first, and the whole
    server waits up to 2 s for the answer.
    """
    if "origin" not in headers or not config.get_option("server.enableCORS"):
        return False
    page, here = page_and_host(headers)
    options = ("browser.serverAddress", "server.corsAllowedOrigins")
    server, allowed = (config.get_option(option) for option in options)
    names = {str(server).lower(), *_LOOPBACK, *(_host_and_port(url)[0] for url in allowed)}
    return not page[0] or (page != here and page[0] not in names)


def page_and_host(headers: Headers) -> tuple[Place, Place]:
    """Return host and port of the page that makes a request, and those to which the request goes.

    Names of hosts have no case, and a proxy may write the default port that a browser leaves out.
    """
    origin = headers.get("origin", "")
    port = {"http": 80, "https": 443}.get(origin.partition(":")[0], 0)
    return _host_and_port(origin, port), _host_and_port(f"//{headers.get('host', '')}", port)


def _host_and_port(address: str, port: int = 0) -> Place:
    """Return host and port of an address with a default port; no host if there is none."""
    try:
        parts = urlsplit(address)
        return parts.hostname or "", parts.port or port
    except ValueError:
        return "", 0


def with_host_of_origin(scope: Scope, headers: Headers) -> Scope:
    """Return a request of our own page with the host as its browser writes it.

    Streamlit compares the two as texts, and asks the network for its own address if they differ.
    """
    page, here = page_and_host(headers)
    if not page[0] or page != here:
        return scope
    host = (b"host", urlsplit(headers["origin"]).netloc.encode("latin-1"))
    return {**scope, "headers": [host, *(h for h in scope["headers"] if h[0] != b"host")]}


def _log_closed(same_host: bool, more: int) -> None:
    """Log closed connections of foreign pages without their names, which visitors may choose."""
    log("foreign connection closed", same_host=same_host, **({"more": more} if more else {}))


_CLOSED = Repetitions(_log_closed, in_a_timer)
"""Closed connections of foreign pages, of which a few are logged in a minute.

`same_host` says that only the port differs, which a proxy may have left out of `Host`."""


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
