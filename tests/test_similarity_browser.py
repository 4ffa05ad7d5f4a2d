"""The figures of the Similarity page in a real Chromium, without a server."""

import re

import pytest
from browsing import COUNT_REPLACED, WIDER
from kinds import tiny
from playwright.sync_api import expect
from test_accessible import grave_faults

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.similarity import inspect_similarity
from attnkit.training.recorder import record
from attnkit.ui.standalone import standalone_html

pytestmark = pytest.mark.browser

DRAWN = "document.querySelector('.ak-film')?.dataset.described"

ALL_DRAWN = """() => [...document.querySelectorAll('.ak-film-figure')]
  .every((one) => !one.checkVisibility() || one.querySelector('.ak-film-body[aria-label]'))"""
"""Each figure is drawn once it has come into sight, also those that were folded away."""

BANDS = """() => [...document.querySelectorAll('[data-figure=alike] td[title]')].map((cell) => {
  const [low, high] = cell.title.match(/\\d\\.\\d+/g).map(Number), bar = cell.querySelector('svg');
  const band = cell.querySelector('rect'), width = bar.getAttribute('width');
  const [x, wide] = ['x', 'width'].map((name) => Number(band.getAttribute(name)));
  return [x / width - low, (x + wide) / width - high];
})"""
"""How far the ends of each grey band are from the numbers that are said of it."""

PLACES = """(panel) => [...document.querySelectorAll('[data-figure=map] .ak-panel')[panel]
  .querySelectorAll('.ak-point')].map((point) => point.getAttribute('transform'))"""


@pytest.fixture(scope="module")
def people():
    """A film of variants that share in all ways, one of which has fewer heads."""
    variants = ["QKV", "Q=K", "K=V", "QKV d_k=3", "QKV n_heads=1"]
    return record(tiny("directed", sharing=variants, n_heads=2, d_head=6, steps=12))


@pytest.fixture
def opened(page, tmp_path):
    """A page of figures: `opened(film, layer=…)`."""
    page.set_viewport_size({"width": 1200, "height": 4800})

    def open_one(film, **asked):
        inspected = inspect_similarity(film, Inspection("similarity", **asked))
        inspected.header["film"] = "one"
        path = tmp_path / "similarity.html"
        path.write_text(standalone_html("Similarity", "similarity", inspected.to_bytes()))
        page.goto(path.as_uri())
        page.wait_for_function(DRAWN)
        page.locator(".ak-more > summary").click()
        page.wait_for_function(ALL_DRAWN)
        return page, inspected

    return open_one


def pair(page, place, column):
    """The cell of one variant and pair in the first table."""
    return page.locator("[data-figure=alike] tbody tr").nth(place).locator("td").nth(column)


def label(page, figure):
    """The text alternative of a figure."""
    return page.locator(f"[data-figure={figure}] .ak-film-body").get_attribute("aria-label")


def test_everything_is_shown_as_it_was_found(opened, people):
    """What is tied is said and lies in one place of the joint map; numbers are those of the step.

    Moving through training replaces no node, and pointing at a token marks it in all panels.
    Nothing is cut in a wide window and a narrow one, every figure says its finding, and no serious
    fault is found. It takes seconds because every figure is drawn for five variants.
    """
    page, inspected = opened(people)
    for variant, shared in ((0, None), (1, 0), (2, 2)):  # Q and K, Q and V, K and V
        for column in range(3):
            words = "same matrix" if column == shared else re.compile(r"^\d\.\d\d [▲▼=]$")
            expect(pair(page, variant, column)).to_have_text(words)
    assert "Q=K: Q and K same matrix, Q and V" in label(page, "alike")
    bands = page.evaluate(BANDS)
    assert bands
    assert max(abs(gap) for band in bands for gap in band) < 0.02, bands
    places = page.evaluate(PLACES, 1)
    assert places[0::3] == places[1::3] != places[2::3]
    places = page.evaluate(PLACES, 2)
    assert places[1::3] == places[2::3] != places[0::3]
    assert "Q and K coincide" in label(page, "map")
    cells = page.locator("[data-figure=heads] tbody tr").first.locator("td")
    expect(cells.nth(4)).to_contain_text(f"{inspected.fixed['0.table'][0, 0, 0, 2]:.2f}")

    places, alike = page.evaluate(PLACES, 0), inspected.framed["0.alike"]
    page.evaluate(COUNT_REPLACED)
    for frame, name in ((-1, None), (0, "First step"), (-1, "Last step"), (0, "First step")):
        if name:
            page.get_by_role("button", name=name).click()
        page.wait_for_function("step => " + DRAWN + " === step", arg=str(people.steps[frame]))
        for column in range(3):
            expect(pair(page, 0, column)).to_contain_text(f"{alike[frame, column, 4]:.2f}")
        assert f"QKV: Q and K {alike[frame, 0, 4]:.2f}" in label(page, "alike")
    assert page.evaluate("window.replaced") == 0
    assert page.evaluate(PLACES, 0) != places

    n_tokens = len(inspected.header["tokens"])
    page.locator("[data-figure=map] .ak-point").nth(3 * (n_tokens - 1)).hover(force=True)
    marked = page.locator("[data-figure=map] .ak-linked-point")
    expect(marked).to_have_count(3 * 4 + 2)  # all roles, but one variant's values
    expect(page.locator(".ak-tip")).to_contain_text(inspected.header["full_labels"][-1])

    for width in (1440, 640):
        page.set_viewport_size({"width": width, "height": 4800})
        page.wait_for_function(f"({WIDER})().length === 0")  # figures follow the window
        for figure in ("alike", "weights", "activations", "angles", "map", "heads"):
            assert any(letter.isdigit() for letter in label(page, figure))
            assert not re.search("NaN|undefined", label(page, figure))
        assert grave_faults(page) == []


def test_what_cannot_be_shown_is_said(opened, people):
    """A head that a variant lacks, values of another width, tokens that have no query or no key.

    Where heads read everything, all angles would be zero.
    """
    page, _ = opened(people, head=1)
    for figure, place, words in (
        *((figure, 4, "1 head only.") for figure in ("weights", "activations", "angles", "map")),
        ("map", 3, "values are left out"),
        ("weights", 3, "grey is for Q and K"),
    ):
        panel = page.locator(f"[data-figure={figure}] .ak-panel").nth(place)
        expect(panel).to_contain_text(words)
    for column in range(3):
        expect(pair(page, 4, column)).to_have_text("no such head")

    page, _ = opened(record(tiny("directed", sharing=["QKV"], d_model=16, d_head=16, steps=2)))
    expect(page.locator("[data-figure=angles]")).to_be_hidden()
    expect(page.locator("[data-figure=weights]")).to_contain_text("each reads everything")

    film = record(tiny("dictionary", sharing=["QKV", "Q=K"], d_head=6, steps=2))
    page, _ = opened(film, layer=2)
    expect(pair(page, 0, 0)).to_have_text("no token has both")
    expect(pair(page, 1, 0)).to_have_text("same matrix")
    activations = page.locator("[data-figure=activations]")
    expect(activations).to_contain_text("come from different sequences")
