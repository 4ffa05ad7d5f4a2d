"""Claims that visitors run again on new seeds, beside the shipped evidence."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import streamlit as st

from attnkit import __version__
from attnkit.claims import Claim, Verdict
from attnkit.evidence.presentation import ClaimInWords, disagreement
from attnkit.evidence.record import Evidence
from attnkit.evidence.trials import NEW_SEED, NO_WORSE_SEEDS, QuickForm, Trial
from attnkit.evidence.words import finding_in_words, tested_in_words
from attnkit.experiment import Experiment, from_text
from attnkit.experiment.experiment import SCHEMA, settings
from attnkit.figures.evidence import describe_evidence, plot_evidence
from attnkit.foundation import tables
from attnkit.foundation.language import in_language, tr, tr_n
from attnkit.foundation.settings import InvalidExperiment, message_of
from attnkit.foundation.words import listed
from attnkit.training.snapshot import Snapshot
from attnkit.ui import components
from attnkit.ui.address import is_quiet
from attnkit.ui.lab.guess import outcome_in_words
from attnkit.ui.lab.lab import MOST_COLUMNS, lab_link
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import training_time, watcher
from attnkit.ui.server.turns import fragment
from attnkit.ui.watched_job import Series
from attnkit.ui.widgets import bound

LAST_SEED = 800_000
"""Largest seed of visitors' runs, below those of tuning."""

TICK_SECONDS = 0.4
"""Seconds between two updates while a claim trains."""


