"""Lessons, the class that a session has joined by its link, and how its visitor stands in it.

A class begins on the page of a lesson in the Guide. Its link is short, so that it can be typed from
a projector: it has the code of the class and the language of the teacher, and opens the lesson's
Lab. The code begins with the first character of the lesson's name, so that a link whose class is
gone still opens the lesson. The code of the teacher opens the same Lab as a page to project, which
shows the guesses.

A translated lesson is a whole file, in the folder of its language: `docs/lessons/de`. Where there
is none, the lesson is in English.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.experiment.links import read_link
from attnkit.foundation.language import ENGLISH, language, tr
from attnkit.foundation.settings import message_of
from attnkit.service.classes import USUAL_PUPILS, Classroom, Guess, Standing
from attnkit.service.jobs import Job
from attnkit.service.server import server_settings
from attnkit.service.store import Unavailable
from attnkit.ui.address import CLASS, LANGUAGE, QUIET, LinkField, shortened, without_kept
from attnkit.ui.markdown import plain
from attnkit.ui.routing import PROJECTOR
from attnkit.ui.server.launch import PORT, dashboard_script
from attnkit.ui.server.service import classes, watcher
from attnkit.ui.server.turns import session_address

_LINK_BEGINS, _LINK_ENDS = f"```text\nhttp://localhost:{PORT}/", "\n```\n"
"""Text before and after the query of the link for the class, in the file of a lesson."""


class Lesson(NamedTuple):
    """One lesson: its question, and Markdown before and after the link for a class.

    `query` is that of the link, with its "?".
    """

    title: str
    before: str
    query: str
    after: str


def introduction() -> str:
    """Return for whom the lessons are, as Markdown; empty where docs/ is missing."""
    file = _folder() / "index.md"
    return file.read_text("utf-8").split("\n\n")[1] if file.is_file() else ""


def lessons() -> dict[str, Lesson]:
    """Return the lessons by name of their file, in the order in which they are taught."""
    return _lessons(language())


def lesson_field() -> LinkField[str]:
    """Return the field of a link that opens a lesson; empty for none."""
    return LinkField("lesson", "", {name: name for name in lessons()})


@cache
def _lessons(code: str) -> dict[str, Lesson]:
    files = {file.stem: file for file in sorted(_folder().glob("?_*.md"))}
    if code != ENGLISH:
        files |= {
            name: file for name in files if (file := _folder() / code / f"{name}.md").is_file()
        }
    return {name: _read(file.read_text("utf-8")) for name, file in files.items()}


def _folder() -> Path:
    return dashboard_script().parent / "docs" / "lessons"


def _read(text: str) -> Lesson:
    title, _, body = text.removeprefix("# ").partition("\n")
    before, _, rest = body.partition(_LINK_BEGINS)
    query, _, after = rest.partition(_LINK_ENDS)
    return Lesson(title, before.strip(), query, after.strip())


SIZE = "class_size"
"""Key of the widget with the number of pupils that a new class expects."""

_JOINED = "joined_class"
"""Key in the session's state of the class that was found."""


def begin(lesson: str) -> None:
    """Begin a class with a lesson."""
    this, expected = watcher(), st.session_state.get(SIZE, USUAL_PUPILS)
    experiment = read_link(_fields(lessons()[lesson]), lambda _: None, {}).experiment
    question, owner = key_of_guess(experiment), this.address or this.visitor
    classes().begin(lesson, question, owner, this.visitor, expected)


def begun(lesson: str) -> Classroom | None:
    """Return the class that this session's visitor has begun last with a lesson, if any."""
    try:
        return classes().begun(lesson, watcher().visitor)
    except Unavailable:
        return None


def link_to(address: str, code: str) -> str:
    """Return the link that opens a class by one of its codes, in the language of this page."""
    return f"{address}?{CLASS}={code}&{LANGUAGE}={language()}"


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
    """Return the class of this session; None if there is none, or none that can be reached."""
    room = _class_or_reason()
    return room if isinstance(room, Classroom) else None


