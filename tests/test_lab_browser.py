"""The Lab in a real Chromium: a newcomer's way, all in one view, and help that is in no way.

What its components draw is tested in `test_components_browser.py`. Windows are drawn from a seed.
"""

import contextlib
import random
import re

import numpy as np
import pytest
from browsing import ALL_HAS_COME, COUNT_REPLACED
from lab_browsing import open_lab, press, wait_for_figure
from layout_search import FAULTS
from playwright.sync_api import TimeoutError as OutOfTime
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]

SMALLEST, LARGEST = (320, 500), (2600, 1440)
"""Windows, in pixels."""

BOARD = ".st-key-board .ak-board"

BOXES = """() => [...document.querySelectorAll(`.st-key-bar, .st-key-chooser, .st-key-state,
    .st-key-why, .st-key-example, .ak-board-heading, .ak-board-head, .ak-board-chart,
    .ak-board-map, .ak-board-pair`)]
  .map((node) => node.getBoundingClientRect())
  .map((box) => [box.left, box.top, box.right, box.bottom].map(Math.round))"""

STILL = f"""() => {{
  const now = JSON.stringify([innerWidth, ({BOXES})()]), same = window.last === now;
  window.last = now;
  return same && {ALL_HAS_COME};
}}"""

SIDEBAR_IS_OPEN = """() => document.querySelector('[data-testid=stSidebar]')
  ?.dataset.collapsed === 'false'"""

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

LETTERS = """() => document.querySelector('.ak-board-chart text').getBoundingClientRect().height"""

CURVES = """() => [...document.querySelectorAll('.st-key-board .ak-line')]
  .map((node) => node.getAttribute('d'))"""

ACCURACIES = """() => [...document.querySelectorAll('.st-key-board .ak-value')]
  .map((node) => parseFloat(node.textContent) || 0)"""
"""In percent; 0 before training."""

PROGRESS = "[data-testid=stMarkdown] p:text-matches('[Ss]tep [0-9]+ of') >> nth=0"

SHOWN_STEP = "() => Number((document.body.innerText.match(/[Ss]tep (\\d+) of/) ?? [0, -1])[1])"
"""The step that the line of progress shows."""


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


def wait_for_step(page, least):
    """Wait until the step of the line of progress is at least this one, and return it."""
    page.wait_for_function(f"(least) => ({SHOWN_STEP})() >= least", arg=least)
    return page.evaluate(SHOWN_STEP)


def step_at_rest(page):
    """Wait until the step of the line of progress stays as it is for a second, and return it."""
    before, now = -1, page.evaluate(SHOWN_STEP)
    while now != before:
        page.wait_for_timeout(1000)
        before, now = now, page.evaluate(SHOWN_STEP)
    return now


def wait_for_draws(page, more):
    """Wait until the board is drawn `more` times."""
    page.wait_for_function(
        "([board, goal]) => Number(document.querySelector(board).dataset.draws) >= goal",
        arg=[BOARD, int(page.locator(BOARD).get_attribute("data-draws")) + more],
    )


def resize(page, window):
    """Give the window a size."""
    page.set_viewport_size({"width": window[0], "height": window[1]})


def boxes(page):
    """Return the boxes of the Lab's parts when nothing moves any more."""
    page.wait_for_function(STILL, polling=200)
    return page.evaluate(BOXES)


def all_in_view(page, window):
    """Return all boxes once every variant's accuracy, map and asymmetry are in one view."""
    faults = f"({FAULTS})({{measuresInView: true}})"
    resize(page, window)
    with contextlib.suppress(OutOfTime):  # the board follows the page above
        page.wait_for_function(f"{faults}.length === 0", polling=500, timeout=20_000)
    assert page.evaluate(faults) == []
    return boxes(page)


def same_boxes(before, after):
    """Return whether all parts stand where they stood, but for two pixels."""
    return np.abs(np.subtract(before, after)).max() <= 2


def test_a_newcomer_trains_pauses_steps_reloads_and_stops(page, address):
    """By keys: accuracies rise, no node of the board is replaced, and a reload finds the run."""
    open_lab(page, address)
    expect(page.locator(".st-key-board canvas")).to_have_count(5)
    assert page.evaluate(ACCURACIES)[0] == 100
    link = "?v=1&sharing=QKV,Q%3DK&n_seeds=1&first_seed=200&steps=20000"
    page.goto(f"{address}/{link}")
    page.wait_for_selector(".st-key-board .ak-board-column")
    page.wait_for_selector(".st-key-example .ak-token-box")
    expect(page.locator(".st-key-board canvas")).to_have_count(0)  # the example has other settings
    train, pause = (page.locator(f".st-key-{key} button") for key in ("train", "pause"))
    train.focus()
    page.keyboard.press("Enter")
    expect(pause).to_be_focused()
    wait_for_figure(page, 1)
    wait_for_draws(page, 2)  # the first ones come while the page above still grows
    page.evaluate(COUNT_REPLACED, BOARD)
    curves = page.evaluate(CURVES)
    wait_for_draws(page, 3)
    wait_for_figure(page, 300)
    assert min(page.evaluate(ACCURACIES)) > 20  # they began at about 10
    assert all(a != b for a, b in zip(curves, page.evaluate(CURVES), strict=True))
    assert page.evaluate("() => window.replaced") == 0
    page.keyboard.press("Enter")
    expect(train).to_have_text(re.compile("Resume"))
    expect(train).to_be_focused()
    expect(page.locator(PROGRESS)).to_contain_text("Paused")
    held = step_at_rest(page)  # steps that were under way when the button was pressed
    press(page, "step")
    next_evaluation = f"(held) => ({SHOWN_STEP})() > held && ({SHOWN_STEP})() % 10 === 0"
    page.wait_for_function(next_evaluation, arg=held)
    held = step_at_rest(page)
    assert held % 10 == 0
    press(page, "train")
    wait_for_step(page, held + 1)
    page.reload()
    wait_for_step(page, held + 2)
    press(page, "stop")
    expect(page.locator(PROGRESS)).to_contain_text("Stopped")


