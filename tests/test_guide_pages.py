"""The pages Guide and Variants: presets, tour, lessons and their promises, the catalogue."""

import random
import re
from urllib.parse import parse_qsl

import pytest
from idle import idle_service, link_of, open_page, show, visit
from visiting import drawn, plain_text, said

import attnkit as ak
from attnkit.evidence.questions import QUESTIONS
from attnkit.examples import RecordedAccuracy, RecordedVariants, load_example, load_variants
from attnkit.experiment.links import GROUPS, read_link
from attnkit.figures.diagram import LEGEND
from attnkit.training.joining import can_share_runs
from attnkit.ui.cache import with_variants
from attnkit.ui.lab.classroom import _lessons, lessons
from attnkit.ui.lab.lab import MAIN_GROUPS
from attnkit.ui.lab.presets import PRESETS
from attnkit.ui.pages.variants import (
    accuracy_in_words,
    catalogue_table,
    conclusion,
    short_source,
)
from attnkit.variants import CATALOGUE, OPTIONS, Named, Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.text import find

FIVE = [find(name) for name in ("QKV", "Q=K", "MQA", "K=V", "GQA")]


def recorded(*means):
    """Accuracies of the first variants, with an interval of ten points on each side."""
    accuracy = {
        entry.variant.value: RecordedAccuracy(m, max(m - 0.1, 0), min(m + 0.1, 1), m >= 0.98)
        for entry, m in zip(FIVE, means, strict=False)
    }
    return RecordedVariants("phonebook", 600, 5, 0.98, accuracy)


def test_the_sentence_counts_and_names_what_falls_short():
    """It holds for any recorded accuracies, also if some variants were not measured."""
    for means, told in (
        ((1.0, 1.0, 0.98, 1.0, 1.0), "All 5 .* 98% .*”."),
        ((1.0, 0.5, 1.0, 1.0, 1.0), r"4 of 5 .*; Q=K \(50%\) does not."),
        ((), "There are 5 .*"),
        ((1.0, 0.5, 0.25, 0.75, 0.125), r"1 of 5 .* GQA \(12%\), MQA \(25%\) and Q=K \(50%\)."),
        ((1.0, 0.5, 0.25, 1.0, 1.0), r"3 of 5 .*; MQA \(25%\) and Q=K \(50%\) do not."),
    ):
        assert re.fullmatch(told, conclusion(FIVE, recorded(*means)))


