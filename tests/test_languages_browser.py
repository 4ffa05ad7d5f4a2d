"""Other languages in a browser: what scripts write, and what changes when a visitor chooses."""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from browsing import LONG
from playwright.sync_api import expect

from attnkit.experiment.experiment import settings as settings_of
from attnkit.foundation.language import ENGLISH, LANGUAGES, reading, script_messages, tr

pytestmark = pytest.mark.browser


def written(code, file, message):
    """Return a message of a script in a language."""
    return script_messages(code).get(file, {}).get(message, message)


def test_scripts_write_in_the_language_that_was_chosen(page, address):
    """Words that a component writes only once change, too, and everything is there once.

    Settings stay as they are. A page that is not translated is English, and says so.
    """
    code = next(code for code in LANGUAGES if code != ENGLISH)

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
    for language in (ENGLISH, code):
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
    for name, title in (("guide", "Guide"), ("questions", "Questions")):
        page.goto(f"{address}/{name}?lang={code}")
        with reading(code):
            page.get_by_role("heading", name=tr(title), exact=True).wait_for(timeout=LONG)
    page.wait_for_function(f"document.documentElement.lang === '{code}'", timeout=LONG)
    page.goto(f"{address}/atlas?lang={code}")
    with reading(code):
        page.get_by_text(tr("This page is in English only.")).wait_for(timeout=LONG)
    page.wait_for_function(f"document.documentElement.lang === '{ENGLISH}'", timeout=LONG)
