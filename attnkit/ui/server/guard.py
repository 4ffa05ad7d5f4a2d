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
from asyncio import Transport
from functools import cache
from typing import Any
from urllib.parse import unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from attnkit.service.server import server_settings
from attnkit.ui.server.connection import REFUSED, Connection
from attnkit.ui.server.metering import Address, Meter, read_little_at_once
from attnkit.ui.server.visitor_address import visitor_address

MOST_CONNECTIONS = 250
"""Open connections of one address, at most."""

MOST_SOCKETS = 500
"""Sockets of one address that may be open, idle ones included; a browser opens up to seven."""

MOST_ADDRESSES = 4096
"""Addresses that are remembered, at most; those that have been idle longest are forgotten."""

OPEN_ROUTES = ("health", "host-config", "stream")
"""Routes of Streamlit's server below `_stcore` that our pages need; there are no others here."""

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
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._connect(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        is_owner_page = "owner" in unquote(scope["path"]).lower()  # in whatever spelling
        policy = _POLICY.format("'none'" if is_owner_page else self._frame_ancestors)
        forwarded = Headers(scope=scope).get("x-forwarded-proto")
        secure = "https" in (scope.get("scheme"), forwarded)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_headers(message, policy, secure=secure)
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
    headers = [
        (
            name,
            value.lower().removesuffix(b":80").removesuffix(b":443") if name == b"host" else value,
        )
        for name, value in scope["headers"]
    ]
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
    return not core or route.removeprefix("/") in OPEN_ROUTES


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
