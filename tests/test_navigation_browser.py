"""Ways between pages, in a real Chromium."""

import contextlib
import random
import re
from urllib.parse import urlsplit

import pytest
from browsing import LONG
from lab_browsing import open_lab, press, serve, wait_for_step
from playwright.sync_api import TimeoutError as OutOfTime
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]

CLASS_LINK = "?v=1&hide=settings,buttons&quiet=1"

CHOICES = ".st-key-set_sharing button, " + ", ".join(
    f".st-key-{key} button:not([data-testid$=Active])"
    for key in ("asked_view", "capacity_section", "atlas_section", "atlas_offset")
)
"""Buttons whose press changes the address of their page."""

AT_REST = """() => {
  const app = document.querySelector("[data-testid=stApp]"), title = document.querySelector("h1");
  const now = `${location.href} ${title?.innerText} ${document.querySelectorAll("p").length}`;
  const same = window.lastSeen === now;
  window.lastSeen = now;
  const rests = app?.dataset.testScriptState === "notRunning";
  return same && title && rests && !document.querySelector("[data-stale=true]");
}"""

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
    for _ in range(3):
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
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 9))]
)
def test_one_press_of_back_leads_to_the_page_before(browser, address, long, seed):
    """Whatever was chosen on it; Forward leads on again; an address opens what is on screen."""
    chance = random.Random(seed)
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(LONG)
    page = context.new_page()
    page.goto(f"{address}/{chance.choice(['', 'questions', 'variants?variant=q%3Dk', CLASS_LINK])}")
    seen(page)
    page.locator(".st-key-all_pages label").click()
    for _ in range(12 if long else 4):
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
        with context.new_page() as other:
            other.goto(page.url)
            sees(other, entered)
    context.close()


@pytest.mark.long
def test_run_goes_on_while_another_page_is_open(page, address):
    """A run continues while the visitor is on another page."""
    open_lab(page, address, "?v=1&first_seed=600&steps=4000")
    press(page, "train")
    wait_for_step(page, 10)
    page.locator("[data-testid=stSidebarNav]").get_by_text("Questions").click()
    expect(page.get_by_role("heading", name="Questions", exact=True)).to_be_visible()
    page.locator("[data-testid=stSidebarNav]").get_by_text("Lab").click()
    wait_for_step(page, 20)
    assert "first_seed=600" in page.url
    press(page, "stop")


def test_a_class_sees_how_a_known_result_is_learnt(page, address):
    """Nothing tells what comes out before the guess; then the curves grow before one's eyes."""
    settings = "?v=1&sharing=QKV,Q=K&n_seeds=1&steps=3000&first_seed=610"
    open_lab(page, address, settings)
    press(page, "train")
    expect(page.get_by_text(re.compile("^Finished"))).to_be_visible()
    page.goto(f"{address}/{settings}&hide=task,settings,buttons&quiet=1")
    expect(page.get_by_text("Not trained yet. Guess, then press")).to_be_visible()
    answers = re.compile("guess between two entries|mixes up|[Ss]olved")
    expect(page.locator("[data-testid=stMain]")).not_to_contain_text(answers)
    page.locator(".st-key-guess_area button").first.click()
    press(page, "train")
    page.wait_for_function(
        r"""() => {
          const [, step] = document.body.innerText.match(/[Ss]tep (\d+) of/) ?? [];
          return 0 < step && step < 3000;
        }"""
    )
    expect(page.get_by_text(re.compile("^Your guess was"))).to_be_visible()


def test_variants_page_leads_to_the_lab(page, address):
    """A link on the card of the Variants page opens the Lab on the phone book."""
    page.goto(f"{address}/variants?variant=MQA")
    page.get_by_text("Compare with QKV in the Lab").click()
    page.wait_for_url("**task=phonebook**")
    expect(page.get_by_text("Why do Q, K and V need different matrices?")).to_be_visible()


def test_guide_sets_the_lab_up(page, address):
    """A suggestion of the Guide opens the Lab with its settings."""
    page.goto(f"{address}/guide")
    page.get_by_text("A narrow head", exact=True).click()
    expect(page.locator(".st-key-preset_card")).to_contain_text("three numbers per head")
    page.get_by_text("Set it up in the Lab").click()
    page.wait_for_url("**d_head=3**")
    expect(page.locator(".st-key-set_d_head input")).to_have_value("3")


@pytest.mark.long
def test_first_visitor_of_a_server_may_come_by_an_inner_link(browser):
    """The Guide has its navigation even if it is the first page that a server shows."""
    with serve() as fresh:
        page = browser.new_page()
        page.goto(f"{fresh}/guide")
        expect(page.get_by_role("heading", name="Predict, then train")).to_be_visible(timeout=LONG)
        expect(page.locator("[data-testid=stSidebarNav]")).to_contain_text("Lab")
        expect(page.locator("[data-testid=stSidebarNav]")).not_to_contain_text("dashboard")
        page.close()


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


def test_the_tour_points_at_six_things_and_can_be_left(page, address):
    """Next goes through all stops, each with its frame; Escape leaves at any time."""
    open_lab(page, address)
    page.get_by_role("button", name="Take the tour").click()
    card = page.get_by_role("dialog", name="Tour of the Lab")
    frame = page.locator(".ak-tour-frame")
    for stop in range(1, 7):
        expect(card).to_contain_text(f"{stop} of 6")
        expect(frame).to_be_visible()
        inside, around = card.bounding_box(), page.viewport_size
        assert inside["x"] >= 0
        assert inside["x"] + inside["width"] <= around["width"]
        assert inside["y"] + inside["height"] <= around["height"]
        card.get_by_role("button", name="Next" if stop < 6 else "Done").click()
    expect(card).to_be_hidden()
    page.get_by_role("button", name="Take the tour").click()
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()


def test_a_term_shows_its_meaning_where_it_stands(page, address):
    """Pointing at a term of the glossary shows what it means; Escape hides it."""
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
