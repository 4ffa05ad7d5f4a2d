"""The five lessons: their links, what these hide, and the numbers that they promise to a class."""

import re
from urllib.parse import parse_qsl

import pytest
from idle import idle_service, link_of, open_page, show, visit
from visiting import plain_text, said

import attnkit as ak
from attnkit.evidence.questions import QUESTIONS
from attnkit.examples import load_example
from attnkit.experiment.links import GROUPS, read_link
from attnkit.training.joining import can_share_runs
from attnkit.ui.lab.controls import MAIN_GROUPS
from attnkit.ui.reference import lessons as reference
from attnkit.ui.reference.lessons import lessons
from attnkit.ui.render_cache import with_variants
from attnkit.variants.catalogue import title_of

HEADINGS = (
    "Goal",
    "Time",
    "Prediction",
    "Link for the class",
    "What the class will see",
    "Answer",
    "Misconception",
    "Question to take home",
)

LEFT = {"2_expressiveness": {"steps"}}
"""Settings that a lesson needs, and its link must not hide."""


def opened(lesson):
    """Return the link of a lesson as the Lab reads it, and whether results are hidden."""
    fields = dict(parse_qsl(lesson.query.removeprefix("?"), strict_parsing=True))
    return read_link({**fields, "quiet": ""}, lambda _: None), fields.get("quiet") == "1"


def test_there_is_a_lesson_for_each_question_and_all_are_built_alike():
    """A lesson is named after its question, and has the same parts in the same order."""
    titles = {name.partition("_")[2]: lesson.title for name, lesson in lessons().items()}
    assert titles == {name: question.title for name, question in QUESTIONS.items()}
    for lesson in lessons().values():
        text = f"{lesson.before}\n{lesson.after}"
        assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == HEADINGS
        assert lesson.before.endswith("## Link for the class")
        minutes, *parts = map(int, re.findall(r"\d+", text.split("## Time")[1].split("##")[0]))
        assert minutes == sum(parts)


@pytest.mark.parametrize("name", lessons())
def test_the_link_opens_without_problems_and_shows_only_what_the_lesson_needs(name):
    """It is quiet, and hides all controls but those that the lesson speaks of."""
    link, is_quiet = opened(lessons()[name])
    assert link.problems == []
    assert is_quiet
    shown = {*GROUPS, *type(link.experiment.task).model_fields}.union(*MAIN_GROUPS.values())
    shown -= set(link.hidden)
    if "settings" in link.hidden:
        shown &= set(GROUPS)
    assert shown - {"settings"} == LEFT.get(name, set())


def promised(lesson):
    """Yield variant, steps, least and largest accuracy of each cell of a lesson's table."""
    header, _, *rows = re.findall(r"^\|(.+)\|$", lesson.after, re.MULTILINE)
    steps = [int(n) for n in re.findall(r"after (\d+) steps", header)]
    for row in rows:
        title, *cells = (cell.strip() for cell in row.split("|"))
        for at, cell in zip(steps, cells[::2], strict=True):
            least, largest = map(int, re.fullmatch(r"(\d+) to (\d+)%", cell).groups())
            yield title, at, least / 100, largest / 100


def reached(experiment, variant, steps):
    """Return the accuracies of seeds of the class: all where they are shipped, or else the first.

    A run does not depend on which others train beside it, nor on how often it is evaluated.
    """
    shipped, alone = load_example(experiment.task.name), experiment.replace(sharing=[variant])
    if can_share_runs(shipped.experiment, experiment) and variant in shipped.experiment.sharing:
        snapshot = with_variants(shipped, (variant,))
    else:
        alone = alone.replace(n_seeds=1, steps=steps, evaluate_every=min(steps, 1000))
        *_, snapshot = ak.stream(alone)
    assert snapshot.eval_steps[-1] == steps
    return snapshot.history["accuracy"][-1]


@pytest.mark.parametrize("night", [False, pytest.param(True, marks=pytest.mark.long(seconds=100))])
@pytest.mark.parametrize("name", lessons())
def test_a_class_sees_the_numbers_of_the_tables(name, night):
    """The links train to what the lessons promise; long trainings are for the night."""
    lesson = lessons()[name]
    experiment = opened(lesson)[0].experiment
    variants = {title_of(variant): variant for variant in experiment.sharing}
    cells = list(promised(lesson))
    assert {title for title, *_ in cells} == variants.keys()
    assert min(at for _, at, *_ in cells) == experiment.training.steps
    for title, at, least, largest in cells:
        if night != (at == experiment.training.steps):
            seen = reached(experiment, variants[title], at)
            assert least <= seen.min(), (title, at)
            assert seen.max() <= largest, (title, at)


def test_a_lesson_that_is_not_translated_is_in_english(tmp_path, monkeypatch):
    """Each lesson is the file of the reader's language, if there is one; names stay."""
    (tmp_path / "de").mkdir()
    link = "\n\n```text\nhttp://localhost:7580/?v=1\n```\n\n"
    files = {"1_a.md": "A?", "2_b.md": "B?", "index.md": "x", "de/1_a.md": "Ä?", "de/3_c.md": "C?"}
    for file, title in files.items():
        (tmp_path / file).write_text(f"# {title}\n\nBefore.{link}After.\n", encoding="utf-8")
    monkeypatch.setattr(reference, "_folder", lambda: tmp_path)
    read = {code: reference._lessons.__wrapped__(code) for code in ("en", "de", "es")}
    titles = {
        code: {n: lesson.title for n, lesson in found.items()} for code, found in read.items()
    }
    english = {"1_a": "A?", "2_b": "B?"}
    assert titles == {"en": english, "de": {"1_a": "Ä?", "2_b": "B?"}, "es": english}
    assert read["de"]["1_a"].query == "?v=1"


@pytest.mark.server
def test_the_guide_shows_each_lesson_whole_and_hides_it_from_who_is_to_guess(tmp_path):
    """Its link has the address of this copy; a lesson that is not there is named."""
    with idle_service(tmp_path):
        tab = open_page("guide", lesson="1_two_spaces")
        for name, lesson in lessons().items():
            tab.button_group(key="lesson").set_value(name)
            assert lesson.after in said(show(tab))
            assert link_of(tab)["lesson"] == name
            assert tab.code[0].value.endswith(lesson.query)
        tab.button(key="close_lesson").click()
        assert lesson.after not in said(show(tab))
        (message,) = open_page("guide", lesson="x").warning
        assert all(one in plain_text(message) for one in ("lesson='x'", *lessons()))
        assert lesson.after not in said(open_page("guide", lesson=name, quiet="1"))
    with idle_service(tmp_path, classes="false"):
        tab = open_page("guide", lesson=name)
        assert "begin_class" not in [button.key for button in tab.button]
        assert len(visit(**{"class": "abcde"}).warning) == 1
