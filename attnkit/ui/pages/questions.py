"""Questions that people asked: a short answer, its reason, a figure and numbers.

The link is `?question=` with the id of a question or `new`, or `?claim=` with the id of a claim or
`all`. No parameters mean the first question. A visitor's own run of the claim on screen adds its
first `seed` and the `guess`, so that it can be opened again where the session has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import streamlit as st

from attnkit.claims import CLAIMS, Claim, Verdict
from attnkit.evidence import record
from attnkit.evidence.elsewhere import elsewhere_of
from attnkit.evidence.presentation import (
    COLUMNS,
    TRAINED_WITH,
    WHERE,
    ClaimInWords,
    Outcome,
    cache_in_words,
    claims_in_words,
    new_claims,
    score_in_words,
    total_in_words,
)
from attnkit.evidence.questions import QUESTIONS, WHY, Answer, guesses
from attnkit.evidence.record import Evidence, Records
from attnkit.evidence.trials import NEW_SEED, QuickForm
from attnkit.evidence.verdict import RULE
from attnkit.evidence.words import (
    effect_in_words,
    longer_in_words,
    statements_table,
    tuning_table,
)
from attnkit.figures.evidence import (
    COURSE_KEY,
    DIFFERENCES_KEY,
    ELSEWHERE_KEY,
    EVIDENCE_KEY,
    LEARNING_KEY,
    NARROW,
    describe_differences,
    describe_elsewhere,
    describe_learning,
    plot_differences,
    plot_elsewhere,
    plot_learning,
)
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.words import capitalised
from attnkit.sweeps.result import load_shipped
from attnkit.sweeps.specification import InvalidSweep
from attnkit.ui import components
from attnkit.ui.address import Linked, LinkField, by_text, is_quiet, open_choice
from attnkit.ui.claims import LAST_SEED, RerunArea, markdown_table, open_reruns, show_picture
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.sweeps import conclusion_of
from attnkit.ui.widgets import bound, download, selected_rows, warn_once

ALL, NEW = "all", "new"
"""Names of the view of all claims, and of what nobody had tested."""

SHOWN = {WHY.id: WHY, **QUESTIONS}
"""The questions of the page; the first one is open if the link names nothing."""

VIEW, CLAIM = "asked_view", "asked_claim"
"""Keys of the widgets that choose the view and the claim."""

BETS = guesses(mark("It will hold"), mark("It will not hold"))
"""Guesses about a claim that belongs to no question, with the verdict that each predicts."""

ICONS: dict[Verdict | None, str] = {
    Verdict.HELD: ":material/check_circle:",
    Verdict.FAILED: ":material/cancel:",
    Verdict.UNDECIDED: ":material/help:",
    None: ":material/radio_button_unchecked:",
}
"""Icon by verdict, if there is one; the shapes differ, so that colour is not needed."""

HEADINGS = {
    Outcome.WRONG: mark(":material/cancel: We predicted something else"),
    Outcome.TRUE: mark(":material/check_circle: As we predicted"),
}
"""Heading by outcome of a decided prediction; icons differ, so that colour is not needed."""

_WIDTHS = {
    "claim": 250,
    "structure": 250,
    "verdict": 120,
    "found": 420,
    "predicted": 115,
    "came_true": 85,
    "seen": 180,
    "source": 260,
    "family": 130,
}
"""Width in pixels of the columns of all claims, by their names in `COLUMNS`."""

ROW_HEIGHT = 100
"""Height in pixels of a row of all claims, for five lines."""

_QUESTION = LinkField("question", WHY.id, by_text([*QUESTIONS, WHY.id, NEW]))
_GUESS = LinkField("guess", Verdict.UNDECIDED, {one.name.lower(): one for one in Verdict})


def _seed_of(text: str) -> int | None:
    is_seed = text.isascii() and text.isdigit() and len(text) < 8
    return int(text) if is_seed and NEW_SEED <= int(text) <= LAST_SEED else None


_SEED = LinkField("seed", 0, _seed_of, f"{NEW_SEED}–{LAST_SEED}")
"""First seed of the visitor's own run of the claim on screen."""


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
        first_seed = _SEED.read(params, self.problems)
        if first_seed and self.shown is not None:
            guess = _GUESS.read(params, self.problems)
            open_reruns().linked[self.shown] = first_seed, guess

    @property
    def shown(self) -> str | None:
        """Id of the claim that can be run on the page, if there is one."""
        if self.view in SHOWN:
            return SHOWN[self.view].claims[0]
        return self.claim if self.view == ALL else None

    def open_claim(self, name: str | None) -> None:
        """Show one claim in full, or the table of all."""
        self.view, self.claim, self.direct = ALL, name, name is not None
        self.version += 1

    def write_link(self) -> None:
        """Write the choice into the address bar."""
        of_claim = {"claim": self.claim or ALL}
        link = of_claim if self.view == ALL else _QUESTION.write(self.view)
        rerun = open_reruns().known.get(self.shown or "")
        if rerun is not None:
            link |= _SEED.write(rerun.seeds[0]) | _GUESS.write(rerun.guess)
        self.set_link(link)

    def button(self, claim: str, label: str, key: str, **look: Any) -> None:
        """Draw a button that opens a claim."""
        key = f"{key}_{claim}"
        st.button(label, on_click=self.open_claim, args=(claim,), key=key, **look)


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
    if choice.view == NEW:
        show_new_claims(choice, records)
    elif choice.view == ALL:
        show_claims(choice, records)
    else:
        show_question(Answer(SHOWN[choice.view], records), choice)
    with st.expander(tr("How verdicts are made")):
        st.markdown(tr(RULE))
        if choice.shown is not None:
            (words,) = claims_in_words(records, [CLAIMS[choice.shown]])
            st.caption(plain(words.made))
    if records and not is_quiet():
        file = "attnkit-claims.json"
        download(tr("All evidence as JSON"), records.to_json, file, key="claims_json")
    choice.write_link()
    components.load_plotly()


