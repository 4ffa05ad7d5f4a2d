"""The pages of the static site: films of trainings, answers, lessons, Capacity, real models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from html import escape

from attnkit.analysis import Inspection, inspect
from attnkit.analysis.attention_map import example_of, telling_layer
from attnkit.analysis.inspection.request import View
from attnkit.evidence.questions import QUESTIONS, Answer, Question
from attnkit.evidence.record import load_shipped as load_records
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.experiment.experiment import DEFAULT_TASK
from attnkit.figures.board import board_film
from attnkit.figures.capacity import MOST_PANELS, middle_of, phase_of
from attnkit.figures.example import thumbnail
from attnkit.foundation.tables import html_list
from attnkit.notebook.cards import card_of
from attnkit.notebook.plots import finished, plot
from attnkit.realmodels.answer import conclusion as conclusion_of_atlas
from attnkit.realmodels.measures import MEASURES
from attnkit.realmodels.shipped import load_atlas
from attnkit.site.frame import Page, figure_html, paragraphs, train_yourself, with_plotly
from attnkit.site.lessons import lesson_page, lessons_page
from attnkit.sweeps.conclusion import conclusion
from attnkit.sweeps.result import SHIPPED
from attnkit.sweeps.result import load_shipped as load_sweep
from attnkit.tasks import FAMILIES, TASKS, Task
from attnkit.training.film import Film
from attnkit.training.loops import record, stream
from attnkit.ui.lab.classroom import lessons
from attnkit.ui.standalone import asset, film_html, standalone_html
from attnkit.variants.catalogue import title_of

HOME = DEFAULT_TASK
"""Task of the first page, and of the pages that look inside a model: that with which the Lab opens,
because in it some variants fail."""

TITLE = "Why do Q, K and V need different matrices?"
"""Title of the first page."""

INTRODUCTION = (
    "Every token makes three vectors out of its embedding: a query (what it looks for), a key "
    "(what it is found by) and a value (what it hands over). It receives the values of the tokens "
    "whose keys fit its query. Here small models that share these matrices in five ways learn the "
    "same task side by side, from the same first numbers and on the same data. Press Play, or move "
    "the slider."
)

LOOK_INSIDE: dict[str, tuple[View, str]] = {
    "attention": ("attention", "Where does each variant look?"),
    "asymmetry": ("symmetry", "Are the scores the same in both directions?"),
    "similarity": ("similarity", "How alike are queries, keys and values?"),
}
"""Views and titles of the pages that look inside a model, by the name of their component."""

MOST_FRAMES = 18
"""Frames of a film that looks inside a model, so that its file has at most 400 kB."""

_WIDTH = 1000
"""Width in pixels for which the panels of a sweep are arranged; see `phase.COLUMNS`."""

ATLAS_MEASURES = ("overlap_qk", "symmetry")
"""Measures of real models' heads that have a figure."""


def pages(lab: str) -> Iterator[Callable[[], Page]]:
    """Yield a function for each page, which makes it and may train for some seconds.

    Args:
        lab: Address of the Lab that the buttons open.
    """
    for name in TASKS:
        yield partial(task_page, Experiment(task=name), lab)
    yield answers_page
    for name, question in QUESTIONS.items():
        yield partial(answer_page, name, question)
    yield lessons_page
    for name, lesson in lessons().items():
        yield partial(lesson_page, name, lesson, lab)
    for component in LOOK_INSIDE:
        yield partial(inside_page, component, Experiment(task=HOME), lab)
    yield capacity_page
    yield atlas_page


def task_page(experiment: Experiment, lab: str) -> Page:
    """Train an experiment and return the page of its task; that of `HOME` is the first page."""
    task, seed = experiment.task, experiment.first_seed
    snapshots = list(stream(experiment))
    film = board_film(snapshots)
    note = (
        f"{task.title}: means of {experiment.n_seeds} seeds with their 95% intervals; the maps are "
        f"of seed {seed}."
    )
    title, before, answers = task.title, "", ""
    if task.name == HOME:
        title, before = TITLE, paragraphs([INTRODUCTION])
        answers = f"<h2>What people asked</h2>{_questions()}"
    shown = film_html("training", film, card_of(snapshots[-1]))
    body = f"{before}{paragraphs([task.question])}{shown}{paragraphs([note])}"
    body += f"{train_yourself(experiment, lab)}{answers}{_tasks(task.name)}"
    embedded = standalone_html(title, "training", film, note, style=asset("board.css"), framed=True)
    return Page(_file_of(task.name), title, body, embedded)


def _file_of(task: str) -> str:
    return "index.html" if task == HOME else f"task_{task}.html"


