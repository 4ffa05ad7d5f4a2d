"""Attacks on a hosted copy at night, and what its other visitors notice of them."""

import json
import logging
import math
import multiprocessing
import os
import random
import resource
import socket
import statistics
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlencode

import numpy as np
import pytest
from crowd import hosted
from forging import TYPED, forged_run, forged_states, message, rerun
from random_links import EQUAL, HEAVY, draw_variant
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from visitor import HOST, WIDGETS, TimedOut, Visitor
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage
from websockets.frames import Opcode
from websockets.sync.client import connect

from attnkit.service.foreign_logs import MINUTE, MOST_LINES
from attnkit.ui.server.connection import NO_TEXT, NOT_UNDERSTOOD, TOO_LARGE

pytestmark = pytest.mark.server

ATTACKERS, VICTIM = [f"127.0.0.{number}" for number in (2, 3, 4)], "127.0.0.9"
"""Addresses of loopback; another proxy or browser of this machine has `HOST`."""

REFUSED = (OSError, InvalidHandshake, InvalidMessage, ConnectionClosed, EOFError, TimedOut)
"""Ends of an attacker's connection; `OSError` includes timeouts."""

PAGES = ("", *"questions capacity attention asymmetry surgery similarity atlas guide runs".split())

PATIENCE = 90.0
"""Seconds after which a page counts as not opened."""

CALM = 5.0
"""Seconds before an attack and after it in which the other visitors are measured, too."""

WARM = 6.0
"""Processor seconds after which the training process has set up everything."""

TRAINED = "v=1&n_seeds=4&steps=5000&n_train=16000&first_seed={}"
"""The link of the experiment that another visitor trains; new seeds follow when it ends."""

LARGE = "v=1&n_seeds=12&steps=5000&d_model=128&batch_size=512&n_train=200000&first_seed={}"
"""The link of an experiment near the limit of memory."""


# messages of attackers


def whole_pages(draw):
    """Yield messages that request whole pages."""
    while True:
        yield rerun(page_name=draw.choice(PAGES), query_string=f"x={TYPED}")


def large_messages(draw):
    """Yield messages of up to a megabyte, some beyond the limit of one message."""
    text = "x" * draw.choice((100_000, 250_000, 950_000))
    while True:
        yield rerun(widget_states={"widgets": [{"id": "large", "string_value": text}]})


def widget_states(draw):
    """Yield messages with thousands of tiny states of widgets that nobody has."""
    salt, n = draw.randrange(10**6), draw.randint(8_000, 14_000)
    states = [{"id": f"{salt:06d}{number}", "bool_value": True} for number in range(n)]
    payload = rerun(widget_states={"widgets": states})
    while True:
        yield payload


def forged_messages(draw):
    """Yield messages with forged values, and with pages, places and clocks that are odd."""
    while True:
        names = dict.fromkeys(("", TYPED, f"$$ID-{'0' * 32}-capacity_x"), ("", (TYPED,)))
        yield rerun(widget_states=forged_states(draw, names), **forged_run(draw))


def expensive_links(draw):
    """Yield messages with links that take long to read."""
    while True:
        sharing = ",".join(draw_variant(draw) for _ in range(12))
        fields = {"v": "1", "sharing": sharing, "equal": draw.choice(EQUAL), **HEAVY}
        yield rerun(query_string=urlencode(fields, safe=","))


def no_messages(draw):
    """Yield frames that are no message, and messages that no page sends."""
    yield draw.choice(
        (
            frame(Opcode.TEXT, b"\xff\xfe" + TYPED.encode()),
            frame(Opcode.TEXT, TYPED.encode()),
            frame(Opcode.BINARY, b"\xff\xff\xff\xff"),
            frame(0x3, TYPED.encode()),
            frame(Opcode.CLOSE, b"\x00"),
            frame(Opcode.BINARY, message(clear_cache=True)),
            frame(Opcode.BINARY, rerun(fragment_id=f'{TYPED}\n{{"event": "owner signed in"}}')),
            bytes(64),
        )
    )


def control_frames(draw):
    """Yield blocks of pings, pongs or empty continuation frames."""
    opcode = draw.choice((Opcode.PING, Opcode.PING, Opcode.PONG, Opcode.CONT))
    if opcode == Opcode.CONT:
        yield frame(Opcode.BINARY, b"", last=False)
    payload = b"" if opcode == Opcode.CONT else bytes(draw.choice((0, 125)))
    while True:
        yield frame(opcode, payload, last=opcode != Opcode.CONT) * 500


def unfinished_messages(draw):
    """Yield the beginning of a message that never ends, and nothing after it."""
    length = draw.choice((200_000, 10**6, 19 * 10**6))
    yield frame(Opcode.BINARY, bytes(length - 1000), length=length)


