"""Questions that people asked, answered in three sentences that rest on trained models."""

from collections.abc import Mapping, Sequence

import streamlit as st

from attnkit.claims import CLAIMS, Claim, Verdict
from attnkit.evidence.questions import QUESTIONS, Question, answered
from attnkit.evidence.record import Evidence, load_shipped, to_json, verdicts_of
from attnkit.evidence.verdict import RULE
from attnkit.evidence.words import rises_in_words, score_in_words, seen_in_words
from attnkit.experiment import Experiment, from_text
from attnkit.figures.differences import DIFFERENCES_KEY, describe_differences, plot_differences
from attnkit.figures.evidence import EVIDENCE_KEY, describe_evidence, plot_evidence
from attnkit.figures.evidence_report import to_html
from attnkit.figures.learning import LEARNING_KEY, describe_learning, plot_learning
from attnkit.foundation.settings import InvalidExperiment
from attnkit.ui import components
from attnkit.ui.claim_rerun import ClaimRerun, model_steps, open_reruns, quick_trials
from attnkit.ui.evidence import (
    BETS,
    ICONS,
    beside_table,
    claim_in_words,
    claims_table,
    disagreement,
    guess_in_words,
    lab_links,
    means_in_words,
    shipped_with,
    statements_table,
    tuning_table,
    verdict_text,
)
from attnkit.ui.guess import is_quiet
from attnkit.ui.markdown import plain
from attnkit.ui.presence import watcher
from attnkit.ui.question_choice import ALL, CLAIM, VIEW, open_question_choice, question_of
from attnkit.ui.routing import require_route
from attnkit.ui.service import training_service

require_route()
TICK_SECONDS = 0.4


def show_question(question: Question) -> None:
    """Draw a question with its answer, a figure, and a way to train the models again."""
    name = question.claims[0]
    record, rerun = shipped.get(name), reruns.known.get(name)
    hidden = is_quiet() and (rerun is None or not rerun.finished)
    left, right = st.columns([6, 5], gap="large")
    with left:
        st.markdown(f"> {plain(question.asked)}\n>\n> {plain(f'— {question.source}')}")
        sentences = answered(question, shipped, verdicts)
        if hidden:
            st.info("The answer is hidden until you have guessed below and run it.")
        elif sentences:
            with st.container(key="answer"):
                st.markdown("\n\n".join(map(plain, sentences)))
        else:
            not_run_yet(question.claims)
    with right:
        if record is not None and not hidden:
            st.markdown(claim_in_words(record, verdicts[name]))
            show_picture(record, "shipped")
            st.caption(plain(f"{EVIDENCE_KEY} {shipped_with(record)}"))
            show_learning(record)
    if not hidden:
        st.caption("It rests on these claims. Press one to see its evidence.")
        claim_buttons(question.claims)
    run_it(CLAIMS[name], question.guess, question.guesses)


def claim_buttons(names: Sequence[str]) -> None:
    """Draw a button for each of some claims, with its verdict, that opens its evidence."""
    with st.container(horizontal=True, gap="xsmall", key="rests_on"):
        for name in names:
            verdict = verdicts.get(name)
            word = "not run yet" if verdict is None else verdict
            st.button(
                f"**{word}**: {plain(CLAIMS[name].title)}",
                icon=":material/radio_button_unchecked:" if verdict is None else ICONS[verdict],
                on_click=asked.open_claim,
                args=(name,),
                key=f"open_{name}",
            )


def not_run_yet(names: Sequence[str]) -> None:
    """Say which command gathers the evidence."""
    missing = " ".join(name for name in names if name not in shipped)
    st.info(f"Not run yet. To gather the evidence: `python -m attnkit claims {missing}`")


def show_picture(record: Evidence, key: str) -> None:
    """Draw every seed of every arm."""
    components.picture(plot_evidence(record), key=f"picture_{key}", alt=describe_evidence(record))


def show_learning(record: Evidence) -> None:
    """Draw how the arms learn, if some of them were trained for long."""
    figure = plot_learning(record)
    if figure is None:
        return
    rises = rises_in_words(record)
    if rises:
        st.markdown(plain(rises))
    components.picture(plot_learning(record), key="picture_learning", alt=describe_learning(record))
    st.caption(LEARNING_KEY)


def run_it(claim: Claim, ask: str, guesses: Mapping[str, Verdict]) -> None:
    """Draw a guess, a button and the outcome; they are drawn again while something trains."""
    st.subheader("Predict, then run it now", anchor=False)
    try:
        quick_trials(claim, shipped.get(claim.id), 0)
    except InvalidExperiment as error:  # of a claim of one's own
        st.error(plain(f"This claim cannot be run: {error}."), icon=":material/error:")
        return
    moving = reruns.moving is not None
    with st.container(border=True, key="run_it"):
        st.fragment(run_area, run_every=TICK_SECONDS if moving else None)(
            claim, ask, guesses, moving
        )
    links_to_lab(claim)


