"""The Lab in a real Chromium: a newcomer's way, all in one view, and help that is in no way.

What its components draw is tested in `test_components_browser.py`. Windows are drawn from a seed.
"""

import contextlib
import csv
import random
import re

import pytest
from browsing import ALL_HAS_COME, COUNT_REPLACED, saved
from lab_browsing import (
    open_lab,
    open_untrained,
    press,
    shown_step,
    status_line,
    wait_for_draws,
    wait_for_figure,
    wait_for_step,
)
from layout_search import FAULTS
from playwright.sync_api import TimeoutError as OutOfTime
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]

SMALLEST, LARGEST = (320, 500), (2600, 1440)
"""Windows, in pixels."""

PHONE = (390, 844)

NEAR = 2
"""Pixels by which a box may lie elsewhere."""

TRIES = 10
"""Times that boxes are read until they are where they belong: the board follows the page above."""

BOARD = ".st-key-board .ak-board"

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

LETTERS = """() => document.querySelector('.ak-board-chart text').getBoundingClientRect().height"""

CURVES = """() => [...document.querySelectorAll('.st-key-board .ak-line')]
  .map((node) => node.getAttribute('d'))"""

ACCURACIES = """() => [...document.querySelectorAll('.st-key-board .ak-value')]
  .map((node) => parseFloat(node.textContent) || 0)"""
"""In percent; 0 before training."""


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
    resize(finished, (1440, 780))
    return finished


def set_sidebar(page, is_open):
    """Open or close the sidebar, whatever another test has done with it."""
    box = page.locator("[data-testid=stSidebar]").bounding_box()
    if bool(box and box["x"] + box["width"] > 50) != is_open:
        page.evaluate(PRESS_SIDEBAR)
        page.wait_for_timeout(500)


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


def in_window(page, n_variants, window):
    """Return all boxes once every variant's accuracy, map and asymmetry are in one view."""
    wanted = ("number", "accuracy", "map", "asymmetry")
    for _ in range(TRIES):
        found = boxes(page, window)
        parts = {name: box for name, box in found.items() if name.split()[0] in wanted}
        outside = {
            name: (left, top, right, bottom)
            for name, (left, top, right, bottom) in parts.items()
            if left < 0 or top < 0 or right > window[0] or bottom > window[1]
        }
        if not outside:
            break
    assert len(parts) == 4 * n_variants
    assert outside == {}, window
    return found


def test_a_newcomer_trains_pauses_steps_reloads_and_stops(page, address):
    """By keys: accuracies rise, no node of the board is replaced, and a reload finds the run."""
    open_lab(page, address)
    expect(page.locator(".st-key-board canvas")).to_have_count(5)
    assert page.evaluate(ACCURACIES)[0] == 100
    link = "?v=1&sharing=QKV,Q%3DK&n_seeds=1&first_seed=200&steps=20000"
    open_untrained(page, address, link)
    expect(page.locator(".st-key-board canvas")).to_have_count(0)  # the example has other settings
    train, pause = (page.locator(f".st-key-{key} button") for key in ("train", "pause"))
    train.focus()
    page.keyboard.press("Enter")
    expect(pause).to_be_focused()
    wait_for_figure(page, 1)
    wait_for_draws(page, BOARD, 2)  # the first ones come while the page above still grows
    page.evaluate(COUNT_REPLACED, BOARD)
    curves = page.evaluate(CURVES)
    wait_for_draws(page, BOARD, 3)
    wait_for_figure(page, 300)
    assert min(page.evaluate(ACCURACIES)) > 20  # they began at about 10
    assert all(a != b for a, b in zip(curves, page.evaluate(CURVES), strict=True))
    assert page.evaluate("() => window.replaced") == 0
    page.keyboard.press("Enter")
    expect(train).to_have_text(re.compile("Resume"))
    expect(train).to_be_focused()
    expect(status_line(page)).to_contain_text("Paused")
    held = shown_step(page)
    press(page, "step")
    wait_for_step(page, held + 1)
    assert shown_step(page) == held - held % 10 + 10
    press(page, "train")
    wait_for_step(page, held + 11)
    page.reload()
    wait_for_step(page, held + 12)
    press(page, "stop")
    expect(status_line(page)).to_contain_text("Stopped")


