"""The Questions page in a real Chromium: a guess, a run before one's eyes, what comes of it."""

import re
from pathlib import Path

import pytest
from browsing import LONG
from playwright.sync_api import expect
from test_accessible import CUT, NARROW, WIDE, grave_faults, settle, show

from attnkit.claims import CLAIMS

pytestmark = [pytest.mark.browser, pytest.mark.server]

CLAIM = "two_roles"
"""Trains for some seconds."""

ROW, HEADER, CHECKBOX = 35, 35, 20
"""Pixels of the table."""

STANDS = "[data-testid=stApp][data-test-script-state=notRunning]"
"""A page whose run has ended."""


def open_page(visitors, link):
    """A visitor who waits patiently."""
    page = visitors.arrive(1440, 1400)
    page.goto(link)
    return page


@pytest.mark.long
def test_a_claim_is_guessed_run_and_told(visitors, address):
    """By keyboard; the picture fills on one node, and is there again after another page."""
    page = open_page(visitors, f"{address}/questions?claim={CLAIM}")
    choice = page.get_by_role("radio", name="It will hold")
    choice.focus()
    page.keyboard.press("Space")
    expect(choice).to_be_checked()
    page.locator(".st-key-run_claim button").focus()
    page.keyboard.press("Enter")
    box = page.locator(".st-key-run_it")
    plot = page.locator(f".st-key-picture_own_{CLAIM} .ak-plot[data-draws]")
    plot.evaluate("node => node.dataset.mine = 'yes'")
    expect(box.get_by_text(re.compile(r"step \d+ of 600, about \d+ s left"))).to_be_visible()
    expect(box.get_by_text(re.compile(r"^Trained in [\d.]+ s"))).to_be_visible(timeout=3 * LONG)
    expect(plot).to_have_attribute("data-mine", "yes")
    outcome, seeds = page.locator(".st-key-outcome"), f"of {CLAIMS[CLAIM].quick_seeds} seeds"
    expect(outcome).to_contain_text("our guess was")
    expect(outcome.get_by_role("table")).to_contain_text(seeds)
    said = outcome.inner_text()
    for name in ("Guide", "Questions"):
        page.get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", name=name)).to_be_visible()
    expect(outcome).to_contain_text(seeds)
    assert outcome.inner_text() == said
    check(page, [(WIDE, "light"), (WIDE, "dark"), (NARROW, "light")])
    visitors.leave(page)


def check(page, looks):
    """Find no serious fault for those who hear the page, and nothing cut."""
    for width, scheme in looks:
        show(page, width, scheme)
        assert grave_faults(page) == []
        assert page.evaluate(CUT) == []


def test_a_question_leads_to_its_evidence_and_on_into_the_lab(visitors, address, long):
    """The address follows; what the Lab has set up is the claim's.

    A row of the table, drawn on a canvas, is chosen by its place. With that claim in full and all
    folds open, no serious fault is found. It takes seconds because axe looks at all of it.
    """
    page = open_page(visitors, f"{address}/questions?question=two_spaces")
    page.locator(f".st-key-open_{CLAIM} button").first.click()
    page.wait_for_url(f"**/questions?claim={CLAIM}")
    expect(page.get_by_role("heading", name=CLAIMS[CLAIM].title)).to_be_visible()
    page.locator(".st-key-lab_links a").first.click()
    page.wait_for_url("**task=dual_role**")
    expect(page.locator(".ak-board[data-draws]").first).to_be_visible()
    page.wait_for_selector(STANDS)
    page.go_back()
    expect(page.get_by_role("heading", name=CLAIMS[CLAIM].title)).to_be_visible()

    page.goto(f"{address}/questions?claim=all")
    table = page.locator("[data-testid=stDataFrame]")
    table.click(position={"x": CHECKBOX, "y": HEADER + ROW / 2})
    first = next(iter(CLAIMS))
    page.wait_for_url(f"**claim={first}")
    expect(page.get_by_role("heading", name=CLAIMS[first].title)).to_be_visible()
    page.wait_for_selector(STANDS)
    for key, begins in (("claims_json", '{"claims": ['), ("claims_html", "<!doctype html>")):
        with page.expect_download() as download:
            page.locator(f".st-key-{key} button").click()
        assert Path(download.value.path()).read_text(encoding="utf-8").startswith(begins)
    settle(page, figures=False)
    for fold in page.locator("details:not([open]) > summary").all()[::-1]:
        fold.evaluate("(summary) => summary.click()")
    looks = [(WIDE, "dark"), (WIDE, "light"), (NARROW, "light")]
    check(page, looks if long else looks[:1])
    visitors.leave(page)
