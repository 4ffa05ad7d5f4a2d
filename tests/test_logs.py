"""The log: what lines hold, also of errors elsewhere, and that nothing of a visitor is in them."""

import builtins
import json
import logging
import random
import re
import sys
import threading
import warnings
from pathlib import Path

import pytest
from forging import TYPED
from hypothesis import given
from hypothesis import strategies as st

from attnkit.experiment import Experiment
from attnkit.service import foreign_logs, logs
from attnkit.service.database import REASONS
from attnkit.service.foreign_logs import MINUTE, MOST_LINES, Repetitions, log_foreign_errors
from attnkit.service.logs import EVENTS, FIELDS, log, versions
from attnkit.service.server import server_settings
from attnkit.variants import Variant

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _level(monkeypatch):
    """Let a copy tell everything."""
    monkeypatch.setenv("ATTNKIT_LOG_LEVEL", "info")
    server_settings.cache_clear()


@pytest.fixture
def told(capsys):
    """Return the lines that were written since: `told()`."""

    def lines():
        written = capsys.readouterr()
        assert not written.out
        assert TYPED not in written.err
        return [json.loads(line) for line in written.err.splitlines()]

    return lines


def test_a_line_holds_time_level_event_and_fields(told):
    """One line of JSON an event, the time in UTC; a start has versions and settings."""
    fields = {"hash": Experiment().hash, "runs": 15, "steps": 300}
    log("experiment finished", **fields, seconds=1.23456)
    settings = server_settings().shown()
    log("server started", versions=versions(), settings=settings, cores=2)
    first, second = told()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first.pop("time"))
    assert first == {"level": "info", "event": "experiment finished", **fields, "seconds": 1.235}
    assert second["versions"]["streamlit"]
    assert second["versions"]["torch"].startswith("2.")
    assert second["settings"] == settings
    assert "left_out" not in second


KNOWN = "Jindrich 192.0.2.7 2001:db8::7 v=1&task=phonebook&name=Eva postgresql://eva:word@host/runs"
TEXTS = st.text(min_size=1) | st.sampled_from([*KNOWN.split(), "ValueError: Eva"])


@given(st.dictionaries(st.sampled_from([*FIELDS, "name", "link"]), TEXTS), TEXTS)
def test_nothing_that_a_visitor_typed_gets_into_a_line(fields, event):
    """Whatever text is put into whatever field; only forms that leave no room for words stay."""
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "_write", lines.append)
        log(event, **fields)
    line = json.loads(lines.pop())
    assert line["event"] in (*EVENTS, "other")
    for name, value in list(line.items())[3:]:
        if name == "reason":
            assert value in REASONS or hasattr(builtins, value)
        elif name != "left_out":
            assert name in ("hash", "job")
            assert re.fullmatch("[0-9a-f]{12,16}", value)


def test_what_a_field_cannot_have_is_left_out_and_named(told):
    """The event is told all the same; of an error, only its kind, as texts may hold a name."""
    wrong = {"seconds": float("nan"), "steps": True, "runs": None, "cores": "2", "reason": ["full"]}
    wrong |= {"versions": {"streamlit": "Eva"}, "settings": {"hosted": "Eva"}}
    log("experiment failed", error="Eva", **wrong)
    (line,) = told()
    assert line["left_out"] == sorted({"error", *wrong})
    assert line.keys().isdisjoint(line["left_out"])
    large = "it takes 12.5 MB, allowed at most 10 MB on this copy"
    for reason, kept in (
        ("the disk is full", "the disk is full"),
        ("OSError: no room at /home/eva", "OSError"),
        (large, large),
    ):
        log("result not stored", error=OSError("no room at /home/eva"), reason=reason)
        (line,) = told()
        assert (line["error"], line["reason"]) == ("OSError", kept)


def test_level_decides_what_is_told(told, monkeypatch):
    """A laptop is told of trouble only; a terminal that is gone stops nothing."""
    for level in ("error", "warning", "info"):
        monkeypatch.setenv("ATTNKIT_LOG_LEVEL", level)
        server_settings.cache_clear()
        for event in EVENTS:
            log(event)
        least = getattr(logging, level.upper())
        assert len(told()) == sum(weight >= least for weight in EVENTS.values())
    with Path(__file__).open(encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
    log("server stopped")


def test_every_event_that_our_code_tells_is_known():
    """A name that is not in the list would be left out where nobody looks."""
    paths = [*ROOT.glob("*.py"), *ROOT.glob("attnkit/**/*.py")]
    code = "".join(path.read_text(encoding="utf-8") for path in paths)
    assert set(re.findall(r'\blog\(\s*"(.+?)"', code)) <= {*EVENTS}


@pytest.fixture
def _ours(monkeypatch):
    """Log all errors in our way."""
    for module, hook in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(module, hook, getattr(module, hook))  # puts it back afterwards
    monkeypatch.setattr(foreign_logs, "in_a_timer", lambda *_: None)  # none outlives the test
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
def test_an_error_of_another_package_is_one_line_with_its_type_and_place(told):
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
    lines = told()
    assert (lines[0]["level"], lines[0]["line"] > 0) == ("error", True)
    places = [(one["event"][11:], one["module"], one.get("error")) for one in lines]
    ours = next(name for _, name, _ in places if name.startswith("attnkit.variants"))
    of_ours, of_json = ("error", ours, "InvalidVariant"), ("json.decoder", "JSONDecodeError")
    assert places[:4] == [of_ours, ("warning", *of_json), ("error", logger.name, None), of_ours]
    assert [error for _, _, error in places[4:6]] == ["OSError", "KeyError"]
    assert places[6:] == [("warning", "py.warnings", None)]


def test_a_place_has_a_few_lines_a_minute_and_the_others_are_counted(seed, monkeypatch):
    """Every error is logged or counted in the last line of its minute, in any order of errors."""
    draw = random.Random(seed)
    now, lines, waiting, added = 0.0, [], [], 3000
    repetitions = Repetitions(
        lambda *line: lines.append((now, *line)),
        lambda seconds, call: waiting.append((now + seconds, call)),
        lambda: now,
    )
    for _ in range(added):
        now += draw.choice((0.0, 0.001, 0.1, 3.0))
        while waiting and waiting[0][0] <= now:
            _, call = waiting.pop(0)
            if draw.random() < 0.5:  # else no thread could be started
                call()
        repetitions.add(("unexpected error", OSError, "asyncio", draw.randrange(3)))
    repetitions.end_minute()
    assert sum(more or 1 for *_, more in lines) == added
    for line in range(3):
        times = [when for when, place, more in lines if place[3] == line and not more]
        minutes = now / MINUTE + 2  # an early timer begins a minute, too
        assert len(times) <= MOST_LINES * minutes

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", refuse)
    foreign_logs.in_a_timer(1.0, lambda: None)  # the next error after the minute logs the count