def run_area(claim: Claim, ask: str, guesses: Mapping[str, Verdict], drawn_moving: bool) -> None:
    """Draw everything that changes while it trains."""
    reruns.follow(watcher())
    if drawn_moving and reruns.moving is None:
        st.rerun()
    rerun = reruns.known.get(claim.id)
    left, right = st.columns([5, 6], gap="large")
    with left:
        key = f"guess_{claim.id}"
        st.session_state.setdefault(key, asked_guesses.get(claim.id))
        trains = rerun is not None and rerun is reruns.moving
        question = f"**{plain(ask)}**"
        guess = st.radio(question, list(guesses), index=None, key=key, disabled=trains)
        asked_guesses[claim.id] = guess
        bet = None if guess is None else guesses[guess]
        run_buttons(claim, rerun, bet)
        st.markdown(status_line(claim, rerun))
        if rerun is not None and rerun is reruns.moving:
            st.progress(rerun.share(rerun.job))
    with right:
        if rerun is not None:
            st.markdown(f"**Your run**, seeds {rerun.seeds[0]} to {rerun.seeds[-1]}")
            show_picture(rerun.evidence(), f"own_{claim.id}")
    if rerun is not None and rerun.finished:
        show_outcome(rerun)


def run_buttons(claim: Claim, rerun: Rerun | None, bet: Verdict | None) -> None:
    """Draw the buttons that run a claim, resume it and stop it."""
    own = rerun is not None and rerun is reruns.moving
    with st.container(horizontal=True, key="run_buttons"):
        # No callbacks: a button that its own press disables would not tell that it was pressed.
        if st.button(
            "Run it now" if rerun is None else "Run it on new seeds",
            type="primary",
            icon=":material/play_arrow:",
            disabled=own,
            key="run_claim",
        ):
            if bet is None:
                st.warning("Guess first: choose an answer above.")
            else:
                reruns.begin(claim, shipped.get(claim.id), watcher(), bet)
                st.rerun()
        stands = rerun is not None and bool(rerun.problem)
        if rerun is not None and stands:
            if st.button("Go on", icon=":material/resume:", key="go_on_claim"):
                reruns.go_on(rerun, watcher())
                st.rerun()
        elif st.button("Stop", icon=":material/stop:", disabled=not own, key="stop_claim"):
            reruns.stop()
            st.rerun()


def status_line(claim: Claim, rerun: Rerun | None) -> str:
    """Return how far training is; before it begins, what will be trained."""
    other = reruns.moving
    busy = ""
    if other is not None and other is not rerun:
        busy = f" “{plain(other.claim.title)}” trains for you now: it stops if you run this."
    if rerun is None:
        return plan_text(claim) + busy
    if rerun.problem:
        return f":material/warning: {plain(rerun.problem)}{busy}"
    n = len(rerun.trials)
    if rerun.finished:
        return f"Trained in {rerun.seconds:.1f} s.{busy}"
    where = f"Training {rerun.place + 1} of {n}" if n > 1 else "Training"
    job = rerun.job
    if job is None or not job.begun:
        outlook = training_service().outlook(job.id) if job is not None else None
        place = f": place {outlook.place} in the queue" if outlook and outlook.place else ""
        return f"{where} waits for its turn{place}."
    left = rerun.seconds_left(job)
    time_left = "" if left is None else f", about {max(left, 1):.0f} s left"
    return f"{where}: step {job.step} of {job.experiment.training.steps}{time_left}."


def plan_text(claim: Claim) -> str:
    """Return what pressing the button trains."""
    record = shipped.get(claim.id)
    trials = quick_trials(claim, record, 0)
    n_runs = sum(trial.experiment.n_runs for trial in trials)
    text = f"Trains {n_runs} models on {claim.quick_seeds} seeds that are new"
    if record is None or not record.model_steps:
        return f"{text}, each at its task’s own learning rate: none is tuned yet."
    seconds = record.seconds / record.model_steps * model_steps(trials)
    took = f"took some {max(seconds, 1):.0f} s where the evidence was made"
    return f"{text}; {took}, and takes longer on a busy machine."


def show_outcome(rerun: ClaimRerun) -> None:
    """Draw the verdict of the run beside the shipped one, and whether the guess was right."""
    own, record = rerun.evidence(), shipped.get(rerun.claim.id)
    verdict, own_verdict = verdicts.get(rerun.claim.id), own.judgement.verdict
    said = []
    if rerun.guess is not None:
        said.append(f"**{guess_in_words(rerun.guess, own_verdict, verdict)}**")
    said.append(plain(means_in_words(own)))
    said.append(
        disagreement(rerun.claim, own_verdict, verdict, 0 if record is None else len(record.seeds))
    )
    if rerun.untuned:
        said.append("Learning rates were each task’s own, for none is tuned yet.")
    with st.container(key="outcome"):
        if any(said):
            st.markdown(" ".join(filter(None, said)))
        st.markdown(beside_table(own, record, verdict, own_verdict))


def links_to_lab(claim: Claim) -> None:
    """Draw links to the experiments that were compared, or would be."""
    record = shipped.get(claim.id)
    experiments: list[Experiment]
    if record is None:
        experiments = [trial.experiment for trial in quick_trials(claim, None, 0)]
    else:
        experiments = [from_text(text) for text in record.experiments]
    with st.container(horizontal=True, key="lab_links"):
        for label, params in lab_links(experiments):
            st.page_link(
                "pages/lab.py", label=label, icon=":material/science:", query_params=params
            )


