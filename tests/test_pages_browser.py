"""Ways through the pages in a real Chromium: links, languages, and what a press opens.

By day a newcomer finds pages and lessons, and reads some in a drawn language; at night the pages
Questions and Runs are used, and lessons printed.
"""

import contextlib
import csv
import json
import random
import re
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from browsing import ALL_HAS_COME, CHECKBOX, HEADER, LONG, ROW, downloaded
from finished import store_finished
from kinds import tiny
from layout_search import FAULTS, open_folds
from paper import needs_poppler, typed, words_of
from playwright.sync_api import expect
from test_accessible import LOOKS, grave_faults, settle, show

from attnkit.claims import CLAIMS
from attnkit.experiment.experiment import settings as settings_of
from attnkit.foundation.language import ENGLISH, LANGUAGES, reading, script_messages, tr
from attnkit.service.store import ResultStore
from attnkit.ui.reference.lessons import lessons

pytestmark = [pytest.mark.browser, pytest.mark.server]


def test_a_newcomer_finds_pages_terms_and_lessons(page, address):
    """A switch shows all pages; a term is explained; a lesson stays until Back."""
    page.goto(f"{address}/guide")
    links = page.locator("[data-testid=stSidebarNavLink]")
    first = ["Lab", "Questions", "Capacity", "Attention", "Asymmetry", "Guide"]
    expect(links).to_contain_text(first)
    expect(links).to_have_count(6)
    page.locator(".st-key-all_pages label").click()
    expect(links).to_have_count(11)
    for section in ("Train", "Look inside", "Real models", "Reference"):
        expect(page.locator("[data-testid=stSidebarNav]")).to_contain_text(section)

    expect(page.locator(".ak-terms")).to_have_attribute("data-terms", re.compile("[1-9]"))
    box = page.locator("[data-testid=stMain] p strong").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(".ak-term-tip")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".ak-term-tip")).to_be_hidden()

    page.locator("[data-testid=stMain] a, [data-testid=stMain] button").filter(
        has_text="Five lessons"
    ).first.click()
    page.wait_for_url("**/guide?lesson=1_two_spaces")
    lesson = page.get_by_role("heading", level=1, name=lessons()["1_two_spaces"].title)
    expect(lesson).to_be_visible()
    page.locator(".st-key-begin_class button").first.click()
    expect(page.locator(".st-key-class_link code").first).to_contain_text("?class=")
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".st-key-class_link")).to_be_hidden()  # it is of this hour
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    page.locator(".st-key-projector input").evaluate("(node) => node.click()")
    page.wait_for_function(
        "() => getComputedStyle(document.documentElement).getPropertyValue('--ak-zoom')"
    )
    expect(lesson).to_be_visible()
    page.wait_for_function(f"() => {ALL_HAS_COME}")
    page.go_back()
    expect(page.locator("h1")).to_have_text("Guide")
    page.wait_for_function(f"() => {ALL_HAS_COME}")
    page.go_forward()
    expect(lesson).to_be_visible()
    page.wait_for_function(f"() => {ALL_HAS_COME}")
    links.filter(has_text="Guide").evaluate("(node) => node.click()")
    expect(page.locator("h1")).to_have_text("Guide")


def written(code, file, message):
    """Return a message of a script in a language."""
    return script_messages(code).get(file, {}).get(message, message)


@pytest.mark.parametrize("night", [False, pytest.param(True, marks=pytest.mark.long(seconds=30))])
def test_pages_are_written_in_the_language_that_was_chosen(page, address, seed, night):
    """Words that a component writes only once change, too; settings stay as they are."""
    others = [code for code in LANGUAGES if code != ENGLISH]
    choice = random.Random(seed)
    for code in others if night else [choice.choice(others)]:
        read_in_a_language(page, address, code, choice, night)


