"""Every page for whoever reads little contrast, hears the page, has no mouse, or prints it.

Pages are those of the navigation, the owner's included: a new one is taken in by itself. They are
those of a hosted copy, whose policy forbids to load anything from elsewhere. By day each is opened
once, in a window and a theme that are drawn from the seed; the night looks at all of them.
"""

import contextlib
import random
import re
from pathlib import Path
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest
import streamlit
from axe_playwright_python.sync_playwright import Axe
from browsing import ALL_HAS_COME, OWNER_SECRET
from crowd import hosted
from finished import store_finished
from kinds import tiny
from lab_browsing import is_fatal
from layout_search import draw_visits, draw_window, faults_in, open_folds, search
from paper import NUMBER_FIGURES, assert_printed_whole, assert_saved_as_shown, needs_poppler
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from attnkit.service.store import ResultStore
from attnkit.ui import routing

pytestmark = [pytest.mark.browser, pytest.mark.server]

WIDE, NARROW = 1440, 640
LOOKS = [(WIDE, "light"), (WIDE, "dark"), (NARROW, "light")]
"""Widths and themes in which pages are looked at."""

NO_FIGURE = {"owner"}
"""Pages that draw nothing."""

MOST_WORDS = {"asymmetry": 450, "similarity": 450}
"""Words of a page on a wide screen, at most, where that is not 700."""

DRAWN = {"lab": ".ak-board[data-draws] canvas", "surgery": ".ak-ways table", "guide": ".ak-card"}
DRAWN |= dict.fromkeys(["attention", "asymmetry", "similarity"], ".ak-film[data-described='600']")
DRAWN |= dict.fromkeys(["capacity", "atlas", "questions"], ".ak-plot[data-draws]")
"""What a page draws last."""

LOOK_INSIDE = ("attention", "asymmetry", "similarity", "surgery")
"""Pages that lead with a conclusion, larger than their title."""

GRAVE = {"serious", "critical"}

EXEMPT = {
    # WCAG 1.4.3 exempts controls that are switched off, and axe leaves out the labels of those. But
    # Streamlit's selectbox is named by aria-label, so that its visible label is known to nobody.
    "color-contrast": "[data-testid=stWidgetLabel][disabled]",
    # Streamlit's navigation with sections puts a box around each section, inside of the list.
    "list": "[data-testid=stSidebarNavItems]",
    "listitem": "[data-testid=stSidebarNavItems]",
}
"""By rule of axe, what of Streamlit's own markup is no fault and cannot be changed here."""

READY = f"""(figures) => {{
  const all = (selector) => [...document.querySelectorAll(selector)];
  return all('h1').length > 0 && {ALL_HAS_COME}
    && all('.ak-plot, .ak-board').every((plot) => plot.dataset.draws)
    && all('.ak-film').every(({{ dataset }}) => dataset.step && dataset.step === dataset.described)
    && all('.ak-picture').every((picture) => picture.firstChild)
    && all('.ak-example-strip').every((strip) => strip.querySelector('.ak-token-box'))
    && (!figures || all('.stBidiComponent').some((node) => node.innerText.trim()))
    && document.getAnimations().every((one) => !(one instanceof CSSTransition)
      || one.playState === 'finished');
}}"""
"""All that was asked for is drawn, and nothing is between two colours."""

HEIGHT = """() => Math.max(...[...document.querySelectorAll(
  '[data-testid=stMain], [data-testid=stSidebarContent]')].map((node) => node.scrollHeight))"""

LENGTH = r"""() => [
  document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight,
  document.querySelector('[data-testid=stMain]').innerText.split(/\s+/)
    .filter((word) => /[\p{L}\d]/u.test(word)).length]"""
"""Pixels and words of a page."""

FIGURES = """() => {
  const drawings = [...document.querySelectorAll(
    ':is(.stBidiComponent, .stPlotlyChart, .stVegaLiteChart) :is(svg, canvas)')];
  const figures = drawings.filter((node) => node.checkVisibility() && !node.closest('button'))
    .filter((node) => node.clientWidth >= 40 && node.clientHeight >= 40)
    .map((node) => node.closest('[role=img], [role=group], [role=figure]') ?? node);
  return [...new Set(figures)].map((node) =>
    [node.outerHTML.slice(0, 90), node.getAttribute('aria-label') ?? '']);
}"""
"""Whatever is drawn, but for icons and pictures within buttons, which have words beside them."""

