"""Guard of a hosted copy: limits on what visitors send, and headers on the server's responses.

Every visitor holds one WebSocket, over which the browser sends messages of Streamlit's protocol
(`BackMsg`). `attnkit.ui.server.connection` says which of them pass, and when;
`attnkit.ui.server.metering` lets an address rest for the work that it costs the thread that reads
and sends the messages of all visitors.

The guard wraps the server as ASGI middleware, see `dashboard.py`; a copy that is not hosted has no
guard. What a proxy does better is left to the proxy in `docs/hosting.md`, such as deadlines for
headers.
"""

from __future__ import annotations

import threading
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config

from attnkit.service.foreign_logs import Repetitions
from attnkit.service.logs import log
from attnkit.service.server import server_settings
from attnkit.ui.server.connection import REFUSED, Connection
from attnkit.ui.server.metering import Address, Meter, read_little_at_once
from attnkit.ui.server.visitor_address import visitor_address

MOST_CONNECTIONS = 250
"""Open connections of one address, at most."""

MOST_ADDRESSES = 4096
"""Addresses that are remembered, at most; those that have been idle longest are forgotten."""

OPEN_ROUTES = ("health", "host-config", "stream")
"""Routes of Streamlit's server below `_stcore` that our pages need; there are no others here."""

Place = tuple[str, int]
"""A host and its port."""

_LOOPBACK = ("localhost", "127.0.0.1", "0.0.0.0")  # origins that Streamlit allows, too

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
        if scope["type"] not in ("websocket", "http"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        name = visitor_address(headers.getlist, (scope.get("client") or (None,))[0])
        address = self._addresses.pop(name, None) or Address(name, self._meter)
        self._addresses[name] = address  # at the end, so that the first is idle longest
        if len(self._addresses) > MOST_ADDRESSES:
            idle = (n for n, a in self._addresses.items() if not (a.n_connections or a.n_requests))
            del self._addresses[next(idle, name)]
        # Streamlit compares origins as texts, and asks the network for its own address if in doubt.
        others = [header for header in scope["headers"] if header[0] != b"origin"]
        guard = self._connect if scope["type"] == "websocket" else self._answer
        await guard({**scope, "headers": others}, receive, send, headers, address)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, headers: Headers, address: Address
    ) -> None:
        """Handle a request."""
        app = self._app if is_open(scope["path"]) else PlainTextResponse("Not Found", 404)
        is_owner_page = "owner" in unquote(scope["path"]).lower()  # in whatever spelling
        policy = _POLICY.format("'none'" if is_owner_page else self._frame_ancestors)
        secure = "https" in (scope.get("scheme"), headers.get("x-forwarded-proto"))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_headers(message, policy, secure=secure)
            await send(message)
            self._meter.seconds()  # no visitor is charged for files, which a class opens at once

        address.n_requests += 1
        try:
            async with address.answering:
                await app(scope, receive, send_with_headers)
        finally:
            address.n_requests -= 1

    async def _connect(
        self, scope: Scope, receive: Receive, send: Send, headers: Headers, address: Address
    ) -> None:
        """Handle a WebSocket; close it at once if it is foreign or its address has too many."""
        if foreign := is_foreign(headers):
            page, here = page_and_host(headers)
            _CLOSED.add(bool(page[0]) and page[0] == here[0])
        if foreign or address.n_connections >= MOST_CONNECTIONS or not is_open(scope["path"]):
            await receive()
            await send({"type": "websocket.close", "code": REFUSED})
            return
        read_little_at_once(receive, address)
        connection = Connection(receive, send, address)
        address.n_connections += 1
        try:
            await self._app(scope, connection.receive, connection.send)
        finally:
            address.n_connections -= 1
            connection.close()


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


def is_open(path: str) -> bool:
    """Return whether a path is one that our pages need; all files and names of pages are."""
    _, core, route = path.rpartition("_stcore")
    return not core or route.removeprefix("/") in OPEN_ROUTES


def is_foreign(headers: Headers) -> bool:
    """Return whether a request was made by a page of another site."""
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
        if "@" in parts.netloc:  # no browser writes a user's name there
            return "", 0
        return parts.hostname or "", parts.port or port
    except ValueError:
        return "", 0


def _log_closed(same_host: bool, more: int) -> None:
    """Log a closed connection of a foreign page without its name, which visitors may choose."""
    log("foreign connection closed", same_host=same_host, **({"more": more} if more else {}))


_CLOSED = Repetitions(_log_closed)
"""Closed connections of foreign pages, of which a few are logged in a minute.

`same_host` says that only the port differs, which a proxy may have left out of `Host`."""


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
