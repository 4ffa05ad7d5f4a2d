"""Nothing comes from a foreign host: all pages of a hosted copy in a real Chromium."""

from urllib.parse import urlsplit

import pytest
from browsing import LONG
from crowd import hosted
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server]

LINKS = "[data-testid='stSidebarNavLink']"


@pytest.fixture(scope="module")
def address():
    """One hosted copy for the module, with a page for its owner."""
    with hosted(owner_secret="correct horse") as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
def page(browser):
    """A visitor; `page.foreign` collects what was asked of other hosts, or was not allowed."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(LONG)
    page = context.new_page()
    page.foreign = []

    def note(url):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1":
            page.foreign.append(url)

    def note_refusal(message):
        if "Content Security Policy" in message.text:
            page.foreign.append(message.text)

    page.on("request", lambda request: note(request.url))
    page.on("websocket", lambda socket: note(socket.url))
    page.on("console", note_refusal)
    yield page
    context.close()


def open_page(page, url):
    """Open a page and wait until it is drawn."""
    page.goto(url)
    settled(page)


def settled(page):
    """Wait until a page is drawn."""
    expect(page.locator("h1").first).to_be_visible()
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)


def test_no_page_asks_a_foreign_host_or_needs_what_the_policy_forbids(page, address):
    """Icons, fonts, scripts: all pages of the navigation, and the owner's, which stands in none."""
    open_page(page, address)
    page.locator(".st-key-all_pages label").click()
    expect(page.locator(LINKS)).to_have_count(11)
    for path in [link.get_attribute("href") for link in page.locator(LINKS).all()]:
        open_page(page, path)
    open_page(page, f"{address}/owner")
    assert page.foreign == []
    assert page.locator("link[rel='shortcut icon']").get_attribute("href").startswith("data:image")


def test_what_a_link_says_is_never_a_link_in_a_warning(page, address):
    """Whoever is sent a link of this site must not be led elsewhere by its words."""
    words = "https://evil.invalid www.evil.invalid eva@evil.invalid"
    page.goto(f"{address}/?hide={words}")
    warning = page.get_by_test_id("stAlert")
    expect(warning).to_contain_text("evil.invalid")
    expect(warning.locator("a")).to_have_count(0)
