"""Visits of the dashboard drawn from a seed, and the faults of layout that they find."""

import random
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from browsing import ALL_HAS_COME

from attnkit.claims import CLAIMS
from attnkit.evidence.questions import QUESTIONS
from attnkit.experiment.links import GROUPS
from attnkit.foundation.language import LANGUAGES
from attnkit.tasks import TASKS
from attnkit.ui.reference.lessons import lessons
from attnkit.variants import CATALOGUE

SIZES = ((320, 2600), (500, 1440))
"""Smallest and largest width and height of a screen, in pixels."""

LEAST = (320, 400)
"""Smallest width and height of a window after zooming, in CSS pixels."""

ALL_IN_VIEW = (1280, 640)
"""Width and height from which on all measures of five variants are in one view."""

PAGES = (
    *("attention", "asymmetry", "similarity", "surgery", "atlas", "variants", "guide", "runs"),
    *(f"questions?question={name}" for name in (*QUESTIONS, "new")),
    *(f"questions?claim={name}" for name in CLAIMS),
    *(f"guide?lesson={name}&lang={code}" for name in lessons() for code in LANGUAGES),
    *("questions", "capacity"),
)

STATES = {
    "example": {},
    "untrained": {"steps": 310},
    "training": {"n_seeds": 1, "steps": 20_000},
    "finished": {"n_seeds": 2, "steps": 20, "evaluate_every": 10},
    "failed": {"n_seeds": 1, "steps": 20, "evaluate_every": 10, "learning_rate": 1.0},
    "message": {"n_heads": 999, "no_such_field": 1},
    "guess": {"quiet": 1},
}
"""States of the Lab, and the settings that lead there."""

_FINDER = (Path(__file__).parent / "javascript" / "layout_faults.js").read_text(encoding="utf-8")

FAULTS = f"(wanted) => {{ {_FINDER.replace('export ', '', 1)} return layoutFaults(wanted); }}"

STILL = f"""() => {{
  const main = document.querySelector('[data-testid=stMain]');
  if (!main) return false;
  const parts = '[data-testid=stSidebar], .ak-board-grid, .ak-board-column, .ak-picture, svg';
  const boxes = [...document.querySelectorAll(parts)].map((node) => node.getBoundingClientRect());
  const now = JSON.stringify([innerWidth, innerHeight, main.scrollHeight, main.scrollWidth, boxes]);
  const same = window.lastSize === now;
  window.lastSize = now;
  return same && {ALL_HAS_COME} && main.querySelector('h1')
    && !document.getAnimations().some((one) => one instanceof CSSTransition)
    && [...document.querySelectorAll('.ak-picture')].every((node) => node.firstChild)
    && (!main.querySelector('.st-key-bar') || main.querySelector('.ak-board-column')
      && main.querySelector('.ak-token-box'));
}}"""
"""Whether all of a page is drawn, and nothing has moved since the last time of asking."""

SEE_ALL = """async () => {
  const main = document.querySelector('[data-testid=stMain]');
  for (let y = 0; y < main.scrollHeight; y += innerHeight) {
    main.scrollTo(0, y);
    await new Promise((done) => setTimeout(done, 60));
  }
  main.scrollTo(0, 0);
}"""
"""Scrolls to the end and back: figures out of sight are drawn anew when they come into sight."""

MOVING = """() => document.querySelector('.ak-board-column canvas')
  && document.querySelector('.ak-board').dataset.step > 0"""

ENDED = "() => document.querySelector('.st-key-stop button').disabled"

FOLDED = ":is([data-testid=stExpander] details, .ak-more):not([open]) > summary"


@dataclass
class Visit:
    """A page in a state, and the windows in which it is looked at."""

    path: str
    state: str
    theme: str
    windows: list[tuple[int, int]]
    all_in_view: bool = False

    def __str__(self):
        """Say how to see it again."""
        return f"{self.path or '/'} ({self.state}, {self.theme})"


