"""Errors that other packages log on a hosted copy: one line each, few of them, no texts."""

import json
import logging
import random
import sys
import threading
import warnings

import pytest
from forging import TYPED

from attnkit.service import foreign_logs
from attnkit.service.foreign_logs import MINUTE, MOST_LINES, Repetitions, log_foreign_errors
from attnkit.variants import Variant


@pytest.fixture
def told(capsys, monkeypatch):
    """Log all errors in our way, and return the lines since: `told()`."""
    for module, hook in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(module, hook, getattr(module, hook))  # puts it back afterwards
    monkeypatch.setattr(foreign_logs, "in_a_timer", lambda *_: None)  # none outlives the test
    factory = logging.getLogRecordFactory()

    def lines():
        written = capsys.readouterr()
        assert TYPED not in written.out + written.err
        return [json.loads(line) for line in written.err.splitlines()]

    with warnings.catch_warnings():
        log_foreign_errors()
        yield lines
    logging.setLogRecordFactory(factory)
    logging.captureWarnings(False)


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
