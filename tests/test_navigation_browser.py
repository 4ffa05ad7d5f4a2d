"""Ways between pages, in a real Chromium."""

import pytest
from browsing import LONG
from lab_browsing import open_lab, press, serve, wait_for_step, wait_for_thumbnails
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]


@pytest.mark.long
def test_run_goes_on_while_another_page_is_open(page, address):
    """A run continues while the visitor is on another page."""
    open_lab(page, address, "?v=1&first_seed=600&steps=4000")
    press(page, "train")
    wait_for_step(page, 10)
    page.locator("[data-testid=stSidebarNav]").get_by_text("Guide").click()
    expect(page.get_by_role("heading", name="Five ways to share")).to_be_visible()
    page.locator("[data-testid=stSidebarNav]").get_by_text("Lab").click()
    wait_for_step(page, 20)
    assert "first_seed=600" in page.url
    press(page, "stop")


def test_variants_page_leads_to_the_lab(page, address):
    """A link on the card of the Variants page opens the Lab on the phone book."""
    page.goto(f"{address}/variants?variant=MQA")
    page.get_by_text("Compare with QKV in the Lab").click()
    page.wait_for_url("**task=phonebook**")
    expect(page.get_by_text("Why do Q, K and V need different matrices?")).to_be_visible()


def test_guide_sets_the_lab_up(page, address):
    """A suggestion of the Guide opens the Lab with its settings."""
    page.goto(f"{address}/guide")
    wait_for_thumbnails(page, ".st-key-tasks")
    page.get_by_text("Set it up in the Lab").nth(3).click()
    page.wait_for_url("**d_head=3**")
    expect(page.locator(".st-key-set_d_head input")).to_have_value("3")


@pytest.mark.long
def test_first_visitor_of_a_server_may_come_by_an_inner_link(browser):
    """The Guide has its navigation even if it is the first page that a server shows."""
    with serve() as fresh:
        page = browser.new_page()
        page.goto(f"{fresh}/guide")
        expect(page.get_by_role("heading", name="Five ways to share")).to_be_visible(timeout=LONG)
        expect(page.locator("[data-testid=stSidebarNav]")).to_contain_text("Lab")
        expect(page.locator("[data-testid=stSidebarNav]")).not_to_contain_text("dashboard")
        page.close()
