"""Steps that browser tests take in the Lab, and what they wait for."""

import contextlib
import re
from urllib.parse import urlsplit

from playwright.sync_api import Page


@contextlib.contextmanager
def visitor_page(visitors, only_from_here=False):
    """Yield a page of a new visitor, and fail if it reported an error, or asked another host."""
    page, wrong = visitors.arrive(), []

    def note_request(asked):
        if only_from_here and urlsplit(asked.url).hostname not in (None, "127.0.0.1"):
            wrong.append(asked.url)

    def note_error(error):
        wrong.append(str(error))

    def note_message(message):
        # Streamlit asks for the Material icon of a page for a moment before it reads our own.
        refused = only_from_here and "Content Security Policy" in message.text
        ignored = re.search("Failed to load resource|materialsymbols", message.text)
        if (refused or message.type == "error") and not ignored:
            wrong.append(message.text)

    listeners = {"request": note_request, "websocket": note_request}
    listeners |= {"pageerror": note_error, "console": note_message}
    for event, listener in listeners.items():
        page.on(event, listener)
    yield page
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    visitors.leave(page)
    assert wrong == [], wrong


def open_lab(page: Page, address: str, query: str = "") -> None:
    """Open the Lab and wait until its board is drawn."""
    page.goto(f"{address}/{query}")
    page.wait_for_selector(".st-key-board .ak-board[data-draws]")
    page.wait_for_selector(".st-key-example .ak-token-box")


def press(page: Page, name: str) -> None:
    """Press a button of the action bar as soon as it can be pressed."""
    page.locator(f".st-key-{name} button").first.click()


def wait_for_figure(page: Page, least: int, most: float = 10**9) -> None:
    """Wait until the board shows a step from `least` to `most`."""
    page.wait_for_function(
        "([least, most]) => { const step = Number(document.querySelector("
        "'.st-key-board .ak-board').dataset.step); return least <= step && step <= most; }",
        arg=[least, most],
    )
