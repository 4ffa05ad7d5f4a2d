"""Predict first: in the quiet mode a visitor guesses before a result is shown.

Until Train is pressed, the Lab shows neither a finished example nor a result that is known, and the
guess can be changed. Questions keeps its answer back in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import solved_variants
from attnkit.ui.lab import Lab
from attnkit.ui.markdown import plain
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

SWITCH = "quiet_mode"
"""Key of the switch."""

NONE = "none of them"
"""The guess that no variant will solve the task."""


@dataclass(frozen=True)
class Guess:
    """A visitor's guess.

    Attributes:
        experiment: What it is about.
        chosen: The variants that are expected to solve the task; `NONE` alone if none is.
    """

    experiment: Experiment
    chosen: tuple[str, ...]

    def is_about(self, experiment: Experiment) -> bool:
        """Return whether it holds for an experiment: also for the same one on other seeds."""
        seed = experiment.first_seed
        return bool(self.chosen) and self.experiment.replace(first_seed=seed) == experiment

    def is_right(self, solved: set[str]) -> bool:
        """Return whether just the variants that were chosen have solved the task."""
        return set(self.chosen) - {NONE} == solved


def is_quiet() -> bool:
    """Return whether this visitor guesses before a result is shown."""
    lab: Lab | None = st.session_state.get("lab")
    return lab is not None and lab.quiet


def outcome_in_words(is_right: bool, by: str = "Your guess") -> str:
    """Return the sentence that says whether a guess was right."""
    return f"{by} was {'right' if is_right else 'wrong'}."


def quiet_switch(lab: Lab) -> None:
    """Let the visitor turn the quiet mode on and off."""
    st.session_state[SWITCH] = lab.quiet
    st.toggle(
        "Guess first",
        key=SWITCH,
        on_change=lambda: lab.set_quiet(st.session_state[SWITCH]),
        help="Results stay hidden until you have guessed and pressed Train. The address of this "
        "page then opens in the same way.",
    )


def awaits_guess(lab: Lab) -> bool:
    """Return whether Train waits until the visitor has guessed."""
    return lab.quiet and not _is_on_screen(lab) and _guess_of(lab) is None


def guess_area(lab: Lab) -> None:
    """Ask for the guess; once the experiment trains, repeat it, and in the end say if it was right.

    Nothing is drawn outside the quiet mode.
    """
    if not lab.quiet:
        return
    with st.container(border=True, key="guess_area"):
        if not _is_on_screen(lab):
            _ask(lab)
            return
        guess, job = _guess_of(lab), lab.job
        if guess is None:
            st.markdown("You have not guessed what comes out of this run.")
        elif job is not None and job.state == "finished" and job.snapshot is not None:
            st.markdown(_outcome(guess, job.snapshot))
        else:
            st.markdown(f"Your guess: {_listed(guess.chosen)} will {_aim(lab.experiment)}.")


def _ask(lab: Lab) -> None:
    """Draw the choice; what was guessed before is still chosen if it is about the same."""
    options = [*lab.experiment.sharing, NONE]
    key = f"guess_{lab.experiment.replace(first_seed=0).hash}"
    known = _guess_of(lab)
    if key not in st.session_state and known is not None:
        st.session_state[key] = list(known.chosen)
    chosen = st.pills(
        f"**Which of them will {_aim(lab.experiment)}?** Guess, then press Train.",
        options,
        format_func=lambda name: name if name == NONE else title_of(Variant(name)),
        selection_mode="multi",
        key=key,
        wrap=True,
    )
    st.caption("You can change the guess until you press Train. Results are hidden until then.")
    st.session_state.guess = Guess(lab.experiment, tuple(chosen))


def _outcome(guess: Guess, snapshot: Snapshot) -> str:
    """Return whether the guess was right, and if not, what was guessed and what came out."""
    solved = [variant.value for variant in solved_variants(snapshot)]
    aim, is_right = _aim(snapshot.experiment), guess.is_right(set(solved))
    text = f"**{outcome_in_words(is_right)}**"
    if is_right:
        return text
    found = _listed(solved) if solved else NONE
    return f"{text} Which will {aim}? You said {_listed(guess.chosen)}. It was {found}."


def _aim(experiment: Experiment) -> str:
    """Return what a variant is to reach, after "will"."""
    if experiment.task.loss_to_beat is None:
        return "solve this with all seeds"
    return f"have a lower loss than {experiment.task.simple_model}"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    """Return the titles of variants, for people."""
    some = [name for name in names if name != NONE]
    return plain(", ".join(title_of(Variant(name)) for name in some)) if some else NONE


def _guess_of(lab: Lab) -> Guess | None:
    """Return the guess about the settings; None if there is none."""
    guess: Guess | None = st.session_state.get("guess")
    return guess if guess is not None and guess.is_about(lab.experiment) else None


def _is_on_screen(lab: Lab) -> bool:
    """Return whether the settings' own run is on screen, so that a guess comes too late."""
    job = lab.job
    return job is not None and job.experiment == lab.experiment
