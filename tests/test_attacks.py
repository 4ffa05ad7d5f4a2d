"""Attacks on a hosted copy at night, and what its other visitors notice of them."""

import json
import logging
import multiprocessing
import os
import random
import resource
import socket
import statistics
import struct
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlencode

import numpy as np
import pytest
from crowd import hosted
from forging import TYPED, forged_run, forged_states, message, rerun
from random_links import HEAVY, draw_variant
from visitor import HOST, TimedOut, Visitor, user_key
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage
from websockets.frames import Opcode
from websockets.sync.client import connect

from attnkit.service.foreign_logs import MINUTE, MOST_LINES

pytestmark = pytest.mark.server

ATTACKERS, VICTIM = [f"127.0.0.{number}" for number in (2, 3, 4)], "127.0.0.9"
"""Addresses of loopback; another proxy or browser of this machine has `HOST`."""

REFUSED = (OSError, InvalidHandshake, InvalidMessage, ConnectionClosed, EOFError, TimedOut)
"""Ends of an attacker's connection; `OSError` includes timeouts."""

PAGES = ("", *"questions capacity attention asymmetry surgery similarity atlas guide runs".split())

ELEMENT = f"$$ID-{'0' * 32}-"
"""Beginning of the id of an element that no page has."""

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
        yield rerun(widget_states={"widgets": [{"id": f"{ELEMENT}large", "string_value": text}]})


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
        names = dict.fromkeys((f"{ELEMENT}{TYPED}", f"{ELEMENT}capacity_x"), ("", (TYPED,)))
        yield rerun(widget_states=forged_states(draw, names), **forged_run(draw))


def expensive_links(draw):
    """Yield messages with links that take long to read."""
    while True:
        sharing = ",".join(draw_variant(draw) for _ in range(12))
        fields = {"v": "1", "sharing": sharing, "equal": "parameters", **HEAVY}
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
def attacker(port, source, headers=()):
    """Open one WebSocket of an attacker."""
    with connect(
        f"ws://{HOST}:{port}/_stcore/stream",
        source_address=(source, 0),
        origin=f"http://{HOST}:{port}",
        subprotocols=["streamlit"],
        additional_headers=list(headers),
        proxy=None,
        max_size=2**25,
        open_timeout=10,
        close_timeout=0.2,
        ping_interval=None,
    ) as connection:
        # A server that reads no more must not hold the attacker beyond its deadline.
        seconds = struct.pack("ll", 2, 0)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
        yield connection


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


def choices(port, source, draw, end):
    """Open a page and make ever new choices, of what its lists offer."""
    with Visitor(port, "", draw.choice(PAGES), 30, source_address=(source, 0)) as tab:
        while time.monotonic() < end:
            kind = draw.choice(("selectbox", "radio", "button_group"))
            if lists := [one for one in tab.elements(kind) if one.options and not one.disabled]:
                chosen = draw.choice(lists)
                option = getattr(found := draw.choice(chosen.options), "content", found)
                tab.set(user_key(chosen.id), [option] if kind == "button_group" else option)
            tab.watch(0.1)


