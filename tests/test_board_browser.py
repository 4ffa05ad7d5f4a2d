"""The Lab in a real Chromium: all in one view, nothing that jumps, and help that is in no way.

Most tests look at the finished example that comes with attnkit, so they depend neither on an engine
nor on a processor. Windows are drawn from a seed.
"""

import contextlib
import random
import re

import pytest
from browsing import ALL_HAS_COME, LONG, saved
from lab_browsing import open_lab, press, status_line, wait_for_figure
from playwright.sync_api import TimeoutError as OutOfTime
from playwright.sync_api import expect

from attnkit.examples import load_example

pytestmark = [pytest.mark.browser, pytest.mark.server]

SMALLEST, LARGEST = (320, 500), (2600, 1440)
"""Windows, in pixels."""

PHONE = (390, 844)

NEAR = 2
"""Pixels by which a box may lie elsewhere."""

SIX = "QKV,Q%3DK,K%3DV,Q%3DV,Q%3DK%3DV,Q%3DK+unit_key+self_mask"

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

STILL = f"""() => {{
  const now = JSON.stringify([innerWidth, ({BOXES})()]), same = window.last === now;
  window.last = now;
  return same && {ALL_HAS_COME};
}}"""

SMALL_TEXTS = """() => [...document.querySelectorAll('.ak-board *')]
  .filter((node) => !node.closest('.ak-diagram') && node.checkVisibility())
  .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
  .filter((node) => parseFloat(getComputedStyle(node).fontSize) < 11)
  .map((node) => node.outerHTML.slice(0, 100))"""

LABELS = """() => [...document.querySelectorAll('.ak-board-column')].map((column) =>
  [...column.querySelectorAll('.ak-board-map text')].filter((node) => node.textContent).length)"""

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

LETTERS = """() => document.querySelector('.ak-board-chart text').getBoundingClientRect().height"""

BEYOND = """() => {
  const around = (node) => node.matches('.ak-board-chart *') ? node.ownerSVGElement
    : node.closest('.ak-board-map').querySelector('canvas');
  const curves = ':is(.ak-line, .ak-band, .ak-previous)[d*=L]';
  const drawn = document.querySelectorAll(`.ak-board ${curves}, .ak-board-lines, .ak-target`);
  return [...drawn].filter((node) => {
    const [box, area] = [node, around(node)].map((one) => one.getBoundingClientRect());
    return box.left < area.left - 2 || box.right > area.right + 2
      || box.top < area.top - 2 || box.bottom > area.bottom + 2;
  }).map((node) => node.className.baseVal);
}"""
"""Curves that leave their charts, and lines and frames that leave their maps."""


@pytest.fixture(scope="module")
def finished(visitors, address):
    """The Lab as it opens, with the finished example."""
    page = visitors.arrive(1440, 780)
    open_lab(page, address)
    yield page
    visitors.leave(page)


@pytest.fixture
def lab(finished):
    """The Lab in the tab in front, though another test may have opened another one."""
    finished.bring_to_front()
    return finished


def resize(page, window):
    """Give the window a size."""
    page.set_viewport_size({"width": window[0], "height": window[1]})


def boxes(page, window):
    """Return the boxes of the Lab's parts in a window of this size, when nothing moves any more."""
    resize(page, window)
    page.wait_for_function(STILL, polling=200)
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
    wanted = ("number", "accuracy", "map", "asymmetry")
    parts = [name for name in found if name.split()[0] in wanted]
    assert len(parts) == 4 * n_variants
    for name in parts:
        left, top, right, bottom = found[name]
        inside = left >= 0 and right <= window[0] and top >= 0 and bottom <= window[1]
        assert inside, f"{name} in {window}: {found[name]}"


