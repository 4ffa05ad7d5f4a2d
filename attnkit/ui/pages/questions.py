"""Questions that people asked: a short answer, its reason, a figure and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pandas as pd
import streamlit as st

from attnkit.claims import CLAIMS, Verdict
from attnkit.evidence import record
from attnkit.evidence.presentation import (
    COLUMNS,
    TRAINED_WITH,
    ClaimInWords,
    Outcome,
    claims_in_words,
    score_in_words,
    total_in_words,
)
from attnkit.evidence.question import Answer, guesses
from attnkit.evidence.quick import QuickForm
from attnkit.evidence.record import Evidence, Records
from attnkit.evidence.verdict import RULE
from attnkit.evidence.words import longer_in_words, statements_table, tuning_table
from attnkit.figures.evidence import (
    DIFFERENCES_KEY,
    EVIDENCE_KEY,
    describe_differences,
    plot_differences,
)
from attnkit.figures.learning import (
    LEARNING_KEY,
    NARROW,
    RECIPES_KEY,
    describe_learning,
    describe_recipes,
    plot_learning,
    plot_recipes,
)
from attnkit.figures.panels import Figure
from attnkit.foundation.language import mark, tr
from attnkit.sweeps.shipped import load_shipped
from attnkit.sweeps.values import InvalidSweep
from attnkit.ui import components
from attnkit.ui.address import is_quiet, open_choice
from attnkit.ui.claims.choice import ALL, CLAIM, NEW, SHOWN, VIEW, QuestionChoice
from attnkit.ui.claims.new_claims import show_new_claims
from attnkit.ui.claims.rerun import open_reruns
from attnkit.ui.claims.rerun_area import ICONS, claim_rerun_area, markdown_table, show_picture
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.sweeps.choice import conclusion_of
from attnkit.ui.widgets import bound, download, selected_rows, warn_once

_WIDTHS = {
    "claim": 330,
    "verdict": 120,
    "found": 560,
    "predicted": 115,
    "came_true": 85,
    "seen": 180,
    "source": 260,
    "family": 130,
}
"""Width in pixels of the columns of all claims, by their names in `COLUMNS`."""

_PREDICTED = (mark("Prediction"), mark("Seen before"))
"""Headings of what was known about a claim before its runs."""

BETS = guesses(mark("It will hold"), mark("It will not hold"))
"""Guesses about a claim that belongs to no question, with the verdict that each predicts."""


def draw() -> None:
    """Draw the page."""
    require_route()
    choice = open_choice("questions", "asked", QuestionChoice)
    records = record.load_shipped()

    st.title(tr("Questions"), anchor=False)
    st.caption(
        tr(
            "Why are there three matrices? Tiny models that were trained to find out answer this, "
            "five questions that people asked, and claims that nobody had tested."
        )
    )
    warn_once(choice.problems)
    titles = {name: tr(question.title) for name, question in SHOWN.items()}
    titles |= {NEW: tr("What nobody had tested"), ALL: tr("All claims")}
    st.pills(
        tr("Question"),
        list(titles),
        format_func=titles.__getitem__,
        label_visibility="collapsed",
        wrap=True,
        **bound(choice, "view", VIEW, required=True),
    )
    shown: str | None = None
    if choice.view == NEW:
        show_new_claims(choice, records)
    elif choice.view == ALL:
        shown = choice.claim
        show_claims(choice, records)
    else:
        shown = SHOWN[choice.view].claims[0]
        show_question(Answer(SHOWN[choice.view], records), choice)
    with st.expander(tr("How verdicts are made")):
        st.markdown(tr(RULE))
        if shown is not None:
            st.caption(plain(words_of(shown, records).made))
    if not is_quiet():
        downloads(records)
    choice.write_link()
    components.load_plotly()


def words_of(name: str, records: Records) -> ClaimInWords:
    """Return the presentation of the claim with an id."""
    return claims_in_words(records, [CLAIMS[name]])[0]


def is_hidden(name: str) -> bool:
    """Return whether what is known about a claim stays hidden until the visitor has run it."""
    rerun = open_reruns().known.get(name)
    return is_quiet() and (rerun is None or not rerun.finished)


@contextmanager
def beside_run(
    words: ClaimInWords, question: str, guesses: Mapping[str, Verdict], reason: str
) -> Iterator[None]:
    """Draw the content of a block, and below it the buttons that train a claim's models again.

    In the quiet mode the buttons and the visitor's guess stand above the content.
    """
    if is_quiet():
        claim_rerun_area(words, question, guesses, reason)
    yield
    if not is_quiet():
        claim_rerun_area(words, question, guesses, reason)


def show_question(answer: Answer, choice: QuestionChoice) -> None:
    """Draw a question with its answer and a way to train the models again."""
    question = answer.question
    words = words_of(question.claims[0], answer.records)
    with beside_run(words, tr(question.guess), question.guesses, answer.reason):
        if not is_hidden(words.claim.id):
            show_answer(answer, words, choice)
        if answer.asked:
            st.caption(plain(answer.asked))


def show_answer(answer: Answer, words: ClaimInWords, choice: QuestionChoice) -> None:
    """Draw the short answer with its reason, a figure, numbers, and the claims it rests on."""
    question = answer.question
    for key, text in (("conclusion", answer.conclusion), ("reason", answer.reason)):
        if text:
            with st.container(key=key):
                st.markdown(plain(text))
    left, right = st.columns([6, 5], gap="large")
    with left:
        if words.evidence is None:
            not_run_yet([name for name in question.claims if name not in answer.records])
        else:
            show_picture(words.evidence, "shipped")
            st.caption(tr(EVIDENCE_KEY))
            st.markdown(tr("**Found.** {finding}", finding=plain(words.found)))
            st.caption(plain(words.tested))
            show_learning(words.evidence)
    with right:
        if answer.numbers:
            items = (f"- {plain(text)}" for text in answer.numbers)
            st.markdown("\n\n".join([tr("**The numbers**"), "\n".join(items)]))
        if question.sweep:
            show_sweep(question.sweep)
    st.caption(tr("The answer rests on these claims. Press one to see its evidence."))
    with st.container(horizontal=True, gap="xsmall", key="rests_on"):
        for words in claims_in_words(answer.records, map(CLAIMS.__getitem__, question.claims)):
            verdict = words.verdict
            st.button(
                f"**{tr(verdict) if verdict else words.verdict_line}**: "
                f"{plain(tr(words.claim.title))}",
                icon=":material/radio_button_unchecked:" if verdict is None else ICONS[verdict],
                on_click=choice.open_claim,
                args=(words.claim.id,),
                key=f"open_{words.claim.id}",
            )


def show_sweep(name: str) -> None:
    """Draw what a shipped sweep concludes, and a link to its phase diagram."""
    try:
        result = load_shipped(name)
    except (OSError, InvalidSweep):  # the answer stands without it
        return
    x, y = list(result.sweep.axes)[:2]
    conclusion = plain(conclusion_of(result, x, y, ()).text)
    st.markdown(tr("**How far it goes.** {conclusion}", conclusion=conclusion))
    page_link(
        "capacity",
        tr("See it at every size"),
        icon=":material/grid_view:",
        query_params={"sweep": name},
    )


def not_run_yet(missing: Sequence[str]) -> None:
    """Say that evidence is missing; the command that gathers it is folded."""
    st.info(tr("Not run yet."))
    with st.expander(tr("For programmers")):
        command = f"`python -m attnkit claims {' '.join(missing)}`"
        st.markdown(tr("To gather the evidence: {command}", command=command))


def show_learning(evidence: Evidence) -> None:
    """Draw how the arms learn, folded, if some of them were trained for long."""
    figure = plot_learning(evidence)
    if figure is None:
        return
    with st.expander(tr("How they learn")):
        rises = longer_in_words(evidence)
        if rises:
            st.markdown(plain(rises))
        _curves(figure, plot_learning(evidence, narrow=True), describe_learning(evidence))
        st.caption(tr(LEARNING_KEY))


def _curves(figure: Figure, narrow: Figure | None, words: str, key: str = "learning") -> None:
    components.picture(figure, key=f"picture_{key}", alt=words, narrower={NARROW: narrow})


def show_claims(choice: QuestionChoice, records: Records) -> None:
    """Draw the table of all claims, and the chosen one in full."""
    with st.expander(tr("All {n} claims", n=len(CLAIMS)), expanded=not choice.direct):
        all_claims(choice, records)
    st.selectbox(
        tr("Show the evidence for"),
        list(CLAIMS),
        index=None,
        format_func=lambda name: tr(CLAIMS[name].title),
        placeholder=tr("Choose a claim"),
        **bound(choice, "claim", CLAIM, choice.open_claim),
    )
    if choice.claim is not None:
        show_claim(words_of(choice.claim, records), choice)


def all_claims(choice: QuestionChoice, records: Records) -> None:
    """Draw a table that can be sorted; choosing a row opens its claim."""
    columns = ["claim", "source"] if is_quiet() else ["claim", "verdict", "found"]
    if records and not is_quiet():
        st.markdown(" ".join([total_in_words(records), tr("Tick a row to see its evidence.")]))
        if st.toggle(tr("Show all columns"), key="all_columns"):
            columns = list(_WIDTHS)
            st.caption(plain(score_in_words(records)))
    names, key = list(CLAIMS), f"claims_{choice.version}_{len(columns)}"

    def take_row() -> None:
        rows = selected_rows(key, len(names))
        if rows:
            choice.open_claim(names[rows[0]])
            choice.direct = False

    cells = [words.cells for words in claims_in_words(records, CLAIMS.values())]
    st.dataframe(
        pd.DataFrame(cells)[columns],
        hide_index=True,
        key=key,
        height=460,
        on_select=take_row,
        selection_mode="single-row",
        selection_default={
            "selection": {"rows": [] if choice.claim is None else [names.index(choice.claim)]}
        },
        column_config={
            name: st.column_config.TextColumn(tr(COLUMNS[name]), width=_WIDTHS[name])
            for name in columns
        },
        alt=tr("All claims: {columns}", columns=", ".join(tr(COLUMNS[name]) for name in columns)),
    )


def show_claim(words: ClaimInWords, choice: QuestionChoice) -> None:
    """Draw the finding on a claim, and the buttons that train its models again."""
    claim, evidence, hidden = words.claim, words.evidence, is_hidden(words.claim.id)
    st.subheader(plain(tr(claim.title)), anchor=False)
    if claim.is_new:
        st.button(
            tr("Back to what nobody had tested"),
            icon=":material/arrow_back:",
            type="tertiary",
            on_click=setattr,
            args=(choice, "view", NEW),
            key="back_to_new",
        )
    if evidence is None or hidden:
        show_source(words)
    n_seeds = QuickForm.of(claim, evidence).n_seeds
    question = tr("What will {n} new seeds say about this claim?", n=n_seeds)
    with beside_run(words, question, BETS, words.reason):
        if evidence is None:
            not_run_yet([claim.id])
        elif not hidden:
            show_evidence(words, evidence)


def show_source(words: ClaimInWords) -> None:
    """Write the question of a claim, and who says what about it."""
    st.markdown(plain(tr(words.claim.question)))
    st.caption(plain(f"{tr(words.claim.says)} ({tr(words.claim.source)})"))


def show_evidence(words: ClaimInWords, evidence: Evidence) -> None:
    """Draw the finding on a claim, its verdict and reason, the figure, and all details."""
    with st.container(key="conclusion"):
        st.markdown(plain(words.found))
    st.markdown(f"{_verdict_line(words)} {plain(words.reason)}".rstrip())
    left, right = st.columns([6, 5], gap="large")
    with left:
        show_picture(evidence, "shipped")
        st.caption(tr(EVIDENCE_KEY))
    with right:
        show_source(words)
        st.caption(plain(" ".join(filter(None, (words.tested, longer_in_words(evidence))))))
        st.caption(f"**{tr(TRAINED_WITH)}:** {plain(words.trained_with)}")
    with st.expander(tr("What was predicted, and what had been seen before")):
        for name in _PREDICTED:
            st.markdown(f"**{tr(name)}:** {plain(words.facts[name])}")
    with st.expander(tr("All statements, and their seeds one by one")):
        st.markdown(markdown_table(statements_table(evidence).narrow))
        components.picture(
            plot_differences(evidence),
            key="picture_differences",
            alt=describe_differences(evidence),
        )
        st.caption(tr(DIFFERENCES_KEY))
    show_learning(evidence)
    with st.expander(tr("How learning rates and schedules were found")):
        figure = plot_recipes(evidence)
        if figure is not None:
            narrow = plot_recipes(evidence, narrow=True)
            _curves(figure, narrow, describe_recipes(evidence), "recipes")
            st.caption(tr(RECIPES_KEY))
        st.markdown(markdown_table(tuning_table(evidence).narrow))


def _verdict_line(words: ClaimInWords) -> str:
    """Return the verdict on a claim and whether it was predicted, in Markdown."""
    icon = ICONS[words.verdict] if words.verdict else ""
    verdict = tr(words.verdict) if words.verdict else ""
    if words.outcome is Outcome.TRUE:
        line = tr("**{verdict}**, as predicted.", verdict=verdict)
    else:
        line = tr(
            "**{verdict}**; we predicted “{expected}”.",
            verdict=verdict,
            expected=tr(words.claim.expected),
        )
    return f"{icon} {line}"


def downloads(records: Records) -> None:
    """Draw the button that downloads all evidence."""
    if not records:
        return
    label, file = tr("All evidence as JSON"), "attnkit-claims.json"
    download(label, records.to_json, file, key="claims_json")
