"""The Runs page in a real Chromium: rows are ticked, menus opened, files downloaded."""

import csv
import json
from contextlib import closing

import pytest
from browsing import CHECKBOX, HEADER, ROW, downloaded
from finished import store_finished
from kinds import tiny
from playwright.sync_api import expect

from attnkit.service.store import ResultStore

pytestmark = [pytest.mark.browser, pytest.mark.server]

DRAWN = ".st-key-overlay .ak-plot[data-draws]"


@pytest.fixture
def hashes(server_store):
    """Two new results of the server's store, newest first."""
    experiments = [tiny("directed", n_seeds=3, first_seed=1, d_head=7), tiny("directed", n_seeds=3)]
    with closing(ResultStore(server_store)) as store:
        return [store_finished(store, experiment) for experiment in experiments][::-1]


def test_experiments_are_replayed_ticked_downloaded_renamed_deleted(visitors, address, hashes):
    """The way of one visitor through the page, and of another by the link that they share."""
    newest, other = hashes
    page = visitors.arrive(1440, 1400)
    page.goto(f"{address}/runs?run={other}")
    sentence = page.locator(".st-key-replay .ak-conclusion")
    expect(sentence).to_have_text("At step 8, all 5 variants reach 50% accuracy.")
    page.get_by_role("button", name="First step").click()
    expect(sentence).to_have_text("Untrained, all 5 variants reach 10% accuracy.")
    page.get_by_role("button", name="Play").click()
    expect(sentence).to_have_text("At step 8, all 5 variants reach 50% accuracy.")
    expect(page.locator(".st-key-replay [data-figure=accuracy] svg.ak-chart")).to_be_visible()

    page.goto(f"{address}/runs")
    table = page.locator(".st-key-history [data-testid=stDataFrame]")
    for row, link in enumerate([newest, f"{newest},{other}"]):
        place = {"x": CHECKBOX, "y": HEADER + ROW * row + ROW / 2}
        table.click(position=place)
        page.wait_for_url(f"**run={link.replace(',', '%2C')}**")
    page.wait_for_selector(DRAWN)
    expect(page.locator(".st-key-overlay .ak-legend span")).to_have_count(3)
    expect(page.locator(".st-key-overlay .annotation")).to_have_count(5)

    text = downloaded(page, page.get_by_role("button", name="Every evaluation as CSV"))
    assert len(list(csv.DictReader(text.splitlines()))) == 2 * 5 * 3 * 3
    button = page.get_by_role("button", name="Settings and runs as JSON")
    told = json.loads(downloaded(page, button))
    assert [one["hash"] for one in told["experiments"]] == [newest, other]

    page.locator(f".st-key-change_{newest} button").click()
    page.get_by_role("menuitem", name="Rename").click()
    page.locator(".st-key-name input").fill("<b>Ours</b>")
    page.locator(".st-key-save_name button").click()
    expect(page.locator(".st-key-chosen")).to_contain_text("A <b>Ours</b>")
    expect(page.get_by_role("dialog")).to_have_count(0)
    shared = page.url

    page.locator(f".st-key-change_{newest} button").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.locator(".st-key-confirm_delete button").click()
    expect(page.locator(".st-key-chosen")).not_to_contain_text("Ours")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.wait_for_url(f"**run={other}")

    page.goto(shared)
    expect(page.get_by_role("alert")).to_contain_text(newest)
    expect(page.locator(".st-key-chosen")).to_contain_text("A Directed relation")
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    visitors.leave(page)