def test_rows_have_costs_accuracies_and_an_interval_where_seeds_differ():
    """Accuracies are whole numbers, so that the column sorts; only 100% is told as 100."""
    table = catalogue_table(FIVE[:3], recorded(1.0, 0.999))
    assert table["accuracy"].tolist()[:2] == [100, 99]
    assert table["accuracy"].isna().tolist() == [False, False, True]
    assert table["interval"].tolist() == ["90 to 100%", "90 to 100%", ""]
    assert table["kv_cache"].tolist() == [16, 16, 16]
    source = "reported: Thin Keys, arXiv 2603.04427 (abstract)"
    odd = catalogue_table([Named("Odd", Variant("QKV kv_heads=3"), "", source)], None)
    assert odd[["name", "source"]].to_numpy().tolist() == [["Odd", "Thin Keys"]]
    assert odd[["accuracy", "parameters", "kv_cache"]].isna().all(axis=None)  # it does not fit
    sources = "Borji 2023, arXiv 1; Li et al. 2026, arXiv 2"
    assert short_source(sources) == "Borji 2023; Li et al. 2026"
    assert re.search("50% .*40 to 60%.* 98%", accuracy_in_words(FIVE[0], recorded(0.5)))
    assert accuracy_in_words(find("QKV"), load_variants()).endswith("”: 100%.")
    assert accuracy_in_words(find("QKV"), None) == ""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy for oneself whose training process computes nothing."""
    with idle_service(tmp_path_factory.mktemp("store")):
        yield


@pytest.mark.server
@pytest.mark.usefixtures("copy")
def test_the_guide_offers_every_preset_and_begins_the_tour():
    """Every preset opens its experiment; the tour begins in the Lab without another press."""
    tab = open_page("guide")
    presets = tab.button_group(key="preset")
    assert list(presets.options) == [preset.title for preset in PRESETS]
    for preset in PRESETS:
        link = read_link(preset.params, lambda _: None)
        assert (link.experiment, link.problems) == (preset.experiment, []), preset.title
    presets.set_value(preset.title)
    assert preset.guess in said(show(tab))
    assert preset.look in said(tab)
    next(button for button in tab.button if "tour" in button.label).click()
    tour = drawn(show(tab), "tour")
    assert (tour["requests"], len(tour["stops"])) == (1, 6)


@pytest.mark.server
@pytest.mark.usefixtures("copy")
def test_the_catalogue_is_listed_searched_and_has_a_card_for_each_variant(seed):
    """An alias finds variants, the first of which is open; a wrong name is no markup."""
    tab = open_page("variants", variant="K=V kv_heads=1 n_heads=4")  # a text form is an entry's
    assert link_of(tab)["variant"] == "K=V + MQA"
    table = tab.dataframe[0].value
    assert table["name"].tolist() == [named.name for named in CATALOGUE.values()]
    assert (table["parameters"] > 0).all()
    assert all(f"| `{word}` |" in said(tab) for word in OPTIONS)
    for named in random.Random(seed).sample(list(CATALOGUE.values())[1:], 2):
        tab.query_params["variant"] = named.name
        text = said(show(tab))
        assert not tab.warning
        assert tab.code[0].value == named.variant
        wanted = (named.name, named.explanation, named.source, LEGEND, "Accuracy")
        assert [told for told in wanted if told not in text] == []
        assert drawn(tab, "diagram")["diagram"].startswith("<svg")
        assert link_of(tab)["variant"] == named.name
        assert len(tab.get("page_link")) == 1
    tab.text_input(key="variants_search").set_value("multi-query")
    assert show(tab).dataframe[0].value["name"].tolist() == ["MQA", "K=V + MQA"]
    assert (tab.code[0].value, link_of(tab)["variant"]) == ("QKV n_heads=4 kv_heads=1", "MQA")
    tab.text_input(key="variants_search").set_value("no such thing")
    assert not show(tab).dataframe
    assert "no such thing" in plain_text(tab.info[0])
    assert tab.code[0].value == "QKV n_heads=4 kv_heads=1"
    tab = open_page("variants", variant="<b>*x*</b>")
    assert ("\\<b\\>" in tab.warning[0].value, tab.code[0].value) == (True, "QKV")
    assert not show(tab).warning


# Lessons

HEADINGS = ["Goal", "Time", "Prediction", "Link for the class", "What the class will see"]
HEADINGS += ["Answer", "Misconception", "Question to take home"]


def opened(lesson):
    """Return the link of a lesson as the Lab reads it, and whether results are hidden."""
    fields = dict(parse_qsl(lesson.query.removeprefix("?"), strict_parsing=True))
    return read_link({**fields, "quiet": ""}, lambda _: None), fields.get("quiet") == "1"


def test_there_is_a_lesson_for_each_question_and_all_are_built_alike():
    """Its quiet link hides all controls but those that the lesson speaks of."""
    titles = {name.partition("_")[2]: lesson.title for name, lesson in lessons().items()}
    assert titles == {name: question.title for name, question in QUESTIONS.items()}
    for name, lesson in lessons().items():
        text = f"{lesson.before}\n{lesson.after}"
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
        assert lesson.before.endswith("## Link for the class")
        minutes, *parts = map(int, re.findall(r"\d+", text.split("## Time")[1].split("##")[0]))
        assert minutes == sum(parts)
        link, is_quiet = opened(lesson)
        assert (link.problems, is_quiet) == ([], True)
        shown = {*GROUPS, *type(link.experiment.task).model_fields}.union(*MAIN_GROUPS.values())
        shown -= set(link.hidden)
        if "settings" in link.hidden:
            shown &= set(GROUPS)
        assert shown - {"settings"} == ({"steps"} if name == "2_expressiveness" else set())


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
    """Return accuracies of seeds of the class: all where they are shipped, or else the first."""
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


def test_a_lesson_that_is_not_translated_is_in_english():
    """Each lesson is the file of the reader's language, if there is one; names stay."""
    english, german, none = (_lessons(code) for code in ("en", "de", "zz"))
    assert none == english
    assert {name for name, one in german.items() if one.title != english[name].title} == {*english}


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
