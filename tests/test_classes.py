"""Classes of a hosted copy: how guesses are counted, limits, and a lesson on a real server."""

import contextlib
import json
import re
from collections import Counter
from contextlib import ExitStack
from unittest.mock import Mock

import pytest
from crowd import hosted
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly
from visitor import Visitor

from attnkit.service import classes as module
from attnkit.service.classes import FULL_CLASSES, Classes, Standing
from attnkit.service.store import ResultStore, Unavailable

STEPS = st.tuples(
    st.sampled_from("pq"),  # question
    st.integers(0, 7).map(str),  # visitor
    st.sampled_from("ABCDE"),  # address
    st.sets(st.sampled_from(["QKV", "Q=K", "none"]), max_size=2)
    | st.sampled_from(["ask", "settle", "close"]),
)


@briefly(25)
@given(st.lists(STEPS, max_size=40))
def test_each_visitor_counts_once_and_no_address_fills_the_class(steps):
    """A guess takes the place of the last one until a training, if its address has a place."""
    classes, asked, closed, settled = Classes(), {"p": {}}, set(), set()
    room, other = (classes.begin("1_x", "p", "owner", expected=2) for _ in range(2))
    for question, visitor, address, step in steps:
        known = asked.get(question, {})
        who = room.code, question, visitor, address
        if step == "ask":
            classes.ask(*who[:2])
            asked.setdefault(question, {})
        elif step == "settle":
            classes.settle(*who[:3])
            settled |= {(question, visitor)} if visitor in known else set()
        elif step == "close":
            classes.close(*who[:2])
            closed |= {question} & {*asked}
        else:
            now = classes.guess(*who, step)
            places = Counter(where for where, _ in known.values())
            has_place = places[address] < 2 and places.total() < 2 * FULL_CLASSES
            is_open = question in asked and not {question, (question, visitor)} & (closed | settled)
            if is_open and (visitor in known or has_place):
                known.pop(visitor, None)
                known |= {visitor: (address, frozenset(step))} if step else {}
            counted = known.get(visitor, (address, frozenset()))[1]
            assert now == classes.standing(*who)
            assert (now.guess, now.is_closed) == (counted, question in closed)
            assert now.guess == step or not now.takes_guesses
    for question, known in asked.items():
        assert classes.guesses(room.code, question) == Counter(guess for _, guess in known.values())
    assert classes.standing(other.code, "p", "0", "A") == Standing()
    assert classes.standing("1nobod", "p", "0", "A") is None
    assert classes.guess("1nobod", "p", "0", "A", ["QKV"]) is None
    classes.dispose()  # of many examples, each would leave a connection


def test_classes_survive_a_restart_and_the_least_used_of_the_greediest_go(where, monkeypatch):
    """So do those that nobody has used for long; without a database, one begins in memory."""
    monkeypatch.setattr(module, "MOST_CLASSES", 4)
    monkeypatch.setattr(module, "USED_MICROSECONDS", -1)
    with ExitStack() as stores:

        def restarted():
            store = stores.enter_context(contextlib.closing(ResultStore(where)))
            classes = Classes(store.database)
            stores.callback(classes.dispose)
            return classes

        classes = restarted()
        one, *many = (classes.begin("1_x", "p", owner, "anna") for owner in ("a", "b", "b", "b"))
        classes.guess(one.code, "p", "0", "A", ["QKV"])
        classes.close(one.code, "p", 5)
        classes.find(many[0].teacher_code)
        for question in "qrstuv":
            classes.ask(one.code, question)
        now = [classes.standing(one.code, question, "0", "A").is_asked for question in "pqrstuv"]
        assert now == [True, False, False, True, True, True, True]
        classes = restarted()
        now = classes.standing(one.code, "p", "0", "A")
        assert (now.is_closed, now.seed, now.guess) == (True, 5, {"QKV"})
        assert classes.begun("1_x", "anna") == many[2]
        assert classes.begun("1_x", "bert") is classes.begun("2_x", "anna") is None
        new = classes.begin("1_x", "p", "c")
        known = [room for room in (one, *many, new) if classes.find(room.code)]
        assert known == [one, many[0], many[2], new]
        assert all(room == classes.find(room.teacher_code) for room in known)
        assert [classes.find(code) for code in ("", "\0", "1' OR 1", "1nobod")] == [None] * 4
        monkeypatch.setattr(module, "UNUSED_DAYS", -1)
        last = classes.begin("1_x", "p", "c")
        assert [room for room in (*known, last) if classes.find(room.code)] == [last]
    away = Mock(**{"do.side_effect": Unavailable("away")})
    classes = Classes(away)
    room = classes.begin("1_x", "p", "a", "anna")
    assert classes.find(room.code) == classes.begun("1_x", "anna") == room
    assert classes.guess(room.code, "p", "0", "A", ["QKV"]).guess == {"QKV"}
    with pytest.raises(Unavailable, match="away"):
        classes.find(last.code)
    classes.dispose()


@pytest.mark.server
def test_a_lesson_goes_on_after_its_server_was_killed(tmp_path):
    """Two pupils guess; the teacher then trains, and the phones show it without a press."""

    def visit(link, page="", browser=""):
        cookie = {"Cookie": f"_streamlit_xsrf=2|00|{browser}|1"} if browser else {}
        return tabs.enter_context(Visitor(server.port, link, page, additional_headers=cookie))

    def has(tab, words):
        return re.search(words, " ".join(tab.texts()))

    def choose(tab, option):
        (key,) = (key for key in tab.user_keys() if key.startswith("guess_"))
        chosen = list(tab.find(key).raw_values)
        tab.set(key, [tab.find(key).options[option].content])
        return chosen

    with contextlib.suppress(RuntimeError), hosted(store=tmp_path) as server, ExitStack() as tabs:
        begun = visit("lesson=2_expressiveness&lang=en", "guide")
        begun.set("class_size", 2)
        begun.press("begin_class")
        pages = [link.url for link in begun.elements("link_button") if "class=" in link.url]
        links = [begun.elements("code")[0].code_text, pages[0]]
        for_pupils, for_teacher = (link.rpartition("?")[2] for link in links)
        teacher = visit(for_teacher)
        phones = [visit(for_pupils, browser=browser) for browser in ("aa", "bb", "cc")]
        for phone, option in zip(phones, (0, -1, -1), strict=True):  # QKV, and none of them twice
            assert phone.find("train").disabled
            choose(phone, option)
        assert has(phones[1], "Your class will see")
        assert has(phones[2], "as many guesses as it expects")
        teacher.wait_for("the guesses", lambda: has(teacher, r"\*\*2\*\* have"))
        server.process.kill()
    with hosted(store=tmp_path) as server, ExitStack() as tabs:
        teacher = visit(for_teacher)
        assert has(teacher, r"\*\*2\*\* have")
        phones = [visit(for_pupils, browser=browser) for browser in ("aa", "dd")]
        assert choose(phones[0], 1) == ["QKV"]
        assert has(phones[0], "Your class will see")
        assert has(phones[1], "as many guesses as it expects")
        teacher.press("train")
        for tab in (teacher, *phones):
            tab.wait_for("the judgement", lambda tab=tab: has(tab, "of 2 in your class guessed"))
            assert tab.exceptions == []
        lines = server.log().splitlines()
        first = next(n for n, line in enumerate(lines) if '"server started"' in line)
        events = {json.loads(line)["event"] for line in lines[first:]}
    assert "experiment finished" in events
    assert events.isdisjoint({"not guarded", "unexpected error", "unexpected warning"})
