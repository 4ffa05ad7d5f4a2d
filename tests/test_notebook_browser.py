"""Several cards on one page, as in a notebook: light and dark, wide and narrow."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from filming import film_of
from test_notebook_cards import a_head

from attnkit.claims import CLAIMS
from attnkit.examples import load_example
from attnkit.realmodels.shipped import load_atlas

pytestmark = pytest.mark.browser

THEMES = {
    "light": "background: #ffffff; color: #212121",
    "dark": "background: #111111; color: #ddd",
}
"""Style of the page; a notebook gives its cells such colours."""

WIDE, NARROW = 1200, 640


def cards():
    """Return cards of every type but films, some of them twice."""
    snapshot, atlas = load_example("directed"), load_atlas()
    values = [snapshot, snapshot.experiment, load_example("translation"), snapshot]
    values += [CLAIMS["one_matrix"], atlas, a_head(atlas)]
    return [value._repr_html_() for value in values]


@pytest.fixture
def requests(page):
    """Addresses that the page asked for."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    return asked


@pytest.mark.parametrize("theme", THEMES)
def test_cards_are_readable_and_load_nothing(page, requests, theme):
    """No request, no overflow, enough contrast, and every drawing has a description."""
    page.set_viewport_size({"width": WIDE, "height": 900})
    body = "<hr>".join(cards())
    page.set_content(
        f'<!doctype html><html lang="en"><title>Cards</title><body style="{THEMES[theme]}">'
        f"<main><h1>Cards</h1>{body}</main></body></html>"
    )
    for width in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [url for url in requests if not url.startswith("data:")] == []
    nameless = "node => !node.getAttribute('aria-label') && !node.closest('[aria-hidden]')"
    drawings = f"[...document.querySelectorAll('svg:not([aria-hidden])')].filter({nameless}).length"
    assert page.evaluate(drawings) == 0
    found = Axe().run(page).response["violations"]
    grave = [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found
             if one["impact"] in ("serious", "critical")]  # fmt: skip
    assert grave == []


def test_cards_leave_the_page_as_it_is(page):
    """A table of the notebook beside a card keeps its looks."""
    table = "<table id=own><tr><th>a<td>1</table>"
    look = "JSON.stringify([...getComputedStyle(document.querySelector('#own td'))].map(n => "
    look += "getComputedStyle(document.querySelector('#own td'))[n]))"
    page.set_content(f"<body>{table}</body>")
    before = page.evaluate(look)
    page.set_content(f"<body>{table}{cards()[0]}</body>")
    assert page.evaluate(look) == before


def test_a_film_plays_in_its_frame(page, requests):
    """The player moves through the frames without a server."""
    page.set_content(f"<body>{film_of()._repr_html_()}</body>")
    frame = page.frame_locator("iframe")
    frame.get_by_role("slider").first.wait_for()
    assert [url for url in requests if not url.startswith(("data:", "about:", "blob:"))] == []