def _tasks(current: str) -> str:
    """Return the list of all other tasks, by family."""
    parts = []
    for family in FAMILIES:
        others = [t for name, t in TASKS.items() if t.family == family and name != current]
        if others:
            cards = "".join(f"<li>{_task_card(task)}</li>" for task in others)
            parts.append(f'<h3>{escape(family)}</h3><ul class="ak-tasks">{cards}</ul>')
    return f"<h2>Other tasks</h2>{''.join(parts)}"


def _task_card(task: type[Task]) -> str:
    drawn = thumbnail(task(), example_of(load_example(task.name)))
    link = f'<a href="{_file_of(task.name)}">{escape(task.title)}</a>'
    return f"{drawn}{link}{paragraphs([task.question])}"


def _questions() -> str:
    """Return the questions with their short answers, each with a link to its page."""
    records = load_records()
    return html_list(
        f'<a href="{_answer_file(name)}">{escape(question.title)}</a> '
        f"{escape(Answer(question, records).conclusion)}"
        for name, question in QUESTIONS.items()
    )


def _answer_file(name: str) -> str:
    return f"answer_{name}.html"


def answers_page() -> Page:
    """Return the page with the short answers to all questions."""
    about = "Each answer is put together from trained models, with seeds, intervals and verdicts."
    return Page("answers.html", "What people asked", f"{paragraphs([about])}{_questions()}")


def answer_page(name: str, question: Question) -> Page:
    """Return the page of a question: the answer, its numbers, and its first claims."""
    records = load_records()
    claims = [records[one] for one in question.claims if one in records]
    figures = "".join(figure_html(plot(one), one.claim.title) for one in claims[:2])
    first = "".join(card_of(evidence) for evidence in claims[:1])
    answer = f'<div class="ak-answer">{card_of(question)}</div>'
    body = f"{answer}{figures}<h2>The first claim in full</h2>{first}"
    return Page(_answer_file(name), question.title, with_plotly(body))


def inside_page(component: str, experiment: Experiment, lab: str) -> Page:
    """Record a film of an experiment's first seed and return a page that looks inside."""
    film = _film(experiment)
    view, title = LOOK_INSIDE[component]
    layer = telling_layer(film.experiment.layer_specs)
    blob = inspect(film, Inspection(view, layer=layer)).to_bytes()
    names = ", ".join(title_of(variant) for variant in experiment.sharing)
    note = f"{experiment.task.title}, seed {experiment.first_seed}: {names}."
    shown = film_html(component, blob, card_of(load_example(experiment.task.name)))
    body = f"{paragraphs([note])}{shown}{train_yourself(experiment, lab)}"
    embedded = standalone_html(title, component, blob, note, framed=True)
    return Page(f"{component}.html", title, body, embedded)


@lru_cache(maxsize=1)
def _film(experiment: Experiment) -> Film:
    return record(experiment, progress=False).thinned(MOST_FRAMES)


def capacity_page() -> Page:
    """Return the page of the shipped sweeps: the conclusion and the phase diagram of each."""
    parts = []
    for name, title in SHIPPED.items():
        result = load_sweep(name)
        axes = result.sweep.axes
        x, *others = axes
        y = others[0] if others else None
        fixed = {one: middle_of(values) for one, values in axes.items() if one not in (x, y)}
        variants = result.sweep.sharing[:MOST_PANELS]
        phase = phase_of(result, x, y or "", "accuracy", variants, tuple(fixed.items()))
        figure = finished(phase.figures[_WIDTH], f"Accuracy. {title}", phase.key)
        told = conclusion(result, x, y, fixed)
        conditions = f"{told.note} {result.sweep.conditions}.".lstrip()
        parts.append(
            f"<h2>{escape(title)}</h2>{paragraphs([told.text], 'ak-lead')}"
            f"{paragraphs([conditions])}{figure_html(figure, title)}"
            "<details><summary>The figure in words</summary>"
            f"{paragraphs([phase.finding])}</details>"
        )
    return Page("capacity.html", "How large must a model be?", with_plotly("".join(parts)))


def atlas_page() -> Page:
    """Return the page of the real models that ship: the conclusion, strips and medians."""
    atlas = load_atlas()
    figures = "".join(
        figure_html(plot(atlas, measure=name), MEASURES[name].title) for name in ATLAS_MEASURES
    )
    body = f"{paragraphs([conclusion_of_atlas(atlas.table)], 'ak-lead')}{figures}{card_of(atlas)}"
    return Page(
        "atlas.html", "How similar are the three matrices in real models?", with_plotly(body)
    )