def looks_inside(port, source, draw, end):
    """Train something large, and look inside it or press Reset all the time."""
    given = {"patience": 30, "source_address": (source, 0)}
    with Visitor(port, LARGE.format(draw.randrange(900_000)), **given) as lab:
        lab.press("train")
        while time.monotonic() < end:
            if draw.random() < 0.5:
                lab.press("reset")
                lab.press("train")
            else:
                with Visitor(port, lab.link, draw.choice(PAGES[2:7]), **given) as tab:
                    tab.watch(1.0)


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
    os.nice(19)  # visitors share the processor with the server, not with attackers
    logging.disable()
    draw, end, n_made = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        n, move = MOVES[draw.choice(names)]
        until = min(end, time.monotonic() + draw.uniform(3, 8)) if len(names) > 1 else end
        draws = [random.Random(draw.random()) for _ in range(draw.randint(1 + n // 4, n))]

        def go_on(draw, move=move, until=until):
            n_made = 0
            while time.monotonic() < until:
                n_made += 1
                with suppress(*REFUSED, KeyError, ValueError):  # what a page has not drawn yet
                    move(port, source, draw, until)
                time.sleep(0.02)
            return n_made

        with ThreadPoolExecutor(len(draws)) as pool:
            n_made += sum(pool.map(go_on, draws))
    return n_made


# other visitors


class Trainer(threading.Thread):
    """A visitor who trains one experiment after the other in one tab, inside a `with` statement.

    Attributes:
        steps: Moments and steps trained until then, over all experiments.
        losses: What must never happen, in words.
    """

    def __init__(self, port):
        super().__init__(daemon=True)
        self._port, self._over = port, threading.Event()
        self.steps, self.losses = [(time.monotonic(), 0)], []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()

    def run(self):
        """Train until the visit is over; note every new step, and whatever goes wrong."""
        link, before, at = TRAINED.format(random.randrange(900_000)), 0, 0
        try:
            with Visitor(self._port, link, "", PATIENCE, source_address=(VICTIM, 0)) as tab:
                tab.press("train")
                while not self._over.is_set():
                    tab.watch(0.2)
                    step = tab.progress()
                    assert step == 0 or step >= at, f"step {step} after {at}"
                    assert not any(map(tab.says, ("Training failed", "Stopped"))), tab.texts()
                    if step > at:
                        at = step
                        self.steps.append((time.monotonic(), before + at))
                    if tab.says("Finished"):
                        before, at = before + at, 0
                        tab.press("new_seeds")
                self.losses += tab.exceptions
        except (*REFUSED, AssertionError, KeyError, ValueError) as error:
            self.losses.append(f"{type(error).__name__}: {error}"[:300])


def notice(server, trainer, is_over):
    """Open pages as another visitor until something is over, and return what visitors notice.

    Returns:
        Steps per processor second of the training process; seconds until each page was there; MB by
        which the server and its training process have grown at most.
    """
    began, seconds, before = time.monotonic(), server.seconds(), server.megabytes()
    waits, grown = [], np.zeros(2)
    while not is_over() or not waits:
        asked = time.monotonic()
        with Visitor(server.port, "", "guide", PATIENCE, source_address=(VICTIM, 0)) as tab:
            waits.append(time.monotonic() - asked)
            assert tab.exceptions == []
        page = random.choice(("", "attention", "questions"))
        with Visitor(server.port, "", page, PATIENCE, source_address=(VICTIM, 0)) as tab:
            if page == "":
                tab.set("set_d_head", 5.0)
            assert tab.exceptions == []
        grown = np.maximum(grown, np.subtract(server.megabytes(), before))
        time.sleep(0.2)
    when, steps = zip(*trainer.steps, strict=True)
    trained = np.diff(np.interp([began, time.monotonic()], when, steps))[0]
    return trained / (server.seconds()[1] - seconds[1]), waits, grown


def check_attack(attackers, seconds):
    """Attack a copy, and compare what other visitors notice with the calm before.

    Args:
        attackers: Address, seed and names of the moves of every attacker's process.
        seconds: Length of the attack.
    """
    began, context = time.monotonic(), multiprocessing.get_context("spawn")
    with (
        hosted() as server,
        Trainer(server.port) as trainer,
        ProcessPoolExecutor(len(attackers), context) as pool,
    ):

        def calm(ready=lambda: True):
            end = time.monotonic() + CALM
            return notice(server, trainer, lambda: ready() and time.monotonic() > end)

        starting = [pool.submit(time.sleep, 1.0) for _ in attackers]  # all processes start
        calm(
            lambda: (
                all(one.done() for one in starting)
                and (server.seconds()[1] > WARM or trainer.losses)
            )
        )
        before, processes, n_characters = calm(), server.all(), len(server.log())
        under_way = [pool.submit(act, server.port, seconds, *one) for one in attackers]
        attacked = notice(server, trainer, lambda: all(one.done() for one in under_way))
        after = calm()
        assert server.all() == processes
        text = server.log()
    told = f"calm: {before}, attacked: {attacked}, after: {after}"
    assert all(one.result() for one in under_way), told
    assert trainer.losses == [], told
    assert attacked[2][0] <= 100 * min(2, len(attackers)), told
    assert attacked[2][1] <= 1200, told  # all that may train at once
    # The training process shares its time fairly between addresses; pages come as before.
    n_training = {source for source, _, names in attackers if "looks_inside" in names}
    assert (1 + len(n_training)) * attacked[0] >= 0.5 * before[0], told
    assert statistics.median(attacked[1]) <= 10 * statistics.median(before[1]), told
    assert min(after[1]) <= 2 * statistics.median(before[1]), told
    check_log(text, (time.monotonic() - began) / MINUTE)
    assert len(text) - n_characters <= 20_000 * max(1.0, seconds / 15), told


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


@pytest.mark.long(seconds=40)
@pytest.mark.parametrize("name", MOVES)
def test_an_attack_costs_other_visitors_no_work(name, seed):
    """Training and pages of another visitor go on, and memory and log hardly grow."""
    check_attack([(ATTACKERS[0], f"{seed} {name}", [name])], seconds=10.0)


@pytest.mark.long(seconds=60)
def test_a_mixture_of_attacks_costs_other_visitors_no_work(seed, minutes, long):
    """Moves change at up to three addresses, with up to two attackers each."""
    draw = random.Random(seed)
    sources = [one for one in ATTACKERS[: draw.randint(1, 3)] for _ in range(draw.randint(1, 2))]
    planned = [(one, f"{seed} {n}", sorted(MOVES)) for n, one in enumerate(sources)]
    check_attack(planned, seconds=60 * minutes if long else 20.0)
