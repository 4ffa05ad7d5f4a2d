"""Turns at drawing pages: one page of an address at a time, and only what is still wanted."""

import ast
import threading
from unittest.mock import Mock

import pytest
from proxy import ROOT

from attnkit.service.server import server_settings
from attnkit.ui.server import turns


@pytest.fixture
def page(monkeypatch):
    """A page of a hosted copy that is drawn; its context, whose tab is there."""
    monkeypatch.setenv("ATTNKIT_HOSTED", "true")
    server_settings.cache_clear()
    context = Mock(session_id="tab")
    monkeypatch.setattr(turns, "session_address", lambda: "1.1.1.1")
    monkeypatch.setattr(turns, "get_script_run_ctx", lambda **_: context)
    return context


def is_taken():
    """Return whether the turn of the address is taken."""
    turn = turns._turns.get("1.1.1.1")
    return turn is not None and turn.lock.locked()


def test_an_address_draws_one_page_at_a_time_and_few_threads_wait(page, monkeypatch):
    """Whoever waits draws in the end; other addresses do not wait."""
    drawn, at_work = [], []

    def draw(number):
        with turns.turn():
            at_work.append(number)
            assert at_work == [number]
            drawn.append(number)
            at_work.clear()

    threads = [threading.Thread(target=draw, args=(n,)) for n in range(turns.MOST_WAITING)]
    with turns.turn():
        for thread in threads:
            assert not turns.is_crowded("1.1.1.1")
            n_waiting = turns._turns["1.1.1.1"].n_waiting
            thread.start()
            while turns._turns["1.1.1.1"].n_waiting == n_waiting:
                threading.Event().wait(0.001)
        assert turns.is_crowded("1.1.1.1")
        assert not turns.is_crowded("2.2.2.2")
        assert drawn == []
    for thread in threads:
        thread.join(30)
    assert sorted(drawn) == [*range(turns.MOST_WAITING)]


def test_a_page_has_one_turn_with_its_fragments_and_leaves_it_while_it_waits(page, monkeypatch):
    """An error ends the turn, too, and one's own copy has none. Turns of nobody are forgotten."""

    def draw():
        with turns.turn(), turns.turn():
            assert is_taken()
            with turns.waiting():
                assert not is_taken()
            assert is_taken()
            raise ValueError("an error")

    with pytest.raises(ValueError, match="an error"):
        draw()
    with turns.waiting():  # of a thread that has no turn
        assert not is_taken()
    assert "1.1.1.1" not in turns._turns
    assert not turns.is_crowded("1.1.1.1")
    monkeypatch.setenv("ATTNKIT_HOSTED", "false")
    server_settings.cache_clear()
    with turns.turn():
        assert not is_taken()


def test_nothing_is_drawn_for_who_has_asked_anew_or_has_gone(page, monkeypatch):
    """A thread that waited for the training process does not take the place of a newer one."""
    page.yield_check.side_effect = [None, InterruptedError, None]
    with pytest.raises(InterruptedError), turns.turn(), turns.waiting():
        pass
    server = Mock(is_active_session=lambda _: False)
    monkeypatch.setattr(turns, "runtime", Mock(exists=lambda: True, get_instance=lambda: server))
    monkeypatch.setattr(turns.st, "stop", Mock(side_effect=InterruptedError))
    with pytest.raises(InterruptedError), turns.turn():
        pytest.fail("A page is drawn for a tab that was closed.")
    assert not is_taken()


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
