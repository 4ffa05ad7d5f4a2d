"""Saved figures and printed pages in a real Chromium: they show what the screen shows.

Pages, windows, themes, variants and sheets are drawn from `--seed`; `--long` draws many more.
"""

import io
import os
import random
import re
import shutil
import subprocess
import unicodedata
from xml.etree import ElementTree

import numpy as np
import pytest
from browsing import ALL_HAS_COME, at_rest
from kinds import tiny
from PIL import Image, ImageFilter

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.views import inspect
from attnkit.training.recorder import record
from attnkit.ui.reference.lessons import lessons
from attnkit.ui.standalone import standalone_html

pytestmark = [pytest.mark.browser, pytest.mark.server]

FILES = ["attention.html", "asymmetry.html", "similarity.html"]
FILMS = ["attention", "asymmetry", "similarity", "surgery"]
FIGURES_OF_RECORDS = ["capacity", "atlas", "questions"]
KINDS = [["lab"], FILES, FILMS, FIGURES_OF_RECORDS, ["runs", "guide", "variants"]]

NEAR = 2.0
"""Pixels by which a letter may stand elsewhere in a file."""

TILE, MOST_DIFFERENT = 16, 24
"""Pixels of a square, and by how much its mean brightness, 0 to 255, may differ in a file."""

VARIANTS = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V", "Q=K+unit_key+self_mask", "QKV d_k=3"]

FIGURES = """() => {
  const bodyOf = (menu) => menu.closest('.ak-film-figure')?.querySelector('.ak-film-body')
    ?? menu.closest('.ak-atlas')?.querySelector('.ak-atlas-panels')
    ?? menu.closest('.ak-board')?.querySelector('.ak-board-grid')
    ?? menu.closest('.ak-figure').querySelector('.ak-plot');
  const menus = [...document.querySelectorAll('.ak-save')].filter((menu) => menu.checkVisibility());
  menus.forEach((menu, k) => {
    menu.dataset.menu = k;
    bodyOf(menu).dataset.body = k;
  });
  return menus.length;
}"""
"""Numbers the menus and the boxes that they save; returns how many there are."""

AT_REST = """() => Promise.all([
  new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
  ...document.getAnimations().filter((one) => one.effect.getComputedTiming().endTime < Infinity)
    .map((one) => one.finished.catch(() => null))])"""
"""Waits until two frames are drawn and every transition has ended."""

LETTERS = """
const letters = (root, dx, dy, left, clipOf) => {
  const found = [], walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement, clips = [];
    if (parent.closest(left) || !parent.checkVisibility({visibilityProperty: true})) continue;
    for (let one = parent; one && one !== root; one = one.parentElement) clips.push(clipOf(one));
    const range = document.createRange();
    for (let k = 0; k < node.length; k++) {
      range.setStart(node, k);
      range.setEnd(node, k + 1);
      const box = range.getBoundingClientRect();
      const x = box.left + box.width / 2 + dx, y = box.top + box.height / 2 + dy;
      const seen = clips.every((clip) => !clip
        || (x > clip.left && x < clip.right && y > clip.top && y < clip.bottom));
      if (box.width && node.data[k].trim() && seen) found.push([node.data[k], x, y]);
    }
  }
  return found;
};
"""
"""Finds the letters that are seen below an element, with their middles."""

ON_SCREEN = (
    "([number, dx, dy]) => {"
    + LETTERS
    + """const moved = ({left, top, right, bottom}) =>
    ({left: left + dx, top: top + dy, right: right + dx, bottom: bottom + dy});
  return letters(document.querySelector(`[data-body="${number}"]`), dx, dy,
    '.ak-save, .ak-not-saved, .ak-tip, select, title, desc',
    (one) => !one.ownerSVGElement && getComputedStyle(one).overflowX === 'hidden'
      ? moved(one.getBoundingClientRect()) : null); }"""
)
"""Letters of a box, in the pixels of its file."""