A_FINDING = re.compile(r"\d|\b(no|one|two|three|four) matri(x|ces)\b")

CONTROLS = """() => [...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [role=slider], [tabindex]')]
  .filter((node) => node.checkVisibility({ visibilityProperty: true }))
  .filter((node) => node.getClientRects().length && !node.matches(':disabled'))
  .filter((node) => !node.closest('[inert], [aria-hidden=true]'))
  .filter((node) => node.tabIndex >= 0 || (ours(node) && node.matches('button, input, select')))"""

GROUNDS = ["rgb(255, 255, 255)", "rgb(246, 245, 244)", "rgb(14, 17, 23)", "rgb(38, 39, 48)"]
"""Backgrounds of pages and sidebars, in the light and in the dark theme."""

TOUR = f"""() => {{
  window.ours = (node) => Boolean(node.closest('.stBidiComponent'));
  window.controls = {CONTROLS};
  window.reached = new Set();
  window.unseen = new Set();
  const light = (color) => {{
    const [red, green, blue] = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }};
  window.contrast = (one, other) => {{
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }};
  window.GROUNDS = {GROUNDS};
  return controls().length;
}}"""

VISIT = """() => {
  const node = document.activeElement;
  if (node === document.body) return false;
  reached.add(node);
  // Streamlit hides the input of a switch or a slider: its label or its thumb has the ring. The
  // cells of a table are in a picture, which shows the ring itself.
  const parts = [node, node.closest('label'), node.parentElement.parentElement];
  const ringed = parts.filter(Boolean).map((part) => getComputedStyle(part)).some((style) =>
    style.outlineStyle === 'solid' && parseFloat(style.outlineWidth) >= 2
      && GROUNDS.every((ground) => contrast(style.outlineColor, ground) >= 3));
  if (!ringed && !node.closest('canvas')) unseen.add(node);
  return true;
}"""
"""The focus is seen by a ring of at least 2 px that stands out from what is behind it."""

ROVING = "[role=toolbar], [role=radiogroup], [role=tablist], [role=menu], [role=listbox]"
"""Groups that Tab enters once; arrow keys go on within."""

ENTERED = f"""() => controls().filter((node) => !reached.has(node))
  .map((node) => node.closest('{ROVING}'))
  .flatMap((group) => [...reached].filter((node) => group?.contains(node)).slice(0, 1))"""

UNREACHED = """() => controls().filter((node) => !reached.has(node))
  .map((node) => node.outerHTML.slice(0, 120))"""

UNSEEN = "() => [...unseen].map((node) => node.outerHTML.slice(0, 120))"

MOUSE_ONLY = """() => [...document.querySelectorAll('.stBidiComponent *')]
  .filter((node) => node.checkVisibility() && getComputedStyle(node).cursor === 'pointer')
  .filter((node) => !node.closest('.ak-plot'))
  .filter((node) => !node.closest('[role=group]:has(select[aria-label="Follow the token"])'))
  .filter((node) => {
    for (let up = node; !up.matches('.stBidiComponent'); up = up.parentElement) {
      if (up.tabIndex >= 0) return false;
    }
    return !node.querySelector('button, input, select, summary, a[href], [tabindex="0"]');
  }).map((node) => node.outerHTML.slice(0, 120)).slice(0, 5)"""
"""What looks as if it could be pressed. A map's rows do what the list above the map does, and the
titles of Plotly's panels only tell more when they are pointed at."""


def pages_of_the_navigation():
    """The address of every page, by the name of its file."""

    def page(file, *, default=False, url_path=None, **_):
        name = Path(file).stem
        return name, "" if default else url_path or name

    def navigation(sections):
        return dict(page for pages in sections.values() for page in pages)

    with (
        patch.object(streamlit, "Page", page),
        patch.object(streamlit, "navigation", navigation),
        patch.object(streamlit, "session_state", {}),
        patch.object(routing, "has_page", lambda: True),
        patch.object(routing, "is_signed_in", lambda: True),
    ):
        return routing.route()


PAGES = pages_of_the_navigation()


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    """The link of every page of a hosted copy with an owner and two results to compare."""
    folder = tmp_path_factory.mktemp("store")
    with contextlib.closing(ResultStore(folder)) as store:
        experiments = [tiny("directed", n_seeds=3), tiny("directed", first_seed=1, d_head=5)]
        levels = (0.5, 0.9)
        compared = ",".join(map(store_finished, [store] * 2, experiments, levels))
    with hosted(owner_secret=OWNER_SECRET, store=folder) as server:
        address = f"http://127.0.0.1:{server.port}"
        found = {name: f"{address}/{path}" for name, path in PAGES.items()}
        yield found | {"runs": f"{found['runs']}?run={compared}"}


