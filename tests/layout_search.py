"""Windows and states of the dashboard drawn from a seed, and faults of layout that they show."""

from pathlib import Path
from urllib.parse import urlencode

from browsing import ALL_HAS_COME

from attnkit.claims import CLAIMS
from attnkit.evidence.questions import QUESTIONS
from attnkit.experiment.links import GROUPS
from attnkit.foundation.language import LANGUAGES
from attnkit.tasks import TASKS
from attnkit.ui.lab.classroom import lessons
from attnkit.variants import CATALOGUE

SIZES = ((320, 2600), (500, 1440))
"""Smallest and largest width and height of a screen, in pixels."""

PAGES = (
    *("attention", "asymmetry", "similarity", "surgery", "atlas", "variants", "guide", "runs"),
    *(f"questions?question={name}" for name in (*QUESTIONS, "new")),
    *(f"questions?claim={name}" for name in CLAIMS),
    *(f"guide?lesson={name}&lang={code}" for name in lessons() for code in LANGUAGES),
    *("questions", "capacity"),
)

SHORT = {"n_seeds": 2, "steps": 20, "evaluate_every": 10}
STATES = ({}, {"steps": 310}, SHORT, SHORT | {"learning_rate": 1.0}, {"quiet": 1})
STATES += ({"n_heads": 999, "no_such_field": 1},)
"""Settings of the Lab; what is short is trained, and once it fails."""

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

TRAINED = """() => document.querySelector('.ak-board-column canvas')
  && document.querySelector('.ak-board').dataset.step > 0
  && document.querySelector('.st-key-stop button').disabled"""

FOLDED = ":is([data-testid=stExpander] details, .ak-more):not([open]) > summary"


def draw_path(rng):
    """Draw the address of the Lab in one of its states, or of another page."""
    if rng.random() < 0.3:
        return rng.choice(PAGES)
    fields = {"v": 1, "task": "directed" if rng.random() < 0.4 else rng.choice(list(TASKS))}
    names = [one.variant.value for one in CATALOGUE.values() if one.variant.least_layers == 1]
    longest = rng.choice(sorted(names, key=len)[-5:])
    drawn = {
        "sharing": ",".join(dict.fromkeys([longest, *rng.sample(names, rng.randint(1, 5))])),
        "hide": ",".join(rng.sample(list(GROUPS), rng.randint(1, 3))),
        "lang": rng.choice(list(LANGUAGES)),
    }
    fields |= {name: value for name, value in drawn.items() if rng.random() < 0.4}
    return f"?{urlencode(fields | rng.choice(STATES))}"


def draw_window(rng):
    """Draw a screen and a zoom; return the window that pages see, in CSS pixels."""
    screen = [round(low * (high / low) ** rng.random()) for low, high in SIZES]
    zoom = rng.choice((1, 1, 1, 1.25, 1.5, 2))
    width, height = (round(side / zoom) for side in screen)
    return (width, height) if width >= 320 and height >= 400 else tuple(screen)


def faults_in(page, window, all_in_view=False):
    """Return what no reader would accept; from 1280 × 640 on, five variants are in one view."""
    width, height = window
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(50)
    page.evaluate(SEE_ALL)
    page.wait_for_function(STILL, polling=250)
    fits = all_in_view and width >= 1280 and height >= 640
    return page.evaluate(FAULTS, {"measuresInView": fits})


def train(page):
    """Train what is on screen to its end, unless it has been."""
    button = page.locator(".st-key-train button").first
    if button.is_enabled():
        button.evaluate("(node) => node.click()")  # an open sidebar lies over it on a phone
        page.wait_for_function(TRAINED, polling=250)


def open_folds(page):
    """Open all that a press unfolds on a page."""
    for fold in page.locator(FOLDED).all()[::-1]:
        fold.evaluate("(summary) => summary.click()")
