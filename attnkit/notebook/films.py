"""Card of a film: the player of the pages in a frame of its own, which works without a server."""

from __future__ import annotations

from html import escape

from attnkit.analysis.attention_map import telling_layer
from attnkit.foundation.words import counted
from attnkit.notebook.style import card, paragraph, swatch, table
from attnkit.training.film import Film
from attnkit.training.summary import percent
from attnkit.ui.standalone import standalone_html
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import colors_of

MOST_FRAMES = 24
"""Most frames in the player, so that a notebook stays small."""

MOST_BYTES = 1_000_000
"""Largest size of a player; a film of long examples has fewer frames."""

_HEIGHT = 640
"""Height of the player in pixels."""


def film_card(film: Film) -> str:
    """Return the card of a film: accuracies at its last frame, and the player."""
    experiment = film.experiment
    seed = f"seed {experiment.first_seed}"
    title = f"Film of {experiment.task.title}, {seed}"
    if not film.frames:
        return card(title, paragraph("No frame is recorded yet.", "quiet"))
    player, n_shown = _player(film, title)
    n, last = len(film.frames), film.frames[-1]
    count = f"{counted(n, 'frame')}, step {film.steps[0]:,} to {film.steps[-1]:,}."
    if n_shown < n:
        count += f" The player has {n_shown} of them, so that a notebook stays small."
    colors = colors_of(experiment.sharing)
    rows = [
        [f"{swatch(color)}{escape(title_of(variant))}", percent(float(accuracy))]
        for variant, color, accuracy in zip(
            experiment.sharing, colors, last.metrics["accuracy"], strict=True
        )
    ]
    accuracies = table(["Variant", f"Accuracy after {last.step:,} steps"], rows)
    return card(title, paragraph(count), accuracies, framed(player, title))


def framed(page: str, title: str) -> str:
    """Return a page in a frame of its own, below a note for places where scripts are off."""
    note = "No figures below? Then scripts are off here: trust this notebook, or open it elsewhere."
    frame = (
        f'<iframe srcdoc="{escape(page, quote=True)}" loading="lazy" '
        f'title="{escape(title, quote=True)}" '
        f'style="width:100%;height:{_HEIGHT}px;border:0;border-radius:6px"></iframe>'
    )
    return paragraph(note, "quiet small") + frame


def _player(film: Film, title: str) -> tuple[str, int]:
    """Return the page of the player, small enough, and its number of frames."""
    from attnkit.analysis import Inspection, inspect

    layer = telling_layer(film.experiment.layer_specs)
    n_frames = min(MOST_FRAMES, len(film.frames))
    while True:
        thinned = film.thinned(n_frames)
        blob = inspect(thinned, Inspection("attention", layer=layer)).to_bytes()
        page = standalone_html(title, "attention", blob, framed=True)
        if len(page) <= MOST_BYTES or n_frames <= 2:
            return page, len(thinned.frames)
        n_frames = max(2, n_frames // 2)