def frame(opcode, payload=b"", *, last=True, length=None):
    """Encode a frame of a client; it may announce another length than it has."""
    size = len(payload) if length is None else length
    long = bytes([0x80 | 127]) + size.to_bytes(8, "big")
    sizes = bytes([0x80 | size]) if size < 126 else long
    return bytes([0x80 * last | opcode]) + sizes + bytes(4) + payload


# attackers


@contextmanager
def attacker(port, source=ATTACKERS[0], origin="", headers=()):
    """Open one WebSocket of an attacker."""
    with connect(
        f"ws://{HOST}:{port}/_stcore/stream",
        source_address=(source, 0),
        origin=origin or f"http://{HOST}:{port}",
        subprotocols=["streamlit"],
        additional_headers=list(headers),
        proxy=None,
        max_size=2**25,
        open_timeout=10,
        close_timeout=0.2,
        ping_interval=None,
    ) as connection:
        yield connection


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


def flood(payloads, pause):
    """Return a move whose connections send messages or frames; some take no answers."""

    def move(port, source, draw, end):
        with attacker(port, source) as connection:
            reader = threading.Thread(target=drain, args=(connection,), daemon=True)
            if draw.random() < 0.7:  # else the connection's small queue fills
                reader.start()
            is_raw = payloads in (no_messages, control_frames, unfinished_messages)
            for payload in payloads(draw):
                (connection.socket.sendall if is_raw else connection.send)(payload)
                time.sleep(pause)
                if time.monotonic() > end:
                    return
            if reader.ident:  # until the server closes the connection
                reader.join(max(0.0, end - time.monotonic()))

    return move


def drain(connection):
    """Take all answers and forget them."""
    with suppress(*REFUSED):
        for _ in connection:
            pass


def invented_addresses(port, _, draw, end):
    """Invent an address, as behind a proxy of this machine, whose visitors have this address."""
    invented = [("X-Forwarded-For", f"192.0.2.{draw.randint(1, 250)}:{draw.randint(1, 9999)}")]
    with attacker(port, HOST, headers=invented) as connection:
        for _ in range(10):
            connection.send(next(whole_pages(draw)))
            time.sleep(0.1)


