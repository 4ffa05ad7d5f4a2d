"""The moves of an attacker of a hosted copy: each draws what it does, and ends at its deadline.

A move is one line of the table of attacks that this copy must bear. What it draws lies around what
once hurt other visitors.
"""

from __future__ import annotations

import json
import resource
import select
import socket
import threading
import time
from contextlib import ExitStack, suppress

from attackers import (
    PAGES,
    REFUSED,
    TYPED,
    answer,
    attacker,
    expensive_link,
    frame,
    large_experiment,
    link_of,
    message,
    rerun,
    with_states,
)
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit_tab import HOST
from visitor import Visitor
from websockets.frames import Opcode

MOVES = {}
"""Every move by its name."""

TRAINING = set()
"""Names of the moves that use the training process, which their address then shares."""

OWNER_SECRET = "secret of a test copy"
"""The secret of the owner's page, which only the move `owner_buttons` knows."""


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
def reconnects(me):
    """Connect, request a page and go, with the same session again or with a new one."""
    with_session = me.random.random() < 0.7

    def act(one):
        session = ""
        while one.left:
            with attacker(one.port, source=one.source, session=session) as connection:
                connection.send(rerun(page_name=one.random.choice(PAGES)))
                one.counts["opened"] += 1
                begun = answer(connection, "new_session", 5.0)
                if begun is not None and with_session:
                    session = begun.new_session.initialize.session_id
                if one.random.random() < 0.5:
                    answer(connection, "script_finished", 5.0)

    me.together(me.random.randint(4, 20), act)


@training_move
def forged_values(me):
    """Forge the values of a page's widgets, its context and its address; also press buttons."""

    def act(one):
        with one.tab(page=one.random.choice(PAGES)) as tab:
            widgets = [*tab.widgets(), "", TYPED, f"$$ID-{'0' * 32}-capacity_x"]
            for _ in range(20):
                if not one.left:
                    return
                with suppress(AssertionError):  # a page that does not answer in time
                    tab.send(_forged(one.random, widgets))
                    one.counts["messages"] += 1
                    tab.watch(0.1)

    me.together(me.random.randint(2, 6), act)


_VALUES = (
    {"string_value": TYPED},
    {"string_value": TYPED * 1000},
    {"double_value": float("nan")},
    {"double_value": 1e308},
    {"int_value": 2**62},
    {"bool_value": True},
    {"json_value": f'{{"a": "{TYPED}"'},
    {"json_value": json.dumps({"chosen": [TYPED, 1, None, -1], "picked": TYPED})},
    {"json_trigger_value": f'{{"event": "picked", "value": "{TYPED}"}}'},
    {"bytes_value": b"\xff" * 100},
    {"double_array_value": {"data": [float("inf"), -1.0]}},
    {"int_array_value": {"data": [10**9, -1]}},
    {"string_array_value": {"data": [TYPED, ""]}},
    {"string_trigger_value": {"data": TYPED}},
    {"trigger_value": True},
)


def _forged(drawn, widgets):
    names = drawn.sample(widgets, min(len(widgets), drawn.randint(1, 8)))
    states = [{"id": name, **drawn.choice(_VALUES)} for name in names]
    url = drawn.choice(("http://[", f"http://{TYPED}:99999999/", "\x00", "", "x" * 10_000))
    context = {"timezone": drawn.choice(("", TYPED, "../etc")), "locale": TYPED, "url": url}
    if drawn.random() < 0.5:
        context = {}
    fields = {"widget_states": {"widgets": states}, "context_info": context}
    if drawn.random() < 0.3:
        fields["query_string"] = drawn.choice(("%ff=%00", "v=\ud7ff", "&" * 5000, f"x={TYPED}"))
    if drawn.random() < 0.2:
        fields["page_script_hash"] = TYPED
    return rerun(**fields)


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


# the training process


@training_move
def resets(me):
    """Press Reset over and over on a large experiment, then leave."""
    link, n_presses = link_of(large_experiment(me.random)), me.random.randint(30, 80)
    me.counts["resets"] += 0
    with suppress(*REFUSED), me.tab(link) as tab:
        tab.press("train")
        for _ in range(n_presses):
            if not me.left:
                return
            tab.hurry("reset")
            me.counts["resets"] += 1
            tab.watch(0.25)


@training_move
def large_experiments(me):
    """Train experiments near the limit of memory, a tab each."""

    def act(one):
        sizes = one.random.choice(((250, 400), (400, 700), (700, 1000)))
        experiment = large_experiment(one.random, *sizes)
        with one.tab(link_of(experiment)) as tab:
            tab.press("train")
            tab.watch(min(one.left, one.random.uniform(5, 20)))
            said = " ".join(tab.texts())
            one.counts["begun"] += tab.progress() > 0
            one.counts["not accepted"] += "not accepted" in said
            one.counts["failed"] += "Training failed" in said

    me.together(me.random.randint(1, 4), act)


@training_move
def looks_inside(me):
    """Look inside one large run from many tabs, with new choices all the time."""
    experiment = large_experiment(me.random, 100, 900)
    pause = me.random.choice((None, 0.2))
    with suppress(*REFUSED), me.tab(link_of(experiment)) as lab:
        lab.press("train")
        lab.watch(min(3.0, me.left), lambda: lab.progress() > 0)

        def act(one):
            page = one.random.choice(("attention", "asymmetry", "similarity", "surgery", "lab"))
            with one.tab(lab.link or link_of(experiment), page) as tab:
                while one.left:
                    tab.choose(one.random, pause)
                    one.counts["choices"] += 1

        watching = threading.Thread(target=lambda: lab.watch(me.left), daemon=True)
        watching.start()
        me.together(me.random.randint(4, 8), act)
        watching.join()


@move
def new_choices(me):
    """Make ever new choices on Atlas and other pages, of what their widgets offer."""
    pages = ("atlas", "atlas", "atlas", "capacity", "questions", "runs", "variants")
    pause = me.random.choice((None, 0.3))

    def act(one):
        page = one.random.choice(pages)
        with one.tab(page=page) as tab:
            while one.left:
                tab.choose(one.random, pause)
                one.counts[f"choices on {page}"] += 1

    me.together(me.random.randint(10, 30), act)


@move
def owner_buttons(me):
    """Press the owner's buttons in a tab that has signed out, to stop the jobs of others."""
    with suppress(*REFUSED, StopIteration), OwnerTab(me.port, "", "owner", 30, me.source) as tab:
        tab.press_again(me)


class OwnerTab(Visitor):
    """A tab that signs in, chooses somebody's jobs, signs out, and presses the button again."""

    def press_again(self, me):
        """Stop the jobs of an address of others, until the attacker's deadline."""
        self._states[self.find("owner_secret").id] = ("string_value", OWNER_SECRET)
        self.press("owner_sign_in")
        self.wait_until_idle()
        list_of_jobs, button = self.find("owner_address"), self.find("owner_address_stop").id
        others = [text for text in list_of_jobs.options if not text.startswith(me.source)]
        if others:
            states = [
                {"id": list_of_jobs.id, "string_value": others[0]},
                {"id": button, "trigger_value": True},
            ]
            self.press("owner_sign_out")
            fragments = ["", *{node.fragment for node in self._nodes.values()}]
            payload = BackMsg(rerun_script={"widget_states": {"widgets": states}})
            while me.left:
                payload.rerun_script.page_script_hash = self._page_hash
                payload.rerun_script.fragment_id = me.random.choice(fragments)
                self._socket.send(payload.SerializeToString())
                me.counts["presses"] += 1
                self.watch(0.3)
