"""The Questions page in a real Chromium: from a question to its evidence and into the Lab."""

import pytest
from browsing import CHECKBOX, HEADER, ROW, downloaded
from layout_search import FAULTS
from playwright.sync_api import expect
from test_accessible import NARROW, WIDE, grave_faults, settle, show

from attnkit.claims import CLAIMS

pytestmark = [pytest.mark.browser, pytest.mark.server]

CLAIM = "two_roles"

STANDS = "[data-testid=stApp][data-test-script-state=notRunning]"
"""A page whose run has ended."""


def open_page(visitors, link):
    """A visitor who waits patiently."""
    page = visitors.arrive(1440, 1400)
    page.goto(link)
    return page


def check(page, looks):
    """Find no serious fault for those who hear the page, and none of layout."""
    for width, scheme in looks:
        show(page, width, scheme)
        assert grave_faults(page) == []
        assert page.evaluate(FAULTS, {}) == []


def test_a_question_leads_to_its_evidence_and_on_into_the_lab(visitors, address, long):
    """A row of the table does, too; it takes seconds because axe looks at all evidence."""
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
        assert downloaded(page, page.locator(f".st-key-{key} button")).startswith(begins)
    settle(page, figures=False)
    for fold in page.locator("details:not([open]) > summary").all()[::-1]:
        fold.evaluate("(summary) => summary.click()")
    looks = [(WIDE, "dark"), (WIDE, "light"), (NARROW, "light")]
    check(page, looks if long else looks[:1])
    visitors.leave(page)
