"""What addresses cost the thread that serves all visitors: frames before any message is whole."""

from unittest.mock import Mock

import pytest

from attnkit.ui.server import metering
from attnkit.ui.server.metering import Address, Meter, read_little_at_once


class Socket:
    """A WebSocket of uvicorn, whose frames cost a tenth of a second each."""

    def __init__(self):
        self.conn = Mock(max_message_size=10**9)
        self.transport = self
        self.got, self.reading, self.read_paused, self.unread, self.worked = [], True, False, 0, 0.0

    async def receive(self):
        """Return the next message, as the guard sees it."""

    def data_received(self, data):
        """Handle what was read."""
        self.got.append(data)
        self.worked += 0.1

    def pause_reading(self):
        """Read no more."""
        self.reading = False

    def resume_reading(self):
        """Read again."""
        self.reading = True

    def get_write_buffer_size(self):
        """Return the bytes that the visitor has not read."""
        return self.unread

    def is_closing(self):
        """Return whether it is being closed."""
        return False


def test_frames_are_charged_before_any_message_is_whole(monkeypatch):
    """Pings and empty frames reach no application; who does not read the answers waits, too."""
    now, later = [0.0], []
    monkeypatch.setattr(
        metering.asyncio,
        "get_running_loop",
        lambda: Mock(call_later=lambda *call: later.append(call)),
    )
    socket = Socket()
    address = Address("198.51.100.7", Meter(lambda: now[0], lambda: socket.worked))
    read_little_at_once(socket.receive, address)
    assert socket.conn.max_message_size == metering.MOST_BYTES
    assert socket.max_size == metering.READ_AT_ONCE
    pieces = [bytes([number]) for number in range(5)]
    for piece in pieces[:3]:  # the last one comes although the guard has paused
        socket.data_received(piece)
    assert (socket.got, socket.reading) == (pieces[:1], False)
    while later:
        seconds, go_on = later.pop(0)
        assert seconds == pytest.approx(0.1 * metering.REST)
        now[0] += seconds + 1e-6
        go_on()
    assert (socket.got, socket.reading) == (pieces[:3], True)
    now[0] += 10.0
    socket.unread = metering.MOST_UNREAD + 1
    socket.data_received(pieces[3])
    assert (socket.got, socket.reading) == (pieces[:3], False)
    socket.unread = 0
    later.pop()[1]()
    assert (socket.got, socket.reading) == (pieces[:4], True)
