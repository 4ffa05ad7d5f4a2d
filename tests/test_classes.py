"""Classes of a hosted copy: how guesses are counted, limits, and a class on a real server."""

import json
import re
from collections import Counter
from contextlib import ExitStack

import pytest
from crowd import SMALL, hosted
from hypothesis import given
from hypothesis import strategies as st
from visitor import HOST, Visitor
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from attnkit.service import classes as module
from attnkit.service.classes import Classes
from attnkit.ui.server.connection import NO_TEXT

GUESSES = st.lists(
    st.tuples(
        st.integers(0, 2),  # class
        st.sampled_from("pq"),  # question
        st.integers(0, 5).map(str),  # visitor
        st.none() | st.lists(st.sampled_from(["QKV", "Q=K", "none"]), max_size=3),
    ),
    max_size=40,
)


@given(GUESSES)
def test_the_last_guess_of_each_visitor_counts_once_in_its_class(guesses):
    """An empty one takes it back; after a training (None), that of visitor 0 for all, it stays."""
    classes, expected, settled = Classes(), {}, set()
    rooms = [classes.begin(f"lesson {k}", "owner") for k in range(3)]
    for k, question, visitor, options in guesses:
        about = expected.setdefault((k, question), {})
        if options is None:
            classes.settle(rooms[k].code, question, "" if visitor == "0" else visitor)
            if visitor == "0" or about.get(visitor):
                settled.add((k, question, visitor))
            continue
        classes.guess(rooms[k].code, question, visitor, options)
        if settled.isdisjoint({(k, question, "0"), (k, question, visitor)}):
            about[visitor] = frozenset(options)
    for k, room in enumerate(rooms):
        assert classes.find(room.code) is classes.find(room.teacher_code) is room
        for question in "pq":
            counted = Counter(filter(None, expected.get((k, question), {}).values()))
            assert classes.guesses(room.code, question) == counted
            assert classes.is_closed(room.code, question) == ((k, question, "0") in settled)
    classes.guess("no class", "p", "0", ["QKV"])
    assert classes.find("no class") is None
    assert not classes.guesses("no class", "p")


def test_whoever_begins_most_classes_loses_the_one_used_longest_ago(monkeypatch):
    """Visitors and questions of one class are limited, too; those that are counted may change."""
    for name, most in {"CLASSES": 4, "VISITORS": 3, "QUESTIONS": 2}.items():
        monkeypatch.setattr(module, f"MOST_{name}", most)
    classes = Classes()
    one, *many = (classes.begin("lesson", owner) for owner in ("a", "b", "b", "b"))
    classes.find(many[0].teacher_code)
    new = classes.begin("lesson", "c")
    known = [room for room in (one, *many, new) if classes.find(room.code)]
    assert known == [one, many[0], many[2], new]
    for visitor in "01234":
        classes.guess(one.code, "p", visitor, ["QKV"])
    classes.guess(one.code, "p", "0", ["Q=K"])
    assert classes.guesses(one.code, "p") == {frozenset(["QKV"]): 2, frozenset(["Q=K"]): 1}
    for question in "qrs":
        classes.guess(one.code, question, "0", ["QKV"])
    counted = [classes.guesses(one.code, question).total() for question in "pqrs"]
    assert counted == [0, 0, 1, 1]
    # A visitor finds the class begun last with a lesson again, however often another is used.
    classes = Classes()
    assert classes.begun("lesson", "anna") is None
    old, new = (classes.begin("lesson", "school", "anna") for _ in range(2))
    other = classes.begin("lesson 2", "school", "anna")
    classes.find(old.code)
    assert classes.begun("lesson", "anna") is new
    assert classes.begun("lesson 2", "anna") is other
    assert classes.begun("lesson", "bert") is None
    for _ in range(2):
        classes.begin("lesson", "school", "bert")
    assert classes.begun("lesson", "anna") is old  # the server forgot the one used longest ago


@pytest.mark.server
def test_a_class_of_three_guesses_trains_and_sees_the_result():
    """A teacher begins a class, two pupils guess and train, and all see who guessed right."""
    with hosted() as server, ExitStack() as tabs:

        def visit(link, page=""):
            return tabs.enter_context(Visitor(server.port, link, page))

        def has(tab, words):
            return re.search(words, " ".join(tab.texts()))

        begun = visit("lesson=1_two_spaces", "guide")
        begun.press("begin_class")
        pupils_code = begun.elements("code")[0].code_text.rpartition("=")[2]
        pages = [link.url for link in begun.elements("link_button") if "class=" in link.url]
        teacher = visit(f"{SMALL}&class={pages[0].rpartition('=')[2]}")
        pupils = [visit(f"{SMALL}&class={pupils_code}") for _ in range(2)]
        for pupil, option in zip(pupils, (0, -1), strict=True):  # QKV, and none of them
            assert pupil.find("train").disabled
            (key,) = (key for key in pupil.user_keys() if key.startswith("guess_"))
            pupil.set(key, [pupil.find(key).options[option].content])
        teacher.wait_for("the guesses", lambda: has(teacher, r"\*\*2\*\* have"))
        stranger = {"origin": f"http://{HOST}:{server.port}", "subprotocols": ["streamlit"]}
        with connect(f"ws://{HOST}:{server.port}/_stcore/stream", proxy=None, **stranger) as opened:
            opened.send("no page sends text")
            with pytest.raises(ConnectionClosed) as closed:
                list(opened)
        assert closed.value.rcvd.code == NO_TEXT
        for tab in (*pupils, teacher):  # so few steps solve nothing
            tab.press("train")
            words = r"\*\*1 of 2 in your class"
            tab.wait_for("the judgement", lambda tab=tab, words=words: has(tab, words))
            assert tab.exceptions == []
        lines = server.log().splitlines()
        first = next(n for n, line in enumerate(lines) if '"server started"' in line)
        events = {json.loads(line)["event"] for line in lines[first:]}
    assert "experiment finished" in events
    assert events.isdisjoint({"not guarded", "unexpected error", "unexpected warning"})
