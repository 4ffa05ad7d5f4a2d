"""“What nobody had tested” on the Questions page: new claims, failed predictions first."""

from __future__ import annotations

import streamlit as st

from attnkit.evidence.found import main_found, main_statement
from attnkit.evidence.new_claims import OUTCOMES, cache_in_words, new_records
from attnkit.evidence.record import Evidence
from attnkit.evidence.words import finding_in_words
from attnkit.figures.learning import describe_course, plot_course
from attnkit.ui import components
from attnkit.ui.evidence import ShippedEvidence
from attnkit.ui.guess import is_quiet
from attnkit.ui.markdown import plain
from attnkit.ui.question_choice import QuestionChoice

HEADINGS = dict(
    zip(
        OUTCOMES,
        (
            ":material/cancel: We predicted something else",
            ":material/check_circle: As we predicted",
            ":material/help: Undecided",
        ),
        strict=True,
    )
)
"""Headings by what became of a prediction; the icons differ, so that colour is not needed."""

KEY = (
    "Lines are means over seeds, bands the middle half of the seeds; brackets hold 95% intervals."
)
"""How to read a row."""


def show_new_claims(choice: QuestionChoice, shipped: ShippedEvidence) -> None:
    """Draw a row for every new claim that is decided, and a button for every other one."""
    if is_quiet():
        st.info("Results are hidden while you guess first. Choose a claim under “All claims”.")
        return
    found = new_records(shipped.records, shipped.verdicts)
    decided = sum(len(found[outcome]) for outcome in OUTCOMES[:2])
    with st.container(key="conclusion"):
        st.markdown(
            plain(
                f"Of {decided} predictions that are decided, {len(found['was wrong'])} were wrong."
            )
        )
    st.caption(
        "Claims of this year’s papers and models that, as far as we know, nobody had tested side "
        f"by side. We wrote each prediction down before the first run. {KEY}"
    )
    with st.container(gap="xxsmall", key="new_claims"):
        for outcome in OUTCOMES[:2]:
            for evidence in found[outcome]:
                _show_row(evidence, outcome, choice, shipped)
    _show_others(found[OUTCOMES[2]], choice)


def _show_row(
    evidence: Evidence, outcome: str, choice: QuestionChoice, shipped: ShippedEvidence
) -> None:
    """Draw what is found on a claim, its numbers, and how its variants learn."""
    claim = evidence.claim
    verdict = shipped.verdicts[claim.id]
    statement, finding = main_statement(evidence, verdict)
    left, right = st.columns([5, 6], gap="medium", vertical_alignment="center")
    with left, st.container(gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(HEADINGS[outcome])
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
        st.caption(
            plain(f"{_sentence(finding_in_words(statement, finding))} {cache_in_words(evidence)}")
        )
    figure = plot_course(evidence)
    if figure is not None:
        with right:
            components.picture(
                figure, key=f"course_{claim.id}", alt=f"{claim.title}. {describe_course(evidence)}"
            )


def _show_others(undecided: list[Evidence], choice: QuestionChoice) -> None:
    """Draw a button for each undecided claim, and links to what was found in other ways."""
    if undecided:
        st.caption(f"{HEADINGS[OUTCOMES[2]]} when all claims are read together:")
        with st.container(horizontal=True, gap="xsmall"):
            for evidence in undecided:
                st.button(
                    plain(evidence.claim.title),
                    on_click=choice.open_claim,
                    args=(evidence.claim.id,),
                    key=f"open_new_{evidence.claim.id}",
                )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