IN_FILE = (
    "([text, dx, dy]) => {"
    + LETTERS
    + """const host = document.body.appendChild(document.createElement('div'));
  host.style.cssText = 'all: initial; position: fixed; left: 0; top: 0; line-height: 0';
  const inside = host.attachShadow({mode: 'open'});
  inside.innerHTML = text;
  const figure = [...inside.querySelector('svg').children].at(-1);
  const box = host.getBoundingClientRect();
  const found = letters(figure, -box.left, -box.top, 'title, desc', (one) => {
    const name = one.getAttribute('clip-path')?.match(/#(attnkit-clip-[^)]+)/)?.[1];
    if (!name) return null;
    const of = (side) => Number(inside.querySelector(`#${name} rect`).getAttribute(side));
    const left = of('x') + dx, top = of('y') + dy;
    return {left, top, right: left + of('width'), bottom: top + of('height')};
  });
  host.remove();
  return found; }"""
)
"""Letters of a file, drawn without the style sheets of the page."""


def drawn(seed, long):
    """Return generators of random choices with a page each: by day one of each kind of page.

    At night these are all pages, ten times.
    """
    choice = random.Random(seed)
    order = [one for kind in KINDS for one in kind] * 10 if long else map(choice.choice, KINDS)
    return [(random.Random(f"{seed} {k} {page}"), page) for k, page in enumerate(order)]


TRIES = 5
"""Times that a figure is saved, until it is the same on screen twice in a row."""


def lacking(some, others):
    """Return the letters that none of the others has in about their place."""
    places = {}
    for letter, x, y in others:
        places.setdefault(letter, []).append((x, y))
    return [
        (letter, round(x), round(y))
        for letter, x, y in some
        if all(abs(x - a) > NEAR or abs(y - b) > NEAR for a, b in places.get(letter, []))
    ]


def saved(page, number, kind):
    """Return the bytes of a file that a menu gives."""
    menu = page.locator(f'[data-menu="{number}"]')
    menu.locator("summary").click()
    with page.expect_download() as download:
        menu.get_by_role("button", name=f"Save as {kind}").click()
    assert re.fullmatch(r"attnkit(-[\w=,+]+){2,}\.\w+", download.value.suggested_filename)
    return download.value.path().read_bytes()


