"""What pages show of films, in a real Chromium: components in plain pages, without a server."""

import contextlib
import csv
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from browsing import COUNT_REPLACED, WIDER, at_rest, give, saved, show_component
from kinds import tiny
from playwright.sync_api import TimeoutError as OutOfTime
from playwright.sync_api import expect

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.views import inspect
from attnkit.training.loops import record
from attnkit.training.summary import percent
from attnkit.ui.standalone import standalone_html

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def recorded():
    """A film of three variants with two heads."""
    return record(tiny("directed", sharing=["QKV", "Q=K", "K=V"], n_heads=2, steps=12))


@pytest.fixture
def opened(page):
    """A page that takes blobs: `opened(blob)`."""

    def open_one(blob, width=1200):
        page.set_viewport_size({"width": width, "height": 1600})
        show_component(page, "attention", blob)
        return page

    return open_one


def found(film, name="one", **asked):
    """What an inspection of a film finds, as the training process sends it."""
    inspected = inspect(film, Inspection("attention", **asked))
    inspected.header.update(film=name, live=asked.get("since", -1) >= 0)
    return inspected


BEYOND_PANELS = """() => [...document.querySelectorAll('.ak-panel *')]
  .filter((node) => node.checkVisibility())
  .filter((node) => node.getBoundingClientRect().right
    > node.closest('.ak-panel').getBoundingClientRect().right + 1.5)
  .map((node) => `${node.closest('[data-figure]').dataset.figure} ${node.tagName}`)"""


def go(page, place):
    """Move to a frame, of which there is one every two steps, and wait until it is described."""
    page.locator(".ak-range").fill(str(place))
    page.wait_for_function(
        "step => document.querySelector('.ak-film').dataset.described === step",
        arg=str(2 * place),
    )


def figure(page, name):
    """The box of a figure."""
    return page.locator(f"[data-figure={name}]")


def unfold(page):
    """Open the figures that are folded away, if they are not open."""
    more = page.locator(".ak-more")
    if more.get_attribute("open") is None:
        more.locator("> summary").click()
        figure(page, "difference").scroll_into_view_if_needed()
        expect(figure(page, "difference").get_by_label("Variant A")).to_be_visible()


def rows_of(page, name):
    """The rows of a figure's CSV file, as dictionaries."""
    unfold(page)
    return list(csv.DictReader(saved(page, figure(page, name), "CSV").splitlines()))


def test_new_frames_are_added_and_the_newest_is_followed_until_one_moves(opened, recorded):
    """Merging by step: what was there stays, equal steps are replaced, another film starts over."""
    early = replace(recorded, frames=recorded.frames[:3])
    page = opened(found(early).to_bytes())
    slider = page.get_by_role("slider", name="Training step")
    expect(slider).to_have_attribute("aria-valuetext", "step 4 of 12")
    at_rest(page)
    page.evaluate(COUNT_REPLACED)
    give(page, found(recorded, since=4).to_bytes())
    expect(slider).to_have_attribute("max", "6")
    expect(slider).to_have_attribute("aria-valuetext", "step 12 of 12")
    at_rest(page)
    assert page.evaluate("window.replaced") == 0
    go(page, 1)
    give(page, found(recorded, since=8).to_bytes())
    expect(slider).to_have_attribute("max", "6")
    expect(slider).to_have_attribute("aria-valuetext", "step 2 of 12")
    give(page, found(recorded, name="other").to_bytes())
    expect(slider).to_have_attribute("aria-valuetext", "step 12 of 12")
    assert page.evaluate("window.told") == []
    # A browser that lacks frames at the begin or in the middle asks for them.
    page = opened(found(recorded, since=6).to_bytes())
    page.wait_for_function("window.told.length")
    assert page.evaluate("window.told") == [["resend", "one"]]
    page = opened(found(early).to_bytes())
    give(page, found(recorded, since=8).to_bytes())
    page.wait_for_function("window.told.length")
    assert page.evaluate("window.told") == [["resend", "one"]]