def read_in_a_language(page, address, code, choice, night):
    """Open the Lab and other pages in a language, and go to English and back."""

    def shows(language):
        page.wait_for_function(f"document.documentElement.lang === '{language}'", timeout=LONG)
        for selector, file, message in (
            (".ak-board-save summary", "menu_words.js", "Save"),
            (".ak-board-heading b", "board.js", "Score asymmetry"),
            (".ak-tour > button", "tour.js", "Take the tour"),
            (".ak-chosen-task .ak-open", "gallery.js", "Change task"),
        ):
            text = re.compile(f"^{re.escape(written(language, file, message))}$")
            page.locator(selector, has_text=text).wait_for(timeout=LONG, state="attached")
        for selector in (".ak-board", ".ak-board-grid", ".ak-tour", ".ak-chosen-task", ".ak-terms"):
            assert page.locator(selector).count() == 1, selector
        assert page.locator(".ak-board-heading").count() == 3

    def choose(language):
        page.locator(".st-key-lang input").click()
        page.get_by_role("option", name=LANGUAGES[language]).click()

    known = settings_of("directed")
    settings = {"sharing": "Q=K,K=V", "positions": "learned", "equal": "parameters", "steps": "70"}
    page.goto(f"{address}/?{urlencode({'lang': code, **settings})}")
    shows(code)
    for language in (ENGLISH, code) if night else (ENGLISH,):
        choose(language)
        shows(language)
        page.wait_for_function(
            f"location.search.includes('lang={code}') === {str(language == code).lower()}"
        )
        query = dict(parse_qsl(urlsplit(page.url).query))
        assert {name: query.get(name) for name in settings} == settings
        with reading(language):
            for name in ("positions", "equal"):
                label = tr(known[name].label_of(settings[name]))
                expect(page.locator(f".st-key-set_{name} input")).to_have_value(label, timeout=LONG)
    translated = [("guide", "Guide"), ("questions", "Questions")]
    for name, title in translated if night else [choice.choice(translated)]:
        page.goto(f"{address}/{name}?lang={code}")
        with reading(code):
            page.get_by_role("heading", name=tr(title), exact=True).wait_for(timeout=LONG)
    page.wait_for_function(f"document.documentElement.lang === '{code}'", timeout=LONG)
    page.goto(f"{address}/atlas?lang={code}")
    with reading(code):
        page.get_by_text(tr("This page is in English only.")).wait_for(timeout=LONG)
    page.wait_for_function(f"document.documentElement.lang === '{ENGLISH}'", timeout=LONG)


@pytest.mark.long(seconds=30)
def test_a_question_leads_to_its_evidence_and_on_into_the_lab(page, address):
    """A row of the table does, too; all evidence is unfolded and has no fault in any look."""
    claim = "two_roles"
    page.set_viewport_size({"width": 1440, "height": 1400})
    page.goto(f"{address}/questions?question=two_spaces")
    page.locator(f".st-key-open_{claim} button").first.click()
    page.wait_for_url(f"**/questions?claim={claim}")
    expect(page.get_by_role("heading", name=CLAIMS[claim].title)).to_be_visible()
    page.locator(".st-key-lab_links a").first.click()
    page.wait_for_url("**task=dual_role**")
    expect(page.locator(".ak-board[data-draws]").first).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name=CLAIMS[claim].title)).to_be_visible()

    page.goto(f"{address}/questions?claim=all")
    table = page.locator("[data-testid=stDataFrame]")
    table.click(position={"x": CHECKBOX, "y": HEADER + ROW / 2})
    first = next(iter(CLAIMS))
    page.wait_for_url(f"**claim={first}")
    expect(page.get_by_role("heading", name=CLAIMS[first].title)).to_be_visible()
    settle(page, figures=False)
    open_folds(page)
    for width, scheme in LOOKS:
        show(page, width, scheme)
        assert grave_faults(page) == []
        assert page.evaluate(FAULTS, {}) == []


@pytest.fixture
def hashes(server_store):
    """Two new results of the server's store, newest first."""
    experiments = [tiny("directed", n_seeds=3, first_seed=1, d_head=7), tiny("directed", n_seeds=3)]
    with contextlib.closing(ResultStore(server_store)) as store:
        return [store_finished(store, experiment) for experiment in experiments][::-1]


