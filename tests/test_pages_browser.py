"""Ways through the pages in a real Chromium: links, languages, and what a press opens.

A newcomer finds pages and lessons, and reads some in a drawn language; at night experiments are
compared.
"""

import contextlib
import random
import re
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from browsing import ALL_HAS_COME, CHECKBOX, HEADER, LONG, ROW
from finished import store_finished
from kinds import tiny
from playwright.sync_api import expect

from attnkit.experiment.experiment import settings as settings_of
from attnkit.foundation.language import ENGLISH, LANGUAGES, reading, script_messages, tr
from attnkit.service.store import ResultStore
from attnkit.ui.lab.classroom import lessons

pytestmark = [pytest.mark.browser, pytest.mark.server]


def test_a_newcomer_finds_pages_and_lessons(page, address):
    """A switch shows all pages; terms are marked; a lesson stays until Back."""
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


def test_pages_are_written_in_the_language_that_was_chosen(page, address, seed):
    """Words that a component writes only once change, too; settings stay as they are."""
    choice = random.Random(seed)
    code = choice.choice([code for code in LANGUAGES if code != ENGLISH])

    def shows(language):
        page.wait_for_function(f"document.documentElement.lang === '{language}'", timeout=LONG)
        for selector, file, message in (
            (".ak-board-save summary", "menu_words.js", "Save"),
            (".ak-board-heading b", "board.js", "Score asymmetry"),
            (".ak-tour > button", "tour.js", "Take the tour"),
            (".ak-chosen-task .ak-open", "gallery.js", "Change task"),
        ):
            word = script_messages(language).get(file, {}).get(message, message)
            text = re.compile(f"^{re.escape(word)}$")
            page.locator(selector, has_text=text).wait_for(timeout=LONG, state="attached")
        for selector in (".ak-board", ".ak-board-grid", ".ak-tour", ".ak-chosen-task", ".ak-terms"):
            assert page.locator(selector).count() == 1, selector
        assert page.locator(".ak-board-heading").count() == 3

    known = settings_of("directed")
    settings = {"sharing": "Q=K,K=V", "positions": "learned", "equal": "parameters", "steps": "70"}
    first, language = choice.sample([code, ENGLISH], 2)
    page.goto(f"{address}/?{urlencode({'lang': first, **settings})}")
    shows(first)
    page.locator(".st-key-lang input").click()
    page.get_by_role("option", name=LANGUAGES[language]).click()
    shows(language)
    is_code = "true" if language == code else "false"
    page.wait_for_function(f"location.search.includes('lang={code}') === {is_code}")
    query = dict(parse_qsl(urlsplit(page.url).query))
    assert {name: query.get(name) for name in settings} == settings
    with reading(language):
        for name in ("positions", "equal"):
            label = tr(known[name].label_of(settings[name]))
            expect(page.locator(f".st-key-set_{name} input")).to_have_value(label, timeout=LONG)
    name, title = choice.choice([("guide", "Guide"), ("questions", "Questions")])
    page.goto(f"{address}/{name}?lang={code}")
    with reading(code):
        page.get_by_role("heading", name=tr(title), exact=True).wait_for(timeout=LONG)
    page.wait_for_function(f"document.documentElement.lang === '{code}'", timeout=LONG)
    page.goto(f"{address}/atlas?lang={code}")
    with reading(code):
        page.get_by_text(tr("This page is in English only.")).wait_for(timeout=LONG)
    page.wait_for_function(f"document.documentElement.lang === '{ENGLISH}'", timeout=LONG)


@pytest.mark.long(seconds=30)
def test_experiments_are_replayed_and_ticked(page, address, server_store):
    """The replay plays, and rows are ticked on their canvas."""
    experiments = [tiny("directed", n_seeds=3), tiny("directed", n_seeds=3, first_seed=1, d_head=7)]
    with contextlib.closing(ResultStore(server_store)) as store:
        other, newest = (store_finished(store, experiment) for experiment in experiments)
    page.set_viewport_size({"width": 1440, "height": 1400})
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
        table.click(position={"x": CHECKBOX, "y": HEADER + ROW * row + ROW / 2})
        page.wait_for_url(f"**run={link.replace(',', '%2C')}**")
    page.wait_for_selector(".st-key-overlay .ak-plot[data-draws]")
    expect(page.locator(".st-key-overlay .ak-legend span")).to_have_count(3)
    expect(page.locator(".st-key-overlay .annotation")).to_have_count(5)
