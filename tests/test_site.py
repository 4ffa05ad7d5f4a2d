"""The static site: its films, where its links lead, and its pages in a real Chromium."""

import contextlib
import random
import re
from html import unescape
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import WIDER, at_rest
from hypothesis import given
from hypothesis import strategies as st
from kinds import tiny
from playwright.sync_api import expect
from plotly.offline import get_plotlyjs

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.evidence.questions import QUESTIONS
from attnkit.experiment.links import read_link
from attnkit.figures.board import board, board_film, changes
from attnkit.site.frame import LOCAL_LAB, NAVIGATION, PLOTLY, html_of
from attnkit.site.lessons import lesson_page, lessons_page
from attnkit.site.pages import (
    HOME,
    answer_page,
    answers_page,
    atlas_page,
    capacity_page,
    inside_page,
    task_page,
)
from attnkit.tasks import TASKS
from attnkit.training.loops import stream
from attnkit.training.summary import percent
from attnkit.ui.lab.classroom import lessons

LEAVES = st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2)
VALUES = st.recursive(
    LEAVES,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from("xyz"), one),
    max_leaves=5,
)


def changed(base, change):
    """Return what `changed` of training.js returns."""
    if isinstance(change, list):
        return change[0]
    value = list(base) if isinstance(base, list) else dict(base)
    for key, one in change.items():
        at = int(key) if isinstance(base, list) else key
        value[at] = changed(base[at], one)
    return value


@given(VALUES, VALUES)
def test_changes_lead_from_one_value_to_the_other(value, base):
    """Any two values are alike after the changes, and equal values have no changes."""
    assert changed(base, changes(value, base)) == value
    assert changes({"x": value}, {"x": value}) == {}


def test_a_film_has_the_boards_that_the_lab_shows():
    """Every frame gives the board of its snapshot, number by number."""
    experiment = tiny("directed", sharing=["QKV", "Q=K"], n_heads=2, steps=8)
    snapshots = list(stream(experiment))
    header = InspectionResult.from_bytes(board_film(snapshots)).header
    assert header["steps"] == [snapshot.step for snapshot in snapshots]
    for snapshot, change in zip(snapshots, header["changes"], strict=True):
        shown = changed(header["board"], change)
        assert shown.pop("alt")
        assert shown.pop("file")
        layer = telling_layer(experiment.layer_specs)
        assert shown == board(snapshot, experiment, experiment.first_seed, layer, None)


def links_of(text):
    """Return what the links of a page lead to."""
    return re.findall(r'<a [^>]*href="([^"]*)"', text)


LAB = "https://lab.example.org/"
LESSONS = {name: lesson_page(name, lesson, LAB) for name, lesson in lessons().items()}


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_has_the_words_and_the_link_of_the_guide(name):
    """All of its text is there, and no mark of Markdown is left."""
    page, lesson = LESSONS[name], lessons()[name]
    shown = re.sub(r"\s", "", unescape(re.sub("<[^>]*>", "", page.body)))
    assert f"{LAB}{lesson.query}" in map(unescape, links_of(page.body))
    for text in (lesson.before, lesson.after):
        assert re.sub(r"^\|[-:|]+$|^#+ |[\s*|`]", "", text, flags=re.MULTILINE) in shown
    assert page.body.count("<table>") == 1


def test_every_link_leads_to_a_page_or_to_a_lab():
    """Pages name files that are written, and the button opens the experiment of the page."""
    first_page = task_page(tiny(HOME, steps=4), LAB)
    pages = [first_page, answers_page(), capacity_page(), atlas_page()]
    pages += [answer_page(*item) for item in QUESTIONS.items()]
    pages += [lessons_page(), *LESSONS.values()]
    files = {*NAVIGATION, *(page.file for page in pages), first_page.embed_file}
    files |= {f"task_{name}.html" for name in TASKS if name != HOME}
    assert first_page.file == next(iter(NAVIGATION))
    for page in pages:
        text = html_of(page)
        inside = [link for link in links_of(text) if not re.match("https?:|#", link)]
        assert set(inside) <= files, page.file
        assert not re.search(r'(src|href)="(https?:)?//(?!lab\.example\.org)', text), page.file
        assert len(text.encode()) < 1_500_000, page.file
    (lab,) = [link for link in links_of(html_of(first_page)) if link.startswith("https:")]
    query = urlsplit(unescape(lab)).query
    link = read_link(dict(part.split("=", 1) for part in query.split("&")), lambda _: None)
    assert (link.problems, link.experiment.task.name) == ([], HOME)


