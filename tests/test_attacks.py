"""Attacks and crowds on a hosted copy at night, what other visitors notice, and what is left."""

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
from crowd import SMALL, hosted
from forging import TYPED, forged_run, forged_states, message, rerun
from random_links import HEAVY, draw_variant
from visitor import HOST, TimedOut, Visitor
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage
from websockets.frames import Opcode
from websockets.sync.client import connect

from attnkit.service.logs import MINUTE, MOST_LINES

pytestmark = pytest.mark.server

ATTACKERS, VICTIM = [f"127.0.0.{number}" for number in (2, 3, 4)], "127.0.0.9"

REFUSED = (OSError, InvalidHandshake, InvalidMessage, ConnectionClosed, EOFError, TimedOut)

PAGES = ("", *"questions capacity attention asymmetry surgery similarity atlas guide runs".split())
ELEMENT = f"$$ID-{'0' * 32}-"  # no page has such an element
PATIENCE, LONG = 90.0, 400.0  # seconds; the latter where many visitors come and go
CALM, WARM = 5.0, 6.0  # seconds of measuring before and after an attack; processor seconds before

TRAINED = "v=1&n_seeds=4&steps=5000&n_train=16000&first_seed={}"
LARGE = "v=1&n_seeds=12&steps=5000&d_model=128&batch_size=512&n_train=200000&first_seed={}"


def whole_pages(draw):
    """Yield messages that request whole pages; some have links that take long to read."""
    while True:
        sharing = ",".join(draw_variant(draw) for _ in range(12))
        fields = {"v": "1", "sharing": sharing, "equal": "parameters", **HEAVY}
        query = draw.choice((f"x={TYPED}", urlencode(fields, safe=",")))
        yield rerun(page_name=draw.choice(PAGES), query_string=query)


def forged_messages(draw):
    """Yield messages with forged values, at the limits of size, from odd pages and places."""
    n, size = draw.choice(((1, 100_000), (1, 250_000), (1, 950_000), (150, 1000), (14_000, 0)))
    large = [{"id": f"{ELEMENT}{number}", "string_value": "x" * size} for number in range(n)]
    names = dict.fromkeys((f"{ELEMENT}{TYPED}", f"{ELEMENT}capacity_x"), ("", (TYPED,)))
    while True:
        yield rerun(widget_states={"widgets": large})
        yield rerun(widget_states=forged_states(draw, names), **forged_run(draw))


def no_messages(draw):
    """Yield frames that are no message, that no page sends, or whose message never ends."""
    odd_fragment = rerun(fragment_id=f'{TYPED}\n{{"event": "owner signed in"}}')
    odd = [
        frame(Opcode.BINARY, one) for one in (b"\xff" * 4, message(clear_cache=True), odd_fragment)
    ]
    odd += [frame(Opcode.TEXT, b"\xff\xfe" + TYPED.encode()), frame(0x3, TYPED.encode())]
    for length in (200_000, 10**6, 19 * 10**6):
        odd += [frame(Opcode.BINARY, bytes(length - 1000), length=length)] * 3
    yield draw.choice([*odd, frame(Opcode.CLOSE, b"\x00"), bytes(64)])


def control_frames(draw):
    """Yield blocks of pings, pongs or empty continuation frames."""
    opcode = draw.choice((Opcode.PING, Opcode.PING, Opcode.PONG, Opcode.CONT))
    if opcode == Opcode.CONT:
        yield frame(Opcode.BINARY, b"", last=False)
    payload = b"" if opcode == Opcode.CONT else bytes(draw.choice((0, 125)))
    while True:
        yield frame(opcode, payload, last=opcode != Opcode.CONT) * 500


def frame(opcode, payload=b"", *, last=True, length=None):
    """Encode a frame of a client; it may announce another length than it has."""
    size = len(payload) if length is None else length
    long = bytes([0x80 | 127]) + size.to_bytes(8, "big")
    sizes = bytes([0x80 | size]) if size < 126 else long
    return bytes([0x80 * last | opcode]) + sizes + bytes(4) + payload


