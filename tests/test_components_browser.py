"""What the components of pages draw, in a real Chromium: in plain pages, without a server."""

import csv
import itertools
import json
import re
from base64 import b64decode

import numpy as np
import pytest
from browsing import COUNT_REPLACED, give, saved, show_component
from kinds import tiny
from paper import NUMBER_FIGURES, assert_saved_as_shown
from playwright.sync_api import expect
from plotly.offline import get_plotlyjs

from attnkit.analysis.attention_map import example_of
from attnkit.examples import load_example
from attnkit.figures.board import asymmetry_over_steps, board, planned_board
from attnkit.figures.curves import plot_metric
from attnkit.tasks import FAMILIES, TASKS
from attnkit.training.loops import stream
from attnkit.training.summary import percent
from attnkit.ui import components
from attnkit.ui.standalone import script
from attnkit.variants.catalogue import title_of

pytestmark = pytest.mark.browser

AROUND_BOARD = "<main data-testid=stMain><div data-testid=stMainBlockContainer>{here}</div></main>"

PIXELS = """() => [...document.querySelectorAll('.ak-board canvas')].map((canvas) =>
  [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data])"""

COLORS = "(values) => values.map((value) => inside('sequential()').css(value))"

HEIGHTS = """() => [...document.querySelectorAll('.ak-board-column')].map((column) =>
  [...column.querySelectorAll('.ak-line')].map((line) =>
    [...line.getAttribute('d').matchAll(/[ML]([-\\d.]+) ([-\\d.]+)/g)]
      .map(([, x, y]) => [Number(x), Number(y)])))"""
"""Points of the two curves of each column, in pixels."""

PLOT = "document.querySelector('.ak-plot')"


def board_of(snapshot, **more):
    """Return the data of a board, as the Lab sends them."""
    drawing = board(snapshot, snapshot.experiment, snapshot.experiment.first_seed, **more)
    return {**drawing, "alt": "A. B.", "file": "attnkit-x-board"}


def sent(draw, *given, **more):
    """Return what a function of `components` sends to the browser."""
    with pytest.MonkeyPatch.context() as patch:
        kept = {}
        patch.setattr(components, "component", lambda *_: lambda **data: kept.update(data))
        draw(*given, key="x", **more)
    return kept["data"]


@pytest.fixture(scope="module")
def steps():
    """Snapshots of a training of three variants with mirrored entries."""
    return list(stream(tiny("directed", sharing=["QKV", "Q=K", "K=V"], n_heads=2, steps=12)))


@pytest.fixture(scope="module")
def directed():
    """The finished example."""
    return load_example("directed")


def show_board(page, snapshot):
    """Draw a board in a wide window."""
    page.set_viewport_size({"width": 1400, "height": 900})
    show_component(page, "board", board_of(snapshot), "board", around=AROUND_BOARD)
    page.wait_for_selector(".ak-board-column")


def assert_shows(page, snapshot):
    """Check that a board shows the numbers of a snapshot."""
    experiment = snapshot.experiment
    columns = page.locator(".ak-board-column")
    expect(columns).to_have_count(len(experiment.sharing))
    curves, data = page.evaluate(HEIGHTS), board_of(snapshot)
    packed = asymmetry_over_steps(snapshot)["means"]
    asymmetries = [np.frombuffer(b64decode(one), "<f4") for one in packed]
    means = snapshot.per_sharing(snapshot.history["accuracy"]).mean(-1)
    for p, variant in enumerate(experiment.sharing):
        expect(columns.nth(p).locator("b").first).to_have_text(title_of(variant))
        expect(columns.nth(p).locator(".ak-value")).to_have_text(percent(float(means[-1, p])))
        for curve, values in zip(curves[p], (means[:, p], asymmetries[p]), strict=True):
            x, y = np.transpose(curve)
            for pixels, numbers in ((x, snapshot.eval_steps), (y, values)):
                if np.ptp(numbers) > 0.01:
                    slope, start = np.polyfit(numbers, pixels, 1)
                    assert np.abs(start + slope * numbers - pixels).max() < 0.2
                    assert (slope > 0) == (pixels is x)
        panel = data["columns"][p]["map"]
        signs = columns.nth(p).locator(".ak-board-map text").all_text_contents()
        marks = [text[-1] for text in signs if text.endswith(("✓", "✗"))]
        assert marks == ["✓" if right else "✗" for right in panel["right"] if right is not None]
    maps = page.evaluate(PIXELS)
    assert len(maps) == len(experiment.sharing)
    for p, values in enumerate(maps):
        picture = np.array(values).reshape(-1, 4)[:, :3]
        cells = np.frombuffer(b64decode(data["columns"][p]["map"]["cells"]), np.uint8)
        wanted = page.evaluate(COLORS, (cells / 255).tolist())
        wanted = [list(map(int, re.findall(r"\d+", one))) for one in wanted]
        np.testing.assert_array_equal(picture, wanted)


