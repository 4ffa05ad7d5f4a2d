"""Quiet mode: visitors guess the result before it is shown.

Until Train is pressed, the Lab shows neither the finished example nor a stored result, and the
guess can be changed. The Questions page hides its answers in the same way, and pages that list
results stay closed until the visitor has trained something in the Lab.

A variant either solves the task with all seeds or, on texts, has a lower loss than a simple model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Literal

import segno
import streamlit as st

from attnkit.analysis.reasons import reason
from attnkit.experiment import Experiment
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.words import listed
from attnkit.service.classes import Guess, Standing
from attnkit.service.jobs import Job
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import never_solved, solved_variants
from attnkit.ui import components
from attnkit.ui.address import dashboard_address, is_quiet
from attnkit.ui.cache import headline
from attnkit.ui.lab import classroom
from attnkit.ui.lab.classroom import key_of_guess
from attnkit.ui.lab.lab import Lab, lab_link
from attnkit.ui.lab.share import reachable
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import training_service
from attnkit.ui.server.turns import fragment
from attnkit.ui.widgets import bound
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of


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
        **bound(lab, "quiet", "quiet_mode", lab.set_quiet),
        help=tr(
            "Results stay hidden until you have guessed and pressed Train. The address of this "
            "page then opens in the same way."
        ),
    )


def awaits_guess(lab: Lab) -> bool:
    """Return whether Train waits until the visitor has guessed; a teacher lets the class guess."""
    waits = lab.quiet and lab.job_of_settings is None and not _guess_of(lab)
    return waits and not classroom.leads()


def follow_class(lab: Lab) -> None:
    """Show the finished run of the teacher, once, on a page of the class that has not trained it.

    The page must not have drawn the widgets of the settings yet.
    """
    found = _run_of_teacher(lab, classroom.standing(lab.experiment))
    if found is not None:
        st.session_state[_key_of_run(lab)] = True
        lab.set(found.experiment)
        lab.show_found(found)


def _run_of_teacher(lab: Lab, standing: Standing | None) -> Job | None:
    if not lab.quiet or standing is None or standing.seed is None:
        return None
    job = lab.job
    has_own = lab.job_of_settings is not None or (job is not None and not job.over)
    if has_own or st.session_state.get(_key_of_run(lab)):
        return None
    experiment = lab.experiment.replace(first_seed=standing.seed)
    found = training_service().find(experiment, lab.watcher)
    return found if found is not None and found.state == "finished" else None


def guess_area(lab: Lab) -> None:
    """Ask for the guess; while the experiment trains, repeat it; at the end, say if it was right.

    On the page of a teacher, the class is asked, and its guesses are shown. Whoever has joined a
    class sees them at the end. Nothing is drawn outside the quiet mode.
    """
    if not lab.quiet:
        return
    job, standing = lab.job_of_settings, classroom.standing(lab.experiment)
    finished = _result(lab, job)
    if job is not None and standing is not None:  # a later guess comes too late
        classroom.note_training(job, standing)
    with st.container(border=True, key="guess_area"):
        if classroom.leads():
            with st.container(key="class_area"):
                _of_class(lab, job, finished, standing)
        else:
            _own_guess(lab, job, finished, standing)
            if finished and standing is not None and standing.is_asked:
                _class_guesses(lab.experiment, finished)
    is_over = finished is not None and standing is not None and standing.is_closed
    if classroom.joined() is not None and not is_over:
        fragment(_await_class, run_every=3)(lab, standing)


def _await_class(lab: Lab, before: Standing | None) -> None:
    """Draw the page anew once the class is further: closed, trained, or within reach again."""
    standing = classroom.standing(lab.experiment)
    if standing != before or _run_of_teacher(lab, standing) is not None:
        st.rerun()


def _result(lab: Lab, job: Job | None) -> Snapshot | None:
    """Return the finished run of the settings; it is kept while the visitor trains it again."""
    if job is None:  # other settings, or a fresh start: what was guessed of before is over
        st.session_state.pop("guessed_result", None)
        return None
    if job.state == "finished":
        st.session_state["guessed_result"] = job.snapshot
    kept: Snapshot | None = st.session_state.get("guessed_result")
    return kept if kept is not None and kept.experiment == lab.experiment else None


def _own_guess(
    lab: Lab, job: Job | None, finished: Snapshot | None, standing: Standing | None
) -> None:
    if standing is not None:
        standing = _agree(lab.experiment, standing)
    guess = _guess_of(lab)
    if job is None:
        _ask(lab, standing)
    elif not guess:
        st.markdown(tr("You have not guessed what comes out of this run."))
    elif finished is not None:
        st.markdown(outcome(guess, finished))
    else:
        st.markdown(plain(guess_in_words(guess, lab.experiment)))


def _ask(lab: Lab, standing: Standing | None) -> None:
    """Draw the choice of variants; it begins with the last guess about the same experiment."""
    experiment, about = lab.experiment, key_of_guess(lab.experiment)
    guess = _guesses().setdefault(about, [])
    if why := classroom.reason_for_none():
        st.warning(why)
    st.pills(
        " ".join([f"**{question(experiment)}**", tr("Guess, then press Train.")]),
        _options(experiment),
        format_func=_option_title,
        selection_mode="multi",
        wrap=True,
        **bound(_guesses(), about, f"guess_{about}", partial(_take, experiment)),
    )
    how = tr("Choose one or several; you can change them until you press Train.")
    if classroom.joined() is not None:
        how = _whom_it_is_for(standing, frozenset(guess), how)
    st.caption("  \n".join([plain(meaning_of_question(experiment)), how]))


def _whom_it_is_for(standing: Standing | None, guess: Guess, how: str) -> str:
    """Return how a guess can be changed and whether it counts in the class."""
    if standing is not None and (standing.is_closed or standing.is_settled):
        is_counted = bool(guess) and guess == standing.guess
        late = tr("This guess comes after the training, so it is for you alone.")
        then = tr("The teacher's run appears here when it is finished.")
        return " ".join([tr("Your guess is counted.") if is_counted else late, then])
    if standing is None:
        counts = tr(_OUT_OF_REACH)
    elif not standing.is_asked:
        counts = tr("Your class does not guess with these settings, so yours is for you alone.")
    elif not standing.has_place:
        counts = tr("Your class has as many guesses as it expects, so yours is for you alone.")
    else:
        counts = tr("Your class will see how many chose each answer, without names.")
    return f"{how} {counts}"


_OUT_OF_REACH = mark("The class cannot be reached now, so no guess is counted.")


def _take(experiment: Experiment, chosen: list[str]) -> None:
    """Keep a guess, and count it in the visitor's class; `NONE` stands alone."""
    about = key_of_guess(experiment)
    if NONE in chosen and len(chosen) > 1:
        was_none = NONE in _guesses().get(about, [])
        chosen = [name for name in chosen if name != NONE] if was_none else [NONE]
        st.session_state[f"guess_{about}"] = chosen
    _guesses()[about] = chosen
    classroom.standing(experiment, chosen)


