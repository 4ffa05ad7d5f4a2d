"""Settings of the Lab, in a real Chromium: class links, variants, numbers, and the example."""

import pytest
from lab_browsing import open_lab, open_untrained
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]


def test_a_class_link_made_in_share_hides_controls_until_they_are_asked_for(page, address):
    """The popover stays open while a visitor chooses, and its link hides the chosen controls."""
    open_lab(page, address, "?v=1&steps=70")
    page.locator(".st-key-share button").first.click()
    page.locator(".st-key-hide_directed input").click()
    page.keyboard.type("All settings")
    page.keyboard.press("Enter")
    link = page.locator(".st-key-share_links code").last
    expect(link).to_have_text(f"{address}/?v=1&steps=70&hide=settings")
    page.goto(link.inner_text())
    page.locator(".st-key-show_all button").click()
    expect(page.locator(".st-key-set_steps input")).to_have_value("70")
    assert "hide" not in page.url


def test_a_variant_is_checked_while_it_is_typed_found_and_added(page, address):
    """A typing error is named without Enter; what was found is drawn, added and selected."""
    open_lab(page, address, "?v=1&sharing=QKV")
    page.locator(".st-key-add_variant button").first.click()
    written = page.locator(".st-key-variant_text input")
    written.press_sequentially("Q=K unit_kay", delay=20)
    expect(page.get_by_text("did you mean unit_key?")).to_be_visible()
    expect(written).to_have_value("Q=K unit_kay")
    written.fill("shared-qk")
    page.locator(".st-key-variants_found button", has_text="Reformer").click()
    expect(written).to_have_value("Q=K unit_key self_mask")
    expect(page.locator(".st-key-preview .ak-diagram")).to_be_visible()
    page.locator(".st-key-add button").click()
    page.wait_for_url("**unit_key**")
    expect(written).to_have_count(0)
    expect(page.locator(".st-key-set_sharing")).to_contain_text("Reformer")


def test_numbers_are_taken_as_typed_or_refused_at_their_box_and_the_example_follows(page, address):
    """Numbers such as 1e3 are read; wrong ones stay in their box with the reason beside it."""
    open_untrained(page, address, "?v=1&task=phonebook")
    steps, beside = page.locator(".st-key-set_steps input"), page.get_by_test_id("stSidebar")
    for typed, said in [("3.7", "Steps: 3.7 is not allowed."), ("", "Steps: empty.")]:
        steps.fill(typed)
        steps.press("Enter")
        expect(beside.get_by_text(said)).to_be_visible()
        expect(steps).to_have_value(typed)
    steps.press_sequentially("1e3")
    steps.press("Enter")
    page.wait_for_url("**steps=1000")
    expect(beside.get_by_text("is not allowed")).to_have_count(0)
    boxes = page.locator(".st-key-example .ak-token-box")
    expect(boxes).to_have_count(16)
    written = page.locator(".st-key-set_n_entries input")
    written.fill("5")
    written.press("Enter")
    expect(boxes).to_have_count(10)
    held = page.locator(".st-key-example .ak-holds .ak-place")
    before = held.inner_text()
    boxes.nth(9).hover()
    expect(held).not_to_have_text(before)
    assert page.locator(".st-key-example path").first.get_attribute("d")
    page.mouse.move(0, 0)
    expect(held).to_have_text(before)
    boxes.nth(9).dispatch_event("click")  # a tap, after which nothing is pointed at
    expect(held).not_to_have_text(before)
