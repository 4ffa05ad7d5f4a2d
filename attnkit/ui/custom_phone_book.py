"""A phone book of one's own, asked of the trained models, in the Lab."""

from __future__ import annotations

import streamlit as st

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.custom_phone_book import (
    MOST_CHARACTERS,
    ask,
    can_be_asked,
    most_entries,
    read_book,
)
from attnkit.experiment import Experiment
from attnkit.figures.answers import answers_table
from attnkit.service.jobs import Job
from attnkit.tasks import Task
from attnkit.tasks.fuzzy import FuzzyPhonebook
from attnkit.ui import components
from attnkit.ui.lab import Lab
from attnkit.ui.markdown import plain

MOST_PROBLEMS = 5
"""Problems of a book that are told one by one."""

OWN_BOOK = "Jindřich 731\nAnna 204\nBernd 518\nMiriam 366\nTom 942"


def custom_phone_book_area(lab: Lab) -> None:
    """A phone book of one's own, and what the trained models answer."""
    job = lab.job
    task = (lab if job is None else job).experiment.task
    assert can_be_asked(task)
    with st.container(border=True, key="custom_book"):
        st.markdown("**Ask the trained models** with a phone book of your own.")
        left, right = st.columns(2, gap="medium")
        with left:
            text = st.text_area(
                "Your book",
                key=f"book_{task.name}",
                value=OWN_BOOK,
                height=190,
                max_chars=MOST_CHARACTERS,
                help="A name and a number on each line, parted by a comma, a semicolon, a "
                "colon, a tab or spaces. The number is what comes after the last of them, of "
                f"digits, spaces and ( ) . / + -; 2 to {most_entries(task)} lines.",
            )
        with right:
            name = st.text_input(
                "Whose number?" + " Misspell it" * isinstance(task, FuzzyPhonebook),
                key=f"asked_{task.name}",
                value=task.own_question,
                max_chars=MOST_CHARACTERS,
            )
            if isinstance(task, FuzzyPhonebook):
                st.caption(
                    f"Names are read as their first {task.n_letters} letters or digits, without "
                    "case and accents; shorter ones are filled up."
                )
            else:
                st.caption(
                    "Names are labels without spelling: case and spaces do not count, and an "
                    "unknown name gets any free label."
                )
            seeds = [] if job is None else list(job.experiment.seeds)
            seed = None
            if len(seeds) > 1:
                seed = st.selectbox(
                    "Who answers",
                    [None, *seeds],
                    format_func=lambda s: "the majority of seeds" if s is None else f"seed {s}",
                    key=f"asked_seed_{seeds[0]}_{len(seeds)}",
                )
        _answers(lab, job, task, str(text), str(name), seed)


def _answers(lab: Lab, job: Job | None, task: Task, text: str, name: str, seed: int | None) -> None:
    """What is wrong with a book, or what the models answer to it."""
    book = read_book(text, task)
    if book.problems:
        told = book.problems[:MOST_PROBLEMS]
        more = len(book.problems) - len(told)
        lines = "line like these" if more == 1 else "lines like these"
        told += [f"… and {more} more {lines}."] if more else []
        st.error("  \n".join(map(plain, told)), icon=":material/error:")
        return
    question = ask(book, name, task)
    notes = [*book.notes[:MOST_PROBLEMS], *question.notes]
    if question.problems:
        st.error(plain(" ".join(question.problems)), icon=":material/error:")
        return
    experiment = _trained(lab, job)
    if experiment is None:
        st.info("Your settings are not trained yet: press **Train**, then the models answer.")
        return
    answers = lab.ask(job, question.tokens)
    if isinstance(answers, str):
        st.warning(plain(f"{answers}."))
        return
    components.markup(
        answers_table(
            experiment, book, question, answers, seed, telling_layer(experiment.layer_specs)
        ),
        key="custom_book_answers",
    )
    whose = "of the finished example, " if job is None else ""
    asked = f"Models {whose}after step {answers.step}: brighter is more attention on that entry"
    asked += ", mean over heads of the last layer." if experiment.n_heads > 1 else "."
    if question.right:
        asked += " Outlined: the right entry."
    st.caption(" ".join([asked, *map(plain, notes)]))


def _trained(lab: Lab, job: Job | None) -> Experiment | None:
    """Return the experiment whose models can be asked; None if there are none yet.

    Before anything is trained, these are the models of the shipped example, its first seed alone.
    """
    if job is not None:
        return None if job.snapshot is None or job.state == "failed" else job.experiment
    if lab.example is None or lab.example.experiment != lab.experiment:
        return None
    return lab.experiment.replace(n_seeds=1)
