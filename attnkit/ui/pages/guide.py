"""The Guide: what Q, K and V are, a tour of the Lab, experiments, lessons, what the words mean."""

from __future__ import annotations

from typing import Literal

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.foundation.language import tr
from attnkit.service.classes import LEAST_PUPILS, MOST_PUPILS, USUAL_PUPILS
from attnkit.service.server import server_settings
from attnkit.ui import components, words
from attnkit.ui.address import dashboard_address, with_language
from attnkit.ui.lab import classroom
from attnkit.ui.lab.classroom import lesson_field, lessons
from attnkit.ui.lab.guess import awaits_first_run, stop_before_first_run
from attnkit.ui.lab.lab import lab_link
from attnkit.ui.lab.presets import PRESETS, Preset, begin_in_lab
from attnkit.ui.lab.share import reachable
from attnkit.ui.language import page_link
from attnkit.ui.routing import require_route
from attnkit.ui.widgets import bound, warn_once


def draw() -> None:
    """Draw the Guide, or the lesson that the link names."""
    require_route()
    st.session_state.page = "guide"
    problems: list[str] = []
    name = lesson_field().read(st.query_params.to_dict(), problems)
    warn_once(problems)
    if name:
        st.query_params["lesson"] = name  # a link of the Guide to itself leaves the address alone
        _show_lesson(name)
    else:
        _show_guide()


def _show_guide() -> None:
    st.title(tr("Guide"), anchor=False)
    with st.container(key="conclusion"):
        st.markdown(tr("Attention looks tokens up by likeness. Why does it need three matrices?"))
    st.markdown(
        tr(
            "Every token makes three vectors out of its embedding $x$: a **query** $q = xW_Q$ "
            "(what it looks for), a **key** $k = xW_K$ (what it is found by) and a **value** "
            "$v = xW_V$ (what it hands over). It receives the values of the tokens whose keys fit "
            "its query: $\\mathrm{softmax}(q k^\\top/\\sqrt{d})\\,v$. The Lab trains five ways to "
            "share these matrices side by side, from the same first numbers and on the same data."
        )
    )
    label = tr("Take the tour: six steps in the Lab")
    if st.button(label, type="primary", icon=":material/tour:"):
        begin_in_lab()
    components.glossary(Experiment(), key="glossary")
    with st.container(horizontal=True, vertical_alignment="center"):
        page_link("questions", tr("The answers"), icon=":material/help:")
        page_link("variants", tr("All variants"), icon=":material/category:")
        for name in list(lessons())[:1]:  # there are none where docs/ is missing
            first = {"lesson": name}
            label, icon = tr("Five lessons for a class"), ":material/school:"
            page_link("guide", label, icon=icon, query_params=first)
    _show_presets()
    with st.expander(tr("What the words mean")):
        words.glossary()


def _show_presets() -> None:
    st.subheader(tr("Predict, then train"), anchor=False)
    titles = [preset.title for preset in PRESETS]
    chosen = st.pills(
        tr("Experiments"),
        titles,
        format_func=tr,
        default=titles[0],
        required=True,
        key="preset",
        wrap=True,
        label_visibility="collapsed",
        persist_state="session",  # Back from the Lab shows it again
    )
    _show_preset(PRESETS[titles.index(chosen)] if chosen in titles else PRESETS[0])


def _show_preset(preset: Preset) -> None:
    with st.container(border=True, key="preset_card"):
        st.markdown(f"**{tr(preset.title)}**  \n{tr(preset.guess)}")
        lab_link(tr("Set it up in the Lab"), preset.params)
        if not awaits_first_run():  # it tells what comes out
            with st.expander(tr("What to look at"), key=f"look_{preset.title}"):
                st.markdown(tr(preset.look))


def _show_lesson(name: str) -> None:
    listed, lesson = list(lessons()), lessons()[name]

    def open_lesson(other: str) -> None:
        st.query_params["lesson"] = other

    def close_lesson() -> None:
        st.query_params.pop("lesson", None)

    st.title(lesson.title, anchor=False)
    stop_before_first_run()  # it has the answer
    st.pills(
        tr("Lessons"),
        listed,
        format_func=lambda other: f"{listed.index(other) + 1}. {lessons()[other].title}",
        wrap=True,
        label_visibility="collapsed",
        **bound({"lesson": name}, "lesson", "lesson", open_lesson, required=True),
    )
    st.button(
        tr("Back to the Guide"),
        icon=":material/arrow_back:",
        type="tertiary",
        on_click=close_lesson,
        key="close_lesson",
    )
    st.markdown(lesson.before)
    address = dashboard_address()
    shared, warning = reachable(address)
    if warning:
        st.caption(warning)
    if server_settings().classes:
        _show_class(name, address, shared)
        st.markdown(tr("**Link that does not collect guesses**"))
    st.code(shared + lesson.query, language=None, wrap_lines=True)
    label = tr("See it as the class will")
    st.link_button(label, with_language(address + lesson.query), icon=":material/science:")
    st.markdown(lesson.after)


def _show_class(name: str, address: str, shared: str) -> None:
    """Let the teacher begin a class with a lesson; draw its link and that of the page to project.

    `shared` is the address of the dashboard that others can open.
    """
    room = classroom.begun(name)
    if room is None:
        label = tr("Get a short link that collects the class's guesses")
        help_text = tr(
            "Begins a new class: a short link, and a page to project, which shows how many have "
            "guessed what. Guesses are numbers without names."
        )
        _begin_button(
            name, label, ":material/groups:", help_text, key="begin_class", type="primary"
        )
        return
    with st.container(key="class_link"):  # it is not printed
        st.markdown(tr("**Link that collects the class's guesses**"))
        st.code(classroom.link_to(shared, room.code), language=None, wrap_lines=True)
        page = classroom.link_to(address, room.teacher_code)
        label, icon = tr("Open the page to project"), ":material/cast:"
        st.link_button(label, page, icon=icon, type="primary")
        st.caption(
            tr(
                "It shows this link with a QR code, and how many have guessed. Press Train there "
                "when all have: the guesses then stand beside the result, and the phones show the "
                "result, too."
            )
        )
        label = tr("Begin another class")
        help_text = tr("With a link of its own. The present class stays open where it is open.")
        _begin_button(name, label, ":material/group_add:", help_text, key="begin_another")


def _begin_button(
    name: str,
    label: str,
    icon: str,
    help_text: str,
    *,
    key: str,
    type: Literal["primary", "tertiary"] = "tertiary",
) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.number_input(
            tr("Pupils"),
            LEAST_PUPILS,
            MOST_PUPILS,
            USUAL_PUPILS,
            width=120,
            key=classroom.SIZE,
            help=tr(
                "The class counts at most this many guesses from one network, such as that of your "
                "school."
            ),
        )
        st.button(
            label,
            type=type,
            icon=icon,
            on_click=classroom.begin,
            args=(name,),
            key=key,
            help=help_text,
        )