def test_scrubbing_replaces_no_node_and_shows_the_numbers_of_each_step(opened, recorded):
    """Every move changes attributes and texts only, and what is said is what was computed."""
    inspected = found(recorded)
    page = opened(inspected.to_bytes())
    at_rest(page)
    page.evaluate(COUNT_REPLACED)
    for place in (3, 0, 6, 2):
        go(page, place)
        expect(page.locator(".ak-step")).to_have_text(f"step {2 * place} of 12")
        for p, variant in enumerate(inspected.header["variants"]):
            weights = inspected.framed[f"{p}.weights"][place]
            line = figure(page, "finding").locator("li").nth(p)
            right = f"{percent(float(weights[inspected.header['target']]))} of its attention"
            expect(line).to_contain_text(f"{variant['name']}{right}")
            panel = figure(page, "lookup").locator(".ak-panel").nth(p)
            shown = panel.locator(".ak-heat text:last-of-type").all_text_contents()
            assert shown[-len(weights) :] == [percent(float(weight)) for weight in weights]
        said = figure(page, "maps").locator(".ak-film-body").get_attribute("aria-label")
        assert f"at step {2 * place}," in said
    assert page.evaluate("window.replaced") == 0


def test_play_runs_to_the_last_step_and_can_be_paused(opened, recorded):
    """Playing starts over from the end, and ends by itself; the conclusion is of the shown step."""
    page = opened(found(recorded).to_bytes())
    at_rest(page)
    # Nothing is taken apart until a cell is pressed; printing reports no error, which `page` sees.
    for moment in ("beforeprint", "afterprint"):
        page.evaluate("(name) => dispatchEvent(new Event(name))", moment)
    conclusion = page.locator(".ak-conclusion")
    for wanted in ("For the one question “", "QKV", "Q=K", "K=V"):
        expect(conclusion).to_contain_text(wanted)
    slider = page.get_by_role("slider", name="Training step")
    play = page.get_by_role("button", name="Play")
    page.get_by_role("button", name="First step").click()
    expect(slider).to_have_value("0")
    expect(conclusion).to_contain_text("Before training, for the one question “")
    play.click()
    page.get_by_role("button", name="Pause").click()
    play.click()
    expect(slider).to_have_value("6")
    expect(play).to_be_visible()
    panels = figure(page, "lookup").locator(".ak-panel")
    for p, wanted in enumerate((["q", "k", "v"], ["q = k", "v"], ["q", "k = v"])):
        first = panels.nth(p).locator("> div:nth-child(2) .ak-strip-label")
        expect(first).to_have_text(["token", *wanted])  # what is tied is drawn once


def test_every_figure_is_saved_as_csv(opened, recorded):
    """Tables hold the numbers of the step; A − B is of the two that are chosen."""
    inspected = found(recorded)
    page = opened(inspected.to_bytes())
    go(page, 4)
    figures = ("finding", "maps", "heads", "lookup", "difference", "mass")
    tables = {name: rows_of(page, name) for name in figures}
    assert all(tables.values())
    exact = [float(value) for value in list(tables["maps"][0].values())[3:]]
    np.testing.assert_allclose(exact, inspected.framed["0.map"][4, 0], rtol=1e-6)
    titles = inspected.header["layers"][0]["column_titles"]
    for what in ("q", "products", "masked", "z", "head_out", "logits"):
        rows = [r for r in tables["lookup"] if (r["variant"], r["what"]) == ("Q=K", what)]
        if what in ("products", "masked"):
            assert {row["entry"] for row in rows} == set(titles)
        told = [float(row["value"]) for row in rows]
        np.testing.assert_allclose(told, inspected.framed[f"1.{what}"][4].ravel(), rtol=1e-6)

    difference, maps = figure(page, "difference"), inspected.framed["0.map"][4]
    for other, wanted in (("Q=K", maps - inspected.framed["1.map"][4]), ("QKV", 0 * maps)):
        difference.get_by_label("Variant B").select_option(other)
        expect(difference.locator(".ak-scale")).to_contain_text(f"QKV − {other}")
        rows = [list(row.values())[2:] for row in rows_of(page, "difference")]
        np.testing.assert_allclose(np.array(rows, float), wanted, atol=1e-6)