def test_a_board_shows_the_numbers_of_every_variant_and_is_saved_so(page, directed):
    """Values, curves, maps and answers; a file has a row for every variant and step."""
    show_board(page, directed)
    assert_shows(page, directed)
    rows = list(csv.DictReader(saved(page, page.locator(".ak-board-save"), "CSV").splitlines()))
    means = directed.per_sharing(directed.history["accuracy"]).mean(-1)
    assert len(rows) == means.size
    told = np.array([float(row["accuracy"]) for row in rows]).reshape(means.shape[::-1]).T
    np.testing.assert_allclose(told, means, atol=1e-6)
    assert page.evaluate(NUMBER_FIGURES) == 1
    assert_saved_as_shown(page, 0)


def test_keys_and_the_pointer_read_every_chart_at_one_step(page, directed):
    """Arrow keys move through the evaluations, Escape and leaving end it."""
    show_board(page, directed)
    readings, grid = page.locator(".ak-reading"), page.locator(".ak-board-grid")
    steps = directed.eval_steps.tolist()
    means = directed.per_sharing(directed.history["accuracy"]).mean(-1)
    expect(readings.first).to_have_text("")
    grid.focus()
    for key, at in (("ArrowLeft", -1), ("ArrowLeft", -2), ("ArrowRight", -1), ("ArrowRight", -1)):
        page.keyboard.press(key)
        for p in range(5):
            told = f"step {steps[at]}: {percent(float(means[at, p]))}"
            expect(readings.nth(2 * p)).to_contain_text(told)
    curve = page.locator(".ak-line").first.bounding_box()
    assert readings.first.bounding_box()["y"] > curve["y"] + 3  # it leaves its curve free
    page.keyboard.press("Escape")
    expect(readings.first).to_have_text("")
    page.keyboard.press("ArrowRight")
    expect(readings.first).to_contain_text(f"step {steps[0]}:")
    over = page.locator(".ak-board-chart .ak-over").nth(4)
    box = over.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
    middle = min(steps, key=lambda step: abs(step - steps[-1] / 2))
    expect(readings.nth(4)).to_contain_text(f"step {middle}:")
    page.mouse.move(1, 1)
    expect(readings.nth(4)).to_have_text("")
    row = page.locator(".ak-board-map canvas").first.bounding_box()
    page.mouse.move(row["x"] + 3, row["y"] + 3)
    expect(page.locator(".ak-tip")).to_contain_text("attends to")


