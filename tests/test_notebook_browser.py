"""Cards on one page, as in a notebook: light and dark, wide and narrow; and the player of films."""

import random

import pytest
from axe_playwright_python.sync_playwright import Axe
from filming import film_of
from playwright.sync_api import expect
from test_notebook_cards import a_head

from attnkit.claims import CLAIMS
from attnkit.examples import load_example
from attnkit.realmodels.shipped import load_atlas

pytestmark = pytest.mark.browser


def test_cards_are_readable_and_load_nothing(page, requested, seed):
    """No request, no overflow, enough contrast, and every drawing has a description."""
    themes = ["background: #ffffff; color: #212121", "background: #111111; color: #ddd"]
    style = random.Random(seed).choice(themes)  # a notebook gives its cells such colours
    snapshot, atlas = load_example("directed"), load_atlas()
    values = [snapshot, snapshot.experiment, load_example("translation"), snapshot]
    values += [CLAIMS["one_matrix"], atlas, a_head(atlas)]
    body = "<hr>".join(value._repr_html_() for value in values)
    page.set_content(
        f'<!doctype html><html lang="en"><title>Cards</title><body style="{style}">'
        f"<main><h1>Cards</h1>{body}</main></body></html>"
    )
    for width in (1200, 640):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    nameless = "node => !node.getAttribute('aria-label') && !node.closest('[aria-hidden]')"
    drawings = "[...document.querySelectorAll('svg:not([aria-hidden])')]"
    assert page.evaluate(f"{drawings}.filter({nameless}).length") == 0
    grave = [
        (one["id"], [node["html"][:120] for node in one["nodes"][:3]])
        for one in Axe().run(page).response["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert grave == []
    assert [url for url in requested if not url.startswith("data:")] == []


def test_a_film_plays_in_the_theme_of_its_notebook(page, requested):
    """The text around the frame decides, whatever the system's theme is; no server is asked."""
    html = film_of()._repr_html_()
    light, dark = "rgb(255, 255, 255)", "rgb(14, 17, 23)"
    for scheme, text, expected in (
        ("light", "#212121", light),
        ("light", "oklch(0.93 0 0)", dark),
        ("dark", "#212121", light),
        ("dark", "#e0e0e0", dark),
    ):
        page.emulate_media(color_scheme=scheme)
        page.set_content(f'<body style="color: {text}">{html}</body>')
        frame = page.frame_locator("iframe")
        frame.get_by_role("slider").first.wait_for()
        expect(frame.locator("body")).to_have_css("background-color", expected)
    assert [url for url in requested if not url.startswith(("data:", "about:", "blob:"))] == []
