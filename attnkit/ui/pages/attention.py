"""Attention: one lookup of a trained model, in stages, at any moment of training."""

from __future__ import annotations

from attnkit.ui.inspected_run import ATTENTION_TITLE, film_page


def draw() -> None:
    """Draw the page."""
    film_page("attention", ATTENTION_TITLE, "attention")
