"""Saved figures and printed pages in Chromium: whether they show what the screen shows."""

import io
import os
import re
import shutil
import subprocess
import unicodedata
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image, ImageFilter

NEAR = 2.0
"""Pixels by which a letter may stand elsewhere in a file."""

TILE, MOST_DIFFERENT = 16, 24
"""Pixels of a square, and by how much its mean brightness, 0 to 255, may differ in a file."""

WITH_MAPS = {"lab", "attention", "capacity"}
"""Pages whose maps have at least 1000 pixels of the darkest colours on paper."""

NUMBER_FIGURES = """() => {
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

ON_SCREEN = f"""([number, dx, dy]) => {{ {LETTERS}
  const moved = ({{left, top, right, bottom}}) =>
    ({{left: left + dx, top: top + dy, right: right + dx, bottom: bottom + dy}});
  return letters(document.querySelector(`[data-body="${{number}}"]`), dx, dy,
    '.ak-save, .ak-not-saved, .ak-tip, select, title, desc',
    (one) => !one.ownerSVGElement && getComputedStyle(one).overflowX === 'hidden'
      ? moved(one.getBoundingClientRect()) : null); }}"""
"""Letters of a box, in the pixels of its file."""

IN_FILE = f"""([text, dx, dy]) => {{ {LETTERS}
  const host = document.body.appendChild(document.createElement('div'));
  host.style.cssText = 'all: initial; position: fixed; left: 0; top: 0; line-height: 0';
  const inside = host.attachShadow({{mode: 'open'}});
  inside.innerHTML = text;
  const figure = [...inside.querySelector('svg').children].at(-1);
  const box = host.getBoundingClientRect();
  const found = letters(figure, -box.left, -box.top, 'title, desc', (one) => {{
    const name = one.getAttribute('clip-path')?.match(/#(attnkit-clip-[^)]+)/)?.[1];
    if (!name) return null;
    const of = (side) => Number(inside.querySelector(`#${{name}} rect`).getAttribute(side));
    const left = of('x') + dx, top = of('y') + dy;
    return {{left, top, right: left + of('width'), bottom: top + of('height')}};
  }});
  host.remove();
  return found; }}"""
"""Letters of a file, drawn without the style sheets of the page."""

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

SETTLED = """() => Promise.all([
  new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
  ...document.getAnimations().filter((one) => one.effect.getComputedTiming().endTime < Infinity)
    .map((one) => one.finished.catch(() => null))])"""
"""Waits until two frames are drawn and every transition has ended."""


def assert_saved_as_shown(page, number):
    """Check one figure: its letters in the SVG, and its picture in the PNG."""
    body, shown = page.locator(f'[data-body="{number}"]'), None
    for _ in range(5):  # the page may be drawn anew meanwhile, when an example has come
        text = _file_of(page, number, "SVG").decode()
        places = re.findall(r"\n<g transform=\"translate\((\S+) (\S+)\)\">", text)
        dx, dy = map(float, places[-1])
        before, shown = shown, page.evaluate(ON_SCREEN, [number, dx, dy])
        if shown == before:
            break
    ElementTree.fromstring(text)
    box = body.bounding_box()
    assert shown
    places = {}
    for letter, x, y in page.evaluate(IN_FILE, [text, dx, dy]):
        places.setdefault(letter, []).append((x, y))
    lacking = [
        (letter, round(x), round(y))
        for letter, x, y in shown
        if all(abs(x - a) > NEAR or abs(y - b) > NEAR for a, b in places.get(letter, []))
    ]
    assert lacking == []
    picture = Image.open(io.BytesIO(_file_of(page, number, "PNG"))).convert("RGB")
    picture = picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BOX)
    page.evaluate("CSS.highlights?.clear()")
    left_out = ".ak-save, .ak-tip, .ak-not-saved { visibility: hidden !important; }"
    hiding = page.add_style_tag(content=left_out)
    page.mouse.move(1, 1)
    screen = Image.open(io.BytesIO(page.screenshot(clip=box, animations="disabled"))).convert("RGB")
    hiding.evaluate("(node) => node.remove()")
    left, top = round(box["x"] + dx), round(box["y"] + dy)
    heading = 16 + 20 * text.split("\n<g ")[0].count("<text ")  # it stands where controls may be
    x0, y0 = max(0, left), max(0, top, heading)
    x1, y1 = min(left + screen.width, picture.width), min(top + screen.height, picture.height)
    of_file = picture.crop((x0, y0, x1, y1))
    of_screen = screen.crop((x0 - left, y0 - top, x1 - left, y1 - top))
    blurred = (one.filter(ImageFilter.GaussianBlur(2)) for one in (of_screen, of_file))
    difference = np.abs(np.subtract(*(np.asarray(one, float).mean(-1) for one in blurred)))
    rows, columns = (n // TILE for n in difference.shape)
    tiles = difference[: rows * TILE, : columns * TILE].reshape(rows, TILE, columns, TILE)
    different = np.argwhere(tiles.mean((1, 3)) > MOST_DIFFERENT)
    assert different.tolist() == [], body.get_attribute("aria-label")


def _file_of(page, number, kind):
    menu = page.locator(f'[data-menu="{number}"]')
    menu.locator("summary").click()
    with page.expect_download() as download:
        menu.get_by_role("button", name=f"Save as {kind}").click()
    assert re.fullmatch(r"attnkit(-[\w=,+]+){2,}\.\w+", download.value.suggested_filename)
    return download.value.path().read_bytes()


def needs_poppler():
    """Skip a test without the programs that read PDF; in CI, where they must be, it fails."""
    if shutil.which("pdftotext") is None:
        assert not os.environ.get("CI"), "CI needs Debian's package `poppler-utils`"
        pytest.skip("no pdftotext on this machine (Debian's package `poppler-utils`)")


def typed(words):
    """Return words as one text, with letters as they are typed."""
    return unicodedata.normalize("NFKC", "".join(words))


def assert_printed_whole(page, name, choice, folder):
    """Check a printed page: light, nothing cut or over another, no navigation, no controls."""
    least = 800 if name == "lab" else 390  # in a wide window the sidebar is open
    size = {"width": choice.randint(least, 1700), "height": choice.randint(640, 1100)}
    page.set_viewport_size(size)
    page.evaluate(SETTLED)
    shown, sidebar = page.evaluate(FIGURE_WORDS), page.evaluate(SIDEBAR_WORDS)
    assert sidebar or name != "lab"
    path = folder / f"{name}.pdf"
    sheet = {"format": choice.choice(["A4", "Letter"]), "landscape": choice.random() < 0.5}
    page.pdf(path=path, print_background=True, **sheet)
    told = subprocess.run(["pdftotext", "-bbox", path, "-"], capture_output=True, check=True).stdout
    name_space, sides, printed = "{http://www.w3.org/1999/xhtml}", "xMin yMin xMax yMax".split(), []
    for one in ElementTree.fromstring(told).iter(f"{name_space}page"):
        width, height = (float(one.get(side)) for side in ("width", "height"))
        words = [
            (word.text, *(float(word.get(side)) for side in sides))
            for word in one.iter(f"{name_space}word")
        ]
        printed += [word for word, *_ in words]
        assert words, "an empty sheet"
        for word, left, top, right, bottom in words:
            assert min(left, top, width - right, height - bottom) > 15, word
        # Two words share at most 30% of the smaller one, of whose box the letters are the middle.
        boxes = np.array([box for word, *box in words if len(word) > 1])  # not turned ones
        quarter = (boxes[:, 3] - boxes[:, 1]) / 4
        low = boxes[:, :2] + [[0, 1]] * quarter[:, None]
        high = boxes[:, 2:] - [[0, 1]] * quarter[:, None]
        shared = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
        area = (high - low).prod(-1)
        over = shared.clip(0).prod(-1) > 0.3 * np.minimum.outer(area, area)
        assert not np.triu(over, 1).any(), np.argwhere(np.triu(over, 1))
    assert {w for text in shown for w in text.split() if typed(w) not in typed(printed)} == set()
    assert not {"Save", "Projector", "Downloads", *sidebar} & set(printed)
    subprocess.run(["pdftoppm", "-r", "72", "-png", path, folder / name], check=True)
    pictures = [Image.open(one).convert("RGB") for one in folder.glob(f"{name}-*.png")]
    assert {picture.getpixel((x, 4)) for picture in pictures for x in (4, 300)} == {(255,) * 3}
    inks = np.concatenate([np.asarray(picture, int).reshape(-1, 3) for picture in pictures])
    dark = np.abs(inks - (68, 1, 84)).sum(-1) < 60
    assert dark.sum() >= (1000 if name in WITH_MAPS else 0)
