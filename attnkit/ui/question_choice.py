"""Which question or claim a visitor has open, and how that follows the link.

The link is `?question=` with a question's id, or `?claim=` with a claim's, or `all`.
"""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from attnkit.claims import CLAIMS
from attnkit.evidence.questions import QUESTIONS, Question
from attnkit.ui.address import Linked

ALL = "all"
"""What is open when it is no question: all claims."""

VIEW, CLAIM = "asked_view", "asked_claim"
"""Keys of the widgets that choose."""

_LONGEST = 40
"""Letters of a faulty link that are said."""


def question_of(name: str) -> Question | None:
    """By its id."""
    return next((question for question in QUESTIONS if question.id == name), None)


@dataclass
class QuestionChoice(Linked):
    """One visitor's choice.

    Attributes:
        view: a question's id, or `ALL`.
        claim: of all claims, the one that is shown in full.
        problem: what was wrong with the link.
        direct: whether a claim was asked for from elsewhere, so that it comes before the others.
        version: of the table, which is made anew when a claim is chosen by something else.
    """

    view: str = QUESTIONS[0].id if QUESTIONS else ALL
    claim: str | None = None
    problem: str = ""
    direct: bool = False
    version: int = 0

    def follow(self, params: dict[str, str]) -> None:
        """Open what a link names; if there is no such thing, say so and stay."""
        self.link, self.problem = params, ""
        if "claim" in params:
            name = params["claim"]
            if name not in (ALL, *CLAIMS):
                self._complain("claim", name, [ALL, *CLAIMS])
                name = ALL
            self.open_claim(None if name == ALL else name)
        elif "question" in params:
            name = params["question"]
            if question_of(name) is None:
                self._complain("question", name, [question.id for question in QUESTIONS])
            else:
                self.view = name
        self.set_widgets()

    def open_claim(self, name: str | None) -> None:
        """Show one claim in full, or the table of all."""
        self.view, self.claim, self.direct = ALL, name, name is not None
        self.version += 1
        self.set_widgets()

    def set_widgets(self) -> None:
        """Make the widgets say what is open."""
        st.session_state[VIEW], st.session_state[CLAIM] = self.view, self.claim

    def write_link(self) -> None:
        """Make the address bar name what is open."""
        every = self.view == ALL
        self.set_link({"claim": self.claim or ALL} if every else {"question": self.view})

    def _complain(self, name: str, value: str, allowed: list[str]) -> None:
        shown = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
        self.problem = f"The link has {name}={shown!r}. Allowed: {', '.join(allowed)}."


def open_question_choice() -> QuestionChoice:
    """This visitor's choice, made from the link if there is none yet or the link has changed."""
    params = st.query_params.to_dict()
    asked: QuestionChoice | None = st.session_state.get("asked")
    coming_back = st.session_state.get("page") != "questions"  # then the address has lost it
    if asked is None:
        asked = st.session_state.asked = QuestionChoice()
        asked.follow(params)
    elif asked.is_called(params, "questions"):
        asked.follow(params)
    elif VIEW not in st.session_state or CLAIM not in st.session_state:
        if coming_back:  # widgets of a page left are gone
            asked.set_widgets()
        else:
            st.session_state.setdefault(VIEW, asked.view)
            st.session_state.setdefault(CLAIM, asked.claim)
    st.session_state.page = "questions"
    return asked
