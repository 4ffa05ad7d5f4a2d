"""Visits of the dashboard drawn from a seed, and the faults of layout that they find."""

import random
from dataclasses import dataclass, field
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

TWO_BANDS = ((680, 820), (1250, 1440))
"""Least and largest width and height of windows in which five columns stand in two bands."""

PAGES = (
    *("attention", "asymmetry", "similarity", "surgery", "atlas", "variants", "guide", "runs"),
    *(f"questions?question={name}" for name in (*QUESTIONS, "new")),
    *(f"guide?lesson={name}" for name in lessons()),
    *("questions", "capacity"),
)

STATES = ("example", "untrained", "training", "finished", "failed", "message", "guess")
"""States of the Lab."""

_FINDER = (Path(__file__).parent / "javascript" / "layout_faults.js").read_text(encoding="utf-8")

FAULTS = f"(wanted) => {{ {_FINDER.replace('export ', '', 1)} return layoutFaults(wanted); }}"

READY = f"""() => {{
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

MOVING = """() => document.querySelector('.ak-board-column canvas')
  && document.querySelector('.ak-board').dataset.step > 0"""


FOLDED = ":is([data-testid=stExpander] details, .ak-more):not([open]) > summary"

CLOSE = """() => innerWidth <= 768
  && document.querySelector('[data-testid=stSidebarCollapseButton] button')?.click()"""
"""Closes a sidebar that lies over the page."""

ENDED = "() => document.querySelector('.st-key-stop button').disabled"

PATIENCE = 300_000
"""Milliseconds; the machine may be busy, and waiting ends with the condition."""


@dataclass
class Visit:
    """A page in a state, and the windows in which it is looked at."""

    path: str
    state: str = "example"
    theme: str = "light"
    projector: bool = False
    windows: list[tuple[int, int]] = field(default_factory=list)
    all_in_view: bool = False
    two_bands: bool = False
    unfolded: bool = False


def draw_visits(seed, n_windows, per_visit):
    """Draw visits that look at `n_windows` windows in all, `per_visit` of them each.

    The first window of every fifth visit shows the columns of the Lab in two bands.
    """
    rng = random.Random(seed)
    return [_draw_visit(rng, per_visit, k % 5 == 0) for k in range(n_windows // per_visit)]


def _draw_visit(rng, n_windows, two_bands):
    windows = [_draw_window(rng) for _ in range(n_windows)]
    if two_bands:
        windows[0] = tuple(rng.randint(*side) for side in TWO_BANDS)
    theme = rng.choice(("light", "dark"))
    if not two_bands and rng.random() < 0.4:
        page = rng.choice((*PAGES, f"questions?claim={rng.choice(list(CLAIMS))}"))
        if page.startswith("guide"):
            page += f"{'&' if '?' in page else '?'}lang={rng.choice(list(LANGUAGES))}"
        projector, unfolded = rng.random() < 0.15, rng.random() < 0.5
        return Visit(page, "page", theme, projector, windows, unfolded=unfolded)
    state = "example" if two_bands else rng.choice(STATES)
    task = "directed" if rng.random() < 0.4 else rng.choice(list(TASKS))
    fields = {"v": 1, "task": task}
    if not two_bands and rng.random() < 0.4:
        fields["sharing"] = ",".join(_draw_variants(rng))
    if rng.random() < 0.4:
        fields["hide"] = ",".join(rng.sample(list(GROUPS), rng.randint(1, 3)))
    fields |= {
        "example": {},
        "untrained": {"steps": 310},
        "training": {"n_seeds": 1, "steps": 20_000},
        "finished": {"n_seeds": 2, "steps": 20, "evaluate_every": 10},
        "failed": {"n_seeds": 1, "steps": 20, "evaluate_every": 10, "learning_rate": 1.0},
        "message": {"n_heads": 999, "no_such_field": 1},
        "guess": {"quiet": 1},
    }[state]
    if rng.random() < 0.4:
        fields["lang"] = rng.choice(list(LANGUAGES))
    projector = not two_bands and rng.random() < 0.1
    plain = state in ("example", "untrained", "finished") and "sharing" not in fields
    path = "?" + "&".join(f"{name}={quote(str(value), safe=',')}" for name, value in fields.items())
    return Visit(path, state, theme, projector, windows, plain and not projector, two_bands)


def _draw_window(rng):
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


def search(arrive, leave, address, visits, pictures):
    """Make the visits and yield each with its window and its faults.

    Args:
        arrive: Opens a page for a new visitor.
        leave: Ends the visit of a page.
        address: Address of the dashboard.
        visits: Visits to make.
        pictures: Folder for pictures of windows with faults.
    """
    for number, visit in enumerate(visits):
        page = arrive(*visit.windows[0])
        page.emulate_media(color_scheme=visit.theme)
        page.goto(f"{address}/{visit.path}")
        page.wait_for_function(READY, polling=250)
        _bring_about(page, visit)
        for place, window in enumerate(visit.windows):
            page.set_viewport_size({"width": window[0], "height": window[1]})
            page.wait_for_timeout(50)
            page.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
            if visit.state == "training":
                page.wait_for_timeout(500)
            else:
                page.wait_for_function(READY, polling=250)
            wide = all(side >= least for side, least in zip(window, ALL_IN_VIEW, strict=True))
            bands = visit.two_bands and place == 0
            wanted = {"measuresInView": visit.all_in_view and wide, "twoBands": bands}
            faults = page.evaluate(FAULTS, wanted)
            if faults:
                page.screenshot(path=Path(pictures) / f"{number}-{window[0]}x{window[1]}.png")
            yield visit, window, faults
        if visit.state == "training":
            page.evaluate("document.querySelector('.st-key-stop button').click()")
        leave(page)


def open_folds(page):
    """Open all that a press unfolds on a page."""
    for fold in page.locator(FOLDED).all()[::-1]:
        fold.evaluate("(summary) => summary.click()")


def _bring_about(page, visit):
    """Bring the page into the state of a visit."""
    if visit.unfolded:
        open_folds(page)
        page.wait_for_function(READY, polling=250)
    if visit.projector:
        open_sidebar = page.locator("[data-testid=stExpandSidebarButton]")
        if open_sidebar.is_visible():
            open_sidebar.click()
        page.locator(".st-key-projector label").first.click()
        page.evaluate(CLOSE)
        page.wait_for_function(READY, polling=250)
    if visit.state in ("training", "finished", "failed"):
        train = page.locator(".st-key-train button").first
        if train.is_disabled():  # already stored by an earlier visit
            return
        train.evaluate("(node) => node.click()")  # an open sidebar lies over it on a phone
        page.wait_for_function(MOVING, polling=250, timeout=PATIENCE)
        if visit.state != "training":
            page.wait_for_function(ENDED, polling=250, timeout=PATIENCE)
            page.wait_for_function(READY, polling=250)


def told(visit, window, faults):
    """Return a finding in a line that says how to see it again."""
    where = f"{visit.path or '/'} ({visit.state}, {visit.theme}"
    where += ", projector)" if visit.projector else ", unfolded)" if visit.unfolded else ")"
    return f"{window[0]} x {window[1]} {where}: {'; '.join(faults)}"