def is_hidden(name: str) -> bool:
    """Return whether what is known about a claim stays hidden until the visitor has run it."""
    rerun = open_reruns().known.get(name)
    return is_quiet() and (rerun is None or not rerun.finished)


def show_question(answer: Answer, choice: QuestionChoice) -> None:
    """Draw a question with its answer and a way to train the models again."""
    question = answer.question
    (words,) = claims_in_words(answer.records, [CLAIMS[question.claims[0]]])
    area = RerunArea(words, tr(question.guess), question.guesses, answer.reason)
    with area.beside():
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
            verdict = tr(words.verdict) if words.verdict else words.verdict_line
            label = f"**{verdict}**: {titled(words)}"
            choice.button(words.claim.id, label, "open", icon=ICONS[words.verdict])


def titled(words: ClaimInWords) -> str:
    """Return the title of a claim and the structure in which it was tested, as a label."""
    return plain(". ".join([tr(words.claim.title), words.structure]))


def show_sweep(name: str) -> None:
    """Draw what a shipped sweep concludes, and a link to its phase diagram."""
    try:
        result = load_shipped(name)
    except (OSError, InvalidSweep):  # the answer stands without it
        return
    x, y = list(result.sweep.axes)[:2]
    conclusion = plain(conclusion_of(result, x, y, ()).text)
    st.markdown(tr("**How far it goes.** {conclusion}", conclusion=conclusion))
    label, icon = tr("See it at every size"), ":material/grid_view:"
    page_link("capacity", label, icon=icon, query_params={"sweep": name})


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
        narrower, alt = {NARROW: plot_learning(evidence, narrow=True)}, describe_learning(evidence)
        components.picture(figure, key="picture_learning", alt=alt, narrower=narrower)
        st.caption(tr(LEARNING_KEY))


