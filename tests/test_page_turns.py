"""Turns at drawing pages: few at once, and those next whose address has used least."""

import ast
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from dockerfile import ROOT
from streamlit.runtime.scriptrunner import RerunException

from attnkit.service.server import server_settings
from attnkit.service.thread_turns import ThreadTurns
from attnkit.ui.server import turns


def run_all(threads, until=lambda: None):
    """Start threads one after the other, call a function, and wait until all have ended."""
    for thread in threads:
        thread.start()
        time.sleep(0.001)
    until()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("addresses", ["abcd", "a"])
def test_few_work_at_once_and_everybody_comes(seed, addresses):
    """Nobody is left over, and no turn is left unused."""
    draw, given = random.Random(seed), ThreadTurns(at_once=3)
    lock, working, numbers = threading.Lock(), [], [0]

    def work(address, member, pause):
        if not given.begin(address, member):
            return
        with lock:
            working.append(address)
            numbers.append(len(working))
        time.sleep(pause)
        with lock:
            working.remove(address)
        given.end(address, member, pause)

    drawn = [(draw.choice(addresses), draw.randrange(40), draw.uniform(0, 0.01)) for _ in range(60)]
    run_all([threading.Thread(target=work, args=one) for one in drawn])
    assert max(numbers) == 3


def test_whoever_has_used_least_comes_next():
    """A visitor's first page comes before the many pages of another address."""
    given, order = ThreadTurns(at_once=1), []
    given.begin("busy", "0")

    def wait(address, member):
        given.begin(address, member)
        order.append(address)
        given.end(address, member, 0.5)

    threads = [threading.Thread(target=wait, args=("busy", str(n))) for n in range(5)]
    threads.append(threading.Thread(target=wait, args=("new", "0")))
    run_all(threads, lambda: given.end("busy", "0", 3.0))
    assert order[0] == "new"
    assert order.count("busy") == 5


def test_who_asks_anew_does_not_wait_twice():
    """The older of two threads of one session ends at once, and the newer one has the turn."""
    given = ThreadTurns(at_once=1)
    given.begin("a", "0")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(given.begin, "a", "1")
        while not given.n_waiting("a"):
            time.sleep(0.001)
        second = pool.submit(given.begin, "a", "1")
        assert first.result(30) is False
        given.end("a", "0", 1.0)
        assert second.result(30) is True


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
    yield happened
    server_settings.cache_clear()


def test_a_page_has_one_turn_with_its_fragments_and_leaves_it_while_it_waits(hosted, monkeypatch):
    """An error ends the turn, too; the time that is charged is that of the thread."""
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


def test_the_turn_of_a_thread_that_has_ended_is_free():
    """Even if the thread had no chance to end it."""
    given = ThreadTurns(at_once=1)
    thread = threading.Thread(target=given.begin, args=("a", "0"))
    thread.start()
    thread.join()
    assert given.begin("b", "0")


def test_a_thread_that_was_replaced_does_not_take_the_place_of_the_newer_one(hosted, monkeypatch):
    """Its visitor has asked anew while it waited for the training process."""
    stopped = Mock(session_id="tab", yield_check=Mock(side_effect=[None, InterruptedError]))
    monkeypatch.setattr(turns, "get_script_run_ctx", lambda **_: stopped)

    def draw():
        with turns.turn(), turns.waiting():
            pass

    with pytest.raises(InterruptedError):
        draw()
    assert [what for what, *_ in hosted] == ["begin", "end"]


def test_nothing_is_drawn_for_a_tab_that_was_closed(hosted, monkeypatch):
    """Its turn ends at once."""
    drawn = []
    server = Mock(is_active_session=lambda _: False)
    monkeypatch.setattr(turns, "runtime", Mock(exists=lambda: True, get_instance=lambda: server))
    monkeypatch.setattr(turns.st, "stop", Mock(side_effect=InterruptedError))
    with pytest.raises(InterruptedError), turns.turn():
        drawn.append("page")
    assert (len(hosted), drawn) == (2, [])


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
    assert turns.is_crowded("1.1.1.1")
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


def test_every_fragment_is_drawn_in_turns():
    """No page makes a fragment of Streamlit by itself."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in ROOT.glob("attnkit/ui/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "fragment"
    ]
    assert [where.partition(":")[0] for where in found] == ["turns.py"]
