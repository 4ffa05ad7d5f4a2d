"""Short attacks on one hosted copy; with `--long`, `attacks.py` in full, each against its marks."""

from contextlib import suppress
from pathlib import Path

import pytest
from attacks import (
    ATTACKS,
    FOREIGN,
    REFUSED,
    answer,
    attacker,
    close_code,
    measure,
    message,
    page_seconds,
    put,
    rerun,
    training,
    under_attack,
    unfinished_message,
    with_states,
)
from crowd import finished, hosted
from websockets.exceptions import ConnectionClosed

from attnkit.ui import guard

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server():
    """A hosted copy, started as the image does."""
    with hosted() as started:
        page_seconds(started.port)
        yield started


@pytest.fixture(scope="module")
def trained(server):
    """A visitor whose experiment trains during all attacks, and the process that trains it."""
    with training(server.port) as visitor:
        yield visitor, [child.pid for child in server.process.children()]


@pytest.fixture(autouse=True)
def nothing_is_lost(server, trained):
    """After every attack the experiment trains on in the same process, and pages open."""
    visitor, pids = trained
    step = visitor.progress()
    yield
    assert [child.pid for child in server.process.children()] == pids
    visitor.wait_for("a later step", lambda: visitor.progress() > step or finished(visitor))
    assert visitor.exceptions == []
    assert page_seconds(server.port, "guide") < 30


def log_of(server):
    """Return the log of the server, which is a file without a name."""
    return Path(f"/proc/{server.process.pid}/fd/1").read_text(encoding="utf-8")


def test_nobody_clears_the_caches_of_all_uploads_or_writes_lines_of_the_log(server):
    """It ended the training process; 10,000 addresses were granted; names were logged as they came.

    The server and the visitor who trains start first, some seconds.
    """
    with attacker(server.port) as connection:
        connection.send(rerun())
        assert answer(connection, "script_finished", 20) is not None
        for _ in range(3):
            connection.send(message(clear_cache=True))
        connection.send(message(file_urls_request={"request_id": "a", "file_names": ["b"] * 100}))
        connection.send(rerun(fragment_id='a\n{"event": "owner signed in"}'))
        connection.send(message(app_heartbeat=True))
        assert answer(connection, "file_urls_response", 1) is None
    assert put(server.port, "/_stcore/upload_file/session/file", b"content") == 404
    assert "owner signed in" not in log_of(server)


def test_malformed_messages_cost_one_connection_and_no_line_of_log(server):
    """They cost a traceback each; twenty messages that never end took 400 megabytes."""
    before = log_of(server)
    for sent, code in (
        (b"\xff\xff\xff\xff", guard.NOT_UNDERSTOOD),
        ("text", guard.NO_TEXT),
        (with_states(950_000), guard.TOO_LARGE),
        (None, guard.TOO_LARGE),
    ):
        with attacker(server.port) as connection:
            if sent is None:
                connection.socket.sendall(unfinished_message())
            else:
                connection.send(sent)
            assert close_code(connection) == code
    with pytest.raises(REFUSED), attacker(server.port, origin="http://foreign.invalid"):
        pass  # for each, the server asked the network for its own address
    assert log_of(server) == before


def test_who_asks_too_often_is_closed(server):
    """Beyond a burst; a browser then connects again."""
    with attacker(server.port) as connection:
        with suppress(ConnectionClosed):  # the server may close it before the last message
            for _ in range(2 * guard.CONNECTION_BURST):
                connection.send(message(app_heartbeat=True))
        assert close_code(connection, 20) == guard.TOO_OFTEN


def test_others_open_pages_during_a_flood(server):
    """Four connections stopped the server for minutes."""
    with under_attack("flood", server.port, 3.0, FOREIGN) as counts:
        assert page_seconds(server.port) < 10
    assert counts["refused or closed"] > 0


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_in_full(server, name):
    """Another visitor's page in seconds, during and after, and how far the memory grew."""
    found = measure(server, name, 15.0, FOREIGN)
    assert found["during"] <= 2.0
    assert found["after"] <= 0.5
    assert found["megabytes"] <= 100
