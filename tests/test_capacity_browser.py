"""The page Capacity in a real Chromium: cells that are pressed, narrow pages, saved figures."""

import re

import pytest
from browsing import WIDER
from playwright.sync_api import expect
from test_board_browser import saved

from attnkit.sweeps.shipped import load_shipped
from attnkit.ui.capacity_choice import CapacityChoice

pytestmark = [pytest.mark.browser, pytest.mark.server]

PANEL = ".st-key-capacity_phase .nsewdrag"


@pytest.fixture(scope="module")
def opened(visitors, address):
    """The page in a wide window, its figure drawn."""
    page = visitors.arrive(1440, 900)
    page.goto(f"{address}/capacity")
    page.wait_for_selector(".st-key-capacity_phase .ak-plot[data-draws]")
    yield page
    visitors.leave(page)


def test_a_pressed_cell_shows_its_numbers_and_its_link(opened):
    """The figure stays the same node, and the address names the cell."""
    opened.evaluate("window.figure = document.querySelector('.ak-plot')")
    opened.locator(PANEL).first.click(position={"x": 8, "y": 40})
    expect(opened.get_by_role("button", name="Train it in the Lab")).to_be_visible()
    expect(opened).to_have_url(re.compile("cell="))
    expect(opened.locator(".st-key-capacity_cell")).to_contain_text("Accuracy")
    assert opened.evaluate("window.figure === document.querySelector('.ak-plot')")


def test_the_diagram_can_be_saved(opened):
    """As the numbers of every cell."""
    menu = opened.locator(".st-key-capacity_phase .ak-save")
    sweep = load_shipped(CapacityChoice.sweep).sweep
    heading, *rows = saved(opened, menu, "CSV").splitlines()
    assert heading.startswith(",".join([*sweep.axes, "sharing"]))
    shown = CapacityChoice()
    shown.settle(sweep)
    assert len(rows) == sweep.n_points * len(shown.variants)


def test_panels_stand_in_fewer_columns_where_the_page_is_narrow(opened):
    """Nothing is cut at the right edge, and the figure grows in height."""
    wide = opened.locator(".st-key-capacity_phase .ak-plot").bounding_box()
    opened.set_viewport_size({"width": 390, "height": 844})
    opened.wait_for_function(
        "(height) => document.querySelector('.ak-plot .main-svg').clientHeight > height",
        arg=wide["height"] * 1.5,
    )
    assert opened.evaluate(WIDER) == []
    opened.set_viewport_size({"width": 1440, "height": 900})