@dataclass
class ClaimRerun(Series):
    """One claim on new seeds.

    Attributes:
        trials: The trials of this form, whose experiments are the series.
        guess: The verdict that the visitor guessed.
    """

    claim: Claim
    form: QuickForm
    trials: list[Trial]
    guess: Verdict
    _scores: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds; some arms may have only the first of them."""
        return max((tuple(trial.experiment.seeds) for trial in self.trials), key=len)

    def keep(self, snapshot: Snapshot) -> None:
        """Take over the scores of the trial that trains or has just finished."""
        self._scores |= self.trials[self.n_finished].scores(snapshot)

    def evidence(self) -> Evidence:
        """Return what has been measured by now, including the experiment that trains.

        Arms that are not trained yet lack seeds.
        """
        job = None if self.finished else self.job
        if job is not None and job.snapshot is not None:
            self.keep(job.snapshot)
        measures = sorted({"accuracy", "loss", *(s.measure for s in self.claim.statements)})
        nothing = np.zeros((1, 0))
        return Evidence(
            claim=self.claim,
            version=__version__,
            hash=self.claim.hash,
            quick=True,
            first_seed=self.seeds[0],
            n_seeds=len(self.seeds),
            scores={
                arm.name: {m: self._scores.get(arm.name, {}).get(m, nothing) for m in measures}
                for arm in self.form.arms
            },
            tuned=self.form.tuned,
            experiments=tuple(one.to_text() for one in self.experiments),
            model_steps=sum(one.n_runs * one.training.steps for one in self.experiments),
            seconds=self.seconds,
        )


@dataclass
class ClaimReruns:
    """The newest run of every claim of one visitor. At most one trains.

    Attributes:
        known: Newest run by the claim's id.
        linked: First seed and guess of the run that a link names, by the claim's id.
    """

    known: dict[str, ClaimRerun] = field(default_factory=dict)
    linked: dict[str, tuple[int, Verdict]] = field(default_factory=dict)

    @property
    def moving(self) -> ClaimRerun | None:
        """The run that trains, if any."""
        return next((rerun for rerun in self.known.values() if rerun.moving), None)

    @property
    def job_id(self) -> str | None:
        """The job that trains for this visitor."""
        return None if self.moving is None else self.moving.job_id

    def begin(self, claim: Claim, form: QuickForm, guess: Verdict) -> None:
        """Train a claim on random new seeds in place of what trained for this visitor before."""
        self.stop()
        n_choices = (LAST_SEED - NEW_SEED) // form.n_seeds  # most likely these are never used twice
        first_seed = NEW_SEED + form.n_seeds * secrets.randbelow(n_choices)
        self._add(claim, form, first_seed, guess).go_on()

    def open_linked(self, claim: Claim, form: QuickForm) -> None:
        """Open the run that a link names; it goes on if the server died while it trained."""
        linked = self.linked.pop(claim.id, None)
        if linked is not None and claim.id not in self.known:
            rerun = self._add(claim, form, *linked)
            if self.moving is None:
                rerun.take_up()

    def _add(self, claim: Claim, form: QuickForm, first_seed: int, guess: Verdict) -> ClaimRerun:
        trials = form.trials(first_seed)
        experiments = [trial.experiment for trial in trials]
        rerun = ClaimRerun(claim, form, trials, guess, experiments=experiments, watcher=watcher())
        rerun.problem = tr("These seeds are not trained yet.")
        self.known[claim.id] = rerun
        return rerun

    def follow(self) -> None:
        """Follow the run that trains, whichever claim is on screen."""
        if self.moving is not None:
            self.moving.watcher = watcher()
            self.moving.follow()

    def go_on(self, rerun: ClaimRerun) -> None:
        """Resume a run that stands still, with the same seeds."""
        self.stop()
        rerun.watcher = watcher()
        rerun.go_on()

    def stop(self) -> None:
        """Stop the run that trains."""
        if self.moving is not None:
            self.moving.stop()


def open_reruns() -> ClaimReruns:
    """Return the runs of this visitor."""
    reruns: ClaimReruns = st.session_state.setdefault("reruns", ClaimReruns())
    return reruns


@dataclass(frozen=True)
class RerunArea:
    """“Predict, then run it now”: a claim trained on new seeds, beside its shipped evidence.

    Attributes:
        words: The claim and its shipped evidence.
        guesses: Verdict by the English text of each guess.
        reason: Reason for the shipped verdict, which follows a wrong guess; empty if unknown.
    """

    words: ClaimInWords
    question: str
    guesses: Mapping[str, Verdict]
    reason: str

    @cached_property
    def form(self) -> QuickForm:
        """The runs that pressing the button trains."""
        return QuickForm.of(self.words.claim, self.words.evidence)

    @cached_property
    def experiments(self) -> list[Experiment]:
        """The experiments of these runs, on other seeds."""
        return [trial.experiment for trial in self.form.trials(0)]

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Draw the content of a block, and below it this area; in the quiet mode above it."""
        if is_quiet():
            self.draw()
        yield
        if not is_quiet():
            self.draw()

    def draw(self) -> None:
        """Draw guess, buttons and outcome, which are drawn again by themselves during training.

        Below are links to the experiments that the shipped evidence compares, or a run would.
        """
        st.subheader(tr("Predict, then run it now"), anchor=False)
        try:
            experiments = self.experiments
        except InvalidExperiment as error:  # a claim of a plugin may be wrong
            reason = tr("This claim cannot be run: {reason}.", reason=tr(message_of(error)))
            st.error(plain(reason), icon=":material/error:")
            return
        open_reruns().open_linked(self.words.claim, self.form)
        with st.container(border=True, key="run_it"):
            tick = TICK_SECONDS if open_reruns().moving is not None else None
            fragment(self._draw_live, run_every=tick)()
        if self.words.evidence is not None:
            experiments = [from_text(text) for text in self.words.evidence.experiments]
        with st.container(horizontal=True, key="lab_links"):
            for experiment in experiments:
                _link_to_lab(experiment, experiments)

    def _draw_live(self) -> None:
        """Draw everything that changes while a claim trains, and the whole page at its end."""
        reruns = open_reruns()
        moved = reruns.moving is not None
        reruns.follow()
        ended = moved and reruns.moving is None
        rerun = reruns.known.get(self.words.claim.id)
        left, right = st.columns([5, 6], gap="large")
        with left:
            self._draw_buttons(reruns, rerun)
            st.markdown(self._status(reruns, rerun))
            if rerun is not None and rerun.moving:
                st.progress(rerun.share(rerun.job))
        if rerun is not None:
            with right:
                first, *_, last = rerun.seeds
                st.markdown(tr("**Your run**, seeds {first} to {last}", first=first, last=last))
                show_picture(rerun.evidence(), f"own_{self.words.claim.id}")
            if rerun.finished:
                self._draw_outcome(rerun)
        if ended:
            st.rerun()  # only now: a button that was pressed in the same moment has been heard

    def _draw_buttons(self, reruns: ClaimReruns, rerun: ClaimRerun | None) -> None:
        """Draw the choice of a guess, and the buttons that run a claim, resume it and stop it.

        The guess is kept while other pages are open.
        """
        claim, trains = self.words.claim, rerun is not None and rerun.moving
        guesses: dict[str, str | None] = st.session_state.setdefault("asked_guesses", {})
        own = None if rerun is None else rerun.guess
        guesses.setdefault(
            claim.id, next((t for t, one in self.guesses.items() if one is own), None)
        )
        st.radio(
            f"**{plain(self.question)}**",
            list(self.guesses),
            index=None,
            format_func=tr,
            disabled=trains,
            **bound(guesses, claim.id, f"guess_{claim.id}"),
        )
        guess, asks_first = guesses[claim.id], False
        with st.container(horizontal=True, key="run_buttons"):
            # No callbacks: a button that its own press disables would not report the press.
            if st.button(
                tr("Run it now") if rerun is None else tr("Run it on new seeds"),
                type="primary",
                icon=":material/play_arrow:",
                disabled=trains,
                key="run_claim",
            ):
                asks_first = guess is None
                if guess is not None:
                    reruns.begin(claim, self.form, self.guesses[guess])
                    st.rerun()
            if rerun is not None and rerun.problem:
                if st.button(tr("Go on"), icon=":material/resume:", key="go_on_claim"):
                    reruns.go_on(rerun)
                    st.rerun()
            elif st.button(
                tr("Stop"), icon=":material/stop:", disabled=not trains, key="stop_claim"
            ):
                reruns.stop()
                st.rerun()
        if asks_first:
            st.warning(tr("Guess first: choose an answer above."))

    def _status(self, reruns: ClaimReruns, rerun: ClaimRerun | None) -> str:
        """Return how far the training is; before it begins, what will be trained."""
        if rerun is None:
            status = self._plan()
        elif rerun.problem:
            status = f":material/warning: {plain(rerun.problem)}"
        elif rerun.finished:
            status = tr("Trained in {seconds:.1f} s.", seconds=rerun.seconds)
        else:
            return rerun.status()
        if reruns.moving is None:
            return status
        busy = tr(
            "“{claim}” trains for you now: it stops if you run this.",
            claim=plain(tr(reruns.moving.claim.title)),
        )
        return f"{status} {busy}"

    def _plan(self) -> str:
        """Return what pressing the button trains, and how long it takes."""
        n_runs = sum(experiment.n_runs for experiment in self.experiments)
        numbers = {"n_models": n_runs, "n_seeds": self.form.n_seeds}
        if self.form.untuned:
            return tr(
                "Trains {n_models} models on {n_seeds} new seeds, each at its task’s own learning "
                "rate: none is tuned yet.",
                **numbers,
            )
        plan = tr(
            "Trains {n_models} models on {n_seeds} new seeds. That takes {time}.",
            time=training_time(*self.experiments, reuse=False),
            **numbers,
        )
        shows = (
            tr("So few seeds can show a difference, but not that there is none.")
            if self.form.n_seeds < NO_WORSE_SEEDS
            else tr("They can show a difference, or that at most a fifth of all seeds is worse.")
        )
        return f"{plan} {shows}"

    def _draw_outcome(self, rerun: ClaimRerun) -> None:
        """Draw the verdict of the run beside the shipped one, and whether the guess was right.

        A wrong guess is followed by the reason.
        """
        evidence, verdict = rerun.evidence(), self.words.verdict
        own_verdict = evidence.judgement.verdict
        is_right = rerun.guess is (verdict or own_verdict)
        sentences = [
            f"**{guess_in_words(rerun.guess, own_verdict, verdict)}**",
            "" if is_right else plain(self.reason),
            plain(ClaimInWords(rerun.claim, evidence, own_verdict).found),
            disagreement(self.words, evidence),
        ]
        if rerun.form.untuned:
            sentences.append(tr("Learning rates were each task’s own, for none is tuned yet."))
        with st.container(key="outcome"):
            st.markdown(" ".join(filter(None, sentences)))
            st.markdown(_beside_table(evidence, self.words))