def assert_saved_as_shown(page, number):
    """Check one figure: its letters in the SVG, and its picture in the PNG."""
    body, shown = page.locator(f'[data-body="{number}"]'), None
    for _ in range(TRIES):  # the page may be drawn anew meanwhile, when an example has come
        text = saved(page, number, "SVG").decode()
        places = re.findall(r"\n<g transform=\"translate\((\S+) (\S+)\)\">", text)
        dx, dy = map(float, places[-1])
        before, shown = shown, page.evaluate(ON_SCREEN, [number, dx, dy])
        if shown == before:
            break
    ElementTree.fromstring(text)
    box = body.bounding_box()
    written = page.evaluate(IN_FILE, [text, dx, dy])
    assert shown
    assert lacking(shown, written) == []
    picture = Image.open(io.BytesIO(saved(page, number, "PNG"))).convert("RGB")
    picture = picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BOX)
    page.evaluate("CSS.highlights?.clear()")
    left_out = ".ak-save, .ak-tip, .ak-not-saved { visibility: hidden !important; }"
    hiding = page.add_style_tag(content=left_out)
    page.mouse.move(1, 1)
    screen = Image.open(io.BytesIO(page.screenshot(clip=box, animations="disabled"))).convert("RGB")
    hiding.evaluate("(node) => node.remove()")
    left, top = round(box["x"] + dx), round(box["y"] + dy)
    width, height = (
        min(screen.width, picture.width - left),
        min(screen.height, picture.height - top),
    )
    pair = [
        image.crop(area).filter(ImageFilter.GaussianBlur(2))
        for image, area in (
            (screen, (max(0, -left), max(0, -top), width, height)),
            (picture, (max(0, left), max(0, top), left + width, top + height)),
        )
    ]
    difference = np.abs(np.subtract(*(np.asarray(image, float).mean(-1) for image in pair)))
    rows, columns = (n // TILE for n in difference.shape)
    tiles = difference[: rows * TILE, : columns * TILE].reshape(rows, TILE, columns, TILE)
    worst = tiles.mean((1, 3))
    assert worst.max() <= MOST_DIFFERENT, np.unravel_index(worst.argmax(), worst.shape)


@pytest.fixture(scope="module")
def film():
    """A film of variants with long names and two heads."""
    variants = ["QKV", "Q=K", "K=V", "Q=K=V", "QKV d_k=3", "QKV n_heads=1"]
    return record(tiny("directed", sharing=variants, n_heads=2, d_head=6, steps=12))


def open_page(page, address, choice, name, film, folder, long):
    """Open a page in a window of some width, in the state that is drawn."""
    page.set_viewport_size({"width": choice.randint(800, 1600), "height": 6000})
    page.emulate_media(color_scheme=choice.choice(["light", "dark"]))
    if name in FILES:
        path, component = folder / name, name.removesuffix(".html")
        view = {"asymmetry": "symmetry"}.get(component, component)
        blob = inspect(film, Inspection(view)).to_bytes()
        path.write_text(standalone_html("Film", component, blob))
        page.goto(path.as_uri())
        page.locator(".ak-more > summary").click()
        page.locator(".ak-range").fill(str(choice.randint(0, 6)))
        at_rest(page)
        return
    sharing = ",".join(choice.sample(VARIANTS, choice.randint(2, 6))).replace("+", "%2B")
    drawn_link = choice.choice(["", f"?v=1&sharing={sharing}"]) if long else ""
    page.goto(f"{address}/{drawn_link if name == 'lab' else name}")
    page.wait_for_selector(DRAWN.get(name, "h1"), state="attached")
    if name == "lab" and long:
        page.locator(".st-key-larger summary").first.click()
        page.wait_for_selector(".st-key-measures .ak-plot[data-draws]")
    page.wait_for_function(READY)


WITH_ALL_FIVE = {"lab", "attention", "asymmetry", "similarity", "surgery", "capacity", "guide"}
"""Pages whose figures have all five sharings."""

WITH_MAPS = {"lab": 1000, "attention": 1000, "capacity": 1000}
"""Pages with maps, and how many pixels of their maps are of the darkest colours on paper."""

FIGURE_WORDS = """() => [...document.querySelectorAll(`.ak-board-head *, .ak-board-chart text,
    .ak-board-pair span, .ak-film-body :is(text, td), .ak-plot text, .ak-atlas-panel b`)]
  .filter((node) => !node.children.length && node.checkVisibility({visibilityProperty: true}))
  .map((node) => node.textContent)"""
"""Texts that figures have in every width; the Lab's rows have shorter names in narrow ones."""

SIDEBAR_WORDS = """() => {
  const main = document.querySelector('[data-testid=stMain]').textContent;
  return [...document.querySelectorAll('[data-testid=stSidebar] *')]
    .filter((node) => !node.children.length)
    .flatMap((node) => node.textContent.split(/\\s+/))
    .filter((word) => word && !main.includes(word)); }"""
"""Words of the navigation and the settings that the page itself has not."""

READY = f"() => {ALL_HAS_COME} && Object.hasOwn(history, 'pushState')"
"""Whether the page is at rest and its own script has come."""

DRAWN = {"lab": ".ak-board[data-draws] canvas", "surgery": ".ak-ways table", "guide": ".ak-card"}
DRAWN |= dict.fromkeys(["attention", "asymmetry", "similarity"], ".ak-film[data-described='600']")
DRAWN |= dict.fromkeys(["capacity", "atlas", "questions"], ".ak-plot[data-draws]")


@pytest.fixture(scope="module")
def poppler():
    """Programs that read PDF; without them the test is skipped, but never in CI."""
    if shutil.which("pdftotext") is None:
        assert not os.environ.get("CI"), "CI needs Debian's package `poppler-utils`"
        pytest.skip("no pdftotext on this machine (Debian's package `poppler-utils`)")


def words_of(path):
    """Return the words of every sheet of a PDF with their boxes, and the size of the sheets."""
    told = subprocess.run(["pdftotext", "-bbox", path, "-"], capture_output=True, check=True).stdout
    name = "{http://www.w3.org/1999/xhtml}"
    for sheet in ElementTree.fromstring(told).iter(f"{name}page"):
        size = float(sheet.get("width")), float(sheet.get("height"))
        yield (
            size,
            [
                (word.text, *(float(word.get(side)) for side in ("xMin", "yMin", "xMax", "yMax")))
                for word in sheet.iter(f"{name}word")
            ],
        )


def covered(words):
    """Return pairs of words that cover each other's middles by 30% of the smaller one.

    A word's box is higher than its letters, so that boxes of lines below each other may overlap.
    """
    left, top, right, bottom = np.array([box for _, *box in words]).T
    area, edge = (right - left) * (bottom - top) / 2, (bottom - top) / 4
    sides = (left, right), (top + edge, bottom - edge)
    shared = np.prod(
        [(np.minimum.outer(b, b) - np.maximum.outer(a, a)).clip(0) for a, b in sides], axis=0
    )
    over = np.triu(shared > 0.3 * np.minimum.outer(area, area), 1)
    return [(words[i], words[j]) for i, j in np.argwhere(over)]


def typed(words):
    """Return words as one text, with letters as they are typed."""
    return unicodedata.normalize("NFKC", "".join(words))


def assert_printed_whole(page, name, choice, folder):
    """Check a printed page: light, nothing cut or over another, no navigation, no controls."""
    least = 800 if name == "lab" else 390  # in a wide window the sidebar is open
    page.set_viewport_size(
        {"width": choice.randint(least, 1700), "height": choice.randint(640, 1100)}
    )
    page.evaluate(AT_REST)
    shown, sidebar = page.evaluate(FIGURE_WORDS), page.evaluate(SIDEBAR_WORDS)
    assert sidebar or name != "lab"
    path = folder / f"{name}.pdf"
    sheet = {"format": choice.choice(["A4", "Letter"]), "landscape": choice.random() < 0.5}
    page.pdf(path=path, print_background=True, **sheet)
    sheets = list(words_of(path))
    for (width, height), words in sheets:
        assert words, "an empty sheet"
        for word, left, top, right, bottom in words:
            assert min(left, top, width - right, height - bottom) > 15, word
        upright = [word for word in words if len(word[0]) > 1]  # turned ones come in letters
        assert covered(upright) == []
    printed = [word for _, words in sheets for word, *_ in words]
    assert {w for text in shown for w in text.split() if typed(w) not in typed(printed)} == set()
    assert not {"Save", "Projector", "Downloads", *sidebar} & set(printed)
    if name in WITH_ALL_FIVE:
        assert {"QKV", "Q=K", "K=V", "Q=V", "Q=K=V"} <= set(printed)
    command = ["pdftoppm", "-r", "72", "-png", path, folder / name]
    subprocess.run(command, check=True)
    pictures = [Image.open(one).convert("RGB") for one in folder.glob(f"{name}-*.png")]
    assert {picture.getpixel((x, 4)) for picture in pictures for x in (4, 300)} == {(255,) * 3}
    inks = np.concatenate([np.asarray(picture, int).reshape(-1, 3) for picture in pictures])
    dark = np.abs(inks - (68, 1, 84)).sum(-1) < 60
    assert dark.sum() >= WITH_MAPS.get(name, 0)
    for one in folder.glob(f"{name}-*.png"):
        one.unlink()


def test_files_and_paper_show_what_the_screen_shows(
    visitors, address, poppler, film, tmp_path, seed, long
):
    """Every letter and every shape, of figures that are saved and of pages that are printed.

    Five pages are opened; files are compared with pictures of the screen, prints are read again.
    """
    for choice, name in drawn(seed, long):
        page = visitors.arrive()
        open_page(page, address, choice, name, film, tmp_path, long)
        numbers = list(range(page.evaluate(FIGURES)))
        assert numbers or name not in ("lab", *FILES, *FIGURES_OF_RECORDS)
        for number in choice.sample(numbers, min(1 + long, len(numbers))):
            assert_saved_as_shown(page, number)
        if name not in FILES:
            assert_printed_whole(page, name, choice, tmp_path)
        visitors.leave(page)


def test_every_lesson_is_printed_whole_on_two_sheets_at_most(
    visitors, address, poppler, tmp_path, seed
):
    """A teacher hands it out: the text with its link, without the choice of lessons."""
    choice, page = random.Random(seed), visitors.arrive()
    page.goto(f"{address}/guide?lesson={next(iter(lessons()))}")
    for name, lesson in lessons().items():
        page.locator(".st-key-lesson button", has_text=lesson.title).click()
        page.wait_for_selector(f"h1:has-text('{lesson.title}')")
        page.wait_for_function(READY)
        path = tmp_path / f"{name}.pdf"
        page.pdf(path=path, format=choice.choice(["A4", "Letter"]), print_background=True)
        sheets = list(words_of(path))
        printed = typed([word for _, words in sheets for word, *_ in words])
        parts = re.findall(r"[\w’]+", f"{lesson.title} {lesson.before} {lesson.after}")
        assert [part for part in parts if typed([part]) not in printed] == []
        assert lesson.query in printed
        assert "Seeitastheclasswill" not in printed
        assert len(sheets) <= 2, name
    visitors.leave(page)
