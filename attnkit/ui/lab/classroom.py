"""The class that a session has joined by its link, and its guesses as they are counted.

A class begins on the page of a lesson in the Guide. Its link is short, so that it can be typed from
a projector: it has the code of the class alone, and opens the lesson's Lab. The code of the teacher
opens the same Lab as a page to project, which shows the guesses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from urllib.parse import parse_qsl

import streamlit as st

from attnkit.experiment.links import GROUPS
from attnkit.foundation.language import tr
from attnkit.service.classes import Classes, Classroom, Guess
from attnkit.service.server import server_settings
from attnkit.ui.address import CLASS, QUIET, shortened, without_kept
from attnkit.ui.page_tools import PROJECTOR
from attnkit.ui.reference.lessons import lessons
from attnkit.ui.server.presence import watcher
from attnkit.ui.server.singletons import Singleton

classes = Singleton(Classes)
"""Return the classes of this server."""


def begin(lesson: str) -> None:
    """Begin a class with a lesson."""
    this = watcher()
    classes().begin(lesson, this.address or this.visitor, this.visitor)


def begun(lesson: str) -> Classroom | None:
    """Return the class that this session's visitor has begun last with a lesson, if any."""
    return classes().begun(lesson, watcher().visitor)


def join() -> None:
    """Join the class that the link names, at the first page of a session.

    All links of classes open in the quiet mode, also if there is no such class. The page to project
    opens in the projector mode.
    """
    code = st.query_params.get(CLASS)
    if code is not None and CLASS not in st.session_state:
        st.session_state[CLASS] = code
        st.session_state.setdefault(QUIET, True)
        if leads():
            st.session_state.setdefault(PROJECTOR, True)


def joined() -> Classroom | None:
    """Return the class of this session; None if there is none, or none any more."""
    code = st.session_state.get(CLASS)
    return classes().find(code) if code and server_settings().classes else None


def reason_for_none() -> str:
    """Return why this session has no class although its link names one; empty otherwise."""
    code = st.session_state.get(CLASS)
    if code is None or joined() is not None:
        return ""
    if not server_settings().classes:
        return tr("This copy collects no guesses: yours is for you alone.")
    return tr(
        "There is no class with the code {code!r}, or no longer: ask for the link once more. "
        "Without a class, your guess is for you alone.",
        code=shortened(code),
    )


def lesson_link() -> dict[str, str]:
    """Return the fields of the link of the lesson that this session's class has.

    If the link names a class that is not there, all controls are hidden, as in a class.
    """
    room = joined()
    if room is None and CLASS in st.session_state:
        return {"hide": ",".join(GROUPS)}
    query = lessons()[room.lesson].query.removeprefix("?") if room is not None else ""
    return without_kept(dict(parse_qsl(query)))


def leads() -> bool:
    """Return whether this session shows the teacher's page of its class."""
    room = joined()
    return room is not None and room.teacher_code == st.session_state[CLASS]


def count(question: str, guess: Iterable[str]) -> None:
    """Count the guess of this session's visitor, if it has joined a class."""
    room = joined()
    if room is not None:
        classes().guess(room.code, question, watcher().visitor, guess)


def settle(question: str) -> None:
    """Let the guess of this session's visitor stay as it is; on a teacher's page, those of all."""
    room = joined()
    if room is not None:
        classes().settle(room.code, question, "" if leads() else watcher().visitor)


def is_closed(question: str) -> bool:
    """Return whether the teacher of this session's class has trained, so that no guess counts."""
    room = joined()
    return room is not None and classes().is_closed(room.code, question)


def counted(question: str) -> Counter[Guess]:
    """Return how many visitors of this session's class have each guess about a question."""
    room = joined()
    return Counter() if room is None else classes().guesses(room.code, question)
