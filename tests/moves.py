"""The moves of an attacker of a hosted copy: each draws what it does, and ends at its deadline.

A move is one line of the table of attacks that this copy must bear. What it draws lies around what
once hurt other visitors.
"""

from __future__ import annotations

import resource
import select
import socket
import threading
import time
from contextlib import ExitStack, suppress

from attackers import (
    PAGES,
    answer,
    attacker,
    expensive_link,
    frame,
    message,
    rerun,
    with_states,
)
from forging import TYPED
from streamlit_tab import HOST
from websockets.frames import Opcode

MOVES = {}
"""Every move by its name."""

TRAINING = set()
"""Names of the moves that use the training process, which their address then shares."""


def move(act):
    """Enter a move into the table of all moves."""
    MOVES[act.__name__] = act
    return act


def training_move(act):
    """Enter a move that uses the training process."""
    TRAINING.add(act.__name__)
    return move(act)


# messages and pages


@move
def whole_pages(me):
    """Request whole pages on few or many connections, as fast as they go or a little slower."""
    pause, link = me.random.choice((0.0, 0.05, 0.26)), f"x={TYPED}"

    def act(one):
        with one.connection() as connection:
            while one.left:
                connection.send(rerun(page_name=one.random.choice(PAGES), query_string=link))
                one.counts["pages"] += 1
                time.sleep(pause)

    me.together(me.random.randint(4, 30), act)


@move
def one_page_each(me):
    """Open connections that request one page and go."""

    def act(one):
        with attacker(one.port, source=one.source) as connection:
            connection.send(rerun(page_name=one.random.choice(PAGES)))
            one.counts["pages"] += answer(connection, "script_finished", 5.0) is not None

    me.together(me.random.randint(4, 30), act)


@move
def deaf_readers(me):
    """Request pages and take no answers."""

    def act(one):
        with one.connection(deaf=True) as connection:
            while one.left:
                connection.send(rerun())
                one.counts["pages"] += 1
                time.sleep(0.3)

    me.together(me.random.randint(5, 30), act)


@move
def large_messages(me):
    """Send messages of up to a megabyte, some beyond the limit of one message."""
    n_bytes = me.random.choice((100_000, 250_000, 950_000))

    def act(one):
        with one.connection() as connection:
            while one.left:
                connection.send(with_states(n_bytes))
                one.counts["messages"] += 1
                time.sleep(0.05)

    me.together(me.random.randint(4, 16), act)


@move
def unfinished_messages(me):
    """Begin messages that never end, some of them of an allowed size."""
    length = me.random.choice((200_000, 10**6, 19 * 10**6))

    def act(one):
        with one.socket() as opened:
            opened.sendall(frame(Opcode.BINARY, bytes(length - 1000), length=length))
            one.counts["messages"] += 1
            opened.settimeout(one.left + 0.1)
            while one.left and opened.recv(2**16):
                pass

    me.together(me.random.randint(10, 40), act)


@move
def widget_states(me):
    """Send thousands of tiny states of widgets that nobody has in every message."""
    n_states = me.random.randint(8_000, 14_000)
    n_connections = me.random.randint(20, 80)

    def act(one):
        salt = f"{one.random.randrange(10**6):06d}"
        names = (f"{salt}{number}" for number in range(n_states))
        payload = rerun(widget_states={"widgets": [{"id": n, "bool_value": True} for n in names]})
        with one.connection() as connection:
            while one.left:
                connection.send(payload)
                one.counts["messages"] += 1
                time.sleep(0.5)

    me.together(n_connections, act)


@move
def expensive_links(me):
    """Open links that take long to read."""

    def act(one):
        with one.connection() as connection:
            while one.left:
                connection.send(rerun(query_string=expensive_link(one.random)))
                one.counts["links"] += 1
                one.sleep(one.random.uniform(0.1, 0.5))

    me.together(me.random.randint(2, 8), act)


@move
def no_messages(me):
    """Send text, also not UTF-8, bytes that are no message, and kinds that no page sends."""
    kinds = (
        frame(Opcode.TEXT, b"\xff\xfe" + TYPED.encode()),
        frame(Opcode.TEXT, TYPED.encode()),
        frame(Opcode.BINARY, b"\xff\xff\xff\xff"),
        frame(0x3, TYPED.encode()),
        frame(Opcode.CLOSE, b"\x00"),
        frame(Opcode.BINARY, message(clear_cache=True)),
        frame(Opcode.BINARY, message(load_git_info=True)),
        frame(Opcode.BINARY, rerun(fragment_id=f'{TYPED}\n{{"event": "owner signed in"}}')),
        b"\x00" * 64,
    )

    def act(one):
        with one.socket() as opened:
            for kind in one.random.choices(kinds, k=3):
                opened.sendall(kind)
                one.counts["messages"] += 1
            one.sleep(0.1)

    me.together(me.random.randint(2, 8), act)


@move
def forged_forwarding(me):
    """Invent an address for every connection, as behind a proxy of this machine.

    Visitors of such a proxy come from 127.0.0.1, so the attacker does, too.
    """
    me.source = HOST

    def act(one):
        address = ".".join(str(one.random.randint(1, 250)) for _ in range(4))
        invented = one.random.choice((address, f"{address}:{one.random.randint(1, 9999)}"))
        headers = [("X-Forwarded-For", invented), ("X-Real-IP", invented)]
        with one.connection(headers=headers) as connection:
            for _ in range(10):
                connection.send(rerun())
                one.counts["pages"] += 1
                one.sleep(0.1)

    me.together(me.random.randint(20, 60), act)


# frames and sockets


@move
def control_frames(me):
    """Send pings, pongs or empty continuation frames; some read no pongs."""
    kind = me.random.choice(("pings", "pings", "pongs", "continuations"))
    deaf = kind == "pings" and me.random.random() < 0.5
    payload = bytes(me.random.choice((0, 125)))
    opcode = {"pings": Opcode.PING, "pongs": Opcode.PONG, "continuations": Opcode.CONT}[kind]
    empty = kind == "continuations"
    block = frame(opcode, b"" if empty else payload, last=not empty) * 500
    me.counts[f"deaf {kind}" if deaf else kind] += 1

    def act(one):
        with one.socket() as opened:
            if empty:
                opened.sendall(frame(Opcode.BINARY, b"", last=False))
            opened.settimeout(max(1.0, one.left))
            if not deaf:
                threading.Thread(target=_drain, args=(opened,), daemon=True).start()
            while one.left:
                opened.sendall(block)
                one.counts["frames"] += 500

    me.together(me.random.randint(1, 4), act)


def _drain(opened):
    with suppress(OSError):
        while opened.recv(2**16):
            pass


@move
def idle_sockets(me):
    """Open more sockets than the server may open files; some send a header byte by byte."""
    n_sockets, slow = me.random.randint(1050, 1400), me.random.random() < 0.5
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        opened = {}
        while me.left:
            while len(opened) < n_sockets and me.left:
                try:
                    one = socket.create_connection((HOST, me.port), 5, (me.source, 0))
                except OSError:
                    me.counts["refused"] += 1
                    break
                stack.callback(one.close)
                one.setblocking(False)
                opened[one.fileno()] = one
                me.counts["opened"] += 1
                if slow:
                    _send(one, b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            me.sleep(1.0)
            poll = select.poll()
            for number, one in opened.items():
                poll.register(number, select.POLLIN)
                if slow:
                    _send(one, b"x")
            for number, _ in poll.poll(0):  # the server has closed it, or answered
                opened.pop(number).close()
                me.counts["closed"] += 1


def _send(opened, data):
    with suppress(OSError):
        opened.send(data)
