"""Pages that the browser has translated, in a real Chromium: they show the same as others."""

import contextlib
import json

import pytest
from lab_browsing import is_fatal
from playwright.sync_api import TimeoutError as OutOfTime
from test_navigation_browser import AT_REST

pytestmark = [pytest.mark.browser, pytest.mark.server]

TRANSLATE = """(stays) => {
  const skipped = "script, style, textarea, noscript, svg, [translate=no]";
  const translate = (root) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), found = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) found.push(node);
    for (const text of found) {
      if (!text.data.trim() || text.parentElement.closest(`font, ${skipped}`)) continue;
      const outer = document.createElement("font"), inner = document.createElement("font");
      inner.textContent = text.data.toUpperCase();
      outer.append(inner);
      text.parentNode.insertBefore(outer, text);
      text.remove();
    }
  };
  translate(document.body);
  if (stays) new MutationObserver(() => translate(document.body)).observe(document.body, {
    childList: true, characterData: true, subtree: true });
}"""
"""Does what Google Translate does to a page, with upper case as the other language."""


def choose(key, index):
    """Return the press of a button in a group of them."""
    return lambda page: page.locator(f".st-key-{key} button").nth(index).click()


def pick(key, index=1):
    """Return the choice of another option of a list."""

    def act(page):
        page.locator(f".st-key-{key} input").first.focus()
        page.keyboard.press("ArrowDown")
        page.locator("[role=option]").nth(index).click()

    return act


def change_task(page):
    """Choose another task in the gallery."""
    page.locator(".st-key-gallery button").first.click()
    page.locator(".st-key-gallery .ak-task").nth(3).click()


def train(page):
    """Train, and wait until it is finished."""
    page.locator(".st-key-train button").click()
    page.wait_for_function("() => /Trained earlier|Finished/i.test(document.body.innerText)")


def guess_and_train(page):
    """Guess, then train."""
    page.locator(".st-key-guess_area button").first.click()
    page.locator(".st-key-train button:enabled").wait_for()
    train(page)


ACTIONS = {
    "questions": [choose("asked_view", 2), choose("asked_view", 4), choose("asked_view", -2)],
    "questions?claim=direction": [pick("asked_claim", 3)],
    "capacity": [choose("capacity_section", 1), pick("capacity_measure"), pick("capacity_sweep")],
    "atlas": [pick("atlas_measure", 2), choose("atlas_section", 0), choose("atlas_section", 2)],
    "variants": [lambda page: page.locator(".st-key-variants_search input").fill("latent")],
    "guide": [choose("preset", 3)],
    "": [change_task, choose("set_sharing", 1)],
    "?v=1&n_seeds=1&steps=200&hide=buttons": [train],
    "?v=1&n_seeds=1&steps=200&hide=settings&quiet=1": [guess_and_train],
}
"""What a visitor does on a page, by its address."""

BY_DAY = ("guide", "?v=1&n_seeds=1&steps=200&hide=settings&quiet=1")
"""Pages with new sentences in nodes that stay, and with nodes that go away."""


SENTENCES = r"""() => {
  const page = document.querySelector("[data-testid=stMain]").cloneNode(true), found = new Map();
  const skipped = "script, style, svg, .katex, [data-testid=stIconMaterial], .ak-tip, .ak-term-tip";
  for (const node of page.querySelectorAll(skipped)) node.remove();
  const walker = document.createTreeWalker(page, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const block = node.parentElement.closest("p, li, td, th, h1, h2, h3, button, label, div");
    found.set(block, (found.get(block) ?? "") + node.data);
  }
  const plain = (text) => text.toUpperCase().replace(/[\d.,\s]+/g, " ").trim();
  return JSON.stringify([...found.values()].map(plain).filter(Boolean));
}"""
"""The sentences on a page, whatever their case and numbers; formulas and drawings are left out."""


def show_the_same(one, other, errors):
    """Wait until two pages at rest show the same sentences, without errors of the other page."""
    for page in (one, other) * 2:
        page.bring_to_front()
        page.wait_for_function(AT_REST, polling=300)
    wanted = one.evaluate(SENTENCES)
    with contextlib.suppress(OutOfTime):
        other.wait_for_function(f"(wanted) => ({SENTENCES})() === wanted", arg=wanted, timeout=9000)
    assert errors == []
    assert json.loads(other.evaluate(SENTENCES)) == json.loads(one.evaluate(SENTENCES))


@pytest.mark.parametrize("goes_on", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize(
    "link",
    [link if link in BY_DAY else pytest.param(link, marks=pytest.mark.long) for link in ACTIONS],
)
def test_a_translated_page_shows_what_others_show(visitors, address, link, goes_on):
    """After each action no sentence of the state before is left, and nothing breaks.

    It takes more than 5 s, because two pages are opened and a model is trained.
    """
    errors = []
    plain, translated = visitors.arrive(), visitors.arrive()
    translated.on("pageerror", lambda error: errors.append(str(error)))
    translated.on("console", lambda one: errors.append(one.text) if is_fatal(one) else None)
    for page in (plain, translated):
        page.goto(f"{address}/{link}")
    show_the_same(plain, translated, errors)
    translated.evaluate(TRANSLATE, goes_on)
    show_the_same(plain, translated, errors)
    for act in ACTIONS[link]:
        before = plain.evaluate(SENTENCES)
        for page in (translated, plain):
            page.bring_to_front()
            act(page)
        plain.wait_for_function(f"(before) => ({SENTENCES})() !== before", arg=before)
        show_the_same(plain, translated, errors)
    for page in (plain, translated):
        visitors.leave(page)
