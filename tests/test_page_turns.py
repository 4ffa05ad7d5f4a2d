"""Turns at drawing pages: few at once, and those next whose address has used least."""

import ast
import threading
import time
from unittest.mock import Mock

import pytest
from proxy import ROOT
from streamlit.runtime.scriptrunner import RerunException

from attnkit.service.server import server_settings
from attnkit.service.thread_turns import ThreadTurns
from attnkit.ui.server import turns


def test_few_work_at_once_and_whoever_has_used_least_comes_next():
    """A visitor's first page comes before the many of another address; nobody is left over."""
    given, order, working, numbers = ThreadTurns(at_once=1), [], [], []

    def work(address, member):
        given.begin(address, member)
        order.append(address)
        working.append(member)
        numbers.append(len(working))
        time.sleep(0.001)
        working.remove(member)
        given.end(address, member, 0.5)

    gone = threading.Thread(target=given.begin, args=("gone", ""))  # its turn is free again
    gone.start()
    gone.join()
    given.begin("busy", "first")
    threads = [threading.Thread(target=work, args=("busy", f"{n}")) for n in range(6)]
    threads.append(threading.Thread(target=work, args=("new", "")))
    for thread in threads:
        thread.start()
    while given.n_waiting("busy") + given.n_waiting("new") < 7:
        time.sleep(0.001)
    given.end("busy", "first", 3.0)
    for thread in threads:
        thread.join(30)
    assert order == ["new"] + ["busy"] * 6
    assert max(numbers) == 1


@pytest.fixture
def hosted(monkeypatch):
    """A page of a hosted copy that is being drawn; returns what happens to its turns."""
    monkeypatch.setenv("ATTNKIT_HOSTED", "true")
    server_settings.cache_clear()
    happened = []

    def begin(*key):
        happened.append(("begin", *key))
        return True

    def end(address, session, seconds):
        assert seconds >= 0
        happened.append(("end", address, session))

    monkeypatch.setattr(turns, "_turns", Mock(begin=begin, end=end))
    monkeypatch.setattr(turns, "session_address", lambda: "1.1.1.1")
    monkeypatch.setattr(turns, "get_script_run_ctx", lambda **_: Mock(session_id="tab"))
    return happened


def test_a_page_has_one_turn_with_its_fragments_and_leaves_it_while_it_waits(hosted, monkeypatch):
    """An error ends the turn, too, and one's own copy has none."""
    begin, end = ("begin", "1.1.1.1", "tab"), ("end", "1.1.1.1", "tab")

    def draw():
        with turns.turn(), turns.turn():
            with turns.waiting():
                assert hosted == [begin, end]
            raise ValueError("an error")

    with pytest.raises(ValueError, match="an error"):
        draw()
    assert hosted == [begin, end, begin, end]
    with turns.waiting():  # of a thread that has no turn
        pass
    with pytest.raises(RerunException), turns.turn():
        raise RerunException(Mock())
    assert hosted[4:] == [begin]
    with turns.turn():
        assert hosted[4:] == [begin, end, begin]
    monkeypatch.setenv("ATTNKIT_HOSTED", "false")
    server_settings.cache_clear()
    with turns.turn():
        assert hosted[4:] == [begin, end, begin, end]


def test_nothing_is_drawn_for_who_has_asked_anew_or_has_gone(hosted, monkeypatch):
    """A thread that waited for the training process does not take the place of a newer one."""
    stopped = Mock(session_id="tab", yield_check=Mock(side_effect=[None, InterruptedError, None]))
    monkeypatch.setattr(turns, "get_script_run_ctx", lambda **_: stopped)

    def draw():
        with turns.turn(), turns.waiting():
            pass

    with pytest.raises(InterruptedError):
        draw()
    server = Mock(is_active_session=lambda _: False)
    monkeypatch.setattr(turns, "runtime", Mock(exists=lambda: True, get_instance=lambda: server))
    monkeypatch.setattr(turns.st, "stop", Mock(side_effect=InterruptedError))
    with pytest.raises(InterruptedError), turns.turn():
        pytest.fail("A page is drawn for a tab that was closed.")
    assert [what for what, *_ in hosted] == ["begin", "end"] * 2


def test_messages_wait_while_threads_start(hosted, monkeypatch):
    """Until they ask for their turns, or have had time to; those of other addresses do not wait."""
    now = [0.0]
    monkeypatch.setattr(turns, "_starting", {})
    monkeypatch.setattr(turns, "_turns", ThreadTurns(at_once=9))
    monkeypatch.setattr(turns.time, "monotonic", lambda: now[0])
    for _ in range(turns.MOST_WAITING):
        assert not turns.is_crowded("1.1.1.1")
        turns.expect("1.1.1.1")
    assert turns.is_crowded("1.1.1.1")
    assert not turns.is_crowded("2.2.2.2")
    with turns.turn():
        assert not turns.is_crowded("1.1.1.1")
    turns.expect("1.1.1.1")
    now[0] += 2 * turns.START_SECONDS
    turns.expect("2.2.2.2")
    assert not turns.is_crowded("1.1.1.1")
    assert list(turns._starting) == ["2.2.2.2"]


def test_an_address_rests_for_as_long_as_its_turns_have_taken(hosted, monkeypatch):
    """So it uses half a core at most, if the guard lets it rest because others train."""
    now, used = [10.0], [1.0]
    monkeypatch.setattr(turns, "_rests_until", {})
    clock = Mock(monotonic=lambda: now[0], thread_time=lambda: used[0])
    monkeypatch.setattr(turns, "time", clock)
    monkeypatch.setattr(turns._thread, "charged", 1.0)
    for _ in range(2):
        with turns.turn():
            used[0] += 0.4
    assert turns.rest("1.1.1.1") == pytest.approx(0.8)
    assert turns.rest("2.2.2.2") <= 0
    now[0] += 1.0
    assert turns.rest("1.1.1.1") <= 0


def test_every_fragment_is_drawn_in_turns_and_every_text_field_says_how_much_it_takes():
    """A text beyond the size of a message would close the connection again and again."""
    fragments, fields = set(), ("text_input", "text_area", "chat_input")
    for path in ROOT.glob("attnkit/ui/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "fragment":
                fragments.add(path.name)
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in fields:
                given = [keyword.arg for keyword in node.keywords]
                assert "max_chars" in given, f"{path.name}:{node.lineno}"
    assert fragments == {"turns.py"}
