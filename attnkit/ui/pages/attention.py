"""Attention: one lookup of a trained model, in stages, at any moment of training."""

from __future__ import annotations

from attnkit.ui.inside.film_page import film_page
from attnkit.ui.inside.inspected_run import ATTENTION_TITLE


def draw() -> None:
    """Draw the page."""
    film_page("attention", ATTENTION_TITLE, "attention")
