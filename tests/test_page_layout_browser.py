"""Layout of pages in a real Chromium: what stands where, on a wide screen and on a phone.

Pages that show shipped evidence are compared with recorded boxes; they depend neither on an engine
nor on a processor. Pages that film a run are checked for what leads, because their words have
numbers. With ATTNKIT_PICTURES, a folder, the boxes and pictures are written there.
"""

import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import expect
from test_board_browser import keep, moved

pytestmark = [pytest.mark.browser, pytest.mark.server]

WINDOWS = ((1440, 900), (390, 844))

RECORDED = Path(__file__).parent / "page_boxes.json"
"""Boxes by page and width. After a wanted change of the layout, replace the file by the one that is
written beside the pictures."""

PARTS = {
    "questions": ("asked_view", "conclusion", "reason", "rests_on"),
    "questions?claim=direction": ("conclusion", "claim_downloads"),
    "questions?question=new": ("conclusion", "new_claims"),
    "atlas": ("conclusion", "atlas_controls", "atlas_grid"),
    "capacity": ("conclusion", "capacity_controls", "capacity_phase", "capacity_cell"),
    "variants": ("conclusion", "variants_search", "card"),
    "guide": ("conclusion", "glossary", "preset", "preset_card"),
}
"""Keys of the parts of every page, from top to bottom on a phone."""

STILL = """() => {
  const main = document.querySelector('[data-testid=stMain]');
  const now = JSON.stringify([innerWidth, main.scrollHeight, main.innerText.length]);
  const same = window.last === now;
  window.last = now;
  return same && document.fonts.status === 'loaded' && document.querySelector('h1')
    && document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]')
    && !document.querySelector('[data-testid=stSkeleton], [data-stale=true]')
    && [...document.querySelectorAll('.ak-picture')].every((node) => node.firstChild);
}"""

BOXES = """(keys) => Object.fromEntries(keys.map((key) => {
  const top = document.querySelector('[data-testid=stMain]').scrollTop;
  const box = document.querySelector(`.st-key-${key}`).getBoundingClientRect();
  return [key, [box.left, box.top + top, box.right, box.bottom + top].map(Math.round)];
}))"""

WORDS = """() => document.querySelector('[data-testid=stMain]').innerText
  .split(/\\s+/).filter((word) => /[\\p{L}\\d]/u.test(word)).length"""

HEIGHT = "() => document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight"


def visit(visitors, address, name, window):
    """Open a page in a window of this size, and wait until nothing moves any more."""
    page = visitors.arrive(*window, {address: {"sidebarWidth": "240"}})
    page.goto(f"{address}/{name}")
    page.wait_for_function(STILL, polling=300)
    return page


def assert_short(page):
    """Check that a page on a wide screen has at most 700 words and is at most 2,500 px high."""
    assert page.evaluate(HEIGHT) <= 2500
    assert page.evaluate(WORDS) <= 700


@pytest.mark.parametrize("name", PARTS)
def test_a_page_of_shipped_evidence_is_laid_out_as_recorded(visitors, address, name):
    """Its parts stand where they were recorded, none is too wide, and the page is short."""
    seen = {}
    for window in WINDOWS:
        page = visit(visitors, address, name, window)
        boxes = page.evaluate(BOXES, PARTS[name])
        seen[f"{window[0]}"] = boxes
        assert all(left >= 0 and right <= window[0] for left, _, right, _ in boxes.values())
        if window == WINDOWS[0] and "?" not in name:
            assert_short(page)
        keep(page, f"{name.replace('?', '-')}-{window[0]}.png")
        visitors.leave(page)
    if folder := os.environ.get("ATTNKIT_PICTURES"):
        path = Path(folder, RECORDED.name)
        recorded = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(recorded | {name: seen}, indent=1) + "\n")
    recorded = json.loads(RECORDED.read_text())[name]
    assert {width: moved(recorded[width], boxes) for width, boxes in seen.items()} == {
        width: {} for width in seen
    }


def test_the_new_claims_fill_at_most_two_screens():
    """The recorded box of the decided claims ends there, below the head of the page."""
    (width, height), _ = WINDOWS
    recorded = json.loads(RECORDED.read_text())["questions?question=new"]
    assert recorded[f"{width}"]["new_claims"][-1] <= 2 * height


@pytest.mark.parametrize("name", ["attention", "asymmetry", "similarity", "surgery"])
def test_a_page_that_looks_inside_leads_with_its_conclusion(visitors, address, name):
    """The conclusion is larger than the title, and stands above the fold with its figure."""
    page = visit(visitors, address, name, WINDOWS[0])
    conclusion = page.locator(".ak-conclusion, .st-key-conclusion p").first
    expect(conclusion).not_to_be_empty()
    size = "(node) => parseFloat(getComputedStyle(node).fontSize)"
    title = page.get_by_role("heading", level=1)
    assert conclusion.evaluate(size) > title.evaluate(size)
    figure = page.locator(".ak-film-figure:visible, .ak-ways").first
    assert conclusion.bounding_box()["y"] < figure.bounding_box()["y"] < 600
    most = 450 if name in ("asymmetry", "similarity") else 700
    assert page.evaluate(WORDS) <= most
    visitors.leave(page)


@pytest.mark.parametrize("name", ["", "runs"])
def test_a_page_that_depends_on_runs_is_short(visitors, address, name):
    """The Lab and Runs have no recorded boxes, because their words have numbers."""
    page = visit(visitors, address, name, WINDOWS[0])
    assert_short(page)
    visitors.leave(page)