@pytest.mark.long(seconds=30)
def test_experiments_are_replayed_ticked_downloaded_renamed_deleted(visitors, address, hashes):
    """The way of one visitor through the page, and of another by the link that they share."""
    newest, other = hashes
    page = visitors.arrive(1440, 1400)
    page.goto(f"{address}/runs?run={other}")
    sentence = page.locator(".st-key-replay .ak-conclusion")
    expect(sentence).to_have_text("At step 8, all 5 variants reach 50% accuracy.")
    page.get_by_role("button", name="First step").click()
    expect(sentence).to_have_text("Untrained, all 5 variants reach 10% accuracy.")
    page.get_by_role("button", name="Play").click()
    expect(sentence).to_have_text("At step 8, all 5 variants reach 50% accuracy.")
    expect(page.locator(".st-key-replay [data-figure=accuracy] svg.ak-chart")).to_be_visible()

    page.goto(f"{address}/runs")
    table = page.locator(".st-key-history [data-testid=stDataFrame]")
    for row, link in enumerate([newest, f"{newest},{other}"]):
        place = {"x": CHECKBOX, "y": HEADER + ROW * row + ROW / 2}
        table.click(position=place)
        page.wait_for_url(f"**run={link.replace(',', '%2C')}**")
    page.wait_for_selector(".st-key-overlay .ak-plot[data-draws]")
    expect(page.locator(".st-key-overlay .ak-legend span")).to_have_count(3)
    expect(page.locator(".st-key-overlay .annotation")).to_have_count(5)

    text = downloaded(page, page.get_by_role("button", name="Every evaluation as CSV"))
    assert len(list(csv.DictReader(text.splitlines()))) == 2 * 5 * 3 * 3
    button = page.get_by_role("button", name="Settings and runs as JSON")
    told = json.loads(downloaded(page, button))
    assert [one["hash"] for one in told["experiments"]] == [newest, other]

    page.locator(f".st-key-change_{newest} button").click()
    page.get_by_role("menuitem", name="Rename").click()
    page.locator(".st-key-name input").fill("<b>Ours</b>")
    page.locator(".st-key-save_name button").click()
    expect(page.locator(".st-key-chosen")).to_contain_text("A <b>Ours</b>")
    expect(page.get_by_role("dialog")).to_have_count(0)
    shared = page.url

    page.locator(f".st-key-change_{newest} button").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.locator(".st-key-confirm_delete button").click()
    expect(page.locator(".st-key-chosen")).not_to_contain_text("Ours")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.wait_for_url(f"**run={other}")

    page.goto(shared)
    expect(page.get_by_role("alert")).to_contain_text(newest)
    expect(page.locator(".st-key-chosen")).to_contain_text("A Directed relation")
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    visitors.leave(page)


@pytest.mark.long
def test_every_lesson_is_printed_whole_on_two_sheets_at_most(visitors, address, tmp_path, seed):
    """A teacher hands it out: the text with its link, without the choice of lessons."""
    needs_poppler()
    choice, page = random.Random(seed), visitors.arrive()
    page.goto(f"{address}/guide?lesson={next(iter(lessons()))}")
    for name, lesson in lessons().items():
        page.locator(".st-key-lesson button", has_text=lesson.title).click()
        page.wait_for_selector(f"h1:has-text('{lesson.title}')")
        page.wait_for_function(f"() => {ALL_HAS_COME} && Object.hasOwn(history, 'pushState')")
        path = tmp_path / f"{name}.pdf"
        page.pdf(path=path, format=choice.choice(["A4", "Letter"]), print_background=True)
        sheets = list(words_of(path))
        printed = typed([word for _, words in sheets for word, *_ in words])
        parts = re.findall(r"[\w’]+", f"{lesson.title} {lesson.before} {lesson.after}")
        assert [part for part in parts if typed([part]) not in printed] == []
        assert lesson.query in printed
        assert "Seeitastheclasswill" not in printed
        assert len(sheets) <= 2, name
    visitors.leave(page)