def guess_in_words(guess: Verdict, own_verdict: Verdict, shipped_verdict: Verdict | None) -> str:
    """Return whether a guess was right in words; shipped evidence decides, as it has more seeds."""
    judged = own_verdict if shipped_verdict is None else shipped_verdict
    if judged is own_verdict:
        return outcome_in_words(guess is judged)
    if guess is judged:
        return tr("By the shipped evidence your guess was right.")
    return tr("By the shipped evidence your guess was wrong.")


def show_picture(evidence: Evidence, key: str) -> None:
    """Draw the result of every seed of every arm."""
    alt = describe_evidence(evidence)
    components.picture(plot_evidence(evidence), key=f"picture_{key}", alt=alt)


def markdown_table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of plain texts in Markdown."""
    return tables.markdown_table(head, (map(plain, row) for row in rows))


def _beside_table(own: Evidence, shipped: ClaimInWords) -> str:
    """Return a table in Markdown that compares a visitor's run with the shipped record, if any."""
    columns = [(tr("your run"), own, own.judgement.verdict)]
    if shipped.evidence is not None and shipped.verdict is not None:
        # Translators: heading of the column of the evidence that ships with the package.
        columns.append((tr("shipped"), shipped.evidence, shipped.verdict))
    seeds = [tr("{low} to {high}", low=r.seeds[0], high=r.seeds[-1]) for _, r, _ in columns]
    verdicts = [f"{verdict.mark} {tr(verdict)}" for *_, verdict in columns]
    rows = [(tr("seeds"), *seeds), (tr("verdict"), *verdicts)]
    for statement, finding in own.own_findings.items():
        cells = (finding_in_words(r.own_findings[statement]) for _, r, _ in columns)
        rows.append((tested_in_words(finding), *cells))
    return markdown_table(["", *(name for name, *_ in columns)], rows)


