"""Questions that people asked: a short answer, its reason, a figure and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from attnkit.claims import CLAIMS, Claim, Verdict
from attnkit.evidence import record
from attnkit.evidence.found import main_found
from attnkit.evidence.question import (
    Question,
    number_sentences,
    reason_sentences,
    short_answer,
)
from attnkit.evidence.record import Evidence, to_json
from attnkit.evidence.verdict import RULE
from attnkit.evidence.words import rises_in_words, score_in_words, seen_in_words, total_in_words
from attnkit.figures.differences import DIFFERENCES_KEY, describe_differences, plot_differences
from attnkit.figures.evidence import EVIDENCE_KEY
from attnkit.figures.evidence_report import to_html
from attnkit.figures.learning import LEARNING_KEY, NARROW, describe_learning, plot_learning
from attnkit.sweeps.shipped import load_shipped
from attnkit.sweeps.values import InvalidSweep
from attnkit.ui import components
from attnkit.ui.address import is_quiet
from attnkit.ui.capacity_choice import conclusion_of
from attnkit.ui.claim_rerun import open_reruns
from attnkit.ui.claim_rerun_area import claim_rerun_area, show_picture
from attnkit.ui.evidence import (
    BETS,
    ICONS,
    ShippedEvidence,
    claims_table,
    made_in_words,
    statement_with_verdict,
    statements_table,
    tuning_table,
    verdict_text,
)
from attnkit.ui.markdown import plain
from attnkit.ui.new_claims import show_new_claims
from attnkit.ui.question_choice import (
    ALL,
    CLAIM,
    NEW,
    SHOWN,
    VIEW,
    QuestionChoice,
    open_question_choice,
)
from attnkit.ui.routing import require_route

_COLUMNS = {
    "claim": ("Claim", 330),
    "verdict": ("Verdict", 120),
    "found": ("Found", 560),
    "predicted": ("Predicted", 115),
    "came_true": ("As predicted", 85),
    "seen": ("Seen before the prediction", 180),
    "source": ("Who says it", 260),
    "family": ("Kind", 130),
}
"""Heading and width in pixels of the columns of all claims, by their name in `claims_table`."""


def draw() -> None:
    """Draw the page."""
    require_route()
    choice = open_question_choice()
    records = record.load_shipped()
    shipped = ShippedEvidence(records, record.verdicts_of(records.values()))

    st.title("Questions", anchor=False)
    st.caption(
        "Why are there three matrices? Tiny models that were trained to find out answer this, five "
        "questions that people asked, and claims that nobody had tested."
    )
    if choice.problem:
        st.warning(plain(choice.problem), icon=":material/warning:")
        choice.problem = ""
    titles = {name: question.title for name, question in SHOWN.items()}
    titles |= {NEW: "What nobody had tested", ALL: "All claims"}
    st.pills(
        "Question",
        list(titles),
        format_func=titles.__getitem__,
        required=True,
        key=VIEW,
        label_visibility="collapsed",
        wrap=True,
    )
    choice.view = st.session_state[VIEW] or choice.view
    question = SHOWN.get(choice.view)
    if choice.view == NEW:
        show_new_claims(choice, shipped)
    elif question is None:
        show_claims(choice, shipped)
    else:
        show_question(question, choice, shipped)
    with st.expander("How verdicts are made"):
        st.markdown(RULE)
        name = choice.claim if choice.view == ALL else question and question.claims[0]
        evidence = shipped.records.get(name or "")
        if evidence is not None:
            st.caption(plain(made_in_words(evidence)))
    if not is_quiet():
        downloads(shipped)
    choice.write_link()
    components.load_plotly()


def is_hidden(name: str) -> bool:
    """Return whether what is known about a claim stays hidden until the visitor has run it."""
    rerun = open_reruns().known.get(name)
    return is_quiet() and (rerun is None or not rerun.finished)


def show_question(question: Question, choice: QuestionChoice, shipped: ShippedEvidence) -> None:
    """Draw a question with its answer and a way to train the models again.

    A visitor in the quiet mode guesses first, above the answer.
    """
    name = question.claims[0]
    reason = " ".join(reason_sentences(question, shipped.records, shipped.verdicts))

    def run() -> None:
        claim_rerun_area(CLAIMS[name], shipped, question.guess, question.guesses, reason)

    if is_quiet():
        run()
    if not is_hidden(name):
        show_answer(question, reason, choice, shipped)
    if question.asked:
        st.caption(plain(f"Asked: “{question.asked}” ({question.source})"))
    if not is_quiet():
        run()


def show_answer(
    question: Question, reason: str, choice: QuestionChoice, shipped: ShippedEvidence
) -> None:
    """Draw the short answer with its reason, a figure, numbers, and the claims it rests on."""
    name = question.claims[0]
    evidence = shipped.records.get(name)
    conclusion = short_answer(question, shipped.records, shipped.verdicts)
    if conclusion:
        with st.container(key="conclusion"):
            st.markdown(plain(conclusion))
    if reason:
        with st.container(key="reason"):
            st.markdown(plain(reason))
    left, right = st.columns([6, 5], gap="large")
    with left:
        if evidence is None:
            not_run_yet(question.claims, shipped)
        else:
            verdict = shipped.verdicts[name]
            show_picture(evidence, "shipped")
            st.caption(EVIDENCE_KEY)
            st.markdown(f"**Found.** {plain(main_found(evidence, verdict))}")
            st.caption(statement_with_verdict(evidence, verdict))
            show_learning(evidence)
    with right:
        numbers = number_sentences(question, shipped.records)
        if numbers:
            st.markdown("\n".join(["**The numbers**\n", *(f"- {plain(text)}" for text in numbers)]))
        if question.sweep:
            show_sweep(question.sweep)
    st.caption("The answer rests on these claims. Press one to see its evidence.")
    claim_buttons(question.claims, choice, shipped)


def show_sweep(name: str) -> None:
    """Draw what a shipped sweep concludes, and a link to its phase diagram."""
    try:
        result = load_shipped(name)
    except (OSError, InvalidSweep):  # the answer stands without it
        return
    x, y = list(result.sweep.axes)[:2]
    st.markdown(f"**How far it goes.** {plain(conclusion_of(result, x, y, ()).text)}")
    st.page_link(
        "pages/capacity.py",
        label="See it at every size",
        icon=":material/grid_view:",
        query_params={"sweep": name},
    )


def claim_buttons(names: Sequence[str], choice: QuestionChoice, shipped: ShippedEvidence) -> None:
    """Draw a button for each of several claims, with its verdict, that opens its evidence."""
    with st.container(horizontal=True, gap="xsmall", key="rests_on"):
        for name in names:
            verdict = shipped.verdicts.get(name)
            word = "not run yet" if verdict is None else verdict
            st.button(
                f"**{word}**: {plain(CLAIMS[name].title)}",
                icon=":material/radio_button_unchecked:" if verdict is None else ICONS[verdict],
                on_click=choice.open_claim,
                args=(name,),
                key=f"open_{name}",
            )


def not_run_yet(names: Sequence[str], shipped: ShippedEvidence) -> None:
    """Say that evidence is missing; the command that gathers it is folded."""
    missing = " ".join(name for name in names if name not in shipped.records)
    st.info("Not run yet.")
    with st.expander("For programmers"):
        st.markdown(f"To gather the evidence: `python -m attnkit claims {missing}`")


def show_learning(evidence: Evidence) -> None:
    """Draw how the arms learn, folded, if some of them were trained for long."""
    figure = plot_learning(evidence)
    if figure is None:
        return
    with st.expander("How they learn"):
        rises = rises_in_words(evidence)
        if rises:
            st.markdown(plain(rises))
        narrow = plot_learning(evidence, narrow=True)
        components.picture(
            figure,
            key="picture_learning",
            alt=describe_learning(evidence),
            narrower={NARROW: narrow} if narrow else None,
        )
        st.caption(LEARNING_KEY)


def show_claims(choice: QuestionChoice, shipped: ShippedEvidence) -> None:
    """Draw the table of all claims, and the chosen one in full."""
    with st.expander(f"All {len(CLAIMS)} claims", expanded=not choice.direct):
        all_claims(choice, shipped)
    st.selectbox(
        "Show the evidence for",
        list(CLAIMS),
        index=None,
        format_func=lambda name: CLAIMS[name].title,
        placeholder="Choose a claim",
        key=CLAIM,
        on_change=lambda: choice.open_claim(st.session_state[CLAIM]),
    )
    if choice.claim is not None:
        show_claim(CLAIMS[choice.claim], choice, shipped)


def all_claims(choice: QuestionChoice, shipped: ShippedEvidence) -> None:
    """Draw a table that can be sorted; choosing a row opens its claim."""
    columns = ["claim", "source"] if is_quiet() else ["claim", "verdict", "found"]
    if shipped.verdicts and not is_quiet():
        records = list(shipped.records.values())
        st.markdown(f"{total_in_words(records)} Tick a row to see its evidence.")
        if st.toggle("Show all columns", key="all_columns"):
            columns = list(_COLUMNS)
            st.caption(plain(score_in_words(records)))
    names, key = list(CLAIMS), f"claims_{choice.version}_{len(columns)}"

    def take_row() -> None:
        rows = st.session_state[key].selection.rows
        if rows:
            choice.open_claim(names[rows[0]])
            choice.direct = False

    st.dataframe(
        claims_table(shipped.records, shipped.verdicts)[columns],
        hide_index=True,
        key=key,
        height=460,
        on_select=take_row,
        selection_mode="single-row",
        selection_default={
            "selection": {"rows": [] if choice.claim is None else [names.index(choice.claim)]}
        },
        column_config={
            name: st.column_config.TextColumn(_COLUMNS[name][0], width=_COLUMNS[name][1])
            for name in columns
        },
        alt="All claims: " + ", ".join(_COLUMNS[name][0] for name in columns),
    )


def show_claim(claim: Claim, choice: QuestionChoice, shipped: ShippedEvidence) -> None:
    """Draw what is found on a claim, and a way to train its models again.

    A visitor in the quiet mode guesses first, above what is found.
    """

    def run() -> None:
        question = f"What will {claim.quick_seeds} new seeds say about this claim?"
        claim_rerun_area(claim, shipped, question, BETS, reason)

    evidence = shipped.records.get(claim.id)
    reason = "" if evidence is None else claim.reason
    st.subheader(plain(claim.title), anchor=False)
    if claim.is_new:
        st.button(
            "Back to what nobody had tested",
            icon=":material/arrow_back:",
            type="tertiary",
            on_click=choice.open_view,
            args=(NEW,),
            key="back_to_new",
        )
    if evidence is None or is_hidden(claim.id):
        show_source(claim)
    if is_quiet():
        run()
    if evidence is None:
        not_run_yet([claim.id], shipped)
    elif not is_hidden(claim.id):
        show_evidence(evidence, shipped.verdicts[claim.id])
    if not is_quiet():
        run()


def show_source(claim: Claim) -> None:
    """Write the question of a claim, and who says what about it."""
    st.markdown(plain(claim.question))
    st.caption(plain(f"{claim.says} ({claim.source})"))


def show_evidence(evidence: Evidence, verdict: Verdict) -> None:
    """Draw what is found on a claim, its verdict and reason, the figure, and all details."""
    claim = evidence.claim
    with st.container(key="conclusion"):
        st.markdown(plain(main_found(evidence, verdict)))
    predicted = ", as predicted"
    if verdict != claim.expected:
        predicted = f"; we predicted “{claim.expected}”"
    st.markdown(f"{verdict_text(verdict)}{predicted}. {plain(claim.reason)}")
    left, right = st.columns([6, 5], gap="large")
    with left:
        show_picture(evidence, "shipped")
        st.caption(EVIDENCE_KEY)
    with right:
        show_source(claim)
        st.caption(statement_with_verdict(evidence, verdict))
    with st.expander("What was predicted, and what had been seen before"):
        st.markdown(f"**Prediction:** {plain(claim.prediction)}")
        st.markdown(f"**Seen before:** {plain(seen_in_words(claim, evidence))}")
    with st.expander("All statements, and their seeds one by one"):
        st.markdown(statements_table(evidence))
        components.picture(
            plot_differences(evidence),
            key="picture_differences",
            alt=describe_differences(evidence),
        )
        st.caption(DIFFERENCES_KEY)
    show_learning(evidence)
    with st.expander("How learning rates were found"):
        st.markdown(tuning_table(evidence.tuned))


def downloads(shipped: ShippedEvidence) -> None:
    """Draw the buttons that download all evidence."""
    records = list(shipped.records.values())
    if not records:
        return
    with st.container(horizontal=True, key="claim_downloads"):
        st.download_button(
            "All evidence as JSON",
            lambda: to_json(records),
            "attnkit-claims.json",
            "application/json",
            icon=":material/download:",
            on_click="ignore",
            key="claims_json",
        )
        st.download_button(
            "The report as one HTML page",
            lambda: to_html(records),
            "attnkit-claims.html",
            "text/html",
            icon=":material/download:",
            on_click="ignore",
            key="claims_html",
        )
