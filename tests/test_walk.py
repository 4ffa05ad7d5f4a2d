"""The newcomer's walk: why do tied scores fail on a directed relation, and what rescues them?

In a real browser, by what is read on screen alone. With a folder in `WALK_PICTURES`, every stop is
kept there as a picture.
"""

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.server, pytest.mark.long]

LONG = 120_000  # milliseconds; a shared machine may be slow, and waiting ends with the condition

TRAINED = 900_000
"""Milliseconds for one training: it has the lowest priority, so others on the machine delay it."""

MOST_CLICKS = 6

SHORT = "?v=1&sharing=QKV,Q%3DK&n_seeds=3"
"""The Lab's first page with fewer columns and seeds, so that the walk takes seconds."""

MEANING = ".ak-film-figure[data-figure=meaning]"


class Newcomer:
    """Clicks, looks, and counts the clicks."""

    def __init__(self, page):
        self.page, self.n_clicks, self.n_pictures = page, 0, 0

    def click(self, what):
        """One click."""
        what.first.click()
        self.n_clicks += 1

    def keep(self, name):
        """A picture of what is on screen, if pictures are wanted."""
        folder = os.environ.get("WALK_PICTURES")
        if folder:
            self.n_pictures += 1
            self.page.mouse.move(0, 0)  # no tip in the way
            path = Path(folder) / f"{self.n_pictures}-{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=path)

    def said_of(self, name):
        """What the first figure says of a column."""
        panel = self.page.locator(
            f"{MEANING} .ak-panel", has=self.page.get_by_text(name, exact=True)
        )
        return panel.inner_text()

    def attempt(self, label):
        """Press a button of “What rescues it?” and read: before, after, the verdict."""
        self.click(self.page.get_by_role("button", name=label))
        told = re.compile(rf"Q=K: .*{label} .*95% interval", re.IGNORECASE)
        sentence = self.page.locator(".st-key-rescue li", has_text=told)
        expect(sentence).to_be_visible(timeout=TRAINED)
        text = sentence.inner_text()
        before, after = re.findall(r"\b[01]\.\d\d\b", text)[:2]
        return float(before), float(after), text.rpartition(": ")[2]


@pytest.fixture
def newcomer(browser, address):
    """At the Lab."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(LONG)
    page = context.new_page()
    page.goto(f"{address}/{SHORT}")
    yield Newcomer(page)
    context.close()


def numbers(text, pattern):
    """The numbers in the groups of the first match."""
    return [float(group) for group in re.search(pattern, text).groups()]


def test_a_newcomer_sees_why_tied_scores_fail_and_what_rescues_them(newcomer):
    """Train, open Asymmetry, see the even split; then heads, a wider model, an MLP."""
    page = newcomer.page
    newcomer.click(page.locator(".st-key-train button"))
    expect(page.get_by_text(re.compile("^Finished:")).first).to_be_visible(timeout=TRAINED)
    newcomer.keep("lab")
    newcomer.click(page.locator("[data-testid=stSidebarNav]").get_by_text("Asymmetry"))
    expect(page.locator(f"{MEANING} .ak-verdict").first).to_be_visible()
    expect(page.locator(MEANING)).to_contain_text(
        "It splits evenly: the direction is lost, and it can only guess between the two."
    )
    expect(page.locator(".st-key-rescue")).to_contain_text("Change one thing")
    newcomer.keep("asymmetry")
    tied, free = newcomer.said_of("Q=K"), newcomer.said_of("QKV")
    assert re.search(r"Must be symmetric: max\|S−Sᵀ\| = \S+ ✓", tied)
    assert "scores exactly as" in tied
    there, back = numbers(tied, r"asks \S+ (\S+), \S+ asks \S+ (\d\S*\d)")
    assert there == back
    shares = r"right entry (\S+), on the mirrored one (\S+)\."
    right, reversed_one = numbers(tied, shares)
    assert abs(right - reversed_one) < 0.05
    assert right > 0.2
    (accuracy,) = numbers(tied, r"Accuracy (\S+)\.")
    assert 0.4 < accuracy < 0.6
    right, reversed_one = numbers(free, shares)
    assert right > 0.9
    assert reversed_one < 0.05

    one_head, four_heads, verdict = newcomer.attempt("4 heads")
    newcomer.keep("heads")
    assert 0.4 < one_head < 0.6
    assert four_heads > one_head + 0.2
    assert verdict == "partly rescued."
    before, wider, _ = newcomer.attempt("Model width of 64")
    newcomer.keep("width")
    assert before == four_heads
    assert wider > four_heads + 0.05
    before, with_mlp, verdict = newcomer.attempt("MLP of 256")
    assert with_mlp > before == wider
    assert verdict == "rescued."
    expect(page.locator(MEANING)).to_contain_text("It leans to the right entry")
    newcomer.keep("rescued")
    right, reversed_one = numbers(newcomer.said_of("Q=K"), shares)
    assert right > reversed_one + 0.1
    assert "scores exactly as" in newcomer.said_of("Q=K")
    newcomer.click(page.get_by_role("button", name="Undo"))
    rescue = page.locator(".st-key-rescue")
    expect(rescue).to_contain_text(f"Accuracy, mean of 3 seeds: Q=K {wider:.2f}")
    expect(rescue.locator("li")).to_have_count(2)
    assert newcomer.n_clicks <= MOST_CLICKS
