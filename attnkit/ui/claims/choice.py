"""The question or claim that a visitor has opened, and how it follows the link.

The link is `?question=` with the id of a question or `new`, or `?claim=` with the id of a claim or
`all`. No parameters mean the first question.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from attnkit.claims import CLAIMS
from attnkit.evidence.questions import QUESTIONS, WHY
from attnkit.ui.address import Linked, LinkField, by_text

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
        problems: Problems of the link, in sentences.
        direct: Whether a link or button opened the claim, so that the table is folded.
        version: Version of the table; a new one begins when a claim is chosen outside of it.
    """

    view: str = WHY.id
    claim: str | None = None
    problems: list[str] = field(default_factory=list)
    direct: bool = False
    version: int = 0

    def follow(self, params: dict[str, str]) -> None:
        """Open the question or claim of a link; a link that names neither changes nothing."""
        self.link, self.problems = params, []
        if "claim" in params:
            name = LinkField("claim", ALL, by_text([ALL, *CLAIMS])).read(params, self.problems)
            self.open_claim(None if name == ALL else name)
        elif "question" in params or not params:
            self.view = _QUESTION.read(params, self.problems)

    def open_claim(self, name: str | None) -> None:
        """Show one claim in full, or the table of all."""
        self.view, self.claim, self.direct = ALL, name, name is not None
        self.version += 1

    def write_link(self) -> None:
        """Write the choice into the address bar."""
        self.set_link(
            {"claim": self.claim or ALL} if self.view == ALL else _QUESTION.write(self.view)
        )


_QUESTION = LinkField("question", WHY.id, by_text([*QUESTIONS, WHY.id, NEW]))
