"""Settings of the Lab, in a real Chromium: links, variants, numbers, and the example."""

import re

import pytest
from lab_browsing import open_lab, open_untrained
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]


@pytest.mark.long
def test_broken_link_names_the_field_and_uses_defaults(page, address):
    """A broken link opens the Lab, names its wrong fields, and takes their defaults."""
    open_lab(page, address, "?v=1&d_head=999&stepz=1&utm_source=news")
    message = page.get_by_role("alert")
    expect(message).to_contain_text("d_head")
    expect(message).to_contain_text("stepz")
    expect(message).not_to_contain_text("utm_source")
    expect(page.locator(".st-key-set_d_head input")).to_have_value("16")


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


def test_a_variant_is_found_and_added(page, address):
    """A variant found in the catalogue is described, added and selected, and the form closes."""
    open_lab(page, address, "?v=1&sharing=QKV")
    page.locator(".st-key-add_variant button").first.click()
    page.locator(".st-key-variant_text input").press_sequentially("shared-qk", delay=20)
    page.locator(".st-key-variants_found button", has_text="Reformer").click()
    expect(page.locator(".st-key-variant_text input")).to_have_value("Q=K unit_key self_mask")
    expect(page.locator(".st-key-preview .ak-diagram")).to_be_visible()
    page.locator(".st-key-add button").click()
    page.wait_for_url("**unit_key**")
    expect(page.locator(".st-key-variant_text input")).to_have_count(0)
    expect(page.locator(".st-key-set_sharing")).to_contain_text("Reformer")


def test_a_variant_is_checked_while_it_is_typed(page, address):
    """A typing error is named without Enter, and the corrected variant can be added."""
    open_lab(page, address)
    page.locator(".st-key-add_variant button").first.click()
    written = page.locator(".st-key-variant_text input")
    written.press_sequentially("Q=K unit_kay", delay=20)
    expect(page.get_by_text("did you mean unit_key?")).to_be_visible()
    expect(written).to_have_value("Q=K unit_kay")
    written.fill("Q=K unit_key")
    expect(page.locator(".st-key-add button")).to_be_enabled()


def test_numbers_are_taken_as_they_are_typed_or_refused_at_their_box(page, address):
    """Numbers such as 1e3 are read; wrong ones are refused beside their box and stay in it."""
    open_lab(page, address)
    steps = page.locator(".st-key-set_steps input")
    beside = page.locator("[data-testid=stSidebar]")
    for typed, said in [("3.7", "Steps: 3.7 is not allowed."), ("", "Steps: empty.")]:
        steps.fill(typed)
        steps.press("Enter")
        expect(beside.get_by_text(said)).to_be_visible()
        expect(steps).to_have_value(typed)
    steps.fill("")
    steps.press_sequentially("1e3")
    steps.press("Enter")
    page.wait_for_url("**steps=1000")
    expect(beside.get_by_text("is not allowed")).to_have_count(0)


def test_the_example_follows_the_dials_and_the_pointer(page, address):
    """The example of an untrained task follows the settings, and its arc follows the pointer."""
    open_untrained(page, address, "?v=1&task=phonebook")
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


@pytest.mark.long
def test_the_full_size_is_one_press_away(page, address):
    """The full size changes settings and address, and is then not offered again."""
    page.goto(f"{address}/?v=1&task=reverse")
    page.get_by_role("button", name=re.compile("Full size")).click()
    page.wait_for_url("**length=16**")
    expect(page.get_by_label("Length", exact=True)).to_have_value("16")
    expect(page.get_by_role("button", name=re.compile("Full size"))).to_have_count(0)