def show_all() -> None:
    """Draw the table of all claims, and one of them in full."""
    with st.expander(f"All {len(CLAIMS)} claims", expanded=not asked.direct):
        all_claims()
    st.selectbox(
        "Show the evidence for",
        list(CLAIMS),
        index=None,
        format_func=lambda name: CLAIMS[name].title,
        placeholder="Choose a claim",
        key=CLAIM,
        on_change=lambda: asked.open_claim(st.session_state[CLAIM]),
    )
    if asked.claim is not None:
        show_claim(CLAIMS[asked.claim])


def all_claims() -> None:
    """Draw a sortable table; a row opens its claim."""
    names, key = list(CLAIMS), f"claims_{asked.version}"
    if verdicts:
        st.markdown(f"{score_in_words(list(shipped.values()))} Tick a row to see its evidence.")

    def take_row() -> None:
        rows = st.session_state[key].selection.rows
        if rows:
            asked.open_claim(names[rows[0]])
            asked.direct = False

    st.dataframe(
        claims_table(shipped, verdicts),
        hide_index=True,
        key=key,
        height=460,
        on_select=take_row,
        selection_mode="single-row",
        selection_default={
            "selection": {"rows": [] if asked.claim is None else [names.index(asked.claim)]}
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


def show_claim(claim: Claim) -> None:
    """Draw the full evidence for a claim."""
    record, verdict = shipped.get(claim.id), verdicts.get(claim.id)
    st.subheader(plain(claim.title), anchor=False)
    left, right = st.columns([6, 5], gap="large")
    with left:
        st.markdown(plain(claim.question))
        st.markdown(f"> {plain(claim.says)}\n>\n> {plain(f'— {claim.source}')}")
        lines = [
            f"**Prediction:** {plain(claim.prediction)}",
            f"**Seen before:** {plain(seen_in_words(claim, record))}",
        ]
        if verdict is not None:
            wrong = "" if verdict == claim.expected else ", not as predicted"
            lines.append(f"**Verdict:** {verdict_text(verdict)}{wrong}.")
        if claim.reason and record is not None:
            lines.append(f"**Why:** {plain(claim.reason)}")
        st.markdown("\n\n".join(lines))
    with right:
        if record is None:
            not_run_yet([claim.id])
        else:
            show_picture(record, "shipped")
            st.caption(EVIDENCE_KEY)
            show_learning(record)
    if record is not None:
        show_record(record)
    run_it(claim, f"What will {claim.quick_seeds} new seeds say about this claim?", BETS)


def show_record(record: Evidence) -> None:
    """Draw what the seeds say, and how learning rates were found."""
    st.markdown(statements_table(record))
    components.picture(
        plot_differences(record), key="picture_differences", alt=describe_differences(record)
    )
    st.caption(DIFFERENCES_KEY)
    st.caption(
        f"{shipped_with(record)} Seeds {record.seeds[0]} to {record.seeds[-1]}. "
        f"{record.model_steps:,} training steps of single models, tuning included, in "
        f"{record.seconds:,.0f} s."
    )
    with st.expander("How learning rates were found"):
        st.markdown(tuning_table(record.tuned))


def downloads() -> None:
    """Draw the buttons that download all evidence."""
    if not shipped:
        return
    with st.container(horizontal=True, key="claim_downloads"):
        st.download_button(
            "All evidence as JSON",
            lambda: to_json(shipped.values()),
            "attnkit-claims.json",
            "application/json",
            icon=":material/download:",
            on_click="ignore",
            key="claims_json",
        )
        st.download_button(
            "The report as one HTML page",
            lambda: to_html(list(shipped.values())),
            "attnkit-claims.html",
            "text/html",
            icon=":material/download:",
            on_click="ignore",
            key="claims_html",
        )


reruns = open_reruns()
asked = open_question_choice()
asked_guesses: dict[str, str | None] = st.session_state.setdefault("asked_guesses", {})
shipped = load_shipped()
verdicts = verdicts_of(shipped.values())

st.title("Questions", anchor=False)
st.markdown(
    "Five questions that people asked about queries, keys and values, and what tiny models say, "
    "most of one layer and one head, that were trained to find out. Train them again yourself."
)
st.caption(
    "QKV: three matrices. Q=K, K=V: those two share one. Q=K=V: one for all. V=I: no value matrix. "
    "A seed is one repetition of the training, with data and first numbers of its own."
)
if asked.problem:
    st.warning(plain(asked.problem), icon=":material/warning:")
    asked.problem = ""
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
asked.view = st.session_state[VIEW] or asked.view
opened = question_of(asked.view)
if opened is None:
    show_all()
else:
    show_question(opened)
with st.expander("How verdicts are made"):
    st.markdown(RULE)
downloads()
asked.write_link()
components.markup("", key="styles")  # also where no figure brings them
components.load_plotly()
