"""The log: what lines hold, also of errors elsewhere, and that nothing of a visitor is in them."""

import json
import logging
import random
import re
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from forging import TYPED

from attnkit.experiment import Experiment
from attnkit.service import logs
from attnkit.service.logs import EVENTS, MINUTE, MOST_LINES, log, log_foreign_errors, log_place
from attnkit.service.server import server_settings
from attnkit.variants import Variant


@pytest.fixture(autouse=True)
def _level(monkeypatch):
    """Let a copy log everything."""
    monkeypatch.setenv("ATTNKIT_LOG_LEVEL", "info")
    server_settings.cache_clear()


@pytest.fixture
def logged(capsys):
    """Return the lines that were written since: `logged()`."""

    def lines():
        written = capsys.readouterr()
        assert not written.out
        assert TYPED not in written.err
        return [json.loads(line) for line in written.err.splitlines()]

    return lines


def test_a_line_holds_time_level_event_and_fields(logged):
    """One line of JSON an event, the time in UTC; of an error only its type."""
    fields = {"hash": Experiment().hash, "runs": 15, "again": True}
    wrong = {"error": ValueError(TYPED), "seconds": 1.23456, "waited": float("inf")}
    log("experiment finished", **fields, **wrong)
    (line,) = logged()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("time"))
    told = {"error": "ValueError", "seconds": 1.235, "waited": None}
    assert line == {"level": "info", "event": "experiment finished", **fields, **told}


def test_level_decides_what_is_logged(logged, monkeypatch):
    """A laptop logs trouble only; a terminal that is gone stops nothing."""
    for level in ("error", "warning", "info"):
        monkeypatch.setenv("ATTNKIT_LOG_LEVEL", level)
        server_settings.cache_clear()
        for event in EVENTS:
            log(event)
        least = getattr(logging, level.upper())
        assert len(logged()) == sum(weight >= least for weight in EVENTS.values())
    with Path(__file__).open(encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
    log("server stopped")


@pytest.fixture
def _ours(monkeypatch):
    """Log all errors in our way."""
    for module, hook in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(module, hook, getattr(module, hook))  # puts it back afterwards
    monkeypatch.setattr(logs, "_places", {})
    factory = logging.getLogRecordFactory()
    with warnings.catch_warnings():
        log_foreign_errors()
        yield
    logging.setLogRecordFactory(factory)
    logging.captureWarnings(False)


def fail():
    """Fail in a place of ours, with a message that holds what was typed."""
    Variant(f"{TYPED} =")


@pytest.mark.usefixtures("_ours")
def test_an_error_of_another_package_is_one_line_with_its_type_and_place(logged):
    """The innermost place of ours, or else of all, also for warnings and what nobody catches."""

    class Ends:
        def __del__(self):
            raise OSError(TYPED)

    logger = logging.getLogger("of another package")
    logger.addHandler(logging.StreamHandler())
    try:
        fail()
    except ValueError:
        logger.exception("Uncaught %s", TYPED)
    try:
        json.loads(TYPED)
    except ValueError as error:
        logger.warning("It failed", exc_info=error)
    logger.error("%s has failed", TYPED)
    logger.info("%s has come", TYPED)
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    Ends()
    sys.excepthook(KeyError, KeyError(TYPED), None)
    warnings.simplefilter("always")
    warnings.warn(TYPED, stacklevel=1)
    lines = logged()
    assert (lines[0]["level"], lines[0]["line"] > 0) == ("error", True)
    places = [(one["event"][11:], one["module"], one.get("error")) for one in lines]
    ours = next(name for _, name, _ in places if name.startswith("attnkit.variants"))
    of_ours, of_json = ("error", ours, "InvalidVariant"), ("json.decoder", "JSONDecodeError")
    assert places[:4] == [of_ours, ("warning", *of_json), ("error", logger.name, None), of_ours]
    assert [error for _, _, error in places[4:6]] == ["OSError", "KeyError"]
    assert places[6:] == [("warning", "py.warnings", None)]


def test_a_place_has_a_few_lines_a_minute_and_the_others_are_counted(seed, monkeypatch, logged):
    """Every error is logged, or counted in the first line of a later minute."""
    draw, now = random.Random(seed), [0.0]
    monkeypatch.setattr(logs, "_places", {})
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for _ in range(3000):
        now[0] += draw.choice((0.0, 0.001, 0.1, 3.0))
        log_place(None, __name__, draw.randrange(3), "warning")
    now[0] += MINUTE
    for line in range(3):
        log_place(None, __name__, line, "warning")
    lines = logged()
    assert sum(1 + line.get("more", 0) for line in lines) == 3003
    assert len(lines) <= 3 * MOST_LINES * (now[0] / MINUTE + 1)