@contextmanager
def attacker(port, source):
    """Open one WebSocket of an attacker."""
    with connect(
        f"ws://{HOST}:{port}/_stcore/stream",
        source_address=(source, 0),
        origin=f"http://{HOST}:{port}",
        subprotocols=["streamlit"],
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

    def drain(connection):
        with suppress(*REFUSED):
            for _ in connection:
                pass

    def move(port, source, draw, end):
        with attacker(port, source) as connection:
            reader = threading.Thread(target=drain, args=(connection,), daemon=True)
            if draw.random() < 0.7:  # else the connection's small queue fills
                reader.start()
            is_raw = payloads in (no_messages, control_frames)
            for payload in payloads(draw):
                (connection.socket.sendall if is_raw else connection.send)(payload)
                time.sleep(pause)
                if time.monotonic() > end:
                    return
            if reader.ident:  # until the server closes the connection
                reader.join(max(0.0, end - time.monotonic()))

    return move


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


MOVES = {  # by name, with the largest number of its connections
    "whole_pages": (30, flood(whole_pages, 0.05)),
    "forged_messages": (20, flood(forged_messages, 0.1)),
    "no_messages": (20, flood(no_messages, 0.03)),
    "control_frames": (4, flood(control_frames, 0.0)),
    "idle_sockets": (1, idle_sockets),
    "looks_inside": (4, looks_inside),
}


def act(port, seconds, source, seed, name):
    """Make one move from many connections for so many seconds; return how often it was made."""
    os.nice(19)  # visitors share the processor with the server, not with attackers
    logging.disable()
    (n, move), draw, end = MOVES[name], random.Random(seed), time.monotonic() + seconds
    draws = [random.Random(draw.random()) for _ in range(draw.randint(1 + n // 4, n))]

    def go_on(draw):
        n_made = 0
        while time.monotonic() < end:
            n_made += 1
            with suppress(*REFUSED, KeyError, ValueError):  # what a page has not drawn yet
                move(port, source, draw, end)
            time.sleep(0.02)
        return n_made

    with ThreadPoolExecutor(len(draws)) as pool:
        return sum(pool.map(go_on, draws))


@contextmanager
def trainer(port):
    """A visitor who trains one experiment after the other; yield times with steps, and failures."""
    over, steps, losses = threading.Event(), [(time.monotonic(), 0)], []

    def train():
        link, before, at = TRAINED.format(random.randrange(900_000)), 0, 0
        try:
            with Visitor(port, link, "", PATIENCE, source_address=(VICTIM, 0)) as tab:
                tab.press("train")
                while not over.is_set():
                    tab.watch(0.2)
                    step = tab.progress()
                    assert step == 0 or step >= at, f"step {step} after {at}"
                    assert not any(map(tab.says, ("Training failed", "Stopped"))), tab.texts()
                    if step > at:
                        at = step
                        steps.append((time.monotonic(), before + at))
                    if tab.says("Finished"):
                        before, at = before + at, 0
                        tab.press("new_seeds")
                losses.extend(tab.exceptions)
        except (*REFUSED, AssertionError, KeyError, ValueError) as error:
            losses.append(f"{type(error).__name__}: {error}"[:300])

    with ThreadPoolExecutor(1) as pool:
        pool.submit(train)
        try:
            yield steps, losses
        finally:
            over.set()


def notice(server, trained, is_over):
    """Open pages as another visitor until something is over, and return what visitors notice.

    Steps per processor second of training, seconds of each page, and MB that both processes grew.
    """
    began, seconds, before = time.monotonic(), server.seconds(), server.megabytes()
    waits, grown = [], np.zeros(2)
    while not is_over() or not waits:
        asked = time.monotonic()
        with Visitor(server.port, "", "guide", PATIENCE, source_address=(VICTIM, 0)) as tab:
            waits.append(time.monotonic() - asked)
            assert tab.exceptions == []
        with Visitor(server.port, "", "", PATIENCE, source_address=(VICTIM, 0)) as tab:
            tab.set("set_d_head", 5.0)
            assert tab.exceptions == []
        grown = np.maximum(grown, np.subtract(server.megabytes(), before))
        time.sleep(0.2)
    when, steps = zip(*trained, strict=True)
    n_steps = np.diff(np.interp([began, time.monotonic()], when, steps))[0]
    return n_steps / (server.seconds()[1] - seconds[1]), waits, grown


def check_attack(attackers, seconds):
    """Attack a copy, and compare what other visitors notice with the calm before."""
    began, context = time.monotonic(), multiprocessing.get_context("spawn")
    with (
        hosted() as server,
        trainer(server.port) as (trained, losses),
        ProcessPoolExecutor(len(attackers), context) as pool,
    ):

        def calm(ready=lambda: True):
            end = time.monotonic() + CALM
            return notice(server, trained, lambda: ready() and time.monotonic() > end)

        list(pool.map(time.sleep, [1.0] * len(attackers)))  # all processes start
        calm(lambda: server.seconds()[1] > WARM or losses)
        before, processes, n_characters = calm(), server.all(), len(server.log())
        under_way = [pool.submit(act, server.port, seconds, *one) for one in attackers]
        attacked = notice(server, trained, lambda: all(one.done() for one in under_way))
        after = calm()
        assert server.all() == processes
        text = server.log()
    told = f"calm: {before}, attacked: {attacked}, after: {after}"
    assert all(one.result() for one in under_way), told
    assert losses == [], told
    n_addresses = len({source for source, *_ in attackers})
    assert attacked[2][0] <= 100 * min(2, n_addresses), told
    assert attacked[2][1] <= 1200, told  # all that may train at once
    # The training process shares its time fairly between addresses; pages come as before.
    n_training = {source for source, _, name in attackers if name == "looks_inside"}
    assert (1 + len(n_training)) * attacked[0] >= 0.5 * before[0], told
    assert statistics.median(attacked[1]) <= 10 * statistics.median(before[1]), told
    assert min(after[1]) <= 2 * statistics.median(before[1]), told
    check_log(text, (time.monotonic() - began) / MINUTE)
    assert len(text) - n_characters <= 20_000 * max(1.0, seconds / 15), told


def check_log(text, minutes):
    """Check that every line of a log is ours, errors are few, and no text of attackers is there."""
    assert TYPED not in text
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if '"server started"' in line)
    events = [json.loads(line) for line in lines[first:]]
    unexpected = [event for event in events if "unexpected" in event["event"]]
    own = [event for event in unexpected if event["module"].startswith("attnkit")]
    assert own == [], json.dumps(own)
    places = {(event["module"], event["line"]) for event in unexpected}
    assert len(unexpected) <= len(places) * (MOST_LINES + 1) * (1 + minutes), unexpected


@pytest.mark.long(seconds=40)
@pytest.mark.parametrize("name", MOVES)
def test_an_attack_costs_other_visitors_no_work(name, seed):
    """Training and pages of another visitor go on, and memory and log hardly grow."""
    check_attack([(ATTACKERS[0], f"{seed} {name}", name)], seconds=10.0)


@pytest.mark.long(seconds=60)
def test_a_mixture_of_attacks_costs_other_visitors_no_work(seed, minutes, long):
    """Up to three addresses with up to two attackers each."""
    draw = random.Random(seed)
    sources = [one for one in ATTACKERS[: draw.randint(1, 3)] for _ in range(draw.randint(1, 2))]
    planned = [(one, f"{seed} {n}", draw.choice([*MOVES])) for n, one in enumerate(sources)]
    check_attack(planned, seconds=60 * minutes if long else 20.0)


@pytest.fixture(scope="module")
def warm_server():
    """Start a hosted copy that forgets sessions at once, and warm its training process."""
    with hosted(3) as started:
        with Visitor(started.port, f"{SMALL}&first_seed=990000") as first:
            first.press("train")
            first.wait_for("the end", lambda: first.says("Finished"))
        yield started


@pytest.mark.long(seconds=5)
def test_open_tabs_cost_next_to_nothing(warm_server):
    """Twenty open tabs cost at most a twentieth of a core."""
    with ExitStack() as opened, ThreadPoolExecutor(20) as pool:
        visitors = [opened.enter_context(Visitor(warm_server.port)) for _ in range(20)]
        for visitor in visitors:
            visitor.watch(2.0)
        began, spent = time.monotonic(), sum(warm_server.seconds())
        list(pool.map(lambda visitor: visitor.watch(20.0), visitors))
        assert sum(warm_server.seconds()) - spent <= 0.05 * (time.monotonic() - began)


def come_and_go(server, number):
    """Train something small; vanish in the middle, change a setting, or wait for the end."""
    link = f"{SMALL}&first_seed={20 * number}"
    for _ in range(2 if number % 3 == 0 else 1):  # without a cookie, whoever reloads is a stranger
        with Visitor(server.port, link, patience=LONG) as visitor:
            if not visitor.says("Finished") and not visitor.find("train").disabled:
                visitor.press("train")
            if number % 3 == 1:
                visitor.set("set_d_head", 4.0)
            elif number % 3 == 2:
                visitor.wait_for("the end", lambda: visitor.says("Finished"))
            assert visitor.exceptions == []


def become_quiet(server):
    """Wait until nothing trains and no more files are closed."""
    deadline, quiet, files = time.monotonic() + LONG, 0, 0
    while quiet < 3:
        assert time.monotonic() < deadline, "the server computes on, though nobody is there"
        with Visitor(server.port, page="guide"):
            pass
        before, files_before = sum(server.seconds()), files
        time.sleep(5.0)
        files = server.process.num_fds()
        is_quiet = sum(server.seconds()) - before < 0.5 and files >= files_before
        quiet = quiet + 1 if is_quiet else 0


@pytest.mark.long(seconds=40)
def test_nothing_is_left_of_those_who_come_and_go(warm_server):
    """No process, thread or file; memory as after the first of them; no job that trains on."""
    left, server = [], warm_server
    with ThreadPoolExecutor(6) as pool:
        for numbers in (range(20), range(20, 80)):
            list(pool.map(come_and_go, [server] * len(numbers), numbers))
            become_quiet(server)
            counts = len(server.all()), server.process.num_threads(), server.process.num_fds()
            left.append((sum(server.megabytes()), *counts))
    (megabytes, processes, threads, files), after = left
    assert after[0] <= 1.1 * megabytes
    assert after[1] == processes
    assert after[2] <= threads + 2
    assert after[3] <= files + 8  # of two sessions that just ended
