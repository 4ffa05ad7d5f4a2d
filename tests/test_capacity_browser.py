"""The page Capacity in a real Chromium: cells that are pressed, narrow pages, saved figures."""

import re

import pytest
from browsing import WIDER, saved
from playwright.sync_api import expect

from attnkit.sweeps.shipped import load_shipped
from attnkit.ui.sweeps.choice import CapacityChoice

pytestmark = [pytest.mark.browser, pytest.mark.server]

PANEL = ".st-key-capacity_phase .nsewdrag"


def test_a_cell_is_pressed_saved_and_seen_on_a_narrow_page(visitors, address):
    """The figure stays one node, the address names the cell; a real page takes some seconds."""
    page = visitors.arrive(1440, 900)
    page.goto(f"{address}/capacity")
    page.wait_for_selector(".st-key-capacity_phase .ak-plot[data-draws]")
    page.evaluate("window.figure = document.querySelector('.ak-plot')")
    page.locator(PANEL).first.click(position={"x": 8, "y": 40})
    expect(page.get_by_role("button", name="Train it in the Lab")).to_be_visible()
    expect(page).to_have_url(re.compile("cell="))
    expect(page.locator(".st-key-capacity_cell")).to_contain_text("Accuracy")
    assert page.evaluate("window.figure === document.querySelector('.ak-plot')")

    sweep = load_shipped(CapacityChoice.sweep).sweep
    menu = page.locator(".st-key-capacity_phase .ak-save")
    heading, *rows = saved(page, menu, "CSV").splitlines()
    assert heading.startswith(",".join([*sweep.axes, "sharing"]))
    shown = CapacityChoice()
    shown.read_for(sweep)
    assert len(rows) == sweep.n_points * len(shown.variants)

    wide = page.locator(".st-key-capacity_phase .ak-plot").bounding_box()
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function(
        "(height) => document.querySelector('.ak-plot .main-svg').clientHeight > height",
        arg=wide["height"] * 1.5,
    )
    assert page.evaluate(WIDER) == []
    visitors.leave(page)
