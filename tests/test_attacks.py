"""Short attacks on one hosted copy; with `--long`, all attacks in full, each against its marks."""

import os
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import pytest
from attacks import (
    ATTACKS,
    REFUSED,
    UNFINISHED,
    answer,
    attack,
    attacker,
    message,
    rerun,
    with_states,
)
from crowd import hosted
from visitor import Visitor
from websockets.exceptions import ConnectionClosed

from attnkit.ui.server import guard

pytestmark = pytest.mark.server


def page_seconds(server, page=""):
    """Return the seconds until another visitor sees a page; it fails after half a minute."""
    began = time.monotonic()
    with Visitor(server.port, page=page, patience=30):
        return time.monotonic() - began


@pytest.fixture(scope="module")
def server():
    """A hosted copy, started as the image does."""
    with hosted() as started:
        yield started


@pytest.fixture(scope="module")
def trained(server):
    """A visitor with an experiment half trained, and the process that holds it."""
    with Visitor(server.port, "v=1&n_seeds=4&steps=5000&first_seed=4711", patience=120) as visitor:
        visitor.press("train")
        visitor.wait_for("the first steps", lambda: visitor.progress() > 0)
        visitor.press("pause")
        yield visitor, [child.pid for child in server.process.children()]


@pytest.fixture(autouse=True)
def nothing_is_lost(server, trained):
    """After every attack the experiment can be trained on in the same process, and pages open."""
    visitor, pids = trained
    step = visitor.progress()
    yield
    assert [child.pid for child in server.process.children()] == pids
    visitor.wait_for("the pause", lambda: not visitor.find("step").disabled)
    visitor.press("step")
    visitor.wait_for("a later step", lambda: visitor.progress() > step)
    assert visitor.exceptions == []
    page_seconds(server, "guide")


def log_of(server):
    """Return the log of the server, which is a file without a name."""
    return Path(f"/proc/{server.process.pid}/fd/1").read_text(encoding="utf-8")


def test_messages_of_no_page_cost_one_connection_at_most_and_no_line_of_log(server):
    """They ended the training process, granted 10,000 addresses, logged names as they came, cost a
    traceback each, took 400 megabytes, or made the server ask the network for its own address.

    The server and the visitor who trains start first, some seconds.
    """
    before = log_of(server)
    with attacker(server.port) as connection:
        connection.send(rerun())
        assert answer(connection, "script_finished", 20) is not None
        for _ in range(3):
            connection.send(message(clear_cache=True))
        connection.send(message(file_urls_request={"request_id": "a", "file_names": ["b"] * 100}))
        connection.send(rerun(fragment_id='a\n{"event": "owner signed in"}'))
        connection.send(message(app_heartbeat=True))
        assert answer(connection, "file_urls_response", 1) is None
    for sent, code in (
        (b"\xff\xff\xff\xff", guard.NOT_UNDERSTOOD),
        ("text", guard.NO_TEXT),
        (with_states(950_000), guard.TOO_LARGE),
        (None, guard.TOO_LARGE),
    ):
        with attacker(server.port) as connection:
            if sent is None:
                connection.socket.sendall(UNFINISHED)
            else:
                connection.send(sent)
            assert answer(connection, "close") == code
    with pytest.raises(REFUSED), attacker(server.port, origin="http://foreign.invalid"):
        pass
    assert log_of(server) == before


def test_who_asks_too_often_is_closed_and_others_open_pages(server):
    """A browser then connects again; four connections stopped the server for minutes."""
    with attacker(server.port) as connection:
        with suppress(ConnectionClosed):  # the server may close it before the last message
            for _ in range(2 * guard.CONNECTION_BURST):
                connection.send(message(app_heartbeat=True))
        assert answer(connection, "close", 20) == guard.TOO_OFTEN
    with ThreadPoolExecutor(1) as pool:
        counts = pool.submit(attack, "a flood of whole pages", server.port, 2.0)
        assert page_seconds(server) < 10
    assert counts.result()["refused or closed"] > 0


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_in_full(server, name):
    """Another visitor's page in seconds, during and after, and how far the memory grew.

    The attacker is a process of its own, which does not slow down the visitor by itself.
    """
    page_seconds(server)
    grown, pages = [server.process.memory_info().rss], []
    with ProcessPoolExecutor(1, get_context("spawn"), os.nice, (10,)) as pool:
        attacked = pool.submit(attack, name, server.port, 15.0)
        while not attacked.done():
            pages.append(page_seconds(server, "guide" if len(pages) % 2 else ""))
            grown.append(server.process.memory_info().rss)
            time.sleep(0.3)
    time.sleep(10.0)
    assert attacked.result()
    assert max(pages) <= 2.0
    assert min(page_seconds(server) for _ in range(3)) <= 0.5
    assert (max(grown) - grown[0]) / 2**20 <= 100
