"""Sentences about guesses: the question, the guess, and whether it was right.

A variant either solves the task with all seeds or, on texts, has a lower loss than a simple model.
"""

from __future__ import annotations

from collections.abc import Sequence

from attnkit.experiment import Experiment
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.words import listed
from attnkit.training.summary import never_solved
from attnkit.variants.catalogue import title_of

NONE = mark("none of them")
"""The guess that no variant will solve the task.

A guess is a list: the text forms of the variants that are expected to solve it, or `NONE` alone.
"""


def option_title(name: str) -> str:
    """Return an option of a guess on screen."""
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
    if model:
        return tr_n(
            "Your guess: {names} will have a lower loss than {model}.",
            "Your guess: {names} will have a lower loss than {model}.",
            len(names),
            names=titles(names),
            model=model,
        )
    return tr_n(
        "Your guess: {names} will solve this with all seeds.",
        "Your guess: {names} will solve this with all seeds.",
        len(names),
        names=titles(names),
    )


def outcome_in_words(is_right: bool, *, is_partly_right: bool = False) -> str:
    """Return the sentence that says whether a guess was right."""
    if is_right:
        return tr("Your guess was right.")
    return tr("Your guess was partly right.") if is_partly_right else tr("Your guess was wrong.")


def of_class_in_words(n: int, total: int, name: str, *, is_right: bool | None) -> str:
    """Return how many of a class have guessed an option, and whether it is right if that is known.

    Args:
        n: Number of those who have guessed it.
        total: Number of all who have guessed.
        name: The option on screen.
        is_right: Whether it is right; None if that is not known yet.
    """
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
    if wrong and solved and len(wrong) == len(named):
        clauses = [_named_in_vain(named, model)]
    else:
        clauses = [tr("You named {names}", names=titles(named))]
        if not solved:
            clauses.append(_none_solves(model))
        elif wrong:
            clauses.append(_fail(wrong, model))
    if lacking:
        solve = _solve_too if len(wrong) < len(named) else _solve
        clauses.append(solve(lacking, model))
    return f"{'; '.join(clauses)}."


def _model(experiment: Experiment) -> str:
    """Return the simple model whose loss is to be beaten; empty if the task is to be solved."""
    task = experiment.task
    return "" if task.loss_to_beat is None else tr(task.simple_model)


def _none_solves(model: str) -> str:
    if model:
        return tr("none of them has a lower loss than {model}", model=model)
    return tr("none of them solves it")


def _named_in_vain(names: Sequence[str], model: str) -> str:
    """Return the clause about a guess of which nothing is right."""
    if model:
        return tr_n(
            "You named {names}, which does not have a lower loss than {model}",
            "You named {names}, which do not have a lower loss than {model}",
            len(names),
            names=titles(names),
            model=model,
        )
    return tr_n(
        "You named {names}, which does not solve it",
        "You named {names}, which do not solve it",
        len(names),
        names=titles(names),
    )


def _fail(names: Sequence[str], model: str) -> str:
    if model:
        return tr_n(
            "{names} does not have a lower loss than {model}",
            "{names} do not have a lower loss than {model}",
            len(names),
            names=titles(names),
            model=model,
        )
    return tr_n(
        "{names} does not solve it", "{names} do not solve it", len(names), names=titles(names)
    )


def _solve(names: Sequence[str], model: str) -> str:
    if model:
        return tr_n(
            "{names} has a lower loss than {model}",
            "{names} have a lower loss than {model}",
            len(names),
            names=titles(names),
            model=model,
        )
    return tr_n("{names} solves it", "{names} solve it", len(names), names=titles(names))


def _solve_too(names: Sequence[str], model: str) -> str:
    if model:
        return tr_n(
            "{names} has a lower loss than {model}, too",
            "{names} have a lower loss than {model}, too",
            len(names),
            names=titles(names),
            model=model,
        )
    return tr_n("{names} solves it, too", "{names} solve it, too", len(names), names=titles(names))