def test_the_finished_example_is_in_one_view(lab):
    """On the smallest laptop and a large screen, in light and dark alike, and on projectors."""
    for window in ((1280, 640), (1920, 1080)):
        found = boxes(lab, window)
        assert_in_window(found, 5, window)
        lab.emulate_media(color_scheme="dark")
        assert not moved(found, boxes(lab, window))
        lab.emulate_media(color_scheme="light")
    assert lab.evaluate(BEYOND) == []
    assert lab.evaluate(SMALL_TEXTS) == []
    assert lab.evaluate(LABELS) == [24] * 5  # eight names twice, and eight answers
    boxes(lab, (1280, 720))
    before = lab.evaluate(LETTERS)
    switch = lab.locator(".st-key-projector input")
    switch.evaluate("(node) => node.click()")
    for window in ((1280, 720), (1920, 1080)):
        resize(lab, window)
        lab.wait_for_function(f"(before) => ({LETTERS})() >= 1.4 * before", arg=before)
        assert_in_window(boxes(lab, window), 5, window)
    switch.evaluate("(node) => node.click()")
    lab.wait_for_function(f"(before) => ({LETTERS})() < 1.4 * before", arg=before)


def test_no_word_of_a_setting_is_broken(lab, seed):
    """However narrow or wide the sidebar is pulled."""
    resize(lab, (1440, 900))
    lab.locator("[data-testid=stSidebar] summary").click()
    edge = lab.locator("[data-testid=stSidebarResizeHandle]")
    at = edge.bounding_box()["x"] + edge.bounding_box()["width"] / 2
    for width in (60, random.Random(seed).randint(200, 700), at):
        box = edge.bounding_box()
        lab.mouse.move(box["x"] + box["width"] / 2, 400)
        lab.mouse.down()
        lab.mouse.move(width, 400, steps=2)
        lab.mouse.up()
        assert lab.evaluate(BROKEN_WORDS) == []


def test_a_run_moves_nothing_and_keeps_the_focus(page, address):
    """Six variants from step 0 to the end, by keys alone, at two widths.

    It takes more than 5 s, because it waits until nothing moves.
    """
    windows = ((1280, 640), PHONE)
    open_lab(page, address, f"?v=1&sharing={SIX}&n_seeds=1&steps=20&first_seed=950")
    step, train = (page.locator(f".st-key-{key} button:visible").first for key in ("step", "train"))
    press(page, "reset")
    page.wait_for_selector(".ak-board[data-step='0'] canvas")
    before = [boxes(page, window) for window in windows]
    assert_in_window(before[0], 6, windows[0])
    resize(page, windows[0])
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
    assert [moved(*pair) for pair in zip(before, after, strict=True)] == [{}, {}]


def test_a_stopped_run_leaves_the_focus_and_its_curve_where_they_belong(page, address):
    """Keys lead from Train to Pause and back; a longer curve from before ends with its chart."""
    open_lab(page, address, "?v=1&sharing=QKV&n_seeds=1&steps=20000&first_seed=960")
    train, pause = (page.locator(f".st-key-{key} button") for key in ("train", "pause"))
    train.focus()
    page.keyboard.press("Enter")
    expect(pause).to_be_focused()
    wait_for_figure(page, 40)
    page.keyboard.press("Enter")
    expect(train).to_have_text(re.compile("Resume"))
    expect(train).to_be_focused()
    press(page, "stop")
    page.locator(".st-key-set_steps input").fill("30")
    page.keyboard.press("Enter")
    page.wait_for_url("**steps=30**")
    press(page, "train")
    expect(status_line(page)).to_contain_text("30 of 30")
    expect(page.locator(".ak-board .ak-previous[d*=L]")).to_have_count(1)
    assert page.evaluate(BEYOND) == []


def test_keys_read_all_charts_and_lead_through_the_example(lab):
    """Arrow keys move through the evaluations, and through the questions; Escape ends it."""
    boxes(lab, (1920, 1080))
    readings = lab.locator(".ak-board .ak-reading")
    expect(readings.nth(0)).to_have_text("")
    lab.locator(".ak-board-grid").focus()
    lab.keyboard.press("ArrowLeft")
    expect(readings.nth(0)).to_have_text("step 600: 100%")
    expect(readings.nth(2)).to_contain_text(re.compile(r"step 600: \d+% \(\d+% to \d+%\)"))
    curve = lab.locator(".ak-line").nth(0).bounding_box()
    assert readings.nth(0).bounding_box()["y"] > curve["y"] + 3  # it leaves its curve free
    lab.keyboard.press("Escape")
    expect(readings.nth(0)).to_have_text("")
    chosen = lab.locator(".st-key-example .ak-chosen .ak-place")
    before = int(chosen.inner_text())
    lab.locator(".ak-example-scroll").focus()
    lab.keyboard.press("ArrowRight")
    expect(chosen).to_have_text(str(before + 1))
    lab.keyboard.press("ArrowLeft")
    expect(chosen).to_have_text(str(before))


