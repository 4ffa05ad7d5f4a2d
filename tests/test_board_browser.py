"""The Lab's board in a real Chromium: everything in one view, and nothing that jumps."""

import pytest
from browsing import LONG
from playwright.sync_api import expect

from attnkit.examples import load_example

pytestmark = [pytest.mark.browser, pytest.mark.server]

WINDOWS = ((1440, 780), (1920, 1080))
"""What a browser leaves of a laptop's screen, and a large screen."""

VARIANTS = {
    2: "QKV,Q%3DK",
    5: "QKV,Q%3DK,K%3DV,Q%3DV,Q%3DK%3DV",
    6: "QKV,Q%3DK,K%3DV,Q%3DV,Q%3DK%3DV,Q%3DK+unit_key+self_mask",
}

BOXES = """() => {
  const found = {};
  const add = (name, node) => {
    const { left, top, right, bottom } = node.getBoundingClientRect();
    found[name] = [left, top, right, bottom];
  };
  add('bar', document.querySelector('.st-key-bar'));
  add('why', document.querySelector('.st-key-why'));
  document.querySelectorAll('.ak-board-column').forEach((column, i) => {
    const [accuracy, asymmetry] = column.querySelectorAll('.ak-board-chart');
    const parts = {
      number: column.querySelector('.ak-value').parentElement.parentElement,
      accuracy, asymmetry, map: column.querySelector('canvas'),
      pair: column.querySelector('.ak-board-pair'),
    };
    for (const [name, node] of Object.entries(parts)) add(`${name} ${i}`, node);
  });
  return found;
}"""

SMALL_TEXTS = """() => [...document.querySelectorAll('.ak-board *')]
  .filter((node) => !node.closest('.ak-diagram') && node.checkVisibility())
  .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
  .filter((node) => parseFloat(getComputedStyle(node).fontSize) < 11)
  .map((node) => node.outerHTML.slice(0, 100))"""

LABELS = """() => [...document.querySelectorAll('.ak-board-column')].map((column) =>
  [...column.querySelectorAll('.ak-board-map text')].filter((node) => node.textContent).length)"""


def boxes(page, window):
    """Return the boxes of the board's parts in a window of this size."""
    page.set_viewport_size({"width": window[0], "height": window[1]})
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")
    return page.evaluate(BOXES)


def wait_for_step(page, step):
    """Wait until the board shows a step."""
    page.wait_for_selector(f".st-key-board .ak-board[data-step='{step}']:not(.ak-faded) canvas")
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")


@pytest.mark.parametrize("n_variants", VARIANTS)
def test_all_variants_are_in_the_window_at_once_and_stay_where_they_are(
    browser, address, n_variants
):
    """From step 0 to the end, in both windows, in light and dark."""
    page = browser.new_page(color_scheme="light")
    page.set_default_timeout(LONG)
    page.goto(
        f"{address}/?v=1&sharing={VARIANTS[n_variants]}&n_seeds=2&steps=20&first_seed=9{n_variants}0"
    )
    page.wait_for_selector(".st-key-board .ak-board[data-draws] canvas")
    seen = {}
    for button, step in (("reset", 0), ("step", 10), ("train", 20)):
        page.locator(f".st-key-{button} button").first.click()
        wait_for_step(page, step)
        for scheme in ("light", "dark") if step == 20 else ("light",):
            page.emulate_media(color_scheme=scheme)
            for window in WINDOWS:
                found = boxes(page, window)
                assert len(found) == 2 + 5 * n_variants
                for name, (left, top, right, bottom) in found.items():
                    inside = left >= 0 and right <= window[0] and top >= 0 and bottom <= window[1]
                    assert inside, f"{name} at step {step}: {(left, top, right, bottom)}"
                first = seen.setdefault(window, found)
                moved = {
                    name: (first[name], box)
                    for name, box in found.items()
                    if max(abs(a - b) for a, b in zip(first[name], box, strict=True)) > 2
                }
                assert not moved, (step, scheme, window)
    assert page.evaluate(SMALL_TEXTS) == []
    assert page.evaluate(LABELS) == [24] * n_variants  # eight names twice, and eight answers
    page.close()


def test_the_action_bar_stays_in_sight(browser, address):
    """At the top of a window that is scrolled, and at the bottom of a phone."""
    page = browser.new_page(viewport={"width": 1440, "height": 780})
    page.set_default_timeout(LONG)
    page.goto(f"{address}/")
    page.wait_for_selector(".st-key-board .ak-board[data-draws] canvas")
    train = page.locator(".st-key-train button")
    page.locator(".st-key-example").scroll_into_view_if_needed()
    page.locator("[data-testid=stMain]").evaluate("(node) => node.scrollTo(0, node.scrollHeight)")
    assert 0 <= train.bounding_box()["y"] < 56
    page.set_viewport_size({"width": 390, "height": 844})
    expect(train).to_be_in_viewport()
    page.wait_for_function(
        "() => document.querySelector('.st-key-train button').getBoundingClientRect().top > 700"
    )
    grid = page.locator(".ak-board-grid")
    scrolls = (
        "(node) => [node.scrollWidth > node.clientWidth, getComputedStyle(node).scrollSnapType]"
    )
    assert grid.evaluate(scrolls) == [True, "x mandatory"]
    page.close()


def test_a_step_is_read_from_all_charts_by_keys(browser, address):
    """Arrow keys move through the evaluations; Escape ends it."""
    page = browser.new_page(viewport={"width": 1440, "height": 780})
    page.set_default_timeout(LONG)
    page.goto(f"{address}/")
    page.wait_for_selector(".st-key-board .ak-board[data-draws] canvas")
    readings = page.locator(".ak-board .ak-reading")
    expect(readings.nth(0)).to_have_text("")
    expect(readings.nth(3)).to_have_text("0.00, the same both ways")
    page.locator(".ak-board-grid").focus()
    page.keyboard.press("ArrowLeft")
    expect(readings.nth(0)).to_have_text("step 600: 1.00 [1.00, 1.00]")
    expect(readings.nth(2)).to_contain_text("step 600: 0.49")
    page.keyboard.press("Escape")
    expect(readings.nth(0)).to_have_text("")
    page.locator(".ak-board-save summary").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as SVG").click()
    picture = download.value.path().read_text()
    example = load_example("directed")
    first = example.experiment.task.label(example.probe.tokens)[0]
    assert first.short in picture
    assert picture.count("<svg") > 10
    page.close()
