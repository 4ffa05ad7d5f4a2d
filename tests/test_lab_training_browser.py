"""Training in the Lab, in a real Chromium: the buttons of the action bar, and figures that live."""

import pytest
from browsing import COUNT_REPLACED
from lab_browsing import (
    COLOURS,
    CURVES,
    open_lab,
    open_untrained,
    press,
    shown_step,
    status_line,
    wait_for_draws,
    wait_for_figure,
    wait_for_step,
)
from playwright.sync_api import expect
from plotly.offline import get_plotlyjs

from attnkit.figures.board import board
from attnkit.figures.curves import plot_metric
from attnkit.ui import components
from attnkit.ui.bundle import script
from attnkit.ui.lab.task_examples import shipped_example

pytestmark = [pytest.mark.browser, pytest.mark.server]

ACCURACIES = """() => [...document.querySelectorAll('.st-key-board .ak-value')]
  .map((node) => parseFloat(node.textContent) || 0)"""
"""In percent; 0 before training."""

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
}"""

GONE_NODES = """() => Object.entries(window.marked)
  .filter(([, node]) => !node.isConnected).map(([name]) => name)"""

PLOT = ".st-key-accuracy .ak-plot"

BOARD = ".st-key-board .ak-board"


def test_a_visitor_trains_pauses_steps_reloads_and_stops(page, address):
    """Accuracies rise, maps change, and no node of the board is replaced; a reload finds the run.

    It takes more than 5 s, because it waits for ten updates of the page.
    """
    open_lab(page, address)
    expect(page.get_by_text("A finished example")).to_be_visible()
    expect(page.locator(".st-key-board .ak-value").first).to_have_text("100%")
    expect(page.locator(".st-key-board canvas")).to_have_count(5)
    open_untrained(page, address, "?v=1&first_seed=200&steps=5000")
    expect(page.locator(".st-key-set_steps input")).to_have_value("5000")
    expect(page.locator(".st-key-board canvas")).to_have_count(0)  # the example has other settings
    press(page, "train")
    wait_for_figure(page, 1)
    page.evaluate(MARK_NODES)
    page.evaluate(COUNT_REPLACED, BOARD)
    early, colours, curves = (page.evaluate(what) for what in (ACCURACIES, COLOURS, CURVES))
    wait_for_draws(page, BOARD, 10)
    wait_for_figure(page, 150)
    late = page.evaluate(ACCURACIES)
    assert len(late) == 5
    assert all(after > before for before, after in zip(early, late, strict=True))
    assert page.evaluate(COLOURS) != colours
    assert all(after != before for before, after in zip(curves, page.evaluate(CURVES), strict=True))
    assert page.evaluate(GONE_NODES) == []
    assert page.evaluate("() => window.replaced") == 0
    press(page, "pause")
    expect(page.locator(".st-key-train")).to_contain_text("Resume")
    expect(status_line(page)).to_contain_text("Paused")
    held = shown_step(page)
    press(page, "step")
    wait_for_step(page, held + 1)
    expect(status_line(page)).to_contain_text("Paused")
    assert shown_step(page) == held - held % 10 + 10
    press(page, "train")
    wait_for_step(page, held + 11)
    page.reload()
    wait_for_step(page, held + 12)
    press(page, "stop")
    expect(status_line(page)).to_contain_text("Stopped")


def test_zoom_and_hover_of_a_larger_chart_stay_while_data_change(page, address):
    """The chart keeps its node, its range and its labels.

    It takes more than 5 s, because Plotly is loaded and draws in software.
    """
    open_untrained(page, address, "?v=1&sharing=QKV,Q%3DK&n_seeds=2&first_seed=225&steps=20000")
    press(page, "train")
    wait_for_step(page, 1)
    page.locator(".st-key-larger summary").click()
    page.wait_for_selector(f"{PLOT}[data-draws]")
    page.evaluate("(plot) => { window.kept = document.querySelector(plot + ' .main-svg'); }", PLOT)
    page.locator(PLOT).scroll_into_view_if_needed()
    box = page.locator(f"{PLOT} .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 100, steps=2)
    page.mouse.up()
    shown = f"() => document.querySelector('{PLOT}')._fullLayout.xaxis.range"
    zoomed = page.evaluate(shown)
    assert zoomed[1] < 20_000
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] / 2)
    page.wait_for_selector(".st-key-accuracy .hovertext")
    wait_for_draws(page, PLOT, 2)
    assert page.evaluate("() => window.kept.isConnected")
    assert page.evaluate(shown) == zoomed
    expect(page.locator(".st-key-accuracy .hovertext")).to_have_count(2)
    press(page, "stop")


def test_a_task_of_two_sides_trains_and_shows_maps(page, address):
    """An encoder and a decoder."""
    query = "?v=1&task=dictionary&sharing=QKV,Q%3DK&n_seeds=1&steps=4&evaluate_every=2"
    open_untrained(page, address, f"{query}&first_seed=800")
    press(page, "train")
    expect(status_line(page)).to_contain_text("Finished")
    expect(page.locator(".st-key-board canvas")).to_have_count(2)
    assert all(len(set(pixels.split(","))) > 3 for pixels in page.evaluate(COLOURS))


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
    monkeypatch.setattr(components, "component", lambda *_: lambda **given: sent.update(given))
    snapshot = shipped_example("directed")
    if name == "board":
        components.board(board(snapshot, snapshot.experiment, 0), key="x", alt="")
    else:
        components.live_figure(plot_metric(snapshot), key="x", alt="")
    page.set_content("<div id=here style='width: 900px'></div>")
    page.add_script_tag(content=get_plotlyjs())
    n_nodes, n_kept, still_plotted = page.evaluate(REDRAW, [script(name), sent["data"]])
    assert n_kept == n_nodes > 1
    assert not still_plotted
