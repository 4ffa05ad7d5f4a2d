"""Asymmetry: whether a score distinguishes i → j from j → i, and what rescues symmetric scores.

Buttons change one setting of the run on screen and train it at once. They change the visitor's Lab,
so that the Lab shows the same run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import streamlit as st

from attnkit.analysis.comparison import level_in_words
from attnkit.analysis.rescue import (
    Change,
    Outcome,
    changes_of,
    effect_sentences,
    symmetric_variants,
)
from attnkit.experiment import Experiment
from attnkit.service.server import server_settings
from attnkit.training.failure import failure_of
from attnkit.training.snapshot import Snapshot
from attnkit.ui.inspected_run import film_page
from attnkit.ui.lab.lab import Lab
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import training_service
from attnkit.ui.watched_job import live, show_refusal, status_of
from attnkit.variants.catalogue import title_of


def draw() -> None:
    """Draw the page."""
    film_page("asymmetry", "Does a score have a direction?", "symmetry", _what_rescues_it)


@dataclass
class Attempt:
    """One change that the visitor has tried.

    Attributes:
        sentences: Its effect in sentences; empty until it is trained.
    """

    before: Outcome
    change: Change
    sentences: list[str] = field(default_factory=list)


def _what_rescues_it(lab: Lab) -> None:
    with st.container(border=True, key="rescue"):
        live(lambda: _section(lab), lambda: [lab.job], 0.4)


def _section(lab: Lab) -> None:
    job = lab.job
    experiment = lab.experiment if job is None else job.experiment
    snapshot = lab.finished
    failure = None if snapshot is None else failure_of(snapshot)
    has_failed = failure is not None and failure.setting == "learning_rate"
    names = [title_of(variant) for variant in symmetric_variants(experiment)]
    st.subheader(f"What rescues {' and '.join(names) or 'it'}?", anchor=False)
    if not names:
        st.markdown(
            "Every variant here can give the two directions different scores. Add Q=K in the Lab."
        )
    elif snapshot is None:
        st.markdown(status_of(job) if job else "Not trained with these settings yet.")
    elif failure is not None and has_failed:
        st.markdown(plain(f"{failure.sentence} {failure.advice}"))
    else:
        st.markdown(_standing(Outcome.of(snapshot)))
    _finish(lab)
    if names and not has_failed:
        _buttons(lab, experiment, snapshot)
    show_refusal(lab)
    lines = [
        line
        for attempt in _attempts(experiment)
        for line in attempt.sentences or [f"{_label(attempt.change)}: not trained to the end yet."]
    ]
    if lines:
        st.markdown("\n".join(f"- {plain(line)}" for line in lines))


def _standing(outcome: Outcome) -> str:
    symmetric = symmetric_variants(outcome.experiment)
    parts = [
        f"{title_of(variant)} {level_in_words(outcome.mean(variant))}" for variant in symmetric
    ]
    n_seeds, reference = outcome.experiment.n_seeds, outcome.reference
    mean = f", mean of {n_seeds} seeds" if n_seeds > 1 else ""
    if reference is not None:
        parts[-1] += f" ({title_of(reference)} {level_in_words(outcome.mean(reference))})"
    return plain(f"Accuracy{mean}: {', '.join(parts)}. Change one thing and train it at once:")


def _buttons(lab: Lab, experiment: Experiment, snapshot: Snapshot | None) -> None:
    attempts = _attempts(experiment)
    problems = server_settings().problems
    with st.container(horizontal=True, key="rescues"):
        job = lab.job
        if snapshot is None and (job is None or job.state in ("paused", "stopped", "failed")):
            st.button(
                "Train it",
                icon=":material/play_arrow:",
                on_click=_train,
                args=(lab, experiment),
                key="rescue_train",
            )
        for change in changes_of(experiment):
            if problems(change.experiment):
                continue
            n_runs, steps = change.experiment.n_runs, change.experiment.training.steps
            st.button(
                _label(change),
                on_click=_try,
                args=(lab, snapshot, change),
                disabled=snapshot is None,
                key=f"rescue_{change.setting}",
                help=f"Trains {n_runs} models for {steps} steps.",
            )
        if attempts and attempts[-1].change.experiment == experiment:
            st.button(
                "Undo",
                icon=":material/undo:",
                type="tertiary",
                on_click=_undo,
                args=(lab, attempts[-1]),
                disabled=snapshot is None,
                key="rescue_undo",
            )


def _label(change: Change) -> str:
    text = change.label.removeprefix("a ").removeprefix("an ")
    return text[0].upper() + text[1:]


def _all_attempts() -> list[Attempt]:
    attempts: list[Attempt] = st.session_state.setdefault("rescue_attempts", [])
    return attempts


def _attempts(experiment: Experiment) -> list[Attempt]:
    task = experiment.task.name
    return [a for a in _all_attempts() if a.change.experiment.task.name == task]


def _try(lab: Lab, before: Snapshot, change: Change) -> None:
    if _is_accepted(lab, change.experiment):
        attempts = _all_attempts()
        attempts.append(Attempt(Outcome.of(before), change))
        del attempts[:-8]


def _train(lab: Lab, experiment: Experiment) -> None:
    lab.set(experiment)
    lab.train()


def _is_accepted(lab: Lab, experiment: Experiment) -> bool:
    """Train an experiment, and return whether it was accepted; if not, nothing is changed."""
    previous = lab.experiment
    _train(lab, experiment)
    if lab.job_of_settings is not None:
        return True
    lab.set(previous)
    return False


def _undo(lab: Lab, attempt: Attempt) -> None:
    before, attempts = attempt.before.experiment, _all_attempts()
    if attempt not in attempts:  # pressed twice
        return
    existing, example = training_service().find(before, lab.watcher), lab.example
    if existing is None and example is not None and example.experiment == before:
        lab.leave()  # what the Lab then shows is the shipped example
        lab.set(before)
    elif not _is_accepted(lab, before):
        return
    attempts.remove(attempt)


def _finish(lab: Lab) -> None:
    for attempt in _all_attempts():
        if attempt.sentences:
            continue
        job = training_service().find(attempt.change.experiment, lab.watcher)
        if job is not None and job.state == "finished" and job.snapshot is not None:
            after = Outcome.of(job.snapshot)
            attempt.sentences = effect_sentences(attempt.before, after, attempt.change.setting)