@pytest.fixture
def page(visitors):
    """A page of a new visitor; the test fails if it asks a foreign host or reports an error."""
    opened, wrong = visitors.arrive(WIDE, 900), []

    def note(request):
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1":
            wrong.append(request.url)

    def note_message(message):
        # Streamlit sets the Material icon of a page for a moment before it reads our own.
        is_refusal = "Content Security Policy" in message.text
        if (is_refusal or is_fatal(message)) and "materialsymbols" not in message.text:
            wrong.append(message.text)

    def note_error(error):
        wrong.append(str(error))

    listeners = {"request": note, "websocket": note, "console": note_message}
    listeners["pageerror"] = note_error
    for event, listener in listeners.items():
        opened.on(event, listener)
    yield opened
    for event, listener in listeners.items():
        opened.remove_listener(event, listener)
    visitors.leave(opened)
    assert wrong == []


def settle(page: Page, figures: bool = True) -> None:
    """Wait until all is drawn."""
    try:
        page.wait_for_function(READY, arg=figures)
    except PlaywrightTimeoutError as error:
        if figures:
            error.add_note("No figure was drawn: is `load_plotly()` missing, or NO_FIGURE?")
        raise


def show(page: Page, width: int, scheme: str = "light") -> None:
    """Set width and scheme, and a height at which nothing has to be scrolled: axe would skip it."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 1000})
    page.wait_for_function(
        "(scheme) => getComputedStyle(document.querySelector('[data-testid=stApp]')).colorScheme"
        " === scheme",
        arg=scheme,
    )
    settle(page, figures=False)
    page.set_viewport_size({"width": width, "height": page.evaluate(HEIGHT) + 100})
    settle(page, figures=False)


def grave_faults(page: Page, context: str | None = None) -> list[str]:
    """What axe finds serious or worse, one line per element."""
    found = Axe().run(page, context, {"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{rule['id']}: {node['html'][:150]}: {node['failureSummary']}"
        for rule in found
        if rule["impact"] in GRAVE
        for node in rule["nodes"]
        if not is_exempt(page, rule["id"], node["target"][0])
    ]


def is_exempt(page: Page, rule: str, target: str) -> bool:
    """Whether it is Streamlit's, and no fault."""
    within = "(node, selector) => Boolean(node.closest(selector))"
    return rule in EXEMPT and page.locator(target).first.evaluate(within, EXEMPT[rule])


def faults_of_keys(page: Page) -> dict[str, list[str]]:
    """Press Tab from the first control to the last, and name what keys do not do."""
    page.set_viewport_size({"width": WIDE, "height": 900})  # a high window is drawn slowly
    presses, most = 0, 2 * page.evaluate(TOUR) + 20
    page.keyboard.press("Tab")  # from now on by keys
    page.locator("[data-testid=stSkipToContent]").focus()  # the first of all
    while page.evaluate(VISIT) and presses < most:
        presses += 1
        page.keyboard.press("Tab")
    for group in page.evaluate_handle(ENTERED).get_properties().values():
        group.as_element().focus()
        n_before = -1
        while (n_reached := page.evaluate("() => reached.size")) > n_before:
            n_before = n_reached
            page.keyboard.press("ArrowRight")
            page.evaluate(VISIT)
    return {
        "Tab does not leave the page": [str(presses)] * (presses >= most),
        "not reached by keys": page.evaluate(UNREACHED),
        "focus not seen": page.evaluate(UNSEEN),
        "for the mouse only": page.evaluate(MOUSE_ONLY),
    }


def assert_leads_with_its_conclusion(page: Page) -> None:
    """Check that the conclusion is larger than the title and above the fold with its figure."""
    conclusion = page.locator(".ak-conclusion, .st-key-conclusion p").first
    expect(conclusion).not_to_be_empty()
    size = "(node) => parseFloat(getComputedStyle(node).fontSize)"
    assert conclusion.evaluate(size) > page.get_by_role("heading", level=1).evaluate(size)
    figure = page.locator(".ak-film-figure:visible, .ak-ways").first
    assert conclusion.bounding_box()["y"] < figure.bounding_box()["y"] < 600


