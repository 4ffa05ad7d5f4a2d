"""Every page for whoever reads little contrast, hears the page, has no mouse, or prints it.

Pages are those of a hosted copy, whose policy forbids to load anything from elsewhere. By day each
is opened once, in a window and a theme that are drawn from the seed; the night looks at all.
"""

import contextlib
import random
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import ALL_HAS_COME, OWNER_SECRET
from catalogues import ROOT
from crowd import hosted
from finished import store_finished
from kinds import tiny
from lab_browsing import visitor_page
from layout_search import SHORT, draw_path, draw_window, faults_in, open_folds, train
from paper import NUMBER_FIGURES, assert_printed_whole, assert_saved_as_shown, needs_poppler
from playwright.sync_api import Page, expect

from attnkit.service.store import ResultStore

pytestmark = [pytest.mark.browser, pytest.mark.server]

WIDE = 1440

DRAWN = {"lab": ".ak-board[data-draws] canvas", "surgery": ".ak-ways table", "guide": ".ak-card"}
DRAWN |= dict.fromkeys(["attention", "asymmetry", "similarity"], ".ak-film[data-described='600']")
DRAWN |= dict.fromkeys(["capacity", "atlas", "questions"], ".ak-plot[data-draws]")
"""What a page draws last."""

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

NAMES = "(nodes) => nodes.map((node) => node.outerHTML.slice(0, 120))"

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


PAGES = {path.stem: path.stem for path in sorted((ROOT / "pages").glob("*.py"))} | {"lab": ""}
"""The address of every page by the name of its file."""


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
    with visitor_page(visitors, only_from_here=True) as opened:
        opened.set_viewport_size({"width": WIDE, "height": 900})
        yield opened


def settle(page: Page, figures: bool = True) -> None:
    """Wait until all is drawn."""
    page.wait_for_function(READY, arg=figures)


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
    """Return what axe finds serious or worse three times, as texts fade in, a line per element."""
    for _ in range(3):
        if not (faults := _grave_faults_now(page, context)):
            break
        page.wait_for_timeout(700)
    return faults


def _grave_faults_now(page: Page, context: str | None) -> list[str]:
    found = Axe().run(page, context, {"resultTypes": ["violations"]}).response["violations"]
    within = "(node, selector) => selector !== null && Boolean(node.closest(selector))"
    return [
        f"{rule['id']}: {node['html'][:150]}: {node['failureSummary']}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
        if not page.locator(node["target"][0]).first.evaluate(within, EXEMPT.get(rule["id"]))
    ]


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
        "not reached by keys": page.evaluate(
            f"({NAMES})(controls().filter((n) => !reached.has(n)))"
        ),
        "focus not seen": page.evaluate(f"({NAMES})([...unseen])"),
        "for the mouse only": page.evaluate(MOUSE_ONLY),
    }


@pytest.mark.parametrize("night", [False, pytest.param(True, marks=pytest.mark.long(seconds=40))])
@pytest.mark.parametrize("name", PAGES)
def test_everybody_can_use_a_page(page, links, name, seed, night, tmp_path):
    """It is short, leads with what it found, is printed whole, and has no fault for anybody."""
    needs_poppler()
    choice = random.Random(f"{seed} {name} {night}")
    looks = [(WIDE, "light"), (WIDE, "dark"), (640, "light")]  # widths and themes
    looks = looks if night else [choice.choice(looks)]
    page.emulate_media(color_scheme=looks[0][1])
    page.goto(links[name])
    if name == "owner":
        page.locator(".st-key-owner_secret input").fill(OWNER_SECRET)
        page.locator(".st-key-owner_sign_in button").click()
        page.wait_for_selector("[data-testid=stMetric]")
    page.wait_for_selector(DRAWN.get(name, "h1"), state="attached")
    settle(page, name != "owner")
    icon = page.locator("link[rel='shortcut icon']")
    expect(icon).to_have_attribute("href", re.compile("^data:image"))
    if name in ("attention", "asymmetry", "similarity", "surgery"):
        conclusion = page.locator(".ak-conclusion, .st-key-conclusion p").first
        expect(conclusion).not_to_be_empty()
        size = "(node) => parseFloat(getComputedStyle(node).fontSize)"
        assert conclusion.evaluate(size) > page.get_by_role("heading", level=1).evaluate(size)
        figure = page.locator(".ak-film-figure:visible, .ak-ways").first
        assert conclusion.bounding_box()["y"] < figure.bounding_box()["y"] < 600
    else:
        assert page.locator("[data-testid=stMainBlockContainer]").bounding_box()["height"] <= 2500
    window = draw_window(choice)
    faults = {f"layout, {window}": faults_in(page, window, name == "lab")}
    printed = night or name in random.Random(seed).sample(sorted(PAGES), 5)
    if printed and name != "owner":  # nobody prints that one
        assert_printed_whole(page, name, choice, tmp_path)
    open_folds(page)
    settle(page, name != "owner")
    for width, scheme in looks:
        show(page, width, scheme)
        faults[f"axe, {width}, {scheme}"] = grave_faults(page)
    faults["silent figures"] = [
        [node, said]
        for node, said in page.evaluate(FIGURES)
        if not re.search(r"\d|\b(no|one|two|three|four) matri(x|ces)\b", said)
    ]
    numbers = list(range(page.evaluate(NUMBER_FIGURES) if printed else 0))
    if numbers:
        show(page, choice.randint(800, 1600), scheme)
    for number in choice.sample(numbers, len(numbers) if night else min(1, len(numbers))):
        assert_saved_as_shown(page, number)
    window = draw_window(choice)
    faults[f"unfolded, {window}"] = faults_in(page, window) if night else []
    if night or name in random.Random(seed).sample(sorted(PAGES), 2):
        faults |= faults_of_keys(page)
    assert not any(faults.values()), {why: found for why, found in faults.items() if found}


@pytest.mark.long(seconds=100)
@pytest.mark.parametrize("part", range(4))
def test_no_state_of_a_page_has_a_fault_of_layout(visitors, address, seed, part):
    """Links, states and windows drawn from a seed show nothing that no reader would accept."""
    choice, found = random.Random(f"{seed} {part}"), {}
    for path in (draw_path(choice) for _ in range(8)):
        page = visitors.arrive()
        page.emulate_media(color_scheme=choice.choice(["light", "dark"]))
        page.goto(f"{address}/{path}")
        faults_in(page, draw_window(choice))
        if f"steps={SHORT['steps']}&" in path:
            train(page)
        for window in (draw_window(choice) for _ in range(3)):
            if faults := faults_in(page, window):
                found[path, window] = faults
        visitors.leave(page)
    assert found == {}


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
