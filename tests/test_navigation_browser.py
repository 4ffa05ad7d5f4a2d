"""Ways between pages, in a real Chromium."""

import contextlib
import random
import re
from urllib.parse import urlsplit

import pytest
from browsing import ALL_HAS_COME
from lab_browsing import open_lab
from playwright.sync_api import TimeoutError as OutOfTime
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]

CLASS_LINK = "?v=1&hide=settings,buttons&quiet=1"

CHOICES = ".st-key-set_sharing button, " + ", ".join(
    f".st-key-{key} button:not([data-testid$=Active])"
    for key in ("asked_view", "capacity_section", "atlas_section", "atlas_offset")
)
"""Buttons whose press changes the address of their page."""

AT_REST = f"""() => {{
  const title = document.querySelector("h1");
  const now = `${{location.href}} ${{title?.innerText}} ${{document.querySelectorAll("p").length}}`;
  const same = window.lastSeen === now;
  window.lastSeen = now;
  return same && title && {ALL_HAS_COME};
}}"""

SHOWN = """() => {
  const main = document.querySelector("[data-testid=stMain]");
  const of = (which, read) => [...main.querySelectorAll(which)].map(read);
  const title = of("h1", (node) => node.innerText);
  const pressed = of("[data-testid$=Active]", (node) => node.innerText);
  const lists = ".st-key-capacity_controls input, .st-key-atlas_controls input";
  const picked = of(lists, (node) => node.value);
  return JSON.stringify([location.href, title, pressed, picked]);
}"""
"""The address, and what of it is on screen."""


def seen(page):
    """Return what `SHOWN` finds once the page is at rest."""
    for _ in range(2):
        page.wait_for_function(AT_REST, polling=300)
    return page.evaluate(SHOWN)


def sees(page, wanted):
    """Wait until the page shows something, and fail with what it shows if it does not."""
    with contextlib.suppress(OutOfTime):
        page.wait_for_function(f"(wanted) => ({SHOWN})() === wanted", arg=wanted)
    assert seen(page) == wanted


def page_of(address):
    """The name of a page in an address."""
    return urlsplit(address).path.strip("/")


def follow_a_link(page, chance):
    """Follow a link to another page, in the navigation or on the page."""
    here = page_of(page.url)
    links = page.locator(
        "[data-testid=stSidebarNavLink], [data-testid=stMain] [data-testid^=stPageLink] a"
    )
    others = [
        link
        for link in links.all()
        if page_of(link.get_attribute("href")) != here and link.is_visible()
    ]
    chance.choice(others).click()
    page.wait_for_function("(here) => location.pathname.slice(1) !== here", arg=here)


@pytest.mark.parametrize(
    "more", [0, *(pytest.param(more, marks=pytest.mark.long) for more in range(1, 8))]
)
def test_one_press_of_back_leads_to_the_page_before(visitors, address, seed, long, more):
    """Whatever was chosen on it; Forward leads on again; an address opens what is on screen.

    It takes more than 5 s, because it opens several pages, which are drawn from the seed.
    """
    chance = random.Random(1 + seed + more)
    page = visitors.arrive()
    page.goto(f"{address}/{chance.choice(['', 'questions', 'variants?variant=q%3Dk', CLASS_LINK])}")
    seen(page)
    page.locator(".st-key-all_pages label").click()
    for _ in range(12 if long else 3):
        seen(page)
        choices = page.locator(CHOICES).all()
        if choices:
            before = page.url
            chance.choice(choices).click()
            page.wait_for_function("(before) => location.href !== before", arg=before)
        left = seen(page)
        follow_a_link(page, chance)
        entered = seen(page)
        page.go_back()
        sees(page, left)
        page.go_forward()
        sees(page, entered)
    other = visitors.arrive()
    other.goto(page.url)
    sees(other, entered)
    for one in (page, other):
        visitors.leave(one)


def test_a_newcomer_sees_six_pages_and_a_switch_shows_all(page, address):
    """The switch adds the other pages, in sections; the page on screen is always listed."""
    open_lab(page, address)
    links = page.locator("[data-testid=stSidebarNavLink]")
    first = ["Lab", "Questions", "Capacity", "Attention", "Asymmetry", "Guide"]
    expect(links).to_contain_text(first)
    expect(links).to_have_count(6)
    page.locator(".st-key-all_pages label").click()
    expect(links).to_have_count(11)
    for section in ("Train", "Look inside", "Real models", "Reference"):
        expect(page.locator("[data-testid=stSidebarNav]")).to_contain_text(section)
    page.goto(f"{address}/variants")
    expect(links).to_have_count(7)
    expect(links.last).to_contain_text("Variants")


def test_the_guide_explains_its_terms_and_sets_the_lab_up(page, address):
    """Pointing at a term shows its meaning, Escape hides it; a suggestion opens the Lab so."""
    page.goto(f"{address}/guide")
    text = page.get_by_text("Every token makes three vectors")
    expect(page.locator(".ak-terms")).to_have_attribute("data-terms", re.compile("[1-9]"))
    box = text.evaluate(
        """(node) => {
            const bold = node.querySelector("strong");
            const { x, y, width, height } = bold.getBoundingClientRect();
            return [x + width / 2, y + height / 2];
        }"""
    )
    page.mouse.move(*box)
    expect(page.locator(".ak-term-tip")).to_contain_text("what it looks for")
    page.keyboard.press("Escape")
    expect(page.locator(".ak-term-tip")).to_be_hidden()
    page.get_by_text("A narrow head", exact=True).click()
    expect(page.locator(".st-key-preset_card")).to_contain_text("three numbers per head")
    page.get_by_text("Set it up in the Lab").click()
    page.wait_for_url("**d_head=3**")
    expect(page.locator(".st-key-set_d_head input")).to_have_value("3")


def test_a_lesson_that_the_guide_opens_stays_until_back(page, address):
    """Its address names it, so that a button and the switches of every page keep it."""
    page.goto(f"{address}/guide")
    page.get_by_text("Five lessons for a class").click()
    page.wait_for_url("**/guide?lesson=1_two_spaces")
    lesson = page.locator("h1", has_text="different spaces")
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
    page.go_back()
    expect(page.locator("h1")).to_have_text("Guide")
    page.go_forward()
    expect(lesson).to_be_visible()
    page.get_by_test_id("stSidebarNavLink").filter(has_text="Guide").evaluate("(n) => n.click()")
    expect(page.locator("h1")).to_have_text("Guide")