def show_new_claims(choice: QuestionChoice, records: Records) -> None:
    """Draw a row for every decided new claim, failed predictions first, and buttons for others."""
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
    decided = [(outcome, words) for outcome in HEADINGS for words in groups[outcome]]
    with st.container(key="conclusion"):
        st.markdown(
            tr_n(
                "{n} of our {total} decided predictions was wrong.",
                "{n} of our {total} decided predictions were wrong.",
                len(groups[Outcome.WRONG]),
                total=len(decided),
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
        for outcome, words in decided:
            show_new_claim(words, HEADINGS[outcome], choice)
    if groups[Outcome.OPEN]:
        st.caption(tr(":material/help: Undecided. Press a claim to see its evidence."))
        with st.container(horizontal=True, gap="xsmall"):
            for words in groups[Outcome.OPEN]:
                choice.button(words.claim.id, titled(words), "open_new")


def show_new_claim(words: ClaimInWords, heading: str, choice: QuestionChoice) -> None:
    """Draw the finding on a claim, its numbers, and the learning curves of its variants."""
    claim, evidence = words.claim, words.evidence
    if evidence is None or words.main is None:
        return
    statement, difference = words.main.statement, capitalised(effect_in_words(words.main))
    left, right = st.columns([5, 6], gap="medium", vertical_alignment="center")
    with left, st.container(gap="xxsmall"):
        with st.container(horizontal=True, vertical_alignment="center"):
            prediction = tr("Our prediction: {prediction}", prediction=tr(claim.prediction))
            st.caption(tr(heading), help=plain(prediction))
            look = {"icon": ":material/arrow_forward:", "type": "tertiary"}
            title = plain(tr(claim.title))
            choice.button(claim.id, tr("Evidence"), "open_new", help=title, **look)
        st.markdown(f"**{plain(words.found)}**")
        numbers = f"{difference}. " if difference else ""  # some never solve it
        st.caption(plain(f"{numbers}{words.structure} {cache_in_words(claim)}"))
    figure = plot_learning(evidence, statement)
    if figure is not None:
        with right:
            components.picture(
                figure,
                key=f"course_{claim.id}",
                alt=f"{tr(claim.title)}. {describe_learning(evidence, statement)}",
                narrower={NARROW: plot_learning(evidence, statement, narrow=True)},
            )


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
        show_claim(claims_in_words(records, [CLAIMS[choice.claim]])[0])


def all_claims(choice: QuestionChoice, records: Records) -> None:
    """Draw a table that can be sorted; choosing a row opens its claim."""
    columns = ["claim", "structure"] + (["source"] if is_quiet() else ["verdict", "found"])
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
    rows = [] if choice.claim is None else [names.index(choice.claim)]
    st.dataframe(
        pd.DataFrame(cells)[columns],
        hide_index=True,
        key=key,
        height=640,
        row_height=ROW_HEIGHT,
        on_select=take_row,
        selection_mode="single-row",
        selection_default={"selection": {"rows": rows}},
        column_config={
            name: st.column_config.TextColumn(tr(COLUMNS[name]), width=_WIDTHS[name])
            for name in columns
        },
        alt=tr("All claims: {columns}", columns=", ".join(tr(COLUMNS[name]) for name in columns)),
    )


def show_claim(words: ClaimInWords) -> None:
    """Draw the finding on a claim, and the buttons that train its models again."""
    claim, evidence, hidden = words.claim, words.evidence, is_hidden(words.claim.id)
    st.subheader(plain(tr(claim.title)), anchor=False)
    st.caption(plain(words.structure))
    if evidence is None or hidden:
        show_source(claim)
    n_seeds = QuickForm.of(claim, evidence).n_seeds
    question = tr("What will {n} new seeds say about this claim?", n=n_seeds)
    with RerunArea(words, question, BETS, words.reason).beside():
        if evidence is None:
            not_run_yet([claim.id])
        elif not hidden:
            show_evidence(words, evidence)


def show_source(claim: Claim) -> None:
    """Write the question of a claim, and who says what about it."""
    st.markdown(plain(tr(claim.question)))
    st.caption(plain(f"{tr(claim.says)} ({tr(claim.source)})"))


def show_elsewhere(words: ClaimInWords) -> None:
    """Draw in which other structures a claim holds, or say that none was tried."""
    found = elsewhere_of(words.claim)
    if found is None:
        st.caption(f"**{tr(WHERE)}:** {words.where}.")
        return
    st.caption(f"**{tr(WHERE)}**")
    figure, alt = plot_elsewhere(words.claim, found), describe_elsewhere(found)
    components.picture(figure, key="picture_elsewhere", alt=alt)
    st.caption(tr(ELSEWHERE_KEY))


def show_evidence(words: ClaimInWords, evidence: Evidence) -> None:
    """Draw the finding on a claim, its verdict and reason, the figure, and all details."""
    with st.container(key="conclusion"):
        st.markdown(plain(words.found))
    verdict, expected = tr(words.verdict) if words.verdict else "", tr(words.claim.expected)
    if words.outcome is Outcome.TRUE:
        line = tr("**{verdict}**, as predicted.", verdict=verdict)
    else:
        line = tr("**{verdict}**; we predicted “{expected}”.", verdict=verdict, expected=expected)
    st.markdown(f"{ICONS[words.verdict]} {line} {plain(words.reason)}".rstrip())
    left, right = st.columns([6, 5], gap="large")
    with left:
        show_picture(evidence, "shipped")
        st.caption(tr(EVIDENCE_KEY))
        show_elsewhere(words)
    with right:
        show_source(words.claim)
        st.caption(plain(" ".join(filter(None, (words.tested, longer_in_words(evidence))))))
        st.caption(f"**{tr(TRAINED_WITH)}:** {plain(words.trained_with)}")
    with st.expander(tr("What was predicted, and what had been seen before")):
        for name in (mark("Prediction"), mark("Seen before")):
            st.markdown(f"**{tr(name)}:** {plain(words.facts[name])}")
    with st.expander(tr("All statements, and their seeds one by one")):
        st.markdown(markdown_table(*statements_table(evidence)))
        figure, alt = plot_differences(evidence), describe_differences(evidence)
        components.picture(figure, key="picture_differences", alt=alt)
        st.caption(tr(DIFFERENCES_KEY))
    show_learning(evidence)
    with st.expander(tr("How learning rates and schedules were found")):
        st.markdown(markdown_table(*tuning_table(evidence)))