def _agree(experiment: Experiment, standing: Standing) -> Standing | None:
    """Count a guess that could not be counted before, or show the one that this browser has made.

    The browser may have guessed in another tab, or before the page was loaded anew.
    """
    about, guesses = key_of_guess(experiment), _guesses()
    guess = guesses.get(about, [])
    counted = [option for option in _options(experiment) if option in standing.guess]
    if {*guess} == {*counted}:
        return standing
    if standing.takes_guesses and not counted:
        return classroom.standing(experiment, guess)
    if counted and (standing.takes_guesses or not guess):
        guesses[about] = counted
    return standing


def _of_class(
    lab: Lab, job: Job | None, finished: Snapshot | None, standing: Standing | None
) -> None:
    """Draw the question, and the class's link until it has trained, then its guesses.

    A line below says how many have guessed, at the end how many were right.
    """
    asked = f"**{question(lab.experiment)}**"
    if standing is None:
        st.markdown(f"{asked} {tr(_OUT_OF_REACH)}")
        return
    if job is not None or standing.is_closed:
        st.markdown(asked)
        _class_guesses(lab.experiment, finished)
        if finished is None and classroom.counted(lab.experiment):
            st.markdown(_n_guessed(lab.experiment, is_training=job is not None, is_closed=True))
        return
    room, (address, _) = classroom.joined(), reachable(dashboard_address())
    link = classroom.link_to(address, room.code if room else "")
    st.markdown(" ".join([asked, tr("Open this link and guess:")]))
    code, guesses = st.columns([2, 3], vertical_alignment="center")
    if address and len(link) <= 300:  # no projector shows the code of a longer link well
        with code:
            components.markup(qr_code(link), key="class_code")
    with guesses:
        fragment(_so_far, run_every=2.0)(lab.experiment)
    st.code(link, language=None, wrap_lines=True)


