"""“Predict, then run it now”: a claim trained on new seeds, beside its shipped evidence."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import streamlit as st

from attnkit.claims import Claim, Verdict
from attnkit.evidence.presentation import ClaimInWords, disagreement
from attnkit.evidence.record import Evidence
from attnkit.experiment import Experiment, from_text
from attnkit.figures.evidence import describe_evidence, plot_evidence
from attnkit.foundation.settings import InvalidExperiment
from attnkit.ui import components
from attnkit.ui.claims.evidence import beside_table, guess_in_words, lab_links
from attnkit.ui.claims.rerun import ClaimRerun, ClaimReruns, model_steps, open_reruns, quick_trials
from attnkit.ui.markdown import plain
from attnkit.ui.server.presence import watcher
from attnkit.ui.widgets import live

TICK_SECONDS = 0.4
"""Seconds between two updates while a claim trains."""


def claim_rerun_area(
    words: ClaimInWords, question: str, guesses: Mapping[str, Verdict], reason: str
) -> None:
    """Draw a guess, the buttons and the outcome; drawn again by itself while a claim trains.

    Args:
        words: The claim and its shipped evidence.
        question: Question that the guess answers.
        guesses: Verdict by the text of each guess.
        reason: Reason for the shipped verdict, which follows a wrong guess; empty if unknown.
    """
    st.subheader("Predict, then run it now", anchor=False)
    try:
        quick_trials(words.claim, words.evidence, 0)
    except InvalidExperiment as error:  # a claim of a plugin may be wrong
        st.error(plain(f"This claim cannot be run: {error}."), icon=":material/error:")
        return
    reruns = open_reruns()
    with st.container(border=True, key="run_it"):
        draw = partial(_live_area, words, reruns, question, guesses, reason)
        tick = TICK_SECONDS if reruns.moving is not None else None
        live(draw, lambda: reruns.moving is not None, tick)
    _links_to_lab(words)


def show_picture(evidence: Evidence, key: str) -> None:
    """Draw the result of every seed of every arm."""
    alt = describe_evidence(evidence)
    components.picture(plot_evidence(evidence), key=f"picture_{key}", alt=alt)


def _live_area(
    words: ClaimInWords,
    reruns: ClaimReruns,
    question: str,
    guesses: Mapping[str, Verdict],
    reason: str,
) -> None:
    """Draw everything that changes while a claim trains."""
    reruns.follow(watcher())
    claim = words.claim
    rerun = reruns.known.get(claim.id)
    trains = rerun is not None and rerun.moving
    left, right = st.columns([5, 6], gap="large")
    with left:
        guess = _pick_guess(claim, question, list(guesses), disabled=trains)
        _run_buttons(words, reruns, None if guess is None else guesses[guess])
        st.markdown(_status_line(words, reruns))
        if rerun is not None and trains:
            st.progress(rerun.share(rerun.job))
    with right:
        if rerun is not None:
            st.markdown(f"**Your run**, seeds {rerun.seeds[0]} to {rerun.seeds[-1]}")
            show_picture(rerun.evidence(), f"own_{claim.id}")
    if rerun is not None and rerun.finished:
        _show_outcome(rerun, words, reason)


def _pick_guess(claim: Claim, question: str, guesses: list[str], *, disabled: bool) -> str | None:
    """Let the visitor guess the verdict; the guess is kept while other pages are open."""
    remembered: dict[str, str | None] = st.session_state.setdefault("asked_guesses", {})
    key = f"guess_{claim.id}"
    st.session_state.setdefault(key, remembered.get(claim.id))
    guess = st.radio(f"**{plain(question)}**", guesses, index=None, key=key, disabled=disabled)
    remembered[claim.id] = guess
    return guess


def _run_buttons(words: ClaimInWords, reruns: ClaimReruns, guess: Verdict | None) -> None:
    """Draw the buttons that run a claim, resume it and stop it."""
    rerun = reruns.known.get(words.claim.id)
    trains = rerun is not None and rerun.moving
    with st.container(horizontal=True, key="run_buttons"):
        # No callbacks: a button that its own press disables would not report the press.
        if st.button(
            "Run it now" if rerun is None else "Run it on new seeds",
            type="primary",
            icon=":material/play_arrow:",
            disabled=trains,
            key="run_claim",
        ):
            if guess is None:
                st.warning("Guess first: choose an answer above.")
            else:
                reruns.begin(words.claim, words.evidence, watcher(), guess)
                st.rerun()
        if rerun is not None and rerun.problem:
            if st.button("Go on", icon=":material/resume:", key="go_on_claim"):
                reruns.go_on(rerun, watcher())
                st.rerun()
        elif st.button("Stop", icon=":material/stop:", disabled=not trains, key="stop_claim"):
            reruns.stop()
            st.rerun()


def _status_line(words: ClaimInWords, reruns: ClaimReruns) -> str:
    """Return how far the training of a claim is; before it begins, what will be trained."""
    rerun, moving = reruns.known.get(words.claim.id), reruns.moving
    busy = ""
    if moving is not None and moving is not rerun:
        busy = f" “{plain(moving.claim.title)}” trains for you now: it stops if you run this."
    if rerun is None:
        return _plan_text(words.claim, words.evidence) + busy
    if rerun.problem:
        return f":material/warning: {plain(rerun.problem)}{busy}"
    if rerun.finished:
        return f"Trained in {rerun.seconds:.1f} s.{busy}"
    return rerun.status()


def _plan_text(claim: Claim, record: Evidence | None) -> str:
    """Return what pressing the button trains, and how long it takes."""
    trials = quick_trials(claim, record, 0)
    n_runs = sum(trial.experiment.n_runs for trial in trials)
    text = f"Trains {n_runs} models on {claim.quick_seeds} new seeds"
    if record is None or not record.model_steps:
        return f"{text}, each at its task’s own learning rate: none is tuned yet."
    seconds = record.seconds / record.model_steps * model_steps(trials)
    return f"{text}. That took about {max(seconds, 1):.0f} s when we recorded it."


def _show_outcome(rerun: ClaimRerun, words: ClaimInWords, reason: str) -> None:
    """Draw the verdict of the run beside the shipped one, and whether the guess was right.

    A wrong guess is followed by the reason.
    """
    evidence = rerun.evidence()
    own_verdict, verdict = evidence.judgement.verdict, words.verdict
    sentences = []
    if rerun.guess is not None:
        sentences.append(f"**{guess_in_words(rerun.guess, own_verdict, verdict)}**")
        if rerun.guess is not (own_verdict if verdict is None else verdict):
            sentences.append(plain(reason))
    sentences.append(plain(ClaimInWords(rerun.claim, evidence, own_verdict).found))
    sentences.append(disagreement(words, own_verdict))
    if rerun.untuned:
        sentences.append("Learning rates were each task’s own, for none is tuned yet.")
    with st.container(key="outcome"):
        st.markdown(" ".join(filter(None, sentences)))
        st.markdown(beside_table(evidence, words))


def _links_to_lab(words: ClaimInWords) -> None:
    """Draw links to the experiments that the shipped evidence compares, or a run would compare."""
    experiments: list[Experiment]
    if words.evidence is None:
        experiments = [trial.experiment for trial in quick_trials(words.claim, None, 0)]
    else:
        experiments = [from_text(text) for text in words.evidence.experiments]
    with st.container(horizontal=True, key="lab_links"):
        for label, params in lab_links(experiments):
            st.page_link(
                "pages/lab.py", label=label, icon=":material/science:", query_params=params
            )