@pytest.mark.parametrize("night", [False, pytest.param(True, marks=pytest.mark.long(seconds=40))])
@pytest.mark.parametrize("name", PAGES)
def test_everybody_can_use_a_page(page, links, name, seed, night, tmp_path):
    """It is short, leads with what it found, is printed whole, and has no fault for anybody."""
    needs_poppler()
    choice = random.Random(f"{seed} {name} {night}")
    looks = LOOKS if night else [choice.choice(LOOKS)]
    page.emulate_media(color_scheme=looks[0][1])
    page.goto(links[name])
    if name == "owner":
        page.locator(".st-key-owner_secret input").fill(OWNER_SECRET)
        page.locator(".st-key-owner_sign_in button").click()
        page.wait_for_selector("[data-testid=stMetric]")
    page.wait_for_selector(DRAWN.get(name, "h1"), state="attached")
    settle(page, name not in NO_FIGURE)
    icon = page.locator("link[rel='shortcut icon']").get_attribute("href")
    assert icon.startswith("data:image")
    height, n_words = page.evaluate(LENGTH)
    assert n_words <= MOST_WORDS.get(name, 700)
    if name in LOOK_INSIDE:
        assert_leads_with_its_conclusion(page)
    else:
        assert height <= 2500
    windows = [draw_window(choice) for _ in range(1 + night)]
    faults = {f"layout, {windows[0]}": faults_in(page, windows[0], name == "lab")}
    printed = night or name in random.Random(seed).sample(sorted(PAGES), 5)
    if printed and name != "owner":  # nobody prints that one
        assert_printed_whole(page, name, choice, tmp_path)
    open_folds(page)
    settle(page, name not in NO_FIGURE)
    for width, scheme in looks:
        show(page, width, scheme)
        faults[f"axe, {width}, {scheme}"] = grave_faults(page)
    faults["silent figures"] = [
        [node, said] for node, said in page.evaluate(FIGURES) if not A_FINDING.search(said)
    ]
    numbers = list(range(page.evaluate(NUMBER_FIGURES) if printed else 0))
    if numbers:
        show(page, choice.randint(800, 1600), scheme)
    for number in choice.sample(numbers, len(numbers) if night else min(1, len(numbers))):
        assert_saved_as_shown(page, number)
    for window in windows[1:]:
        faults[f"layout, {window}"] = faults_in(page, window)
    if night or name in random.Random(seed).sample(sorted(PAGES), 2):
        faults |= faults_of_keys(page)
    assert not any(faults.values()), {why: found for why, found in faults.items() if found}


@pytest.mark.long(seconds=100)
@pytest.mark.parametrize("part", range(4))
def test_no_state_of_a_page_has_a_fault_of_layout(visitors, address, seed, part, tmp_path):
    """Links, states and windows drawn from a seed show nothing that no reader would accept."""
    faults = list(search(visitors, address, draw_visits(f"{seed} {part}", 8), tmp_path))
    assert faults == [], f"--seed {seed}, pictures in {tmp_path}"


def test_everybody_can_use_what_the_lab_says_and_opens(page, links, seed, long):
    """A faulty link, what is not trained yet, the gallery, and all that a press opens."""
    choice = random.Random(seed)
    scheme = choice.choice(["light", "dark"])
    page.goto(f"{links['lab']}?v=1&steps=70&n_head=2&hide=https://evil.invalid a@evil.invalid")
    settle(page)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("n_head")
    expect(alert).to_contain_text("evil.invalid")  # nobody is led elsewhere by the words of a link
    expect(alert.locator("a")).to_have_count(0)
    expect(page.locator(".ak-board-column").first).to_contain_text("not trained yet")
    assert faults_in(page, draw_window(choice)) == []
    show(page, WIDE, scheme)
    assert grave_faults(page, "[data-testid=stMain]") == []
    page.locator(".ak-chosen-task").click()
    assert grave_faults(page, "dialog[open]") == []
    page.keyboard.press("Escape")
    opened = [("share", "input"), ("add_variant", "input"), ("words", "table")]
    for key, part in opened if long else [choice.choice(opened)]:
        page.locator(f".st-key-{key} button").first.click()
        page.wait_for_selector(f"[data-testid=stPopoverBody] {part}")
        settle(page)
        assert grave_faults(page, "[data-testid=stPopoverBody]") == []
        page.keyboard.press("Escape")
