"""One visitor's WebSocket on a hosted copy: which messages pass the guard, and when.

Streamlit trusts what browsers send. Only the kinds of message that our pages need pass, within
limits of size. A message that draws waits while its address has enough to draw, or rests.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from starlette.types import Message, Receive, Send
from streamlit.proto.BackMsg_pb2 import BackMsg

from attnkit.ui.server.metering import MOST_BYTES, Address
from attnkit.ui.server.turns import is_crowded

OTHER_KINDS = ("stop_script", "app_heartbeat")
"""Kinds of message besides `rerun_script` that our pages need; all others are dropped."""

MOST_STATES = 200
"""Widgets whose values one message may hold; our pages have at most fifty.

Streamlit makes objects of about a kilobyte of each."""

MOST_AHEAD = 2**15
"""Bytes of a connection's messages that wait, beyond which no more of them are read."""

_OF_MESSAGE = 1000
"""Bytes that any message takes in addition to its content, about."""

CROWDED_SECONDS = 0.1
"""Time between two looks at whether an address may draw again."""

PASSES, DROPPED = 1, 0
"""What the guard does with a message, if it does not close the connection."""

REFUSED, NOT_UNDERSTOOD, NO_TEXT, TOO_LARGE, GONE = 1008, 1002, 1003, 1009, 1006
"""WebSocket codes with which connections are closed, and of a visitor who is gone."""

_FRAGMENT = re.compile("[0-9a-zA-Z_-]{0,128}")  # Streamlit logs the name of one that is gone


@dataclass(frozen=True)
class JudgedMessage:
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
        except OSError:  # the visitor is gone; Streamlit would log a traceback
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
        n_bytes = sum(_OF_MESSAGE + len(w.message.get("bytes", b"")) for w in self._waiting)
        if n_bytes > MOST_AHEAD or (self._waiting and self._address.rest > 0):
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
    return JudgedMessage(message, PASSES if kind in OTHER_KINDS else DROPPED)
