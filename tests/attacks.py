"""Attackers of a hosted copy, over loopback: what they send, and attacks of some seconds."""

import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from visitor import HOST
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage
from websockets.frames import Opcode
from websockets.sync.client import connect

FOREIGN = "127.0.0.2"
"""Another address of loopback, from which attackers come. Nothing here leaves loopback."""

REFUSED = (OSError, InvalidHandshake, InvalidMessage, ConnectionClosed, EOFError, TimeoutError)


@contextmanager
def attacker(port, origin=""):
    """Open one WebSocket of an attacker."""
    with connect(
        f"ws://{HOST}:{port}/_stcore/stream",
        sock=socket.create_connection((HOST, port), 10, source_address=(FOREIGN, 0)),
        origin=origin or f"http://{HOST}:{port}",
        subprotocols=["streamlit"],
        proxy=None,
        max_size=2**25,
        open_timeout=10,
        close_timeout=0.2,
        ping_interval=None,
    ) as connection:
        yield connection


def message(**fields):
    """Encode a message of the given kind, such as `clear_cache=True`."""
    return BackMsg(**fields).SerializeToString()


def rerun(**fields):
    """Encode a message that draws a page."""
    return message(rerun_script={"widget_states": {}, **fields})


def with_states(n_bytes):
    """Encode a message that draws a page, with the state of a widget that nobody has."""
    state = {"id": "large", "string_value": "x" * n_bytes}
    return rerun(widget_states={"widgets": [state]})


UNFINISHED = bytes([0x80 | Opcode.BINARY, 0x80 | 127]) + (19 * 10**6).to_bytes(8, "big") + bytes(4)
"""The beginning of a frame that says how long the message will be."""


def answer(connection, kind, seconds=5.0):
    """Return the next message of a kind; the code of a close, for "close"; None if none comes."""
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            payload = connection.recv(timeout=deadline - time.monotonic(), decode=False)
            found = ForwardMsg.FromString(payload)
            if found.WhichOneof("type") == kind:
                return found
    except ConnectionClosed as closed:
        if kind == "close":
            return closed.rcvd.code if closed.rcvd else 1006
    except TimeoutError:
        pass
    return None


# attacks: each misuses a connection until a deadline


def send(payload, pause=0.0, *, deaf=False, most=10**6):
    """Return an attack that sends a message over and over; a deaf one takes no answers."""

    def act(connection, deadline):
        if not deaf:
            threading.Thread(target=drain, args=(connection,), daemon=True).start()
        for _ in range(most):
            if time.monotonic() > deadline:
                return
            connection.send(payload)
            time.sleep(pause)

    return act


def drain(connection):
    """Take all answers and forget them."""
    with suppress(*REFUSED):
        for _ in connection:
            pass


def unfinished(connection, deadline):
    """Send a message of 19 MB that never ends."""
    connection.socket.settimeout(10)
    connection.socket.sendall(UNFINISHED)
    for _ in range(18):
        connection.socket.sendall(bytes(10**6))
    while time.monotonic() < deadline and connection.state.name == "OPEN":
        time.sleep(0.1)


ATTACKS = {
    "a flood of whole pages": (4, send(rerun())),
    "pages within the limit of a connection": (30, send(rerun(), 0.26)),
    "connections that come for one page": (8, send(rerun(), most=1)),
    "no answers taken": (10, send(rerun(), 0.3, deaf=True)),
    "large messages": (8, send(with_states(950_000), 0.05)),
    "unfinished messages": (20, unfinished),
}
"""How many connections at once, and what each does."""


def attack(name, port, seconds):
    """Misuse connections, so many at once; open another one when one is closed; count both."""
    n_at_once, act = ATTACKS[name]
    counts, deadline = Counter(), time.monotonic() + seconds

    def go_on(_):
        while time.monotonic() < deadline:
            try:
                with attacker(port) as connection:
                    counts["opened"] += 1
                    act(connection, deadline)
            except REFUSED:
                counts["refused or closed"] += 1

    with ThreadPoolExecutor(n_at_once) as pool:
        list(pool.map(go_on, range(n_at_once)))
    return counts