def reason_for_none() -> str:
    """Return why this session has no class although its link names one; empty otherwise."""
    reason = _class_or_reason()
    return reason if isinstance(reason, str) else ""


def _class_or_reason() -> Classroom | str:
    """Return the class of this session, or the reason why it has none, in Markdown."""
    code = st.session_state.get(CLASS)
    if code is None:
        return ""
    if names_no_lesson():
        return plain(
            tr(
                "There is no class with the code {code!r}: ask for the link once more.",
                code=shortened(code),
            )
        )
    if not server_settings().classes:
        return tr("This copy collects no guesses: yours is for you alone.")
    if _JOINED not in st.session_state:
        try:
            room = classes().find(code)
        except Unavailable as error:
            return plain(
                tr(
                    "The class cannot be reached now: {reason}. Until then, your guess is for you "
                    "alone.",
                    reason=tr(message_of(error)),
                )
            )
        if room is None:
            return plain(
                tr(
                    "There is no class with the code {code!r}, or no longer: ask for the link once "
                    "more. Without a class, your guess is for you alone.",
                    code=shortened(code),
                )
            )
        st.session_state[_JOINED] = room
    joined_class: Classroom = st.session_state[_JOINED]
    return joined_class


def leads() -> bool:
    """Return whether this session shows the teacher's page of its class."""
    room = joined()
    return room is not None and room.teacher_code == st.session_state[CLASS]


def names_no_lesson() -> bool:
    """Return whether the link names a class whose lesson is not known: no task can be shown."""
    return CLASS in st.session_state and not lesson_link()


def lesson_link() -> dict[str, str]:
    """Return the fields of the link of the lesson that this session's class has, if any.

    Its name begins like the code of the class, also if there is no such class.
    """
    initial = st.session_state.get(CLASS, "")[:1]
    named = (one for name, one in lessons().items() if initial and name[0] == initial)
    lesson = next(named, None)
    return {} if lesson is None else _fields(lesson)


def _fields(lesson: Lesson) -> dict[str, str]:
    return without_kept(dict(parse_qsl(lesson.query.removeprefix("?"))))


def key_of_guess(experiment: Experiment) -> str:
    """Return the key of guesses about an experiment; it is the same for all first seeds."""
    return experiment.replace(first_seed=0).hash


def standing(experiment: Experiment, guess: Iterable[str] | None = None) -> Standing | None:
    """Return how this session's visitor stands in its class; None if it cannot be reached.

    On the page of the teacher, the class then guesses about the experiment.

    Args:
        guess: The guess of the visitor, to count it; None if it is not to be counted.
    """
    room, about = joined(), key_of_guess(experiment)
    if room is None:
        return None
    who = room.code, about, watcher().visitor, session_address()
    try:
        found = classes().standing(*who) if guess is None else classes().guess(*who, guess)
        if found is not None and not found.is_asked and leads():
            classes().ask(room.code, about)
            found = classes().standing(*who)
    except Unavailable:
        return None
    if found is None:  # the server has forgotten the class
        st.session_state.pop(_JOINED, None)
    return found


def note_training(job: Job, found: Standing) -> None:
    """Let the guess of this session's visitor stay as it is; on a teacher's page, those of all.

    The pages of the pupils then show the teacher's run as soon as it is finished.
    """
    room, about = joined(), key_of_guess(job.experiment)
    if room is None:
        return
    try:
        if leads():
            seed = job.experiment.first_seed if job.state == "finished" else None
            if not found.is_closed or seed not in (None, found.seed):
                classes().close(room.code, about, seed)
        elif found.guess and found.takes_guesses:
            classes().settle(room.code, about, watcher().visitor)
    except Unavailable:  # the page is drawn anew, and tries again
        return


def counted(experiment: Experiment) -> Counter[Guess]:
    """Return how many visitors of this session's class have each guess about an experiment."""
    room = joined()
    try:
        about = key_of_guess(experiment)
        return Counter() if room is None else classes().guesses(room.code, about)
    except Unavailable:
        return Counter()