def test_larger_charts_are_saved_with_their_numbers(lab):
    """A row for every variant, measure and step."""
    resize(lab, (1440, 780))
    lab.locator(".st-key-larger summary").first.click()
    menus = lab.locator(".ak-figure-save")
    expect(menus).to_have_count(2)
    lab.wait_for_selector(".st-key-measures .ak-plot[data-draws]")
    heading, *rows = saved(lab, menus.nth(0), "CSV").splitlines()
    assert heading == "variant,measure,step,mean,low,high,asymmetry"
    assert len(rows) == 5 * len(load_example("directed").eval_steps)
    assert rows[-1].startswith("Q=K=V,accuracy,600,0.4")
    assert "right token" in saved(lab, menus.nth(1), "CSV")
    lab.locator(".st-key-larger summary").first.click()


def test_a_phone_has_the_action_bar_below_and_a_button_for_the_settings(lab):
    """The bar stays in sight, on a large screen at the top; columns snap when they are swiped."""
    resize(lab, (1440, 780))
    train, main = lab.locator(".st-key-train button"), lab.locator("[data-testid=stMain]")
    main.evaluate("(node) => node.scrollTo(0, node.scrollHeight)")
    assert 0 <= train.bounding_box()["y"] < 56
    main.evaluate("(node) => node.scrollTo(0, 0)")
    resize(lab, PHONE)
    expect(train).to_be_in_viewport()
    lab.wait_for_function(
        "() => document.querySelector('.st-key-train button').getBoundingClientRect().top > 700"
    )
    grid = lab.locator(".ak-board-grid")
    assert grid.evaluate("(node) => node.scrollWidth > node.clientWidth")
    expect(grid).to_contain_text("Swipe sideways: there are 5 columns.")
    second = lab.locator(".ak-board-column").nth(1).bounding_box()
    assert second["x"] + second["width"] < PHONE[0]  # two columns stand side by side
    assert grid.evaluate("(node) => getComputedStyle(node).scrollSnapType") == "x mandatory"
    opener = lab.get_by_role("button", name="Settings", exact=True)
    expect(opener).to_be_visible()
    assert opener.evaluate("(node) => getComputedStyle(node, '::after').content") == '"Settings"'
    opener.click()
    expect(lab.locator(".st-key-train_automatically")).to_be_in_viewport()
    lab.get_by_role("button", name="Collapse sidebar").click()
    expect(opener).to_be_visible()
    resize(lab, (1440, 780))


def test_the_tour_hides_nothing_that_it_points_at(lab, seed, long):
    """Its card lies in the window and above all else, with the sidebar open or closed.

    It takes more than 5 s, because the card follows what it points at only now and then.
    """
    rng = random.Random(seed)
    sides = list(zip(SMALLEST, LARGEST, strict=True))
    drawn = [tuple(rng.randint(*side) for side in sides) for _ in range(20 if long else 1)]
    card, found = lab.get_by_role("dialog", name="Tour of the Lab"), {}
    for place, window in enumerate([SMALLEST, *drawn]):
        resize(lab, window)
        if lab.evaluate(SIDEBAR_IS_OPEN) != bool(place % 2):
            lab.evaluate(PRESS_SIDEBAR)
        lab.locator(".ak-tour > button").evaluate("(node) => node.click()")
        for stop in range(1, 7):
            expect(card).to_contain_text(f"{stop} of 6")
            with contextlib.suppress(OutOfTime):
                lab.wait_for_function(f"() => !({TOUR_FAULTS})().length", timeout=3000)
            if faults := lab.evaluate(TOUR_FAULTS):
                found[(*window, stop)] = faults
            lab.locator(".ak-tour-next").click()
        expect(card).to_be_hidden()
    assert found == {}
    lab.locator(".ak-tour > button").evaluate("(node) => node.click()")
    lab.keyboard.press("Escape")
    expect(card).to_be_hidden()


@pytest.mark.parametrize("has_touch", [pytest.param(False, marks=pytest.mark.long), True])
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
