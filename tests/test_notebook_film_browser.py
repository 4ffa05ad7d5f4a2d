"""The player of a film in a notebook: light or dark like the notebook, whatever the system is."""

import pytest
from filming import film_of

pytestmark = pytest.mark.browser

BACKGROUND = "getComputedStyle(document.body).backgroundColor"

LIGHT, DARK = "rgb(255, 255, 255)", "rgb(14, 17, 23)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [("#212121", LIGHT), ("#e0e0e0", DARK), ("oklch(0.93 0 0)", DARK)],
)
def test_a_player_has_the_theme_of_its_notebook(page, scheme, text, expected):
    """The text around the frame decides, in whatever notation its colour is written."""
    page.emulate_media(color_scheme=scheme)
    page.set_content(f'<body style="color: {text}">{film_of()._repr_html_()}</body>')
    frame = page.frame_locator("iframe")
    frame.get_by_role("slider").first.wait_for()
    assert frame.locator("body").evaluate(f"() => {BACKGROUND}") == expected
