"""Quiet mode: visitors guess the result before it is shown.

Until Train is pressed, the Lab shows neither the finished example nor a stored result, and the
guess can be changed. The Questions page hides its answers in the same way, and pages that list
results stay closed until the visitor has trained something in the Lab.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from attnkit.analysis.reasons import reason
from attnkit.experiment import Experiment
from attnkit.foundation.language import tr, tr_n
from attnkit.service.jobs import Job
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import solved_variants
from attnkit.ui.address import CLASS, dashboard_address, is_quiet
from attnkit.ui.lab import classroom
from attnkit.ui.lab.guess_words import (
    NONE,
    correction,
    guess_in_words,
    meaning_of_question,
    of_class_in_words,
    option_title,
    outcome_in_words,
    question,
    titles,
)
from attnkit.ui.lab.lab import Lab
from attnkit.ui.lab.share import reachable
from attnkit.ui.markdown import plain
from attnkit.ui.render_cache import headline
from attnkit.ui.server.turns import fragment
from attnkit.ui.session import lab_link
from attnkit.ui.widgets import bound
from attnkit.variants import Variant

SWITCH = "quiet_mode"
"""Key of the switch of the quiet mode."""

CLASS_SECONDS = 2.0
"""Seconds between two updates of the guesses of a class."""


def awaits_first_run() -> bool:
    """Return whether this visitor has to guess and to see a training before results are shown."""
    lab: Lab | None = st.session_state.get("lab")
    job = None if lab is None else lab.job
    return is_quiet() and (job is None or job.state != "finished")


def stop_before_first_run() -> None:
    """End a page that lists results with a link to the Lab, if the visitor is to guess first."""
    if awaits_first_run():
        st.info(tr("Results are hidden until you have guessed in the Lab and trained it there."))
        lab_link(tr("Open the Lab"))
        st.stop()


def quiet_switch(lab: Lab) -> None:
    """Let the visitor turn the quiet mode on and off."""
    st.toggle(
        tr("Guess first"),
        **bound(lab, "quiet", SWITCH, lab.set_quiet),
        help=tr(
            "Results stay hidden until you have guessed and pressed Train. The address of this "
            "page then opens in the same way."
        ),
    )


def awaits_guess(lab: Lab) -> bool:
    """Return whether Train waits until the visitor has guessed; a teacher lets the class guess."""
    waits = lab.quiet and lab.job_of_settings is None and not _guess_of(lab)
    return waits and not classroom.leads()


def guess_area(lab: Lab) -> None:
    """Ask for the guess; while the experiment trains, repeat it; at the end, say if it was right.

    On the page of a teacher, the class is asked, and its guesses are shown. Whoever has joined a
    class sees them at the end. Nothing is drawn outside the quiet mode.
    """
    if not lab.quiet:
        return
    job, leads = lab.job_of_settings, classroom.leads()
    finished = _result(lab, job)
    if job is not None:  # a later guess comes too late
        classroom.settle(key_of_guess(lab.experiment))
    with st.container(border=True, key="guess_area"):
        if leads:
            with st.container(key="class_area"):  # as high before, during and after the training
                _of_class(lab, job, finished)
        else:
            _own_guess(lab, job, finished)
            if classroom.joined() is not None and finished:
                _class_guesses(lab.experiment, finished)


def _result(lab: Lab, job: Job | None) -> Snapshot | None:
    """Return the finished run of the settings; it is kept while the visitor trains it again."""
    if job is None:  # other settings, or a fresh start: what was guessed of before is over
        st.session_state.pop("guessed_result", None)
        return None
    if job.state == "finished":
        st.session_state["guessed_result"] = job.snapshot
    kept: Snapshot | None = st.session_state.get("guessed_result")
    return kept if kept is not None and kept.experiment == lab.experiment else None


def _own_guess(lab: Lab, job: Job | None, finished: Snapshot | None) -> None:
    """Ask for the visitor's own guess, repeat it, or say whether it was right."""
    guess = _guess_of(lab)
    if job is None:
        _ask(lab)
    elif not guess:
        st.markdown(tr("You have not guessed what comes out of this run."))
    elif finished is not None:
        st.markdown(outcome(guess, finished))
    else:
        st.markdown(plain(guess_in_words(guess, lab.experiment)))


def _ask(lab: Lab) -> None:
    """Draw the choice of variants; it begins with the last guess about the same experiment."""
    options, about = [*lab.experiment.sharing, NONE], key_of_guess(lab.experiment)
    _guesses().setdefault(about, [])
    if why := classroom.reason_for_none():
        st.warning(plain(why))
    st.pills(
        " ".join([f"**{question(lab.experiment)}**", tr("Guess, then press Train.")]),
        options,
        format_func=option_title,
        selection_mode="multi",
        wrap=True,
        **bound(_guesses(), about, f"guess_{about}", partial(_take, about)),
    )
    how = tr("Choose one or several; you can change them until you press Train.")
    if classroom.joined() is not None:
        if classroom.is_closed(about):
            how = tr("Your class has trained already, so your guess is for you alone.")
        else:
            counted = tr("Your class will see how many chose each answer, without names.")
            how = f"{how} {counted}"
    st.caption("  \n".join([plain(meaning_of_question(lab.experiment)), how]))


