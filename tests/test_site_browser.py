"""The static site in a real Chromium: films play from a file, and texts need no script."""

import contextlib
import random

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import WIDER, at_rest
from kinds import tiny

from attnkit.site.frame import html_of
from attnkit.site.lessons import lesson_page
from attnkit.site.pages import HOME, answers_page, atlas_page, inside_page, task_page
from attnkit.training.summary import percent
from attnkit.training.training import stream
from attnkit.ui.reference.lessons import lessons

pytestmark = pytest.mark.browser

EXPERIMENT = tiny(HOME, sharing=["QKV", "Q=K=V"], steps=8)

VALUES = "() => [...document.querySelectorAll('.ak-board-head .ak-value')].map((n) => n.innerText)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with some pages of the site."""
    made = tmp_path_factory.mktemp("site")
    for page in (
        task_page(EXPERIMENT, "https://lab.example.org"),
        inside_page("attention", EXPERIMENT, "https://lab.example.org"),
        answers_page(),
        atlas_page(),
        lesson_page("2_expressiveness", lessons()["2_expressiveness"], "https://lab.example.org"),
    ):
        (made / page.file).write_text(html_of(page), encoding="utf-8")
        if page.embedded:
            (made / page.embed_file).write_text(page.embedded, encoding="utf-8")
    return made


def show_frame(page, k, snapshot):
    """Show a moment of the film; return the place of the player, in pixels from above."""
    slider = page.get_by_label("Training step")
    slider.fill(str(k))
    page.wait_for_function(
        "(step) => document.querySelector('.ak-film').dataset.described === String(step)",
        arg=snapshot.step,
    )
    return slider.evaluate("(node) => Math.round(node.getBoundingClientRect().top + scrollY)")


def test_the_first_page_shows_every_step_as_the_lab_does(page, folder, requested):
    """Without a network, at drawn windows: numbers of the training; the player stays put."""
    draw = random.Random(0)
    page.goto((folder / "index.html").as_uri())
    at_rest(page)
    snapshots = list(stream(EXPERIMENT))
    for k, snapshot in enumerate(snapshots):
        show_frame(page, k, snapshot)
        means = snapshot.per_sharing(snapshot.history["accuracy"][-1]).mean(-1)
        assert page.evaluate(VALUES) == [percent(float(mean)) for mean in means]
    for width in (320, 3840, draw.randint(321, 1600)):
        page.set_viewport_size({"width": width, "height": draw.randint(480, 1200)})
        at_rest(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        places = {show_frame(page, k, snapshot) for k, snapshot in enumerate(snapshots)}
        assert len(places) == 1
    assert all(address.startswith(("file:", "data:", "blob:")) for address in requested)


def test_pages_are_accessible_in_both_themes(page, folder):
    """No rule of axe finds a fault, and nothing is cut at the right edge of a phone."""
    page.set_viewport_size({"width": 390, "height": 844})
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        for file in sorted(folder.glob("*.html")):
            page.goto(file.as_uri())
            if page.locator("#film").count():
                at_rest(page)
            found = [
                (v["id"], v["nodes"][0]["html"]) for v in Axe().run(page).response["violations"]
            ]
            assert found == [], f"{file.name}, {theme}"
            assert (
                page.evaluate(WIDER.replace(".ak-tip", ".ak-wide, .wide, .ak-board-grid, .ak-tip"))
                == []
            )
    page.emulate_media(color_scheme="light")


def test_without_scripts_a_still_and_all_texts_are_there(browser, folder):
    """The card of the last step stands in place of the film."""
    with contextlib.closing(browser.new_context(java_script_enabled=False)) as context:
        page = context.new_page()
        page.goto((folder / "index.html").as_uri())
        assert page.locator("#film svg").first.is_visible()
        assert "QKV" in page.locator("#film table").inner_text()
