"""The grid of heads, a sentence and the figures of Similarity in a real Chromium, no server."""

import json
import re

import numpy as np
import pytest
from browsing import saved
from kinds import tiny
from made_atlas import READER, WRITER, heads_of, made_atlas, made_reading
from playwright.sync_api import expect

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.similarity import inspect_similarity
from attnkit.figures.atlas import atlas_panels
from attnkit.figures.sentence import sentence_film
from attnkit.realmodels.measures import MEASURES
from attnkit.training.loops import record
from attnkit.ui.standalone import asset, inline_script, standalone_html

pytestmark = pytest.mark.browser

CAUSAL, WIDE, NARROW = 1, 1200, 300

REDRAW = "(change) => { Object.assign(data, change); redraw(); }"
PAGE = """<!doctype html><meta charset="utf-8"><style>{style}</style>
<div id="root"></div><script type="module">
{script}
window.data = {data};
window.chosen = [];
const setTriggerValue = (name, value) => window.chosen.push([name, value]);
const parentElement = document.getElementById("root");
window.redraw = () => showAtlas({{ data, parentElement, setTriggerValue }});
redraw();
</script>"""
COLORS = """() => [...document.querySelectorAll('.ak-atlas-cell')]
  .map((node) => getComputedStyle(node).backgroundColor.match(/\\d+/g).map(Number))"""


@pytest.fixture
def opened(page, tmp_path):
    """The page with the grid of both models."""
    panels = atlas_panels(heads_of(made_atlas().table), MEASURES["cos_qk"])
    data = json.dumps({**panels, "chosen": [READER, "encoder", 1, 3]})
    style, (script, _) = asset("lab.css") + asset("atlas.css"), inline_script("atlas")
    path = tmp_path / "atlas.html"
    path.write_text(PAGE.format(style=style, script=script, data=data))
    page.set_viewport_size({"width": WIDE, "height": 900})
    page.goto(path.as_uri())
    expect(page.get_by_role("grid")).to_have_count(3)
    return page


def cell(page, panel, layer, head):
    """The cell of a head."""
    row = page.get_by_role("grid").nth(panel).get_by_role("row").nth(layer + 1)
    return row.get_by_role("gridcell").nth(head)


def test_heads_are_chosen_by_keys_and_by_the_pointer(opened):
    """Keys stop at the edges, a tip tells the number, and the file has every head."""
    page = opened
    page.get_by_role("grid").first.focus()
    for key in (
        "ArrowUp ArrowUp ArrowRight ArrowRight Enter Home Space ArrowDown ArrowRight ArrowLeft "
        "Enter Control+End Enter"
    ).split():
        page.keyboard.press(key)
    ends = [[READER, "encoder", layer, head] for layer, head in [(0, 4), (0, 0), (1, 0), (1, 4)]]
    assert [value for _, value in page.evaluate("chosen")] == ends
    active = page.get_by_role("grid").first.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-label").startswith("layer 1, head 4")

    (row,) = heads_of(made_atlas().table, model=WRITER, kind="causal", layer=0, head=1).itertuples()
    told = cell(page, CAUSAL, 0, 1).get_attribute("aria-label").rpartition(": ")[2]
    assert float(told.replace("−", "-")) == pytest.approx(row.cos_qk, abs=0.006)
    tip = page.locator(".ak-tip")
    page.get_by_role("grid").nth(CAUSAL).focus()
    page.keyboard.press("ArrowRight")
    expect(tip).to_have_text(re.compile(rf"{WRITER}, causal\s*layer 0, head 1: "))
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    cell(page, CAUSAL, 0, 1).hover()
    expect(tip).to_be_visible()
    page.mouse.move(5, 895)
    expect(tip).to_be_hidden()
    node = cell(page, CAUSAL, 2, 4).element_handle()
    node.click()
    assert page.evaluate("chosen.at(-1)[1]") == [WRITER, "causal", 2, 4]
    outlined = page.locator("[aria-selected=true]")
    assert outlined.get_attribute("data-at") == "1 3"
    page.evaluate(REDRAW, {"chosen": [WRITER, "causal", 2, 4]})
    assert node.get_attribute("aria-selected") == "true"  # the outline moves, nodes stay
    expect(outlined).to_have_count(1)
    lines = saved(page, page.locator(".ak-save"), "CSV").strip().splitlines()
    assert lines[0].startswith("model,kind,layer,head,")
    assert len(lines) == 1 + 10 + 18 + 3


def row_of(values, below=None):
    """Data of one row of heads."""
    heads, below = list(range(len(values))), below or [0] * len(values)
    panel = {"model": "m", "kind": "causal", "note": "", "alt": "", "layers": [0], "heads": heads}
    panel |= {"values": [values], "below": [below]}
    return {"panels": [panel], "low": -1, "high": 1, "signed": True, "beyond": False}