def idle_sockets(port, source, draw, end):
    """Open more sockets than the server may open files; some send a header byte by byte."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    n_sockets, is_slow = draw.randint(1050, 1400), draw.random() < 0.5
    with ExitStack() as stack:
        opened = []
        while time.monotonic() < end:
            while len(opened) < n_sockets and time.monotonic() < end:
                opened.append(stack.enter_context(socket.create_connection((HOST, port), 5)))
            for one in opened:
                with suppress(OSError):  # the server has closed it
                    one.send(b"G" * is_slow)
            time.sleep(1.0)


def looks_inside(port, source, draw, end):
    """Train something large, look inside it with ever new choices, or press Reset all the time."""
    link = LARGE.format(draw.randrange(900_000))
    with HastyVisitor(port, link, "", 30, source_address=(source, 0)) as lab:
        lab.press("train")
        if draw.random() < 0.5:
            while time.monotonic() < end:
                lab.hurry("reset")
                lab.watch(0.25)
        else:
            lab.watch(3.0, lambda: lab.progress() > 0)
            choices(port, source, draw, end, lab.link, PAGES[2:7])


def choices(port, source, draw, end, link="", pages=PAGES):
    """Open a page and make choices, of what its widgets offer."""
    with HastyVisitor(port, link, draw.choice(pages), 30, source_address=(source, 0)) as tab:
        while time.monotonic() < end:
            tab.choose(draw)


class HastyVisitor(Visitor):
    """A tab that acts faster than a person."""

    def hurry(self, key):
        """Press a button without waiting for the answer."""
        widget = self.find(key).id
        self._send_rerun(fragment=self._fragment_of(widget), trigger=widget)

    def choose(self, draw):
        """Draw a list and an option of it, and do not wait for the answer."""
        kind = draw.choice(("selectbox", "radio", "button_group", "multiselect"))
        if offered := [one for one in self.elements(kind) if not one.disabled and one.options]:
            widget = draw.choice(offered)
            option = getattr(found := draw.choice(widget.options), "content", found)
            value = option if kind in ("selectbox", "radio") else [option]
            self._states[widget.id] = (WIDGETS[kind], value)
            self._send_rerun(fragment=self._fragment_of(widget.id))
        self.watch(0.2)


MOVES = {
    "whole_pages": (30, flood(whole_pages, 0.05)),
    "large_messages": (16, flood(large_messages, 0.05)),
    "widget_states": (50, flood(widget_states, 0.5)),
    "forged_messages": (6, flood(forged_messages, 0.1)),
    "expensive_links": (8, flood(expensive_links, 0.3)),
    "no_messages": (8, flood(no_messages, 0.03)),
    "control_frames": (4, flood(control_frames, 0.0)),
    "unfinished_messages": (40, flood(unfinished_messages, 0.1)),
    "invented_addresses": (40, invented_addresses),
    "idle_sockets": (1, idle_sockets),
    "choices": (20, choices),
    "looks_inside": (4, looks_inside),
}
"""Every move by its name, with the largest number of its connections."""


def act(port, seconds, source, seed, names):
    """Make the moves of one attacker's process for so many seconds; return how many were made."""
    os.nice(19)  # other visitors share the processor with the server, not with attackers
    logging.disable()
    draw, end, n_made = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        n, move = MOVES[draw.choice(names)]
        until = min(end, time.monotonic() + draw.uniform(3, 8)) if len(names) > 1 else end
        draws = [random.Random(draw.random()) for _ in range(draw.randint(1 + n // 4, n))]

        def go_on(draw, move=move, until=until):
            n_made = 0
            while time.monotonic() < until:
                with suppress(*REFUSED, KeyError, ValueError):  # what a page has not drawn yet
                    move(port, source, draw, until)
                    n_made += 1
                time.sleep(0.02)
            return n_made

        with ThreadPoolExecutor(len(draws)) as pool:
            n_made += sum(pool.map(go_on, draws))
    return n_made


# other visitors


class Victims:
    """Visitors in threads of this process: one trains all the time, one opens pages and presses.

    Attributes:
        steps: Moments and steps trained until then, over all experiments.
        waits: When an answer was requested, and when it was there; infinity for never.
        losses: What must never happen, in words.
    """

    def __init__(self, port):
        self._port, self._over = port, threading.Event()
        self.steps, self.waits, self.losses = [(time.monotonic(), 0)], [], []
        acts = (self._train, self._open_pages)
        self._threads = [threading.Thread(target=self._keep_on, args=(act,)) for act in acts]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def wait_for_steps(self, server):
        """Wait until the training process has set up everything and only trains."""
        deadline = time.monotonic() + PATIENCE
        while len(self.steps) < 3 or server.seconds()[1] < WARM:
            assert time.monotonic() < deadline, f"no step was trained: {self.losses}"
            time.sleep(0.1)

    def figures(self, server, began, seconds):
        """Return steps per processor second of training, and the middle wait, since a moment."""
        end, (when, steps) = time.monotonic(), zip(*self.steps, strict=True)
        trained = np.diff(np.interp([began, end], when, steps))[0]
        waits = [min(b, end) - a for a, b in list(self.waits) if b > began]
        return trained / (server.seconds()[1] - seconds[1]), statistics.median(waits)

    def _keep_on(self, act):
        while not self._over.is_set():
            try:
                act()
            except (*REFUSED, KeyError, ValueError) as error:
                if not self._over.is_set():
                    self.losses.append(f"{act.__name__}: {type(error).__name__} {error}"[:200])
                    return

    @contextmanager
    def _wait(self):
        wait = [time.monotonic(), math.inf]
        self.waits.append(wait)
        yield
        wait[1] = time.monotonic()

    def _train(self):
        link, before, at = TRAINED.format(random.randrange(900_000)), 0, 0
        with Visitor(self._port, link, "", PATIENCE, source_address=(VICTIM, 0)) as tab:
            tab.press("train")
            while not self._over.is_set():
                tab.watch(0.2)
                step = tab.progress()
                if 0 < step < at or tab.says("Training failed") or tab.says("Stopped"):
                    self.losses.append(f"step {step} after {at}: {tab.texts()[:8]}")
                    return
                if step > at:
                    at = step
                    self.steps.append((time.monotonic(), before + at))
                if tab.says("Finished"):
                    before, at = before + at, 0
                    tab.press("new_seeds")
            self.losses += tab.exceptions

    def _open_pages(self):
        with ExitStack() as stack:
            with self._wait():
                page = random.choice(("", "guide", "attention", "questions"))
                visit = Visitor(self._port, "", page, PATIENCE, source_address=(VICTIM, 0))
                tab = stack.enter_context(visit)
            for width in (5.0, 7.0) if page == "" else ():
                with self._wait():
                    tab.set("set_d_head", width)
            self.losses += tab.exceptions
        self._over.wait(0.3)


# the attacks


def check_attack(attackers, seconds):
    """Attack a copy, and compare what other visitors notice with the calm before.

    Args:
        attackers: Address, seed and names of the moves of every attacker's process.
        seconds: Length of the attack.
    """
    began, grown = time.monotonic(), [0.0, 0.0]
    context = multiprocessing.get_context("spawn")
    with (
        hosted() as server,
        Victims(server.port) as victims,
        ProcessPoolExecutor(len(attackers), context) as pool,
    ):

        def measure():
            moment = time.monotonic(), server.seconds()
            time.sleep(CALM)
            return victims.figures(server, *moment)

        for one in [pool.submit(time.sleep, 1.0) for _ in attackers]:  # all processes start
            one.result()
        victims.wait_for_steps(server)
        calm, before, processes = measure(), server.megabytes(), server.all()
        n_characters, moment = len(server.log()), (time.monotonic(), server.seconds())
        under_way = [pool.submit(act, server.port, seconds, *one) for one in attackers]
        while not all(one.done() for one in under_way):
            grown = [
                max(a, b - c) for a, b, c in zip(grown, server.megabytes(), before, strict=True)
            ]
            time.sleep(0.3)
        attacked, after = victims.figures(server, *moment), measure()
        assert server.all() == processes
        text = server.log()
    figures = {"calm": calm, "attacked": attacked, "after": after, "grown": grown}
    assert all(one.result() for one in under_way), figures
    assert victims.losses == [], figures
    assert grown[0] <= 100, figures
    assert grown[1] <= 1200, figures  # all that may train at once
    # The training process shares its time fairly between addresses; pages come as before.
    n_training = {source for source, _, names in attackers if "looks_inside" in names}
    assert (1 + len(n_training)) * attacked[0] >= 0.5 * calm[0], figures
    assert attacked[1] <= 10 * calm[1], figures
    assert after[1] <= 3 * calm[1], figures
    check_log(text, (time.monotonic() - began) / MINUTE)
    assert len(text) - n_characters <= 20_000 * max(1.0, seconds / 15), figures


def check_log(text, minutes):
    """Check that every line of a log is ours, errors are few, and no text of attackers is there."""
    assert TYPED not in text
    assert "192.0.2" not in text
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if '"server started"' in line)
    events = [json.loads(line) for line in lines[first:]]
    unexpected = [event for event in events if "unexpected" in event["event"]]
    assert not [event for event in unexpected if event["module"].startswith("attnkit")]
    places = {(event["module"], event["line"]) for event in unexpected}
    assert len(unexpected) <= len(places) * (MOST_LINES + 1) * (1 + minutes), unexpected


@pytest.mark.long(seconds=30)
@pytest.mark.parametrize("name", MOVES)
def test_an_attack_costs_other_visitors_no_work(name, seed):
    """Training and pages of another visitor go on, and memory and log hardly grow."""
    check_attack([(ATTACKERS[0], f"{seed} {name}", [name])], seconds=10.0)


@pytest.mark.long(seconds=100)
def test_a_mixture_of_attacks_costs_other_visitors_no_work(seed, minutes):
    """Moves change at up to three addresses, with up to two attackers each."""
    draw = random.Random(seed)
    sources = [one for one in ATTACKERS[: draw.randint(1, 3)] for _ in range(draw.randint(1, 2))]
    planned = [(one, f"{seed} {n}", sorted(MOVES)) for n, one in enumerate(sources)]
    check_attack(planned, seconds=60 * minutes)


@pytest.mark.long(seconds=10)
def test_messages_of_no_page_cost_one_connection_at_most_and_no_line_of_log():
    """Nobody ends a process or reads a file; a page of another site opens no connection."""
    with hosted() as server:
        with Visitor(server.port, page="guide"):
            pass
        before = server.log()
        with attacker(server.port) as connection:
            connection.send(rerun())
            assert answer(connection, "script_finished", 20) is not None
            for _ in range(3):
                connection.send(message(clear_cache=True))
            files = {"request_id": "a", "file_names": ["b"] * 100}
            connection.send(message(file_urls_request=files))
            connection.send(rerun(fragment_id='a\n{"event": "owner signed in"}'))
            assert answer(connection, "file_urls_response", 1) is None
        large = rerun(widget_states={"widgets": [{"id": "a", "string_value": "x" * 950_000}]})
        for sent, code in (
            (frame(Opcode.BINARY, b"\xff\xff\xff\xff"), NOT_UNDERSTOOD),
            (frame(Opcode.TEXT, b"text"), NO_TEXT),
            (frame(Opcode.BINARY, large), TOO_LARGE),
            (frame(Opcode.BINARY, length=19 * 10**6), TOO_LARGE),
        ):
            with attacker(server.port) as connection:
                connection.socket.sendall(sent)
                assert answer(connection, "close") == code
        assert server.log() == before
        with pytest.raises(REFUSED), attacker(server.port, origin="http://foreign.invalid"):
            pass
        assert "foreign.invalid" not in server.log()