def test_heads_and_tokens_are_previewed_and_chosen(opened, recorded):
    """Pointing shows a head, pressing keeps it and tells Python, unlocking shows the mean."""
    page = opened((inspected := found(recorded)).to_bytes())
    shown = figure(page, "maps").locator(".ak-controls span")
    expect(shown).to_have_text("Shown: head 1 (locked)")
    other = figure(page, "heads").get_by_role("button", name="Q=K, head 2")
    other.hover()
    expect(shown).to_contain_text("head 2, as long as")
    page.mouse.move(1, 1)
    expect(shown).to_have_text("Shown: head 1 (locked)")
    other.click()
    page.mouse.move(1, 1)
    expect(other).to_have_attribute("aria-pressed", "true")
    expect(figure(page, "heads").locator("[aria-pressed=true]")).to_have_count(3)  # one each
    expect(shown).to_have_text("Shown: head 2 (locked)")
    told = {"layer": 0, "head": 1, "query_index": inspected.header["query_index"]}
    assert page.evaluate("window.told") == [["picked", told]]
    page.get_by_role("button", name="Unlock").click()
    expect(shown).to_have_text("Shown: mean of all heads")
    give(page, found(recorded, head=1).to_bytes())
    expect(figure(page, "lookup").locator(".ak-film-hint")).to_contain_text("Head 2.")
    # A pressed row is followed; the token that is pointed at is marked in all figures.
    give(page, inspected.to_bytes())
    at_rest(page)
    unfold(page)
    heat = figure(page, "maps").locator(".ak-heat").first
    heat.scroll_into_view_if_needed()
    canvas = heat.locator("canvas").bounding_box()
    layer = inspected.header["layers"][0]
    page.mouse.click(canvas["x"] + 3, canvas["y"] + canvas["height"] * 1.5 / len(layer["rows"]))
    told = {"layer": 0, "head": 0, "query_index": 1, "key_position": 0}
    assert page.evaluate("window.told.at(-1)") == ["picked", told]
    linked = page.locator(".ak-linked-row text:first-of-type")
    expect(linked).to_have_text([layer["column_titles"][0]] * 3)
    marked = page.locator(".ak-linked").evaluate_all(
        "all => all.filter((one) => one.style.display !== 'none').length"
    )
    assert marked == 4  # the maps of three variants, and their difference
    give(page, found(recorded, query_index=1).to_bytes())
    expect(figure(page, "lookup").locator("h2")).to_contain_text(layer["rows"][1])


def test_a_pressed_cell_is_taken_apart(opened, recorded):
    """With Q=K both directions have the same numbers; what is chosen is told, and so is nothing."""
    page = opened((inspected := found(recorded, query_index=1, key_position=2)).to_bytes())
    picker, apart = page.get_by_label("Take apart its score with"), figure(page, "attribution")
    apart.scroll_into_view_if_needed()
    tables = apart.locator(".ak-panel").nth(1).locator("table")
    expect(tables).to_have_count(3)
    there, back = (table.locator("td").all_text_contents() for table in tables.all()[:2])
    assert there == back
    wanted = inspected.framed["1.why.parts"][-1].ravel()
    assert [float(text.replace("−", "-")) for text in there] == pytest.approx(wanted, abs=0.0051)
    for chosen, told in (("4", 4), ("", None)):
        picker.select_option(chosen)
        assert page.evaluate("window.told.at(-1)[1].key_position ?? null") == told
    give(page, found(recorded, query_index=1).to_bytes())
    expect(apart).to_be_hidden()


