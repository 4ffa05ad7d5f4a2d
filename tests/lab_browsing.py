"""Steps that browser tests take in the Lab, and what they wait for."""

import contextlib
import re

from playwright.sync_api import Page
from visitor import dashboard


@contextlib.contextmanager
def serve():
    """Serve a dashboard of its own on a free port, and yield its address."""
    with dashboard() as port:
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def visitor_page(visitors):
    """Yield a page of a new visitor, and fail if the page reported an error."""
    page = visitors.arrive()
    errors = []

    def keep_error(error):
        errors.append(str(error))

    def keep_message(message):
        if is_fatal(message):
            errors.append(message.text)

    page.on("pageerror", keep_error)
    page.on("console", keep_message)
    yield page
    page.remove_listener("pageerror", keep_error)
    page.remove_listener("console", keep_message)
    visitors.leave(page)
    assert not errors, errors


def is_fatal(message):
    """Return whether a console message is an error other than a missing icon from outside."""
    return message.type == "error" and "Failed to load resource" not in message.text


def open_lab(page: Page, address: str, query: str = "") -> None:
    """Open the Lab and wait until its board is drawn."""
    page.goto(f"{address}/{query}")
    page.wait_for_selector(".st-key-board .ak-board[data-draws]")
    page.wait_for_selector(".st-key-example .ak-token-box")


def open_untrained(page: Page, address: str, query: str) -> None:
    """Open the Lab on a task that may have no finished example."""
    page.goto(f"{address}/{query}")
    page.wait_for_selector(".st-key-board .ak-board-column")
    page.wait_for_selector(".st-key-example .ak-token-box")


def press(page: Page, name: str) -> None:
    """Press a button of the action bar as soon as it can be pressed."""
    page.locator(f".st-key-{name} button").first.click()


def status_line(page: Page):
    """Return the line that shows the progress of training."""
    return page.locator("[data-testid=stMarkdown] p", has_text=re.compile(r"[Ss]tep \d+ of")).first


def shown_step(page: Page) -> int:
    """Return the step that the line of progress shows."""
    return int(re.search(r"[Ss]tep (\d+) of", status_line(page).inner_text())[1])


def wait_for_step(page: Page, least: int) -> None:
    """Wait until the step on screen is at least `least`."""
    page.wait_for_function(
        "(least) => Number((document.body.innerText.match(/[Ss]tep (\\d+) of/) || [0, -1])[1])"
        " >= least",
        arg=least,
    )


def wait_for_figure(page: Page, least: int, most: float = 10**9) -> None:
    """Wait until the board shows a step from `least` to `most`."""
    page.wait_for_function(
        "([least, most]) => { const step = Number(document.querySelector("
        "'.st-key-board .ak-board').dataset.step); return least <= step && step <= most; }",
        arg=[least, most],
    )


def wait_for_draws(page: Page, drawn: str, more: int) -> None:
    """Wait until a live figure is drawn `more` times."""
    page.wait_for_function(
        "([drawn, goal]) => Number(document.querySelector(drawn).dataset.draws) >= goal",
        arg=[drawn, int(page.locator(drawn).get_attribute("data-draws")) + more],
    )