def test_a_newcomer_looks_inside_and_finds_everything_again(page, address):
    """A run moves nothing; its film plays, is saved, and leads back to the Lab as it was."""
    link = "?v=1&sharing=QKV,Q%3DK,K%3DV&n_seeds=1&steps=20&first_seed=950"
    open_lab(page, address, link)
    step, train = (page.locator(f".st-key-{key} button:visible").first for key in ("step", "train"))
    press(page, "reset")
    page.wait_for_selector(".ak-board[data-step='0'] canvas")
    before = in_window(page, 3, (1280, 640))
    step.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".ak-board[data-step='10']")
    expect(step).to_be_focused()
    train.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".ak-board[data-step='20']")
    expect(train).to_be_focused()
    expect(page.locator(".st-key-why")).to_contain_text("QKV")
    assert moved(before, boxes(page, (1280, 640))) == {}
    accuracies = page.evaluate(ACCURACIES)

    page.get_by_test_id("stSidebarNavLink").filter(has_text="Attention").click()
    page.wait_for_selector(".ak-film[data-described='20']")
    expect(page.locator(".ak-step")).to_contain_text("20")
    page.get_by_role("button", name="First step").click()
    page.wait_for_selector(".ak-film[data-described='0']")
    page.get_by_role("button", name="Play").click()
    page.wait_for_selector(".ak-film[data-described='20']")
    rows = list(csv.DictReader(saved(page, page.locator("[data-figure=maps]"), "CSV").splitlines()))
    assert {row["variant"] for row in rows} == {"QKV", "Q=K", "K=V"}

    page.get_by_test_id("stSidebarNavLink").filter(has_text="Lab").click()
    page.wait_for_selector(".ak-board[data-step='20'] canvas")
    expect(page.locator(".st-key-set_steps input")).to_have_value("20")
    assert page.evaluate(ACCURACIES) == accuracies
    assert page.evaluate(FAULTS, {}) == []


def test_the_finished_example_is_in_one_view(lab):
    """On the smallest laptop, in light and dark alike, and on projectors with larger letters."""
    window = (1280, 640)
    resize(lab, window)
    set_sidebar(lab, is_open=False)
    found = in_window(lab, 5, window)
    lab.emulate_media(color_scheme="dark")
    assert not moved(found, boxes(lab, window))
    lab.emulate_media(color_scheme="light")
    assert lab.evaluate(LABELS) == [24] * 5  # eight names twice, and eight answers
    window = (1280, 720)
    resize(lab, window)
    before = lab.evaluate(LETTERS)
    switch = lab.locator(".st-key-projector input")
    switch.evaluate("(node) => node.click()")
    lab.wait_for_function(f"(before) => ({LETTERS})() >= 1.4 * before", arg=before)
    in_window(lab, 5, window)
    switch.evaluate("(node) => node.click()")
    lab.wait_for_function(f"(before) => ({LETTERS})() < 1.4 * before", arg=before)


def test_no_word_of_a_setting_is_broken(lab, seed):
    """However narrow or wide the sidebar is pulled."""
    resize(lab, (1440, 900))
    set_sidebar(lab, is_open=True)
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


def test_a_phone_has_the_action_bar_below_and_a_button_for_the_settings(lab):
    """The bar stays in sight, on a large screen at the top."""
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
    opener = lab.get_by_role("button", name="Settings", exact=True)
    expect(opener).to_be_visible()
    assert opener.evaluate("(node) => getComputedStyle(node, '::after').content") == '"Settings"'
    opener.click()
    expect(lab.locator(".st-key-train_automatically")).to_be_in_viewport()
    lab.get_by_role("button", name="Collapse sidebar").click()
    expect(opener).to_be_visible()
    resize(lab, (1440, 780))


def test_the_tour_hides_nothing_that_it_points_at(lab, seed):
    """Its card lies in the window and above all else, with the sidebar open or closed."""
    rng = random.Random(seed)
    drawn = tuple(rng.randint(*side) for side in zip(SMALLEST, LARGEST, strict=True))
    card, found = lab.get_by_role("dialog", name="Tour of the Lab"), {}
    for place, window in enumerate([SMALLEST, drawn]):
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


@pytest.mark.long
def test_a_variant_is_checked_while_it_is_typed_found_and_added(page, address):
    """A typing error is named without Enter; what was found is drawn, added and selected."""
    open_lab(page, address, "?v=1&sharing=QKV")
    page.locator(".st-key-add_variant button").first.click()
    written = page.locator(".st-key-variant_text input")
    written.press_sequentially("Q=K unit_kay", delay=20)
    expect(page.get_by_text("did you mean unit_key?")).to_be_visible()
    expect(written).to_have_value("Q=K unit_kay")
    written.fill("shared-qk")
    page.locator(".st-key-variants_found button", has_text="Reformer").click()
    expect(written).to_have_value("Q=K unit_key self_mask")
    expect(page.locator(".st-key-preview .ak-diagram")).to_be_visible()
    page.locator(".st-key-add button").click()
    page.wait_for_url("**unit_key**")
    expect(written).to_have_count(0)
    expect(page.locator(".st-key-set_sharing")).to_contain_text("Reformer")
