"""“Predict, then run it now”: a claim trained on new seeds, beside its shipped evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import streamlit as st

from attnkit.claims import Claim, Verdict
from attnkit.evidence.presentation import ClaimInWords, disagreement
from attnkit.evidence.quick import NO_WORSE_SEEDS, QuickForm
from attnkit.evidence.record import Evidence
from attnkit.evidence.words import Table, finding_in_words, tested_in_words
from attnkit.experiment import Experiment, from_text
from attnkit.experiment.experiment import SCHEMA, settings
from attnkit.figures.evidence import describe_evidence, plot_evidence
from attnkit.foundation import tables
from attnkit.foundation.language import in_language, tr, tr_n
from attnkit.foundation.settings import InvalidExperiment, message_of
from attnkit.foundation.words import listed
from attnkit.ui import components, widgets
from attnkit.ui.claims.rerun import ClaimRerun, ClaimReruns, open_reruns
from attnkit.ui.lab.guess_words import outcome_in_words
from attnkit.ui.lab.lab import MOST_COLUMNS
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.server.presence import watcher
from attnkit.ui.server.service import training_time
from attnkit.ui.server.turns import fragment
from attnkit.ui.session import with_hidden

ICONS = {
    Verdict.HELD: ":material/check_circle:",
    Verdict.FAILED: ":material/cancel:",
    Verdict.UNDECIDED: ":material/help:",
}
"""Icon by verdict; the shapes differ, so that colour is not needed."""

TICK_SECONDS = 0.4
"""Seconds between two updates while a claim trains."""


def claim_rerun_area(
    words: ClaimInWords, question: str, guesses: Mapping[str, Verdict], reason: str
) -> None:
    """Draw a guess, the buttons and the outcome; drawn again by itself while a claim trains.

    Args:
        words: The claim and its shipped evidence.
        question: Question that the guess answers.
        guesses: Verdict by the English text of each guess.
        reason: Reason for the shipped verdict, which follows a wrong guess; empty if unknown.
    """
    st.subheader(tr("Predict, then run it now"), anchor=False)
    try:
        QuickForm.of(words.claim, words.evidence).trials(0)
    except InvalidExperiment as error:  # a claim of a plugin may be wrong
        reason = tr("This claim cannot be run: {reason}.", reason=tr(message_of(error)))
        st.error(plain(reason), icon=":material/error:")
        return
    reruns = open_reruns()
    with st.container(border=True, key="run_it"):
        tick = TICK_SECONDS if reruns.moving is not None else None
        fragment(_live_area, run_every=tick)(words, reruns, question, guesses, reason)
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
    """Draw everything that changes while a claim trains, and the whole page at its end."""
    moved = reruns.moving is not None
    reruns.follow(watcher())
    ended = moved and reruns.moving is None
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
            first, *_, last = rerun.seeds
            st.markdown(tr("**Your run**, seeds {first} to {last}", first=first, last=last))
            show_picture(rerun.evidence(), f"own_{claim.id}")
    if rerun is not None and rerun.finished:
        _show_outcome(rerun, words, reason)
    if ended:
        st.rerun()  # only now: a button that was pressed in the same moment has been heard


def _pick_guess(claim: Claim, question: str, guesses: list[str], *, disabled: bool) -> str | None:
    """Let the visitor guess the verdict; the guess is kept while other pages are open."""
    made: dict[str, str | None] = st.session_state.setdefault("asked_guesses", {})
    made.setdefault(claim.id, None)
    widget = widgets.bound(made, claim.id, f"guess_{claim.id}")
    st.radio(
        f"**{plain(question)}**",
        guesses,
        index=None,
        format_func=tr,
        disabled=disabled,
        **widget,
    )
    return made[claim.id]


def _run_buttons(words: ClaimInWords, reruns: ClaimReruns, guess: Verdict | None) -> None:
    """Draw the buttons that run a claim, resume it and stop it."""
    rerun = reruns.known.get(words.claim.id)
    trains = rerun is not None and rerun.moving
    asks_first = False
    with st.container(horizontal=True, key="run_buttons"):
        # No callbacks: a button that its own press disables would not report the press.
        if st.button(
            tr("Run it now") if rerun is None else tr("Run it on new seeds"),
            type="primary",
            icon=":material/play_arrow:",
            disabled=trains,
            key="run_claim",
        ):
            if guess is None:
                asks_first = True
            else:
                reruns.begin(words.claim, words.evidence, watcher(), guess)
                st.rerun()
        if rerun is not None and rerun.problem:
            if st.button(tr("Go on"), icon=":material/resume:", key="go_on_claim"):
                reruns.go_on(rerun, watcher())
                st.rerun()
        elif st.button(tr("Stop"), icon=":material/stop:", disabled=not trains, key="stop_claim"):
            reruns.stop()
            st.rerun()
    if asks_first:
        st.warning(tr("Guess first: choose an answer above."))


def _status_line(words: ClaimInWords, reruns: ClaimReruns) -> str:
    """Return how far the training of a claim is; before it begins, what will be trained."""
    rerun, moving = reruns.known.get(words.claim.id), reruns.moving
    busy = ""
    if moving is not None and moving is not rerun:
        busy = tr(
            "“{claim}” trains for you now: it stops if you run this.",
            claim=plain(tr(moving.claim.title)),
        )
    if rerun is None:
        status = _plan_text(words.claim, words.evidence)
    elif rerun.problem:
        status = f":material/warning: {plain(rerun.problem)}"
    elif rerun.finished:
        status = tr("Trained in {seconds:.1f} s.", seconds=rerun.seconds)
    else:
        return rerun.status()
    return f"{status} {busy}".rstrip()


def _plan_text(claim: Claim, record: Evidence | None) -> str:
    """Return what pressing the button trains, and how long it takes."""
    form = QuickForm.of(claim, record)
    experiments = [trial.experiment for trial in form.trials(0)]
    n_runs = sum(experiment.n_runs for experiment in experiments)
    if form.untuned:
        return tr(
            "Trains {n_models} models on {n_seeds} new seeds, each at its task’s own learning "
            "rate: none is tuned yet.",
            n_models=n_runs,
            n_seeds=form.n_seeds,
        )
    plan = tr(
        "Trains {n_models} models on {n_seeds} new seeds. That takes {time}.",
        n_models=n_runs,
        n_seeds=form.n_seeds,
        time=training_time(*experiments, reuse=False),
    )
    shows = tr("They can show a difference, or that at most a fifth of all seeds is worse.")
    if form.n_seeds < NO_WORSE_SEEDS:
        shows = tr("So few seeds can show a difference, but not that there is none.")
    return f"{plan} {shows}"


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
    sentences.append(disagreement(words, evidence))
    if rerun.form.untuned:
        sentences.append(tr("Learning rates were each task’s own, for none is tuned yet."))
    with st.container(key="outcome"):
        st.markdown(" ".join(filter(None, sentences)))
        st.markdown(beside_table(evidence, words))


def _links_to_lab(words: ClaimInWords) -> None:
    """Draw links to the experiments that the shipped evidence compares, or a run would compare."""
    experiments: list[Experiment]
    if words.evidence is None:
        trials = QuickForm.of(words.claim, None).trials(0)
        experiments = [trial.experiment for trial in trials]
    else:
        experiments = [from_text(text) for text in words.evidence.experiments]
    with st.container(horizontal=True, key="lab_links"):
        for label, params in lab_links(experiments):
            page_link("lab", label, icon=":material/science:", query_params=params)


def markdown_table(table: Table) -> str:
    """Return a table in Markdown."""
    return tables.markdown_table(table.head, (map(plain, row) for row in table.rows))


def beside_table(own: Evidence, shipped: ClaimInWords) -> str:
    """Return a table in Markdown that compares a visitor's run with the shipped record, if any."""
    columns = [(tr("your run"), own, own.judgement.verdict)]
    if shipped.evidence is not None and shipped.verdict is not None:
        # Translators: heading of the column of the evidence that ships with the package.
        columns.append((tr("shipped"), shipped.evidence, shipped.verdict))
    rows = [
        (tr("seeds"), *(_ends_of(record.seeds) for _, record, _ in columns)),
        (tr("verdict"), *(f"{verdict.mark} {tr(verdict)}" for _, _, verdict in columns)),
        *(
            (
                tested_in_words(statement, finding),
                *(finding_in_words(statement, r.own_findings[statement]) for _, r, _ in columns),
            )
            for statement, finding in own.own_findings.items()
        ),
    ]
    head = ("", *(name for name, _, _ in columns))
    return markdown_table(Table(tr("Your run"), head, rows))


