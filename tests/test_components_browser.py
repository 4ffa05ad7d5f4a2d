"""Live figures in a real Chromium: new data replace no node, no zoom and no hover label."""

import pytest
from lab_browsing import CURVES, open_lab, press, wait_for_draws, wait_for_figure, wait_for_step
from playwright.sync_api import Page
from plotly.offline import get_plotlyjs

from attnkit.figures.board import board
from attnkit.figures.curves import plot_accuracy
from attnkit.ui import components
from attnkit.ui.bundle import script
from attnkit.ui.task_examples import shipped_example

pytestmark = [pytest.mark.browser, pytest.mark.server]

MARK_NODES = """() => {
  const find = (selector) => document.querySelector(`.st-key-board ${selector}`);
  window.marked = {
    board: find('.ak-board'),
    column: find('.ak-board-column'),
    value: find('.ak-value'),
    curve: find('.ak-line'),
    map: find('canvas'),
    answer: find('.ak-board-map text'),
  };
  window.replaced = 0;
  new MutationObserver((changes) => {
    for (const change of changes) {
      window.replaced += change.addedNodes.length + change.removedNodes.length;
    }
  }).observe(window.marked.board, {childList: true, subtree: true});
}"""

GONE_NODES = """() => Object.entries(window.marked)
  .filter(([, node]) => !node.isConnected).map(([name]) => name)"""

PLOT = ".st-key-accuracy .ak-plot"


def open_larger_charts(page: Page) -> None:
    """Unfold the charts that allow zooming."""
    page.locator(".st-key-larger summary").click()
    page.wait_for_selector(f"{PLOT}[data-draws]")


def test_no_node_of_the_board_is_replaced_over_twenty_ticks(page, address):
    """Twenty updates change curves, numbers and pixels, and replace no node of the board."""
    open_lab(page, address, "?v=1&first_seed=200&steps=5000")
    press(page, "train")
    wait_for_figure(page, 1, 500)  # the example, which it replaces, stands at a later step
    page.evaluate(MARK_NODES)
    curves = page.evaluate(CURVES)
    wait_for_draws(page, ".st-key-board .ak-board", 20)
    assert page.evaluate(GONE_NODES) == []
    assert page.evaluate("() => window.replaced") == 0
    assert all(after != before for before, after in zip(curves, page.evaluate(CURVES), strict=True))
    press(page, "stop")


def test_zoom_of_a_larger_chart_stays_while_data_change(page, address):
    """A zoomed chart keeps its node and its range while new data arrive."""
    open_lab(page, address, "?v=1&first_seed=225&steps=5000")
    press(page, "train")
    wait_for_step(page, 1)
    open_larger_charts(page)
    page.evaluate("(plot) => { window.kept = document.querySelector(plot + ' .main-svg'); }", PLOT)
    page.locator(PLOT).scroll_into_view_if_needed()
    box = page.locator(f"{PLOT} .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 100, steps=4)
    page.mouse.up()
    shown = f"() => document.querySelector('{PLOT}')._fullLayout.xaxis.range"
    zoomed = page.evaluate(shown)
    assert zoomed[1] < 5000
    wait_for_draws(page, PLOT, 4)
    assert page.evaluate("() => window.kept.isConnected")
    assert page.evaluate(shown) == zoomed
    press(page, "stop")


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
def test_cleanup_of_an_overtaken_draw_touches_nothing(page, name, monkeypatch):
    """Cleanup of an earlier draw leaves the nodes of the later one alone.

    Streamlit also calls a draw's cleanup if the next draw came before the first had returned.
    """
    sent = {}
    monkeypatch.setattr(components, "_component", lambda _: lambda **given: sent.update(given))
    monkeypatch.setattr(components, "_board", lambda: lambda **given: sent.update(given))
    snapshot = shipped_example("directed")
    if name == "board":
        drawing = board(snapshot, snapshot.experiment, 0)
        components.board(drawing, key="x", alt="")
    else:
        components.live_figure(plot_accuracy(snapshot), [], key="x", alt="")
    page.set_content("<div id=here style='width: 900px'></div>")
    page.add_script_tag(content=get_plotlyjs())
    source = script(name)
    n_nodes, n_kept, still_plotted = page.evaluate(REDRAW, [source, sent["data"]])
    assert n_kept == n_nodes > 1
    assert not still_plotted


@pytest.mark.long
def test_hover_labels_stay_while_data_change(page, address):
    """Hover labels stay on screen while new data arrive."""
    open_lab(page, address, "?v=1&first_seed=250&steps=5000")
    press(page, "train")
    wait_for_step(page, 30)
    open_larger_charts(page)
    page.locator(PLOT).scroll_into_view_if_needed()
    box = page.locator(f"{PLOT} .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + box["height"] / 2)
    page.wait_for_selector(".st-key-accuracy .hovertext")
    wait_for_draws(page, PLOT, 4)
    assert page.locator(".st-key-accuracy .hovertext").count() == 5
    press(page, "stop")