@lru_cache(maxsize=16)
def qr_code(link: str) -> str:
    """Return the QR code of a link as SVG, black on white in every theme."""
    code = segno.make_qr(link, error="l")  # as few modules as possible, so that they are large
    svg = code.svg_inline(border=4, light="#fff", omitsize=True)
    label = tr("QR code of the link")
    return f'<div class="ak-code" role="img" aria-label="{label}">{svg}</div>'


def _so_far(experiment: Experiment) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(_n_guessed(experiment), width="content")
        shows = st.toggle(tr("Show what they guessed"), key="show_guesses")
    if shows:
        _class_guesses(experiment, None)


def _n_guessed(
    experiment: Experiment, *, is_training: bool = False, is_closed: bool = False
) -> str:
    n = classroom.counted(experiment).total()
    if is_training:
        return tr_n("**{n}** has guessed.", "**{n}** have guessed.", n)
    if is_closed:
        return tr_n(
            "**{n}** has guessed. Press Train to show the result.",
            "**{n}** have guessed. Press Train to show the result.",
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
    guesses = classroom.counted(experiment)
    n, solved = guesses.total(), set[str]()
    if not n:
        st.markdown(tr("Nobody in your class has guessed."))
        return
    if finished is not None:
        solved = {variant.value for variant in solved_variants(finished)} or {NONE}
    options = _options(experiment)
    for column, name in zip(st.columns(len(options)), options, strict=True):
        named = sum(times for guess, times in guesses.items() if name in guess)
        title = plain(_option_title(name)) if name != NONE else tr(NONE)
        is_right = name in solved if solved else None
        column.progress(named / n, text=_of_class_in_words(named, n, title, is_right=is_right))
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
    corrected = plain(correction(named, solved, snapshot.experiment))
    return " ".join(filter(None, [text, corrected, why]))


def _reason(snapshot: Snapshot, wrong: Sequence[str]) -> str:
    """Return why the first of the variants named wrongly fails, in Markdown.

    Empty if no reason is known, or if it is the run's headline, which stands on the page already.
    """
    experiment = snapshot.experiment
    shown = headline(snapshot, experiment.first_seed)
    reasons = ((reason(snapshot, Variant(name), k), k) for name in wrong for k in experiment.seeds)
    first, seed = next((known for known in reasons if known[0] is not None), (None, 0))
    return "" if first in (None, shown) else plain(first.in_words(experiment, seed))


def _options(experiment: Experiment) -> list[str]:
    return [*experiment.settings()["sharing"], NONE]


def _key_of_run(lab: Lab) -> str:
    return f"teacher_{key_of_guess(lab.experiment)}"


def _guesses() -> dict[str, list[str]]:
    guesses: dict[str, list[str]] = st.session_state.setdefault("guesses", {})
    return guesses


def _guess_of(lab: Lab) -> list[str]:
    return _guesses().get(key_of_guess(lab.experiment), [])


NONE = mark("none of them")
"""The guess that no variant will solve the task.

A guess is a list: the text forms of the variants that are expected to solve it, or `NONE` alone.
"""


def _option_title(name: str) -> str:
    return tr(NONE) if name == NONE else title_of(name)


def titles(names: Sequence[str]) -> str:
    """Return the titles of variants as in "QKV, Q=K and K=V"; `NONE` without any."""
    return listed(title_of(name) for name in names if name != NONE) or tr(NONE)


def question(experiment: Experiment) -> str:
    """Return the question that a guess answers."""
    model = _model(experiment)
    if model:
        return tr("Which of them will have a lower loss than {model}?", model=model)
    return tr("Which of them will solve this with all seeds?")


_MATRICES = {
    "QKV": mark("QKV: three matrices."),
    "Q=K": mark("Q=K: one matrix for queries and keys."),
    "K=V": mark("K=V: one matrix for keys and values."),
    "Q=V": mark("Q=V: one matrix for queries and values."),
    "Q=K=V": mark("Q=K=V: one matrix for all three."),
}
"""Meaning of the ways to share, for readers who do not know their names."""


def meaning_of_question(experiment: Experiment) -> str:
    """Return what the names of the variants mean, and what it means to solve the task."""
    sentences = [
        tr(_MATRICES[variant.value])
        if variant.value in _MATRICES
        else tr("{name}: {meaning}", name=title_of(variant), meaning=variant.meaning)
        for variant in experiment.sharing
    ]
    if not _model(experiment):
        solved = tr_n(
            "Solved means at least 99% right, from {n} random start (seed).",
            "Solved means at least 99% right with each of {n} random starts (seeds).",
            experiment.n_seeds,
        )
        sentences += [solved, never_solved(experiment.task)]
    return " ".join(filter(None, sentences))


def guess_in_words(guess: Sequence[str], experiment: Experiment) -> str:
    """Return a guess as a sentence."""
    names = [name for name in guess if name != NONE]
    model = _model(experiment)
    if not names and model:
        return tr("Your guess: none of them will have a lower loss than {model}.", model=model)
    if not names:
        return tr("Your guess: none of them will solve this with all seeds.")
    n, values = len(names), {"names": titles(names), "model": model}
    if model:
        return tr_n(
            "Your guess: {names} will have a lower loss than {model}.",
            "Your guess: {names} will have a lower loss than {model}.",
            n,
            **values,
        )
    return tr_n(
        "Your guess: {names} will solve this with all seeds.",
        "Your guess: {names} will solve this with all seeds.",
        n,
        **values,
    )


def outcome_in_words(is_right: bool, *, is_partly_right: bool = False) -> str:
    """Return the sentence that says whether a guess was right."""
    if is_right:
        return tr("Your guess was right.")
    return tr("Your guess was partly right.") if is_partly_right else tr("Your guess was wrong.")


def _of_class_in_words(n: int, total: int, name: str, *, is_right: bool | None) -> str:
    """Return how many of a class have guessed an option, and whether it is right if known."""
    if is_right is None:
        return tr("{name}: {n} of {total}", name=name, n=n, total=total)
    if is_right:
        return tr("{name}: {n} of {total} ✓ right", name=name, n=n, total=total)
    return tr("{name}: {n} of {total} ✗ wrong", name=name, n=n, total=total)


def correction(named: Sequence[str], solved: Sequence[str], experiment: Experiment) -> str:
    """Return what was wrong about a guess, in a sentence; variants are given as text forms."""
    wrong = [name for name in named if name not in solved]
    lacking = [name for name in solved if name not in named]
    model = _model(experiment)
    all_are_wrong = bool(wrong) and len(wrong) == len(named)
    if all_are_wrong and solved:
        n, values = len(named), {"names": titles(named), "model": model}
        in_vain = tr_n(
            "You named {names}, which does not solve it",
            "You named {names}, which do not solve it",
            n,
            **values,
        )
        if model:
            in_vain = tr_n(
                "You named {names}, which does not have a lower loss than {model}",
                "You named {names}, which do not have a lower loss than {model}",
                n,
                **values,
            )
        clauses = [in_vain]
    else:
        clauses = [tr("You named {names}", names=titles(named))]
        if not solved and model:
            clauses.append(tr("none of them has a lower loss than {model}", model=model))
        elif not solved:
            clauses.append(tr("none of them solves it"))
        elif wrong:
            clauses.append(_clause("fail", wrong, model))
    if lacking:
        kind: Literal["solve", "solve too"] = "solve too"
        if len(wrong) == len(named):
            kind = "solve"
        clauses.append(_clause(kind, lacking, model))
    return f"{'; '.join(clauses)}."


def _model(experiment: Experiment) -> str:
    task = experiment.task
    return "" if task.loss_to_beat is None else tr(task.simple_model)


def _clause(kind: Literal["fail", "solve", "solve too"], names: Sequence[str], model: str) -> str:
    n, values = len(names), {"names": titles(names), "model": model}
    if kind == "fail" and model:
        return tr_n(
            "{names} does not have a lower loss than {model}",
            "{names} do not have a lower loss than {model}",
            n,
            **values,
        )
    if kind == "fail":
        return tr_n("{names} does not solve it", "{names} do not solve it", n, **values)
    if kind == "solve" and model:
        return tr_n(
            "{names} has a lower loss than {model}",
            "{names} have a lower loss than {model}",
            n,
            **values,
        )
    if kind == "solve":
        return tr_n("{names} solves it", "{names} solve it", n, **values)
    if model:
        return tr_n(
            "{names} has a lower loss than {model}, too",
            "{names} have a lower loss than {model}, too",
            n,
            **values,
        )
    return tr_n("{names} solves it, too", "{names} solve it, too", n, **values)
