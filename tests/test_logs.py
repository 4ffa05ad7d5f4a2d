"""Lines of log: what they hold, and that nothing of a visitor can get into them."""

import ast
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
from attnkit.service.database_errors import REASONS
from attnkit.service.logs import EVENTS, FIELDS, log, versions
from attnkit.service.server import server_settings

ROOT = Path(__file__).parents[1]
CODE = sorted([*ROOT.glob("*.py"), *ROOT.glob("pages/*.py"), *ROOT.glob("attnkit/**/*.py")])
HASH = Experiment().hash


@pytest.fixture(autouse=True)
def hosted(monkeypatch):
    """A copy that tells everything."""
    set_level(monkeypatch, "info")
    yield
    monkeypatch.undo()
    forget()


def set_level(monkeypatch, level):
    """Begin anew with a level."""
    monkeypatch.setenv("ATTNKIT_LOG_LEVEL", level)
    forget()


def forget():
    """What was read of the environment."""
    server_settings.cache_clear()
    logs._logger.cache_clear()


def told(capsys):
    """The lines that were written."""
    written = capsys.readouterr()
    assert not written.out
    return [json.loads(line) for line in written.err.splitlines()]


def test_a_line_holds_time_level_event_and_fields(capsys):
    """One line of JSON an event, the time in UTC."""
    log("experiment finished", hash=HASH, runs=15, steps=300, seconds=1.23456)
    (line,) = told(capsys)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("time"))
    assert line == {
        "level": "info",
        "event": "experiment finished",
        "hash": HASH,
        "runs": 15,
        "steps": 300,
        "seconds": 1.235,
    }


def test_start_of_a_server_tells_versions_and_settings_without_secrets(capsys):
    """What whoever reads the log of a broken copy asks first."""
    settings = server_settings().shown()
    log("server started", versions=versions(), settings=settings, cores=2)
    (line,) = told(capsys)
    assert line["versions"]["streamlit"]
    assert line["versions"]["torch"].startswith("2.")
    assert line["settings"] == settings
    assert "owner_secret" not in json.dumps(line)
    assert "left_out" not in line


TYPED = st.text(min_size=1) | st.sampled_from(
    [
        "Jindrich",
        "192.0.2.7",
        "2001:db8::7",
        "Mozilla/5.0 (X11; Linux x86_64)",
        "_streamlit_xsrf=2|a|b|1",
        "v=1&task=phonebook&name=Eva",
        "postgresql://eva:word@host/runs",
        "ValueError: Eva",
    ]
)


@given(st.dictionaries(st.sampled_from([*FIELDS, "name", "ip", "link"]), TYPED), TYPED)
def test_nothing_that_a_visitor_typed_gets_into_a_line(fields, event):
    """Whatever text is put into whatever field; only forms that leave no room for words stay."""
    lines = []
    handler = logs._logger().handlers[0]
    original, handler.emit = handler.emit, lines.append
    try:
        log(event, **fields)
    finally:
        handler.emit = original
    (record,) = lines
    kept = {name: value for name, value in record.fields.items() if name != "left_out"}
    assert record.getMessage() in (*EVENTS, "other")
    for name, value in kept.items():
        assert name in ("hash", "job", "reason")
        if name == "reason":
            assert value in REASONS or hasattr(__import__("builtins"), value)
        else:
            assert re.fullmatch("[0-9a-f]{12,16}", value)


def test_what_a_field_cannot_have_is_left_out_and_named(capsys):
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
        (line,) = told(capsys)
        assert (line["left_out"], field in line) == ([field], False)


def test_an_error_is_told_by_its_kind(capsys):
    """What it says may hold a path or a name."""
    log("result not stored", error=OSError("no room at /home/eva"), reason="the disk is full")
    log("result not stored", reason="OSError: no room at /home/eva")
    log("result not stored", reason="it takes 12.5 MB, allowed at most 10 MB on this copy")
    first, second, third = told(capsys)
    assert (first["error"], first["reason"]) == ("OSError", "the disk is full")
    assert second["reason"] == "OSError"
    assert third["reason"].startswith("it takes 12.5 MB")


@pytest.mark.parametrize("level", ["info", "warning", "error"])
def test_level_decides_what_is_told(capsys, monkeypatch, level):
    """A laptop is told of trouble only."""
    set_level(monkeypatch, level)
    for event in EVENTS:
        log(event)
    least = getattr(logging, level.upper())
    assert len(told(capsys)) == sum(weight >= least for weight in EVENTS.values())


def test_a_closed_standard_error_stops_nothing(monkeypatch):
    """A terminal may be gone."""
    with (ROOT / "README.md").open(encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
    log("server stopped")


def calls():
    """Every call of `log` in our own code: where, its event, its fields."""
    for file in CODE:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "log":
                yield f"{file.name}:{node.lineno}", node.args[0], node.keywords


def events_of(node):
    """The texts that an expression can be; a part that is computed may be any."""
    if isinstance(node, ast.IfExp):
        return events_of(node.body) | events_of(node.orelse)
    if isinstance(node, ast.JoinedStr):
        fixed = "".join(p.value if isinstance(p, ast.Constant) else "[a-z]+" for p in node.values)
        return {event for event in EVENTS if re.fullmatch(fixed, event)}
    return {node.value}


def test_every_event_and_field_that_our_code_tells_is_known():
    """A name that is not in the lists would be left out where nobody looks."""
    found = list(calls())
    for where, event, fields in found:
        assert events_of(event) <= set(EVENTS), where
        assert events_of(event), where
        assert {field.arg for field in fields if field.arg} <= set(FIELDS), where
    assert set(EVENTS) == set().union(*(events_of(event) for _, event, _ in found))