def test_a_newcomer_looks_inside_and_finds_everything_again(page, address):
    """A run moves nothing; its film is shown, and leads back to the Lab as it was."""
    link = "?v=1&sharing=QKV,Q%3DK,K%3DV&n_seeds=1&steps=20&first_seed=950"
    open_lab(page, address, link)
    step, train = (page.locator(f".st-key-{key} button:visible").first for key in ("step", "train"))
    press(page, "reset")
    page.wait_for_selector(".ak-board[data-step='0'] canvas")
    before = all_in_view(page, (1280, 640))
    step.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".ak-board[data-step='10']")
    expect(step).to_be_focused()
    train.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".ak-board[data-step='20']")
    expect(train).to_be_focused()
    expect(page.locator(".st-key-why")).to_contain_text("QKV")
    assert same_boxes(before, boxes(page))
    accuracies = page.evaluate(ACCURACIES)

    page.get_by_test_id("stSidebarNavLink").filter(has_text="Attention").click()
    page.wait_for_selector(".ak-film[data-described='20']")
    expect(page.locator(".ak-step")).to_contain_text("20")
    page.get_by_test_id("stSidebarNavLink").filter(has_text="Lab").click()
    page.wait_for_selector(".ak-board[data-step='20'] canvas")
    expect(page.locator(".st-key-set_steps input")).to_have_value("20")
    assert page.evaluate(ACCURACIES) == accuracies
    assert page.evaluate(FAULTS, {}) == []
    for name, typed, meant in (("steps", "1.200", "1200"), ("learning_rate", "0,02", "0.02")):
        field = page.locator(f".st-key-set_{name} input")  # as people of other countries write it
        field.focus()
        field.press("Control+a")
        field.press_sequentially(typed)
        expect(field).to_have_value(meant)


def test_the_finished_example_is_in_one_view(lab):
    """On the smallest laptop, in light and dark alike, and on projectors with larger letters."""

    def without_sidebar(window):
        resize(lab, window)
        boxes(lab)  # a window that changes may move the sidebar
        if lab.evaluate(SIDEBAR_IS_OPEN):
            lab.evaluate(PRESS_SIDEBAR)
            lab.wait_for_function(f"() => !({SIDEBAR_IS_OPEN})()")
        return window

    found = all_in_view(lab, without_sidebar((1280, 640)))
    lab.emulate_media(color_scheme="dark")
    assert same_boxes(found, boxes(lab))
    lab.emulate_media(color_scheme="light")
    for column in lab.locator(".ak-board-map").all():  # eight names twice, and eight answers
        expect(column.locator("text:not(:empty)")).to_have_count(24)
    window = without_sidebar((1280, 720))
    before = lab.evaluate(LETTERS)
    switch = lab.locator(".st-key-projector input")
    switch.evaluate("(node) => node.click()")
    lab.wait_for_function(f"(before) => ({LETTERS})() >= 1.4 * before", arg=before)
    all_in_view(lab, window)
    switch.evaluate("(node) => node.click()")
    lab.wait_for_function(f"(before) => ({LETTERS})() < 1.4 * before", arg=before)


def test_a_phone_has_the_action_bar_below_and_a_button_for_the_settings(lab):
    """The bar stays in sight, on a large screen at the top."""
    train, main = lab.locator(".st-key-train button"), lab.locator("[data-testid=stMain]")
    main.evaluate("(node) => node.scrollTo(0, node.scrollHeight)")
    assert 0 <= train.bounding_box()["y"] < 56
    main.evaluate("(node) => node.scrollTo(0, 0)")
    resize(lab, (390, 844))
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


def test_the_tour_hides_nothing_that_it_points_at(lab, seed):
    """Its card lies in the window and above all else, with the sidebar open or closed."""
    rng = random.Random(seed)
    drawn = tuple(rng.randint(*side) for side in zip(SMALLEST, LARGEST, strict=True))
    card, found = lab.get_by_role("dialog", name="Tour of the Lab"), {}
    for place, window in enumerate([SMALLEST, drawn]):
        resize(lab, window)
        boxes(lab)  # a narrow window closes the sidebar
        if lab.evaluate(SIDEBAR_IS_OPEN) != bool(place % 2):
            lab.evaluate(PRESS_SIDEBAR)
            boxes(lab)
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
