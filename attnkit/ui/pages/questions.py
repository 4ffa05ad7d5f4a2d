"""Questions that people asked, answered in three sentences that rest on trained models."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from attnkit.claims import CLAIMS, Claim
from attnkit.evidence import record
from attnkit.evidence.questions import QUESTIONS, Question, answer_sentences
from attnkit.evidence.record import Evidence, to_json
from attnkit.evidence.verdict import RULE
from attnkit.evidence.words import rises_in_words, score_in_words, seen_in_words
from attnkit.figures.differences import DIFFERENCES_KEY, describe_differences, plot_differences
from attnkit.figures.evidence import EVIDENCE_KEY
from attnkit.figures.evidence_report import to_html
from attnkit.figures.learning import LEARNING_KEY, describe_learning, plot_learning
from attnkit.ui import components
from attnkit.ui.claim_rerun import open_reruns
from attnkit.ui.claim_rerun_area import claim_rerun_area, show_picture
from attnkit.ui.evidence import (
    BETS,
    ICONS,
    ShippedEvidence,
    claim_in_words,
    claims_table,
    shipped_with,
    statements_table,
    tuning_table,
    verdict_text,
)
from attnkit.ui.guess import is_quiet
from attnkit.ui.markdown import plain
from attnkit.ui.question_choice import (
    ALL,
    CLAIM,
    VIEW,
    QuestionChoice,
    open_question_choice,
    question_of,
)
from attnkit.ui.routing import require_route


def draw() -> None:
    """Draw the page."""
    require_route()
    choice = open_question_choice()
    records = record.load_shipped()
    shipped = ShippedEvidence(records, record.verdicts_of(records.values()))

    st.title("Questions", anchor=False)
    st.markdown(
        "Five questions that people asked about queries, keys and values, and what tiny models "
        "say, most of one layer and one head, that were trained to find out. Train them again "
        "yourself."
    )
    st.caption(
        "QKV: three matrices. Q=K, K=V: those two share one. Q=K=V: one for all. V=I: no value "
        "matrix. A seed is one repetition of the training, with data and first numbers of its own."
    )
    if choice.problem:
        st.warning(plain(choice.problem), icon=":material/warning:")
        choice.problem = ""
    titles = {question.id: question.title for question in QUESTIONS} | {ALL: "All claims"}
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
    question = question_of(choice.view)
    if question is None:
        show_claims(choice, shipped)
    else:
        show_question(question, choice, shipped)
    with st.expander("How verdicts are made"):
        st.markdown(RULE)
    downloads(shipped)
    choice.write_link()
    components.markup("", key="styles")  # also where no figure brings them
    components.load_plotly()


def show_question(question: Question, choice: QuestionChoice, shipped: ShippedEvidence) -> None:
    """Draw a question with its answer, a figure, and a way to train the models again."""
    name = question.claims[0]
    evidence, rerun = shipped.records.get(name), open_reruns().known.get(name)
    hidden = is_quiet() and (rerun is None or not rerun.finished)
    left, right = st.columns([6, 5], gap="large")
    with left:
        st.markdown(f"> {plain(question.asked)}\n>\n> {plain(f'— {question.source}')}")
        sentences = answer_sentences(question, shipped.records, shipped.verdicts)
        if hidden:
            st.info("The answer is hidden until you have guessed below and run it.")
        elif sentences:
            with st.container(key="answer"):
                st.markdown("\n\n".join(map(plain, sentences)))
        else:
            not_run_yet(question.claims, shipped)
    with right:
        if evidence is not None and not hidden:
            st.markdown(claim_in_words(evidence, shipped.verdicts[name]))
            show_picture(evidence, "shipped")
            st.caption(plain(f"{EVIDENCE_KEY} {shipped_with(evidence)}"))
            show_learning(evidence)
    if not hidden:
        st.caption("It rests on these claims. Press one to see its evidence.")
        claim_buttons(question.claims, choice, shipped)
    claim_rerun_area(CLAIMS[name], shipped, question.guess, question.guesses)


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
    """Show the command that gathers the missing evidence."""
    missing = " ".join(name for name in names if name not in shipped.records)
    st.info(f"Not run yet. To gather the evidence: `python -m attnkit claims {missing}`")


def show_learning(evidence: Evidence) -> None:
    """Draw how the arms learn, if some of them were trained for long."""
    figure = plot_learning(evidence)
    if figure is None:
        return
    rises = rises_in_words(evidence)
    if rises:
        st.markdown(plain(rises))
    components.picture(figure, key="picture_learning", alt=describe_learning(evidence))
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
        show_claim(CLAIMS[choice.claim], shipped)


def all_claims(choice: QuestionChoice, shipped: ShippedEvidence) -> None:
    """Draw a table that can be sorted; choosing a row opens its claim."""
    names, key = list(CLAIMS), f"claims_{choice.version}"
    if shipped.verdicts:
        score = score_in_words(list(shipped.records.values()))
        st.markdown(f"{score} Tick a row to see its evidence.")

    def take_row() -> None:
        rows = st.session_state[key].selection.rows
        if rows:
            choice.open_claim(names[rows[0]])
            choice.direct = False

    st.dataframe(
        claims_table(shipped.records, shipped.verdicts),
        hide_index=True,
        key=key,
        height=460,
        on_select=take_row,
        selection_mode="single-row",
        selection_default={
            "selection": {"rows": [] if choice.claim is None else [names.index(choice.claim)]}
        },
        column_config={
            "claim": st.column_config.TextColumn("Claim", width=230),
            "verdict": st.column_config.TextColumn("Verdict", width=115),
            "predicted": st.column_config.TextColumn("Predicted", width=115),
            "came_true": st.column_config.TextColumn("As predicted", width=85),
            "seen": st.column_config.TextColumn(
                "Seen before",
                width=115,
                help="What we had seen of this comparison when the prediction was written.",
            ),
            "found": st.column_config.TextColumn("Main finding", width=560),
            "source": st.column_config.TextColumn("Who says it", width=260),
            "family": st.column_config.TextColumn("Kind", width=130),
        },
        alt="All claims: predicted verdict, verdict and main finding",
    )


def show_claim(claim: Claim, shipped: ShippedEvidence) -> None:
    """Draw the full evidence for a claim."""
    evidence, verdict = shipped.records.get(claim.id), shipped.verdicts.get(claim.id)
    st.subheader(plain(claim.title), anchor=False)
    left, right = st.columns([6, 5], gap="large")
    with left:
        st.markdown(plain(claim.question))
        st.markdown(f"> {plain(claim.says)}\n>\n> {plain(f'— {claim.source}')}")
        lines = [
            f"**Prediction:** {plain(claim.prediction)}",
            f"**Seen before:** {plain(seen_in_words(claim, evidence))}",
        ]
        if verdict is not None:
            wrong = "" if verdict == claim.expected else ", not as predicted"
            lines.append(f"**Verdict:** {verdict_text(verdict)}{wrong}.")
        if claim.reason and evidence is not None:
            lines.append(f"**Why:** {plain(claim.reason)}")
        st.markdown("\n\n".join(lines))
    with right:
        if evidence is None:
            not_run_yet([claim.id], shipped)
        else:
            show_picture(evidence, "shipped")
            st.caption(EVIDENCE_KEY)
            show_learning(evidence)
    if evidence is not None:
        show_record(evidence)
    question = f"What will {claim.quick_seeds} new seeds say about this claim?"
    claim_rerun_area(claim, shipped, question, BETS)


def show_record(evidence: Evidence) -> None:
    """Draw what the seeds say on each statement, and how learning rates were found."""
    st.markdown(statements_table(evidence))
    components.picture(
        plot_differences(evidence), key="picture_differences", alt=describe_differences(evidence)
    )
    st.caption(DIFFERENCES_KEY)
    st.caption(
        f"{shipped_with(evidence)} Seeds {evidence.seeds[0]} to {evidence.seeds[-1]}. "
        f"{evidence.model_steps:,} training steps of single models, tuning included, in "
        f"{evidence.seconds:,.0f} s."
    )
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
