"""Layout of pages in a real Chromium: what leads, how long a page is, and faults in any window."""

import pytest
from layout_search import draw_visits, search, told
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]

WINDOW = (1440, 900)

STILL = """() => {
  const main = document.querySelector('[data-testid=stMain]');
  const now = JSON.stringify([innerWidth, main.scrollHeight, main.innerText.length]);
  const same = window.last === now;
  window.last = now;
  return same && document.fonts.status === 'loaded' && document.querySelector('h1')
    && document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]')
    && !document.querySelector('[data-testid=stSkeleton], [data-stale=true]')
    && [...document.querySelectorAll('.ak-picture')].every((node) => node.firstChild);
}"""

WORDS = """() => document.querySelector('[data-testid=stMain]').innerText
  .split(/\\s+/).filter((word) => /[\\p{L}\\d]/u.test(word)).length"""

HEIGHT = "() => document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight"


def visit(visitors, address, name):
    """Open a page in a wide window, and wait until nothing moves any more."""
    page = visitors.arrive(*WINDOW)
    page.goto(f"{address}/{name}")
    page.wait_for_function(STILL, polling=300)
    return page


def assert_short(page):
    """Check that a page on a wide screen has at most 700 words and is at most 2,500 px high."""
    assert page.evaluate(HEIGHT) <= 2500
    assert page.evaluate(WORDS) <= 700


def test_no_window_has_a_fault_of_layout(visitors, address, seed, long):
    """Pages, links, states and windows drawn from a seed show nothing that no reader would accept.

    It takes up to a minute, because it opens a dozen pages.
    """
    visits = draw_visits(seed, *((500, 4) if long else (24, 2)))
    found = search(visitors.arrive, visitors.leave, address, visits)
    assert [told(*finding) for finding in found if finding[-1]] == [], f"--seed {seed}"


def test_the_new_claims_fill_at_most_two_screens(visitors, address):
    """The list of the decided claims ends there, below the head of the page."""
    page = visit(visitors, address, "questions?question=new")
    box = page.locator(".st-key-new_claims").bounding_box()
    assert box["y"] + box["height"] <= 2 * WINDOW[1]
    visitors.leave(page)


@pytest.mark.parametrize("name", ["attention", "asymmetry", "similarity", "surgery"])
def test_a_page_that_looks_inside_leads_with_its_conclusion(visitors, address, name):
    """The conclusion is larger than the title, and stands above the fold with its figure."""
    page = visit(visitors, address, name)
    conclusion = page.locator(".ak-conclusion, .st-key-conclusion p").first
    expect(conclusion).not_to_be_empty()
    size = "(node) => parseFloat(getComputedStyle(node).fontSize)"
    title = page.get_by_role("heading", level=1)
    assert conclusion.evaluate(size) > title.evaluate(size)
    figure = page.locator(".ak-film-figure:visible, .ak-ways").first
    assert conclusion.bounding_box()["y"] < figure.bounding_box()["y"] < 600
    most = 450 if name in ("asymmetry", "similarity") else 700
    assert page.evaluate(WORDS) <= most
    visitors.leave(page)


@pytest.mark.parametrize(
    "name", ["", "runs", "questions", "atlas", "capacity", "variants", "guide"]
)
def test_a_page_is_short(visitors, address, name):
    """It has at most 700 words and is at most 2,500 px high."""
    page = visit(visitors, address, name)
    assert_short(page)
    visitors.leave(page)
