"""Work that each address causes for the thread that serves all visitors, and its rests.

The thread reads and sends all messages. The processor time that an address costs it is measured,
and the address rests for twice as long before more is read from it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from starlette.types import Receive

MOST_BYTES = 2**18
"""Size of one message in bytes, at most; those of our pages have some kilobytes."""

REST = 2.0
"""Seconds for which an address rests, for each second that its frames and messages have cost."""

READ_AT_ONCE = 2**13
"""Bytes that are read at once, so that empty frames in them cost about as much as one message."""

MOST_UNREAD = 2**17
"""Unread bytes of a visitor beyond which nothing more is read from this visitor."""

UNREAD_SECONDS = 0.25
"""Seconds between two checks whether the visitor has read them."""


class Meter:
    """Measures the work of the thread that serves all visitors.

    Args:
        clock: Returns seconds that never decrease.
        work: Returns the processor seconds of the thread.
    """

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
        name: The address.
        meter: Measures the work for all addresses.

    Attributes:
        n_connections: Number of open connections.
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

    Args:
        receive: The function that a server passes to its application; uvicorn's is a method.
        address: The address of the visitor.
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
            wait = UNREAD_SECONDS if unread else address.rest
            if wait > 0:
                transport.pause_reading()
                asyncio.get_running_loop().call_later(wait, handle_pieces)
                return
            handle(pieces[0])
            pieces.popleft()
            address.charge()
        pieces.clear()
        if not protocol.read_paused:
            transport.resume_reading()

    protocol.data_received = receive_data
