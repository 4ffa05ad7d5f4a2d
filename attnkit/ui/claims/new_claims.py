"""“What nobody had tested” on the Questions page: new claims, failed predictions first."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from attnkit.evidence.presentation import ClaimInWords, Outcome, cache_in_words, new_claims
from attnkit.evidence.record import Records
from attnkit.evidence.words import effect_in_words, main_statement
from attnkit.figures.learning import COURSE_KEY, NARROW, describe_learning, plot_learning
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.words import capitalised
from attnkit.ui import components
from attnkit.ui.address import is_quiet
from attnkit.ui.claims.choice import QuestionChoice
from attnkit.ui.markdown import plain

HEADINGS = {
    Outcome.WRONG: mark(":material/cancel: We predicted something else"),
    Outcome.TRUE: mark(":material/check_circle: As we predicted"),
}
"""Heading by outcome of a decided prediction; icons differ, so that colour is not needed."""


def show_new_claims(choice: QuestionChoice, records: Records) -> None:
    """Draw a row for every decided new claim and a button for every undecided one."""
    if is_quiet():
        st.info(
            tr(
                "“Guess first” is on, so this list is hidden. Guess the result of a claim under "
                "“All claims”, or switch “Guess first” off in the Lab."
            )
        )
        return
    if not records:
        st.info(tr("Not run yet."))
        return
    groups = new_claims(records)
    n_wrong, n_true = (len(groups[outcome]) for outcome in (Outcome.WRONG, Outcome.TRUE))
    with st.container(key="conclusion"):
        st.markdown(
            tr_n(
                "{n} of our {total} decided predictions was wrong.",
                "{n} of our {total} decided predictions were wrong.",
                n_wrong,
                total=n_wrong + n_true,
            )
        )
    st.caption(
        tr(
            "As far as we know, nobody had tested these claims on such small tasks. We wrote each "
            "prediction down before the runs that count. {how_to_read} Square brackets hold 95% "
            "intervals.",
            how_to_read=tr(COURSE_KEY),
        )
    )
    with st.container(gap="medium", key="new_claims"):
        for outcome in (Outcome.WRONG, Outcome.TRUE):
            for words in groups[outcome]:
                _show_row(words, HEADINGS[outcome], choice)
    _show_undecided(groups[Outcome.OPEN], choice)


def _show_row(words: ClaimInWords, heading: str, choice: QuestionChoice) -> None:
    """Draw the finding on a claim, its numbers, and the learning curves of its variants."""
    claim, evidence = words.claim, words.evidence
    if evidence is None or words.verdict is None:
        return
    statement, finding = main_statement(evidence, words.verdict)
    difference = capitalised(effect_in_words(statement, finding))
    left, right = st.columns([5, 6], gap="medium", vertical_alignment="center")
    with left, st.container(gap="xxsmall"):
        with st.container(horizontal=True, vertical_alignment="center"):
            prediction = tr("Our prediction: {prediction}", prediction=tr(claim.prediction))
            st.caption(tr(heading), help=plain(prediction))
            st.button(
                tr("Evidence"),
                icon=":material/arrow_forward:",
                type="tertiary",
                on_click=choice.open_claim,
                args=(claim.id,),
                key=f"open_new_{claim.id}",
                help=plain(tr(claim.title)),
            )
        st.markdown(f"**{plain(words.found)}**")
        numbers = f"{difference}. " if difference else ""  # some never solve it
        st.caption(plain(f"{numbers}{cache_in_words(claim)}"))
    figure = plot_learning(evidence, statement)
    if figure is not None:
        with right:
            components.picture(
                figure,
                key=f"course_{claim.id}",
                alt=f"{tr(claim.title)}. {describe_learning(evidence, statement)}",
                narrower={NARROW: plot_learning(evidence, statement, narrow=True)},
            )


def _show_undecided(undecided: Sequence[ClaimInWords], choice: QuestionChoice) -> None:
    """Draw a button for each undecided claim."""
    if not undecided:
        return
    st.caption(tr(":material/help: Undecided. Press a claim to see its evidence."))
    with st.container(horizontal=True, gap="xsmall"):
        for words in undecided:
            st.button(
                plain(tr(words.claim.title)),
                on_click=choice.open_claim,
                args=(words.claim.id,),
                key=f"open_new_{words.claim.id}",
            )
