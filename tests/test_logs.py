"""Lines of log: what they hold, and that nothing of a visitor can get into them."""

import ast
import builtins
import json
import logging
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnkit.experiment import Experiment
from attnkit.service import logs
from attnkit.service.database import REASONS
from attnkit.service.logs import EVENTS, FIELDS, log, versions
from attnkit.service.server import server_settings

ROOT = Path(__file__).parents[1]
CODE = sorted([*ROOT.glob("*.py"), *ROOT.glob("pages/*.py"), *ROOT.glob("attnkit/**/*.py")])


@pytest.fixture(autouse=True)
def set_level(monkeypatch):
    """Begin anew with a level: `set_level("error")`; a copy tells everything until then."""

    def begin(level):
        monkeypatch.setenv("ATTNKIT_LOG_LEVEL", level)
        server_settings.cache_clear()

    begin("info")
    yield begin
    monkeypatch.undo()
    server_settings.cache_clear()


@pytest.fixture
def told(capsys):
    """Return the lines that were written since: `told()`."""

    def lines():
        written = capsys.readouterr()
        assert not written.out
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
    finished = {"level": "info", "event": "experiment finished"}
    assert first == {**finished, **fields, "seconds": 1.235}
    assert second["versions"]["streamlit"]
    assert second["versions"]["torch"].startswith("2.")
    assert second["settings"] == settings
    assert "left_out" not in second


KNOWN = "Jindrich 192.0.2.7 2001:db8::7 _streamlit_xsrf=2|a|b|1 v=1&task=phonebook&name=Eva"
KNOWN = (*KNOWN.split(), "postgresql://eva:word@host/runs", "ValueError: Eva")
TYPED = st.text(min_size=1) | st.sampled_from(KNOWN)


@given(st.dictionaries(st.sampled_from([*FIELDS, "name", "ip", "link"]), TYPED), TYPED)
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
    """The event is told all the same: a log never stops a server."""
    for field, value in (
        ("seconds", float("nan")),
        ("seconds", "12"),
        ("steps", True),
        ("runs", None),
        ("hash", "0123"),
        ("error", "Eva"),
        ("reason", ["the disk is full"]),
        ("again", 1),
        ("versions", {"streamlit": "Eva"}),
        ("settings", {"hosted": "Eva"}),
        ("name", "Eva"),
    ):
        log("experiment failed", **{field: value})
        (line,) = told()
        assert (line["left_out"], field in line) == ([field], False)


def test_an_error_is_told_by_its_kind(told):
    """What it says may hold a path or a name."""
    large = "it takes 12.5 MB, allowed at most 10 MB on this copy"
    for reason, kept in (
        ("the disk is full", "the disk is full"),
        ("OSError: no room at /home/eva", "OSError"),
        (large, large),
    ):
        log("result not stored", error=OSError("no room at /home/eva"), reason=reason)
        (line,) = told()
        assert (line["error"], line["reason"]) == ("OSError", kept)


def test_level_decides_what_is_told(told, set_level, monkeypatch):
    """A laptop is told of trouble only; a terminal that is gone stops nothing."""
    for level in ("info", "warning", "error"):
        set_level(level)
        for event in EVENTS:
            log(event)
        least = getattr(logging, level.upper())
        assert len(told()) == sum(weight >= least for weight in EVENTS.values())
    set_level("info")
    with Path(__file__).open(encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
    log("server stopped")


def events_of(node):
    """Return the texts that an expression can be; a part that is computed may be any."""
    if isinstance(node, ast.IfExp):
        return events_of(node.body) | events_of(node.orelse)
    if isinstance(node, ast.JoinedStr):
        fixed = "".join(p.value if isinstance(p, ast.Constant) else "[a-z]+" for p in node.values)
        return {event for event in EVENTS if re.fullmatch(fixed, event)}
    return {node.value}


def test_every_event_and_field_that_our_code_tells_is_known():
    """A name that is not in the lists would be left out where nobody looks."""
    told = set()
    for file in CODE:
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "log(" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "log":
                where, events = f"{file.name}:{node.lineno}", events_of(node.args[0])
                assert events, where
                assert {field.arg for field in node.keywords if field.arg} <= set(FIELDS), where
                told |= events
    assert told == set(EVENTS)