def test_a_later_step_replaces_no_node_of_a_board(page, steps):
    """Numbers, curves and maps change where they stand; an earlier run is drawn in grey."""
    show_board(page, steps[1])
    assert_shows(page, steps[1])
    page.evaluate(COUNT_REPLACED, ".ak-board")
    for snapshot in (steps[-1], steps[2]):
        give(page, board_of(snapshot))
        assert_shows(page, snapshot)
        expect(page.locator(".ak-board")).to_have_attribute("data-step", str(snapshot.step))
    assert page.evaluate("window.replaced") == 0
    expect(page.locator(".ak-previous[d*=L]")).to_have_count(0)
    longer = list(stream(steps[0].experiment.replace(steps=24)))[-1]
    give(page, board_of(steps[-1], previous=longer))
    earlier = page.locator(".ak-previous[d*=L]")
    expect(earlier).to_have_count(3)
    for line in earlier.all():  # the part that the chart has room for
        chart = line.locator("xpath=..").bounding_box()
        assert line.bounding_box()["width"] <= chart["width"]
    give(page, {**planned_board(steps[0].experiment), "alt": "A.", "file": "x"})
    expect(page.locator(".ak-board canvas")).to_have_count(0)
    expect(page.locator(".ak-board-column")).to_have_count(3)


def test_a_board_fits_every_window(page, directed):
    """Columns stand side by side, in two bands, or are swiped; none is cut."""
    show_board(page, directed)
    columns = page.locator(".ak-board-column")
    assert len({column.bounding_box()["y"] for column in columns.all()}) == 1
    heads = page.locator(".ak-board-head").all()
    assert min(head.bounding_box()["width"] for head in heads) > 150
    page.set_viewport_size({"width": 720, "height": 1400})
    expect(page.locator(".ak-below")).to_have_count(2)
    assert columns.nth(3).bounding_box()["y"] > columns.nth(0).bounding_box()["y"] + 300
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator(".ak-below")).to_have_count(0)
    grid = page.locator(".ak-board-grid")
    assert grid.evaluate("(node) => node.scrollWidth > node.clientWidth")
    expect(page.locator(".ak-board-swipe")).to_contain_text("5")
    second = columns.nth(1).bounding_box()
    assert second["x"] + second["width"] < 390  # two columns stand side by side
    assert grid.evaluate("(node) => getComputedStyle(node).scrollSnapType") == "x mandatory"
    small = """() => [...document.querySelectorAll('.ak-board *')]
      .filter((node) => !node.closest('.ak-diagram') && node.checkVisibility())
      .filter((node) => [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim()))
      .filter((node) => parseFloat(getComputedStyle(node).fontSize) < 11)"""
    assert page.evaluate(small) == []


REDRAW = """async ([source, data]) => {
  const url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
  const draw = (await import(url)).default;
  const parentElement = document.querySelector('#here');
  const overtaken = draw({ data, parentElement });
  const cleanup = draw({ data, parentElement });
  const later = () => new Promise((done) => setTimeout(done, 200));
  await later();
  const nodes = [...parentElement.querySelectorAll('.ak-plot, .main-svg, .ak-board *')];
  overtaken();
  await later();
  draw({ data, parentElement });
  await later();
  const kept = nodes.filter((node) => node.isConnected).length;
  const plot = parentElement.querySelector('.ak-plot');
  parentElement.remove();
  cleanup();
  await later();
  return [nodes.length, kept, Boolean(plot?._fullLayout)];
}"""


@pytest.mark.parametrize("name", ["board", "figure"])
def test_cleanup_of_an_overtaken_draw_touches_nothing(page, directed, name):
    """Streamlit also calls a draw's cleanup if the next draw came before the first had returned."""
    figure = sent(components.live_figure, plot_metric(directed), alt="")
    data = board_of(directed) if name == "board" else json.loads(figure)
    page.set_content("<div id=here style='width: 900px'></div>")
    page.add_script_tag(content=get_plotlyjs())
    n_nodes, n_kept, still_plotted = page.evaluate(REDRAW, [script(name), data])
    assert n_kept == n_nodes > 1
    assert not still_plotted


