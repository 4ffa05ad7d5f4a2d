"""Small things that new users stumbled over, in a real Chromium; windows are drawn from a seed."""

import random

import pytest
from browsing import LONG
from lab_browsing import open_lab, press, status_line
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]

SMALLEST, LARGEST = (320, 500), (2600, 1440)

SIDEBAR_IS_OPEN = """() => document.querySelector('[data-testid=stSidebar]')
  ?.getAttribute('aria-expanded') === 'true'"""

PRESS_SIDEBAR = """() => (document.querySelector('[data-testid=stExpandSidebarButton]')
  ?? document.querySelector('[data-testid=stSidebarCollapseButton] button')).click()"""

TOUR_FAULTS = """() => {
  const NEAR = 1.5, faults = [], card = document.querySelector('.ak-tour-card');
  const box = card.getBoundingClientRect();
  if (box.left < 0 || box.top < 0 || box.right > innerWidth || box.bottom > innerHeight) {
    faults.push('the card leaves the window');
  }
  for (const [across, down] of [[0.05, 0.1], [0.95, 0.1], [0.05, 0.9], [0.95, 0.9]]) {
    const [x, y] = [box.left + box.width * across, box.top + box.height * down];
    if (!card.contains(document.elementFromPoint(x, y))) faults.push('the card is covered');
  }
  const shown = document.querySelector('.ak-tour-frame').getBoundingClientRect();
  const [left, right] = [Math.max(shown.left, 0), Math.min(shown.right, innerWidth)];
  const [top, bottom] = [Math.max(shown.top, 0), Math.min(shown.bottom, innerHeight)];
  if (right - left < 8 || bottom - top < 8) faults.push('what it points at is out of view');
  if (Math.min(right, box.right) - Math.max(left, box.left) > NEAR
    && Math.min(bottom, box.bottom) - Math.max(top, box.top) > NEAR) faults.push('it hides it');
  const at = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  if (at?.closest('[data-testid=stSidebar]')) faults.push('the sidebar hides it');
  return faults;
}"""

BROKEN_WORDS = """() => {
  const found = [], labels = '[data-testid=stSidebar] [data-testid=stWidgetLabel]';
  for (const label of document.querySelectorAll(labels)) {
    const walker = document.createTreeWalker(label, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      for (const { index, 0: word } of node.data.matchAll(/[\\p{L}\\d]+/gu)) {
        const range = new Range();
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        if (new Set([...range.getClientRects()].map(({ top }) => top)).size > 1) found.push(word);
      }
    }
  }
  return found;
}"""

SWITCHES = """() => [...document.querySelectorAll(
  '[data-testid=stSidebar] input[type=checkbox]')].map((node) => node.checked)"""

MEASURES = """() => [...document.querySelectorAll(
  '.ak-board-head, .ak-board-chart, .ak-board-map')].map((node) => {
    const { left, right, bottom } = node.getBoundingClientRect();
    return left >= 0 && right <= innerWidth && bottom <= innerHeight;
  })"""

LETTERS = """() => document.querySelector('.ak-board-chart text').getBoundingClientRect().height"""


def draw_windows(seed, n):
    """Draw `n` windows besides the smallest and the largest."""
    rng = random.Random(seed)
    sides = list(zip(SMALLEST, LARGEST, strict=True))
    return [SMALLEST, LARGEST, *(tuple(rng.randint(*side) for side in sides) for _ in range(n))]


def test_the_tour_hides_nothing_that_it_points_at(page, address, seed):
    """Its card lies in the window and above all else, with the sidebar open or closed."""
    open_lab(page, address)
    found = {}
    for place, window in enumerate(draw_windows(seed, 1)):
        page.set_viewport_size(dict(zip(("width", "height"), window, strict=True)))
        if page.evaluate(SIDEBAR_IS_OPEN) != bool(place % 2):
            page.evaluate(PRESS_SIDEBAR)
        page.locator(".ak-tour > button").evaluate("(node) => node.click()")
        for stop in range(1, 7):
            page.wait_for_timeout(400)  # the card follows what it points at every 250 ms
            if faults := page.evaluate(TOUR_FAULTS):
                found[(*window, stop)] = faults
            page.locator(".ak-tour-next").click()
    assert found == {}


@pytest.mark.parametrize("has_touch", [False, True])
def test_a_press_on_a_help_icon_flips_no_switch(browser, address, has_touch):
    """It only shows its text."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, has_touch=has_touch)
    context.set_default_timeout(LONG)
    page = context.new_page()
    open_lab(page, address)
    before = page.evaluate(SWITCHES)
    icons = page.locator("[data-testid=stSidebar] [data-testid=stCheckbox] button")
    for icon in icons.locator("visible=true").all():
        icon.tap() if has_touch else icon.click()
        expect(page.get_by_role("tooltip").first).to_be_visible()
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
    assert page.evaluate(SWITCHES) == before
    page.locator(".st-key-all_pages label").click(position={"x": 10, "y": 10})
    expect(page.locator(".st-key-all_pages input")).to_be_checked(checked=not before[0])
    context.close()


def test_no_word_of_a_setting_is_broken(page, address, seed):
    """However narrow or wide the sidebar is pulled."""
    open_lab(page, address)
    page.locator("[data-testid=stSidebar] summary").click()
    edge = page.locator("[data-testid=stSidebarResizeHandle]")
    for width in (60, 700, random.Random(seed).randint(200, 500)):
        box = edge.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, 400)
        page.mouse.down()
        page.mouse.move(width, 400, steps=5)
        page.mouse.up()
        assert page.evaluate(BROKEN_WORDS) == []


def test_a_projector_shows_all_measures_in_one_view(page, address):
    """Five columns with larger letters, on the two commonest projectors."""
    open_lab(page, address)
    page.set_viewport_size({"width": 1280, "height": 720})
    before = page.evaluate(LETTERS)
    page.locator(".st-key-projector label").click(position={"x": 10, "y": 10})
    for width, height in ((1280, 720), (1920, 1080)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(  # a box of letters is rounded to whole pixels
            f"(before) => ({MEASURES})().every(Boolean) && ({LETTERS})() >= 1.4 * before",
            arg=before,
        )
        assert len(page.evaluate(MEASURES)) == 5 * 4


def test_the_curve_of_a_longer_run_before_ends_with_its_chart(page, address):
    """It does not run into the next column."""
    open_lab(page, address, "?v=1&first_seed=300&steps=60&n_seeds=2")
    press(page, "train")
    expect(status_line(page)).to_contain_text("Finished")
    page.locator(".st-key-set_steps input").fill("30")
    page.keyboard.press("Enter")
    page.wait_for_url("**steps=30**")
    press(page, "train")
    expect(status_line(page)).to_contain_text("30 of 30")
    expect(page.locator(".ak-board .ak-previous[d*=L]")).to_have_count(5)
    beyond = page.evaluate(
        """() => [...document.querySelectorAll('.ak-board .ak-previous[d*=L]')].filter((node) =>
          node.getBoundingClientRect().right
            > node.ownerSVGElement.getBoundingClientRect().right).length"""
    )
    assert beyond == 0
