"""A phone book of one's own, asked of the trained models, in the Lab."""

from __future__ import annotations

import re

import streamlit as st

from attnkit.figures.answers import answers_table
from attnkit.figures.maps import telling_layer
from attnkit.live.service import Job
from attnkit.own_book import ask, most_entries, read_book
from attnkit.tasks.fuzzy import FuzzyPhonebook
from attnkit.ui import components
from attnkit.ui.session import Lab, training_service

MOST_PROBLEMS = 5
"""Problems of a book that are told one by one."""

OWN_BOOK = "Jindřich 731\nAnna 204\nBernd 518\nMiriam 366\nTom 942"
OWN_QUESTION = {"phonebook": "Jindřich", "fuzzy_phonebook": "Jintrich"}


def own_book(lab: Lab) -> None:
    """A phone book of one's own, and what the trained models answer."""
    task = lab.experiment.task
    job = lab.job
    with st.container(border=True, key="own_book"):
        st.markdown("**Ask the trained models** with a phone book of your own.")
        left, right = st.columns(2, gap="medium")
        with left:
            text = st.text_area(
                "Your book",
                key=f"book_{task.name}",
                value=OWN_BOOK,
                height=190,
                help="A name and a number on each line, parted by a comma, a colon, a tab or "
                f"spaces; 2 to {most_entries(task)} lines.",
            )
        with right:
            name = st.text_input(
                "Whose number?" if task.name == "phonebook" else "Whose number? Misspell it",
                key=f"asked_{task.name}",
                value=OWN_QUESTION[task.name],
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
        _answers(lab, job, str(text), str(name), seed)


def _answers(lab: Lab, job: Job | None, text: str, name: str, seed: int | None) -> None:
    """What is wrong with a book, or what the models answer to it."""
    task = lab.experiment.task if job is None else job.experiment.task
    book = read_book(text, task)
    if book.problems:
        told = book.problems[:MOST_PROBLEMS]
        more = len(book.problems) - len(told)
        told += [f"… and {more} more lines like these."] if more else []
        st.error("  \n".join(map(_plain, told)), icon=":material/error:")
        return
    question = ask(book, name, task)
    notes = [*book.notes[:MOST_PROBLEMS], *question.notes]
    if question.problems:
        st.error(_plain(" ".join(question.problems)), icon=":material/error:")
        return
    if job is None or job.snapshot is None or job.state == "failed":
        st.info("Nothing is trained yet on this server: press **Train**, then they answer.")
        return
    answers = training_service().ask(job.id, question.tokens)
    if isinstance(answers, str):
        st.warning(f"{_plain(answers)}.")
        return
    components.markup(
        answers_table(
            job.experiment, book, question, answers, seed, telling_layer(job.experiment.places)
        ),
        key="own_answers",
    )
    asked = f"Asked after step {answers.step}: brighter is more attention on that entry"
    asked += ", mean over heads of the last layer." if job.experiment.n_heads > 1 else "."
    if question.right:
        asked += " Outlined: the right entry."
    st.caption(" ".join([asked, *map(_plain, notes)]))


def _plain(text: str) -> str:
    """A text in which nothing is taken for Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]()<>#+\-.!|~$:&^=])", r"\\\1", text)
