"""A short mixture of attacks on one hosted copy; with `--long`, every move against its marks."""

import pytest
from attackers import REFUSED, answer, attacker, frame, message, rerun, with_states
from attacks import MIXTURE, measure, page_seconds
from crowd import hosted
from moves import MOVES
from moves_on_pages import OWNER_SECRET
from websockets.frames import Opcode

from attnkit.ui.server.connection import NO_TEXT, NOT_UNDERSTOOD, TOO_LARGE

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server():
    """A hosted copy, started as the image does."""
    with hosted(owner_secret=OWNER_SECRET) as started:
        yield started


def test_messages_of_no_page_cost_one_connection_at_most_and_no_line_of_log(server):
    """They ended the training process, granted 10,000 addresses, logged names as they came, cost a
    traceback each, took 400 megabytes, or made the server ask the network for its own address.

    The server starts first, some seconds.
    """
    page_seconds(server)
    before = server.log()
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
        (b"\xff\xff\xff\xff", NOT_UNDERSTOOD),
        ("text", NO_TEXT),
        (with_states(950_000), TOO_LARGE),
        (None, TOO_LARGE),
    ):
        with attacker(server.port) as connection:
            if sent is None:
                connection.socket.sendall(frame(Opcode.BINARY, length=19 * 10**6))
            else:
                connection.send(sent)
            assert answer(connection, "close") == code
    assert server.log() == before
    with pytest.raises(REFUSED), attacker(server.port, origin="http://foreign.invalid"):
        pass
    assert "foreign.invalid" not in server.log()


def test_a_mixture_of_attacks_costs_other_visitors_no_work(server, seed):
    """Another visitor trains on in the same process, sees no exception, and pages open.

    The attackers are processes of their own. No log repeats what they type or grows with it.
    """
    figures = measure(MIXTURE, server, seed, seconds=6.0, alone=1.0, after=1.0)
    assert figures.losses == [], figures.line()
    assert figures.log_kilobytes <= LOG, figures.line()
    assert figures.steps > 0


LOG = 20
"""Kilobytes by which the log may grow in an attack; the experiments that begin are in it."""


def check(figures):
    """Compare the figures of an attack with the marks, which hold on a machine with no other work.

    Page and training are those of another visitor; the worst 5 s of training count.
    """
    told = figures.line()
    assert figures.losses == [], told
    assert figures.page <= 2.0, told
    assert figures.page_after <= 0.5, told
    assert figures.server_megabytes <= 100, told
    assert figures.training_megabytes <= 1200, told  # all that may train at once
    assert figures.share >= 0.5, told


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize("name", MOVES)
def test_attack_in_full(name, seed):
    """Pages and training of another visitor, and memory, during one move and after it."""
    with hosted(owner_secret=OWNER_SECRET) as started:
        figures = measure(name, started, seed)
    check(figures)
    assert figures.log_kilobytes <= LOG, figures.line()


@pytest.mark.long
@pytest.mark.alone
def test_mixture_in_full(seed, minutes):
    """Pages and training of another visitor while moves from several addresses change."""
    with hosted(owner_secret=OWNER_SECRET) as started:
        figures = measure(MIXTURE, started, seed, seconds=60 * minutes)
    check(figures)
    assert figures.log_kilobytes <= LOG * max(1.0, 4 * minutes), figures.line()
