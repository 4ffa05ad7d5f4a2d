"""A phone book of one's own in a real Chromium."""

import pytest
from lab_browsing import open_untrained, press, status_line
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]


@pytest.mark.long
def test_trained_models_answer_a_book_of_ones_own(page, address):
    """Trained models answer a typed book, and a wrong line is named with its number."""
    query = "?v=1&task=phonebook&sharing=QKV,Q%3DK&n_seeds=2&steps=250&first_seed=850"
    open_untrained(page, address, query)
    untrained = "Your settings are not trained yet"
    expect(page.locator(".st-key-custom_book")).to_contain_text(untrained)
    press(page, "train")
    expect(status_line(page)).to_contain_text("Finished")
    book = page.locator(".st-key-custom_book textarea")
    book.fill("<b>Ada</b> 31\n李 14\nCem 25")
    book.press("Control+Enter")
    asked = page.locator(".st-key-asked_phonebook input")
    asked.fill("李")
    asked.press("Enter")
    rows = page.locator(".st-key-custom_book_answers tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("14 ✓")
    expect(page.locator(".st-key-custom_book_answers thead")).to_contain_text("<b>Ada</b>")
    book.fill("Ada 31\nBen")
    book.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("Line 2: got “Ben”, which has no number")
    names = "Jindřich Ádám 李 Zoë Ñandú Øre Ωmega Łukasz Şule Ðóra Ивaн 😀".split()
    book.fill("\n\n".join(f"{name}: {number}" for number, name in enumerate(names, 100)))
    book.press("Control+Enter")
    asked.fill("jindřich")
    asked.press("Enter")
    cells = page.locator(".st-key-custom_book_answers thead :is(th, td)")
    expect(cells).to_have_count(1 + len(names) + 1)
    expect(rows.first).to_contain_text("100")
    book.fill("Ada 31\nCem 25\nADA 14")
    book.press("Control+Enter")
    expect(page.locator(".st-key-custom_book")).to_contain_text("Lines 1 and 3")
    book.fill("x" * 10_000)
    book.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("Line 1")
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