def _take(about: str, chosen: list[str]) -> None:
    """Keep a guess, and count it in the visitor's class; `NONE` stands alone."""
    if NONE in chosen and len(chosen) > 1:
        was_none = NONE in _guesses().get(about, [])
        chosen = [name for name in chosen if name != NONE] if was_none else [NONE]
        st.session_state[f"guess_{about}"] = chosen
    _guesses()[about] = chosen
    classroom.count(about, chosen)


def _of_class(lab: Lab, job: Job | None, finished: Snapshot | None) -> None:
    """Draw the question, and the class's link until it has trained, then its guesses.

    A line below says how many have guessed, at the end how many were right.
    """
    if job is not None or classroom.is_closed(key_of_guess(lab.experiment)):
        st.markdown(f"**{question(lab.experiment)}**")
        _class_guesses(lab.experiment, finished)
        if finished is None and classroom.counted(key_of_guess(lab.experiment)):
            st.markdown(_n_guessed(lab.experiment, is_training=job is not None))
        return
    room, (address, warning) = classroom.joined(), reachable(dashboard_address())
    st.markdown(" ".join([f"**{question(lab.experiment)}**", tr("Open this link and guess:")]))
    st.code(f"{address}?{CLASS}={room.code if room else ''}", language=None, wrap_lines=True)
    if warning:
        st.warning(warning, icon=":material/warning:")
    fragment(_so_far, run_every=CLASS_SECONDS)(lab.experiment)


def _so_far(experiment: Experiment) -> None:
    """Draw how many have guessed and, if the teacher wants to see it, what."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(_n_guessed(experiment), width="content")
        shows = st.toggle(tr("Show what they guessed"), key="show_guesses")
    if shows:
        _class_guesses(experiment, None)


def _n_guessed(experiment: Experiment, *, is_training: bool = False) -> str:
    """Return how many of the class have guessed, and what its teacher does next, in Markdown."""
    about = key_of_guess(experiment)
    n, is_closed = classroom.counted(about).total(), classroom.is_closed(about)
    if is_training:
        return tr_n("**{n}** has guessed.", "**{n}** have guessed.", n)
    if is_closed:
        return tr_n(
            "**{n}** has guessed. Press Train to show the result again.",
            "**{n}** have guessed. Press Train to show the result again.",
            n,
        )
    if not n:
        return tr("Nobody has guessed yet. Press Train when all have.")
    return tr_n(
        "**{n}** has guessed. Press Train when all have.",
        "**{n}** have guessed. Press Train when all have.",
        n,
    )


def _class_guesses(experiment: Experiment, finished: Snapshot | None) -> None:
    """Draw how many of a class named each option; at the end also whether that was right."""
    guesses = classroom.counted(key_of_guess(experiment))
    n, solved = guesses.total(), set[str]()
    if not n:
        st.markdown(tr("Nobody in your class has guessed."))
        return
    if finished is not None:
        solved = {variant.value for variant in solved_variants(finished)} or {NONE}
    options = [*experiment.settings()["sharing"], NONE]
    for column, name in zip(st.columns(len(options)), options, strict=True):
        named = sum(times for guess, times in guesses.items() if name in guess)
        title = plain(option_title(name)) if name != NONE else tr(NONE)
        is_right = name in solved if solved else None
        column.progress(named / n, text=of_class_in_words(named, n, title, is_right=is_right))
    if finished is not None:
        right = tr_n(
            "**{n} of {total} in your class guessed right.**",
            "**{n} of {total} in your class guessed right.**",
            guesses[frozenset(solved)],
            total=n,
        )
        st.markdown(right)


def outcome(guess: Sequence[str], snapshot: Snapshot) -> str:
    """Return the guess and whether it was right, and if not, what it lacked and why; Markdown."""
    solved = [variant.value for variant in solved_variants(snapshot)]
    named = [name for name in guess if name != NONE]
    is_right = set(named) == set(solved)
    is_partly_right = bool(named) and set(named) < set(solved)
    text = f"**{outcome_in_words(is_right, is_partly_right=is_partly_right)}**"
    if is_right:
        return " ".join([text, tr("You named {names}.", names=plain(titles(guess)))])
    why = _reason(snapshot, [name for name in named if name not in solved])
    return " ".join(
        filter(None, [text, plain(correction(named, solved, snapshot.experiment)), why])
    )


def _reason(snapshot: Snapshot, wrong: Sequence[str]) -> str:
    """Return why the first of the variants named wrongly fails, in Markdown.

    Empty if no reason is known, or if it is the run's headline, which stands on the page already.
    """
    experiment = snapshot.experiment
    shown = headline(snapshot, experiment.first_seed)
    reasons = ((reason(snapshot, Variant(name), k), k) for name in wrong for k in experiment.seeds)
    found, seed = next((known for known in reasons if known[0] is not None), (None, 0))
    return "" if found in (None, shown) else plain(found.in_words(experiment, seed))


def key_of_guess(experiment: Experiment) -> str:
    """Return the key of guesses about an experiment; it is the same for all first seeds."""
    return experiment.replace(first_seed=0).hash


def _guesses() -> dict[str, list[str]]:
    guesses: dict[str, list[str]] = st.session_state.setdefault("guesses", {})
    return guesses


def _guess_of(lab: Lab) -> list[str]:
    """Return the guess about the settings; empty if there is none."""
    return _guesses().get(key_of_guess(lab.experiment), [])