def test_colours_strokes_and_the_bar_tell_values_on_wide_and_narrow_screens(opened):
    """Zero is in the middle; a stroke tells a negative sign, the bar what is beyond."""
    page = opened
    columns = page.locator(".ak-atlas-column")
    expect(columns).to_have_count(2)
    boxes = [page.get_by_role("grid").nth(place).bounding_box() for place in (1, 2)]
    assert boxes[0]["y"] == boxes[1]["y"]
    page.set_viewport_size({"width": NARROW, "height": 900})
    expect(columns).to_have_count(1)
    page.evaluate(REDRAW, row_of([0.1] * 128))
    assert page.locator(".ak-atlas-panel").evaluate("node => node.scrollWidth > node.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
    page.set_viewport_size({"width": WIDE, "height": 900})

    page.evaluate(REDRAW, row_of([-1, 0, 1, None]))
    blue, middle, red, none = page.evaluate(COLORS)
    assert blue[2] > blue[0]
    assert red[0] > red[2]
    assert min(middle) > 240
    assert len(set(none)) == 1
    last = page.get_by_role("gridcell").last
    assert last.get_attribute("aria-label") == "layer 0, head 3: none"

    page.evaluate(REDRAW, row_of([-1, -0.2, 1], [1, 1, 0]))
    strokes = page.locator(".ak-atlas-below:visible")
    expect(strokes).to_have_count(2)
    inks = strokes.evaluate_all("nodes => nodes.map((node) => node.style.background)")
    assert inks == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
    expect(page.get_by_text("− below chance")).to_be_visible()
    page.evaluate(REDRAW, {"signed": False})
    expect(strokes).to_have_count(0)

    page.evaluate(REDRAW, {**row_of([0.45, 0.95]), "high": 0.45, "beyond": True})
    assert page.locator(".ak-scale > span").all_inner_texts()[1:3] == ["≤ −0.45", "≥ 0.45"]
    one, other = page.evaluate(COLORS)
    assert one == other
    assert cell(page, 0, 0, 1).get_attribute("aria-label").endswith(": 0.95")


def test_the_figures_of_the_toys_show_a_sentence(page, tmp_path):
    """Tokens are shown as they are typed; a head that is pressed is requested; there is no step."""
    rng = np.random.default_rng(5)
    texts = ["<b>x</b>", "$x$", "שלום", "🎉", "dog"]
    pattern = rng.dirichlet(np.ones(5), (3, 5))
    reading = made_reading(pattern, rng.standard_normal((3, 5, 5)), texts).head(0, 1)
    path = tmp_path / "sentence.html"
    html = standalone_html("A", "sentence", sentence_film(reading).to_bytes())
    served = "{ data, parentElement, setTriggerValue: (...told) => (window.told = told) }"
    path.write_text(html.replace("{ data, parentElement }", served))
    page.set_viewport_size({"width": WIDE, "height": 4000})
    page.goto(path.as_uri())
    maps = page.locator("[data-figure=maps] .ak-heat")
    expect(maps).to_be_visible()
    assert set(texts) <= set(maps.locator("text").all_text_contents())
    expect(page.locator(".ak-player")).to_be_hidden()
    expect(page.locator("section.ak-film-figure")).to_have_count(5)
    box = maps.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + box["height"] - 5)
    expect(page.locator(".ak-tip")).to_contain_text(f"{pattern[1, 4, 4]:.0%}")
    page.get_by_role("button", name="head 2").click()
    assert page.evaluate("[told[0], told[1].layer, told[1].head]") == ["picked", 0, 2]
    shown = page.locator("[data-figure=parts] .ak-share").all_text_contents()
    even = (1 + (s := reading.scores[0, 1]).ravel() @ s.T.ravel() / (s**2).sum()) / 2
    assert shown[0] == f"Sₛ {even:.0%}"


# the figures of Similarity

DRAWN = "document.querySelector('.ak-film')?.dataset.described"
PLACES = """(panel) => [...document.querySelectorAll('[data-figure=map] .ak-panel')[panel]
  .querySelectorAll('.ak-point')].map((point) => point.getAttribute('transform'))"""


@pytest.mark.long(seconds=6)
def test_similarity_is_shown_as_it_was_found(page, tmp_path):
    """Tied vectors lie in one place of the joint map, and the numbers belong to the step shown."""
    page.set_viewport_size({"width": WIDE, "height": 4800})
    film = record(tiny("directed", sharing=["QKV", "Q=K", "QKV n_heads=1"], n_heads=2, steps=12))

    def show(**asked):
        inspected = inspect_similarity(film, Inspection("similarity", **asked))
        inspected.header["film"] = "one"
        path = tmp_path / "similarity.html"
        path.write_text(standalone_html("Similarity", "similarity", inspected.to_bytes()))
        page.goto(path.as_uri())
        page.wait_for_function(DRAWN)
        page.locator(".ak-more > summary").click()
        rows = page.locator("[data-figure=alike] tbody tr").all()
        return inspected, [row.locator("td").all() for row in rows]

    inspected, (free, tied, _) = show()
    expect(tied[0]).to_have_text("same matrix")
    for cell in (*free, *tied[1:]):
        expect(cell).to_have_text(re.compile(r"^\d\.\d\d [▲▼=]$"))
    places = page.evaluate(PLACES, 1)
    assert places[0::3] == places[1::3] != places[2::3]
    cells = page.locator("[data-figure=heads] tbody tr").first.locator("td")
    expect(cells.nth(4)).to_contain_text(f"{inspected.fixed['0.table'][0, 0, 0, 2]:.2f}")
    places, alike = page.evaluate(PLACES, 0), inspected.framed["0.alike"]
    for frame, name in ((0, "First step"), (-1, "Last step"), (0, "First step")):
        page.get_by_role("button", name=name).click()
        page.wait_for_function("step => " + DRAWN + " === step", arg=str(film.steps[frame]))
        for column, cell in enumerate(free):
            expect(cell).to_contain_text(f"{alike[frame, column, 4]:.2f}")
    assert page.evaluate(PLACES, 0) != places
    page.locator("[data-figure=map] .ak-point").last.hover(force=True)
    expect(page.locator("[data-figure=map] .ak-linked-point")).to_have_count(3 * 3)
    for cell in show(head=1)[1][2]:  # which one variant lacks
        expect(cell).to_have_text("no such head")
