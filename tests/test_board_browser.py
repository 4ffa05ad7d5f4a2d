"""The Lab's board in a real Chromium: everything in one view, and nothing that jumps.

Most tests look at the finished example that comes with attnkit, so they depend neither on an engine
nor on a processor.
"""

import re

import pytest
from playwright.sync_api import expect

from attnkit.examples import load_example

pytestmark = [pytest.mark.browser, pytest.mark.server]

WINDOWS = ((1280, 640), (1366, 640), (1440, 780), (1920, 1080))
"""What a browser leaves of three laptops' screens, and a large screen."""

NEAR = 2
"""Pixels by which a box may lie elsewhere."""

BOXES = """() => {
  const found = {}, top = document.querySelector('[data-testid=stMain]').scrollTop;
  const add = (name, node) => {
    const box = node.getBoundingClientRect();
    found[name] = [box.left, box.top + top, box.right, box.bottom + top].map(Math.round);
  };
  for (const name of ['bar', 'chooser', 'state', 'why', 'example']) {
    add(name, document.querySelector(`.st-key-${name}`));
  }
  document.querySelectorAll('.ak-board-heading').forEach((node, i) => add(`heading ${i}`, node));
  document.querySelectorAll('.ak-board-column').forEach((column, i) => {
    const [accuracy, asymmetry] = column.querySelectorAll('.ak-board-chart');
    const parts = {
      number: column.querySelector('.ak-board-head'),
      accuracy, asymmetry, map: column.querySelector('.ak-board-map'),
      pair: column.querySelector('.ak-board-pair'),
    };
    for (const [name, node] of Object.entries(parts)) add(`${name} ${i}`, node);
  });
  return found;
}"""

VARIANTS = {
    2: "QKV,Q%3DK",
    6: "QKV,Q%3DK,K%3DV,Q%3DV,Q%3DK%3DV,Q%3DK+unit_key+self_mask",
}

SMALL_TEXTS = """() => [...document.querySelectorAll('.ak-board *')]
  .filter((node) => !node.closest('.ak-diagram') && node.checkVisibility())
  .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
  .filter((node) => parseFloat(getComputedStyle(node).fontSize) < 11)
  .map((node) => node.outerHTML.slice(0, 100))"""

LABELS = """() => [...document.querySelectorAll('.ak-board-column')].map((column) =>
  [...column.querySelectorAll('.ak-board-map text')].filter((node) => node.textContent).length)"""


READY = """() => document.fonts.status === 'loaded'
  && document.querySelector('.ak-board[data-draws]')
  && document.querySelector('.ak-example-strip .ak-token-box')
  && document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]')
  && !document.querySelector('[data-testid=stSkeleton], [data-stale=true]')"""


STILL = f"""() => {{
  const now = JSON.stringify([innerWidth, ({BOXES})()]), same = window.last === now;
  window.last = now;
  return same;
}}"""


def open_lab(visitors, address, query=""):
    """Open a link into the Lab and wait until all of it is drawn."""
    page = visitors.arrive(1440, 780)
    page.goto(f"{address}/{query}")
    page.wait_for_function(READY)
    return page


@pytest.fixture(scope="module")
def lab(visitors, address):
    """The Lab as it opens, with the finished example."""
    page = open_lab(visitors, address)
    yield page
    visitors.leave(page)


def resize(page, window):
    """Give the window a size, and wait until nothing moves any more."""
    page.set_viewport_size({"width": window[0], "height": window[1]})
    page.wait_for_function(READY)
    page.wait_for_function(STILL, polling=200)


def boxes(page, window):
    """Return the boxes of the Lab's parts in a window of this size, when nothing moves any more."""
    resize(page, window)
    return page.evaluate(BOXES)


def moved(before, after):
    """Return the parts that stand elsewhere, with both of their boxes."""
    assert before.keys() == after.keys()
    return {
        name: (box, after[name])
        for name, box in before.items()
        if max(abs(a - b) for a, b in zip(box, after[name], strict=True)) > NEAR
    }


def assert_in_window(found, n_variants, window):
    """Check that every variant's accuracy, map and asymmetry are in the window at once."""
    parts = [
        name for name in found if name.split()[0] in ("number", "accuracy", "map", "asymmetry")
    ]
    assert len(parts) == 4 * n_variants
    for name in parts:
        left, top, right, bottom = found[name]
        inside = left >= 0 and right <= window[0] and top >= 0 and bottom <= window[1]
        assert inside, f"{name} in {window}: {found[name]}"


def test_the_finished_example_is_in_one_view(visitors, address):
    """In light and dark alike, with all variants, beside a sidebar of the wanted width."""
    page = open_lab(visitors, address)
    for window in WINDOWS:
        found = boxes(page, window)
        assert_in_window(found, 5, window)
        page.emulate_media(color_scheme="dark")
        assert not moved(found, boxes(page, window))
        page.emulate_media(color_scheme="light")
    expect(page.locator(".ak-board-heading").nth(1)).to_contain_text("Rows read “name: boss”.")
    assert page.locator("[data-testid=stSidebar]").bounding_box()["width"] == 240
    assert page.evaluate(SMALL_TEXTS) == []
    assert page.evaluate(LABELS) == [24] * 5  # eight names twice, and eight answers
    visitors.leave(page)


@pytest.mark.parametrize("n_variants", VARIANTS)
def test_other_numbers_of_variants_are_in_the_window_at_once(visitors, address, n_variants):
    """The example stands in their columns, as far as it has them."""
    page = open_lab(visitors, address, f"?v=1&sharing={VARIANTS[n_variants]}")
    for window in WINDOWS:
        assert_in_window(boxes(page, window), n_variants, window)
    visitors.leave(page)