def test_a_larger_chart_keeps_zoom_and_hover_while_data_change(page, steps):
    """The chart keeps its node, its range and its labels, in all panels; it is saved as shown."""
    page.set_viewport_size({"width": 1200, "height": 900})

    def data(snapshot):
        asymmetry = asymmetry_over_steps(snapshot)
        more = {"alt": "Accuracy. A.", "file": "attnkit-x-accuracy", "asymmetry": asymmetry}
        return sent(components.live_figure, plot_metric(snapshot), **more)

    page.set_content("<p>")
    show_component(page, "figure", data(steps[4]))
    expect(page.locator(".ak-plot .main-svg")).to_have_count(0)  # Plotly comes later
    page.add_script_tag(content=get_plotlyjs())
    page.add_script_tag(content=f"{script('saving').replace('export default', '')}\nloadSaving();")
    page.wait_for_selector(".ak-plot[data-draws]")
    give(page, data(steps[5]))
    page.wait_for_selector(".ak-plot[data-draws='2']")
    page.evaluate(f"window.kept = {PLOT}.querySelector('.main-svg')")
    box = page.locator(".nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 20, steps=2)
    page.mouse.up()
    page.wait_for_function(f"{PLOT}._fullLayout.xaxis.range[1] < 11")
    zoomed = page.evaluate(f"{PLOT}._fullLayout.xaxis.range")
    across = page.evaluate(f"{PLOT}._fullLayout.xaxis.d2p(2)")
    page.mouse.move(box["x"] + across, box["y"] + box["height"] / 2)
    hovered = page.locator(".hovertext")
    expect(hovered).to_have_count(3)
    give(page, data(steps[-1]))
    page.wait_for_selector(".ak-plot[data-draws='3']")
    expect(hovered).to_have_count(3)
    assert page.evaluate("window.kept.isConnected")
    assert page.evaluate(f"{PLOT}._fullLayout.xaxis.range") == zoomed
    page.mouse.move(1, 1)
    expect(hovered).to_have_count(0)
    rows = list(csv.DictReader(saved(page, page.locator(".ak-figure-save"), "CSV").splitlines()))
    means = steps[-1].per_sharing(steps[-1].history["accuracy"]).mean(-1)
    assert len(rows) == means.size
    told = [float(row["mean"]) for row in rows]
    np.testing.assert_allclose(np.reshape(told, means.shape[::-1]).T, means, atol=1e-6)
    page.keyboard.press("Escape")
    assert page.evaluate(NUMBER_FIGURES) == 1
    assert_saved_as_shown(page, 0)
    tops = "[...document.querySelectorAll('.nsewdrag')].map((one) => one.getBoundingClientRect().y)"
    assert len(set(page.evaluate(tops))) == 1
    page.set_viewport_size({"width": 420, "height": 900})
    page.wait_for_function(f"new Set({tops}).size === 2")  # panels wrap into rows


def test_a_pressed_mark_is_told_and_a_narrow_place_has_its_own_figure(page):
    """The value of the mark is what Python has given it; other figures tell nothing."""
    points = {"type": "scatter", "mode": "markers", "customdata": ["a", "b"]}
    points |= {"x": [1, 2], "y": [1, 2], "marker": {"size": 30}}
    figure, narrow = ({"data": [points], "layout": {"height": height}} for height in (300, 555))

    def data(**more):
        return sent(components.picture, figure, alt="", narrower={500: narrow}, **more)

    page.set_viewport_size({"width": 1000, "height": 900})
    show_component(page, "figure", data(picked=lambda: None))
    page.add_script_tag(content=get_plotlyjs())
    page.wait_for_selector(".ak-plot[data-draws]")
    for told, place in enumerate((1, 0), 1):
        for shift in itertools.cycle((8, 12)):  # Plotly looks at a moving pointer now and then
            position = {"x": shift, "y": shift}
            page.locator(".point").nth(place).hover(force=True, position=position)
            if page.evaluate(f"{PLOT}._hoverdata?.[0]?.pointNumber") == place:
                break
        page.mouse.down()
        page.mouse.up()
        page.wait_for_function(f"window.told.length === {told}")
    assert page.evaluate("window.told") == [["picked", "b"], ["picked", "a"]]
    page.set_viewport_size({"width": 450, "height": 900})
    page.wait_for_function(f"{PLOT}._fullLayout.height === 555")
    give(page, data())
    page.wait_for_function(f"{PLOT}.parentElement.className === 'ak-figure'")
    box = page.locator(".point").first.bounding_box()
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    assert page.evaluate("window.told.length") == 2


def test_a_task_is_chosen_in_the_gallery(page, directed):
    """Enter opens it at the current task, Tab moves, Escape returns; a click tells the task."""
    examples = {"directed": example_of(directed), "reverse": example_of(load_example("reverse"))}

    def data(current):
        return sent(components.task_gallery, current, examples, lambda: None)

    show_component(page, "gallery", data("directed"))
    button, dialog = page.locator(".ak-chosen-task"), page.get_by_role("dialog")
    focused = "() => document.activeElement.dataset.task"
    expect(button.locator("b")).to_have_text(TASKS["directed"].title)
    button.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(focused) == "directed"
    for family in FAMILIES:
        used = any(task.family == family for task in TASKS.values())
        region = dialog.get_by_role("region", name=family, exact=True)
        expect(region).to_have_count(int(used))
    expect(dialog.locator(".ak-task")).to_have_count(1 + len(TASKS))
    expect(dialog.locator("[aria-current=true] b")).to_have_text(TASKS["directed"].title)
    expect(dialog.locator(".ak-thumb")).to_have_count(3)  # of two tasks, and of one's own data
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()
    for one in (dialog.locator("[data-task=directed]"), dialog.get_by_role("button", name="Close")):
        button.click()
        one.click()
        expect(dialog).to_be_hidden()
    button.click()
    page.mouse.click(2, 2)
    expect(dialog).to_be_hidden()
    assert page.evaluate("window.told") == []
    button.click()
    page.keyboard.press("Tab")
    following = page.evaluate(focused)
    assert following != "directed"
    give(page, data("reverse"))  # while it is open, the focus stays
    assert page.evaluate(focused) == following
    expect(button.locator("b")).to_have_text(TASKS["reverse"].title)
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    assert page.evaluate("window.told") == [["chosen", following]]


def test_an_example_links_each_question_to_its_answer(page):
    """Pointing at a token, tapping it and arrow keys show its arc; other tokens have none."""
    *_, snapshot = stream(experiment := tiny("dictionary", steps=2))
    data = sent(components.example, experiment, example_of(snapshot))
    page.set_viewport_size({"width": 500, "height": 700})
    show_component(page, "example", data)
    cells = json.loads(data)["cells"]
    boxes = page.locator(".ak-token-box")
    expect(boxes).to_have_count(len(cells))
    asked = [i for i, cell in enumerate(cells) if cell["asked"]]
    chosen, held = page.locator(".ak-chosen .ak-place"), page.locator(".ak-holds .ak-place")

    def shows(i):
        expect(chosen).to_have_text(str(i))
        expect(held).to_have_text(str(cells[i]["target"]))
        arc = page.locator(".ak-arc").first.get_attribute("d")
        ends = [float(number) for number in re.findall(r"-?[\d.]+", arc)]
        for end, place in ((ends[0], i), (ends[-2], cells[i]["target"])):
            box = boxes.nth(place).bounding_box()
            start = page.locator(".ak-example-strip").bounding_box()["x"]
            assert abs(start + end - box["x"] - box["width"] / 2) <= 11

    first = int(chosen.inner_text())
    page.locator(".ak-example-scroll").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    shows(first)
    page.keyboard.press("ArrowRight")
    shows(asked[(asked.index(first) + 1) % len(asked)])
    boxes.nth(asked[-1]).hover()
    shows(asked[-1])
    page.mouse.move(490, 690)
    shows(first)
    boxes.nth(asked[-1]).dispatch_event("click")  # a tap, after which nothing is pointed at
    shows(asked[-1])
    said = re.compile(re.escape(cells[asked[0]]["answer"]))
    expect(boxes.nth(asked[0])).to_have_attribute("aria-label", said)
    give(page, sent(components.example, experiment, "no memory"))
    expect(boxes).to_have_count(0)
    expect(page.locator(".ak-example-note")).to_contain_text("no memory")


ELSEWHERE = "http://pages.test/"
"""An address that only Playwright answers, for what needs one."""

AROUND_PAGE = """<script>addEventListener("dblclick", () => (window.widened = true));</script>
<div data-testid=stSidebar><div data-testid=stSidebarResizeHandle></div></div>
<main data-testid=stMain><p id=text>A small cache, and a cache.</p>
<label><input type=checkbox><button data-testid=stTooltipIcon type=button>?</button>
<span>Switch</span></label><a href="#second">down</a>
<div style="height: 3000px"></div><p id=second>Cache</p>{here}</main>"""


@pytest.fixture(name="every_page")
def page_of_the_dashboard(page):
    """A page at an address, with what every page of the dashboard has."""
    page.route(f"{ELSEWHERE}**", lambda route: route.fulfill(body="", content_type="text/html"))
    page.goto(f"{ELSEWHERE}lab?v=1")
    show_component(page, "page", {"hints": [["cache; store", "What is kept."]]}, around=AROUND_PAGE)
    yield
    page.unroute(f"{ELSEWHERE}**")


@pytest.mark.usefixtures("every_page")
def test_terms_are_explained_and_help_flips_no_switch(page):
    """Pointing at any occurrence shows the meaning, Escape hides it; the first one is marked."""
    assert page.evaluate("document.documentElement.lang") == "en"
    expect(page.locator(".ak-terms")).to_have_attribute("data-terms", "1")
    middle = """([from, to]) => {
      const one = new Range(), node = document.querySelector('#text').firstChild;
      one.setStart(node, from);
      one.setEnd(node, to);
      const box = one.getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2]; }"""
    tip, box = page.locator(".ak-term-tip"), page.locator("input[type=checkbox]")
    for term in ((8, 13), (21, 26)):
        page.mouse.move(*page.evaluate(middle, term))
        expect(tip).to_have_text("What is kept.")
        expect(tip).to_be_visible()
        page.keyboard.press("Escape")
        expect(tip).to_be_hidden()
    page.mouse.move(*page.evaluate(middle, (2, 7)))
    expect(tip).to_be_hidden()
    page.locator("#text").evaluate("(node) => { node.firstChild.data = 'A large store.'; }")
    page.locator("#second").evaluate("(node) => node.remove()")
    page.wait_for_timeout(600)
    page.mouse.move(*page.evaluate(middle, (8, 13)))
    expect(tip).to_be_visible()
    page.get_by_role("button", name="?").click()
    expect(box).not_to_be_checked()
    page.get_by_text("Switch").click()
    expect(box).to_be_checked()
    # The sidebar gets the wanted width by a double press, unless the visitor has chosen one.
    assert page.evaluate("window.widened")
    page.evaluate("() => localStorage.setItem('sidebarWidth', '300')")
    page.evaluate("() => { window.widened = false; inside('settleSidebar()'); }")
    assert not page.evaluate("window.widened")
    page.evaluate("() => localStorage.clear()")


@pytest.mark.usefixtures("every_page")
def test_a_page_has_one_entry_in_the_history_and_a_lesson_another(page):
    """A change of the query replaces the entry; another page and a lesson add one."""
    push = "(address) => { history.pushState(null, '', address); return history.length; }"
    start = page.evaluate("history.length")
    for address, more in (
        ("lab?v=1&steps=30", 0),
        ("lab", 0),
        (None, 0),
        ("guide", 1),
        ("guide?preset=a", 1),
        ("guide?lesson=b", 2),
        ("guide?lesson=c", 2),
    ):
        if address is None:
            page.keyboard.press("Shift")  # from now on, the visitor wants what has been opened
        else:
            kept = min(start + more, 50)  # Chromium keeps 50 entries
            assert page.evaluate(push, f"/{address}") == kept, address
            assert page.url == ELSEWHERE + address
    page.get_by_text("down").click()
    main = page.locator("[data-testid=stMain]")
    assert main.evaluate("(node) => node.getBoundingClientRect().y") < 8
    assert page.url == f"{ELSEWHERE}guide?lesson=c"
    for before in ("guide?preset=a", "lab"):
        page.go_back()
        assert page.url == ELSEWHERE + before


@pytest.mark.usefixtures("every_page")
def test_texts_that_the_browser_has_translated_are_still_those_of_the_page(page):
    """A text that is written takes its place again; nodes come and go beside translated ones."""
    translate = """(node) => {
      const texts = [...node.childNodes].filter((one) => one.nodeType === 3);
      for (const text of texts) {
        const font = document.createElement("font");
        font.textContent = text.data.toUpperCase();
        text.replaceWith(font);
      }
      window.texts = texts; }"""
    text, second = page.locator("#text"), page.locator("#second")
    for name in ("data", "nodeValue", "textContent"):
        text.evaluate("(node) => node.replaceChildren('one', ' two')")
        text.evaluate(translate)
        assert text.inner_text() == "ONE TWO"
        page.evaluate(f"texts[0].{name} = 'three'")
        assert text.inner_text() == "three two"
    text.evaluate(translate)
    text.evaluate("(node) => { node.removeChild(texts[0]); }")
    assert text.inner_text().strip() == "TWO"
    text.evaluate("(node) => { node.insertBefore(new Text('0 '), texts[1]); }")
    assert text.text_content() == "0  TWO"
    second.evaluate("(node) => { node.appendChild(texts[1]); }")
    assert (text.inner_text().strip(), second.inner_text()) == ("0", "Cache two")


AROUND_LAB = """<header data-testid=stHeader><button data-testid=stExpandSidebarButton></button>
</header><div class="st-key-own_bytes_9"><div class="st-key-own_text"><textarea></textarea></div>
</div><div class="st-key-actions">{buttons}</div>{here}"""


def test_the_focus_stays_in_the_bar_and_a_long_paste_is_refused(page):
    """A button that is switched off hands the focus on; a paste that does not fit says so."""
    button, keys = (
        "<div class=st-key-{0}><button id={0}>{0}</button></div>",
        "train pause step stop",
    )
    buttons = "".join(map(button.format, keys.split()))
    show_component(page, "lab", {}, around=AROUND_LAB.replace("{buttons}", buttons))
    opener = page.locator("header button")
    expect(opener).to_have_attribute("aria-label", "Settings")
    disable = """(names) => { for (const one of document.querySelectorAll('button[id]')) {
      one.disabled = names.includes(one.id);
    } }"""
    for pressed, off, wanted in (
        ("train", ["train"], "pause"),
        (None, ["pause", "stop"], "train"),
        ("train", ["train", "pause"], "stop"),
        (None, [], "train"),
        ("step", ["step"], "pause"),
    ):
        if pressed:
            page.locator(f"#{pressed}").focus()
        page.evaluate(disable, off)
        expect(page.locator(f"#{wanted}")).to_be_focused()
    area = page.locator("textarea")
    paste = """(area, text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text", text);
      const more = { clipboardData, bubbles: true, cancelable: true };
      return area.dispatchEvent(new ClipboardEvent("paste", more)); }"""
    area.fill("12345")
    for text, fits in (("1234", True), ("12345", False), ("ää", True), ("äää", False)):
        assert area.evaluate(paste, text) == fits, text
        assert area.evaluate("(node) => node.validity.customError") != fits
        area.fill("12345")
        assert not area.evaluate("(node) => node.validity.customError")
    area.select_text()
    assert area.evaluate(paste, "123456789")
