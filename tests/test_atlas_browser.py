"""The grid of heads in a real Chromium, without a server."""

import json

import numpy as np
import pytest
from browsing import saved
from made_atlas import READER, WRITER, heads_of, made_atlas, made_reading
from playwright.sync_api import expect

from attnkit.figures.atlas import atlas_panels
from attnkit.figures.sentence import sentence_film
from attnkit.realmodels.measures import MEASURES
from attnkit.ui.bundle import asset, inline_script
from attnkit.ui.standalone import standalone_html

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


def chosen(page):
    """What has been chosen, in its order."""
    return [value for name, value in page.evaluate("chosen") if name == "chosen"]


def test_heads_are_chosen_by_keys_and_by_the_pointer(opened):
    """From the chosen head on, keys stop at the edges; the number of a cell is shown and heard."""
    page = opened
    page.get_by_role("grid").first.focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowRight", "ArrowRight", "Enter", "Home", "Space"):
        page.keyboard.press(key)
    for key in ("ArrowDown", "ArrowRight", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    page.keyboard.press("Control+End")
    page.keyboard.press("Enter")
    ends = [[READER, "encoder", layer, head] for layer, head in [(0, 4), (0, 0), (1, 0), (1, 4)]]
    assert chosen(page) == ends
    active = page.get_by_role("grid").first.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-label").startswith("layer 1, head 4")

    (row,) = heads_of(made_atlas().table, model=WRITER, kind="causal", layer=0, head=1).itertuples()
    told = cell(page, CAUSAL, 0, 1).get_attribute("aria-label").rpartition(": ")[2]
    assert float(told.replace("−", "-")) == pytest.approx(row.cos_qk, abs=0.006)
    tip = page.locator(".ak-tip")
    for by in ("keys", "pointer"):
        if by == "keys":
            page.get_by_role("grid").nth(CAUSAL).focus()
            page.keyboard.press("ArrowRight")
        else:
            cell(page, CAUSAL, 0, 1).hover()
        expect(tip).to_be_visible()
        assert tip.inner_text().startswith(f"{WRITER}, causal\nlayer 0, head 1: ")
        page.keyboard.press("Escape") if by == "keys" else page.mouse.move(5, 895)
        expect(tip).to_be_hidden()
    cell(page, CAUSAL, 2, 4).click()
    assert chosen(page) == [*ends, [WRITER, "causal", 2, 4]]


def test_one_cell_is_outlined_and_the_grid_can_be_saved(opened):
    """The outline moves with the data and nodes stay; the file has the numbers of every head."""
    page = opened
    expect(page.locator("[aria-selected=true]")).to_have_count(1)
    assert page.evaluate("document.querySelector('[aria-selected=true]').dataset.at") == "1 3"
    node = cell(page, CAUSAL, 2, 0).element_handle()
    page.evaluate(REDRAW, {"chosen": [WRITER, "causal", 2, 0]})
    assert node.get_attribute("aria-selected") == "true"
    expect(page.locator("[aria-selected=true]")).to_have_count(1)
    lines = saved(page, page.locator(".ak-save"), "CSV").strip().splitlines()
    assert lines[0].startswith("model,kind,layer,head,")
    assert len(lines) == 1 + 10 + 18 + 3


ONE_ROW = {"model": "m", "kind": "causal", "note": "", "alt": "", "layers": [0]}
COLORS = """() => [...document.querySelectorAll('.ak-atlas-cell')]
  .map((node) => getComputedStyle(node).backgroundColor.match(/\\d+/g).map(Number))"""


def row_of(values, below=None):
    """Data of one row of heads."""
    below = below or [0] * len(values)
    panel = {**ONE_ROW, "heads": list(range(len(values))), "values": [values], "below": [below]}
    return {"panels": [panel], "low": -1, "high": 1, "signed": True, "beyond": False}


def test_colours_strokes_and_the_bar_tell_values(opened):
    """Zero is in the middle; a stroke tells a negative sign, the bar what is beyond."""
    page = opened
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
    expect(page.get_by_text("− below chance")).to_be_hidden()

    page.evaluate(REDRAW, {**row_of([0.45, 0.95]), "high": 0.45, "beyond": True})
    assert page.locator(".ak-scale > span").all_inner_texts()[1:3] == ["≤ −0.45", "≥ 0.45"]
    one, other = page.evaluate(COLORS)
    assert one == other
    assert cell(page, 0, 0, 1).get_attribute("aria-label").endswith(": 0.95")
    page.evaluate(REDRAW, {"beyond": False})
    assert page.locator(".ak-scale > span").all_inner_texts()[1:3] == ["−0.45", "0.45"]


def test_grids_fit_wide_and_narrow_screens(opened):
    """Grids of one model stand side by side where there is room; many heads scroll in a box."""
    page = opened
    page.set_viewport_size({"width": NARROW, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
    expect(page.locator(".ak-atlas-column")).to_have_count(1)
    page.set_viewport_size({"width": WIDE, "height": 900})
    expect(page.locator(".ak-atlas-column")).to_have_count(2)
    boxes = [page.get_by_role("grid").nth(place).bounding_box() for place in (1, 2)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert page.locator(".ak-atlas-model").nth(1).get_by_role("grid").count() == 2
    page.set_viewport_size({"width": NARROW, "height": 900})
    page.evaluate(REDRAW, row_of([0.1] * 128))
    box = page.locator(".ak-atlas-panel")
    assert box.evaluate("node => node.scrollWidth > node.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW


def test_the_figures_of_the_toys_show_a_sentence(page, tmp_path):
    """Tokens are shown as they are typed; a head that is pressed is requested; there is no step."""
    rng = np.random.default_rng(5)
    texts = ["<b>x</b>", "$x$", "שלום", "🎉", "dog"]
    pattern = rng.dirichlet(np.ones(5), (3, 5))
    reading = made_reading(pattern, rng.standard_normal((3, 5, 5)), texts).head(0, 1)
    path = tmp_path / "sentence.html"
    html = standalone_html("A", "sentence", sentence_film(reading).to_bytes())
    served = "{ data, parentElement, setTriggerValue: (...told) => (window.told = told) }"
    assert "{ data, parentElement }" in html
    path.write_text(html.replace("{ data, parentElement }", served))
    page.set_viewport_size({"width": WIDE, "height": 4000})
    page.goto(path.as_uri())
    maps = page.locator("[data-figure=maps] .ak-heat")
    expect(maps).to_be_visible()
    assert set(texts) <= set(maps.locator("text").all_text_contents())
    expect(page.locator(".ak-player")).to_be_hidden()
    expect(page.locator("section.ak-film-figure")).to_have_count(5)
    expect(page.locator(".ak-conclusion")).to_contain_text("Layer 0, head 1 ")
    box = maps.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + box["height"] - 5)
    weight = f"{pattern[1, 4, 4]:.0%}"
    expect(page.locator(".ak-tip")).to_have_text(f"dog attends to dog (token 5): {weight}")
    page.get_by_role("button", name="head 2").click()
    assert page.evaluate("told")[0] == "picked"
    assert page.evaluate("[told[1].layer, told[1].head]") == [0, 2]
    shown = page.locator("[data-figure=parts] .ak-share").all_text_contents()
    even = (1 + (s := reading.scores[0, 1]).ravel() @ s.T.ravel() / (s**2).sum()) / 2
    assert shown[0] == f"Sₛ {even:.0%}"