def test_nothing_moves_when_the_headline_comes_and_the_focus_stays(visitors, address):
    """From step 0 to the end, at three widths; with the keyboard alone."""
    windows = ((1440, 780), (640, 900), (390, 844))
    page = open_lab(visitors, address, "?v=1&n_seeds=2&steps=20&first_seed=950")
    step, train = (page.locator(f".st-key-{key} button:visible").first for key in ("step", "train"))
    page.locator(".st-key-reset button:visible").first.click()
    page.wait_for_selector(".ak-board[data-step='0'] canvas")
    before = [boxes(page, window) for window in windows]
    page.set_viewport_size({"width": 1440, "height": 780})
    step.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".ak-board[data-step='10']")
    expect(step).to_be_focused()
    train.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".ak-board[data-step='20']")
    expect(train).to_be_focused()
    expect(page.locator(".st-key-why")).to_contain_text("QKV")
    after = [boxes(page, window) for window in windows]
    assert [moved(*pair) for pair in zip(before, after, strict=True)] == [{}, {}, {}]
    visitors.leave(page)


def test_the_focus_goes_to_the_button_that_takes_the_place_of_train(visitors, address):
    """Pause while it trains, and back to Train, which is then called Resume."""
    page = open_lab(visitors, address, "?v=1&sharing=QKV&n_seeds=1&steps=20000&first_seed=960")
    train, pause = (page.locator(f".st-key-{key} button") for key in ("train", "pause"))
    train.focus()
    page.keyboard.press("Enter")
    expect(pause).to_be_focused()
    page.keyboard.press("Enter")
    expect(train).to_have_text(re.compile("Resume"))
    expect(train).to_be_focused()
    page.locator(".st-key-stop button:visible").first.click()
    visitors.leave(page)


def test_the_action_bar_stays_in_sight(lab):
    """At the top of a window that is scrolled, and at the bottom of a phone."""
    lab.set_viewport_size({"width": 1440, "height": 780})
    train, main = lab.locator(".st-key-train button"), lab.locator("[data-testid=stMain]")
    main.evaluate("(node) => node.scrollTo(0, node.scrollHeight)")
    assert 0 <= train.bounding_box()["y"] < 56
    main.evaluate("(node) => node.scrollTo(0, 0)")
    lab.set_viewport_size({"width": 390, "height": 844})
    expect(train).to_be_in_viewport()
    lab.wait_for_function(
        "() => document.querySelector('.st-key-train button').getBoundingClientRect().top > 700"
    )
    grid = lab.locator(".ak-board-grid")
    scrolls = (
        "(node) => [node.scrollWidth > node.clientWidth, getComputedStyle(node).scrollSnapType]"
    )
    assert grid.evaluate(scrolls) == [True, "x mandatory"]


def test_the_settings_of_a_phone_are_called_so(lab):
    """The button of a closed sidebar is named Settings, for eyes and for screen readers."""
    lab.set_viewport_size({"width": 390, "height": 844})
    opener = lab.get_by_role("button", name="Settings", exact=True)
    expect(opener).to_be_visible()
    word = opener.evaluate("(node) => getComputedStyle(node, '::after').content")
    assert word == '"Settings"'
    opener.click()
    expect(lab.locator(".st-key-train_automatically")).to_be_in_viewport()
    lab.get_by_role("button", name="Collapse sidebar").click()
    expect(opener).to_be_visible()


def test_a_step_is_read_from_all_charts_by_keys(lab):
    """Arrow keys move through the evaluations, Escape ends it; a reading leaves its curve free."""
    resize(lab, (1440, 780))
    readings = lab.locator(".ak-board .ak-reading")
    expect(readings.nth(0)).to_have_text("")
    expect(readings.nth(3)).to_have_text("0.00, the same both ways")
    lab.locator(".ak-board-grid").focus()
    lab.keyboard.press("ArrowLeft")
    expect(readings.nth(0)).to_have_text("step 600: 100%")
    expect(readings.nth(2)).to_contain_text("step 600: 49% (48% to 51%)")
    assert (
        readings.nth(0).bounding_box()["y"] > lab.locator(".ak-line").nth(0).bounding_box()["y"] + 3
    )
    lab.keyboard.press("Escape")
    expect(readings.nth(0)).to_have_text("")


def saved(page, menu, kind):
    """Return what a menu saves, as text."""
    menu.locator("summary").click()
    with page.expect_download() as download:
        menu.get_by_role("button", name=f"Save as {kind}").click()
    return download.value.path().read_text()


def test_larger_charts_are_saved_with_their_numbers(lab):
    """A row for every variant, measure and step."""
    lab.set_viewport_size({"width": 1440, "height": 780})
    lab.locator(".st-key-larger summary").first.click()
    menus = lab.locator(".ak-figure-save")
    expect(menus).to_have_count(2)
    lab.wait_for_selector(".st-key-measures .ak-plot[data-draws]")
    heading, *rows = saved(lab, menus.nth(0), "CSV").splitlines()
    assert heading == "variant,measure,step,mean,low,high,asymmetry"
    example = load_example("directed")
    assert len(rows) == 5 * len(example.eval_steps)
    assert rows[-1].startswith("Q=K=V,accuracy,600,0.4")
    assert "right token" in saved(lab, menus.nth(1), "CSV")
