"""“What nobody had tested” on the Questions page: new claims, failed predictions first."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from attnkit.evidence.found import main_found, main_statement
from attnkit.evidence.new_claims import OPEN, TRUE, WRONG, cache_in_words, new_records
from attnkit.evidence.record import Evidence
from attnkit.evidence.words import rows_of
from attnkit.figures.learning import COURSE_KEY, NARROW, describe_course, plot_course
from attnkit.ui import components
from attnkit.ui.address import is_quiet
from attnkit.ui.evidence import ShippedEvidence
from attnkit.ui.markdown import plain
from attnkit.ui.question_choice import QuestionChoice

HEADINGS = {
    WRONG: ":material/cancel: We predicted something else",
    TRUE: ":material/check_circle: As we predicted",
    OPEN: ":material/help: Undecided",
}
"""Heading by outcome of a prediction; the icons differ, so that colour is not needed."""


def show_new_claims(choice: QuestionChoice, shipped: ShippedEvidence) -> None:
    """Draw a row for every decided new claim and a button for every undecided one."""
    if is_quiet():
        st.info(
            "“Guess first” is on, so this list is hidden. Guess the result of a claim under “All "
            "claims”, or switch “Guess first” off in the Lab."
        )
        return
    found = new_records(shipped.records, shipped.verdicts)
    if not any(found.values()):
        st.info("Not run yet.")
        return
    n_wrong, n_decided = len(found[WRONG]), len(found[WRONG] + found[TRUE])
    with st.container(key="conclusion"):
        verb = "was" if n_wrong == 1 else "were"
        st.markdown(f"{n_wrong} of our {n_decided} decided predictions {verb} wrong.")
    st.caption(
        "As far as we know, nobody had tested these claims on such small tasks. We wrote each "
        f"prediction down before the runs that count. {COURSE_KEY} Square brackets hold 95% "
        "intervals."
    )
    with st.container(gap="xxsmall", key="new_claims"):
        for outcome in (WRONG, TRUE):
            for evidence in found[outcome]:
                _show_row(evidence, outcome, choice, shipped)
    _show_undecided(found[OPEN], choice)


def _show_row(
    evidence: Evidence, outcome: str, choice: QuestionChoice, shipped: ShippedEvidence
) -> None:
    """Draw what is found on a claim, its numbers, and how its variants learn."""
    claim = evidence.claim
    verdict = shipped.verdicts[claim.id]
    statement, _ = main_statement(evidence, verdict)
    difference = rows_of(evidence)[evidence.statements.index(statement)].mean
    left, right = st.columns([5, 6], gap="medium", vertical_alignment="center")
    with left, st.container(gap="xxsmall"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(HEADINGS[outcome], help=plain(f"Our prediction: {claim.prediction}"))
            st.button(
                "Evidence",
                icon=":material/arrow_forward:",
                type="tertiary",
                on_click=choice.open_claim,
                args=(claim.id,),
                key=f"open_new_{claim.id}",
                help=plain(claim.title),
            )
        st.markdown(f"**{plain(main_found(evidence, verdict))}**")
        numbers = f"Mean difference {difference}. " if difference else ""  # some never solve it
        st.caption(plain(f"{numbers}{cache_in_words(claim)}"))
    figure = plot_course(evidence, statement)
    if figure is not None:
        alt = f"{claim.title}. {describe_course(evidence, statement)}"
        narrow = plot_course(evidence, statement, narrow=True)
        with right:
            components.picture(
                figure,
                key=f"course_{claim.id}",
                alt=alt,
                narrower={NARROW: narrow} if narrow else None,
            )


def _show_undecided(undecided: Sequence[Evidence], choice: QuestionChoice) -> None:
    """Draw a button for each undecided claim."""
    if not undecided:
        return
    st.caption(f"{HEADINGS[OPEN]}. Press a claim to see its evidence.")
    with st.container(horizontal=True, gap="xsmall"):
        for evidence in undecided:
            st.button(
                plain(evidence.claim.title),
                on_click=choice.open_claim,
                args=(evidence.claim.id,),
                key=f"open_new_{evidence.claim.id}",
            )