def draw_visits(seed, n_visits, n_windows=3):
    """Draw visits of the Lab in its states, and of other pages."""
    rng = random.Random(seed)
    return [_draw_visit(rng, n_windows) for _ in range(n_visits)]


def _draw_visit(rng, n_windows):
    windows = [draw_window(rng) for _ in range(n_windows)]
    theme = rng.choice(("light", "dark"))
    if rng.random() < 0.3:
        return Visit(rng.choice(PAGES), "page", theme, windows)
    state = rng.choice(list(STATES))
    task = "directed" if rng.random() < 0.4 else rng.choice(list(TASKS))
    fields = {"v": 1, "task": task}
    if rng.random() < 0.4:
        fields["sharing"] = ",".join(_draw_variants(rng))
    if rng.random() < 0.4:
        fields["hide"] = ",".join(rng.sample(list(GROUPS), rng.randint(1, 3)))
    if rng.random() < 0.4:
        fields["lang"] = rng.choice(list(LANGUAGES))
    plain = state in ("example", "untrained", "finished") and "sharing" not in fields
    fields |= STATES[state]
    path = "?" + "&".join(f"{name}={quote(str(value), safe=',')}" for name, value in fields.items())
    return Visit(path, state, theme, windows, plain)


def draw_window(rng):
    """Draw a screen and a zoom; return the window that pages see, in CSS pixels."""
    screen = [round(low * (high / low) ** rng.random()) for low, high in SIZES]
    zoom = rng.choice((1, 1, 1, 1.25, 1.5, 2))
    width, height = (round(side / zoom) for side in screen)
    return (width, height) if width >= LEAST[0] and height >= LEAST[1] else tuple(screen)


def _draw_variants(rng):
    """Draw one to six variants that need one layer, those with the longest names among them."""
    names = [entry.variant.value for entry in CATALOGUE.values() if entry.variant.least_layers == 1]
    names.sort(key=len)
    chosen = rng.sample(names, rng.randint(1, 5))
    return list(dict.fromkeys([*chosen, names[-1 - rng.randrange(5)]]))


def faults_in(page, window, all_in_view=False, moves=False):
    """Return what no reader would accept in a window of this size."""
    width, height = window
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(500 if moves else 50)
    page.evaluate(SEE_ALL)
    if not moves:
        page.wait_for_function(STILL, polling=250)
    wide = width >= ALL_IN_VIEW[0] and height >= ALL_IN_VIEW[1]
    return page.evaluate(FAULTS, {"measuresInView": all_in_view and wide})


def search(visitors, address, visits, pictures):
    """Make the visits, and yield a line for every window with faults; pictures are in a folder."""
    for number, visit in enumerate(visits):
        page, moves = visitors.arrive(*visit.windows[0]), visit.state == "training"
        page.emulate_media(color_scheme=visit.theme)
        page.goto(f"{address}/{visit.path}")
        page.wait_for_function(STILL, polling=250)
        if visit.state in ("training", "finished", "failed"):
            _train(page, to_its_end=not moves)
        for width, height in visit.windows:
            if faults := faults_in(page, (width, height), visit.all_in_view, moves):
                page.screenshot(path=pictures / f"{number}-{width}x{height}.png")
                yield f"{width} x {height} {visit}: {'; '.join(faults)}"
        if moves:
            page.evaluate("document.querySelector('.st-key-stop button').click()")
        visitors.leave(page)


def _train(page, to_its_end):
    """Press Train, unless an earlier visit has."""
    train = page.locator(".st-key-train button").first
    if train.is_disabled():
        return
    train.evaluate("(node) => node.click()")  # an open sidebar lies over it on a phone
    page.wait_for_function(MOVING, polling=250)
    if to_its_end:
        page.wait_for_function(ENDED, polling=250)
        page.wait_for_function(STILL, polling=250)


def open_folds(page):
    """Open all that a press unfolds on a page."""
    for fold in page.locator(FOLDED).all()[::-1]:
        fold.evaluate("(summary) => summary.click()")