def _ends_of(seeds: Sequence[int]) -> str:
    """Return the first and the last of some seeds."""
    return tr("{low} to {high}", low=seeds[0], high=seeds[-1])


def guess_in_words(guess: Verdict, own_verdict: Verdict, shipped_verdict: Verdict | None) -> str:
    """Return whether a guess was right in words; shipped evidence decides, as it has more seeds."""
    judged = own_verdict if shipped_verdict is None else shipped_verdict
    if judged is own_verdict:
        return outcome_in_words(guess is judged)
    if guess is judged:
        return tr("By the shipped evidence your guess was right.")
    return tr("By the shipped evidence your guess was wrong.")


def _what_differs(experiment: Experiment, others: Sequence[Experiment]) -> str:
    """Return the variants of an experiment, and its settings that others of its task lack."""
    names = [re.sub(r" learning_rate=\S+", "", variant.value) for variant in experiment.sharing]
    if len(names) > 2:
        names[1:] = [tr_n("{n} other", "{n} others", len(names) - 1)]
    params, known = experiment.to_params(), settings(experiment.task.name)
    texts = [
        f"{tr(known[name].label)}: {_value(known[name].label_of(value))}"
        for name, value in params.items()
        if name in known
        and name not in ("sharing", "n_seeds", "evaluate_every")
        and any(one.to_params().get(name) != value for one in others)
    ]
    return f"{listed(names)} ({', '.join(texts)})" if texts else listed(names)


def _value(label: str) -> str:
    """Return the name of a setting's value, or its number, as the reader's language writes it."""
    return in_language(f"{int(label):,}", int(label)) if label.isdecimal() else tr(label)


def lab_links(experiments: Sequence[Experiment]) -> list[tuple[str, dict[str, str]]]:
    """Return labels and query parameters of links that set experiments up in the Lab.

    A label names the task; where several experiments have the same task, it also names the variants
    and the settings by which they differ. The Lab shows at most `MOST_COLUMNS` columns; a label
    says if further ones are left out.
    """
    links = []
    for experiment in experiments:
        same_task = [one for one in experiments if one.task.title == experiment.task.title]
        parts = [tr(experiment.task.title)] if len(experiments) > 1 else []
        if len(same_task) > 1:
            parts.append(_what_differs(experiment, same_task))
        if len(experiment.sharing) > MOST_COLUMNS:
            n_variants = len(experiment.sharing)
            parts.append(tr("first {n} of {total} variants", n=MOST_COLUMNS, total=n_variants))
            experiment = experiment.replace(sharing=experiment.sharing[:MOST_COLUMNS])
        label = tr("Set it up in the Lab")
        if parts:
            label = tr("Set up in the Lab: {experiment}", experiment=", ".join(parts))
        links.append((label, with_hidden(experiment.to_params() or {"v": str(SCHEMA)})))
    return links
