"""Errors that other packages log on a hosted copy: one line each, few of them, no texts."""

import json
import logging
import random
import sys
import threading
import time
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import streamlit_tab
from attackers import REFUSED, answer, attacker, rerun
from browsing import OWNER_SECRET
from crowd import hosted
from forging import forged_run
from visitor import HOST, Visitor
from websockets.sync.client import connect

from attnkit.service import foreign_logs
from attnkit.service.foreign_logs import MINUTE, MOST_LINES, Repetitions, log_foreign_errors
from attnkit.variants import Variant

TYPED = "Jindrich 192.0.2.7"
"""What a visitor has typed, or is."""


@pytest.fixture
def told(capsys):
    """Log all errors in our way, and return the lines since: `told()`."""
    hooks = ("excepthook", "unraisablehook")
    before = {name: getattr(sys, name) for name in hooks}
    in_threads, factory = threading.excepthook, logging.getLogRecordFactory()

    def lines():
        written = capsys.readouterr()
        assert TYPED not in written.out + written.err
        return [json.loads(line) for line in written.err.splitlines()]

    with warnings.catch_warnings():
        log_foreign_errors()
        yield lines
    logging.setLogRecordFactory(factory)
    logging.captureWarnings(False)
    threading.excepthook = in_threads
    for name, hook in before.items():
        setattr(sys, name, hook)


def fail():
    """Fail in a place of ours, with a message that holds what was typed."""
    Variant(f"{TYPED} =")


def test_an_error_is_one_line_with_its_type_and_place(told):
    """The innermost place of ours counts, or else the innermost of all; never what was typed."""
    logger = logging.getLogger("of another package")
    logger.addHandler(logging.StreamHandler())
    try:
        fail()
    except ValueError:
        logger.exception("Uncaught %s", TYPED)
    (line,) = told()
    assert (line["level"], line["event"]) == ("error", "unexpected error")
    assert line["module"].startswith("attnkit.variants")
    assert line["error"] == "InvalidVariant"
    assert line["line"] > 0
    try:
        json.loads(TYPED)
    except ValueError as error:
        logger.warning("It failed", exc_info=error)
    (line,) = told()
    assert (line["event"], line["module"]) == ("unexpected warning", "json.decoder")
    logger.error("%s has failed", TYPED)
    (line,) = told()
    assert (line["module"], "error" in line) == (logger.name, False)
    logger.info("%s has come", TYPED)
    assert told() == []


def test_exceptions_that_nobody_catches_and_warnings_are_told_in_the_same_way(told):
    """In the main thread, in others, where objects end, and warnings of Python."""

    class Ends:
        def __del__(self):
            raise OSError(TYPED)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    (line,) = told()
    assert (line["error"], line["module"].partition(".")[0]) == ("InvalidVariant", "attnkit")
    Ends()
    (line,) = told()
    assert line["error"] == "OSError"
    sys.excepthook(KeyError, KeyError(TYPED), None)
    (line,) = told()
    assert line["error"] == "KeyError"
    warnings.simplefilter("always")
    warnings.warn(TYPED, stacklevel=1)
    (line,) = told()
    assert (line["event"], line["module"]) == ("unexpected warning", "py.warnings")


def test_a_place_has_a_few_lines_a_minute_and_the_others_are_counted(seed):
    """Every error is logged or counted in the last line of its minute, in any order of errors."""
    draw = random.Random(seed)
    now, lines, waiting = 0.0, [], []
    repetitions = Repetitions(
        lambda *line: lines.append((now, *line)),
        lambda seconds, call: waiting.append((now + seconds, call)),
        lambda: now,
    )
    added = 0
    for _ in range(3000):
        now += draw.choice((0.0, 0.001, 0.1, 3.0))
        while waiting and waiting[0][0] <= now:
            _, call = waiting.pop(0)
            if draw.random() < 0.5:  # else no thread could be started
                call()
        repetitions.add(("unexpected error", OSError, "asyncio", draw.randrange(3)))
        added += 1
    repetitions.end_minute()
    assert sum(more or 1 for *_, more in lines) == added
    for line in range(3):
        times = [when for when, place, more in lines if place[3] == line and not more]
        minutes = now / MINUTE + 2  # an early timer begins a minute, too
        assert len(times) <= MOST_LINES * minutes


def test_lines_go_on_where_no_thread_can_be_started(monkeypatch):
    """The timer is left out without an error; the next error after the minute logs the count."""

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", refuse)
    foreign_logs.in_a_timer(1.0, lambda: None)


def log_of(server):
    """Return the lines of a server's log since its start."""
    text = Path(f"/proc/{server.process.pid}/fd/1").read_text(encoding="utf-8")
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if '"server started"' in line)
    return lines[first:]


@pytest.mark.server
def test_on_a_hosted_copy_every_line_is_ours_and_floods_of_errors_are_few_lines(monkeypatch, seed):
    """Frames that are no UTF-8, and messages of no page; and nobody can invent an address.

    The owner's page says from which address an experiment comes.
    """
    draw, began = random.Random(seed), time.monotonic()
    broken = b"\xff" + TYPED.encode()
    with hosted(owner_secret=OWNER_SECRET) as server:
        for n in range(24):
            with suppress(*REFUSED), attacker(server.port) as connection:
                if n % 2:
                    connection.send(rerun(**forged_run(draw)))
                    answer(connection, "script_finished", 5)
                else:
                    connection.socket.sendall(bytes([0x81, 0x80 | len(broken)]) + bytes(4) + broken)
                    answer(connection, "close", 2)
        forged = partial(connect, additional_headers={"X-Forwarded-For": "192.0.2.7"})
        monkeypatch.setattr(streamlit_tab, "connect", forged)
        with (
            Visitor(server.port, "v=1&n_seeds=1&steps=5000") as visitor,
            Visitor(server.port, page="owner") as owner,
        ):
            visitor.press("train")
            owner.set("owner_secret", OWNER_SECRET)
            owner.press("owner_sign_in")
            assert [one.partition(":")[0] for one in owner.find("owner_address").options] == [HOST]
        lines = log_of(server)
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert not [line for line in lines if TYPED in line or "192.0.2" in line]
    unexpected = [line for line in map(json.loads, lines) if "unexpected" in line["event"]]
    minutes = 1 + (time.monotonic() - began) // MINUTE
    assert len(unexpected) <= minutes * (MOST_LINES + 1), unexpected
    assert not [line for line in unexpected if line["module"].startswith("attnkit")]