def test_scores_are_named_by_how_they_are_made(opened):
    """Only products times the scale are called so, wherever training has moved to."""
    wanted = {
        "QKV": (r"× 0\.\d+", "q·k, scale, mask, softmax, × v"),
        "QKV positions=alibi": ("score", "q·k, scale, bias, mask, softmax, × v"),
        "QKV sum": ("score", "q·k, scale, sum, mask, softmax, × v"),
        "QKV diff": (r"× 0\.\d+", "q·k, scale, mask, softmax, × v"),
    }
    inspected = found(record(tiny("directed", sharing=list(wanted))))
    page = opened(inspected.to_bytes())
    at_rest(page)
    for place in (3, 0):
        go(page, place)
        for panel, variant in enumerate(inspected.header["variants"]):
            head, stage = wanted[variant["text"]]
            box = figure(page, "lookup").locator(".ak-panel").nth(panel)
            titled = box.locator(".ak-heat text.ak-quiet").nth(1)
            expect(titled).to_have_text(re.compile(f"^{head}$"))
            expect(box.locator(".ak-stage").nth(2)).to_contain_text(stage)


FIVE, TWO = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V"], ["QKV", "Q=K=V"]


@pytest.mark.parametrize(
    ("kind", "sharing"),
    [
        ("directed", FIVE),
        ("dictionary", TWO),
        pytest.param("reverse", TWO, marks=pytest.mark.long),
        pytest.param("language", TWO, marks=pytest.mark.long),
    ],
)
def test_nothing_is_cut_or_leaves_its_panel_at_any_width(opened, seed, long, kind, sharing):
    """Five lookups, tokens that are asked nothing, two sides, several layers: all is shown."""
    rng = random.Random(f"{seed} {kind}")
    page = opened(found(record(tiny(kind, sharing=sharing))).to_bytes())
    unfold(page)
    expect(figure(page, "lookup").locator("h2")).to_be_visible()
    for width in (320, 1440, *(rng.randint(320, 2600) for _ in range(25 if long else 1))):
        page.set_viewport_size({"width": width, "height": 9000})  # all figures are in sight
        with contextlib.suppress(OutOfTime):  # and are laid out anew a moment later
            page.wait_for_function(f"() => ({BEYOND_PANELS})().length === 0", timeout=3000)
        at_rest(page)
        assert page.evaluate(BEYOND_PANELS) == [], width
        assert width < 640 or page.evaluate(WIDER) == [], width
    go(page, 0)
    assert page.evaluate(BEYOND_PANELS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_as_one_file_works_without_a_network(page, requested, recorded, tmp_path, scheme):
    """Opened from a disk it asks no server, and offers only what it can do.

    No other token can be followed; another head's map is shown, and nothing waits for it.
    """
    path = tmp_path / "page.html"
    path.write_text(standalone_html("One <lookup>", "attention", found(recorded).to_bytes(), "A."))
    page.set_viewport_size({"width": 1200, "height": 1600})
    page.emulate_media(color_scheme=scheme)
    page.goto(path.as_uri())
    expect(page.get_by_role("heading", name="One <lookup>")).to_be_visible()
    at_rest(page)
    go(page, 2)
    expect(page.locator(".ak-step")).to_have_text("step 4 of 12")
    assert requested == [path.as_uri()]
    paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(14, 17, 23)"}[scheme]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
    assert not page.get_by_label("Follow the token").is_visible()
    assert page.locator(".ak-pressable").count() == 0
    expect(figure(page, "maps").locator(".ak-film-hint")).not_to_contain_text("Press a cell")
    figure(page, "heads").get_by_role("button", name="Q=K, head 2").click()
    page.mouse.move(1, 1)
    expect(figure(page, "maps").locator(".ak-controls")).to_contain_text("head 2 (locked)")
    expect(figure(page, "lookup").locator(".ak-film-hint")).to_contain_text("Head 1.")
    assert page.locator(".ak-faded").count() == 0