def test_bad_input_is_one_line(run):
    """It has the option and its value."""
    for named in ("--out=", "--lab=example.org", "--lab=javascript:alert(1)"):
        option, value = named.split("=")
        given = {"--out": "x", "--lab": LOCAL_LAB} | {option: value}
        code, output, error = run("site", *(part for pair in given.items() for part in pair))
        assert (code, output) == (2, "")
        assert all(told in error.splitlines()[-1] for told in (option, repr(value)))


EXPERIMENT = tiny(HOME, sharing=["QKV", "Q=K=V"], steps=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with some pages of the site."""
    made = tmp_path_factory.mktemp("site")
    (made / PLOTLY).write_text(get_plotlyjs(), encoding="utf-8")
    pages = [task_page(EXPERIMENT, LAB), inside_page("attention", EXPERIMENT, LAB)]
    for page in (*pages, answers_page(), atlas_page(), LESSONS["2_expressiveness"]):
        (made / page.file).write_text(html_of(page), encoding="utf-8")
        if page.embedded:
            (made / page.embed_file).write_text(page.embedded, encoding="utf-8")
    return made


@pytest.mark.browser
def test_the_first_page_shows_every_step_as_the_lab_does(page, folder, requested, seed):
    """Without a network, at drawn windows: numbers of the training; the player stays put."""
    draw = random.Random(seed)
    page.goto((folder / "index.html").as_uri())
    at_rest(page)
    snapshots, slider = list(stream(EXPERIMENT)), page.get_by_label("Training step")

    def show(k):
        slider.fill(str(k))
        page.wait_for_selector(f".ak-film[data-described='{snapshots[k].step}']")
        return slider.evaluate("(node) => Math.round(node.getBoundingClientRect().top + scrollY)")

    for k, snapshot in enumerate(snapshots):
        show(k)
        means = snapshot.per_sharing(snapshot.history["accuracy"][-1]).mean(-1)
        shown = page.locator(".ak-board-head .ak-value").all_inner_texts()
        assert shown == [percent(float(mean)) for mean in means]
    for width in (320, draw.randint(321, 3840)):
        page.set_viewport_size({"width": width, "height": draw.randint(480, 1200)})
        at_rest(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert show(0) == show(len(snapshots) - 1)
    assert all(address.startswith(("file:", "data:", "blob:")) for address in requested)


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_of_the_site_is_accessible(page, folder, theme, seed, long):
    """No rule of axe finds a fault, and nothing is cut at the right edge of a phone."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme=theme)
    files = sorted(folder.glob("*.html"))
    for file in files if long else [random.Random(f"{seed} {theme}").choice(files)]:
        page.goto(file.as_uri())
        if page.locator("#film").count():
            at_rest(page)
        found = [(v["id"], v["nodes"][0]["html"]) for v in Axe().run(page).response["violations"]]
        assert found == [], file.name
        wider = WIDER.replace(".ak-tip", ".ak-wide, .wide, .ak-board-grid, .ak-tip")
        assert page.evaluate(wider) == [], file.name


@pytest.mark.browser
def test_a_figure_of_the_site_follows_the_theme(page, folder, requested):
    """The copy of plotly.js beside the page draws it; texts have the colour of the page."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto((folder / "atlas.html").as_uri())
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    title = page.locator(".gtitle").first
    for theme in ("dark", "light"):
        page.emulate_media(color_scheme=theme)
        body = page.locator("body").evaluate("(node) => getComputedStyle(node).color")
        expect(title).to_have_css("fill", body)
    assert all(address.startswith(("file:", "data:", "blob:")) for address in requested)


@pytest.mark.browser
def test_without_scripts_all_texts_are_there(browser, folder):
    """The card of the last step stands in place of the film, and a line in that of a figure."""
    with contextlib.closing(browser.new_context(java_script_enabled=False)) as context:
        page = context.new_page()
        page.goto((folder / "index.html").as_uri())
        assert "QKV" in page.locator("#film table").inner_text()
        page.goto((folder / "atlas.html").as_uri())
        figure = page.locator(".ak-plotly").first
        assert figure.locator("noscript").is_visible()
        assert figure.bounding_box()["height"] < 40
