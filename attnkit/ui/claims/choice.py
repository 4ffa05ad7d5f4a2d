"""The question or claim that a visitor has opened, and how it follows the link.

The link is `?question=` with the id of a question or `new`, or `?claim=` with the id of a claim or
`all`. No parameters mean the first question.
"""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from attnkit.claims import CLAIMS
from attnkit.evidence.questions import QUESTIONS, WHY
from attnkit.ui.address import Linked, open_choice, shortened

ALL = "all"
"""Name of the view of all claims, which is open if no question is."""

NEW = "new"
"""Name of the view of what nobody had tested."""

SHOWN = {WHY.id: WHY, **QUESTIONS}
"""The questions of the page; the first one is open if the link names nothing."""

VIEW, CLAIM = "asked_view", "asked_claim"
"""Keys of the widgets that choose the view and the claim."""


@dataclass
class QuestionChoice(Linked):
    """One visitor's choice of a question or claim.

    Attributes:
        view: Id of the question on screen, `NEW` or `ALL`.
        claim: Id of the claim that is shown in full below the table of all claims.
        problem: Problem of the link, in a sentence; empty if there is none.
        direct: Whether a link or button opened the claim, so that the table is folded.
        version: Version of the table; a new one begins when a claim is chosen outside of it.
    """

    view: str = WHY.id
    claim: str | None = None
    problem: str = ""
    direct: bool = False
    version: int = 0

    def follow(self, params: dict[str, str]) -> None:
        """Open the question or claim of a link; if there is none, note the problem."""
        self.link, self.problem = params, ""
        if "claim" in params:
            name = params["claim"]
            if name not in (ALL, *CLAIMS):
                self._complain("claim", name, [ALL, *CLAIMS])
                name = ALL
            self.open_claim(None if name == ALL else name)
        elif "question" in params:
            name = params["question"]
            if name not in (NEW, *SHOWN):
                self._complain("question", name, [*QUESTIONS, WHY.id, NEW])
            else:
                self.view = name
        elif not params:
            self.view = WHY.id
        self.set_widgets()

    def open_claim(self, name: str | None) -> None:
        """Show one claim in full, or the table of all."""
        self.view, self.claim, self.direct = ALL, name, name is not None
        self.version += 1
        self.set_widgets()

    def open_view(self, view: str) -> None:
        """Show a question, or one of the lists."""
        self.view = view
        self.set_widgets()

    def set_widgets(self) -> None:
        """Set the widgets to the choice."""
        st.session_state[VIEW], st.session_state[CLAIM] = self.view, self.claim

    def write_link(self) -> None:
        """Write the choice into the address bar."""
        link = {} if self.view == WHY.id else {"question": self.view}
        self.set_link({"claim": self.claim or ALL} if self.view == ALL else link)

    def _complain(self, name: str, value: str, allowed: list[str]) -> None:
        short = shortened(value)
        self.problem = f"The link has {name}={short!r}. Allowed: {', '.join(allowed)}."


def open_question_choice() -> QuestionChoice:
    """Return this visitor's choice, made from the link if it is new or the link has changed."""
    coming_back = st.session_state.get("page") != "questions"
    choice = open_choice("questions", "asked", QuestionChoice)
    if VIEW not in st.session_state or CLAIM not in st.session_state:
        if coming_back:  # Streamlit forgets the widgets of a page that was left
            choice.set_widgets()
        else:
            st.session_state.setdefault(VIEW, choice.view)
            st.session_state.setdefault(CLAIM, choice.claim)
    return choice