def _link_to_lab(experiment: Experiment, listed_with: Sequence[Experiment]) -> None:
    """Draw a link that sets an experiment up in the Lab.

    Among several experiments its label names the task; where several of these have the same task,
    also the variants and the settings by which they differ. The Lab shows at most `MOST_COLUMNS`
    columns; the label says if further ones are left out.
    """
    same_task = [one for one in listed_with if one.task.title == experiment.task.title]
    parts = [tr(experiment.task.title)] if len(listed_with) > 1 else []
    if len(same_task) > 1:
        parts.append(_what_differs(experiment, same_task))
    if len(experiment.sharing) > MOST_COLUMNS:
        n_variants = len(experiment.sharing)
        parts.append(tr("first {n} of {total} variants", n=MOST_COLUMNS, total=n_variants))
        experiment = experiment.replace(sharing=experiment.sharing[:MOST_COLUMNS])
    label = tr("Set it up in the Lab")
    if parts:
        label = tr("Set up in the Lab: {experiment}", experiment=", ".join(parts))
    lab_link(label, experiment.to_params() or {"v": str(SCHEMA)})


def _what_differs(experiment: Experiment, others: Iterable[Experiment]) -> str:
    """Return the variants of an experiment, and its settings that others of its task lack."""
    names = [re.sub(r" learning_rate=\S+", "", variant.value) for variant in experiment.sharing]
    if len(names) > 2:
        names[1:] = [tr_n("{n} other", "{n} others", len(names) - 1)]
    known, links = settings(experiment.task.name), [one.to_params() for one in others]
    texts = []
    for name, value in experiment.to_params().items():
        is_told = name in known and name not in ("sharing", "n_seeds", "evaluate_every")
        if is_told and any(link.get(name) != value for link in links):
            text = known[name].label_of(value)
            number = in_language(f"{int(text):,}", int(text)) if text.isdecimal() else tr(text)
            texts.append(f"{tr(known[name].label)}: {number}")
    return f"{listed(names)} ({', '.join(texts)})" if texts else listed(names)
